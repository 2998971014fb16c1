//! What differs between the outputs of two runs, in order.

use super::TraceRecord;

/// How far ahead the next line in common is looked for.
const LOOKAHEAD_LINES: usize = 64;
/// So many differences are told; the rest is counted.
const DIFFERENCES_KEPT_MAX: usize = 20;

/// One difference: what was expected, what came instead, or both.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// In the recording, and not now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<TraceRecord>,
    /// Now, and not in the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<TraceRecord>,
}

/// Differences of two runs: the first, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Differences {
    /// The first of them.
    pub first: Vec<Difference>,
    /// All of them.
    pub count: usize,
}

impl Differences {
    fn push(&mut self, expected: Option<&TraceRecord>, got: Option<&TraceRecord>) {
        self.count += 1;
        if self.first.len() < DIFFERENCES_KEPT_MAX {
            self.first.push(Difference { expected: expected.cloned(), got: got.cloned() });
        }
    }
}

/// Compares two runs; `is_same` says what counts as the same line.
pub fn compare(
    expected: &[TraceRecord],
    got: &[TraceRecord],
    is_same: impl Fn(&TraceRecord, &TraceRecord) -> bool,
) -> Differences {
    let mut differences = Differences::default();
    let (mut expected_at, mut got_at) = (0, 0);
    while expected_at < expected.len() || got_at < got.len() {
        if let (Some(one), Some(other)) = (expected.get(expected_at), got.get(got_at))
            && is_same(one, other)
        {
            (expected_at, got_at) = (expected_at + 1, got_at + 1);
            continue;
        }
        let (expected_skipped, got_skipped) =
            skip_to_common(&expected[expected_at..], &got[got_at..], &is_same);
        for step in 0..expected_skipped.max(got_skipped) {
            let one = expected.get(expected_at + step).filter(|_| step < expected_skipped);
            differences.push(one, got.get(got_at + step).filter(|_| step < got_skipped));
        }
        (expected_at, got_at) = (expected_at + expected_skipped, got_at + got_skipped);
    }
    differences
}

/// How many lines of each come before the next one in common; all that are left, or a window of them, where none is near.
fn skip_to_common(
    expected: &[TraceRecord],
    got: &[TraceRecord],
    is_same: &impl Fn(&TraceRecord, &TraceRecord) -> bool,
) -> (usize, usize) {
    for distance in 1..=LOOKAHEAD_LINES {
        for expected_at in 0..=distance {
            if let (Some(one), Some(other)) = (expected.get(expected_at), got.get(distance - expected_at))
                && is_same(one, other)
            {
                return (expected_at, distance - expected_at);
            }
        }
    }
    (expected.len().min(LOOKAHEAD_LINES), got.len().min(LOOKAHEAD_LINES))
}
