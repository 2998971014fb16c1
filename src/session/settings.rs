//! What follows from the settings in force: the session's defaults, and settings of its parts.

use super::{
    input::speech_input::{InputSettings, pause::PauseUse},
    setup::SessionSetup,
};
use crate::{
    audio::output_converter::OutputFormat,
    spelling::client::{EchoMode, LockStep},
    vocabulary::{ClientEvent, ClientSettings, Eagerness, JudgedEnd},
};

impl ClientSettings {
    /// Format of the audio to the client.
    pub(super) const fn output_format(&self) -> OutputFormat {
        let Self { output_encoding: encoding, output_rate_hz: rate_hz, output_bit_rate: bit_rate, .. } =
            *self;
        OutputFormat { encoding, rate_hz, bit_rate }
    }

    /// The confirmation of a change.
    pub(super) fn configured(&self) -> ClientEvent {
        let Self { hot_words, end_threshold, end_likely_threshold, end_wait_max_ms, .. } = self;
        ClientEvent::Configured {
            hot_words: hot_words.clone(),
            end_threshold: *end_threshold,
            end_likely_threshold: *end_likely_threshold,
            end_wait_max_ms: *end_wait_max_ms,
        }
    }
}

impl SessionSetup {
    /// Settings of a session before the client sets any.
    pub(super) fn default_settings(&self) -> ClientSettings {
        ClientSettings {
            partials: self.profile.hear.partials,
            finals_only: self.lock_step != LockStep::Off,
            microphone: self.profile.microphone(),
            cancels_echo: self.audio_in.echo == EchoMode::Cancel,
            input_encoding: self.audio_in.encoding,
            input_rate_hz: self.audio_in.rate_hz,
            input_channels: self.audio_in.channels,
            output_encoding: self.audio_out.encoding,
            output_rate_hz: self.audio_out.rate_hz,
            ..ClientSettings::default()
        }
    }

    /// Settings of the speech input. Without an end-of-turn model, the profile's fixed silence ends turns that a probability shall
    /// end.
    pub(super) fn input_settings(&self, settings: &ClientSettings) -> InputSettings {
        let listen = &self.profile.listen;
        let wait_max_ms = settings.end_wait_max_ms.unwrap_or_else(|| Eagerness::Medium.wait_max_ms());
        // Only silence ends turns at 1: no probability is above.
        let only_silence_ends = settings.end_threshold.is_some_and(|share| share >= 1.0);
        let judged = settings.end_threshold.filter(|_| self.can_judge()).map(|share| JudgedEnd {
            threshold: if only_silence_ends { f32::INFINITY } else { share as f32 },
            wait_likely_ms: wait_max_ms,
            wait_max_ms,
        });
        let pauses = self.pause_use(settings.turn_detection.turn_end);
        InputSettings {
            encoding: settings.input_encoding,
            rate_hz: settings.input_rate_hz,
            channels: settings.input_channels,
            sensitivity: settings.vad_sensitivity,
            end_silence_ms: match settings.end_wait_max_ms {
                _ if only_silence_ends => wait_max_ms,
                Some(wait_max_ms) => listen.end_ms.min(wait_max_ms),
                None => settings.end_silence_ms.unwrap_or(listen.end_ms),
            },
            segment_max_ms: u32::try_from(self.audio_max_ms)
                .unwrap_or(u32::MAX)
                .min(settings.segment_max_ms.unwrap_or(listen.segment_max_ms)),
            cut_after_ms: self.transcripts.cut_after_ms,
            cut_pause_ms: self.transcripts.cut_pause_ms,
            cut_max_ms: self.transcripts.cut_max_ms,
            is_manual: !settings.turn_detection.is_automatic,
            pauses: PauseUse {
                judged: judged.or(pauses.judged),
                likely_from: settings.end_likely_threshold.map(|share| share as f32),
                ..pauses
            },
        }
    }

    /// True if the user's words are transcribed. A profile in full duplex that transcribes the user always does, because the words
    /// are part of later prompts.
    pub(super) fn transcribes_user(&self, settings: &ClientSettings) -> bool {
        let profile = &self.profile;
        match settings.transcribes_user {
            Some(on) if profile.answers.is_some() => on,
            Some(true) if profile.dialogue.is_some() => self.can_transcribe || profile.transcribes_user(),
            _ => profile.transcribes_user(),
        }
    }
}
