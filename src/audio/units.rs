//! Queue of microphone audio for the model, taken out in whole units.
//!
//! MiniCPM-o was trained on one-second units; shorter ones pollute its context
//! (mappings/notes/minicpm-o-duplex.md#units). Other models have shorter ones. The queue counts samples but reads no clock. The
//! caller decides when a unit is due and whether zeros may fill it up.

use std::collections::VecDeque;

use super::{
    SPEECH_RATE_HZ,
    scratch::{PIECE_SAMPLES, put_back_piece, take_piece},
};

/// Samples of MiniCPM-o's unit: one second at 16 kHz. No unit is longer.
pub const UNIT_SAMPLES: usize = SPEECH_RATE_HZ as usize;

/// Samples to take of a queue with `queued` samples for a model with units of `unit` samples: all whole units, within a second, and
/// at least one.
#[must_use]
pub const fn whole_units(queued: usize, unit: usize) -> usize {
    let most = if queued < UNIT_SAMPLES { queued } else { UNIT_SAMPLES };
    let whole = most - most % unit;
    if whole == 0 { unit } else { whole }
}

/// Sample counts: `pushed` always equals `taken` + `dropped` + the samples still queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnitCounts {
    /// Samples pushed.
    pub pushed: u64,
    /// Samples taken out in units.
    pub taken: u64,
    /// Zeros that filled units up; not included in `taken`.
    pub filled: u64,
    /// Samples dropped because the queue was too long.
    pub dropped: u64,
}

/// Queue of one microphone's audio, int16 at 16 kHz.
///
/// ```
/// use voxbridge_audio::units::{UNIT_SAMPLES, UnitQueue};
///
/// let mut units = UnitQueue::default();
/// units.push(&[7; 20_000]);
/// assert_eq!(units.take_unit(UNIT_SAMPLES), [7; UNIT_SAMPLES]);
/// assert_eq!(units.len(), 4_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct UnitQueue {
    /// Mostly of [`PIECE_SAMPLES`], so that a unit takes little more memory than its samples while it is filled. The last may be
    /// empty. A unit that was put back is one piece.
    pieces: VecDeque<Vec<i16>>,
    len: usize,
    counts: UnitCounts,
}

impl UnitQueue {
    /// Appends samples. The memory comes from the units that were taken out on this thread, so that only more audio than before
    /// allocates some.
    pub fn push(&mut self, samples: &[i16]) {
        self.len += samples.len();
        self.counts.pushed += samples.len() as u64;
        let mut rest = samples;
        loop {
            let room = self.pieces.back_mut().map_or(0, |piece| extend_piece(piece, &mut rest));
            if room > 0 {
                return;
            }
            self.pieces.push_back(take_piece());
        }
    }

    /// Number of queued samples.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if no samples are queued.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes out the oldest audio, exactly this number of samples; zeros replace missing ones.
    pub fn take_unit(&mut self, samples: usize) -> Vec<i16> {
        let real_samples = self.len().min(samples);
        let mut unit = Vec::with_capacity(samples);
        while let Some(piece) = self.pieces.front().filter(|_| unit.len() < samples) {
            let wanted = piece.len().min(samples - unit.len());
            unit.extend_from_slice(&piece[..wanted]);
            self.drop_from_first(wanted);
        }
        unit.resize(samples, 0);
        self.len -= real_samples;
        self.counts.taken += real_samples as u64;
        self.counts.filled += (samples - real_samples) as u64;
        unit
    }

    /// Returns an unacknowledged unit to the front of the queue: its first `real_samples` samples, without
    /// the zeros that filled it up. Put several units back in reverse order.
    pub fn put_back(&mut self, unit: &[i16], real_samples: usize) {
        // At most the samples that were taken out, so that the counts add up.
        let real_samples =
            real_samples.min(unit.len()).min(usize::try_from(self.counts.taken).unwrap_or(usize::MAX));
        if real_samples > 0 {
            self.pieces.push_front(unit[..real_samples].to_vec());
        }
        self.len += real_samples;
        self.counts.taken -= real_samples as u64;
        self.counts.filled = self.counts.filled.saturating_sub((unit.len() - real_samples) as u64);
    }

