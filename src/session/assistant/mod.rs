//! A conversation that takes turns: an utterance, a typed message or the client's request is answered by one chat turn.
//!
//! Every turn carries the whole conversation ([`entries`]), because a chat session keeps nothing
//! (mappings/notes/minicpm-o.md#chat). An answer is over when the client has played it, and until then it can be
//! interrupted; what was not played is cut from the conversation. [`answer`] is the answer in progress, and [`early`]
//! one that no one hears yet; [`calling`] is about an answer's calls of tools, and [`spoken_words`] speaks an answer that
//! was asked for silently because it may be a call. Calls of the client's tools end an answer; those of tool servers
//! ([`server_tools`]) are carried out within it.

mod answer;
mod calling;
mod early;
pub(crate) mod entries;
mod offer;
mod server_tools;
mod spoken_words;

use std::{collections::VecDeque, sync::Arc, time::Instant};

use self::{
    answer::{Answer, Question, begin_calling},
    calling::Calling,
    early::EarlyQuestion,
    entries::{Entries, EntryLimits},
    offer::CallCounts,
    server_tools::ServerTools,
};
use super::{
    effects::Effects,
    floor::{Claim, Permission},
    lanes::{LaneId, LaneSignal, Lanes, Owner, ask::Reply, backoff::ConnectionFailure},
    outbox::Observation,
    setup::SessionSetup,
    timers::Timer,
    tools::Tools,
};
use crate::{
    error::{Error, ErrorKind},
    spelling::{
        Profile,
        profile::{AnswerRules, AskTools},
    },
    vocabulary::{
        AnswerRequest, ChatTurn, ClientSettings, EntryId, LaneRequest, Mode, ServerCallResult, ToolCall,
        ToolServer, VoiceSample,
    },
};

/// Most waiting requests of the client, not counting an utterance's. The client's codec also bounds them.
const WAITING_MAX: usize = 16;

/// Answers of one session.
#[derive(Debug)]
pub(crate) struct Assistant {
    profile: Arc<Profile>,
    rules: Arc<AnswerRules>,
    /// The model can be asked silently: an upstream speaks given texts.
    asks_silently: bool,
    /// An upstream speaks given texts.
    can_speak: bool,
    /// The conversation so far.
    pub(crate) entries: Entries,
    current: Option<Answer>,
    /// An answer has ended.
    pub(crate) has_answered: bool,
    /// Requests for the next answers, while one is in progress.
    waiting: VecDeque<AnswerRequest>,
    /// Dialled when the user began to speak, so that queueing and initialisation overlap the speech.
    dialled: Option<LaneId>,
    /// The client has opened the session because it is about to ask its first question.
    asks_soon: bool,
    early: EarlyQuestion,
    server_tools: ServerTools,
}

impl Assistant {
    pub(crate) fn new(
        profile: Arc<Profile>,
        rules: Arc<AnswerRules>,
        asks_silently: bool,
        setup: &SessionSetup,
    ) -> Self {
        let entries = Entries::new(EntryLimits {
            max_chars: rules.answer.history_max_chars,
            audio_max_ms: rules.answer.history_audio_max_ms,
            max_pictures: rules.answer.history_max_pictures,
        });
        Self {
            profile,
            rules,
            asks_silently,
            can_speak: setup.can_speak,
            entries,
            current: None,
            has_answered: false,
            waiting: VecDeque::new(),
            dialled: None,
            asks_soon: setup.asks_soon,
            early: EarlyQuestion::default(),
            server_tools: ServerTools::default(),
        }
    }

    /// True while an answer is made or played, or about to be.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }

    /// Memory of the client's conversation, instructions and requests, and of the answer in progress, bytes.
    pub(crate) fn kept_bytes(&self, settings: &ClientSettings) -> usize {
        let instructions = settings.instructions.as_ref().map_or(0, String::len);
        self.entries.bytes()
            + self.early.kept_bytes()
            + instructions
            + settings.tools.bytes()
            + self.waiting.iter().map(|request| request.bytes).sum::<usize>()
            + self.current.as_ref().map_or(0, Answer::kept_bytes)
    }

