//! Compares the outputs of two runs in order.

use super::TraceRecord;

/// How many records ahead the comparison looks for the next common record.
const LOOKAHEAD_LINES: usize = 64;
/// Maximum number of differences to keep; further ones are only counted.
const DIFFERENCES_KEPT_MAX: usize = 20;

/// One difference: a missing record, an additional record, or one in place of the other.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// Record of the trace that is missing in the replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<TraceRecord>,
    /// Record of the replay that is missing in the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<TraceRecord>,
}

/// Differences of two runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Differences {
    /// The first differences.
    pub first: Vec<Difference>,
    /// Number of all differences.
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

/// Compares two runs; `is_same` decides whether two records are equal.
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

/// Number of records on each side before the next common record. Without a near one, all remaining records within the
/// lookahead window.
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
