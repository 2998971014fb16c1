//! Upstream session of a conversation: opened, replaced before it ends, replaced when it is lost.
//!
//! The old session is closed before the next one is dialled, unless a second worker holds a standby. With one worker,
//! two connections would queue behind each other (field notes §7.2, §7.3).

use std::time::{Duration, Instant};

use super::{Dialogue, SessionSnapshot, rollover_limits::RolloverDue, upstream_session::UpstreamSession};
use crate::session::{
    measurement::{LanePurpose, SessionState},
    millis,
    outbox::Observation,
    timers::Timer,
    upstream::{
        LaneContext,
        backoff::{ConnectionFailure, RetryState},
        connection::UpstreamConnection,
        reply_tracker::UnitInFlight,
    },
};
use crate::{
    audio::{SPEECH_RATE_HZ, units::UNIT_SAMPLES},
    error::{Error, ErrorKind},
    event::{ClientCommand, Lane, RolloverReason},
};

/// State of the conversation's upstream session.
#[derive(Debug)]
pub(super) enum DialogueUpstream {
    /// No session, and none is wanted: the conversation is over.
    Stopped,
    /// Dials at this instant, after that lane is gone.
    Scheduled { at: Instant, after: Option<Lane> },
    /// Being dialled and initialised.
    Connecting(Box<UpstreamConnection>),
    /// In use.
    Active(Box<UpstreamSession>),
}

/// Time without a model, and its cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    reason: RolloverReason,
    since: Instant,
}

/// Timers of an upstream session.
const SESSION_TIMERS: [Timer; 6] =
    [Timer::Reply, Timer::ReplyEnd, Timer::Limits, Timer::Unit, Timer::Redial, Timer::QueueNotice];

/// Answered units after which an upstream session was useful: a new model only listens for three units.
const USEFUL_UNITS: u64 = 3;

impl DialogueUpstream {
    pub(super) fn connection(&self) -> Option<&UpstreamConnection> {
        match self {
            Self::Stopped | Self::Scheduled { .. } => None,
            Self::Connecting(connection) => Some(connection),
            Self::Active(session) => Some(&session.connection),
        }
    }

    pub(super) fn connection_mut(&mut self) -> Option<&mut UpstreamConnection> {
        match self {
            Self::Stopped | Self::Scheduled { .. } => None,
            Self::Connecting(connection) => Some(connection),
            Self::Active(session) => Some(&mut session.connection),
        }
    }
}

impl Dialogue {
    /// State for operators while no model is ready.
    pub(crate) fn connecting_state(&self) -> Option<SessionState> {
        match &self.upstream {
            DialogueUpstream::Active(_) | DialogueUpstream::Stopped => None,
            _ if self.outage.is_some() => Some(SessionState::RollingOver),
            DialogueUpstream::Connecting(connection) if connection.is_queued() => Some(SessionState::Queued),
            DialogueUpstream::Connecting(_) | DialogueUpstream::Scheduled { .. } => {
                Some(SessionState::Opening)
            }
        }
    }

    /// All lanes of the conversation.
    pub(super) fn connections(&self) -> impl Iterator<Item = &UpstreamConnection> {
        self.upstream
            .connection()
            .into_iter()
            .chain(self.standby.as_ref().map(|standby| &standby.session.connection))
    }

    /// True if the lane is the standby's.
    pub(super) fn is_standby(&self, lane: Lane) -> bool {
        self.standby.as_ref().is_some_and(|standby| standby.session.connection.lane() == lane)
    }

    pub(super) fn connection_of(&mut self, lane: Lane) -> Option<&mut UpstreamConnection> {
        let standby = self.standby.as_mut().map(|standby| &mut standby.session.connection);
        self.upstream.connection_mut().into_iter().chain(standby).find(|connection| connection.lane() == lane)
    }

    /// True if the lane belongs to the conversation.
    pub(crate) fn owns_lane(&self, lane: Lane) -> bool {
        self.connections().any(|connection| connection.lane() == lane)
    }