    /// Drops whole seconds, the oldest first, until at most `max_samples` are queued. Returns the number of
    /// dropped samples. A rare gap of one second does less harm than many short ones that cut words
    /// (mappings/notes/minicpm-o-duplex.md#units).
    pub fn drop_excess(&mut self, max_samples: usize) -> u64 {
        let excess = self.len().saturating_sub(max_samples);
        // Drops less than a whole second only if no more is queued.
        let dropped = excess.next_multiple_of(UNIT_SAMPLES).min(self.len());
        self.counts.dropped += dropped as u64;
        self.drop_oldest(dropped);
        dropped as u64
    }

    /// Frees unused memory.
    pub fn shrink_to_fit(&mut self) {
        self.pieces.iter_mut().for_each(Vec::shrink_to_fit);
        self.pieces.shrink_to_fit();
    }

    /// The sample counts so far.
    pub const fn counts(&self) -> UnitCounts {
        self.counts
    }

    fn drop_oldest(&mut self, samples: usize) {
        let mut left = samples;
        while let Some(piece) = self.pieces.front().filter(|_| left > 0) {
            let removed = piece.len().min(left);
            self.drop_from_first(removed);
            left -= removed;
        }
        self.len -= samples - left;
    }

    /// Removes the first samples of the oldest piece, and the piece if that is all of it.
    fn drop_from_first(&mut self, samples: usize) {
        let Some(piece) = self.pieces.front_mut() else { return };
        if samples < piece.len() {
            piece.drain(..samples);
        } else if let Some(piece) = self.pieces.pop_front() {
            put_back_piece(piece);
        }
    }
}

