//! Spoken words: has an upstream speak the words of an answer that was asked for silently, sentence by sentence as the words come.
//!
//! Its audio is the answer's: words become part of the answer with their first audio, and are cut where an interrupted answer
//! ends, so that it has no words that were never made.

use std::time::Instant;

use crate::session::{
    dialogue::turn::AssistantTurn,
    lanes::{
        LaneId, LaneSignal, Lanes, Owner,
        ask::{AskAgain, Reply},
        backoff::ConnectionFailure,
    },
    outbox::Observation,
    pace::Pace,
    tools::Tools,
    tts::{
        speaker::{SpeakStyle, Speaker},
        text_normalization::{complete_sentences, normalize_text, split_parts},
    },
};
use crate::{
    audio::MODEL_RATE_HZ,
    error::{Error, ErrorKind},
    spelling::profile::SpeakRules,
    vocabulary::heard_words,
};

/// Words of one answer.
#[derive(Debug)]
pub(super) struct SpokenWords {
    /// Words that wait.
    pub(super) waiting: String,
    /// No more words follow.
    is_complete: bool,
    /// Words that are being spoken.
    part: Option<Part>,
    speaker: Speaker,
    attempts_max: u32,
}

#[derive(Debug)]
struct Part {
    words: String,
    /// The words as the model can say them.
    spoken: String,
    /// Length of the answer's text and of its audio before this part.
    start_bytes: usize,
    start_samples: u64,
}

impl SpokenWords {
    pub(super) const fn new(attempts_max: u32) -> Self {
        let speaker = Speaker::new(Owner::AnswerSpeech);
        Self { waiting: String::new(), is_complete: false, part: None, speaker, attempts_max }
    }

    /// The lane that speaks, or will.
    pub(super) const fn lane(&self) -> Option<LaneId> {
        self.speaker.ask.lane()
    }

    /// No more words follow.
    pub(super) const fn finish(&mut self) {
        self.is_complete = true;
    }

    /// More words follow.
    pub(super) const fn resume(&mut self) {
        self.is_complete = false;
    }

    /// Adds the words whose audio is not made yet, because they are not part of the answer.
    pub(super) fn push_unmade_words(&self, words: &mut String) {
        if let Some(part) = self.part.as_ref().filter(|_| !self.speaker.part_has_audio) {
            words.push_str(&part.words);
        }
        words.push_str(&self.waiting);
    }

    /// True once all words were spoken.
    pub(super) fn is_done(&self) -> bool {
        self.is_complete && self.part.is_none() && self.waiting.trim().is_empty()
    }

    /// True if it has words.
    pub(super) fn has_words(&self) -> bool {
        self.part.is_some() || !self.waiting.trim().is_empty()
    }

