//! `[hear]` of a profile: how utterances are transcribed.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use crate::{
    spelling::{
        check::{self, Document, FileError},
        language::primary_language,
        template::{TextWithPrompt, TextWithWords},
    },
    suggestion::suggest_known,
};

/// `[hear]`: how utterances are transcribed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HearRules {
    /// Default language of sessions.
    pub language: String,
    /// Sends partial transcripts by default.
    pub partials: bool,
    /// Time after which a pending final transcript no longer delays `speech_ended`.
    #[serde(rename = "speech_end_wait_ms", deserialize_with = "check::deserialize_duration")]
    pub speech_end_wait: Duration,
    /// Interval between interim decodes while the user speaks; zero disables them.
    #[serde(rename = "interim_ms", deserialize_with = "check::deserialize_duration")]
    pub interim: Duration,
    /// Most audio queued for the upstream, in ms. Beyond that, the oldest utterance is dropped and reported.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub backlog_max_ms: u64,
    /// Attempts to transcribe an utterance when upstreams fail.
    #[serde(deserialize_with = "check::deserialize_attempts")]
    pub attempts: u32,
    /// Estimates word times for clients that want them.
    #[serde(default)]
    pub estimated_word_times: bool,
    prompts: BTreeMap<String, String>,
    translate_prompt: String,
    hot_words: TextWithWords,
    user_prompt: TextWithPrompt,
}

/// Inputs of a prompt.
#[derive(Debug, Clone, Copy, Default)]
pub struct PromptRequest<'r> {
    /// Language of the speech, ISO 639-1.
    pub language: &'r str,
    /// Words that are likely to occur.
    pub hot_words: &'r [String],
    /// The client's own words; empty for none.
    pub user_prompt: &'r str,
    /// The speech is translated into English instead of transcribed.
    pub translates: bool,
}

impl HearRules {
    /// These rules; an error if their language has no prompt.
    pub(super) fn checked(self, document: &Document<'_>) -> Result<Self, FileError> {
        if self.prompts.contains_key(&self.language) {
            return Ok(self);
        }
        let known = suggest_known(&self.language, || self.prompts.keys().map(String::as_str));
        let message = format!("[hear.prompts] has no prompt for `language = {:?}`{known}", self.language);
        Err(document.problem_at_key(&["hear", "language"], message))
    }

    /// Renders the prompt of a request.
    #[must_use]
    pub fn prompt(&self, request: &PromptRequest<'_>) -> String {
        let language = self.prompt_language(request.language).unwrap_or(&self.language);
        let transcribe = self.prompts.get(language);
        let start = if request.translates { Some(&self.translate_prompt) } else { transcribe };
        let mut prompt = start.cloned().unwrap_or_default();
        if !request.hot_words.is_empty() {
            let words = request.hot_words.join(", ");
            prompt += &self.hot_words.filled_with(&words);
        }
        if !request.user_prompt.trim().is_empty() {
            prompt += &self.user_prompt.filled_with(request.user_prompt);
        }
        prompt
    }

    /// The language whose prompt serves this one, such as `en` for `en-GB`; `None` if the default language's does.
    #[must_use]
    pub fn prompt_language(&self, language: &str) -> Option<&str> {
        let base = primary_language(language);
        let names = self.prompts.keys().map(String::as_str);
        let named = |wanted: &str| names.clone().find(|name| *name == wanted);
        named(language).or_else(|| named(&base))
    }

    /// Languages with their own prompt.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.prompts.keys().map(String::as_str)
    }
}