/// Moves the first samples to a piece, as far as they fit; returns the room left.
fn extend_piece(piece: &mut Vec<i16>, samples: &mut &[i16]) -> usize {
    let room = PIECE_SAMPLES.saturating_sub(piece.len());
    piece.reserve_exact(room);
    let (head, tail) = samples.split_at(samples.len().min(room));
    piece.extend_from_slice(head);
    *samples = tail;
    room - head.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Samples whose values tell their position.
    fn numbered_samples(from: usize, samples: usize) -> Vec<i16> {
        (from..from + samples).map(|at| (at % 30_011) as i16 + 1).collect()
    }

    #[test]
    fn units_are_exact_and_in_order() {
        let mut units = UnitQueue::default();
        for frame in 0..100 {
            units.push(&numbered_samples(frame * 320, 320));
        }
        assert_eq!(units.take_unit(UNIT_SAMPLES), numbered_samples(0, UNIT_SAMPLES));
        assert_eq!(units.take_unit(UNIT_SAMPLES), numbered_samples(UNIT_SAMPLES, UNIT_SAMPLES));
        assert!(units.is_empty());
        assert_eq!(units.counts(), UnitCounts { pushed: 32_000, taken: 32_000, ..UnitCounts::default() });
    }

    #[test]
    fn all_whole_units_within_a_second_are_taken_and_at_least_one() {
        for (queued, unit, taken) in [
            (0, UNIT_SAMPLES, UNIT_SAMPLES),
            (40_000, UNIT_SAMPLES, UNIT_SAMPLES),
            (100, 1280, 1280),
            (1280, 1280, 1280),
            (3000, 1280, 2560),
            (40_000, 1280, 12 * 1280),
        ] {
            assert_eq!(whole_units(queued, unit), taken, "{queued} samples in units of {unit}");
        }
        let mut units = UnitQueue::default();
        units.push(&numbered_samples(0, 3000));
        assert_eq!(units.take_unit(whole_units(3000, 1280)), numbered_samples(0, 2560));
        assert_eq!((units.len(), units.take_unit(1280).len(), units.counts().filled), (440, 1280, 840));
    }

    #[test]
    fn short_units_are_filled_with_zeros() {
        let mut units = UnitQueue::default();
        units.push(&[5; 100]);
        let unit = units.take_unit(UNIT_SAMPLES);
        assert_eq!((&unit[..100], &unit[100..]), ([5; 100].as_slice(), [0; UNIT_SAMPLES - 100].as_slice()));
        assert_eq!(units.take_unit(UNIT_SAMPLES), [0; UNIT_SAMPLES]);
        let filled = 2 * UNIT_SAMPLES as u64 - 100;
        assert_eq!(units.counts(), UnitCounts { pushed: 100, taken: 100, filled, dropped: 0 });
    }

    #[test]
    fn put_back_restores_samples_and_counts() {
        let mut units = UnitQueue::default();
        units.push(&numbered_samples(0, 40_000));
        let before = units.counts();
        let taken: Vec<(usize, Vec<i16>)> =
            (0..3).map(|_| (units.len().min(UNIT_SAMPLES), units.take_unit(UNIT_SAMPLES))).collect();
        assert_eq!(units.counts().filled, 8_000);
        for (real_samples, unit) in taken.iter().rev() {
            units.put_back(unit, *real_samples);
        }
        assert_eq!(units.counts(), before);
        units.push(&numbered_samples(40_000, 8_000));
        for second in 0..3 {
            assert_eq!(units.take_unit(UNIT_SAMPLES), numbered_samples(second * UNIT_SAMPLES, UNIT_SAMPLES));
        }
    }

    #[test]
    fn put_back_is_limited_to_taken_samples() {
        let mut units = UnitQueue::default();
        units.push(&[1; 10]);
        units.put_back(&[2; 50], 100);
        assert_eq!((units.len(), units.counts().pushed), (10, 10));
    }

    #[test]
    fn drop_excess_removes_the_oldest_whole_seconds() {
        let mut units = UnitQueue::default();
        units.push(&numbered_samples(0, 70_000));
        assert_eq!(units.drop_excess(70_000), 0);
        assert_eq!(units.drop_excess(48_000), 32_000, "an excess of 22 000 samples drops two seconds");
        assert_eq!(units.take_unit(UNIT_SAMPLES), numbered_samples(32_000, UNIT_SAMPLES));
        assert_eq!(units.drop_excess(21_999), 16_000);
        assert_eq!(units.drop_excess(0), 6_000, "less than a whole second was queued");
        assert_eq!((units.drop_excess(0), units.len()), (0, 0));
    }

    /// Allocated samples.
    fn allocated_samples(units: &UnitQueue) -> usize {
        units.pieces.iter().map(Vec::capacity).sum()
    }

    #[test]
    fn queue_allocates_no_more_than_needed() {
        let mut units = UnitQueue::default();
        units.push(&[1; 320]);
        assert_eq!(allocated_samples(&units), PIECE_SAMPLES);
        units.push(&[1; UNIT_SAMPLES - 320]);
        assert_eq!(allocated_samples(&units), UNIT_SAMPLES + PIECE_SAMPLES, "room for the next frame");
        units.push(&numbered_samples(0, 60 * UNIT_SAMPLES));
        assert_eq!(allocated_samples(&units), 61 * UNIT_SAMPLES + PIECE_SAMPLES);
        assert!((0..61).all(|_| units.take_unit(UNIT_SAMPLES).capacity() == UNIT_SAMPLES));
        assert_eq!(allocated_samples(&units), PIECE_SAMPLES);
        units.shrink_to_fit();
        assert_eq!(allocated_samples(&units), 0);
        units.push(&[1; 320]);
        units.shrink_to_fit();
        assert_eq!(allocated_samples(&units), 320);
        units.drop_excess(0);
        assert_eq!(allocated_samples(&units), 0);
    }

    #[test]
    fn unit_that_is_filled_takes_little_more_memory_than_its_samples() {
        let mut units = UnitQueue::default();
        for frame in 0..49 {
            units.push(&numbered_samples(frame * 320, 320));
            let allocated = allocated_samples(&units);
            assert!(allocated <= units.len() + PIECE_SAMPLES, "{allocated} for {}", units.len());
        }
    }

    #[test]
    fn memory_of_a_unit_that_was_taken_out_is_used_for_the_next() {
        let mut units = UnitQueue::default();
        units.push(&numbered_samples(0, UNIT_SAMPLES));
        let mut memory: Vec<_> = units.pieces.iter().map(Vec::as_ptr).collect();
        assert_eq!(units.take_unit(UNIT_SAMPLES), numbered_samples(0, UNIT_SAMPLES));
        units.push(&numbered_samples(7, UNIT_SAMPLES - 1));
        let mut again: Vec<_> = units.pieces.iter().map(Vec::as_ptr).collect();
        memory.sort();
        again.sort();
        assert!(again.iter().all(|piece| memory.contains(piece)), "{again:?} of {memory:?}");
    }

    #[test]
    fn pieces_follow_a_unit_that_was_put_back() {
        let mut units = UnitQueue::default();
        units.push(&numbered_samples(0, UNIT_SAMPLES));
        let unit = units.take_unit(UNIT_SAMPLES);
        units.put_back(&unit, UNIT_SAMPLES);
        units.push(&numbered_samples(UNIT_SAMPLES, 3 * PIECE_SAMPLES));
        assert_eq!(units.drop_excess(UNIT_SAMPLES), UNIT_SAMPLES as u64);
        assert_eq!(
            units.take_unit(UNIT_SAMPLES)[..3 * PIECE_SAMPLES],
            numbered_samples(UNIT_SAMPLES, 3 * PIECE_SAMPLES)
        );
    }

    /// Operation on a queue.
    #[derive(Debug, Clone)]
    enum QueueOperation {
        Push(usize),
        Take,
        PutBack,
        DropExcess(usize),
    }

    fn operation() -> impl Strategy<Value = QueueOperation> {
        prop_oneof![
            3 => (0usize..40_000).prop_map(QueueOperation::Push),
            2 => Just(QueueOperation::Take),
            1 => Just(QueueOperation::PutBack),
            1 => (0usize..80_000).prop_map(QueueOperation::DropExcess),
        ]
    }

    proptest! {
        #![proptest_config(crate::property_config::property_config(64))]

        #[test]
        fn every_sample_is_accounted_for_and_in_order(operations in prop::collection::vec(operation(), 0..30)) {
            let (mut units, mut model, mut pushed) = (UnitQueue::default(), Vec::new(), 0);
            let mut last: Option<(Vec<i16>, usize)> = None;
            for operation in operations {
                match operation {
                    QueueOperation::Push(samples) => {
                        units.push(&numbered_samples(pushed, samples));
                        model.extend(numbered_samples(pushed, samples));
                        pushed += samples;
                    }
                    QueueOperation::Take => {
                        let real_samples = model.len().min(UNIT_SAMPLES);
                        let unit = units.take_unit(UNIT_SAMPLES);
                        prop_assert_eq!(unit.len(), UNIT_SAMPLES);
                        prop_assert!(unit[..real_samples] == model[..real_samples] && unit[real_samples..].iter().all(|zero| *zero == 0));
                        model.drain(..real_samples);
                        last = Some((unit, real_samples));
                    }
                    QueueOperation::PutBack => {
                        if let Some((unit, real_samples)) = last.take() {
                            units.put_back(&unit, real_samples);
                            model.splice(..0, unit[..real_samples].iter().copied());
                        }
                    }
                    QueueOperation::DropExcess(max) => {
                        let dropped = usize::try_from(units.drop_excess(max)).unwrap();
                        prop_assert!(dropped % UNIT_SAMPLES == 0 || units.is_empty());
                        prop_assert!(units.len() <= max && dropped < model.len().saturating_sub(max) + UNIT_SAMPLES);
                        model.drain(..dropped);
                        last = None;
                    }
                }
                let counts = units.counts();
                prop_assert_eq!(counts.pushed, counts.taken + counts.dropped + units.len() as u64);
                prop_assert_eq!((counts.pushed, units.len()), (pushed as u64, model.len()));
            }
        }
    }
}
