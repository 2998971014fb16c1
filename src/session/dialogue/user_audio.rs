//! Facts about the user's audio at this instant.

use std::time::{Duration, Instant};

use crate::session::microphone::TakenFrame;

/// The user's audio.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UserAudio {
    /// Time of the client's last audio, muted or not.
    pub(crate) client_audio_at: Option<Instant>,
    /// Time and length of the last microphone frame that was not muted.
    pub(crate) last_mic_frame: Option<(Instant, Duration)>,
    /// Time of the user's last detected voice.
    pub(crate) voice_at: Option<Instant>,
    /// An utterance of the user is in progress.
    pub(crate) in_speech: bool,
}

impl UserAudio {
    /// Notes a frame of audio. `is_heard` if the model hears it.
    pub(in crate::session) fn note_frame(&mut self, now: Instant, frame: TakenFrame, is_heard: bool) {
        self.client_audio_at = Some(now);
        if frame.is_dropped {
            return;
        }
        if is_heard {
            self.last_mic_frame = Some((now, frame.length));
        }
        if frame.has_speech {
            self.voice_at = Some(now);
        }
    }
}
