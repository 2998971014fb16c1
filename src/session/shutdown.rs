//! Timeouts and the end of a session: reports the end of every utterance and playback, and closes every lane.

use std::time::{Duration, Instant};

use super::{
    Session, SessionPhase,
    drain_plan::{DrainPlan, TIME_LIMIT_GRACE},
    measurement::{EndReason, Measurement},
    millis,
    outbox::{Action, Observation, lockstep::AwaitedReply},
    settings::transcribe_options,
};
use crate::{
    error::{Error, ErrorKind},
    event::{ClientCommand, ClientEvent, CloseReason},
};

/// Longest playback to a client that sends nothing: no upstream session lasts longer (field notes §1.6). Without this
/// bound, a model that never stops would keep an abandoned session alive.
const UNATTENDED_TALK_MAX: Duration = Duration::from_secs(600);

/// Longest wait for pending replies after the client's end of input: longer than any upstream queue.
const FINISH_TIMEOUT: Duration = Duration::from_secs(600);

impl Session {
    /// Ends the session because the client's transport is gone.
    pub(crate) fn handle_client_gone(&mut self, now: Instant) {
        if self.phase != SessionPhase::Ended {
            self.context.out.measure(Measurement::SessionEnding(EndReason::ClientGone));
            self.end_session(now);
        }
    }

