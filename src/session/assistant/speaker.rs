//! Speaker: has an upstream speak the words of an answer that was asked for silently, sentence by sentence as the words come.
//!
//! It speaks like [`crate::session::tts`], but its audio is the answer's: words become part of the answer with their first
//! audio, and are cut where an interrupted answer ends, so that it has no words that were never made.

use std::time::Instant;

use crate::session::{
    dialogue::turn::AssistantTurn,
    lanes::{LaneId, LaneSignal, Lanes, Owner, backoff::ConnectionFailure, connection::ConnectionChange},
    outbox::Observation,
    pace::Pace,
    tools::Tools,
    tts::text_normalization::{complete_sentences, normalize_text, split_parts},
};
use crate::{
    audio::MODEL_RATE_HZ,
    error::{Error, ErrorKind},
    spelling::profile::SpeakRules,
    vocabulary::{LaneEvent, LaneRequest, Mode, VoiceSample, heard_words},
};

/// How the words are spoken.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpeakStyle<'s> {
    pub(super) rules: &'s SpeakRules,
    pub(super) voice: Option<&'s VoiceSample>,
    /// Language of spelled-out symbols, ISO 639-1.
    pub(super) language: &'s str,
    /// The client gets partial transcripts.
    pub(super) partials: bool,
}

/// Words of one answer.
#[derive(Debug)]
pub(super) struct Speaker {
    /// Words that wait.
    pub(super) waiting: String,
    /// No more words follow.
    is_complete: bool,
    /// Words that are being spoken.
    part: Option<Part>,
    lane: Option<LaneId>,
    /// Failed attempts at the present part.
    attempts: u32,
    attempts_max: u32,
}

#[derive(Debug)]
struct Part {
    words: String,
    /// The words as the model can say them.
    spoken: String,
    has_audio: bool,
    /// Length of the answer's text and of its audio before this part.
    start_bytes: usize,
    start_samples: u64,
    requested_at: Option<Instant>,
}

impl Speaker {
    pub(super) const fn new(attempts_max: u32) -> Self {
        let waiting = String::new();
        Self { waiting, is_complete: false, part: None, lane: None, attempts: 0, attempts_max }
    }

    /// The lane that speaks, or will.
    pub(super) const fn lane(&self) -> Option<LaneId> {
        self.lane
    }

    /// No more words follow.
    pub(super) const fn finish(&mut self) {
        self.is_complete = true;
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
        let Some(part) = self.part.as_ref().filter(|part| part.has_audio) else { return };
        let made_ms = (turn.audio_samples - part.start_samples) * 1000 / u64::from(MODEL_RATE_HZ);
        let expected_ms = Pace::USUAL.length_ms(&part.words).max(made_ms);
        let words = heard_words(&part.words, made_ms, expected_ms);
        turn.text.truncate(part.start_bytes + words.len());
    }

    /// Forgets all words and leaves the lane.
    pub(super) fn stop(&mut self, now: Instant, lanes: &mut Lanes) {
        self.waiting.clear();
        self.part = None;
        if let Some(id) = self.lane.take() {
            lanes.retire(now, id);
        }
    }

