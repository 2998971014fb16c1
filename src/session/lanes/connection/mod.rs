//! One upstream connection: dialled, queued, initialised, used, and closed politely. It is retried until it is first
//! used.
//!
//! The connection does not know its purpose. Its owner sends a request when [`UpstreamConnection::is_ready`], and
//! reacts to each [`ConnectionChange`]. This file has the owner's operations; [`transitions`] handles messages, the
//! transport and time; [`unneeded`] handles unneeded connections in a queue, and [`waiting`] those that need a worker and have none.

mod transitions;
mod unneeded;
mod waiting;

use std::time::{Duration, Instant};

pub(super) use self::transitions::is_progress;
use super::backoff::{ConnectionFailure, RetryState};
use crate::{
    session::{lanes::LaneShared, millis},
    spelling::profile::LaneTimeouts,
    vocabulary::{Lane, LanePurpose, LaneRequest, Mode, VoiceEncoding},
};

/// Result for the owner.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConnectionChange {
    /// Nothing to do.
    None,
    /// Ready for a request.
    Ready,
    /// Waiting in a queue that others occupy.
    Queued,
    /// The queue does not move. Reported once, with a description.
    QueueStuck(String),
    /// The model had no answer. The connection is closing.
    EmptyAnswer,
    /// Failed for good. The connection is closing.
    Failed(ConnectionFailure),
}

#[derive(Debug)]
enum ConnectionPhase {
    /// Not dialled, because too many lanes of the session are closing. Has the deadlines of a queue.
    Held(QueueState),
    /// Connecting.
    Dialling,
    /// Connecting, but no longer wanted. The session is closed as soon as the transport opens.
    AbandonedDial,
    /// Connected. No worker is assigned yet.
    Queued(QueueState),
    /// In the upstream's queue at this position, but no longer needed. Closes once a worker is assigned. The queue is
    /// stuck from an instant on, unless it moves.
    Unneeded { position: Option<u32>, stuck_at: Instant, is_close_sent: bool },
    /// A worker is assigned, and the initialisation is not known yet.
    Granted,
    /// `init` sent.
    Initialising,
    /// Initialised and unused.
    Ready,
    /// In use until it ends, as in a conversation.
    Engaged,
    /// Waits for an answer.
    AwaitingReply,
    /// Waits for an answer that is no longer wanted. The answer cannot be stopped
    /// (mappings/notes/minicpm-o.md#stopping-a-chat): the gateway would hand out a worker whose model still talks.
    Draining,
    /// Closed by either side. Waits for the end of the transport.
    Closing { retry: bool },
    /// Waits for the next attempt.
    BackingOff,
    /// Over.
    Gone,
}

#[derive(Debug)]
struct QueueState {
    since: Instant,
    position: Option<u32>,
    stuck_reported: bool,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaneService {
    pub(super) purpose: LanePurpose,
    pub(super) mode: Mode,
}

/// Place in the upstream's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePlace {
    /// Position, from 1.
    pub(crate) position: u32,
    /// Since when the connection waits.
    pub(crate) since: Instant,
}

/// One upstream connection.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    pub(crate) lane: Lane,
    pub(super) service: LaneService,
    /// Initialisation, once it is known.
    init: Option<LaneRequest>,
    /// Encoding of the voice in the initialisation, until the upstream accepts it.
    voice_encoding: Option<VoiceEncoding>,
    phase: ConnectionPhase,
    /// When the phase times out. Set with every phase.
    deadline: Option<Instant>,
    opened_at: Instant,
    /// Since when it waits in a queue, over all attempts.
    pub(super) queued_since: Option<Instant>,
    /// When a worker was assigned in this attempt. The upstream's time limit counts from this instant
    /// (mappings/notes/minicpm-o-duplex.md#limits).
    pub(crate) granted_at: Option<Instant>,
    /// Outstanding answers, if there may be more than one.
    pending_replies: u16,
    /// Longest wait for the next output of the model, ms.
    reply_wait_ms: u64,
    /// The model has begun to answer.
    has_output: bool,
    /// The last message without a meaning, since the upstream's last answer.
    unknown_words: Option<String>,
    /// Text since the request, or since the last audio: its beginning, and its length in characters.
    text: Option<(Instant, usize)>,
    /// Another upstream may serve its requests, if its own refuses all of them.
    pub(super) is_replaceable: bool,
    /// Its dialect offers tools in messages.
    pub(super) calls_tools: bool,
    retry: Option<RetryState>,
}

