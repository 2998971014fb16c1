//! Lifecycle of a session: open, closing and ended. The end reports the end of every utterance and playback, and closes every
//! lane.

use std::time::{Duration, Instant};

use super::{
    drain_plan::DrainPlan,
    measurement::{EndReason, Measurement},
    millis,
    outbox::{Action, lockstep::AwaitedReply},
    owners::Owners,
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

/// Phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionPhase {
    /// The session accepts input.
    Open,
    /// The session closes once all replies are sent, or [`Timer::Finish`] expires.
    Finishing(CloseReason),
    /// The client side is closed; lanes may still be closing.
    Ended,
}

/// Phase of a session, and how it ends.
#[derive(Debug)]
pub(super) struct Lifecycle {
    opened_at: Instant,
    pub(super) phase: SessionPhase,
    /// Plan of a graceful end, while the session waits for a moment that interrupts no one.
    pub(super) plan: Option<DrainPlan<CloseReason>>,
    /// The client has ended its input and waits for its replies, as long as they make progress.
    waits_for_progress: bool,
}

impl Lifecycle {
    /// A session that opens now.
    pub(super) const fn new(now: Instant) -> Self {
        Self { opened_at: now, phase: SessionPhase::Open, plan: None, waits_for_progress: false }
    }

    /// True while the session accepts input.
    pub(super) fn is_open(&self) -> bool {
        self.phase == SessionPhase::Open
    }

    /// True once the client side is closed.
    pub(super) fn has_ended(&self) -> bool {
        self.phase == SessionPhase::Ended
    }

    /// Plans the end after the current speech and replies, `within` a bound. When called twice, the earlier deadline wins.
    pub(super) fn drain(
        &mut self,
        now: Instant,
        within: Duration,
        reason: CloseReason,
        Owners { tools, .. }: &mut Owners,
    ) {
        let plan = DrainPlan::new(now, within, reason);
        tools.lanes.set_drain_deadline(plan.drain_deadline);
        match self.phase {
            SessionPhase::Open => {
                if self.plan.is_none() {
                    let left_ms = millis(plan.reply_deadline.saturating_duration_since(now));
                    tools.floor.out.push_client(ClientEvent::GoingAway { left_ms });
                }
                let earlier = self.plan.filter(|planned| planned.reply_deadline <= plan.reply_deadline);
                self.plan = earlier.or(Some(plan));
            }
            SessionPhase::Finishing(_) => {
                self.plan.get_or_insert(plan);
                tools.timers.set_earlier(Timer::Finish, plan.reply_deadline);
            }
            SessionPhase::Ended => {}
        }
    }

    /// Shortens a drain when the client closes the session meanwhile: to the wait of a normal close.
    pub(super) fn handle_late_request(
        &self,
        now: Instant,
        request: &ClientRequest<'_>,
        Owners { setup, tools, .. }: &mut Owners,
    ) {
        if let ClientRequest::ResumeAudio = request {
            tools.floor.release(now);
        }
        if let (SessionPhase::Finishing(_), Some(_), ClientRequest::Close(_)) =
            (self.phase, self.plan, request)
        {
            tools.timers.set_earlier(Timer::Finish, now + setup.profile.hear.speech_end_wait);
        }
    }

    /// Closes a draining session once that interrupts no one, and moves [`Timer::Drain`] to the next such instant.
    pub(super) fn close_if_quiet(&mut self, now: Instant, owners: &mut Owners) {
        let (Some(plan), SessionPhase::Open) = (self.plan, self.phase) else { return };
        let quiet_at = owners.quiet_at(now);
        let is_quiet = quiet_at.is_some_and(|at| at <= now);
        if is_quiet || now >= plan.speech_deadline {
            if !is_quiet {
                report_cut_off(plan, owners);
            }
            return self.close(now, plan.reason, owners);
        }
        let next = quiet_at.map_or(plan.speech_deadline, |at| at.min(plan.speech_deadline));
        owners.tools.timers.set(Timer::Drain, next);
    }

    /// Ends the session after the client's end of input, once all replies are sent.
    pub(super) fn finish_after_replies(&mut self, now: Instant, owners: &mut Owners) {
        owners.tools.floor.out.measure(Measurement::SessionEnding(EndReason::ClientClose));
        owners.end_utterance(now, EndCause::Timeout);
        owners.intake.speech_input.stop();
        owners.tts_queue.enqueue_all();
        owners.stop_dialogue(now);
        owners.tools.floor.out.await_reply(AwaitedReply::Final);
        self.waits_for_progress = true;
        self.finish(CloseReason::ClientClose, now + FINISH_TIMEOUT, owners);
    }

