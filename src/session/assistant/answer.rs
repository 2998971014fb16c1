//! The answer in progress: from its request to the last sample that the client plays.

mod calls;
mod endings;
mod server_calls;

use std::{sync::Arc, time::Instant};

pub(super) use self::server_calls::ServerCalls;
use super::{
    calling::{CALLS_MAX, Calling},
    entries::Entries,
    offer::Offer,
    spoken_words::SpokenWords,
};
use crate::session::{
    dialogue::turn::AssistantTurn,
    floor::{Floor, SpeechSource},
    growing_text::{TEXT_MAX_BYTES, is_report_due},
    lanes::{LaneId, LaneSignal, Owner, ask::Ask},
    output_filter::OutputFilter,
    tools::Tools,
    usage::{UsageMeter, chat_input},
};
use crate::{
    spelling::{
        Profile,
        profile::{AnswerRules, SpeakRules},
    },
    vocabulary::{
        AnswerRequest, ChatTurn, Entry, EntryId, LaneEvent, MessageMeta, TokenUsage, ToolCall, ToolOffer,
        usage::output_audio_tokens,
    },
};

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) request: AnswerRequest,
    /// The client wants to hear it.
    pub(super) speaks: bool,
    turn: AssistantTurn,
    filter: OutputFilter,
    /// The question to the model.
    pub(super) ask: Ask,
    /// Its calls of tools, if it may have any and the model is prompted for them.
    pub(super) calling: Option<Calling>,
    /// The model calls tools without being prompted.
    is_native: bool,
    /// The tools that it may call, and its calls on tool servers.
    pub(super) server_calls: ServerCalls,
    /// Speaks its words, if the model is asked silently.
    spoken: Option<SpokenWords>,
    /// Attempts to speak a part of its words.
    speak_attempts: u32,
    /// The model has answered; its words may still be spoken.
    is_answered: bool,
    /// Nothing more of it will be made.
    is_made: bool,
    usage: UsageMeter,
    /// Length of the words that were heard, if later audio was dropped together with a call's.
    heard_bytes: Option<usize>,
    /// The client reports that it has played at most this much of the answer's audio, ms.
    played_max_ms: Option<u64>,
}

/// Question to the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) request: &'a AnswerRequest,
    /// The tools that the answer may call.
    pub(super) offer: &'a ToolOffer,
    /// The calls that the answer may have, if the model is prompted for them.
    pub(super) calling: Option<&'a Calling>,
    /// The model calls tools without being prompted.
    pub(super) is_native: bool,
    /// The model speaks beside its text.
    pub(super) speaks: bool,
}

impl<'a> Question<'a> {
    /// A question whose answer will be heard if `speaks`. One with calls that are prompted for may be asked silently.
    pub(super) fn new(
        request: &'a AnswerRequest,
        offer: &'a ToolOffer,
        calling: Option<&'a Calling>,
        is_native: bool,
        speaks: bool,
    ) -> Self {
        let is_silent = calling.is_some_and(|calling| calling.is_silent);
        Self { request, offer, calling, is_native, speaks: speaks && !is_silent }
    }
}

impl Answer {
    /// Begins an answer, and tells the client.
    pub(super) fn begin(
        request: AnswerRequest,
        offer: Offer,
        calling: Option<Calling>,
        profile: &Profile,
        tools: &mut Tools,
    ) -> Self {
        let speaks = request.speaks.unwrap_or(tools.settings.spoken_answers);
        Self {
            turn: AssistantTurn::start(request.by_client, true, tools),
            request,
            speaks,
            filter: OutputFilter::default(),
            ask: Ask::new(Owner::Assistant),
            spoken: words_to_speak(speaks, calling.as_ref(), profile.speak.attempts),
            calling,
            is_native: false,
            server_calls: ServerCalls::new(offer),
            speak_attempts: profile.speak.attempts,
            is_answered: false,
            is_made: false,
            usage: UsageMeter::default(),
            heard_bytes: None,
            played_max_ms: None,
        }
    }

