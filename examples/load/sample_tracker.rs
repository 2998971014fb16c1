//! Sample tracker of a stream: detects lost, duplicated and reordered samples.

use std::ops::{AddAssign, Range};

/// Sample counts of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampleCounts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Never arrived.
    pub(crate) lost: u64,
    /// Arrived again.
    pub(crate) duplicated: u64,
    /// Arrived after later ones.
    pub(crate) reordered: u64,
    /// Not part of the sent audio.
    pub(crate) unrecognised: u64,
    /// Still buffered in the bridge at the end.
    pub(crate) tail: u64,
}

impl SampleCounts {
    /// True if every sample arrived once and in order.
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

/// Tracks one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleTracker {
    /// Expected position of the next sample.
    pub(crate) next_position: u64,
    /// First position beyond all samples received.
    high_water: u64,
    holes: Vec<Range<u64>>,
    counts: SampleCounts,
}

impl SampleTracker {
    /// Starts a stream at this position.
    pub(crate) fn starting_at(position: u64) -> Self {
        Self { next_position: position, high_water: position, ..Self::default() }
    }

    /// Records samples at the expected position.
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

    /// Records unknown samples; assumes that they are at the expected position.
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

    /// Jumps to another position; the samples between were discarded on purpose.
    pub(crate) fn skip_to(&mut self, position: u64) {
        self.next_position = position;
        self.high_water = self.high_water.max(position);
    }

    /// Evaluates a stream of this length; the last `tail_max` samples may still be in transit.
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