    /// Memory of its words, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.waiting.len() + self.part.as_ref().map_or(0, |part| part.words.len() + part.spoken.len())
    }

    /// Cuts the answer's text to the words whose audio was made, because no more will be made.
    pub(super) fn cut_words(&self, turn: &mut AssistantTurn) {
        let Some(part) = self.part.as_ref().filter(|_| self.speaker.part_has_audio) else { return };
        let made_ms = (turn.audio_samples - part.start_samples) * 1000 / u64::from(MODEL_RATE_HZ);
        let expected_ms = Pace::USUAL.length_ms(&part.words).max(made_ms);
        let words = heard_words(&part.words, made_ms, expected_ms);
        turn.text.truncate(part.start_bytes + words.len());
    }

    /// Forgets all words and leaves the lane.
    pub(super) fn stop(&mut self, now: Instant, lanes: &mut Lanes) {
        self.waiting.clear();
        self.part = None;
        self.speaker.stop(now, lanes);
    }

    /// Dials, has a ready lane speak the next words, or leaves the lane after the last ones.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        rules: &SpeakRules,
        turn: &mut AssistantTurn,
        tools: &mut Tools,
    ) {
        self.begin_part(rules, tools.settings.language.as_deref().unwrap_or("en"), turn);
        if self.is_done() {
            return self.stop(now, &mut tools.lanes);
        }
        if self.has_words() || self.lane().is_some() {
            let part = self.part.as_ref().map(|part| part.spoken.as_str());
            let Tools { voice, voice_name, floor, lanes, .. } = tools;
            let (voice, voice_name) = (voice.as_ref(), voice_name.as_deref());
            let style = SpeakStyle { rules, instruction: None, voice, voice_name };
            self.speaker.advance(now, part, style, floor, lanes);
        }
    }

    /// Begins the next part, if enough words have come. `language` is that of spelled-out symbols, ISO 639-1.
    fn begin_part(&mut self, rules: &SpeakRules, language: &str, turn: &mut AssistantTurn) {
        while self.part.is_none() {
            let Some(words) = self.take_words(rules.part_max_chars) else { break };
            let spoken = normalize_text(&words, rules.symbols(language));
            match spoken.is_empty() {
                // Nothing that can be said, such as a list's dash.
                true => turn.text.push_str(&words),
                false => {
                    let (start_bytes, start_samples) = (turn.text.len(), turn.audio_samples);
                    self.part = Some(Part { words, spoken, start_bytes, start_samples });
                }
            }
        }
    }

    /// Takes the next sentences, at most `max_chars` of them unless one is longer; `None` until one is complete.
    fn take_words(&mut self, max_chars: usize) -> Option<String> {
        let end = if self.is_complete { self.waiting.len() } else { complete_sentences(&self.waiting) };
        if self.waiting[..end].trim().is_empty() {
            return None;
        }
        let first = split_parts(&self.waiting[..end], max_chars).into_iter().next()?;
        let start = self.waiting.len() - self.waiting.trim_start().len();
        let end = if self.waiting[start..].starts_with(&first) { start + first.len() } else { end };
        let rest = self.waiting.split_off(end);
        // White space is the next words'.
        Some(std::mem::replace(&mut self.waiting, rest))
    }

    /// Handles what happened on the lane. Returns the failure if the answer cannot be spoken.
    pub(super) fn handle_signal(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        turn: &mut AssistantTurn,
        tools: &mut Tools,
    ) -> Option<Error> {
        let again = self.again();
        match signal.into_reply() {
            Reply::None | Reply::Queued | Reply::Ready | Reply::Text(_) | Reply::Call { .. } => {}
            Reply::QueueStuck(words) => tools.floor.out.push_error(Error::new(ErrorKind::QueueStuck, words)),
            Reply::Audio(samples) => self.push_audio(now, samples, turn, tools),
            Reply::Done { audio, .. } => self.finish_part(now, audio, turn, tools),
            Reply::Empty => {
                let failure = ConnectionFailure::empty_answer();
                return tools.lanes.fail(now, &mut self.speaker.ask, failure, again);
            }
            Reply::Failed(failure) => {
                return tools.lanes.fail(now, &mut self.speaker.ask, failure, again);
            }
        }
        None
    }

    fn push_audio(&mut self, now: Instant, samples: &[f32], turn: &mut AssistantTurn, tools: &mut Tools) {
        let Some(part) = self.part.as_ref().filter(|_| !samples.is_empty()) else { return };
        if !std::mem::replace(&mut self.speaker.part_has_audio, true) {
            turn.add_spoken_words(&part.words, tools);
        }
        turn.push_audio(now, samples, &mut tools.floor);
    }

    /// Completes a part. `audio` is all of its audio if the upstream did not stream.
    fn finish_part(&mut self, now: Instant, audio: &[f32], turn: &mut AssistantTurn, tools: &mut Tools) {
        if !self.speaker.part_has_audio {
            self.push_audio(now, audio, turn, tools);
        }
        let had_audio = self.speaker.complete_part(&mut tools.lanes);
        self.speaker.ask.reset_attempts();
        let Some(part) = self.part.take() else { return };
        if !had_audio {
            // The back-end hides its speech errors (mappings/notes/minicpm-o.md#chat).
            let note = "the upstream spoke a sentence of an answer without audio".to_owned();
            tools.floor.out.observe(Observation::NoEffect(note));
            turn.add_spoken_words(&part.words, tools);
        }
    }

    /// Bounds on asking another lane to speak the words: not if some of them were heard.
    const fn again(&self) -> AskAgain {
        AskAgain {
            attempts_max: self.attempts_max,
            is_possible: !self.speaker.part_has_audio,
            error_kind: ErrorKind::AnswerFailed,
        }
    }
}
