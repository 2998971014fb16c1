//! Cases of tests: tables of them, how many a test tries, and checks of JSON.

use serde_json::Value;

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

/// The rows of a table: one a line, with ` | ` between its cells. Blank lines and those that begin with `# ` are none.
pub fn rows<'t, const CELLS: usize>(table: &'t str) -> Vec<[&'t str; CELLS]> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("# "));
    let row = |line: &'t str| {
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        cells.try_into().unwrap_or_else(|cells| panic!("not {CELLS} cells: {cells:?}"))
    };
    lines.map(row).collect()
}

/// The items of a list that a text names, without spaces in them.
pub fn listed(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Checks the members of a JSON value: `{"/a/0": expected}` names them by JSON pointers. One that is missing is null.
pub fn assert_has(value: &Value, expected: Value) {
    for (pointer, expected) in expected.as_object().expect("pointers and their values") {
        let found = value.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, expected, "{pointer} of {value}");
    }
}
