//! End of a session: reports the end of every utterance and playback, and closes every lane.

use std::time::{Duration, Instant};

use super::{
    Session, SessionPhase,
    drain_plan::DrainPlan,
    effects::Effects,
    measurement::{EndReason, Measurement, SessionState},
    millis,
    outbox::{Action, Observation, lockstep::AwaitedReply},
    status,
    timers::Timer,
};
use crate::{
    error::{Error, ErrorKind},
    spelling::client::LockStep,
    vocabulary::{ClientEvent, ClientRequest, CloseReason, EndCause},
};

/// Longest wait for progress of pending replies after the client's end of input: longer than any upstream queue.
const FINISH_TIMEOUT: Duration = Duration::from_secs(600);

/// Timers of a session that takes input.
const OPEN_TIMERS: [Timer; 5] =
    [Timer::Stall, Timer::Idle, Timer::TimeLimit, Timer::Drain, Timer::UserSilence];

impl Session {
    /// Ends the session because the client's transport is gone.
    pub(crate) fn handle_client_gone(&mut self, now: Instant) {
        if self.phase != SessionPhase::Ended {
            self.tools.out.measure(Measurement::SessionEnding(EndReason::ClientGone));
            self.end_session(now);
            self.state = SessionState::Ending;
        }
    }

    /// Ends the session after the current speech and replies, `within` a bound. When called twice, the earlier deadline
    /// wins.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration, reason: CloseReason) {
        let plan = DrainPlan::new(now, within, reason);
        self.tools.lanes.set_drain_deadline(plan.drain_deadline);
        match self.phase {
            SessionPhase::Open => {
                if self.drain_plan.is_none() {
                    let left_ms = millis(plan.reply_deadline.saturating_duration_since(now));
                    self.tools.out.push_client(ClientEvent::GoingAway { left_ms });
                }
                let earlier = self.drain_plan.filter(|planned| planned.reply_deadline <= plan.reply_deadline);
                self.drain_plan = earlier.or(Some(plan));
            }
            SessionPhase::Finishing(_) => {
                self.drain_plan.get_or_insert(plan);
                self.tools.timers.set_earlier(Timer::Finish, plan.reply_deadline);
            }
            SessionPhase::Ended => return,
        }
        self.follow(now, Effects::ALL);
    }

    /// Moves the conversation to another upstream session, on an operator's request.
    pub(crate) fn request_rollover(&mut self, now: Instant) {
        match &mut self.dialogue {
            Some(dialogue) => dialogue.request_rollover(),
            None => {
                let note = "there is no conversation to roll over in this session".to_owned();
                self.tools.out.observe(Observation::NoEffect(note));
            }
        }
        self.follow(now, Effects::ALL);
    }

    /// Shortens a drain when the client closes the session meanwhile: to the wait of a normal close.
    pub(super) fn handle_late_client_request(&mut self, now: Instant, event: &ClientRequest<'_>) {
        if let ClientRequest::ResumeAudio = event {
            self.tools.floor.release(now, &mut self.tools.out);
        }
        let max_wait = self.setup.profile.hear.speech_end_wait;
        if let (SessionPhase::Finishing(_), Some(_), ClientRequest::Close(_)) =
            (self.phase, self.drain_plan, event)
        {
            self.tools.timers.set_earlier(Timer::Finish, now + max_wait);
        }
    }

    /// Closes a draining session once that interrupts no one, and moves [`Timer::Drain`] to the next such instant.
    pub(super) fn finish_if_quiet(&mut self, now: Instant) {
        let (Some(plan), SessionPhase::Open) = (self.drain_plan, self.phase) else { return };
        let quiet_at = self.quiet_at(now);
        let is_quiet = quiet_at.is_some_and(|at| at <= now);
        if is_quiet || now >= plan.speech_deadline {
            if !is_quiet {
                self.report_cut_off(plan);
            }
            return self.begin_shutdown(now, plan.reason);
        }
        let next = quiet_at.map_or(plan.speech_deadline, |at| at.min(plan.speech_deadline));
        self.tools.timers.set(Timer::Drain, next);
    }

    /// Reports speech or a reply that a stopping voxbridge cuts off.
    fn report_cut_off(&mut self, plan: DrainPlan<CloseReason>) {
        if plan.reason == CloseReason::Shutdown {
            self.tools.out.measure(Measurement::SessionEnding(EndReason::CutOff));
        }
    }

    /// Earliest instant at which ending interrupts no one; `None` while someone speaks or waits.
    pub(super) fn quiet_at(&self, now: Instant) -> Option<Instant> {
        let is_recording = self.intake.speech_input.current_recording().is_some();
        let dialogue_end = match &self.dialogue {
            Some(dialogue) => dialogue.graceful_end_at(now, &self.tools.floor),
            None => Some(now),
        };
        dialogue_end.filter(|_| !is_recording)
    }

    /// True if the session has ended, the outbox is empty and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == SessionPhase::Ended && self.tools.lanes.are_gone() && self.is_over()
    }

    /// True if a session that has ended only has lanes that wait in a queue to be closed.
    pub(super) fn only_waits_in_queue(&self) -> bool {
        self.is_over() && self.tools.lanes.only_wait_in_queue()
    }

    /// True if a session that has ended has an empty outbox and uses no lane.
    fn is_over(&self) -> bool {
        !self.synthesizer.is_busy() && self.tools.lanes.are_left() && self.tools.is_drained()
    }

    /// Ends the session after the client's end of input, once all replies are sent.
    pub(super) fn finish_after_replies(&mut self, now: Instant) {
        self.tools.out.measure(Measurement::SessionEnding(EndReason::ClientClose));
        self.intake.speech_input.end_utterance(EndCause::Timeout, &mut self.intake.speech_events);
        self.process_speech_events(now);
        self.intake.speech_input.stop();
        self.tts_queue.enqueue_all();
        self.stop_dialogue(now);
        self.tools.out.await_reply(AwaitedReply::Final);
        self.waits_for_progress = true;
        self.finish(CloseReason::ClientClose, now + FINISH_TIMEOUT);
    }

    /// Extends the wait for pending replies while they make progress, unless the session drains. Returns true if there was
    /// progress recently.
    fn extend_finish(&mut self, now: Instant) -> bool {
        let last_progress = self.tools.floor.last_sent_at().max(self.tools.lanes.last_output_at());
        let until = last_progress.map(|at| at + FINISH_TIMEOUT).filter(|until| *until > now);
        let until = until.filter(|_| self.waits_for_progress && self.drain_plan.is_none());
        if let Some(until) = until {
            self.tools.timers.set(Timer::Finish, until);
        }
        until.is_some()
    }

    /// Reports to a client that waits for its replies that some are missing.
    fn report_missing_replies(&mut self) {
        if self.waits_for_progress {
            let words = match self.drain_plan {
                Some(_) => "the server stops before all replies were complete".to_owned(),
                None => format!("the replies made no progress for {} s", FINISH_TIMEOUT.as_secs()),
            };
            self.tools.out.push_error(Error::new(ErrorKind::Unavailable, words));
        }
    }

    /// Starts to close the session. Unfinished speech is dropped as on the Macaw server; complete utterances still get
    /// their replies (the server handles commands only after its pending reply, mappings/notes/macaw.md#order).
    pub(super) fn begin_shutdown(&mut self, now: Instant, reason: CloseReason) {
        self.tools.out.measure(Measurement::SessionEnding(reason.into()));
        if matches!(reason, CloseReason::Shutdown | CloseReason::Operator | CloseReason::TimeLimit) {
            self.intake.speech_input.commit_segment(&mut self.intake.speech_events);
            self.process_speech_events(now);
        } else {
            self.tts_queue.discard_all();
            self.stop_speech(now);
        }
        self.intake.speech_input.stop();
        self.stop_dialogue(now);
        self.transcriber.abandon_recording(now, self.intake.speech_input.listened_ms(), &mut self.tools);
        self.pass_on_words();
        let until = now + self.setup.profile.hear.speech_end_wait;
        let plan = self.drain_plan.filter(|plan| plan.reason == reason);
        self.finish(reason, plan.map_or(until, |plan| plan.reply_deadline));
    }

    /// Stops taking input. The session closes once all replies are sent, at this instant at the latest.
    fn finish(&mut self, reason: CloseReason, until: Instant) {
        let until = self.drain_plan.map_or(until, |plan| until.min(plan.reply_deadline));
        self.phase = SessionPhase::Finishing(reason);
        self.tools.timers.clear(&OPEN_TIMERS);
        self.tools.timers.set(Timer::Finish, until);
    }

    /// Ends a closing session once all replies are sent, or its time is up.
    pub(super) fn finish_if_answered(&mut self, now: Instant) {
        let SessionPhase::Finishing(reason) = self.phase else { return };
        if self.awaits_reply() {
            if !self.tools.timers.take_expired(Timer::Finish, now) || self.extend_finish(now) {
                return;
            }
            self.report_missing_replies();
            if let Some(plan) = self.drain_plan.filter(|plan| plan.reply_deadline <= now) {
                self.report_cut_off(plan);
            }
            self.transcriber.report_lost(now, &mut self.tools.timers, &mut self.tools.out);
        }
        self.drop_report.flush(now, status::dropped(self), &mut self.tools.out);
        self.end_session(now);
        self.tools.out.push_replies(true);
        if self.setup.lock_step == LockStep::EveryFrame {
            // No frame follows whose answer could have the words that are held.
            self.tools.out.release_transcripts(0);
        }
        self.tools.out.push_client(ClientEvent::SessionClosed {
            reason,
            total_ms: millis(now - self.opened_at),
            audio_ms: self.intake.speech_input.listened_ms(),
            segments: self.transcriber.segment_count(),
        });
        self.tools.out.push(Action::CloseClient(reason));
    }

    fn stop_dialogue(&mut self, now: Instant) {
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.stop(now, &mut self.tools);
        }
    }

    /// Ends every utterance and playback, and leaves every lane.
    fn end_session(&mut self, now: Instant) {
        self.phase = SessionPhase::Ended;
        self.tools.timers.clear(&OPEN_TIMERS);
        self.tools.timers.clear(&[Timer::Finish, Timer::DropReport]);
        self.tts_queue.discard_all();
        self.intake.speech_input.stop();
        self.stop_speech(now);
        self.stop_dialogue(now);
        if let Some(assistant) = &mut self.assistant {
            assistant.stop(now, &mut self.tools);
        }
        self.transcriber.stop(now, self.intake.speech_input.listened_ms(), &mut self.tools);
        self.pass_on_words();
        self.arm_outputs(now);
    }
}
