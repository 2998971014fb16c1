//! `[hear]` of a profile: how utterances are transcribed.

use crate::{suggestion::suggest_known, vocabulary::SlotValue};
use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use toml::Spanned;

use crate::spelling::{
    check::{self, Document, FileError},
    language::primary_language,
    template::Template,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HearFile {
    language: String,
    prompts: BTreeMap<String, String>,
    hot_words: Spanned<String>,
    translate_prompt: String,
    user_prompt: Spanned<String>,
    partials: bool,
    #[serde(deserialize_with = "check::deserialize_ms")]
    speech_end_wait_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    interim_ms: u64,
    #[serde(deserialize_with = "check::deserialize_ms")]
    backlog_max_ms: u64,
    attempts: u32,
    #[serde(default)]
    estimated_word_times: bool,
}

/// How utterances are transcribed.
#[derive(Debug, Clone, Default)]
pub struct HearRules {
    /// Default language of sessions.
    pub language: String,
    /// Sends partial transcripts by default.
    pub partials: bool,
    /// Time after which a pending final transcript no longer delays `speech_ended`.
    pub speech_end_wait: Duration,
    /// Interval between interim decodes while the user speaks; zero disables them.
    pub interim: Duration,
    /// Most audio queued for the upstream, in ms. Beyond that, the oldest utterance is dropped and reported.
    pub backlog_max_ms: u64,
    /// Attempts to transcribe an utterance when upstreams fail.
    pub attempts: u32,
    /// Estimates word times for clients that want them.
    pub estimated_word_times: bool,
    prompts: BTreeMap<String, String>,
    translate_prompt: String,
    hot_words: Template,
    user_prompt: Template,
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
    /// Renders the prompt of a request.
    #[must_use]
    pub fn prompt(&self, request: &PromptRequest<'_>) -> String {
        let language = self.prompt_language(request.language).unwrap_or(&self.language);
        let transcribe = self.prompts.get(language);
        let start = if request.translates { Some(&self.translate_prompt) } else { transcribe };
        let mut prompt = start.cloned().unwrap_or_default();
        if !request.hot_words.is_empty() {
            let words = request.hot_words.join(", ");
            self.hot_words.render_plain(&mut prompt, |_| SlotValue::Str(&words));
        }
        if !request.user_prompt.trim().is_empty() {
            self.user_prompt.render_plain(&mut prompt, |_| SlotValue::Str(request.user_prompt));
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

impl HearFile {
    pub(super) fn compile(self, document: &Document<'_>) -> Result<HearRules, FileError> {
        if !self.prompts.contains_key(&self.language) {
            let known = || self.prompts.keys().map(String::as_str);
            let known = suggest_known(&self.language, known);
            let message = format!("[hear.prompts] has no prompt for `language = {:?}`{known}", self.language);
            return Err(document.problem_at_key(&["hear", "language"], message));
        }
        Ok(HearRules {
            hot_words: document.plain_template(&self.hot_words, &["words"])?,
            user_prompt: document.plain_template(&self.user_prompt, &["prompt"])?,
            translate_prompt: self.translate_prompt,
            language: self.language,
            prompts: self.prompts,
            partials: self.partials,
            speech_end_wait: Duration::from_millis(self.speech_end_wait_ms),
            interim: Duration::from_millis(self.interim_ms),
            backlog_max_ms: self.backlog_max_ms,
            attempts: self.attempts.max(1),
            estimated_word_times: self.estimated_word_times,
        })
    }
}
