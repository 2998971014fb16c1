//! A conversation that takes turns: an utterance, a typed message or the client's request is answered by one chat turn.
//!
//! Every turn carries the whole conversation ([`entries`]), because a chat session keeps nothing (field notes
//! minicpm-o.md §2). An answer is over when the client has played it, and until then it can be interrupted; what was not
//! played is cut from the conversation. [`answer`] is the answer in progress.

mod answer;
pub(crate) mod entries;

use std::{collections::VecDeque, sync::Arc, time::Instant};

use self::answer::Answer;
use super::{
    floor::{Claim, Permission},
    measurement::LanePurpose,
    outbox::Observation,
    upstream::{
        LaneContext,
        backoff::ConnectionFailure,
        connection::{ConnectionEvent, UpstreamConnection},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{
        AnswerRequest, ChatTurn, DisconnectReason, Lane, LaneCommand, LaneEvent, Mode, TurnDetection,
        VoiceSample,
    },
    mapping::{Profile, profile::AnswerRules},
};

/// Most requests that wait. The codec of a client bounds them, too.
const WAITING_MAX: usize = 16;

/// Settings of the client that concern answers.
#[derive(Debug, Clone)]
pub(crate) struct AnswerSettings {
    /// In place of the profile's instructions.
    pub(crate) instructions: Option<String>,
    pub(crate) speaks: bool,
    pub(crate) detection: TurnDetection,
    pub(crate) voice: Option<VoiceSample>,
    /// The client receives partial transcripts.
    pub(crate) partials: bool,
}

/// Answers of one session.
#[derive(Debug)]
pub(crate) struct Assistant {
    profile: Arc<Profile>,
    rules: Arc<AnswerRules>,
    pub(crate) settings: AnswerSettings,
    current: Option<Answer>,
    /// Requests for the next answers, while one is in progress.
    waiting: VecDeque<AnswerRequest>,
    /// Dialled when the user began to speak, so that queueing and initialisation overlap the speech.
    dialled: Option<UpstreamConnection>,
}

impl Assistant {
    pub(crate) fn new(profile: Arc<Profile>, rules: Arc<AnswerRules>, voice: Option<VoiceSample>) -> Self {
        let settings = AnswerSettings {
            instructions: None,
            speaks: true,
            detection: TurnDetection::default(),
            voice,
            partials: profile.hear.partials,
        };
        Self { profile, rules, settings, current: None, waiting: VecDeque::new(), dialled: None }
    }

    /// True while an answer is made or played, or about to be.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }

    /// Memory of the client's instructions and requests, bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let requests = self.waiting.iter().chain(self.current.iter().map(|answer| &answer.request));
        let instructions = self.settings.instructions.as_ref().map_or(0, String::len);
        instructions + requests.map(|request| request.bytes).sum::<usize>()
    }

    /// The connections: of the answer in progress, and the one that was dialled ahead.
    fn connections(&self) -> impl Iterator<Item = &UpstreamConnection> {
        self.current.iter().filter_map(|answer| answer.connection.as_ref()).chain(&self.dialled)
    }

    fn connection_of(&mut self, lane: Lane) -> Option<&mut UpstreamConnection> {
        let current = self.current.iter_mut().filter_map(|answer| answer.connection.as_mut());
        current.chain(&mut self.dialled).find(|connection| connection.lane() == lane)
    }

    /// True if the lane belongs to the assistant.
    pub(crate) fn owns_lane(&self, lane: Lane) -> bool {
        self.connections().any(|connection| connection.lane() == lane)
    }

    /// True if it has a lane.
    pub(crate) fn has_lanes(&self) -> bool {
        self.connections().next().is_some()
    }

    /// True if a lane holds an upstream worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.connections().any(UpstreamConnection::holds_worker)
    }

    /// True if the lane waits in the upstream's queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.connections().any(UpstreamConnection::is_queued)
    }

    /// Earliest deadline of the lanes.
    pub(crate) fn lane_deadline(&self) -> Option<Instant> {
        self.connections().filter_map(UpstreamConnection::deadline).min()
    }

    /// Dials for the answer to the utterance that has just begun.
    pub(crate) fn prepare(&mut self, now: Instant, context: &mut LaneContext) {
        let expects_answer = self.settings.detection.is_automatic && self.settings.detection.answers;
        let may_answer = context.floor.may_speak(Claim::Answer) == Permission::Now;
        if expects_answer && may_answer && self.dialled.is_none() && context.can_dial() {
            let voice = self.settings.voice.clone().filter(|_| self.settings.speaks);
            self.dialled = Some(dial(now, voice, context));
        }
    }

    /// Gives back a worker that was dialled for an utterance without an answer.
    pub(crate) fn release_prepared(&mut self, now: Instant, context: &mut LaneContext) {
        if let Some(connection) = self.dialled.take() {
            connection.retire(now, context);
        }
    }

    /// Asks for an answer. It begins when the one in progress has ended, and no text is spoken. Utterances meanwhile are
    /// answered together.
    pub(crate) fn request(&mut self, now: Instant, request: AnswerRequest, context: &mut LaneContext) {
        self.waiting.retain(|waiting| waiting.by_client);
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(request);
        }
        self.advance(now, context);
    }

    /// Ends the answer in progress, and forgets a next one that the client did not ask for. The client hears silence at
    /// once.
    pub(crate) fn interrupt(&mut self, now: Instant, context: &mut LaneContext) {
        self.waiting.retain(|waiting| waiting.by_client);
        let Some(answer) = self.current.take() else { return };
        context.out.observe(Observation::Interrupted);
        answer.interrupt(now, self.settings.partials, context);
    }

    /// Leaves every lane, because the session ends.
    pub(crate) fn stop(&mut self, now: Instant, context: &mut LaneContext) {
        self.waiting.clear();
        self.interrupt(now, context);
        self.release_prepared(now, context);
    }

    /// Begins, sends and ends answers, and tells the client from time to time that it waits for a worker.
    pub(crate) fn advance(&mut self, now: Instant, context: &mut LaneContext) {
        self.advance_answers(now, context);
        let connection = self.current.as_ref().and_then(|answer| answer.connection.as_ref());
        context.report_wait(now, connection.and_then(UpstreamConnection::queue_position));
    }

    fn advance_answers(&mut self, now: Instant, context: &mut LaneContext) {
        if self.current.as_ref().is_some_and(|answer| answer.is_over(context))
            && let Some(answer) = self.current.take()
        {
            answer.finish(context);
        }
        if self.current.is_none()
            && context.floor.may_speak(Claim::Answer) == Permission::Now
            && let Some(request) = self.waiting.pop_front()
        {
            self.current = Some(Answer::begin(request, context));
        }
        let Some(answer) = self.current.as_mut().filter(|answer| !answer.is_made()) else { return };
        let speaks = answer.request.speaks.unwrap_or(self.settings.speaks);
        let voice = self.settings.voice.clone().filter(|_| speaks);
        match &mut answer.connection {
            None => {
                let init = LaneCommand::Init(voice.clone());
                let prepared = self.dialled.take_if(|connection| connection.can_serve(&init));
                if prepared.is_some() || context.can_dial() {
                    let mut connection = prepared.unwrap_or_else(|| dial(now, voice, context));
                    // Until now the client did not wait.
                    connection.restart_queue_wait(now, context);
                    answer.connection = Some(connection);
                    self.release_prepared(now, context);
                    self.advance_answers(now, context);
                }
            }
            Some(connection) if connection.is_ready() => {
                let turn = self.rules.chat_turn(&self.profile, &self.settings, &answer.request, context);
                connection.send_request(now, LaneCommand::Chat(Box::new(turn)), context);
                answer.requested_at.get_or_insert(now);
            }
            Some(_) => {}
        }
    }

    pub(crate) fn handle_opened(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(connection) = self.connection_of(lane) {
            connection.handle_opened(now, context);
        }
    }

    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        lane: Lane,
        reason: &DisconnectReason,
        context: &mut LaneContext,
    ) {
        let Some(connection) = self.connection_of(lane) else { return };
        let connection_event = connection.handle_closed(now, reason, context);
        self.handle_connection_event(now, lane, connection_event, context);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, context: &mut LaneContext) {
        let lanes: Vec<Lane> = self.connections().map(UpstreamConnection::lane).collect();
        for lane in lanes {
            let Some(connection) = self.connection_of(lane) else { continue };
            let connection_event = connection.handle_timeout(now, context);
            self.handle_connection_event(now, lane, connection_event, context);
        }
        self.advance(now, context);
    }

    /// Handles an upstream event of one of the lanes. Returns true if it was no more than further text or audio.
    pub(crate) fn handle_lane_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        context: &mut LaneContext,
    ) -> bool {
        let Some(connection) = self.connection_of(lane) else { return false };
        let was_awaiting_reply = connection.is_awaiting_reply();
        let connection_event = connection.handle_event(now, event, context);
        let is_plain = connection_event == ConnectionEvent::None;
        self.handle_connection_event(now, lane, connection_event, context);
        let Some(answer) = self.current.as_mut().filter(|_| was_awaiting_reply) else { return false };
        match event {
            LaneEvent::Text(text) => answer.push_text(text, self.settings.partials, context),
            LaneEvent::Audio(samples) => {
                answer.push_audio(now, samples, self.settings.speaks, context);
            }
            LaneEvent::Done { text, audio } => {
                self.complete(now, *text, audio, context);
                return false;
            }
            _ => return false,
        }
        is_plain && context.floor.is_audible()
    }

    /// Completes the answer: all of it was made. `text` and `audio` are all of it if the upstream did not stream.
    fn complete(&mut self, now: Instant, text: Option<&str>, audio: &[f32], context: &mut LaneContext) {
        let (partials, speaks) = (self.settings.partials, self.settings.speaks);
        if let Some(answer) = &mut self.current {
            answer.complete(now, (text, audio), (partials, speaks), context);
        }
        self.advance(now, context);
    }

    fn handle_connection_event(
        &mut self,
        now: Instant,
        lane: Lane,
        connection_event: ConnectionEvent,
        context: &mut LaneContext,
    ) {
        let is_current = self.current.as_ref().is_some_and(|answer| answer.lane() == Some(lane));
        match connection_event {
            ConnectionEvent::None | ConnectionEvent::Queued => {}
            ConnectionEvent::Ready => self.advance(now, context),
            // The client does not wait for a connection that was dialled ahead. The answer dials another.
            ConnectionEvent::QueueStuck(_) if !is_current => {}
            ConnectionEvent::QueueStuck(words) => {
                context.out.push_error(Error::new(ErrorKind::QueueStuck, words));
            }
            ConnectionEvent::EmptyAnswer | ConnectionEvent::Failed(_) if !is_current => {
                self.release_prepared(now, context);
            }
            ConnectionEvent::EmptyAnswer => self.complete(now, None, &[], context),
            ConnectionEvent::Failed(failure) => self.handle_failure(now, failure, context),
        }
    }

    fn handle_failure(&mut self, now: Instant, failure: ConnectionFailure, context: &mut LaneContext) {
        let attempts_max = self.rules.answer.attempts;
        if let Some(answer) = &mut self.current {
            answer.fail(now, failure, attempts_max, context);
        }
        self.advance(now, context);
    }
}

