//! The input side: appends become units (field notes §1.6), and units become utterances.
//!
//! Only PyTorch collects: it takes at most one second per append and leaves the rest for later. C++ takes each append as
//! it is (field notes §7: its cost per step does not depend on the chunk).

use super::super::Backend;

/// The first unit has some look-ahead: padded in front to this much, of which the next constant is consumed.
const FIRST_SAMPLES: usize = 16_560;
const FIRST_CONSUMED: usize = 16_480;
const LOOK_AHEAD: usize = FIRST_SAMPLES - FIRST_CONSUMED;

/// Every later unit.
const UNIT_SAMPLES: usize = 16_000;

/// A unit below this root mean square is silent.
const AUDIBLE_RMS: f64 = 0.005;

/// As much of an utterance as one recognition takes (field notes §2).
const UTTERANCE_SAMPLES: usize = 30 * UNIT_SAMPLES;

/// The simulator's own bound on what waits for later appends: no session is longer.
const BUFFER_SAMPLES: usize = 600 * UNIT_SAMPLES;

/// What the user said, with the units before and after it.
#[derive(Debug)]
pub(super) struct Utterance {
    pub(super) seconds: f64,
    pub(super) audio: Vec<f32>,
}

/// Collects the user's audio.
#[derive(Debug)]
pub(super) struct Ear {
    collects: bool,
    begun: bool,
    buffer: Vec<f32>,
    before: Vec<f32>,
    utterance: Vec<f32>,
    audible_samples: usize,
    ended: bool,
}

impl Ear {
    pub(super) fn new(backend: Backend) -> Self {
        Self {
            collects: backend == Backend::Pytorch,
            begun: false,
            buffer: Vec::new(),
            before: Vec::new(),
            utterance: Vec::new(),
            audible_samples: 0,
            ended: false,
        }
    }

    /// The unit that this append completes, or `None` when it is too short.
    pub(super) fn take(&mut self, samples: Vec<f32>) -> Option<Vec<f32>> {
        if !self.collects {
            return Some(samples);
        }
        self.buffer.extend(samples);
        self.buffer.truncate(BUFFER_SAMPLES);
        if !self.begun {
            self.begun = true;
            let missing = FIRST_SAMPLES.saturating_sub(self.buffer.len());
            self.buffer.splice(0..0, std::iter::repeat_n(0.0, missing));
            return Some(self.buffer.drain(..FIRST_CONSUMED).collect());
        }
        (self.buffer.len() >= UNIT_SAMPLES).then(|| self.buffer.drain(..UNIT_SAMPLES).collect())
    }

    /// Listens to one unit; whether it is audible.
    pub(super) fn hear(&mut self, unit: Vec<f32>) -> bool {
        // What was looked ahead at belongs to the second before.
        let own = if self.collects { unit.get(LOOK_AHEAD..) } else { None };
        let audible = rms(own.unwrap_or(&unit)) >= AUDIBLE_RMS;
        if audible {
            self.audible_samples += unit.len();
            self.utterance.append(&mut self.before);
        }
        if audible || (self.audible_samples > 0 && !self.ended) {
            self.utterance.extend_from_slice(&unit);
            let excess = self.utterance.len().saturating_sub(UTTERANCE_SAMPLES);
            self.utterance.drain(..excess);
        }
        self.ended = !audible;
        self.before = if audible { Vec::new() } else { unit };
        audible
    }

    /// What the user has said, once silent; asking takes it away.
    pub(super) fn utterance(&mut self) -> Option<Utterance> {
        if !self.ended || self.audible_samples == 0 {
            return None;
        }
        let seconds = std::mem::take(&mut self.audible_samples) as f64 / UNIT_SAMPLES as f64;
        Some(Utterance { seconds, audio: std::mem::take(&mut self.utterance) })
    }
}

fn rms(samples: &[f32]) -> f64 {
    let power: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    (power / samples.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_cut_as_the_back_end_cuts_them() {
        let mut ear = Ear::new(Backend::Pytorch);
        let first = ear.take(vec![1.0; 16_000]).unwrap();
        assert_eq!((first.len(), first.iter().filter(|sample| **sample == 0.0).count()), (16_480, 560));
        assert_eq!(ear.take(vec![2.0; 8_000]), None, "too short");
        let second = ear.take(vec![2.0; 8_000]).unwrap();
        assert_eq!((second.len(), second[79], second[80]), (16_000, 1.0, 2.0));
        ear.take(vec![3.0; 48_000]).unwrap();
        assert_eq!(ear.take(vec![4.0]).unwrap()[80..], [3.0; 15_920], "the rest waited");
    }

    #[test]
    fn an_utterance_has_its_surroundings() {
        let mut ear = Ear::new(Backend::Cpp);
        for level in [0.0, 0.001, 0.5, 0.5] {
            ear.hear(vec![level; 16_000]);
        }
        assert!(ear.utterance().is_none(), "still speaking");
        for _ in 0..3 {
            ear.hear(vec![0.0; 16_000]);
        }
        let utterance = ear.utterance().unwrap();
        assert_eq!((utterance.seconds, utterance.audio.len()), (2.0, 64_000));
        assert!(ear.utterance().is_none());
        ear.hear(vec![f32::NAN; 16_000]);
    }
}