    /// Ends the session after the current speech and replies, `within` a bound. When called twice, the earlier deadline
    /// wins.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration, reason: CloseReason) {
        let plan = DrainPlan::new(now, within, reason);
        self.context.set_drain_deadline(plan.drain_deadline);
        match &mut self.phase {
            SessionPhase::Open => {
                let earlier = self.drain_plan.filter(|planned| planned.reply_deadline <= plan.reply_deadline);
                self.drain_plan = earlier.or(Some(plan));
            }
            SessionPhase::Finishing(_, until) => *until = plan.reply_deadline.min(*until),
            SessionPhase::Ended => return,
        }
        self.update(now);
    }

    /// Moves the conversation to another upstream session, on an operator's request.
    pub(crate) fn request_rollover(&mut self, now: Instant) {
        match &mut self.dialogue {
            Some(dialogue) => dialogue.request_rollover(),
            None => {
                let note = "there is no conversation to roll over in this session".to_owned();
                self.context.out.observe(Observation::NoEffect(note));
            }
        }
        self.update(now);
    }

    /// Shortens a drain when the client closes the session meanwhile: to the wait of a normal close.
    pub(super) fn handle_late_client_event(&mut self, now: Instant, event: &ClientEvent<'_>) {
        let max_wait = self.setup.profile.hear.speech_end_wait;
        if let (SessionPhase::Finishing(_, until), Some(_), ClientEvent::Close(_)) =
            (&mut self.phase, self.drain_plan, event)
        {
            *until = (now + max_wait).min(*until);
        }
    }

    /// Ends a draining session once that interrupts no one.
    fn finish_if_quiet(&mut self, now: Instant) {
        let (Some(plan), SessionPhase::Open) = (self.drain_plan, self.phase) else { return };
        if now >= plan.speech_deadline || self.quiet_at(now).is_some_and(|at| at <= now) {
            self.begin_shutdown(now, plan.reason);
        }
    }

    /// Earliest instant at which ending interrupts no one; `None` while someone speaks or waits.
    fn quiet_at(&self, now: Instant) -> Option<Instant> {
        let is_recording = self.speech_input.current_recording().is_some();
        let dialogue_end = match &self.dialogue {
            Some(dialogue) => dialogue.graceful_end_at(now, &self.session_view(), &self.context),
            None => Some(now),
        };
        dialogue_end.filter(|_| !is_recording)
    }

    /// Runs the timers that have expired.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.handle_lanes_timeout(now);
        if self.stall_deadline().is_some_and(|due| due <= now) {
            self.speech_input.end_utterance(&mut self.speech_events);
            self.process_speech_events(now);
        }
        if self.idle_deadline().is_some_and(|due| due <= now) {
            self.begin_shutdown(now, CloseReason::Idle);
        }
        if self.time_limit_deadline().is_some_and(|due| due <= now) {
            self.time_limit_at = None;
            self.drain(now, TIME_LIMIT_GRACE, CloseReason::TimeLimit);
        }
        self.update(now);
    }

    /// Earliest deadline of the session.
    pub(crate) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let finishing = match self.phase {
            SessionPhase::Finishing(_, until) => Some(until),
            SessionPhase::Open | SessionPhase::Ended => None,
        };
        let (lanes, player) = (self.next_lanes_timeout(now), self.context.player.next_timeout(now));
        let drain = [self.next_drain_check(now), self.time_limit_deadline()];
        let deadlines = [finishing, lanes, player, self.stall_deadline(), self.idle_deadline()];
        deadlines.into_iter().chain(drain).flatten().min()
    }

    /// Next check of [`Session::finish_if_quiet`].
    fn next_drain_check(&self, now: Instant) -> Option<Instant> {
        let plan = self.drain_plan.filter(|_| self.phase == SessionPhase::Open)?;
        let quiet = self.quiet_at(now).filter(|at| *at > now);
        Some(quiet.map_or(plan.speech_deadline, |at| at.min(plan.speech_deadline)))
    }

    /// End of the session's longest permitted duration.
    fn time_limit_deadline(&self) -> Option<Instant> {
        self.time_limit_at.filter(|_| self.phase == SessionPhase::Open)
    }

    /// Instant at which an utterance ends because its audio has stopped arriving.
    fn stall_deadline(&self) -> Option<Instant> {
        let is_recording = self.phase == SessionPhase::Open
            && !self.had_backpressure
            && self.speech_input.current_recording().is_some();
        let stall = Duration::from_millis(self.setup.profile.listen.stall_ms.into());
        is_recording.then(|| self.last_audio_at + stall)
    }

    /// True if the client waits for a transcript or for speech.
    pub(super) fn awaits_reply(&self) -> bool {
        self.is_speaking() || self.tts_queue.has_waiting() || !self.transcriber.is_settled()
    }

    /// True if audio is playing or being synthesized.
    pub(super) fn is_speaking(&self) -> bool {
        self.synthesizer.is_busy() || self.context.player.is_busy()
    }

    /// Instant at which the session ends because the client sends nothing. A client that listens or waits for a transcript
    /// may stay silent longer: as long as playback lasts, or as an upstream's queue may take.
    fn idle_deadline(&self) -> Option<Instant> {
        let idle =
            self.idle_timeout.filter(|_| self.phase == SessionPhase::Open && !self.is_floor_taken())?;
        let is_playing = self.context.player.is_busy();
        let due = if is_playing { self.last_audio_at + UNATTENDED_TALK_MAX } else { self.idle_since + idle };
        let queue_max = Duration::from_millis(self.setup.profile.lanes.queue_max_ms);
        Some(if self.transcriber.is_settled() { due } else { due.max(self.last_audio_at + queue_max) })
    }

    /// True if the session has ended, the outbox is empty and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        let has_dialogue_lanes = self.dialogue.as_ref().is_some_and(|dialogue| dialogue.has_lanes());
        let has_lanes = has_dialogue_lanes
            || self.transcriber.lane().is_some()
            || self.synthesizer.is_busy()
            || !self.context.closing.is_empty();
        self.phase == SessionPhase::Ended && !has_lanes && self.context.out.is_empty()
    }

    /// Takes the next action.
    pub(crate) fn pop_action(&mut self) -> Option<Action> {
        self.context.out.pop()
    }

    /// Ends the session after the client's end of input, once all replies are sent.
    pub(super) fn finish_after_replies(&mut self, now: Instant) {
        self.context.out.measure(Measurement::SessionEnding(EndReason::ClientClose));
        self.speech_input.end_utterance(&mut self.speech_events);
        self.process_speech_events(now);
        self.speech_input.stop();
        self.tts_queue.enqueue_unflushed();
        self.stop_dialogue(now);
        self.context.out.await_reply(AwaitedReply::Final);
        self.phase = SessionPhase::Finishing(CloseReason::ClientClose, now + FINISH_TIMEOUT);
    }

    /// Starts to close the session. Unfinished speech is dropped as on the Macaw server; complete utterances still get
    /// their replies (the server handles commands only after its pending reply, field notes macaw.md §1.8).
    pub(super) fn begin_shutdown(&mut self, now: Instant, reason: CloseReason) {
        self.context.out.measure(Measurement::SessionEnding(reason.into()));
        if matches!(reason, CloseReason::Shutdown | CloseReason::Operator | CloseReason::TimeLimit) {
            self.speech_input.commit_segment(&mut self.speech_events);
            self.process_speech_events(now);
        } else {
            self.tts_queue.discard_all();
            self.stop_speech(now);
        }
        self.speech_input.stop();
        self.stop_dialogue(now);
        let options = transcribe_options(&self.setup.profile, &self.settings);
        self.transcriber.abandon_recording(now, self.speech_input.listened_ms(), &options, &mut self.context);
        let until = now + self.setup.profile.hear.speech_end_wait;
        let until = match self.drain_plan {
            Some(plan) if reason == plan.reason => plan.reply_deadline,
            Some(plan) => until.min(plan.reply_deadline),
            None => until,
        };
        self.phase = SessionPhase::Finishing(reason, until);
    }

    /// Brings playback, queue, dialogue and lifecycle up to date after an input.
    pub(super) fn update(&mut self, now: Instant) {
        self.context.player.advance(now, &mut self.context.out);
        self.speak_next_queued(now);
        if self.phase == SessionPhase::Open {
            self.advance_dialogue(now);
        }
        self.finish_if_quiet(now);
        self.report_utterance_gap();
        self.context.out.push_replies(self.transcriber.is_settled());
        // Under back-pressure, missing audio does not count as silence.
        if self.had_backpressure {
            self.last_audio_at = now;
        }
        self.had_backpressure = self.needs_backpressure();
        let awaits_reply = self.awaits_reply();
        let is_listening =
            self.is_floor_taken() || (self.is_speaking() && now < self.last_audio_at + UNATTENDED_TALK_MAX);
        if self.was_awaiting_reply && !awaits_reply {
            self.last_replied_at = Some(now);
        }
        if is_listening || (self.was_awaiting_reply && !awaits_reply) {
            self.idle_since = now;
        }
        self.was_awaiting_reply = awaits_reply;
        let SessionPhase::Finishing(reason, until) = self.phase else { return };
        if self.awaits_reply() && now < until {
            return;
        }
        self.end_session(now);
        self.context.out.push_replies(true);
        self.context.out.push_client(ClientCommand::SessionClosed {
            reason,
            total_ms: millis(now - self.opened_at),
            audio_ms: self.speech_input.listened_ms(),
            segments: self.transcriber.segment_count(),
            session_id: self.session_id.clone(),
        });
        self.context.out.push(Action::CloseClient(reason));
    }

    fn advance_dialogue(&mut self, now: Instant) {
        self.update_barge_in_watch();
        let view = self.session_view();
        let Some(dialogue) = &mut self.dialogue else { return };
        dialogue.advance(now, &view, &mut self.context);
        if let Some(failure) = dialogue.take_failure() {
            self.context.out.push_error(Error::new(ErrorKind::ConversationLost, failure.detail));
            self.begin_shutdown(now, CloseReason::Upstream);
        }
    }

    fn stop_dialogue(&mut self, now: Instant) {
        let view = self.session_view();
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.stop(now, &view, &mut self.context);
        }
    }

    /// Ends every utterance and playback, and leaves every lane.
    fn end_session(&mut self, now: Instant) {
        self.phase = SessionPhase::Ended;
        self.tts_queue.discard_all();
        self.speech_input.stop();
        self.stop_speech(now);
        self.stop_dialogue(now);
        let options = transcribe_options(&self.setup.profile, &self.settings);
        self.transcriber.stop(now, self.speech_input.listened_ms(), &options, &mut self.context);
    }
}
