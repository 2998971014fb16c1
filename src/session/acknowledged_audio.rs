//! Acknowledgements of audio, for protocols that answer each message with audio.

use crate::vocabulary::ClientEvent;

/// Messages with audio that were acknowledged, and their bytes and milliseconds.
#[derive(Debug, Default)]
pub(super) struct AcknowledgedAudio {
    messages: u32,
    bytes: u64,
    ms: u64,
}

impl AcknowledgedAudio {
    /// Adds a message; `to_ms` is the length of all audio received. Returns the event about it.
    pub(super) fn add(&mut self, bytes: u64, to_ms: u64) -> ClientEvent {
        let before = (self.bytes, self.ms);
        self.messages = self.messages.saturating_add(1);
        (self.bytes, self.ms) = (self.bytes.saturating_add(bytes), to_ms);
        ClientEvent::AudioReceived {
            sequence: self.messages,
            bytes: (before.0, self.bytes),
            ms: (before.1, to_ms),
        }
    }
}
