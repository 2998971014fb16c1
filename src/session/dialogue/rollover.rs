//! Upstream session of a conversation: opened, replaced before it ends, replaced when it is lost.
//!
//! The old session is closed before the next one is dialled, unless a second worker holds a standby. With one worker,
//! two connections would queue behind each other (mappings/notes/minicpm-o-duplex.md#rollover).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Dialogue, history::History, reply_tracker::UnitInFlight, rollover_limits::RolloverDue,
    standby::Prospects, upstream_session::UpstreamSession,
};
use crate::session::{
    floor::{Floor, SpeechSource},
    lanes::{
        LaneId, Lanes, Owner,
        backoff::{ConnectionFailure, RetryState},
        connection::UpstreamConnection,
    },
    measurement::SessionState,
    millis,
    outbox::Observation,
    timers::{Timer, Timers},
    tools::Tools,
    usage::opening_input,
};
use crate::{
    audio::SPEECH_RATE_HZ,
    error::{Error, ErrorKind},
    spelling::profile::DialogueRules,
    vocabulary::{ClientEvent, ConversationInit, LaneRequest, RolloverReason, VoiceSample},
};

/// State of the conversation's upstream session.
#[derive(Debug)]
pub(super) enum DialogueUpstream {
    /// No session, and none is wanted: the conversation is over.
    Stopped,
    /// No session until the user speaks. The next one follows after that lane is gone.
    Paused { after: Option<LaneId> },
    /// Dials at this instant, after that lane is gone.
    Scheduled { at: Instant, after: Option<LaneId> },
    /// Being dialled and initialised.
    Connecting(LaneId),
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
const SESSION_TIMERS: [Timer; 7] = [
    Timer::Reply,
    Timer::ReplyEnd,
    Timer::Limits,
    Timer::Unit,
    Timer::Redial,
    Timer::QueueNotice,
    Timer::IdlePause,
];

/// Answered audio after which an upstream session was useful: a new model only listens for three units.
const USEFUL_AUDIO: Duration = Duration::from_secs(3);

impl DialogueUpstream {
    /// Its lane.
    pub(super) const fn id(&self) -> Option<LaneId> {
        match self {
            Self::Stopped | Self::Paused { .. } | Self::Scheduled { .. } => None,
            Self::Connecting(id) => Some(*id),
            Self::Active(session) => Some(session.id),
        }
    }
}

impl Dialogue {
    /// State for operators while no model is ready.
    pub(crate) fn connecting_state(&self, lanes: &Lanes) -> Option<SessionState> {
        match self.upstream {
            DialogueUpstream::Active(_) | DialogueUpstream::Stopped | DialogueUpstream::Paused { .. } => None,
            _ if self.outage.is_some() => Some(SessionState::RollingOver),
            DialogueUpstream::Connecting(id) if lanes.get(id).is_some_and(UpstreamConnection::is_queued) => {
                Some(SessionState::Queued)
            }
            DialogueUpstream::Connecting(_) | DialogueUpstream::Scheduled { .. } => {
                Some(SessionState::Opening)
            }
        }
    }

    pub(super) fn dial(&mut self, now: Instant, tools: &mut Tools) {
        self.known_history = self.turns.history.mark();
        let init = LaneRequest::InitConversation(Box::new(self.conversation_init(tools)));
        let id = tools.lanes.open(now, Owner::Dialogue, self.mode, Some(init));
        self.upstream = DialogueUpstream::Connecting(id);
    }

    fn conversation_init(&self, Tools { voice, voice_name, .. }: &Tools) -> ConversationInit {
        conversation_init(&self.rules, &self.turns.history, voice.clone(), voice_name.clone())
    }

