//! What differs between the outputs of two runs, in order.

use super::Line;

/// How far ahead the next line in common is looked for.
const WINDOW: usize = 64;
/// So many differences are told; the rest is counted.
const MOST_TOLD: usize = 20;

/// One difference: what was expected, what came instead, or both.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// In the recording, and not now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Line>,
    /// Now, and not in the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<Line>,
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
    fn push(&mut self, expected: Option<&Line>, got: Option<&Line>) {
        self.count += 1;
        if self.first.len() < MOST_TOLD {
            self.first.push(Difference { expected: expected.cloned(), got: got.cloned() });
        }
    }
}

/// Compares two runs; `same` says what counts as the same line.
pub fn compare(expected: &[Line], got: &[Line], same: impl Fn(&Line, &Line) -> bool) -> Differences {
    let mut differences = Differences::default();
    let (mut a, mut b) = (0, 0);
    while a < expected.len() || b < got.len() {
        if let (Some(one), Some(other)) = (expected.get(a), got.get(b))
            && same(one, other)
        {
            (a, b) = (a + 1, b + 1);
            continue;
        }
        let (skip_a, skip_b) = to_common(&expected[a..], &got[b..], &same);
        for step in 0..skip_a.max(skip_b) {
            let one = expected.get(a + step).filter(|_| step < skip_a);
            differences.push(one, got.get(b + step).filter(|_| step < skip_b));
        }
        (a, b) = (a + skip_a, b + skip_b);
    }
    differences
}

/// How many lines of each come before the next one in common; all that are left, or a window of them, where none is near.
fn to_common(expected: &[Line], got: &[Line], same: &impl Fn(&Line, &Line) -> bool) -> (usize, usize) {
    for away in 1..=WINDOW {
        for a in 0..=away {
            if let (Some(one), Some(other)) = (expected.get(a), got.get(away - a))
                && same(one, other)
            {
                return (a, away - a);
            }
        }
    }
    (expected.len().min(WINDOW), got.len().min(WINDOW))
}
