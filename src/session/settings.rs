//! Settings of the client.

use std::time::Duration;

use crate::{audio::encoding::Encoding, event::MicrophoneMode};

/// Settings of the client.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) language: Option<String>,
    pub(super) tts_model: Option<String>,
    pub(super) voice: Option<String>,
    pub(super) microphone: MicrophoneMode,
    pub(super) rollover_events: bool,
    /// Encoding and sample rate of audio to the client.
    pub(super) output_format: (Encoding, u32),
    /// Silence after an utterance that the client wants reported.
    pub(super) utterance_gap: Option<Duration>,
}
