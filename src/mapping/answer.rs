//! `[answer]` of a profile: a conversation that takes turns. The schema is `mappings/reference.md`.

use serde::Deserialize;

use super::{
    check,
    dialogue::{BargeInRules, MicrophoneMode},
};

/// `[answer]`: how the model answers utterances and messages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerFile {
    /// System prompt, unless the client sends one.
    pub instructions: String,
    /// The user's message of an answer without a request.
    pub unasked: String,
    /// Longest answer, in the model's tokens.
    pub max_tokens: u32,
    /// Most text of the history, in characters. The oldest entries are dropped.
    pub history_max_chars: usize,
    /// Most audio of the history, in ms. The oldest is dropped.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub history_audio_max_ms: u64,
    /// Most pictures between two answers. The oldest are dropped.
    pub history_max_pictures: usize,
    /// Transcribes the user, unless the client decides.
    pub transcribe_user: bool,
    /// Microphone audio during playback.
    pub microphone: MicrophoneMode,
    /// Attempts at an answer of which nothing was sent.
    pub attempts: u32,
    /// Asks the model when the user pauses, before it is certain that the turn is over.
    #[serde(default)]
    pub eager: bool,
}

/// The rules of a conversation that takes turns.
#[derive(Debug, Clone)]
pub struct AnswerRules {
    /// How the model answers.
    pub answer: AnswerFile,
    /// How the user interrupts.
    pub barge_in: BargeInRules,
}
