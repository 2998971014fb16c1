//! Audio of an answer that may still turn out to be a call: it is released as far as words came that cannot be spoken faster.
//!
//! Audio may come before its words. A call would be heard if audio were released as soon as any word has come.

use crate::session::assistant::pace::Pace;

/// Samples of a millisecond at the model's rate.
const SAMPLES_PER_MS: usize = (crate::audio::MODEL_RATE_HZ / 1000) as usize;
/// Most audio that is held, samples: 90 s, as much as the floor takes.
const HELD_MAX_SAMPLES: usize = 90_000 * SAMPLES_PER_MS;

/// Audio of one answer.
#[derive(Debug, Default)]
pub(super) struct HeldAudio {
    samples: Vec<f32>,
    /// Samples that words so far allow, and that were not released.
    allowed: usize,
    /// All audio that came, samples.
    pub(super) total: usize,
    /// Nothing more is released.
    is_closed: bool,
}

impl HeldAudio {
    pub(super) fn push(&mut self, samples: &[f32]) {
        self.total += samples.len();
        let room = HELD_MAX_SAMPLES.saturating_sub(self.samples.len());
        if !self.is_closed {
            self.samples.extend_from_slice(&samples[..samples.len().min(room)]);
        }
    }

    /// Words came.
    pub(super) fn allow(&mut self, words: &str) {
        self.allowed += Pace::FASTEST.length_ms(words) as usize * SAMPLES_PER_MS;
    }

    /// Takes the audio that may be heard.
    pub(super) fn release(&mut self) -> Vec<f32> {
        let samples = self.allowed.min(self.samples.len());
        self.allowed -= samples;
        self.samples.drain(..samples).collect()
    }

    /// Discards what is held, because a call came.
    pub(super) fn close(&mut self) {
        (self.is_closed, self.samples) = (true, Vec::new());
    }

    /// Takes all of it, because the answer is over and has no call.
    pub(super) fn release_all(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.samples)
    }
}
