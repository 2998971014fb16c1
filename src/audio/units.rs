//! A microphone's audio on its way to the model: whatever comes goes out in units of exactly one second.
//!
//! One second is what the model was trained on; less pollutes its context (MiniCPM-o field notes §1.6, §7.9). This is a
//! queue that counts, not a clock: when a unit is due, and whether silence fills it up, others decide.

use std::collections::VecDeque;

use super::SPEECH_RATE_HZ;

/// Samples of a unit: one second at 16 kHz.
pub const UNIT_SAMPLES: usize = SPEECH_RATE_HZ as usize;

/// Room a unit begins with, samples: half of the time half of its memory will do.
const FIRST_ROOM: usize = UNIT_SAMPLES / 2;

/// Where the samples went: `pushed` is always `taken` + `dropped` + what is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Samples that came.
    pub pushed: u64,
    /// Samples that left in units.
    pub taken: u64,
    /// Zeros that filled units up; not among `taken`.
    pub filled: u64,
    /// Samples that were too old to be sent.
    pub dropped: u64,
}

/// The audio of one microphone, int16 at 16 kHz.
///
/// ```
/// use voxbridge::audio::units::{UNIT_SAMPLES, Units};
///
/// let mut units = Units::default();
/// units.push(&[7; 20_000]);
/// assert!(units.has_unit());
/// assert_eq!(units.take(), [7; UNIT_SAMPLES]);
/// assert_eq!(units.len(), 4_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Units {
    /// Whole units, mostly, and what has come of the next one: who takes one out is given its memory. None is longer than a
    /// unit, and none is empty.
    pieces: VecDeque<Vec<i16>>,
    len: usize,
    counts: Counts,
}

impl Units {
    /// Takes samples in.
    pub fn push(&mut self, samples: &[i16]) {
        self.len += samples.len();
        self.counts.pushed += samples.len() as u64;
        let mut rest = samples;
        while !rest.is_empty() {
            let room = self.pieces.back().map_or(0, |piece| UNIT_SAMPLES - piece.len());
            let (head, tail) = rest.split_at(rest.len().min(room));
            match self.pieces.back_mut() {
                Some(piece) if room > 0 => extend(piece, head),
                _ => self.pieces.push_back(Vec::new()),
            }
            rest = tail;
        }
    }

    /// Samples that are there.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a unit is there that needs no zeros.
    #[must_use]
    pub const fn has_unit(&self) -> bool {
        self.len() >= UNIT_SAMPLES
    }

