//! Consequences of an input: the way of an upstream's messages to the lane's owner, the steps that an input can require, and
//! the timers of the session.
//!
//! [`super`] lists which input calls which steps. A new owner of lanes is added to [`Session::route`].

use std::time::{Duration, Instant};

use super::{
    Session, SessionPhase,
    drain_plan::TIME_LIMIT_GRACE,
    effects::Effects,
    lanes::{LaneSignal, Owner},
    status,
    timers::Timer,
    tools::Tools,
};

use crate::{
    error::{Error, ErrorKind},
    spelling::client::LockStep,
    vocabulary::{
        CloseReason, DisconnectReason, EndCause, EntryId, FlowControl, Lane, LaneEvent, MessageMeta, SpeechId,
    },
};

/// Longest playback to a client that sends nothing: longer than a client that reads at half the pace of playback takes for an
/// answer of ten minutes. Without this bound, a model that never stops would keep an abandoned session alive.
const UNATTENDED_TALK_MAX: Duration = Duration::from_secs(3600);

impl Session {
    /// Runs the timers that have expired: the lanes' own, those of this function, and those of the steps in
    /// [`Session::follow`].
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.tools.timers.take_expired(Timer::Interim, now)
            && let Some(audio) = self.intake.speech_input.current_recording()
        {
            let end_ms = self.intake.speech_input.listened_ms();
            self.transcriber.request_interim(now, (audio, end_ms), &mut self.tools);
        }
        if self.tools.timers.take_expired(Timer::AnswerRequest, now) {
            self.transcriber.end_request_wait(now, &mut self.tools);
            self.pass_on_words();
        }
        if self.tools.timers.take_expired(Timer::UserSilence, now) {
            self.answer_user_silence(now);
        }
        self.tools.timers.clear(&[Timer::Lanes]);
        self.handle_lanes_timeout(now);
        // Frames of audio only move these two timers later, and so leave them as they are.
        self.arm_stall();
        if self.tools.timers.take_expired(Timer::Stall, now) {
            self.intake.speech_input.end_utterance(EndCause::Timeout, &mut self.intake.speech_events);
            self.process_speech_events(now);
        }
        self.arm_idle();
        if self.tools.timers.take_expired(Timer::Idle, now) {
            self.begin_shutdown(now, CloseReason::Idle);
        }
        if self.tools.timers.take_expired(Timer::TimeLimit, now) {
            self.drain(now, TIME_LIMIT_GRACE, CloseReason::TimeLimit);
        }
        self.follow(now, Effects::ALL);
    }

    /// Follows an input: runs the steps that its effects ask for. [`super`] lists them.
    pub(super) fn follow(&mut self, now: Instant, effects: Effects) {
        if effects.has(Effects::WORKER_WANTED) {
            self.release_idle_workers(now);
        }
        if effects.has(Effects::LANE_LEFT) {
            self.resume_dialling(now);
        }
        let effects = if effects.has(Effects::MODEL) { effects } else { self.follow_small(now, effects) };
        if effects == Effects::NONE {
            return;
        }
        let is_complete = effects.has(Effects::ALL);
        self.play(now);
        self.speak_next_queued(now);
        self.advance_dialogue(now);
        self.report_dropped(now);
        self.finish_if_quiet(now);
        if is_complete {
            self.report_transcripts();
            self.track_backpressure(now);
            self.track_user_silence(now);
        }
        self.track_replies(now);
        self.arm_outputs(now);
        self.finish_if_answered(now);
        self.state = status::state(self);
    }

    /// Follows an input that decided nothing: moves the timers that it can move. Returns what else is due by its instant.
    fn follow_small(&mut self, now: Instant, effects: Effects) -> Effects {
        let Tools { floor, timers, .. } = &mut self.tools;
        // The session is awake, so it also sends audio that may leave.
        if effects.has(Effects::FRAME) && floor.may_send(now) {
            timers.set(Timer::Playout, now);
        }
        if effects.has(Effects::DELTA) {
            timers.set_or_clear(Timer::Playout, floor.next_timeout(now));
        }
        let needs_step = effects != Effects::NONE
            && (self.drain_plan.is_some()
                || self
                    .dialogue
                    .as_mut()
                    .is_some_and(|dialogue| !dialogue.update_silence_timers(now, floor, timers)));
        if needs_step || timers.next().is_some_and(|at| at <= now) {
            return if effects.has(Effects::DELTA) { Effects::MODEL } else { Effects::ALL };
        }
        if effects.has(Effects::FRAME)
            && (self.setup.lock_step == LockStep::EveryFrame || self.intake.last_utterance_end_ms.is_some())
        {
            self.report_transcripts();
        }
        // Without voice activity, no event reports the start and end of speech.
        if effects.has(Effects::FRAME) && self.intake.speech_input.settings.is_manual {
            self.state = status::state(self);
        }
        Effects::NONE
    }

    /// Sends the audio that is due, and ends texts that were played.
    fn play(&mut self, now: Instant) {
        if self.tools.timers.take_expired(Timer::Playout, now) {
            self.tools.floor.advance(now, &mut self.tools.out);
        }
    }

    /// Dials lanes that had to wait. Arms [`Timer::Playout`] for the floor's next frame or end, and [`Timer::Lanes`] for the lanes.
    pub(super) fn arm_outputs(&mut self, now: Instant) {
        self.tools.lanes.dial_waiting(now);
        self.tools.timers.set_or_clear(Timer::Playout, self.tools.floor.next_timeout(now));
        let deadline = self.lane_deadline();
        self.tools.timers.set_or_clear(Timer::Lanes, deadline);
    }

    /// Reports audio that was dropped.
    pub(super) fn report_dropped(&mut self, now: Instant) {
        let dropped = status::dropped(self);
        if self.phase != SessionPhase::Ended {
            self.drop_report.report(now, dropped, &mut self.tools.timers, &mut self.tools.out);
        }
    }

    /// Lets the conversation continue.
    fn advance_dialogue(&mut self, now: Instant) {
        if let Some(assistant) = &mut self.assistant {
            let is_user_speaking = self.intake.speech_input.current_recording().is_some();
            assistant.release_unexpected(now, is_user_speaking, &mut self.tools);
            assistant.advance(now, &mut self.tools);
            return self.update_barge_in_watch();
        }
        if self.phase != SessionPhase::Open || self.dialogue.is_none() {
            return;
        }
        self.update_barge_in_watch();
        let Some(dialogue) = &mut self.dialogue else { return };
        dialogue.user.in_speech = self.intake.speech_input.voice_activity.is_in_speech();
        dialogue.advance(now, &mut self.tools);
        if let Some(failure) = dialogue.take_failure() {
            self.tools.out.push_error(Error::new(ErrorKind::ConversationLost, failure.detail));
            self.begin_shutdown(now, CloseReason::Upstream);
        }
    }

    /// Reports silence, and replies to a client in lock step.
    fn report_transcripts(&mut self) {
        if self.intake.last_utterance_end_ms.is_some() {
            self.report_utterance_gap();
        }
        self.tools.out.push_replies(self.transcriber.queue.is_settled());
    }

    /// Notes whether reading from the client is paused. Meanwhile, missing audio does not count as silence.
    fn track_backpressure(&mut self, now: Instant) {
        if self.activity.had_backpressure {
            self.activity.silence_since = now;
        }
        self.activity.had_backpressure = self.needs_backpressure();
        self.arm_stall();
    }

    /// Arms [`Timer::Stall`] while an utterance is being received.
    fn arm_stall(&mut self) {
        let is_receiving = self.phase == SessionPhase::Open
            && !self.activity.had_backpressure
            && self.intake.speech_input.current_recording().is_some();
        let stall = Duration::from_millis(self.setup.profile.listen.stall_ms.into());
        let at = is_receiving.then(|| self.activity.silence_since + stall);
        self.tools.timers.set_or_clear(Timer::Stall, at);
    }

    /// Notes whether the client waits for a reply. A client that has just got one, or listens, is not idle.
    fn track_replies(&mut self, now: Instant) {
        if self.activity.had_backpressure {
            self.activity.silence_since = now;
        }
        let awaits_reply = self.awaits_reply();
        let is_listening = self.is_floor_taken()
            || (self.is_speaking() && now < self.activity.silence_since + UNATTENDED_TALK_MAX);
        let was_answered = self.activity.was_awaiting_reply && !awaits_reply;
        if was_answered {
            self.activity.last_replied_at = Some(now);
        }
        if is_listening || was_answered {
            self.activity.idle_since = now;
        }
        self.activity.was_awaiting_reply = awaits_reply;
        self.arm_idle();
    }

    /// True if the client waits for a transcript or for speech.
    pub(super) fn awaits_reply(&self) -> bool {
        self.is_speaking() || self.tts_queue.has_waiting() || !self.transcriber.queue.is_settled()
    }

    /// True if audio is playing or being synthesized.
    pub(super) fn is_speaking(&self) -> bool {
        self.synthesizer.is_busy()
            || self.tools.floor.is_busy()
            || self.assistant.as_ref().is_some_and(|assistant| assistant.is_busy())
    }

    /// Arms [`Timer::Idle`] for a client that sends nothing. A client that listens or waits for a transcript may stay
    /// silent longer: as long as playback lasts, or as an upstream's queue may take.
    pub(super) fn arm_idle(&mut self) {
        let wanted = self.tools.settings.idle_timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let shortest = self.activity.idle_timeout.into_iter().chain(wanted).min();
        let idle = shortest.filter(|_| self.phase == SessionPhase::Open && !self.is_floor_taken());
        let at = idle.map(|idle| {
            let is_playing = self.tools.floor.is_busy();
            let at = if is_playing {
                self.activity.silence_since + UNATTENDED_TALK_MAX
            } else {
                self.activity.idle_since + idle
            };
            let queue_max = Duration::from_millis(self.setup.profile.lanes.queue_max_ms);
            if self.transcriber.queue.is_settled() {
                at
            } else {
                at.max(self.activity.silence_since + queue_max)
            }
        });
        self.tools.timers.set_or_clear(Timer::Idle, at);
    }

    /// Handles the opened transport of a lane.
    pub(crate) fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        self.tools.lanes.handle_opened(now, lane);
        self.arm_outputs(now);
    }

    /// Another upstream may serve the requests of a lane whose own refuses all of them.
    pub(crate) fn handle_replaceable(&mut self, lane: Lane) {
        self.tools.lanes.mark_replaceable(lane);
    }

    /// Continues a lane that waits in its upstream's queue at another upstream that has room.
    pub(crate) fn handle_place(&mut self, now: Instant, lane: Lane) {
        if self.tools.lanes.leave_queue_for_room(now, lane) {
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
        let signal = self.tools.lanes.handle_event(now, lane, event, meta);
        let effects = signal.map_or(Effects::LANE_LEFT, |(owner, signal)| self.route(now, owner, signal));
        self.follow(now, effects);
    }

    /// Handles the closed transport of a lane.
    pub(crate) fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        let signal = self.tools.lanes.handle_closed(now, lane, reason);
        let effects = signal.map_or(Effects::LANE_LEFT, |(owner, signal)| self.route(now, owner, signal));
        self.follow(now, effects);
    }

    /// Handles a change of the flow control.
    pub(crate) fn handle_flow(&mut self, now: Instant, flow: FlowControl) {
        let Tools { lanes, floor, out, .. } = &mut self.tools;
        lanes.set_held(now, flow.are_lanes_held);
        floor.set_client_behind(now, flow.is_client_behind, out);
        self.follow(now, Effects::LANE_LEFT);
    }

    /// Notes that this part of a speech's messages waits to be written to the client.
    pub(crate) fn handle_unwritten(&mut self, id: SpeechId, part: (u64, u64)) {
        self.tools.floor.note_unwritten(id, part);
    }

    /// Passes what happened on a lane to its owner.
    fn route(&mut self, now: Instant, owner: Owner, signal: LaneSignal<'_>) -> Effects {
        let Self { tools, transcriber, synthesizer, assistant, dialogue, .. } = self;
        match owner {
            Owner::Transcriber => {
                let effects = transcriber.handle_signal(now, signal, tools);
                self.pass_on_words();
                effects
            }
            Owner::Synthesizer => synthesizer.handle_signal(now, signal, tools),
            Owner::Assistant => {
                assistant.as_mut().map_or(Effects::ALL, |it| it.handle_signal(now, signal, tools))
            }
            Owner::AnswerSpeech => {
                assistant.as_mut().map_or(Effects::ALL, |it| it.handle_speech_signal(now, signal, tools))
            }
            Owner::Dialogue => {
                dialogue.as_mut().map_or(Effects::ALL, |it| it.handle_signal(now, signal, tools))
            }
            Owner::Standby => dialogue
                .as_mut()
                .map_or(Effects::ALL, |it| it.handle_standby_signal(now, &signal, &mut tools.lanes)),
            Owner::Relay | Owner::Closing => Effects::LANE_LEFT,
        }
    }

    /// Tells the conversation what the user said.
    pub(super) fn pass_on_words(&mut self) {
        for words in self.transcriber.queue.words.drain(..) {
            if let Some(dialogue) = &mut self.dialogue {
                dialogue.remember_user_words(words.segment_id, &words.text);
            }
            if let Some(assistant) = &mut self.assistant {
                assistant.entries.set_transcript(EntryId(words.segment_id), &words.text);
            }
        }
    }

    /// Releases idle workers of this session, because a text to speak may be waiting for one of them.
    pub(super) fn release_idle_workers(&mut self, now: Instant) {
        self.transcriber.release_idle_worker(now, &mut self.tools.lanes);
        if let Some(assistant) = &mut self.assistant {
            assistant.release_prepared(now, &mut self.tools.lanes);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.release_worker_for_tts(now, &mut self.tools);
        }
    }

    /// Lets the owners continue when a lane that was left has changed, because its worker may be free.
    pub(super) fn resume_dialling(&mut self, now: Instant) {
        if self.phase != SessionPhase::Ended {
            self.transcriber.advance(now, &mut self.tools);
            self.pass_on_words();
            self.synthesizer.advance(now, &mut self.tools);
            if let Some(assistant) = &mut self.assistant {
                assistant.advance(now, &mut self.tools);
            }
        }
    }

    /// Runs the expired timers of the lanes.
    pub(super) fn handle_lanes_timeout(&mut self, now: Instant) {
        for id in self.tools.lanes.expired(now) {
            if let Some((owner, signal)) = self.tools.lanes.handle_timeout(now, id) {
                let effects = self.route(now, owner, signal);
                if effects.has(Effects::WORKER_WANTED) {
                    self.release_idle_workers(now);
                }
            }
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.end_late_reply(now, &mut self.tools);
        }
        self.resume_dialling(now);
    }

    /// Earliest deadline of the lanes.
    pub(super) fn lane_deadline(&self) -> Option<Instant> {
        let lanes = &self.tools.lanes;
        lanes.deadline().into_iter().chain(self.transcriber.queue_deadline(lanes)).min()
    }
}