    /// Dials for the answer to the utterance that has just begun.
    pub(crate) fn prepare(&mut self, now: Instant, tools: &mut Tools) {
        if tools.settings.turn_detection.answers_utterances() {
            self.dial_ahead(now, tools);
        }
    }

    /// Dials for the next answer.
    fn dial_ahead(&mut self, now: Instant, tools: &mut Tools) {
        let voice = self.next_voice(tools);
        let Tools { lanes, floor, .. } = tools;
        let may_answer = floor.may_speak(Claim::Answer) == Permission::Now;
        if may_answer && self.dialled.is_none() && lanes.can_dial(Owner::Assistant) {
            let init = LaneRequest::Init(voice);
            self.dialled = Some(lanes.open(now, Owner::Assistant, Mode::Chat, Some(init)));
        }
    }

    /// The voice for the next answer; `None` if the model is asked silently.
    fn next_voice(&self, Tools { settings, voice, .. }: &Tools) -> Option<VoiceSample> {
        let is_silent = self.server_tools.allow_calls(&settings.tools)
            && self.asks_silently
            && self.rules.tools.as_ref().is_some_and(|tools| tools.ask == AskTools::Silent);
        voice.clone().filter(|_| settings.spoken_answers && !is_silent)
    }

    /// Cuts an answer to the part that the client has played. An answer in progress is cut when it ends.
    pub(crate) fn truncate(&mut self, id: EntryId, played_ms: u64) {
        self.entries.truncate(id, played_ms);
        if let Some(answer) = &mut self.current {
            answer.note_played(id, played_ms);
        }
    }

    /// Gives back a worker that was dialled for an utterance without an answer. None is dialled ahead for the session's first question
    /// any more.
    pub(crate) fn release_prepared(&mut self, now: Instant, lanes: &mut Lanes) {
        self.asks_soon = false;
        self.retire_dialled(now, lanes);
    }

    fn retire_dialled(&mut self, now: Instant, lanes: &mut Lanes) {
        if let Some(id) = self.dialled.take() {
            lanes.retire(now, id);
        }
    }

    /// Gives the prepared worker back, unless the user speaks and the utterance will be answered, or the client is about to ask.
    pub(crate) fn release_unexpected(&mut self, now: Instant, is_user_speaking: bool, tools: &mut Tools) {
        let detection = tools.settings.turn_detection;
        if self.is_busy() {
            return;
        }
        if self.asks_soon && detection.client_asks && !detection.is_automatic {
            return self.dial_ahead(now, tools);
        }
        let is_expected = is_user_speaking && detection.answers_utterances();
        if !is_expected {
            self.retire_dialled(now, &mut tools.lanes);
        }
    }

    /// Asks for an answer. It begins when the one in progress has ended, and no text is spoken. Utterances meanwhile are
    /// answered together.
    pub(crate) fn request(&mut self, now: Instant, request: AnswerRequest, tools: &mut Tools) {
        self.waiting.retain(|waiting| waiting.by_client);
        if request.by_client && self.waiting.len() >= WAITING_MAX {
            let detail = format!("{WAITING_MAX} requests for answers are already waiting");
            tools.floor.out.push_error(Error::new(ErrorKind::AnswerInProgress, detail));
        } else {
            self.waiting.push_back(request);
        }
        self.advance(now, tools);
    }

    /// Ends the answer in progress, and forgets a next one that the client did not ask for. The client hears silence at
    /// once.
    pub(crate) fn interrupt(&mut self, now: Instant, tools: &mut Tools) {
        self.waiting.retain(|waiting| waiting.by_client);
        self.withdraw_early(now, &mut tools.lanes);
        self.cut(now, tools);
    }

    /// Ends the answer in progress, because a text is spoken in its place. Requests that wait are answered after the text.
    pub(crate) fn cut(&mut self, now: Instant, tools: &mut Tools) {
        let Some(answer) = self.current.take() else { return };
        self.has_answered = true;
        tools.floor.out.observe(Observation::Interrupted);
        answer.interrupt(now, &mut self.entries, tools);
    }

