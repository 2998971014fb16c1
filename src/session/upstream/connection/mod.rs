//! One upstream connection: dialled, queued, initialised, used, and closed politely. It is retried until it is first
//! used.
//!
//! The connection does not know its purpose. Its owner sends a request when [`UpstreamConnection::is_ready`], and
//! reacts to each [`ConnectionEvent`]. This file has the owner's operations; [`transitions`] handles messages, the
//! transport and time.

mod transitions;

use std::time::{Duration, Instant};

use super::backoff::{ConnectionFailure, RetryState};
use crate::session::{context::LaneContext, measurement::LanePurpose, outbox::Action};
use crate::{
    event::{Lane, LaneCommand, Mode},
    mapping::upstream::VoiceEncoding,
};

/// Result for the owner.
#[derive(Debug, PartialEq)]
pub(crate) enum ConnectionEvent {
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
    /// Connecting.
    Dialling { until: Instant },
    /// Connecting, but no longer wanted. The session is closed as soon as the transport opens.
    AbandonedDial { until: Instant },
    /// Connected. No worker is assigned yet.
    Queued(QueueState),
    /// A worker is assigned, and the initialisation is not known yet.
    Granted,
    /// `init` sent.
    Initialising { until: Instant },
    /// Initialised and unused.
    Ready,
    /// In use until it ends, as in a conversation.
    Engaged,
    /// Waits for an answer. `active_at` is the time of the last output.
    AwaitingReply { active_at: Instant },
    /// Waits for an answer that is no longer wanted. The answer cannot be stopped (field notes §2): the gateway would
    /// hand out a worker whose model still talks.
    Draining { until: Instant },
    /// Closed by either side. Waits for the end of the transport.
    Closing { until: Instant, retry: bool },
    /// Waits for the next attempt.
    BackingOff { until: Instant },
    /// Over.
    Gone,
}

#[derive(Debug)]
struct QueueState {
    since: Instant,
    moved_at: Instant,
    position: Option<u32>,
    stuck_reported: bool,
}

/// One upstream connection.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    lane: Lane,
    purpose: LanePurpose,
    mode: Mode,
    /// Initialisation, once it is known.
    init: Option<LaneCommand>,
    /// Encoding of the voice in the initialisation, until the upstream accepts it.
    voice_encoding: Option<VoiceEncoding>,
    phase: ConnectionPhase,
    opened_at: Instant,
    /// When a worker was assigned in this attempt.
    granted_at: Option<Instant>,
    /// Outstanding answers, if there may be more than one.
    pending_replies: u16,
    retry: Option<RetryState>,
}

impl UpstreamConnection {
    /// Dials.
    pub(crate) fn open(
        now: Instant,
        purpose_and_mode: (LanePurpose, Mode),
        init: LaneCommand,
        context: &mut LaneContext,
    ) -> Self {
        Self::open_with_optional_init(now, purpose_and_mode, Some(init), context)
    }

    /// Dials. The initialisation may follow later.
    pub(crate) fn open_with_optional_init(
        now: Instant,
        (purpose, mode): (LanePurpose, Mode),
        init: Option<LaneCommand>,
        context: &mut LaneContext,
    ) -> Self {
        let mut connection = Self {
            lane: Lane(0),
            purpose,
            mode,
            init,
            voice_encoding: None,
            phase: ConnectionPhase::Gone,
            opened_at: now,
            granted_at: None,
            pending_replies: 0,
            retry: None,
        };
        connection.dial(now, context);
        connection
    }

    pub(crate) const fn lane(&self) -> Lane {
        self.lane
    }

