//! Input audio: cuts appends into units (mappings/notes/minicpm-o-duplex.md#units) and units into utterances.
//!
//! Only PyTorch buffers: it takes at most one second per append and keeps the rest for later. C++ takes each append
//! whole (mappings/notes/minicpm-o-duplex.md#units: its cost per step does not depend on the chunk size).

use super::super::Backend;

/// The first unit is padded in front to the first length, and the second length of it is consumed; the rest is
/// look-ahead.
const FIRST_SAMPLES: usize = 16_560;
const FIRST_CONSUMED_SAMPLES: usize = 16_480;
const LOOK_AHEAD_SAMPLES: usize = FIRST_SAMPLES - FIRST_CONSUMED_SAMPLES;

/// Length of every later unit.
const UNIT_SAMPLES: usize = 16_000;

/// RMS threshold: a quieter unit is silent.
const AUDIBLE_RMS: f64 = 0.005;

/// Longest audio of one recognition (mappings/notes/minicpm-o.md#chat).
const MAX_UTTERANCE_SAMPLES: usize = 30 * UNIT_SAMPLES;

/// The simulator's own limit of buffered audio: the maximum length of a session.
const MAX_BUFFER_SAMPLES: usize = 600 * UNIT_SAMPLES;

/// A user utterance, including the silent units before and after it.
#[derive(Debug)]
pub(in super::super) struct UserUtterance {
    pub(in super::super) seconds: f64,
    pub(in super::super) audio: Vec<f32>,
}

/// Collects the user's audio.
#[derive(Debug, Default)]
pub(in super::super) struct InputUnits {
    cuts_units: bool,
    has_begun: bool,
    buffer: Vec<f32>,
    previous_unit: Vec<f32>,
    utterance: Vec<f32>,
    audible_samples: usize,
    has_ended: bool,
}

impl InputUnits {
    pub(in super::super) fn new(backend: Backend) -> Self {
        Self { cuts_units: backend == Backend::Pytorch, ..Self::default() }
    }

    /// Adds an append; returns the unit it completes, or `None` if a unit's worth of samples is still missing.
    pub(in super::super) fn push_append(&mut self, samples: Vec<f32>) -> Option<Vec<f32>> {
        if !self.cuts_units {
            return Some(samples);
        }
        self.buffer.extend(samples);
        self.buffer.truncate(MAX_BUFFER_SAMPLES);
        if !self.has_begun {
            self.has_begun = true;
            let missing = FIRST_SAMPLES.saturating_sub(self.buffer.len());
            self.buffer.splice(0..0, std::iter::repeat_n(0.0, missing));
            return Some(self.buffer.drain(..FIRST_CONSUMED_SAMPLES).collect());
        }
        (self.buffer.len() >= UNIT_SAMPLES).then(|| self.buffer.drain(..UNIT_SAMPLES).collect())
    }

    /// Analyses one unit; returns whether it is audible.
    pub(in super::super) fn observe_unit(&mut self, unit: Vec<f32>) -> bool {
        // The look-ahead samples belong to the previous second.
        let own_samples = if self.cuts_units { unit.get(LOOK_AHEAD_SAMPLES..) } else { None };
        let is_audible = rms(own_samples.unwrap_or(&unit)) >= AUDIBLE_RMS;
        if is_audible {
            self.audible_samples += unit.len();
            self.utterance.append(&mut self.previous_unit);
        }
        if is_audible || (self.audible_samples > 0 && !self.has_ended) {
            self.utterance.extend_from_slice(&unit);
            let excess = self.utterance.len().saturating_sub(MAX_UTTERANCE_SAMPLES);
            self.utterance.drain(..excess);
        }
        self.has_ended = !is_audible;
        self.previous_unit = if is_audible { Vec::new() } else { unit };
        is_audible
    }

    /// Returns and removes the utterance once the user is silent.
    pub(in super::super) fn take_utterance(&mut self) -> Option<UserUtterance> {
        if !self.has_ended || self.audible_samples == 0 {
            return None;
        }
        let seconds = std::mem::take(&mut self.audible_samples) as f64 / UNIT_SAMPLES as f64;
        Some(UserUtterance { seconds, audio: std::mem::take(&mut self.utterance) })
    }
}

/// Loudness of samples.
pub(in super::super) fn rms(samples: &[f32]) -> f64 {
    let power: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    (power / samples.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_cut_like_pytorch_cuts_them() {
        let mut input_units = InputUnits::new(Backend::Pytorch);
        let first = input_units.push_append(vec![1.0; 16_000]).unwrap();
        assert_eq!((first.len(), first.iter().filter(|sample| **sample == 0.0).count()), (16_480, 560));
        assert_eq!(input_units.push_append(vec![2.0; 8_000]), None, "half a unit");
        let second = input_units.push_append(vec![2.0; 8_000]).unwrap();
        assert_eq!((second.len(), second[79], second[80]), (16_000, 1.0, 2.0));
        input_units.push_append(vec![3.0; 48_000]).unwrap();
        assert_eq!(input_units.push_append(vec![4.0]).unwrap()[80..], [3.0; 15_920], "the rest was kept");
    }

    #[test]
    fn utterance_includes_units_before_and_after() {
        let mut input_units = InputUnits::new(Backend::Cpp);
        for level in [0.0, 0.001, 0.5, 0.5] {
            input_units.observe_unit(vec![level; 16_000]);
        }
        assert!(input_units.take_utterance().is_none(), "still speaking");
        for _ in 0..3 {
            input_units.observe_unit(vec![0.0; 16_000]);
        }
        let utterance = input_units.take_utterance().unwrap();
        assert_eq!((utterance.seconds, utterance.audio.len()), (2.0, 64_000));
        assert!(input_units.take_utterance().is_none());
        input_units.observe_unit(vec![f32::NAN; 16_000]);
    }
}
