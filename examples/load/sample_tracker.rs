//! Which samples of a stream have come: what was lost, what came twice, what came out of order.

use std::ops::{AddAssign, Range};

/// What became of a stream's samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampleCounts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Never came.
    pub(crate) lost: u64,
    /// Came once more.
    pub(crate) duplicated: u64,
    /// Came behind later ones.
    pub(crate) reordered: u64,
    /// Were nothing that was sent.
    pub(crate) unrecognised: u64,
    /// Were still in the bridge's hands at the end.
    pub(crate) tail: u64,
}

impl SampleCounts {
    /// Whether every sample came once and in order.
    pub(crate) const fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.reordered == 0 && self.unrecognised == 0
    }
}

impl AddAssign for SampleCounts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.unrecognised += other.unrecognised;
        self.tail += other.tail;
    }
}

/// Follows one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleTracker {
    /// Where the next sample belongs, if nothing happens.
    pub(crate) next_position: u64,
    /// The first place that nothing has come for, nor behind it.
    high_water: u64,
    holes: Vec<Range<u64>>,
    counts: SampleCounts,
}

impl SampleTracker {
    /// One that begins here.
    pub(crate) fn starting_at(position: u64) -> Self {
        Self { next_position: position, high_water: position, ..Self::default() }
    }

    /// Takes samples that belong where the last ones ended, or to where `next` was set.
    pub(crate) fn receive(&mut self, samples: u64) {
        let range = self.next_position..self.next_position + samples;
        self.counts.received += samples;
        self.next_position = range.end;
        if range.start > self.high_water {
            self.holes.push(self.high_water..range.start);
        }
        let again = range.end.min(self.high_water).saturating_sub(range.start);
        if again > 0 {
            let filled = self.fill_holes(range.start..range.start + again);
            self.counts.reordered += filled;
            self.counts.duplicated += again - filled;
        }
        self.high_water = self.high_water.max(range.end);
    }

    /// Takes samples nobody knows; they are believed to be where they belong.
    pub(crate) fn receive_unrecognised(&mut self, samples: u64) {
        self.counts.unrecognised += samples;
        self.receive(samples);
    }

    fn fill_holes(&mut self, range: Range<u64>) -> u64 {
        let mut filled = 0;
        let mut left = Vec::new();
        for hole in self.holes.drain(..) {
            let (from, to) = (hole.start.max(range.start), hole.end.min(range.end));
            if from >= to {
                left.push(hole);
                continue;
            }
            filled += to - from;
            left.extend([hole.start..from, to..hole.end].into_iter().filter(|rest| !rest.is_empty()));
        }
        self.holes = left;
        filled
    }

    /// Goes on elsewhere; what is between was given up on purpose.
    pub(crate) fn skip_to(&mut self, position: u64) {
        self.next_position = position;
        self.high_water = self.high_water.max(position);
    }

    /// What became of a stream of so many samples, of which the last `tail_max` may still be under way.
    pub(crate) fn counts(&self, sent: u64, tail_max: u64) -> SampleCounts {
        let missing = sent.saturating_sub(self.high_water);
        let (tail, late) = if missing <= tail_max { (missing, 0) } else { (0, missing) };
        let holes: u64 = self.holes.iter().map(|hole| hole.end - hole.start).sum();
        SampleCounts { sent, lost: holes + late, tail, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_stream_is_clean() {
        let mut tracker = SampleTracker::default();
        (0..10).for_each(|_| tracker.receive(160));
        let counts = tracker.counts(1_700, 160);
        assert!(counts.is_clean());
        assert_eq!((counts.received, counts.tail, tracker.counts(1_800, 160).lost), (1_600, 100, 200));
    }

    #[test]
    fn lost_duplicated_and_reordered_samples_are_distinguished() {
        let mut tracker = SampleTracker::default();
        for position in [0, 320, 640, 640, 1_280, 960, 1_600] {
            tracker.next_position = position;
            tracker.receive(320);
        }
        let counts = tracker.counts(2_240, 0);
        assert_eq!((counts.lost, counts.duplicated, counts.reordered), (320, 320, 320));
    }
}