    /// Starts to close the session. Unfinished speech is dropped as on the Macaw server; complete utterances still get
    /// their replies (the server handles commands only after its pending reply, mappings/notes/macaw.md#order).
    pub(super) fn close(&mut self, now: Instant, reason: CloseReason, owners: &mut Owners) {
        owners.tools.floor.out.measure(Measurement::SessionEnding(reason.into()));
        if matches!(reason, CloseReason::Shutdown | CloseReason::Operator | CloseReason::TimeLimit) {
            owners.commit_segment(now);
        } else {
            owners.tts_queue.discard_all();
            owners.stop_speech(now);
        }
        owners.intake.speech_input.stop();
        owners.stop_dialogue(now);
        owners.abandon_recording(now);
        let until = now + owners.setup.profile.hear.speech_end_wait;
        let plan = self.plan.filter(|plan| plan.reason == reason);
        self.finish(reason, plan.map_or(until, |plan| plan.reply_deadline), owners);
    }

    /// Stops taking input. The session closes once all replies are sent, at this instant at the latest.
    fn finish(&mut self, reason: CloseReason, until: Instant, owners: &mut Owners) {
        let until = self.plan.map_or(until, |plan| until.min(plan.reply_deadline));
        self.phase = SessionPhase::Finishing(reason);
        owners.tools.timers.clear(&OPEN_TIMERS);
        owners.tools.timers.set(Timer::Finish, until);
    }

    /// Ends a closing session once all replies are sent, or its time is up.
    pub(super) fn end_if_answered(&mut self, now: Instant, owners: &mut Owners) {
        let SessionPhase::Finishing(reason) = self.phase else { return };
        if owners.awaits_reply() {
            if !owners.tools.timers.take_expired(Timer::Finish, now) || self.extend_finish(now, owners) {
                return;
            }
            self.report_missing_replies(owners);
            if let Some(plan) = self.plan.filter(|plan| plan.reply_deadline <= now) {
                report_cut_off(plan, owners);
            }
            owners.transcriber.report_lost(now, &mut owners.tools);
        }
        owners.flush_drop_report(now);
        self.end(now, owners);
        let Owners { setup, intake, transcriber, tools, .. } = owners;
        tools.floor.out.push_replies(true);
        if setup.lock_step == LockStep::EveryFrame {
            // No frame follows whose answer could have the words that are held.
            tools.floor.out.release_transcripts(0);
        }
        tools.floor.out.push_client(ClientEvent::SessionClosed {
            reason,
            total_ms: millis(now - self.opened_at),
            audio_ms: intake.speech_input.listened_ms(),
            segments: transcriber.segment_count(),
        });
        tools.floor.out.push(Action::CloseClient(reason));
    }

    /// Extends the wait for pending replies while they make progress, unless the session drains. Returns true if there was
    /// progress recently.
    fn extend_finish(&self, now: Instant, Owners { tools, .. }: &mut Owners) -> bool {
        let last_progress = tools.floor.last_sent_at().max(tools.lanes.last_output_at());
        let until = last_progress.map(|at| at + FINISH_TIMEOUT).filter(|until| *until > now);
        let until = until.filter(|_| self.waits_for_progress && self.plan.is_none());
        if let Some(until) = until {
            tools.timers.set(Timer::Finish, until);
        }
        until.is_some()
    }

    /// Reports to a client that waits for its replies that some are missing.
    fn report_missing_replies(&self, owners: &mut Owners) {
        if self.waits_for_progress {
            let words = match self.plan {
                Some(_) => "the server stops before all replies were complete".to_owned(),
                None => format!("the replies made no progress for {} s", FINISH_TIMEOUT.as_secs()),
            };
            owners.tools.floor.out.push_error(Error::new(ErrorKind::Unavailable, words));
        }
    }

    /// Ends every utterance and playback, and leaves every lane.
    pub(super) fn end(&mut self, now: Instant, owners: &mut Owners) {
        self.phase = SessionPhase::Ended;
        owners.tools.timers.clear(&OPEN_TIMERS);
        owners.tools.timers.clear(&[Timer::Finish, Timer::DropReport]);
        owners.stop(now);
    }
}

/// Reports speech or a reply that a stopping voxbridge cuts off.
fn report_cut_off(plan: DrainPlan<CloseReason>, owners: &mut Owners) {
    if plan.reason == CloseReason::Shutdown {
        owners.tools.floor.out.measure(Measurement::SessionEnding(EndReason::CutOff));
    }
}
