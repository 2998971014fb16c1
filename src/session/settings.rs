//! Settings of the client.

use std::time::Duration;

use super::{input::speech_input::InputSettings, setup::SessionSetup};
use crate::{
    audio::output_converter::OutputFormat,
    vocabulary::{Eagerness, JudgedEnd, MicrophoneMode},
};

/// When a turn ends, as far as the client has set it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EndSettings {
    /// Silence that ends an utterance, ms.
    pub(super) silence_ms: Option<u32>,
    /// Probability that the user has finished, from which on a turn ends.
    pub(super) threshold: Option<f64>,
    /// Probability from which on the end of a turn is reported as likely.
    pub(super) likely_threshold: Option<f64>,
    /// Silence that ends a turn in any case, ms.
    pub(super) wait_max_ms: Option<u32>,
}

impl EndSettings {
    /// Applies them to the settings of the speech input. Without a model, the profile's fixed silence ends turns.
    pub(super) fn apply(self, input: &mut InputSettings, setup: &SessionSetup) {
        input.end_silence_ms = self.silence_ms.unwrap_or(setup.profile.listen.end_ms);
        if let Some(wait_max_ms) = self.wait_max_ms {
            input.end_silence_ms = setup.profile.listen.end_ms.min(wait_max_ms);
        }
        if let Some(threshold) = self.threshold {
            let wait_max_ms = self.wait_max_ms.unwrap_or_else(|| Eagerness::Medium.wait_max_ms());
            // Only silence ends turns: no probability is above 1.
            let threshold = if threshold >= 1.0 { f32::INFINITY } else { threshold as f32 };
            if threshold.is_infinite() {
                input.end_silence_ms = wait_max_ms;
            }
            input.pauses.judged = setup.can_judge().then_some(JudgedEnd {
                threshold,
                wait_likely_ms: wait_max_ms,
                wait_max_ms,
            });
        }
        input.pauses.likely_from = self.likely_threshold.map(|share| share as f32);
    }
}

/// Settings of the client.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) end: EndSettings,
    pub(super) language: Option<String>,
    pub(super) tts_model: Option<String>,
    pub(super) voice: Option<String>,
    pub(super) microphone: MicrophoneMode,
    pub(super) rollover_events: bool,
    /// Time without speech after which a conversation is paused.
    pub(super) idle_pause: Option<Duration>,
    /// Format of audio to the client.
    pub(super) output_format: OutputFormat,
    /// Silence after an utterance that the client wants reported.
    pub(super) utterance_gap: Option<Duration>,
}