impl UpstreamConnection {
    /// A connection that is not dialled yet.
    pub(super) const fn new(
        now: Instant,
        lane: Lane,
        service: LaneService,
        init: Option<LaneRequest>,
    ) -> Self {
        Self {
            lane,
            service,
            init,
            voice_encoding: None,
            phase: ConnectionPhase::Gone,
            deadline: None,
            opened_at: now,
            queued_since: None,
            granted_at: None,
            pending_replies: 0,
            reply_wait_ms: 0,
            has_output: false,
            unknown_words: None,
            text: None,
            is_replaceable: false,
            calls_tools: false,
            retry: None,
        }
    }

    /// Dials for the first time, now or later.
    pub(super) fn dial_first(&mut self, now: Instant, not_before: Option<Instant>, shared: &mut LaneShared) {
        match not_before.filter(|at| *at > now) {
            Some(at) => self.enter(ConnectionPhase::BackingOff, Some(at)),
            None => self.dial(now, self.lane, shared),
        }
    }

    /// Position in the upstream's queue, and the time since which it waits.
    pub(crate) const fn queue_position(&self) -> Option<QueuePlace> {
        match &self.phase {
            ConnectionPhase::Queued(QueueState { since, position: Some(position), .. }) => {
                Some(QueuePlace { position: *position, since: *since })
            }
            _ => None,
        }
    }