    /// Leaves every lane and forgets the conversation, because the session ends.
    pub(crate) fn stop(&mut self, now: Instant, tools: &mut Tools) {
        self.waiting.clear();
        self.interrupt(now, tools);
        self.release_prepared(now, &mut tools.lanes);
        self.entries.clear();
        self.server_tools.stop();
        self.arm_calls(tools);
    }

    /// Offers the tools of these servers from now on. The question in progress goes on.
    pub(crate) fn set_tool_servers(&mut self, now: Instant, servers: Arc<[ToolServer]>, tools: &mut Tools) {
        self.server_tools.set_servers(servers);
        self.replace_early(now, tools);
    }

    /// Takes the result of a call on a tool server.
    pub(crate) fn take_tool_result(
        &mut self,
        now: Instant,
        call: EntryId,
        result: ServerCallResult,
        tools: &mut Tools,
    ) {
        self.server_tools.take_result(call, result, self.current.as_mut(), &mut self.entries);
        // Without the result, an early question would be another.
        self.replace_early(now, tools);
        self.advance(now, tools);
    }

    /// Ends the calls on tool servers that take too long, and has the user hear that the others go on.
    pub(crate) fn end_late_calls(&mut self, now: Instant, tools: &mut Tools) {
        for (call, timeout) in self.server_tools.late_calls(now) {
            let problem = format!("no result within {} s", timeout.as_secs_f32());
            self.take_tool_result(now, call, ServerCallResult::failed(&problem), tools);
        }
        if let (Some(answer), Some(rules)) = (&mut self.current, &self.rules.tools)
            && self.can_speak
            && answer.waiting_words_at(rules).is_some_and(|at| at <= now)
        {
            answer.say_to_wait(rules);
        }
        self.advance(now, tools);
    }

    /// Arms the timer for the next thing that is due because of calls on tool servers.
    fn arm_calls(&self, tools: &mut Tools) {
        let answer = self.current.as_ref().filter(|_| self.can_speak).zip(self.rules.tools.as_ref());
        let waiting_words = answer.and_then(|(answer, rules)| answer.waiting_words_at(rules));
        let next = self.server_tools.deadline().into_iter().chain(waiting_words).min();
        tools.timers.set_or_clear(Timer::ToolCalls, next);
    }

    /// Begins, sends and ends answers, and tells the client from time to time that it waits for a worker.
    pub(crate) fn advance(&mut self, now: Instant, tools: &mut Tools) {
        self.advance_answers(now, tools);
        self.advance_speech(now, tools);
        self.arm_calls(tools);
        let waiting = self.current.as_ref().and_then(Answer::awaited_lane);
        tools.floor.out.push_if_any(tools.lanes.wait_notice(now, waiting, &mut tools.timers));
    }

    fn advance_answers(&mut self, now: Instant, tools: &mut Tools) {
        if self.current.as_ref().is_some_and(|answer| answer.is_over(&tools.floor))
            && let Some(answer) = self.current.take()
        {
            tools.floor.out.push_if_any(answer.finish(&mut self.entries));
            self.has_answered = true;
        }
        if self.current.is_none()
            && tools.floor.may_speak(Claim::Answer) == Permission::Now
            && let Some(request) = self.waiting.pop_front()
        {
            let client_tools = request.tools.as_ref().unwrap_or(&tools.settings.tools);
            let offer = self.server_tools.offer(client_tools, &CallCounts::default());
            let calling =
                begin_calling(&request, &self.rules, &offer.tools, self.asks_silently, &self.entries);
            self.current = Some(Answer::begin(request, offer, calling, &self.profile, tools));
            self.release_early(now, tools);
        }
        self.continue_after_calls(now, tools);
        let is_asking = |answer: &&mut Answer| !answer.is_answered() && !answer.server_calls.are_running();
        let Some(answer) = self.current.as_mut().filter(is_asking) else { return };
        if answer.ask.lane().is_none() {
            let voice = tools.voice.clone().filter(|_| answer.question().speaks);
            let init = LaneRequest::Init(voice);
            answer.ask.use_lane(self.dialled.take_if(|id| tools.lanes.can_serve(*id, &init)));
            let id = tools.lanes.dial(now, &mut answer.ask, init);
            // The client begins to wait now.
            tools.lanes.restart_queue_wait(now, id);
            self.release_prepared(now, &mut tools.lanes);
            self.advance_answers(now, tools);
        } else if answer.ask.is_ready(&tools.lanes) {
            let is_native = answer.ask.calls_tools(&tools.lanes);
            answer.set_native(is_native, |request, offer| {
                begin_calling(request, &self.rules, offer, self.asks_silently, &self.entries)
            });
            let question = answer.question();
            let turn = self.rules.chat_turn(&self.profile, tools, &question, &self.entries);
            answer.note_request(&turn);
            tools.lanes.ask(now, &mut answer.ask, LaneRequest::Chat(Box::new(turn)));
        }
    }

