//! `[answer]` of a profile: a conversation that takes turns. The schema is `mappings/reference.md`.

use serde::Deserialize;

use super::{
    dialogue::BargeInRules,
    tools::{ToolRules, ToolsFile},
};
use crate::{
    spelling::check::{self, Document, FileError},
    vocabulary::MicrophoneMode,
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
    /// Attempts at an answer as long as nothing of it was sent.
    pub attempts: u32,
    /// Asks the model when the user pauses, before it is certain that the turn is over.
    #[serde(default)]
    pub eager: bool,
    /// How tools are offered to the model. Without it, clients cannot offer any.
    tools: Option<ToolsFile>,
}

/// The rules of a conversation that takes turns.
#[derive(Debug, Clone)]
pub struct AnswerRules {
    /// How the model answers.
    pub answer: AnswerFile,
    /// How tools are offered to the model; `None` if clients cannot offer any.
    pub tools: Option<ToolRules>,
    /// How the user interrupts.
    pub barge_in: BargeInRules,
}

impl AnswerFile {
    pub(super) fn compile(
        mut self,
        document: &Document<'_>,
        barge_in: BargeInRules,
    ) -> Result<AnswerRules, FileError> {
        let tools = self.tools.take().map(|tools| tools.compile(document)).transpose()?;
        Ok(AnswerRules { answer: self, tools, barge_in })
    }
}
