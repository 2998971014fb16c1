//! How many of the possible cases a test tries.

/// At most this many of all cases, evenly spread and the first among them; as many as `PROPTEST_CASES` says where it is set,
/// as for properties.
#[expect(clippy::disallowed_methods, reason = "as proptest does")]
pub fn some_of<T>(all: impl IntoIterator<Item = T>, few: usize) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let (count, wanted) = (all.len(), asked.unwrap_or(few).max(1));
    let step = count.div_ceil(wanted).max(1);
    all.into_iter().step_by(step).collect()
}