    /// Goes on with an answer whose calls on tool servers are over: asks the model again, or ends the answer if the client's tools
    /// are called, too. The words before the calls are made first, because their lane may need the only worker.
    fn continue_after_calls(&mut self, now: Instant, tools: &mut Tools) {
        let Some(answer) = self.current.as_mut().filter(|answer| answer.server_calls.are_running()) else {
            return;
        };
        if self.server_tools.are_running_for(answer.segment_id()) || !answer.has_spoken() {
            return;
        }
        if answer.calls_client() {
            answer.end_calls();
            return answer.complete(now, tools);
        }
        let client_tools = answer.request.tools.as_ref().unwrap_or(&tools.settings.tools);
        let offer = self.server_tools.offer(client_tools, &answer.server_calls.counts);
        let calling =
            begin_calling(&answer.request, &self.rules, &offer.tools, self.asks_silently, &self.entries);
        answer.ask_after_calls(offer, calling, tools);
    }

    /// Has the words of an answer spoken that was asked for silently.
    fn advance_speech(&mut self, now: Instant, tools: &mut Tools) {
        let Some(answer) = self.current.as_mut().filter(|answer| !answer.is_made()) else { return };
        answer.advance_speech(now, &self.profile.speak, tools);
        if answer.is_made() || answer.server_calls.are_running() && answer.has_spoken() {
            self.advance_answers(now, tools);
        }
    }

    /// Handles what happened on the lane that speaks an answer.
    pub(crate) fn handle_speech_signal(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        let effects = signal.effects(tools.floor.is_audible());
        if let Some(answer) = &mut self.current {
            answer.handle_speech_signal(now, signal, tools);
        }
        let effects = if self.end_if_broken_off(now, tools) { Effects::ALL } else { effects };
        if effects != Effects::DELTA {
            self.advance(now, tools);
        }
        effects
    }

    /// Handles what happened on one of the lanes.
    pub(crate) fn handle_signal(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        if self.early.is_on(signal.id) {
            return self.keep_early_output(now, signal, tools);
        }
        let (id, message) = (signal.id, signal.message.filter(|_| signal.was_awaiting_reply));
        if let (Some(answer), Some((event, meta))) = (&mut self.current, message) {
            answer.note_message(event, meta);
        }
        match signal.into_reply() {
            part @ (Reply::Text(_) | Reply::Audio(_) | Reply::Call { .. } | Reply::Done { .. }) => {
                self.take_part(now, part, tools)
            }
            change => {
                self.handle_change(now, id, change, tools);
                Effects::ALL
            }
        }
    }

    /// Takes a part of the answer.
    fn take_part(&mut self, now: Instant, part: Reply<'_>, tools: &mut Tools) -> Effects {
        let Some(answer) = &mut self.current else { return Effects::ALL };
        // Words that are spoken later may dial or use a lane.
        let is_spoken_later = answer.is_spoken_later();
        match part {
            Reply::Text(text) => {
                answer.push_text(now, text, tools);
                self.advance_speech(now, tools);
            }
            Reply::Audio(samples) => answer.push_audio(now, samples, tools),
            Reply::Call { call_id, name, arguments } => {
                let [call_id, name, arguments] = [call_id, name, arguments].map(str::to_owned);
                answer.push_call(ToolCall { call_id, name, arguments }, tools);
                return Effects::ALL;
            }
            Reply::Done { text, audio } => {
                self.complete(now, text, audio, tools);
                return Effects::ALL;
            }
            _ => return Effects::ALL,
        }
        let is_over = self.end_if_broken_off(now, tools);
        if !is_over && !is_spoken_later && tools.floor.is_audible() { Effects::DELTA } else { Effects::ALL }
    }

