//! An answer of the model until it has been played, as far as the clock can tell: servers send audio faster than it is heard.

use std::time::{Duration, Instant};

use crate::audio::MODEL_RATE_HZ;

/// An answer and its audio so far.
#[derive(Debug)]
pub(super) struct PlayedAnswer {
    pub(super) response_id: Box<str>,
    began_at: Instant,
    pub(super) last_output_at: Instant,
    /// Samples at [`MODEL_RATE_HZ`].
    pub(super) samples: u64,
    /// The server has sent all of it.
    pub(super) is_complete: bool,
}

impl PlayedAnswer {
    /// An answer whose first output comes now.
    pub(super) fn new(now: Instant, response_id: &str) -> Self {
        let response_id = response_id.into();
        Self { response_id, began_at: now, last_output_at: now, samples: 0, is_complete: false }
    }

    /// Takes output with this number of samples.
    pub(super) const fn push(&mut self, now: Instant, samples: usize) {
        self.samples += samples as u64;
        self.last_output_at = now;
    }

    const fn length_ms(&self) -> u64 {
        self.samples * 1000 / MODEL_RATE_HZ as u64
    }

    /// When its audio so far has been played.
    pub(super) fn ends_at(&self) -> Instant {
        self.began_at + Duration::from_millis(self.length_ms())
    }

    /// How much of it the user has heard by now, ms.
    pub(super) fn heard_ms(&self, now: Instant) -> u64 {
        let since_begin = (now - self.began_at).as_millis();
        u64::try_from(since_begin).map_or(self.length_ms(), |ms| ms.min(self.length_ms()))
    }
}
