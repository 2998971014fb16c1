//! Audio of an answer that may still turn out to be a call: it is released as far as words came that cannot be spoken faster.
//!
//! Audio may come before its words. A call would be heard if audio were released as soon as any word has come.

use crate::{session::pace::Pace, vocabulary::ToolOffer};

/// Samples of a millisecond at the model's rate.
const SAMPLES_PER_MS: usize = (crate::audio::MODEL_RATE_HZ / 1000) as usize;
/// Most audio that is held, samples: 600 s, as much as one message brings.
const HELD_MAX_SAMPLES: usize = 600_000 * SAMPLES_PER_MS;

/// Audio of one answer.
#[derive(Debug)]
pub(super) struct HeldAudio {
    samples: Vec<f32>,
    /// The pace at which words allow audio.
    pace: Pace,
    /// Samples that words so far allow, and that were not released.
    allowed: usize,
    /// All audio that came, samples.
    pub(super) total: usize,
    /// A call came: words allow nothing more.
    is_closed: bool,
    /// Audio was dropped, because a call came.
    pub(super) has_dropped: bool,
    /// Samples that were dropped because too much is held. None is held after that.
    pub(super) lost: usize,
}

impl HeldAudio {
    /// Where tools are offered, no sound of a call may be heard. Otherwise calls are rare, and ordinary speech is not held.
    pub(super) fn new(offer: &ToolOffer) -> Self {
        let pace = if offer.allows_calls() { Pace::FASTEST } else { Pace::SLOW };
        let samples = Vec::new();
        Self { samples, pace, allowed: 0, total: 0, is_closed: false, has_dropped: false, lost: 0 }
    }

    /// Memory of the held audio, bytes.
    pub(super) const fn kept_bytes(&self) -> usize {
        self.samples.len() * size_of::<f32>()
    }

    pub(super) fn push(&mut self, samples: &[f32]) {
        self.total += samples.len();
        let max = if self.is_closed { self.allowed } else { HELD_MAX_SAMPLES };
        let room = if self.lost > 0 { 0 } else { max.saturating_sub(self.samples.len()) };
        let kept = samples.len().min(room);
        self.samples.extend_from_slice(&samples[..kept]);
        match self.is_closed {
            true => self.has_dropped |= kept < samples.len(),
            false => self.lost += samples.len() - kept,
        }
    }

    /// Words came.
    pub(super) fn allow(&mut self, words: &str) {
        if !self.is_closed {
            self.allowed += self.pace.length_ms(words) as usize * SAMPLES_PER_MS;
        }
    }

    /// Takes the audio that may be heard.
    pub(super) fn release(&mut self) -> Vec<f32> {
        let samples = self.allowed.min(self.samples.len());
        self.allowed -= samples;
        self.samples.drain(..samples).collect()
    }

    /// Discards what is held beyond the audio of words, because a call came.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.has_dropped |= self.samples.len() > self.allowed;
        self.samples.truncate(self.allowed);
    }

    /// Takes all of it, because the answer is over and has no call.
    pub(super) fn release_all(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.samples)
    }
}