    /// Dials the next session at its time, unless something blocks it. The end of what blocks it calls this again.
    pub(super) fn redial_if_due(&mut self, now: Instant, tools: &mut Tools) {
        let DialogueUpstream::Scheduled { at, after } = self.upstream else { return };
        // A text that needs the worker goes first. The worker is free when the text is synthesised, long before its
        // playout ends.
        let worker_lent = self.outage.is_some_and(|outage| outage.reason == RolloverReason::WorkerLent);
        let is_worker_taken =
            worker_lent && (tools.floor.is_making_text() || tools.lanes.owner_holds_worker(Owner::Closing));
        // A lane that waits in the queue already need not wait for the last session's end.
        let must_wait = after.is_some_and(|id| tools.lanes.is_closing(id))
            && !tools.lanes.has_place_in_queue(now, Owner::Dialogue, self.mode);
        let is_blocked = is_worker_taken || must_wait;
        tools.timers.set_or_clear(Timer::Redial, Some(at).filter(|_| !is_blocked));
        if tools.timers.take_expired(Timer::Redial, now) {
            self.dial(now, tools);
        }
    }

    /// Continues the conversation in a session that has become ready.
    pub(super) fn activate(&mut self, now: Instant, tools: &mut Tools) {
        let DialogueUpstream::Connecting(id) = self.upstream else { return };
        tools.lanes.engage(id);
        let init = self.conversation_init(tools);
        self.turns.usage.begin_request(opening_input(&init));
        self.upstream = DialogueUpstream::Active(Box::new(UpstreamSession::new(now, id)));
        self.resume_after_outage(now, false, tools);
    }