    /// Dials, has a ready lane speak the next words, or leaves the lane after the last ones.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        style: SpeakStyle<'_>,
        turn: &mut AssistantTurn,
        tools: &mut Tools,
    ) {
        let Tools { lanes, floor, .. } = tools;
        while self.part.is_none() {
            let Some(words) = self.take_words(style.rules.part_max_chars) else { break };
            let spoken = normalize_text(&words, style.rules.symbols(style.language));
            match spoken.is_empty() {
                // Nothing that can be said, such as a list's dash.
                true => turn.text.push_str(&words),
                false => {
                    self.part = Some(Part {
                        words,
                        spoken,
                        has_audio: false,
                        start_bytes: turn.text.len(),
                        start_samples: turn.audio_samples,
                        requested_at: None,
                    });
                }
            }
        }
        match self.lane {
            Some(_) if self.is_done() => self.stop(now, lanes),
            None if self.has_words() => {
                let init = Some(LaneRequest::Init(style.voice.cloned()));
                self.lane = Some(lanes.open(now, Owner::AnswerSpeech, Mode::Chat, init));
            }
            // Audio made far ahead of playout would be wasted by an interruption.
            Some(id) if lanes.is_ready(id) && !lanes.are_held() && !floor.is_far_ahead(now) => {
                let Some(part) = &mut self.part else { return };
                let request = LaneRequest::Speak {
                    before_voice: style.rules.before_voice.clone(),
                    after_voice: style.rules.system_prompt_end(None),
                    request: style.rules.read_aloud_request(&part.spoken),
                    text: part.spoken.clone(),
                    voice: style.voice.cloned(),
                };
                lanes.request(now, id, request);
                part.requested_at.get_or_insert(now);
            }
            _ => {}
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
        partials: bool,
        turn: &mut AssistantTurn,
        tools: &mut Tools,
    ) -> Option<Error> {
        match signal.change {
            ConnectionChange::None | ConnectionChange::Queued | ConnectionChange::Ready => {}
            ConnectionChange::QueueStuck(words) => {
                tools.out.push_error(Error::new(ErrorKind::QueueStuck, words));
            }
            ConnectionChange::EmptyAnswer => {
                return self.handle_failure(now, ConnectionFailure::empty_answer(), tools);
            }
            ConnectionChange::Failed(failure) => return self.handle_failure(now, failure, tools),
        }
        match signal.message.filter(|_| signal.was_awaiting_reply) {
            Some((LaneEvent::Audio(samples), _)) => self.push_audio(now, samples, partials, turn, tools),
            Some((LaneEvent::Done { audio, .. }, _)) => self.finish_part(now, audio, partials, turn, tools),
            _ => {}
        }
        None
    }

    fn push_audio(
        &mut self,
        now: Instant,
        samples: &[f32],
        partials: bool,
        turn: &mut AssistantTurn,
        tools: &mut Tools,
    ) {
        let Some(part) = self.part.as_mut().filter(|_| !samples.is_empty()) else { return };
        if !std::mem::replace(&mut part.has_audio, true) {
            turn.add_spoken_words(&part.words, partials, &mut tools.out);
        }
        turn.push_audio(now, samples, &mut tools.floor, &mut tools.out);
    }

    /// Completes a part. `audio` is all of its audio if the upstream did not stream.
    fn finish_part(
        &mut self,
        now: Instant,
        audio: &[f32],
        partials: bool,
        turn: &mut AssistantTurn,
        tools: &mut Tools,
    ) {
        if self.part.as_ref().is_some_and(|part| !part.has_audio) {
            self.push_audio(now, audio, partials, turn, tools);
        }
        if let Some(id) = self.lane {
            tools.lanes.complete_reply(id);
        }
        self.attempts = 0;
        let Some(part) = self.part.take() else { return };
        if !part.has_audio {
            // The back-end hides its speech errors (field notes minicpm-o.md §2).
            let note = "the upstream spoke a sentence of an answer without audio".to_owned();
            tools.out.observe(Observation::NoEffect(note));
            turn.add_spoken_words(&part.words, partials, &mut tools.out);
        }
    }

    /// Has the words spoken again by another lane. Returns the failure if some of them were heard, or too many lanes failed.
    fn handle_failure(
        &mut self,
        now: Instant,
        failure: ConnectionFailure,
        tools: &mut Tools,
    ) -> Option<Error> {
        if let Some(id) = self.lane.take() {
            tools.lanes.retire(now, id);
        }
        self.attempts += 1;
        let may_ask_again = tools.lanes.may_ask_again(now, Owner::AnswerSpeech, &failure)
            || failure.may_repeat() && self.attempts < self.attempts_max;
        if may_ask_again && self.part.as_ref().is_none_or(|part| !part.has_audio) {
            tools.out.observe(Observation::AskedAgain(failure.detail));
            return None;
        }
        let waited = self.part.as_ref().and_then(|part| part.requested_at).map(|at| now - at);
        let (kind, detail) = failure.after_attempts(ErrorKind::AnswerFailed, self.attempts, waited);
        Some(Error::new(kind, detail))
    }
}
