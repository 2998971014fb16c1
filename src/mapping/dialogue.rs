//! A profile's sections about conversation and about how audio leaves. The schema is `mappings/README.md`.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use toml::Spanned;

use super::{
    check::{self, FileError},
    template::{SlotValue, Template},
};

/// How audio leaves for the client.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlayoutRules {
    /// At once, or as it is heard.
    pub pace: PlayoutPace,
    /// How much is sent ahead of what is being heard, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub lead_ms: u32,
    /// Longest frame, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub frame_ms: u32,
    /// How long the first audio of an answer is held back at most, where answers have run dry, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub hold_max_ms: u32,
}

/// When audio leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlayoutPace {
    /// As soon as it is there; the end is the end of sending.
    #[default]
    Burst,
    /// As it is heard; the end is the end of hearing.
    RealTime,
}

/// What becomes of the microphone while the client hears speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MicrophoneMode {
    /// It is heard, and who speaks into it interrupts: for clients without echo.
    Open,
    /// It is discarded, as the Macaw server does.
    Muted,
}

/// What the client is told of the model's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssistantText {
    /// Transcripts, whose `speaker` says so.
    Transcripts,
    /// Nothing.
    None,
}

/// The section as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConverseFile {
    prompt: String,
    history: Spanned<String>,
    history_max_chars: usize,
    config: toml::Table,
    text: AssistantText,
    transcribe_user: bool,
    microphone: MicrophoneMode,
    #[serde(deserialize_with = "check::deserialize_ms")]
    gap_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    trailing_silence_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    unit_min_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    unit_reply_max_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    backlog_max_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    replay_max_ms: u64,
    agc: Option<AgcRules>,
}

/// Level control for quiet microphones.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgcRules {
    /// Level it brings speech up to, RMS of full scale.
    #[serde(deserialize_with = "check::deserialize_fraction")]
    pub target_rms: f32,
    /// Most it multiplies by.
    pub gain_max: f32,
    /// Below this nothing is speech, RMS of full scale.
    #[serde(deserialize_with = "check::deserialize_fraction")]
    pub floor_rms: f32,
}

/// How the user interrupts.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BargeInRules {
    /// Speech that interrupts, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub start_ms: u32,
    /// Quiet of the user after which the model may speak again, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub quiet_ms: u64,
    /// After this long it may, quiet or not: a microphone that always hears something must not silence the model, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub suppress_max_ms: u64,
    /// A model that does not stop within this time is replaced, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub yield_max_ms: u64,
}

/// When a conversation goes on in another upstream session.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloverRules {
    /// So long before the upstream's limit a quiet moment is looked for, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub soft_before_ms: u64,
    /// So long before the limit it is not waited for any more, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub hard_before_ms: u64,
    /// Context in use above which a quiet moment is looked for, tokens.
    pub soft_tokens: u32,
    /// Context in use above which it is not waited for any more, tokens.
    pub hard_tokens: u32,
    /// How long nobody must have spoken, ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub quiet_ms: u64,
    /// Whether the next session is made ready beforehand, on a second worker.
    pub standby: bool,
    /// Units of silence the next session gets beforehand: a model only listens during its first three (field notes §1.6).
    pub standby_units: u32,
}

impl RolloverRules {
    /// What the types cannot say.
    pub(super) fn check(&self, file: &str, source: &str) -> Result<(), FileError> {
        if self.hard_before_ms >= self.soft_before_ms || self.soft_tokens >= self.hard_tokens {
            return Err(FileError::at_key(
                file,
                source,
                &["rollover"],
                "[rollover] the soft bounds come first: `soft_before_ms` above `hard_before_ms`, `soft_tokens` below `hard_tokens`",
            ));
        }
        Ok(())
    }
}

/// How a conversation is held.
#[derive(Debug, Clone)]
pub struct ConverseRules {
    /// Inference settings, a JSON object.
    pub config: Arc<str>,
    /// What the client is told of the model's words.
    pub text: AssistantText,
    /// Whether the user's words are transcribed, on a second worker.
    pub transcribe_user: bool,
    /// What becomes of the microphone while the client hears speech.
    pub microphone: MicrophoneMode,
    /// How long audio may stay away before silence stands in for it.
    pub gap: Duration,
    /// How long silence is sent after the client's last audio, for the model to answer.
    pub trailing_silence: Duration,
    /// Least pause between units, when there is something to catch up with.
    pub unit_min: Duration,
    /// A unit without an answer for this long means that the upstream is lost.
    pub unit_reply_max: Duration,
    /// Most audio that waits for a slow upstream, ms.
    pub backlog_max_ms: u64,
    /// Most audio that waits for an upstream session to come up, ms.
    pub replay_max_ms: u64,
    /// Most that is remembered of what was said, characters.
    pub history_max_chars: usize,
    /// Level control, where it is on.
    pub agc: Option<AgcRules>,
    prompt: String,
    history: Template,
}

impl ConverseRules {
    /// The system prompt, with what was said before.
    #[must_use]
    pub fn prompt(&self, said: &str) -> String {
        let mut prompt = self.prompt.clone();
        if !said.is_empty() {
            self.history.render_plain(&mut prompt, |_| SlotValue::Str(said));
        }
        prompt
    }
}

impl ConverseFile {
    pub(super) fn compile(self, file: &str, source: &str) -> Result<ConverseRules, FileError> {
        let history = Template::compile_plain(self.history.get_ref(), &["history"]).map_err(|error| {
            FileError::at_offset(file, source, self.history.span().start, error.to_string())
        })?;
        let config = serde_json::to_string(&self.config).map_err(|error| {
            let message = format!("[converse.config] is not JSON: {error}");
            FileError::at_key(file, source, &["converse", "config"], message)
        })?;
        if self.agc.is_some_and(|agc| !(1.0..=100.0).contains(&agc.gain_max)) {
            let message = "[converse.agc] `gain_max` must be from 1 to 100";
            return Err(FileError::at_key(file, source, &["converse", "agc", "gain_max"], message));
        }
        if self.unit_reply_max_ms < 1000 || self.replay_max_ms < 1000 || self.backlog_max_ms < 1000 {
            return Err(FileError::at_key(
                file,
                source,
                &["converse"],
                "`unit_reply_max_ms`, `backlog_max_ms` and `replay_max_ms` must hold a unit: 1000 or more",
            ));
        }
        Ok(ConverseRules {
            config: config.into(),
            text: self.text,
            transcribe_user: self.transcribe_user,
            microphone: self.microphone,
            gap: Duration::from_millis(self.gap_ms),
            trailing_silence: Duration::from_millis(self.trailing_silence_ms),
            unit_min: Duration::from_millis(self.unit_min_ms),
            unit_reply_max: Duration::from_millis(self.unit_reply_max_ms),
            backlog_max_ms: self.backlog_max_ms,
            replay_max_ms: self.replay_max_ms,
            history_max_chars: self.history_max_chars,
            agc: self.agc,
            prompt: self.prompt,
            history,
        })
    }
}