    /// True while the upstream queues it.
    pub(crate) const fn is_queued(&self) -> bool {
        self.queue_position().is_some()
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Ready)
    }

    pub(crate) const fn is_awaiting_reply(&self) -> bool {
        matches!(self.phase, ConnectionPhase::AwaitingReply)
    }

    /// True while an unwanted answer is drained.
    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Draining)
    }

    /// True if a worker is assigned to it.
    pub(crate) const fn holds_worker(&self) -> bool {
        self.granted_at.is_some()
            && !matches!(
                self.phase,
                ConnectionPhase::Gone | ConnectionPhase::BackingOff | ConnectionPhase::Dialling
            )
    }

    /// Ends at this instant at the latest, whatever it waits for.
    pub(crate) fn shorten_deadline(&mut self, by: Instant) {
        if let ConnectionPhase::Draining | ConnectionPhase::Closing { .. } | ConnectionPhase::AbandonedDial =
            self.phase
        {
            self.deadline = self.deadline.map(|deadline| deadline.min(by));
        }
    }

    /// Sets the initialisation.
    pub(crate) fn initialise_with(&mut self, now: Instant, init: LaneRequest, shared: &mut LaneShared) {
        self.init = Some(init);
        self.initialise(now, shared);
    }

    /// Waits for another initialisation, because the upstream refused the last one.
    pub(crate) fn await_init(&mut self) {
        if self.is_initialising() {
            self.init = None;
            self.enter(ConnectionPhase::Granted, None);
        }
    }

    /// True while `init` is not answered.
    pub(crate) const fn is_initialising(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Initialising)
    }

    /// Sets the number of outstanding answers. They are drained when the connection is left.
    pub(crate) fn await_replies(&mut self, now: Instant, answers: u16, times: &LaneTimeouts) {
        if self.is_engaged() && answers > 0 {
            self.await_reply(now, times.answer_max_ms);
            self.pending_replies = answers;
        }
    }

    /// Closes the session with an encoded message. Later messages of the upstream are still handled.
    pub(crate) fn close_with_message(&mut self, now: Instant, message: String, shared: &mut LaneShared) {
        shared.out.send(self.lane, LaneRequest::RawText(message));
        self.start_closing(now, false, &shared.times);
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Gone)
    }

    /// True if the connection is unused and is (or will be) initialised with `init`.
    pub(crate) fn can_serve(&self, init: &LaneRequest) -> bool {
        let is_unused = matches!(
            self.phase,
            ConnectionPhase::Held(_)
                | ConnectionPhase::Dialling
                | ConnectionPhase::Queued(_)
                | ConnectionPhase::Granted
                | ConnectionPhase::Initialising
                | ConnectionPhase::Ready
                | ConnectionPhase::BackingOff
        );
        is_unused && self.init.as_ref() == Some(init)
    }

    /// Cause of the last failed attempt since the last success. The first refusal for lack of room is no error, because
    /// the next attempt may wait in line.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.retry.as_ref().filter(|retry| !retry.is_first_refusal()).map(RetryState::last_error)
    }

    /// The last words of the upstream in place of an answer.
    pub(crate) fn unknown_words(&self) -> Option<&str> {
        self.unknown_words.as_deref()
    }

    /// True while it is in use until it ends.
    pub(crate) const fn is_engaged(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Engaged)
    }

    /// Puts a ready connection to use until it ends. Its end then is a failure without a retry.
    pub(crate) fn engage(&mut self) {
        if self.is_ready() {
            self.enter(ConnectionPhase::Engaged, None);
        }
    }

    /// Sends a request on a ready connection.
    pub(crate) fn send_request(&mut self, now: Instant, request: LaneRequest, shared: &mut LaneShared) {
        shared.out.send(self.lane, request);
        (self.has_output, self.text) = (false, None);
        let LaneTimeouts { first_answer_max_ms, answer_max_ms, .. } = shared.times;
        self.await_reply(now, first_answer_max_ms.min(answer_max_ms));
    }

    /// Waits for output of the model, at most for this time.
    fn await_reply(&mut self, now: Instant, wait_ms: u64) {
        self.reply_wait_ms = wait_ms;
        self.enter(ConnectionPhase::AwaitingReply, Some(now + Duration::from_millis(wait_ms)));
    }

    /// Waits for the next output of the model from now on.
    pub(crate) fn restart_reply_wait(&mut self, now: Instant) {
        if self.is_awaiting_reply() {
            self.await_reply(now, self.reply_wait_ms);
        }
    }

    /// Marks the answer as complete. A connection that ended with its answer keeps closing.
    pub(crate) fn complete_reply(&mut self) {
        if self.is_awaiting_reply() {
            self.enter(ConnectionPhase::Ready, None);
        }
    }

    /// Closes politely in any phase (mappings/notes/minicpm-o.md#queue: a bare drop made 14 of 20 following connects
    /// fail).
    pub(crate) fn close(&mut self, now: Instant, shared: &mut LaneShared) {
        match &mut self.phase {
            // The handshake may already be complete.
            ConnectionPhase::Dialling => self.phase = ConnectionPhase::AbandonedDial,
            ConnectionPhase::Queued(QueueState { position: place @ Some(_), .. }) => {
                let place = *place;
                self.wait_unneeded(now, place, false, shared);
            }
            // A worker may be assigned at any moment. The gateway keeps messages for the worker until then.
            ConnectionPhase::Queued(_) => self.send_close(now, shared),
            // A worker answers only after its initialisation, which may take 10 to 16 s.
            ConnectionPhase::Initialising => self.send_close(self.deadline.unwrap_or(now), shared),
            ConnectionPhase::Granted
            | ConnectionPhase::Ready
            | ConnectionPhase::Engaged
            | ConnectionPhase::AwaitingReply
            | ConnectionPhase::Draining => self.send_close(now, shared),
            ConnectionPhase::Closing { retry } => *retry = false,
            ConnectionPhase::Held(_) | ConnectionPhase::BackingOff => self.enter(ConnectionPhase::Gone, None),
            ConnectionPhase::AbandonedDial | ConnectionPhase::Unneeded { .. } | ConnectionPhase::Gone => {}
        }
    }

    /// Sends the close message to an upstream that reads from `heard_at` on.
    fn send_close(&mut self, heard_at: Instant, shared: &mut LaneShared) {
        shared.out.send(self.lane, LaneRequest::Close);
        self.start_closing(heard_at, false, &shared.times);
    }

    /// Waits for the end of the transport.
    fn start_closing(&mut self, from: Instant, retry: bool, times: &LaneTimeouts) {
        let deadline = from + Duration::from_millis(times.close_max_ms);
        self.enter(ConnectionPhase::Closing { retry }, Some(deadline));
    }

    fn enter(&mut self, phase: ConnectionPhase, deadline: Option<Instant>) {
        (self.phase, self.deadline) = (phase, deadline);
    }

    /// When [`UpstreamConnection::handle_timeout`] must run.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Leaves politely once no answer is outstanding, `drain_until` at the latest.
    pub(super) fn leave(&mut self, now: Instant, drain_until: Instant, shared: &mut LaneShared) {
        if self.is_awaiting_reply() && drain_until > now {
            shared.out.send(self.lane, LaneRequest::Cancel);
            self.enter(ConnectionPhase::Draining, Some(drain_until));
        } else {
            self.close(now, shared);
        }
    }
}
