//! Consequences of an input: the steps that it can require, and the timers of the session.
//!
//! [`super`] lists which input calls which steps.

use std::time::Instant;

use super::{Session, drain_plan::TIME_LIMIT_GRACE, effects::Effects, status, timers::Timer, tools::Tools};
use crate::{
    error::{Error, ErrorKind},
    spelling::client::LockStep,
    vocabulary::{
        CloseReason, DisconnectReason, EndCause, FlowControl, Lane, LaneEvent, MessageMeta, SpeechId,
    },
};

impl Session {
    /// Runs the timers that have expired: the lanes' own, those of this function, and those of the steps in
    /// [`Session::follow`].
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let (activity, owners) = (&mut self.activity, &mut self.owners);
        if owners.tools.timers.take_expired(Timer::Interim, now)
            && let Some(utterance) = owners.intake.speech_input.utterance_so_far()
        {
            owners.transcriber.request_interim(now, utterance, &mut owners.tools);
        }
        if owners.tools.timers.take_expired(Timer::AnswerRequest, now) {
            owners.end_request_wait(now);
        }
        if owners.tools.timers.take_expired(Timer::UserSilence, now) {
            activity.user_silence.answer(now, owners);
        }
        if owners.tools.timers.take_expired(Timer::ToolCalls, now)
            && let Some(assistant) = &mut owners.assistant
        {
            assistant.end_late_calls(now, &mut owners.tools);
        }
        owners.tools.timers.clear(&[Timer::Lanes]);
        owners.handle_lanes_timeout(now);
        self.resume_dialling(now);
        let (is_open, owners) = (self.lifecycle.is_open(), &mut self.owners);
        // Frames of audio only move these two timers later, and so leave them as they are.
        self.activity.arm_stall(is_open, owners);
        if owners.tools.timers.take_expired(Timer::Stall, now) {
            owners.end_utterance(now, EndCause::Timeout);
        }
        self.activity.arm_idle(is_open, owners);
        if owners.tools.timers.take_expired(Timer::Idle, now) {
            self.lifecycle.close(now, CloseReason::Idle, owners);
        }
        if owners.tools.timers.take_expired(Timer::TimeLimit, now) {
            self.drain(now, TIME_LIMIT_GRACE, CloseReason::TimeLimit);
        }
        self.follow(now, Effects::ALL);
    }

    /// Follows an input: runs the steps that its effects ask for. [`super`] lists them.
    pub(super) fn follow(&mut self, now: Instant, effects: Effects) {
        if effects.has(Effects::WORKER_WANTED) {
            self.owners.release_idle_workers(now);
        }
        if effects.has(Effects::LANE_LEFT) {
            self.resume_dialling(now);
        }
        let effects = if effects.has(Effects::MODEL) { effects } else { self.follow_small(now, effects) };
        if effects == Effects::NONE {
            return;
        }
        self.owners.play(now);
        self.speak_next_queued(now);
        self.advance_dialogue(now);
        if !self.lifecycle.has_ended() {
            self.owners.report_dropped(now);
        }
        self.lifecycle.close_if_quiet(now, &mut self.owners);
        let (is_open, owners) = (self.lifecycle.is_open(), &mut self.owners);
        if effects.has(Effects::ALL) {
            owners.report_transcripts();
            self.activity.track_backpressure(now, is_open, owners);
            self.activity.user_silence.track(now, is_open, owners);
        }
        self.activity.track_replies(now, is_open, owners);
        owners.arm_outputs(now);
        self.lifecycle.end_if_answered(now, owners);
        self.state = status::state(self);
    }

    /// Follows an input that decided nothing: moves the timers that it can move. Returns what else is due by its instant.
    fn follow_small(&mut self, now: Instant, effects: Effects) -> Effects {
        let Tools { floor, timers, .. } = &mut self.owners.tools;
        // The session is awake, so it also sends audio that may leave.
        if effects.has(Effects::FRAME) && floor.may_send(now) {
            timers.set(Timer::Playout, now);
        }
        if effects.has(Effects::DELTA) {
            timers.set_or_clear(Timer::Playout, floor.next_timeout(now));
        }
        let needs_step = effects != Effects::NONE
            && (self.lifecycle.plan.is_some()
                || self
                    .owners
                    .dialogue
                    .as_mut()
                    .is_some_and(|dialogue| !dialogue.update_silence_timers(now, floor, timers)));
        if needs_step || timers.next.is_some_and(|at| at <= now) {
            return if effects.has(Effects::DELTA) { Effects::MODEL } else { Effects::ALL };
        }
        let (setup, intake) = (&self.owners.setup, &self.owners.intake);
        let is_manual = intake.speech_input.settings.is_manual;
        if effects.has(Effects::FRAME)
            && (setup.lock_step == LockStep::EveryFrame || intake.last_utterance_end_ms.is_some())
        {
            self.owners.report_transcripts();
        }
        // Without voice activity, no event reports the start and end of speech.
        if effects.has(Effects::FRAME) && is_manual {
            self.state = status::state(self);
        }
        Effects::NONE
    }

    /// Speaks the next queued text, once the current one has ended.
    fn speak_next_queued(&mut self, now: Instant) {
        while !self.lifecycle.has_ended()
            && let Err(error) = self.owners.speak_next_queued(now)
        {
            self.report_error(error);
        }
    }

    /// Lets the conversation continue. Closes a session whose conversation has no upstream any more.
    fn advance_dialogue(&mut self, now: Instant) {
        if let Some(failure) = self.owners.advance_dialogue(now, self.lifecycle.is_open()) {
            let error = Error::new(ErrorKind::ConversationLost, failure.detail);
            self.owners.tools.floor.out.push_error(error);
            self.lifecycle.close(now, CloseReason::Upstream, &mut self.owners);
        }
    }

    /// Lets the owners continue when a lane that was left has changed.
    fn resume_dialling(&mut self, now: Instant) {
        if !self.lifecycle.has_ended() {
            self.owners.resume_dialling(now);
        }
    }

    /// Handles the opened transport of a lane.
    pub(crate) fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        self.owners.tools.lanes.handle_opened(now, lane);
        self.owners.arm_outputs(now);
    }

    /// Another upstream may serve the requests of a lane whose own refuses all of them.
    pub(crate) fn handle_replaceable(&mut self, lane: Lane) {
        self.owners.tools.lanes.mark_replaceable(lane);
    }

    /// A lane goes to an upstream whose dialect offers tools in messages, or does not.
    pub(crate) fn handle_tool_support(&mut self, lane: Lane, calls_tools: bool) {
        self.owners.tools.lanes.set_calls_tools(lane, calls_tools);
    }

    /// Continues a lane that waits in its upstream's queue at another upstream that has room.
    pub(crate) fn handle_place(&mut self, now: Instant, lane: Lane) {
        if self.owners.tools.lanes.leave_queue_for_room(now, lane) {
            self.follow(now, Effects::ALL);
        }
    }

    /// Handles a message of the upstream.
    pub(crate) fn handle_lane_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
    ) {
        let signal = self.owners.tools.lanes.handle_event(now, lane, event, meta);
        let effects = signal.map_or(Effects::LANE_LEFT, |signal| self.owners.handle_signal(now, signal));
        self.follow(now, effects);
    }

    /// Handles the closed transport of a lane.
    pub(crate) fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        let signal = self.owners.tools.lanes.handle_closed(now, lane, reason);
        let effects = signal.map_or(Effects::LANE_LEFT, |signal| self.owners.handle_signal(now, signal));
        self.follow(now, effects);
    }

    /// Handles a change of the flow control.
    pub(crate) fn handle_flow(&mut self, now: Instant, flow: FlowControl) {
        let Tools { lanes, floor, .. } = &mut self.owners.tools;
        lanes.set_held(now, flow.are_lanes_held);
        floor.set_client_behind(now, flow.is_client_behind);
        self.follow(now, Effects::LANE_LEFT);
    }

    /// Notes that `waiting` of the `total` bytes of a speech's messages wait to be written to the client.
    pub(crate) fn handle_unwritten(&mut self, id: SpeechId, waiting: u64, total: u64) {
        self.owners.tools.floor.note_unwritten(id, waiting, total);
    }
}