    /// Ends an answer that lost audio. Returns true if its making has ended.
    fn end_if_broken_off(&mut self, now: Instant, tools: &mut Tools) -> bool {
        let Some(answer) = &mut self.current else { return true };
        answer.end_if_broken_off(now, tools);
        answer.is_made()
    }

    /// Completes the answer: all of it was made. `text` and `audio` are all of it if the upstream did not stream.
    fn complete(&mut self, now: Instant, text: Option<&str>, audio: &[f32], tools: &mut Tools) {
        if let Some(answer) = &mut self.current
            && answer.take_end(now, text, audio, tools)
            && !self.server_tools.begin_calls(now, answer, &mut self.entries, tools)
        {
            answer.complete(now, tools);
        }
        self.advance(now, tools);
    }

    /// Handles a reply that is no part of the answer.
    fn handle_change(&mut self, now: Instant, id: LaneId, change: Reply<'_>, tools: &mut Tools) {
        let is_current = self.current.as_ref().is_some_and(|answer| answer.ask.lane() == Some(id));
        match change {
            Reply::None | Reply::Text(_) | Reply::Audio(_) | Reply::Call { .. } | Reply::Done { .. } => {}
            Reply::Queued => {
                if tools.lanes.is_any_draining() {
                    self.early.pause_from(now);
                }
            }
            Reply::Ready => self.advance(now, tools),
            // The client does not wait for a lane that was dialled ahead. The answer dials another.
            Reply::QueueStuck(_) if !is_current => {}
            Reply::QueueStuck(words) => tools.floor.out.push_error(Error::new(ErrorKind::QueueStuck, words)),
            Reply::Empty | Reply::Failed(_) if !is_current => {
                self.release_prepared(now, &mut tools.lanes);
            }
            Reply::Empty => self.handle_failure(now, ConnectionFailure::empty_answer(), tools),
            Reply::Failed(failure) => self.handle_failure(now, failure, tools),
        }
    }

    pub(super) fn handle_failure(&mut self, now: Instant, failure: ConnectionFailure, tools: &mut Tools) {
        if let Some(answer) = &mut self.current {
            if failure.is_endless {
                answer.end_at_limit(now, tools);
            } else {
                answer.fail(now, failure, self.rules.answer.attempts, tools);
            }
        }
        self.advance(now, tools);
    }
}

impl AnswerRules {
    /// The request to the model for an answer.
    fn chat_turn(
        &self,
        profile: &Profile,
        Tools { settings, voice, voice_name, .. }: &Tools,
        question: &Question<'_>,
        conversation: &Entries,
    ) -> ChatTurn {
        let Question { request, offer, calling, is_native, speaks } = *question;
        let given = request.instructions.as_ref().or(settings.instructions.as_ref());
        let mut instructions = given.unwrap_or(&self.answer.instructions).clone();
        let voice = voice.clone().filter(|_| speaks);
        let has_system =
            voice.is_some() || calling.is_some_and(Calling::offers) || !instructions.trim().is_empty();
        let mut messages = match &request.entries {
            Some(own) => entries::to_messages(own.iter(), has_system),
            None => conversation.messages(has_system),
        };
        entries::end_with_user(&mut messages, request.instructions.as_ref().unwrap_or(&self.answer.unasked));
        if !is_native {
            calling::prompt::write_calls(self.tools.as_ref(), &mut messages);
        }
        let offered = self.tools.as_ref().filter(|_| is_native).map(|_| offer.clone());
        if let Some(calling) = calling {
            calling.complete_question(&mut instructions, &mut messages);
        }
        ChatTurn {
            before_voice: profile.speak.before_voice.clone(),
            instructions,
            messages,
            speaks,
            voice,
            voice_name: voice_name.clone(),
            max_tokens: request
                .max_tokens
                .or(settings.max_tokens)
                .map_or(self.answer.max_tokens, |max| max.min(self.answer.max_tokens)),
            temperature: request.temperature.or(settings.temperature),
            tools: offered.unwrap_or_default(),
        }
    }
}