    /// True while the upstream queues it.
    pub(crate) const fn is_queued(&self) -> bool {
        matches!(&self.phase, ConnectionPhase::Queued(queue) if queue.position.is_some())
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Ready)
    }

    pub(crate) const fn is_awaiting_reply(&self) -> bool {
        matches!(self.phase, ConnectionPhase::AwaitingReply { .. })
    }

    /// True while an unwanted answer is drained.
    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Draining { .. })
    }

    /// True if a worker is assigned to it.
    pub(crate) const fn holds_worker(&self) -> bool {
        self.granted_at.is_some()
            && !matches!(
                self.phase,
                ConnectionPhase::Gone | ConnectionPhase::BackingOff { .. } | ConnectionPhase::Dialling { .. }
            )
    }

    /// When the worker was assigned. The upstream's time limit counts from this instant (field notes §1.6).
    pub(crate) const fn granted_at(&self) -> Option<Instant> {
        self.granted_at
    }

    /// Ends at this instant at the latest, whatever it waits for.
    pub(crate) fn shorten_deadline(&mut self, by: Instant) {
        if let ConnectionPhase::Draining { until }
        | ConnectionPhase::Closing { until, .. }
        | ConnectionPhase::AbandonedDial { until } = &mut self.phase
        {
            *until = (*until).min(by);
        }
    }

    /// Sets the initialisation.
    pub(crate) fn initialise_with(&mut self, now: Instant, init: LaneCommand, context: &mut LaneContext) {
        self.init = Some(init);
        self.initialise(now, context);
    }

    /// Waits for another initialisation, because the upstream refused the last one.
    pub(crate) fn await_init(&mut self) {
        if self.is_initialising() {
            (self.phase, self.init) = (ConnectionPhase::Granted, None);
        }
    }

    /// True while `init` is not answered.
    pub(crate) const fn is_initialising(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Initialising { .. })
    }

    /// Sets the number of outstanding answers. They are drained when the connection is left.
    pub(crate) const fn await_replies(&mut self, now: Instant, answers: u16) {
        if self.is_engaged() && answers > 0 {
            self.phase = ConnectionPhase::AwaitingReply { active_at: now };
            self.pending_replies = answers;
        }
    }

    /// Closes the session with an encoded message. Later messages of the upstream are still handled.
    pub(crate) fn close_with_message(&mut self, now: Instant, message: String, context: &mut LaneContext) {
        context.out.push(Action::ToLane(self.lane, LaneCommand::RawText(message)));
        let until = now + Duration::from_millis(context.lane_times.close_max_ms);
        self.phase = ConnectionPhase::Closing { until, retry: false };
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Gone)
    }

    /// True if the connection is unused and is (or will be) initialised with `init`.
    pub(crate) fn can_serve(&self, init: &LaneCommand) -> bool {
        let is_unused = matches!(
            self.phase,
            ConnectionPhase::Dialling { .. }
                | ConnectionPhase::Queued(_)
                | ConnectionPhase::Granted
                | ConnectionPhase::Initialising { .. }
                | ConnectionPhase::Ready
                | ConnectionPhase::BackingOff { .. }
        );
        is_unused && self.init.as_ref() == Some(init)
    }

    /// Cause of the last failed attempt since the last success.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.retry.as_ref().map(RetryState::last_error)
    }

    /// True while it is in use until it ends.
    pub(crate) const fn is_engaged(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Engaged)
    }

    /// Puts a ready connection to use until it ends. Its end then is a failure without a retry.
    pub(crate) const fn engage(&mut self) {
        if self.is_ready() {
            self.phase = ConnectionPhase::Engaged;
        }
    }

    /// Sends a request on a ready connection.
    pub(crate) fn send_request(&mut self, now: Instant, request: LaneCommand, context: &mut LaneContext) {
        let (request, _) = context.voice_encoding.encode_voice(request);
        context.out.push(Action::ToLane(self.lane, request));
        self.phase = ConnectionPhase::AwaitingReply { active_at: now };
    }

    /// Marks the answer as complete. A connection that ended with its answer keeps closing.
    pub(crate) const fn complete_reply(&mut self) {
        if self.is_awaiting_reply() {
            self.phase = ConnectionPhase::Ready;
        }
    }

    /// Closes politely in any phase (field notes §1.2: a bare drop made 14 of 20 following connects fail).
    pub(crate) fn close(&mut self, now: Instant, context: &mut LaneContext) {
        match &mut self.phase {
            // The handshake may already be complete.
            ConnectionPhase::Dialling { until } => {
                self.phase = ConnectionPhase::AbandonedDial { until: *until }
            }
            // No worker is assigned while it is queued, so there is no session to close.
            ConnectionPhase::Queued(queue) if queue.position.is_some() => {
                context.out.push(Action::DropLane(self.lane));
                self.phase = ConnectionPhase::Gone;
            }
            // A worker may be assigned at any moment. The gateway keeps messages for the worker until then.
            ConnectionPhase::Queued(_) => self.send_close(now, context),
            // A worker answers only after its initialisation, which may take 10 to 16 s.
            ConnectionPhase::Initialising { until } => {
                let ready_at = *until;
                self.send_close(ready_at, context);
            }
            ConnectionPhase::Granted
            | ConnectionPhase::Ready
            | ConnectionPhase::Engaged
            | ConnectionPhase::AwaitingReply { .. }
            | ConnectionPhase::Draining { .. } => {
                self.send_close(now, context);
            }
            ConnectionPhase::Closing { retry, .. } => *retry = false,
            ConnectionPhase::BackingOff { .. } => self.phase = ConnectionPhase::Gone,
            ConnectionPhase::AbandonedDial { .. } | ConnectionPhase::Gone => {}
        }
    }

    /// Sends the close message to an upstream that reads from `heard_at` on.
    fn send_close(&mut self, heard_at: Instant, context: &mut LaneContext) {
        context.out.push(Action::ToLane(self.lane, LaneCommand::Close));
        let until = heard_at + Duration::from_millis(context.lane_times.close_max_ms);
        self.phase = ConnectionPhase::Closing { until, retry: false };
    }

    /// Leaves politely once no answer is outstanding. The session then waits for the end of the transport.
    pub(crate) fn retire(mut self, now: Instant, context: &mut LaneContext) {
        let until = context.lane_drain_deadline(now);
        if self.is_awaiting_reply() && until > now {
            self.phase = ConnectionPhase::Draining { until };
        } else {
            self.close(now, context);
        }
        if let Some(by) = context.drain_deadline() {
            // A close always gets its full time, but does not wait for an initialisation longer than that.
            self.shorten_deadline(by.max(now) + Duration::from_millis(context.lane_times.close_max_ms));
        }
        if !self.is_gone() {
            context.closing.push(self);
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
