//! Divides a row of items into groups at the least cost: words into cues, and the words of a cue into lines.

use std::ops::Range;

/// The division of `0..count` into consecutive groups with the least total cost. The cost of a group is `None` if it is too
/// long; then every longer one with the same start is, too. A single item is never too long.
pub(super) fn divide(count: usize, cost: impl Fn(Range<usize>) -> Option<f32>) -> Vec<Range<usize>> {
    // For each end of a group: the least cost up to there, and the start of its last group.
    let mut best = vec![(f32::INFINITY, 0); count + 1];
    best[0].0 = 0.0;
    for start in 0..count {
        for end in start + 1..=count {
            let group_cost = match cost(start..end) {
                Some(cost) => cost,
                None if end == start + 1 => 0.0,
                None => break,
            };
            let total = best[start].0 + group_cost;
            if total < best[end].0 {
                best[end] = (total, start);
            }
        }
    }
    let mut groups = Vec::new();
    let mut end = count;
    while end > 0 {
        let start = best[end].1;
        groups.push(start..end);
        end = start;
    }
    groups.reverse();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_least_cost_and_hold_every_item_once() {
        let square = |range: Range<usize>| (range.len() <= 4).then(|| (range.len() as f32 - 3.0).powi(2));
        assert_eq!(divide(6, square), [0..3, 3..6]);
        assert!(matches!(divide(1, square).as_slice(), [Range { start: 0, end: 1 }]));
        assert!(divide(0, square).is_empty());
        assert_eq!(divide(3, |_| None), [0..1, 1..2, 2..3]);
    }
}
