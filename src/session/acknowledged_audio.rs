//! Answers to frames of audio, for protocols that answer each: in lock step, or by an acknowledgement.

use super::{Session, outbox::lockstep::AwaitedReply};
use crate::{spelling::client::LockStep, vocabulary::ClientEvent};

/// Messages with audio that were acknowledged, and their bytes and milliseconds.
#[derive(Debug, Default)]
pub(super) struct AcknowledgedAudio {
    messages: u32,
    bytes: u64,
    ms: u64,
}

impl AcknowledgedAudio {
    /// Adds a message; `to_ms` is the length of all audio received. Returns the event about it.
    fn add(&mut self, bytes: u64, to_ms: u64) -> ClientEvent {
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

impl Session {
    /// Answers a frame of audio.
    pub(super) fn answer_frame(&mut self, bytes: usize) {
        if self.setup.lock_step == LockStep::EveryFrame {
            self.tools.out.await_reply(AwaitedReply::Current);
        }
        if self.setup.acknowledges_audio {
            let to_ms = self.intake.speech_input.listened_ms();
            let acknowledged = self.activity.acknowledged.add(bytes as u64, to_ms);
            self.tools.out.push_client(acknowledged);
        }
    }
}
