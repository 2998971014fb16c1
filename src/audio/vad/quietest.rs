//! Quietest place of speech without pauses: where an utterance is cut that gets too long.
//!
//! The place lies between two hops, in the middle of the 32 ms with the least energy. Speech has such places between its words
//! and in closed consonants; a weaker share of the hops around them makes a gap between words win.
//!
//! Measured on the recordings in examples/speech, joined without pauses: of 692 cuts in windows of 2.5 s, 98 lie more than 40 ms
//! within a word (by forced alignment), and 216 if nothing but the 32 ms counts.

/// Hops around a place, and the weight of each one's energy: the two beside the place count in full.
const WEIGHTS: [f32; 12] = [0.1, 0.1, 0.1, 0.1, 0.5, 1.0, 1.0, 0.5, 0.1, 0.1, 0.1, 0.1];

/// Hops behind the place that are weighed.
const HOPS_BEHIND: u32 = (WEIGHTS.len() / 2) as u32;

/// Finds the quietest place among hops, as they come.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuietestPlace {
    /// Energy of the newest hops, the oldest first.
    newest: [f32; WEIGHTS.len()],
    /// Weighted energy around the best place so far.
    least: f32,
    /// Hops since that place; 0 before the first.
    hops_since: u32,
    /// Which of the newest hops are silent, the newest in the lowest bit.
    silent: u16,
    /// Silent hops around the best place.
    silent_around: u32,
}

/// Silent hops around a place that make a pause: 128 ms. Speakers pause about as long within a sentence.
const PAUSE_HOPS: u32 = 8;

impl QuietestPlace {
    /// Before the first hop. Hops before it count as loud.
    pub(super) const NONE: Self = Self {
        newest: [f32::MAX / 1e3; WEIGHTS.len()],
        least: f32::INFINITY,
        hops_since: 0,
        silent: 0,
        silent_around: 0,
    };

    /// Adds a hop.
    pub(super) fn push(&mut self, speech: bool, energy: f32) {
        self.silent = self.silent << 1 | u16::from(!speech);
        self.newest.rotate_left(1);
        if let Some(newest) = self.newest.last_mut() {
            *newest = energy;
        }
        let weighed: f32 = self.newest.iter().zip(WEIGHTS).map(|(energy, weight)| energy * weight).sum();
        // Of equally quiet places, the last.
        if weighed <= self.least {
            (self.least, self.hops_since) = (weighed, HOPS_BEHIND);
            self.silent_around = (self.silent & ((1 << WEIGHTS.len()) - 1)).count_ones();
        } else {
            self.hops_since = self.hops_since.saturating_add(1);
        }
    }

    /// Hops since the quietest place, at least one.
    pub(super) fn hops_since(&self) -> u32 {
        self.hops_since.max(1)
    }

    /// True if the speech does not pause at the quietest place.
    pub(super) const fn is_in_speech(&self) -> bool {
        self.silent_around < PAUSE_HOPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops_since_quietest(energies: &[f32]) -> u32 {
        let mut place = QuietestPlace::NONE;
        energies.iter().for_each(|energy| place.push(true, *energy));
        place.hops_since()
    }

    #[test]
    fn place_in_a_pause_is_not_in_speech() {
        for (silent_hops, is_in_speech) in [(0, true), (3, true), (7, true), (9, false), (12, false)] {
            let mut place = QuietestPlace::NONE;
            (0..40).for_each(|_| place.push(true, 900.0));
            (0..silent_hops).for_each(|_| place.push(false, 1.0));
            (0..40).for_each(|_| place.push(true, 900.0));
            assert_eq!(place.is_in_speech(), is_in_speech, "{silent_hops} silent hops");
        }
    }

    #[test]
    fn gap_between_words_wins_over_one_as_quiet_within_a_word() {
        let loud = [900.0; 20];
        // Six hops of near silence, and later two.
        let since = hops_since_quietest(&[&loud[..], &[1.0; 6], &loud, &[1.0; 2], &loud].concat());
        assert!((1..6).contains(&(since - (20 + 2 + 20))), "within the six: {since}");
    }

    #[test]
    fn place_lies_in_the_middle_of_the_quietest_hops() {
        let slope: Vec<f32> = (1..=20).map(|step| step as f32 * 100.0).collect();
        let falling: Vec<f32> = slope.iter().rev().copied().collect();
        assert_eq!(hops_since_quietest(&[&falling[..], &slope].concat()), 20);
    }
}