    /// Ends the outage and reports it to operators and to clients that want rollover events.
    fn resume_after_outage(&mut self, now: Instant, standby: bool, tools: &mut Tools) {
        let Tools { settings, timers, floor, .. } = tools;
        let out = &mut floor.out;
        self.uplink.allow_catch_up();
        self.standby.renew();
        self.outage_reported = false;
        self.arm_reply(timers);
        if std::mem::take(&mut self.is_resuming) {
            out.push_client(ClientEvent::ConversationResumed);
        }
        let Some(Outage { reason, since }) = self.outage.take() else { return };
        let gap_ms = millis(now - since);
        let kept_ms = self.uplink.units.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ);
        let (known_lines, missing_lines) = self.turns.history.known_and_missing(self.known_history);
        out.observe(Observation::RolledOver { reason, gap_ms, standby, kept_ms, known_lines, missing_lines });
        if settings.rollover_events {
            out.push_client(ClientEvent::RolledOver {
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
    pub(super) fn roll_over(&mut self, now: Instant, reason: RolloverReason, tools: &mut Tools) {
        let was_useful = matches!(&self.upstream, DialogueUpstream::Active(session) if session.tracker.answered >= USEFUL_AUDIO);
        let after = self.leave_upstream(now, true, tools);
        self.outage = Some(Outage { reason, since: now });
        // An early request of an operator is no failure.
        if !was_useful && reason != RolloverReason::OperatorRequest {
            let detail = format!("a new upstream session was replaced at once: {}", reason.name());
            RetryState::record_failure(&mut self.retry, now, ErrorKind::Unavailable, detail);
        }
        self.connect_successor(now, after, tools);
    }

    /// Switches to the standby, or schedules the next session.
    fn connect_successor(&mut self, now: Instant, after: Option<LaneId>, tools: &mut Tools) {
        let standby = self.standby.take(now, &self.turns.history, &mut tools.lanes);
        self.known_history = standby.as_ref().map_or(self.known_history, |standby| standby.history);
        match standby.map(|standby| standby.session) {
            Some(session) if tools.lanes.is_engaged(session.id) => {
                self.upstream = DialogueUpstream::Active(Box::new(session));
                return self.resume_after_outage(now, true, tools);
            }
            // A standby that is not ready yet is still faster than a new session.
            Some(session) if tools.lanes.get(session.id).is_some_and(|lane| !lane.is_gone()) => {
                return self.upstream = DialogueUpstream::Connecting(session.id);
            }
            Some(session) => tools.lanes.release(session.id),
            None => {}
        }
        let next_attempt = self.retry.as_ref().map(|retry| tools.lanes.next_attempt(now, retry));
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
        tools: &mut Tools,
    ) -> Option<LaneId> {
        tools.timers.clear(&SESSION_TIMERS);
        match std::mem::replace(&mut self.upstream, DialogueUpstream::Stopped) {
            DialogueUpstream::Active(mut session) => {
                self.rollover_requested = false;
                if session.was_healthy(now, tools.lanes.times()) {
                    self.retry = None;
                } else if let Some(retry) = self.retry.as_mut().filter(|_| session.tracker.answered_count > 0)
                {
                    retry.exclude_uptime(now - session.ready_at);
                }
                if let Some(UnitInFlight { mut unit, .. }) = session.tracker.in_flight.take() {
                    self.uplink.give_back(&unit);
                    self.video_frame = self.video_frame.take().or(unit.frame.take());
                }
                if let Some((unit, samples)) = session.take_unheard() {
                    self.uplink.give_back_end(&unit, samples, resend_unanswered);
                }
                if resend_unanswered {
                    self.uplink.resend_unanswered();
                }
                self.turns.reset(now, tools);
                tools.lanes.retire(now, session.id);
                Some(session.id)
            }
            DialogueUpstream::Connecting(id) => {
                tools.lanes.retire(now, id);
                Some(id)
            }
            DialogueUpstream::Stopped
            | DialogueUpstream::Paused { .. }
            | DialogueUpstream::Scheduled { .. } => None,
        }
    }

    /// Handles a lost upstream session: reports it to the client and looks for another. A picture that the session did not
    /// survive is not shown to the next one.
    pub(super) fn handle_upstream_loss(
        &mut self,
        now: Instant,
        failure: ConnectionFailure,
        tools: &mut Tools,
    ) {
        let had_picture = self.drop_picture_in_flight();
        let after = self.leave_upstream(now, true, tools);
        let ConnectionFailure { kind, detail, .. } = failure;
        let left_out = if had_picture { ", without the last picture" } else { "" };
        let error = format!(
            "the conversation was interrupted: {detail}; it continues with the next upstream session{left_out}"
        );
        let is_pictures_fault = had_picture && kind == ErrorKind::Refused;
        let told = if is_pictures_fault { kind } else { ErrorKind::ConversationInterrupted };
        tools.floor.out.push_error(Error::new(told, error));
        self.outage_reported = true;
        RetryState::record_failure(&mut self.retry, now, ErrorKind::Unavailable, detail);
        self.outage = Some(Outage { reason: RolloverReason::UpstreamLost, since: now });
        self.connect_successor(now, after, tools);
    }

    /// Forgets the picture of the unit in flight. Returns true if it has one.
    fn drop_picture_in_flight(&mut self) -> bool {
        let DialogueUpstream::Active(session) = &mut self.upstream else { return false };
        let in_flight = session.tracker.in_flight.as_mut();
        in_flight.is_some_and(|in_flight| in_flight.unit.frame.take().is_some())
    }

    pub(super) fn give_up(&mut self, failure: ConnectionFailure) {
        self.upstream = DialogueUpstream::Stopped;
        self.failure = Some(failure);
    }

    /// Gives a worker to a text that waits for one, until the text is synthesised. The standby's worker is preferred.
    pub(crate) fn release_worker_for_tts(&mut self, now: Instant, tools: &mut Tools) {
        let standby_had_worker = tools.lanes.owner_holds_worker(Owner::Standby);
        self.standby.retire(now, &mut tools.lanes);
        if standby_had_worker || !tools.lanes.owner_holds_worker(Owner::Dialogue) {
            return;
        }
        let since = self.outage.map_or(now, |outage| outage.since);
        let after = self.leave_upstream(now, false, tools);
        self.outage = Some(Outage { reason: RolloverReason::WorkerLent, since });
        self.upstream = DialogueUpstream::Scheduled { at: now, after };
    }

    /// Ends the conversation.
    pub(crate) fn stop(&mut self, now: Instant, tools: &mut Tools) {
        self.standby.retire(now, &mut tools.lanes);
        self.leave_upstream(now, false, tools);
        tools.timers.clear(&[Timer::Standby]);
        self.outage = None;
    }

    /// Replaces the upstream session if a limit requires it, at a quiet moment if there is time.
    pub(super) fn check_limits(&mut self, now: Instant, tools: &mut Tools) {
        let due = self.rollover_due(now, &tools.lanes);
        self.awaits_rollover = due.is_some();
        let Some(due) = due else { return };
        let quiet = self.quiet_at(&tools.floor).is_some_and(|at| at <= now);
        let ready = self.prepare_standby(now, due, tools);
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
            self.roll_over(now, reason, tools);
        }
    }

    /// Prepares the standby. Returns true if the rollover need not wait for it.
    fn prepare_standby(&mut self, now: Instant, due: RolloverDue, tools: &mut Tools) -> bool {
        let DialogueUpstream::Active(session) = &self.upstream else { return true };
        let granted_at = tools.lanes.granted_at(session.id).unwrap_or(session.ready_at);
        let time_left = self.limits.time_left(now, granted_at, session.context_usage);
        let prospects = Prospects {
            rules: &self.rules,
            history: &self.turns.history,
            is_turn_open: self.turns.open.is_some(),
            time_left: (!due.hard).then_some(time_left),
            usual_time: session.ready_at - granted_at,
        };
        let Tools { voice, voice_name, lanes, .. } = tools;
        let init = || {
            let (voice, voice_name) = (voice.clone(), voice_name.clone());
            let init = conversation_init(&self.rules, &self.turns.history, voice, voice_name);
            LaneRequest::InitConversation(Box::new(init))
        };
        self.standby.prepare(now, &prospects, self.mode, init, lanes)
    }

    pub(super) fn rollover_due(&self, now: Instant, lanes: &Lanes) -> Option<RolloverDue> {
        let DialogueUpstream::Active(session) = &self.upstream else { return None };
        let requested = self
            .rollover_requested
            .then_some(RolloverDue { reason: RolloverReason::OperatorRequest, hard: false });
        self.limits.rollover_due(now, lanes.granted_at(session.id)?, session.context_usage).or(requested)
    }

    /// Arms [`Timer::Limits`] for the next time limit, or the next quiet moment if a rollover is due.
    pub(super) fn arm_limits(&self, now: Instant, floor: &Floor, lanes: &Lanes, timers: &mut Timers) {
        let granted_at = match &self.upstream {
            DialogueUpstream::Active(session) => lanes.granted_at(session.id),
            _ => None,
        };
        let next = granted_at.and_then(|granted_at| self.limits.next_time_limit(now, granted_at));
        let quiet = self.rollover_due(now, lanes).and_then(|_| self.quiet_at(floor)).filter(|at| *at > now);
        timers.set_or_clear(Timer::Limits, next.into_iter().chain(quiet).min());
    }

    /// Instant from which ending the conversation interrupts no one; `None` while someone speaks or waits.
    ///
    /// Without a model, the user's last speech is given the time in which a model would have answered.
    pub(crate) fn graceful_end_at(&self, now: Instant, floor: &Floor) -> Option<Instant> {
        match &self.upstream {
            DialogueUpstream::Active(_) => self.quiet_at(floor),
            _ if floor.is_busy() || floor.is_busy_with(SpeechSource::Text) || self.user.in_speech => None,
            _ => Some(self.user.voice_at.map_or(now, |at| at + self.rules.converse.trailing_silence)),
        }
    }

    /// Instant from which the conversation is quiet; `None` while someone speaks or waits for an answer.
    fn quiet_at(&self, floor: &Floor) -> Option<Instant> {
        let busy = self.turns.open.is_some()
            || self.turns.fence.is_some()
            || floor.is_busy()
            || self.has_whole_unit();
        let DialogueUpstream::Active(session) = &self.upstream else { return None };
        if busy || floor.is_busy_with(SpeechSource::Text) || self.user.in_speech {
            return None;
        }
        let Some(voice_at) = self.user.voice_at else { return Some(session.ready_at) };
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

/// Parameters of an upstream session.
fn conversation_init(
    rules: &DialogueRules,
    history: &History,
    voice: Option<VoiceSample>,
    voice_name: Option<String>,
) -> ConversationInit {
    ConversationInit {
        prompt: rules.converse.prompt(&history.text()),
        config: Arc::clone(&rules.converse.config),
        voice,
        voice_name,
    }
}