    /// Takes the oldest unit out, exactly [`UNIT_SAMPLES`] long: zeros stand for what is not there yet.
    pub fn take(&mut self) -> Vec<i16> {
        let real = self.len().min(UNIT_SAMPLES);
        let mut unit = self.pieces.pop_front().unwrap_or_default();
        unit.reserve_exact(UNIT_SAMPLES - unit.len());
        while let Some(piece) = self.pieces.front_mut().filter(|_| unit.len() < UNIT_SAMPLES) {
            let wanted = piece.len().min(UNIT_SAMPLES - unit.len());
            unit.extend(piece.drain(..wanted));
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        unit.resize(UNIT_SAMPLES, 0);
        self.len -= real;
        self.counts.taken += real as u64;
        self.counts.filled += (UNIT_SAMPLES - real) as u64;
        unit
    }

    /// Puts a unit that was taken and never acknowledged back to the front, as if it had never left: its first `real`
    /// samples, the others are zeros it was filled up with. Of several units the last one comes first.
    pub fn give_back(&mut self, unit: &[i16], real: usize) {
        // No more than ever left, or the counts would not add up.
        let real = real
            .min(unit.len())
            .min(UNIT_SAMPLES)
            .min(usize::try_from(self.counts.taken).unwrap_or(usize::MAX));
        if real > 0 {
            self.pieces.push_front(unit[..real].to_vec());
        }
        self.len += real;
        self.counts.taken -= real as u64;
        self.counts.filled = self.counts.filled.saturating_sub((unit.len() - real) as u64);
    }

    /// Drops whole seconds, the oldest first, until at most `max_samples` are there; says how many samples that were. One
    /// gap of a second in a while is less than many that cut words (field notes §7.10).
    pub fn limit(&mut self, max_samples: usize) -> u64 {
        let excess = self.len().saturating_sub(max_samples);
        // There is less than a whole second only if less than that may be there at all.
        let dropped = excess.next_multiple_of(UNIT_SAMPLES).min(self.len());
        self.counts.dropped += dropped as u64;
        self.remove(dropped);
        dropped as u64
    }

    /// Gives back the memory that is not in use.
    pub fn shrink(&mut self) {
        self.pieces.iter_mut().for_each(Vec::shrink_to_fit);
        self.pieces.shrink_to_fit();
    }

    /// Where the samples went.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    fn remove(&mut self, samples: usize) {
        let mut left = samples;
        while let Some(piece) = self.pieces.front_mut().filter(|_| left > 0) {
            let gone = piece.len().min(left);
            piece.drain(..gone);
            left -= gone;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.len -= samples - left;
    }
}

/// Appends to a piece of a unit, which never takes more memory than a whole one.
fn extend(piece: &mut Vec<i16>, samples: &[i16]) {
    let len = piece.len() + samples.len();
    if len > piece.capacity() {
        let room = if len > FIRST_ROOM { UNIT_SAMPLES } else { FIRST_ROOM };
        piece.reserve_exact(room - piece.len());
    }
    piece.extend_from_slice(samples);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Samples that tell where they belong.
    fn count(from: usize, samples: usize) -> Vec<i16> {
        (from..from + samples).map(|at| (at % 30_011) as i16 + 1).collect()
    }

    #[test]
    fn units_are_exact_and_in_order() {
        let mut units = Units::default();
        for frame in 0..100 {
            units.push(&count(frame * 320, 320));
            assert_eq!(units.has_unit(), frame >= 49);
        }
        assert_eq!(units.take(), count(0, UNIT_SAMPLES));
        assert_eq!(units.take(), count(UNIT_SAMPLES, UNIT_SAMPLES));
        assert!(units.is_empty() && !units.has_unit());
        assert_eq!(units.counts(), Counts { pushed: 32_000, taken: 32_000, ..Counts::default() });
    }

    #[test]
    fn zeros_stand_for_what_is_not_there() {
        let mut units = Units::default();
        units.push(&[5; 100]);
        let unit = units.take();
        assert_eq!((&unit[..100], &unit[100..]), ([5; 100].as_slice(), [0; UNIT_SAMPLES - 100].as_slice()));
        assert_eq!(units.take(), [0; UNIT_SAMPLES]);
        let filled = 2 * UNIT_SAMPLES as u64 - 100;
        assert_eq!(units.counts(), Counts { pushed: 100, taken: 100, filled, dropped: 0 });
    }

    #[test]
    fn what_is_given_back_never_left() {
        let mut units = Units::default();
        units.push(&count(0, 40_000));
        let before = units.counts();
        let taken: Vec<(usize, Vec<i16>)> =
            (0..3).map(|_| (units.len().min(UNIT_SAMPLES), units.take())).collect();
        assert_eq!(units.counts().filled, 8_000);
        for (real, unit) in taken.iter().rev() {
            units.give_back(unit, *real);
        }
        assert_eq!(units.counts(), before);
        units.push(&count(40_000, 8_000));
        for second in 0..3 {
            assert_eq!(units.take(), count(second * UNIT_SAMPLES, UNIT_SAMPLES));
        }
    }

    #[test]
    fn what_never_left_cannot_be_given_back() {
        let mut units = Units::default();
        units.push(&[1; 10]);
        units.give_back(&[2; 50], 100);
        assert_eq!((units.len(), units.counts().pushed), (10, 10));
    }

    #[test]
    fn the_oldest_seconds_are_dropped() {
        let mut units = Units::default();
        units.push(&count(0, 70_000));
        assert_eq!(units.limit(70_000), 0);
        assert_eq!(units.limit(48_000), 32_000, "22 000 too many are two seconds");
        assert_eq!(units.take(), count(32_000, UNIT_SAMPLES));
        assert_eq!(units.limit(21_999), 16_000);
        assert_eq!(units.limit(0), 6_000, "there is no whole second");
        assert_eq!((units.limit(0), units.len()), (0, 0));
    }

    /// Samples it has room for.
    fn room(units: &Units) -> usize {
        units.pieces.iter().map(Vec::capacity).sum()
    }

    #[test]
    fn it_holds_no_more_memory_than_it_needs() {
        let mut units = Units::default();
        for (samples, most) in
            [(320, FIRST_ROOM), (7_680, FIRST_ROOM), (320, UNIT_SAMPLES), (7_680, UNIT_SAMPLES)]
        {
            units.push(&vec![1; samples]);
            assert_eq!(room(&units), most, "of {}", units.len());
        }
        units.push(&count(0, 60 * UNIT_SAMPLES));
        assert_eq!(room(&units), 61 * UNIT_SAMPLES);
        assert!((0..61).all(|_| units.take().capacity() == UNIT_SAMPLES));
        assert_eq!(room(&units), 0);
        units.push(&[1; 320]);
        units.shrink();
        assert_eq!(room(&units), 320);
        units.limit(0);
        assert_eq!(room(&units), 0);
    }

    /// What can be done to a queue.
    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        Take,
        GiveBack,
        Limit(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0usize..40_000).prop_map(Step::Push),
            2 => Just(Step::Take),
            1 => Just(Step::GiveBack),
            1 => (0usize..80_000).prop_map(Step::Limit),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_sample_is_accounted_for_and_in_order(steps in prop::collection::vec(step(), 0..30)) {
            let (mut units, mut model, mut pushed) = (Units::default(), Vec::new(), 0);
            let mut last: Option<(Vec<i16>, usize)> = None;
            for step in steps {
                match step {
                    Step::Push(samples) => {
                        units.push(&count(pushed, samples));
                        model.extend(count(pushed, samples));
                        pushed += samples;
                    }
                    Step::Take => {
                        let real = model.len().min(UNIT_SAMPLES);
                        let unit = units.take();
                        prop_assert_eq!(unit.len(), UNIT_SAMPLES);
                        prop_assert!(unit[..real] == model[..real] && unit[real..].iter().all(|zero| *zero == 0));
                        model.drain(..real);
                        last = Some((unit, real));
                    }
                    Step::GiveBack => {
                        if let Some((unit, real)) = last.take() {
                            units.give_back(&unit, real);
                            model.splice(..0, unit[..real].iter().copied());
                        }
                    }
                    Step::Limit(max) => {
                        let dropped = usize::try_from(units.limit(max)).unwrap();
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
