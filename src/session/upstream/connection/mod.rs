//! One lane's life: dialled, queued, initialised, asked, closed politely; tried again while it has not been asked.
//!
//! A link knows nothing of what it is asked for. Its owner asks when it is [`UpstreamConnection::is_ready`] and hears [`ConnectionEvent`]. Here is
//! what an owner does with it; [`transitions`] is what happens to it.

mod transitions;

use std::time::{Duration, Instant};

use super::backoff::{ConnectionFailure, RetryState};
use crate::session::{context::LaneContext, measurement::LanePurpose, outbox::Action};
use crate::{
    event::{Lane, LaneCommand, Mode},
    mapping::upstream::VoiceEncoding,
};

/// What its owner should know.
#[derive(Debug, PartialEq)]
pub(crate) enum ConnectionEvent {
    /// Nothing.
    None,
    /// It can be asked.
    Ready,
    /// It waits in a queue that somebody else holds up.
    Queued,
    /// The queue does not move: this in words, once.
    QueueStuck(String),
    /// The model had nothing to say; the link is on its way out.
    EmptyAnswer,
    /// It failed for good; the link is on its way out.
    Failed(ConnectionFailure),
}

#[derive(Debug)]
enum ConnectionPhase {
    /// Connecting.
    Dialling { until: Instant },
    /// Connecting for nobody any more; whoever answers is told goodbye.
    AbandonedDial { until: Instant },
    /// Connected; the queue decides.
    Queued(QueueState),
    /// It has a worker, and nobody has said yet what it is initialised with.
    Granted,
    /// `init` sent.
    Initialising { until: Instant },
    /// Initialised and not asked.
    Ready,
    /// In use for as long as it lasts, as a conversation is.
    Engaged,
    /// Owes an answer; silent since.
    AwaitingReply { active_at: Instant },
    /// Owes an answer nobody wants any more. It cannot be stopped (field notes §2: the gateway would hand out a worker
    /// whose model still talks), so it is waited out.
    Draining { until: Instant },
    /// Closed from our side or theirs; waits for the end of the transport.
    Closing { until: Instant, retry: bool },
    /// Waits before another attempt.
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

/// One lane.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    lane: Lane,
    purpose: LanePurpose,
    mode: Mode,
    /// What it is initialised with, once that is known.
    init: Option<LaneCommand>,
    /// How the voice in it was written, until it is known whether that was right.
    voice_encoding: Option<VoiceEncoding>,
    phase: ConnectionPhase,
    opened_at: Instant,
    /// When this attempt got a worker.
    granted_at: Option<Instant>,
    /// Answers it owes, where it may be more than one.
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

    /// Dials; what it is initialised with may come later.
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

