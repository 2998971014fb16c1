//! Audio that is kept of the user: the newest before an utterance, and the utterance.

use super::SAMPLES_PER_MS;

/// Ring of the newest samples, up to `max_samples`.
#[derive(Debug)]
pub(crate) struct PreRoll {
    samples: Vec<i16>,
    pub(super) max_samples: usize,
}

impl PreRoll {
    pub(super) const fn new(max_samples: u64) -> Self {
        Self { samples: Vec::new(), max_samples: max_samples as usize }
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Adds samples; returns the number of older samples dropped. Drops in batches, so that a hop moves few samples.
    pub(super) fn push(&mut self, hop: &[i16]) -> u64 {
        let mut dropped = 0;
        if self.samples.capacity() == 0 {
            self.samples.reserve_exact(2 * self.max_samples.max(hop.len()));
        }
        if self.samples.len() + hop.len() > 2 * self.max_samples.max(hop.len()) {
            dropped = self.samples.len() - self.max_samples.min(self.samples.len());
            self.samples.drain(..dropped);
        }
        self.samples.extend_from_slice(hop);
        dropped as u64
    }

    /// Takes the newest samples, at most `max_samples`; also returns the number of older samples.
    pub(super) fn take(&mut self) -> (Vec<i16>, u64) {
        let mut samples = std::mem::take(&mut self.samples);
        let older = samples.len().saturating_sub(self.max_samples);
        samples.drain(..older);
        (samples, older as u64)
    }
}

/// Recording of an utterance.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) audio: Vec<i16>,
    pub(crate) has_speech: bool,
    /// Start and end of the speech that the detector found, in samples listened to; `None` before the first.
    pub(super) speech: Option<(u64, u64)>,
}

impl Recording {
    /// Notes a hop of speech that ends at this sample.
    pub(super) fn note_speech(&mut self, hop_samples: usize, end: u64) {
        self.has_speech = true;
        let start = end.saturating_sub(hop_samples as u64);
        self.speech = Some((self.speech.map_or(start, |(start, _)| start), end));
    }

    /// Splits off the newest samples of a recording that ends at this sample.
    pub(super) fn split_off(&mut self, samples: usize, end: u64) -> Self {
        let audio = self.audio.split_off(self.audio.len().saturating_sub(samples));
        let cut = end.saturating_sub(samples as u64);
        let speech = self.speech.filter(|(_, to)| *to > cut).map(|(from, to)| (from.max(cut), to));
        self.speech = self.speech.filter(|(from, _)| *from < cut).map(|(from, to)| (from, to.min(cut)));
        Self { audio, has_speech: speech.is_some(), speech }
    }

    /// Start and end of the speech in a recording that ends at this sample, ms.
    pub(super) fn speech_ms(&self, end: u64) -> (u64, u64) {
        let whole = (end.saturating_sub(self.audio.len() as u64), end);
        let (from, to) = self.speech.unwrap_or(whole);
        (from / SAMPLES_PER_MS, to / SAMPLES_PER_MS)
    }
}
