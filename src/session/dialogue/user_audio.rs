//! What is known of the user's audio at this instant.

use std::time::{Duration, Instant};

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
