//! A profile's sections about conversation and playout. The schema is `mappings/reference.md`.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    spelling::{
        check::{self, Document, FileError},
        template::TextWithHistory,
    },
    vocabulary::MicrophoneMode,
};

/// `[playout]`: how audio leaves for the client.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlayoutRules {
    /// Pacing: burst or real time.
    pub pace: PlayoutPace,
    /// Audio sent ahead of playback, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub lead_ms: u32,
    /// Longest frame in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub frame_ms: u32,
    /// Longest hold of an answer's first audio after underruns, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub hold_max_ms: u32,
}

/// Pacing of audio towards the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlayoutPace {
    /// Sends audio as soon as it is available. The speech ends when all of it is sent.
    #[default]
    Burst,
    /// Sends audio in real time. The speech ends when all of it is played.
    RealTime,
}

/// Reporting of the model's words to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssistantText {
    /// As transcripts with their own `speaker` label.
    Transcripts,
    /// Not reported.
    None,
}

/// `[converse.agc]`: automatic gain control for quiet microphones.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgcRules {
    /// Level that speech is brought to, RMS of full scale.
    #[serde(deserialize_with = "check::deserialize_fraction")]
    pub target_rms: f32,
    /// Largest gain.
    pub gain_max: f32,
    /// Level below which audio is not speech, RMS of full scale.
    #[serde(deserialize_with = "check::deserialize_fraction")]
    pub floor_rms: f32,
}

/// `[barge_in]`: how the user interrupts the model.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BargeInRules {
    /// Length of presumed speech that pauses playback, in ms. It interrupts once it starts an utterance.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub start_ms: u32,
    /// Silence of the user after which the model may speak again, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub quiet_ms: u64,
    /// Longest suppression of the model, in ms. A microphone with constant noise must not silence the model
    /// for good.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub suppress_max_ms: u64,
    /// Time for the model to stop, in ms. A model that takes longer is replaced.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub yield_max_ms: u64,
}

/// `[rollover]`: when a conversation moves to another upstream session.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloverRules {
    /// Time before the upstream's limit from which a quiet moment is sought, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub soft_before_ms: u64,
    /// Time before the limit at which the rollover happens anyway, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub hard_before_ms: u64,
    /// Context size in tokens from which a quiet moment is sought.
    pub soft_tokens: u32,
    /// Context size in tokens at which the rollover happens anyway.
    pub hard_tokens: u32,
    /// Silence of both sides that makes a moment quiet, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub quiet_ms: u64,
    /// Prepares the next session in advance, on a second worker.
    pub standby: bool,
    /// Units of silence sent to the next session in advance, because a model only listens during its first
    /// three units (mappings/notes/minicpm-o-duplex.md#turns).
    pub standby_units: u32,
}

impl RolloverRules {
    /// These rules; an error if the order of the bounds, which the types cannot express, is wrong.
    pub(super) fn checked(self, document: &Document<'_>) -> Result<Self, FileError> {
        if self.hard_before_ms >= self.soft_before_ms || self.soft_tokens >= self.hard_tokens {
            return Err(document.problem_at_key(&["rollover"],
                "[rollover] soft bounds must come before hard ones: set `soft_before_ms` above `hard_before_ms` and `soft_tokens` below `hard_tokens`",
            ));
        }
        Ok(self)
    }
}

/// `[converse]`: the rules of a conversation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConverseRules {
    /// Inference settings as a JSON object.
    #[serde(deserialize_with = "deserialize_config")]
    pub config: Arc<str>,
    /// Reporting of the model's words.
    pub text: AssistantText,
    /// Transcribes the user's words, on a second worker.
    pub transcribe_user: bool,
    /// Handling of microphone audio while the client plays speech.
    pub microphone: MicrophoneMode,
    /// Gap in the client's audio after which silence is sent instead.
    #[serde(rename = "gap_ms", deserialize_with = "check::deserialize_duration")]
    pub gap: Duration,
    /// Silence sent after the client's last audio, so that the model can answer.
    #[serde(rename = "trailing_silence_ms", deserialize_with = "check::deserialize_duration")]
    pub trailing_silence: Duration,
    /// Least interval between units while catching up.
    #[serde(rename = "unit_min_ms", deserialize_with = "check::deserialize_duration")]
    pub unit_min: Duration,
    /// Longest time for the reply to a unit. A later reply means that the upstream is lost.
    #[serde(rename = "unit_reply_max_ms", deserialize_with = "check::deserialize_duration")]
    pub unit_reply_max: Duration,
    /// Most audio queued for an upstream that answers too slowly, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub backlog_max_ms: u64,
    /// Most audio queued while an upstream does not answer or a session starts, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub replay_max_ms: u64,
    /// Most characters of conversation history.
    pub history_max_chars: usize,
    /// Automatic gain control, if enabled.
    pub agc: Option<AgcRules>,
    prompt: String,
    history: TextWithHistory,
}

/// Reads a table as a JSON object.
fn deserialize_config<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    let config = toml::Table::deserialize(from)?;
    let json = serde_json::to_string(&config);
    json.map(Into::into).map_err(|error| D::Error::custom(format!("[converse.config] is not JSON: {error}")))
}

impl ConverseRules {
    /// These rules; an error if a number is out of its range.
    pub(super) fn checked(self, document: &Document<'_>) -> Result<Self, FileError> {
        if self.agc.is_some_and(|agc| !(1.0..=100.0).contains(&agc.gain_max)) {
            let message = "[converse.agc] `gain_max` must be from 1 to 100";
            return Err(document.problem_at_key(&["converse", "agc", "gain_max"], message));
        }
        if self.unit_reply_max.as_millis() < 1000 || self.replay_max_ms < 1000 || self.backlog_max_ms < 1000 {
            return Err(document.problem_at_key(&["converse"],
                "`unit_reply_max_ms`, `backlog_max_ms` and `replay_max_ms` must be 1000 or more, the length of a unit",
            ));
        }
        Ok(self)
    }

    /// Renders the system prompt with the conversation so far.
    #[must_use]
    pub fn prompt(&self, said: &str) -> String {
        let mut prompt = self.prompt.clone();
        if !said.is_empty() {
            prompt += &self.history.filled_with(said);
        }
        prompt
    }
}
