//! An answer that may have calls of tools: what the model is asked, and what becomes of its text.
//!
//! The model is prompted for calls where its server offers no tools ([`prompt`]). Its text is words and calls ([`parser`]).
//! Calls are checked against their schemas ([`check`], [`schema`]). After a mistake the model is asked once more, with the mistake in words;
//! a second mistake is the failure of the answer. Where words and audio come together, [`held_audio`] keeps a call from being
//! heard.
//!
//! Neither protocols nor the wire are known here. A server that offers tools itself gives calls without a parser.

mod check;
mod held_audio;
mod parser;
pub(super) mod prompt;
mod schema;

use std::sync::Arc;

pub(super) use self::check::CALLS_MAX;
use self::{
    check::{CallReader, CheckedCall},
    held_audio::HeldAudio,
    parser::CallParser,
};
use crate::{
    session::growing_text::TEXT_MAX_BYTES,
    spelling::profile::{AnswerRules, AskTools, ToolRules},
    vocabulary::{ChatMessage, EntryPart, Role, ToolChoice, ToolOffer},
};

/// Longest text of the model that is kept for a second question, bytes.
const ANSWER_MAX_BYTES: usize = 16 * 1024;

/// The calls of an answer in progress.
#[derive(Debug)]
pub(super) struct Calling {
    rules: Arc<AnswerRules>,
    offer: ToolOffer,
    /// The model is asked without speech.
    pub(super) is_silent: bool,
    /// It could be: an upstream speaks given texts.
    may_be_silent: bool,
    parser: CallParser,
    /// The model's answer to the present question, as it wrote it.
    answer: String,
    /// Words that are not passed on yet: of an answer that must be a call, and of the second answer if the first had words.
    withheld: String,
    held_audio: HeldAudio,
    /// The answer with a mistake, and the mistake: the second question is asked.
    mistake: Option<(String, String)>,
    /// The answer had words before its mistake. Those before a call of the second answer would repeat them.
    pub(super) had_words: bool,
}

/// Decision about a whole answer of the model.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Words, or calls, with the words that were withheld until now.
    /// `is_unchecked` says that the arguments of some were not checked completely.
    Calls { calls: Vec<CheckedCall>, words: String, is_unchecked: bool },
    /// A mistake. The model is asked once more.
    AskAgain(String),
    /// Another mistake.
    Failed(String),
}

impl Calling {
    /// The calls of an answer with this offer. `can_speak` if an upstream speaks given texts.
    pub(super) fn new(rules: Arc<AnswerRules>, tools: &ToolRules, offer: ToolOffer, can_speak: bool) -> Self {
        let may_be_silent = offer.allows_calls() && can_speak;
        Self {
            parser: CallParser::new(&tools.call_begin, &tools.call_end, &offer),
            rules,
            is_silent: may_be_silent && tools.ask == AskTools::Silent,
            may_be_silent,
            answer: String::new(),
            withheld: String::new(),
            held_audio: HeldAudio::new(&offer),
            mistake: None,
            had_words: false,
            offer,
        }
    }