    /// Its upstream lets it wait.
    pub(crate) const fn is_queued(&self) -> bool {
        matches!(&self.phase, ConnectionPhase::Queued(queue) if queue.position.is_some())
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Ready)
    }

    pub(crate) const fn is_awaiting_reply(&self) -> bool {
        matches!(self.phase, ConnectionPhase::AwaitingReply { .. })
    }

    /// Owes an answer nobody wants.
    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Draining { .. })
    }

    /// A worker is at work for it, or about to be.
    pub(crate) const fn holds_worker(&self) -> bool {
        self.granted_at.is_some()
            && !matches!(
                self.phase,
                ConnectionPhase::Gone | ConnectionPhase::BackingOff { .. } | ConnectionPhase::Dialling { .. }
            )
    }

    /// When its worker was assigned: the upstream's time limit counts from then (field notes §1.6).
    pub(crate) const fn granted_at(&self) -> Option<Instant> {
        self.granted_at
    }

    /// Is to be gone by then, whatever it waits for.
    pub(crate) fn shorten_deadline(&mut self, by: Instant) {
        if let ConnectionPhase::Draining { until }
        | ConnectionPhase::Closing { until, .. }
        | ConnectionPhase::AbandonedDial { until } = &mut self.phase
        {
            *until = (*until).min(by);
        }
    }

    /// Now it is known what it is initialised with.
    pub(crate) fn initialise_with(&mut self, now: Instant, init: LaneCommand, context: &mut LaneContext) {
        self.init = Some(init);
        self.initialise(now, context);
    }

    /// Its upstream refused what it was to be initialised with, and waits for something else.
    pub(crate) fn await_init(&mut self) {
        if self.is_initialising() {
            (self.phase, self.init) = (ConnectionPhase::Granted, None);
        }
    }

    /// It is being initialised.
    pub(crate) const fn is_initialising(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Initialising { .. })
    }

    /// A link in use owes so many answers, which are waited out when nobody wants them any more.
    pub(crate) const fn await_replies(&mut self, now: Instant, answers: u16) {
        if self.is_engaged() && answers > 0 {
            self.phase = ConnectionPhase::AwaitingReply { active_at: now };
            self.pending_replies = answers;
        }
    }

    /// Leaves a link in use with somebody else's words; what the upstream still says is heard.
    pub(crate) fn close_with_message(&mut self, now: Instant, message: String, context: &mut LaneContext) {
        context.out.push(Action::ToLane(self.lane, LaneCommand::RawText(message)));
        let until = now + Duration::from_millis(context.lane_times.close_max_ms);
        self.phase = ConnectionPhase::Closing { until, retry: false };
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Gone)
    }

    /// Not asked yet and initialised, or to be, like this.
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

    /// Why the last attempt failed, since the last one that did not.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.retry.as_ref().map(RetryState::last_error)
    }

    /// In use until it ends.
    pub(crate) const fn is_engaged(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Engaged)
    }

    /// From now on a ready link is in use until it ends; then it has failed, and is not tried again.
    pub(crate) const fn engage(&mut self) {
        if self.is_ready() {
            self.phase = ConnectionPhase::Engaged;
        }
    }

    /// Asks a ready link.
    pub(crate) fn send_request(&mut self, now: Instant, request: LaneCommand, context: &mut LaneContext) {
        let (request, _) = context.voice_encoding.encode_voice(request);
        context.out.push(Action::ToLane(self.lane, request));
        self.phase = ConnectionPhase::AwaitingReply { active_at: now };
    }

    /// The answer is complete; a link that ended with it stays on its way out.
    pub(crate) const fn complete_reply(&mut self) {
        if self.is_awaiting_reply() {
            self.phase = ConnectionPhase::Ready;
        }
    }

    /// Leaves politely, wherever it is (field notes §1.2: a bare drop made 14 of 20 following connects fail).
    pub(crate) fn close(&mut self, now: Instant, context: &mut LaneContext) {
        match &mut self.phase {
            // The handshake may have been answered already.
            ConnectionPhase::Dialling { until } => {
                self.phase = ConnectionPhase::AbandonedDial { until: *until }
            }
            // In the queue nobody has been assigned yet, so there is nobody to say goodbye to.
            ConnectionPhase::Queued(queue) if queue.position.is_some() => {
                context.out.push(Action::DropLane(self.lane));
                self.phase = ConnectionPhase::Gone;
            }
            // A worker may be on its way; the gateway keeps what is said to it until then.
            ConnectionPhase::Queued(_) => self.send_close(now, context),
            // A worker answers only when it is initialised, which may take 10 to 16 s.
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

    /// Says goodbye to an upstream that may be listening from `heard_at` on.
    fn send_close(&mut self, heard_at: Instant, context: &mut LaneContext) {
        context.out.push(Action::ToLane(self.lane, LaneCommand::Close));
        let until = heard_at + Duration::from_millis(context.lane_times.close_max_ms);
        self.phase = ConnectionPhase::Closing { until, retry: false };
    }

    /// Leaves politely, once it owes nothing, and hands itself over to the session, which waits for the end of the
    /// transport.
    pub(crate) fn retire(mut self, now: Instant, context: &mut LaneContext) {
        let until = context.lane_drain_deadline(now);
        if self.is_awaiting_reply() && until > now {
            self.phase = ConnectionPhase::Draining { until };
        } else {
            self.close(now, context);
        }
        if let Some(by) = context.drain_deadline() {
            // A goodbye has its time in any case; one that waits for an initialisation has no more.
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