    /// Notes how much of its audio the client has played, if this is the answer with this number.
    pub(super) fn note_played(&mut self, id: EntryId, played_ms: u64) {
        if id == EntryId(self.turn.segment_id) {
            self.played_max_ms = Some(self.played_max_ms.map_or(played_ms, |known| known.min(played_ms)));
        }
    }

    /// Memory of its request, text, calls and held audio, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.request.bytes
            + self.turn.text.len()
            + self.spoken.as_ref().map_or(0, SpokenWords::kept_bytes)
            + self.calling.as_ref().map_or(0, Calling::kept_bytes)
    }

    pub(super) const fn is_made(&self) -> bool {
        self.is_made
    }

    /// True once the model has answered.
    pub(super) const fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// The question to the model.
    pub(super) fn question(&self) -> Question<'_> {
        let speaks = self.speaks && self.spoken.is_none();
        let offer = &self.server_calls.offer.tools;
        Question::new(&self.request, offer, self.calling.as_ref(), self.is_native, speaks)
    }

    /// The lane of the question is known: its model calls tools itself, or `begin_calling` prompts for them. A model that calls
    /// tools itself speaks beside its calls, so it is not asked silently, unless words of an earlier question are being spoken.
    pub(super) fn set_native(
        &mut self,
        is_native: bool,
        begin_calling: impl FnOnce(&AnswerRequest, &ToolOffer) -> Option<Calling>,
    ) {
        if is_native == self.is_native {
            return;
        }
        self.is_native = is_native;
        let offer = &self.server_calls.offer.tools;
        self.calling = if is_native { None } else { begin_calling(&self.request, offer) };
        let has_words =
            !self.turn.text.is_empty() || self.spoken.as_ref().is_some_and(SpokenWords::has_words);
        if !has_words {
            self.spoken = words_to_speak(self.speaks, self.calling.as_ref(), self.speak_attempts);
        }
    }

    /// Adds a call by a model that calls tools itself.
    pub(super) fn push_call(&mut self, call: ToolCall, tools: &mut Tools) {
        if self.turn.calls.len() < CALLS_MAX {
            self.turn.calls.push((tools.segment_ids.next_id(), call));
        }
    }

    /// True if its words are spoken by another lane.
    pub(super) const fn is_spoken_later(&self) -> bool {
        self.spoken.is_some()
    }

    /// The lane that the client waits for.
    pub(super) fn awaited_lane(&self) -> Option<LaneId> {
        self.ask.lane().or_else(|| self.spoken.as_ref().and_then(SpokenWords::lane))
    }

    /// True once it was made, and played.
    pub(super) fn is_over(&self, floor: &Floor) -> bool {
        self.is_made && !floor.is_busy_with(SpeechSource::Model)
    }

    /// Notes that the model is asked.
    pub(super) fn note_request(&mut self, turn: &ChatTurn) {
        self.usage.begin_request(chat_input(turn));
        self.turn.hit_limit = false;
    }

    /// Takes over a question that was asked before the answer began.
    pub(super) fn take_over(&mut self, ask: Ask, usage: UsageMeter, hit_limit: bool) {
        (self.ask, self.usage) = (ask, usage);
        self.turn.hit_limit = hit_limit;
    }

    /// Counts a message of the model.
    pub(super) fn note_message(&mut self, event: &LaneEvent<'_>, meta: MessageMeta<'_>) {
        self.usage.note_message(event, meta);
        self.turn.hit_limit |= meta.hit_limit;
    }

    /// Tokens of the answer, with the audio of words that another lane speaks.
    fn take_usage(&mut self) -> TokenUsage {
        let spoken_later = if self.spoken.is_some() { self.turn.audio_samples } else { 0 };
        let output_audio = output_audio_tokens(spoken_later);
        self.usage.take().plus(TokenUsage { output_audio, ..TokenUsage::default() })
    }

    /// Adds text of the model.
    pub(super) fn push_text(&mut self, now: Instant, delta: &str, tools: &mut Tools) {
        let Some(calling) = &mut self.calling else { return self.say(delta, tools) };
        let words = calling.push_text(delta);
        let audio = calling.release_audio();
        self.say(&words, tools);
        self.play(now, &audio, tools);
    }

    /// Adds words of the model.
    fn say(&mut self, words: &str, tools: &mut Tools) {
        if let Some(spoken) = &mut self.spoken {
            if spoken.waiting.len() + words.len() <= TEXT_MAX_BYTES {
                self.filter.push(words, &mut spoken.waiting);
            }
            return;
        }
        let before = self.turn.text.len();
        self.turn.push_text(&mut self.filter, words);
        let has_news = !self.turn.text[before..].trim().is_empty();
        if tools.settings.partials
            && has_news
            && is_report_due(self.turn.text.len(), &mut self.turn.reported_bytes)
        {
            tools.floor.out.push_client(self.turn.partial());
        }
    }

    /// Adds audio of the model.
    pub(super) fn push_audio(&mut self, now: Instant, samples: &[f32], tools: &mut Tools) {
        if samples.is_empty() || !self.speaks {
            return;
        }
        match &mut self.calling {
            Some(calling) => {
                let audio = calling.push_audio(samples);
                self.play(now, &audio, tools);
            }
            None => self.play(now, samples, tools),
        }
    }

    fn play(&mut self, now: Instant, samples: &[f32], tools: &mut Tools) {
        if !samples.is_empty() {
            self.turn.push_audio(now, samples, &mut tools.floor);
        }
    }

    /// The model has answered. `text` and `audio` are the whole answer if the upstream did not stream. Returns false if the model is
    /// asked once more, or the answer has failed.
    pub(super) fn take_end(
        &mut self,
        now: Instant,
        text: Option<&str>,
        audio: &[f32],
        tools: &mut Tools,
    ) -> bool {
        let is_silent = self.words_of_question().is_empty();
        let is_empty = self.calling.as_ref().map_or(is_silent, Calling::is_unanswered);
        if let Some(text) = text.filter(|_| is_empty) {
            self.push_text(now, text, tools);
        }
        let has_audio = self.turn.audio_samples > self.server_calls.start.audio_samples;
        if !has_audio && !self.calling.as_ref().is_some_and(Calling::has_audio) {
            self.push_audio(now, audio, tools);
        }
        self.conclude_calls(now, tools)
    }

    /// Has words spoken that wait for it.
    pub(super) fn advance_speech(&mut self, now: Instant, rules: &SpeakRules, tools: &mut Tools) {
        let Some(spoken) = self.spoken.as_mut().filter(|_| !self.is_made) else { return };
        spoken.advance(now, rules, &mut self.turn, tools);
        if self.is_answered && spoken.is_done() {
            self.complete_turn(now, tools);
        }
    }

    /// Handles what happened on the lane that speaks.
    pub(super) fn handle_speech_signal(&mut self, now: Instant, signal: LaneSignal<'_>, tools: &mut Tools) {
        let Some(spoken) = self.spoken.as_mut().filter(|_| !self.is_made) else { return };
        if let Some(error) = spoken.handle_signal(now, signal, &mut self.turn, tools)
            && !self.drop_waiting_words(now, tools)
        {
            self.give_up(now, error, tools);
        }
    }
}

/// The words of an answer that is heard although the model is asked silently.
fn words_to_speak(speaks: bool, calling: Option<&Calling>, attempts: u32) -> Option<SpokenWords> {
    (speaks && calling.is_some_and(|calling| calling.is_silent)).then(|| SpokenWords::new(attempts))
}

/// The calls of an answer, if tools are offered, or calls of earlier answers may lead the model to write some.
pub(super) fn begin_calling(
    request: &AnswerRequest,
    rules: &Arc<AnswerRules>,
    offer: &ToolOffer,
    can_speak: bool,
    entries: &Entries,
) -> Option<Calling> {
    let tools = rules.tools.as_ref()?;
    let has_earlier_calls = match &request.entries {
        Some(own) => own.iter().any(Entry::concerns_tools),
        None => entries.concern_tools(),
    };
    if offer.tools.is_empty() && !has_earlier_calls {
        return None;
    }
    Some(Calling::new(Arc::clone(rules), tools, offer.clone(), can_speak))
}
