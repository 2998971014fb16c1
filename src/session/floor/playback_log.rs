//! Log of the audio that was sent, until the client's next microphone audio is compared with it.

use std::time::{Duration, Instant};

use crate::audio::echo::Playback;

/// Longest log.
const LOG_MAX: Duration = Duration::from_secs(90);

/// Audio sent since the client's last microphone audio, oldest first.
#[derive(Debug, Default)]
pub(super) struct PlaybackLog {
    entries: Vec<Playback>,
    length: Duration,
}

impl PlaybackLog {
    /// Notes a frame of this length. A log that no microphone audio has emptied for long begins anew.
    pub(super) fn note_sent(&mut self, length: Duration, frame: Playback) {
        if self.length > LOG_MAX {
            *self = Self::default();
        }
        self.length += length;
        self.entries.push(frame);
    }

    /// Notes that the client drops what it has not played.
    pub(super) fn note_cut(&mut self, at: Instant) {
        self.entries.push(Playback::Cut(at));
    }

    /// Takes out all entries.
    pub(super) fn take(&mut self) -> Vec<Playback> {
        self.length = Duration::ZERO;
        std::mem::take(&mut self.entries)
    }
}