fn dial(now: Instant, voice: Option<VoiceSample>, context: &mut LaneContext) -> UpstreamConnection {
    UpstreamConnection::open(now, (LanePurpose::Answer, Mode::Chat), LaneCommand::Init(voice), context)
}

impl AnswerRules {
    /// The request to the model for an answer.
    fn chat_turn(
        &self,
        profile: &Profile,
        settings: &AnswerSettings,
        request: &AnswerRequest,
        context: &LaneContext,
    ) -> ChatTurn {
        let given = request.instructions.as_ref().or(settings.instructions.as_ref());
        let instructions = given.unwrap_or(&self.answer.instructions).clone();
        let speaks = request.speaks.unwrap_or(settings.speaks);
        let voice = settings.voice.clone().filter(|_| speaks);
        let has_system = voice.is_some() || !instructions.trim().is_empty();
        let mut messages = match &request.entries {
            Some(own) => entries::to_messages(own.iter(), has_system),
            None => context.entries.messages(has_system),
        };
        entries::end_with_user(&mut messages, request.instructions.as_ref().unwrap_or(&self.answer.unasked));
        ChatTurn {
            before_voice: profile.speak.before_voice.clone(),
            instructions,
            messages,
            speaks,
            voice,
            max_tokens: request
                .max_tokens
                .map_or(self.answer.max_tokens, |max| max.min(self.answer.max_tokens)),
        }
    }
}