    /// True if the conversation has lanes.
    pub(crate) fn has_lanes(&self) -> bool {
        self.connections().next().is_some()
    }

    /// True if one of its lanes holds a worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.connections().any(UpstreamConnection::holds_worker)
    }

    pub(super) fn dial(&mut self, now: Instant, context: &mut LaneContext) {
        self.known_history = context.history.mark();
        self.upstream = DialogueUpstream::Connecting(Box::new(UpstreamConnection::open(
            now,
            (LanePurpose::Converse, self.mode),
            self.init_command(context),
            context,
        )));
    }

    /// Dials the next session at its time, unless something blocks it. The end of what blocks it calls this again.
    pub(super) fn redial_if_due(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        let DialogueUpstream::Scheduled { at, after } = self.upstream else { return };
        // A text that needs the worker goes first. The worker is free when the text is synthesised, long before its
        // playout ends.
        let worker_lent = self.outage.is_some_and(|outage| outage.reason == RolloverReason::WorkerLent);
        let is_worker_taken = worker_lent
            && (view.is_synthesizing || context.closing.iter().any(UpstreamConnection::holds_worker));
        // A lane that waits in the queue already need not wait for the last session's end.
        let must_wait = (after.is_some_and(|lane| context.is_closing(lane)) || !context.can_dial())
            && !context.has_place_in_queue(now, LanePurpose::Converse, self.mode);
        let is_blocked = is_worker_taken || must_wait;
        context.timers.set_or_clear(Timer::Redial, Some(at).filter(|_| !is_blocked));
        if context.timers.take_expired(Timer::Redial, now) {
            self.dial(now, context);
        }
    }

    /// Continues the conversation in a session that has become ready.
    pub(super) fn activate_connection(
        &mut self,
        now: Instant,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        let DialogueUpstream::Connecting(mut connection) =
            std::mem::replace(&mut self.upstream, DialogueUpstream::Stopped)
        else {
            return;
        };
        connection.engage();
        self.upstream = DialogueUpstream::Active(Box::new(UpstreamSession::new(now, *connection)));
        self.resume_after_outage(now, false, view, context);
    }

    /// Ends the outage and reports it to operators and to clients that want rollover events.
    fn resume_after_outage(
        &mut self,
        now: Instant,
        standby: bool,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        self.uplink.allow_catch_up();
        self.standby_unavailable = false;
        self.replaced_standby = None;
        self.outage_reported = false;
        self.arm_reply(context);
        let Some(Outage { reason, since }) = self.outage.take() else { return };
        let gap_ms = millis(now - since);
        let kept_ms = self.uplink.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ);
        let (known_lines, missing_lines) = context.history.known_and_missing(self.known_history);
        context.out.observe(Observation::RolledOver {
            reason,
            gap_ms,
            standby,
            kept_ms,
            known_lines,
            missing_lines,
        });
        if view.rollover_events {
            context.out.push_client(ClientCommand::RolledOver {
                reason,
                gap_ms,
                standby,
                kept_ms,
                known_lines,
                missing_lines,
            });
        }
    }

    /// Replaces the upstream session now. A session that was of no use counts as a failed attempt: its successor may be
    /// no better.
    pub(super) fn roll_over(
        &mut self,
        now: Instant,
        reason: RolloverReason,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        let was_useful = matches!(&self.upstream, DialogueUpstream::Active(session) if session.tracker.answered_count >= USEFUL_UNITS);
        let after = self.leave_upstream(now, true, view, context);
        self.outage = Some(Outage { reason, since: now });
        // An early request of an operator is no failure.
        if !was_useful && reason != RolloverReason::OperatorRequest {
            let detail = format!("a new upstream session was replaced at once: {}", reason.name());
            RetryState::record_failure(&mut self.retry, now, ErrorKind::Unavailable, detail);
        }
        self.connect_successor(now, after, view, context);
    }

    /// Switches to the standby, or schedules the next session.
    fn connect_successor(
        &mut self,
        now: Instant,
        after: Option<Lane>,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        match self.take_standby(now, context) {
            Some(session) if session.connection.is_engaged() => {
                self.upstream = DialogueUpstream::Active(Box::new(session));
                return self.resume_after_outage(now, true, view, context);
            }
            // A standby that is not ready yet is still faster than a new session.
            Some(session) if !session.connection.is_gone() => {
                return self.upstream = DialogueUpstream::Connecting(Box::new(session.connection));
            }
            _ => {}
        }
        let next_attempt = self
            .retry
            .as_ref()
            .map(|retry| retry.next_attempt(now, now, &context.lane_times, &mut context.rng));
        match next_attempt {
            Some(Err(failure)) => self.give_up(failure),
            Some(Ok(at)) => self.upstream = DialogueUpstream::Scheduled { at, after },
            None => self.upstream = DialogueUpstream::Scheduled { at: now, after },
        }
    }

    /// Leaves the upstream session politely. A turn in progress is played to its end. With `resend_unanswered`,
    /// unanswered speech is sent again to the next session.
    ///
    /// Returns the lane that was left.
    pub(super) fn leave_upstream(
        &mut self,
        now: Instant,
        resend_unanswered: bool,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) -> Option<Lane> {
        let options = self.transcript_options(view);
        context.timers.clear(&SESSION_TIMERS);
        match std::mem::replace(&mut self.upstream, DialogueUpstream::Stopped) {
            DialogueUpstream::Active(mut session) => {
                self.rollover_requested = false;
                if session.was_healthy(now, &context.lane_times) {
                    self.retry = None;
                } else if let Some(retry) = self.retry.as_mut().filter(|_| session.tracker.answered_count > 0)
                {
                    retry.exclude_uptime(now - session.ready_at);
                }
                if let Some(UnitInFlight { mut unit, .. }) = session.tracker.in_flight.take() {
                    self.uplink.give_back(&unit);
                    self.video_frame = self.video_frame.take().or(unit.frame.take());
                }
                if resend_unanswered {
                    self.uplink.resend_unanswered();
                }
                self.turns.reset(now, options, context);
                let lane = session.connection.lane();
                session.connection.retire(now, context);
                Some(lane)
            }
            DialogueUpstream::Connecting(connection) => {
                let lane = connection.lane();
                connection.retire(now, context);
                Some(lane)
            }
            DialogueUpstream::Stopped | DialogueUpstream::Scheduled { .. } => None,
        }
    }

    /// Handles a lost upstream session: reports it to the client and looks for another.
    pub(super) fn handle_upstream_loss(
        &mut self,
        now: Instant,
        detail: String,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        let after = self.leave_upstream(now, true, view, context);
        let error = format!(
            "the conversation was interrupted: {detail}; it continues with the next upstream session"
        );
        context.out.push_error(Error::new(ErrorKind::ConversationInterrupted, error));
        self.outage_reported = true;
        RetryState::record_failure(&mut self.retry, now, ErrorKind::Unavailable, detail);
        self.outage = Some(Outage { reason: RolloverReason::UpstreamLost, since: now });
        self.connect_successor(now, after, view, context);
    }

    pub(super) fn give_up(&mut self, failure: ConnectionFailure) {
        self.upstream = DialogueUpstream::Stopped;
        self.failure = Some(failure);
    }

    /// Gives a worker to a text that waits for one, until the text is synthesised. The standby's worker is preferred.
    pub(crate) fn release_worker_for_tts(
        &mut self,
        now: Instant,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        let standby_had_worker = self.standby.take().is_some_and(|standby| {
            let held = standby.session.connection.holds_worker();
            standby.session.connection.retire(now, context);
            held
        });
        if standby_had_worker || !self.holds_worker() {
            return;
        }
        let since = self.outage.map_or(now, |outage| outage.since);
        let after = self.leave_upstream(now, false, view, context);
        self.outage = Some(Outage { reason: RolloverReason::WorkerLent, since });
        self.upstream = DialogueUpstream::Scheduled { at: now, after };
    }

    /// Ends the conversation.
    pub(crate) fn stop(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        if let Some(standby) = self.standby.take() {
            standby.session.connection.retire(now, context);
        }
        self.leave_upstream(now, false, view, context);
        context.timers.clear(&[Timer::Standby]);
        self.outage = None;
    }

    /// Replaces the upstream session if a limit requires it, at a quiet moment if there is time.
    pub(super) fn check_limits(&mut self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        let due = self.rollover_due(now);
        self.awaits_rollover = due.is_some();
        let Some(due) = due else { return };
        let quiet = self.quiet_at(view, context).is_some_and(|at| at <= now);
        let ready = self.prepare_standby(now, !due.hard, context);
        if quiet {
            // The model answers no unit that it has not answered by now.
            self.uplink.clear_unanswered();
        }
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        // The answer to the unit in flight may have ended the quiet moment.
        session.pending_rollover = (due.hard || (quiet && ready)).then_some(due.reason);
        if let Some(reason) = session.pending_rollover
            && session.tracker.in_flight.is_none()
        {
            self.roll_over(now, reason, view, context);
        }
    }

    pub(super) fn rollover_due(&self, now: Instant) -> Option<RolloverDue> {
        let DialogueUpstream::Active(session) = &self.upstream else { return None };
        let requested = self
            .rollover_requested
            .then_some(RolloverDue { reason: RolloverReason::OperatorRequest, hard: false });
        self.limits.rollover_due(now, session.connection.granted_at()?, session.context_usage).or(requested)
    }

    /// Arms [`Timer::Limits`] for the next time limit, or the next quiet moment if a rollover is due.
    pub(super) fn arm_limits(&self, now: Instant, view: &SessionSnapshot, context: &mut LaneContext) {
        let granted_at = match &self.upstream {
            DialogueUpstream::Active(session) => session.connection.granted_at(),
            _ => None,
        };
        let next = granted_at.and_then(|granted_at| self.limits.next_time_limit(now, granted_at));
        let quiet = self.rollover_due(now).and_then(|_| self.quiet_at(view, context)).filter(|at| *at > now);
        context.timers.set_or_clear(Timer::Limits, next.into_iter().chain(quiet).min());
    }

    /// Instant from which ending the conversation interrupts no one; `None` while someone speaks or waits.
    ///
    /// Without a model, the user's last speech is given the time in which a model would have answered.
    pub(crate) fn graceful_end_at(
        &self,
        now: Instant,
        view: &SessionSnapshot,
        context: &LaneContext,
    ) -> Option<Instant> {
        match &self.upstream {
            DialogueUpstream::Active(_) => self.quiet_at(view, context),
            _ if context.floor.is_busy() || view.is_tts_active || view.in_speech => None,
            _ => Some(view.voice_at.map_or(now, |at| at + self.rules.converse.trailing_silence)),
        }
    }

    /// Instant from which the conversation is quiet; `None` while someone speaks or waits for an answer.
    fn quiet_at(&self, view: &SessionSnapshot, context: &LaneContext) -> Option<Instant> {
        let busy = self.turns.open.is_some()
            || self.turns.fence.is_some()
            || context.floor.is_busy()
            || self.uplink.len() >= UNIT_SAMPLES;
        let DialogueUpstream::Active(session) = &self.upstream else { return None };
        if busy || view.is_tts_active || view.in_speech {
            return None;
        }
        let Some(voice_at) = view.voice_at else { return Some(session.ready_at) };
        // Speech without an answer waits for one, so that the user need not repeat it.
        let answered = self.turns.ended_at.is_some_and(|ended| ended >= voice_at);
        let rest = if answered {
            Duration::from_millis(self.rules.rollover.quiet_ms)
        } else {
            self.rules.converse.trailing_silence
        };
        Some(voice_at + rest)
    }
}