    /// Memory of the answer's text, calls and held audio, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        let of_mistake = self.mistake.as_ref().map_or(0, |(answer, mistake)| answer.len() + mistake.len());
        let of_audio = self.held_audio.kept_bytes();
        self.answer.len() + self.withheld.len() + self.parser.kept_bytes() + of_mistake + of_audio
    }

    /// Asks silently from now on, if that is possible: with speech on, some servers cannot write a call. Returns whether it is.
    pub(super) const fn ask_silently(&mut self) -> bool {
        self.is_silent |= self.may_be_silent;
        self.is_silent
    }

    /// True if tools are offered in the system prompt.
    pub(super) fn offers(&self) -> bool {
        self.offer.allows_calls()
    }

    /// Adds to a chat turn what the present question needs: the offer, and the mistake in the last answer.
    pub(super) fn complete_question(&self, instructions: &mut String, messages: &mut Vec<ChatMessage>) {
        let Some(tools) = &self.rules.tools else { return };
        if self.offers() {
            *instructions = prompt::instructions_with(tools, &self.offer, instructions);
        }
        if let Some((answer, mistake)) = &self.mistake {
            let message =
                |role, text: &str| ChatMessage { role, parts: vec![EntryPart::Text(text.to_owned())] };
            if !answer.trim().is_empty() {
                messages.push(message(Role::Assistant, answer));
            }
            messages.push(message(Role::User, &tools.repair(mistake)));
        }
    }

    /// Takes text of the model. Returns the words in it.
    pub(super) fn push_text(&mut self, delta: &str) -> String {
        if self.answer.len() + delta.len() <= ANSWER_MAX_BYTES {
            self.answer.push_str(delta);
        }
        let mut words = String::new();
        for letter in delta.chars() {
            let before = words.len();
            self.parser.push_char(letter, &mut words);
            self.held_audio.allow(&words[before..]);
            if !self.parser.calls.is_empty() || self.parser.is_in_call() {
                self.held_audio.close();
            }
        }
        self.take_words(words)
    }

    /// True before the first text of the present question.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.answer.is_empty()
    }

    fn take_words(&mut self, words: String) -> String {
        if !self.withholds_words() {
            return words;
        }
        if self.withheld.len() + words.len() <= TEXT_MAX_BYTES {
            self.withheld.push_str(&words);
        }
        String::new()
    }

    fn withholds_words(&self) -> bool {
        self.had_words || self.offer.needs_call()
    }

    /// Takes audio of the model, and returns the audio that may be heard.
    pub(super) fn push_audio(&mut self, samples: &[f32]) -> Vec<f32> {
        if self.is_silent {
            return Vec::new();
        }
        self.held_audio.push(samples);
        self.release_audio()
    }

    /// Samples that were dropped so far because too much audio is held.
    pub(super) const fn lost_samples(&self) -> u64 {
        self.held_audio.lost as u64
    }

    /// Audio that may be heard now.
    pub(super) fn release_audio(&mut self) -> Vec<f32> {
        if self.withholds_words() { Vec::new() } else { self.held_audio.release() }
    }

    /// Audio of an answer without calls.
    pub(super) fn release_all_audio(&mut self) -> Vec<f32> {
        self.held_audio.release_all()
    }

    /// True if audio came.
    pub(super) const fn has_audio(&self) -> bool {
        self.held_audio.total > 0
    }

    /// True if audio was dropped because of a call: the last words before it may not be heard.
    pub(super) const fn has_dropped_audio(&self) -> bool {
        self.held_audio.has_dropped
    }

    /// Ends the answer to the present question. Returns its last words.
    pub(super) fn finish(&mut self) -> String {
        let mut words = String::new();
        self.parser.finish(&mut words);
        self.held_audio.allow(&words);
        self.take_words(words)
    }

    /// Decides about a whole answer. `has_words` is true if words of it were passed on.
    pub(super) fn conclude(&mut self, has_words: bool) -> Outcome {
        let mistake = match self.read_calls(has_words) {
            Ok((calls, is_unchecked)) => {
                let withheld = std::mem::take(&mut self.withheld);
                let words = match (self.had_words, calls.is_empty()) {
                    (true, false) => String::new(),
                    (true, true) => format!("\n{}", withheld.trim_start()),
                    (false, _) => withheld,
                };
                return Outcome::Calls { calls, words, is_unchecked };
            }
            Err(mistake) => mistake,
        };
        if self.mistake.is_some() {
            return Outcome::Failed(mistake);
        }
        let answer = std::mem::take(&mut self.answer);
        self.mistake = Some((answer, mistake.clone()));
        self.had_words = has_words;
        self.reset();
        Outcome::AskAgain(mistake)
    }

    /// Forgets the answer to the present question, which is asked again.
    pub(super) fn reset(&mut self) {
        if let Some(tools) = &self.rules.tools {
            self.parser = CallParser::new(&tools.call_begin, &tools.call_end, &self.offer);
        }
        self.answer.clear();
        self.withheld.clear();
        self.held_audio = HeldAudio::new(&self.offer);
    }

    /// The calls of the answer; and whether arguments of some were not checked.
    fn read_calls(&self, has_words: bool) -> Result<(Vec<CheckedCall>, bool), String> {
        if !self.offer.allows_calls() {
            let is_only_call = !self.parser.calls.is_empty() && !has_words;
            return if is_only_call {
                Err("No function can be called now.".to_owned())
            } else {
                Ok((Vec::new(), false))
            };
        }
        let mut reader = CallReader::new(&self.offer);
        let mut calls = Vec::new();
        for text in &self.parser.calls {
            calls.extend(reader.read(text)?);
            if !self.offer.is_parallel {
                // Anything after the only call does not count.
                calls.truncate(1);
                return Ok((calls, reader.is_unchecked()));
            }
        }
        if self.parser.overflowed || calls.len() > CALLS_MAX {
            return Err("There are too many calls, or one is too long.".to_owned());
        }
        if calls.is_empty() && self.offer.needs_call() {
            return Err(match &self.offer.choice {
                ToolChoice::Named(name) => format!("It must call the function {name}."),
                _ => "It must call a function.".to_owned(),
            });
        }
        Ok((calls, reader.is_unchecked()))
    }
}
