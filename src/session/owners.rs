//! Owners of lanes: what transcribes, speaks, answers and converses, the client's audio that they hear, and what they share.
//!
//! They know no end of the session: [`super::lifecycle`] says when they stop. A new owner is added to
//! [`Owners::handle_signal`].

use std::time::{Duration, Instant};

use super::{
    assistant::Assistant,
    dialogue::{Dialogue, UplinkCounts},
    drop_report::DropReport,
    effects::Effects,
    floor::SpeechSource,
    lanes::{LaneSignal, Owner, backoff::ConnectionFailure},
    measurement::AudioTotals,
    microphone::AudioIntake,
    setup::SessionSetup,
    stt::transcriber::Transcriber,
    timers::Timer,
    tools::Tools,
    tts::{queue::TtsQueue, synthesizer::Synthesizer},
};
use crate::{
    audio::SPEECH_RATE_HZ,
    vocabulary::{ClientEvent, EntryId},
};

/// Owners of one session.
#[derive(Debug)]
pub(super) struct Owners {
    pub(super) setup: SessionSetup,
    pub(super) intake: AudioIntake,
    pub(super) drop_report: DropReport,
    pub(super) transcriber: Transcriber,
    pub(super) synthesizer: Synthesizer,
    pub(super) tts_queue: TtsQueue,
    pub(super) dialogue: Option<Box<Dialogue>>,
    pub(super) assistant: Option<Box<Assistant>>,
    pub(super) tools: Tools,
}

impl Owners {
    /// Counts of the conversation's audio; `None` without a conversation.
    pub(super) fn uplink_counts(&self) -> Option<UplinkCounts> {
        self.dialogue.as_ref().map(|dialogue| dialogue.uplink_counts())
    }

    /// Audio totals so far.
    pub(super) fn audio_totals(&self) -> AudioTotals {
        let waiting = Duration::from_millis(self.transcriber.queue.backlog_ms());
        let totals = AudioTotals {
            dropped_backlog: self.dropped_backlog(),
            waiting,
            sent: self.tools.floor.sent_length(),
            ..self.intake.audio_totals
        };
        let Some(uplink) = self.uplink_counts() else { return totals };
        AudioTotals {
            appended: length_of(uplink.appended),
            silenced: length_of(uplink.silenced),
            waiting: waiting.max(length_of(uplink.waiting)),
            ..totals
        }
    }

    /// Audio dropped so far, for any reason.
    fn dropped(&self) -> Duration {
        self.intake.audio_totals.dropped_too_fast + self.dropped_backlog()
    }

    /// Audio dropped so far because too much waited for an upstream.
    fn dropped_backlog(&self) -> Duration {
        let uplink = self.uplink_counts().map_or(Duration::ZERO, |uplink| length_of(uplink.dropped));
        Duration::from_millis(self.transcriber.queue.dropped_ms) + uplink
    }

    /// True if too much audio waits for a transcript, or the client itself waits for a reply.
    pub(super) fn needs_backpressure(&self) -> bool {
        let max_backlog_ms = self.setup.transcript_backpressure_ms();
        (max_backlog_ms > 0 && self.transcriber.queue.backlog_ms() > max_backlog_ms)
            || self.tools.floor.out.awaits_final()
    }

    /// True while an utterance of the user is recorded.
    pub(super) fn is_user_speaking(&self) -> bool {
        self.intake.speech_input.current_recording().is_some()
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

    /// True if a text of the client is being spoken or about to be.
    pub(super) fn is_floor_taken(&self) -> bool {
        self.tools.floor.is_busy_with(SpeechSource::Text)
    }

    /// Earliest instant at which ending interrupts no one; `None` while someone speaks or waits.
    pub(super) fn quiet_at(&self, now: Instant) -> Option<Instant> {
        let dialogue_end = match &self.dialogue {
            Some(dialogue) => dialogue.graceful_end_at(now, &self.tools.floor),
            None => Some(now),
        };
        dialogue_end.filter(|_| !self.is_user_speaking())
    }

    /// True if owners that have stopped have an empty outbox and use no lane.
    pub(super) fn is_over(&self) -> bool {
        !self.synthesizer.is_busy() && self.tools.lanes.are_left() && self.tools.is_drained()
    }

    /// Passes what happened on a lane to its owner.
    pub(super) fn handle_signal(&mut self, now: Instant, signal: LaneSignal<'_>) -> Effects {
        let Self { tools, transcriber, synthesizer, assistant, dialogue, .. } = self;
        match (signal.owner, assistant, dialogue) {
            (Owner::Transcriber, ..) => {
                let effects = transcriber.handle_signal(now, signal, tools);
                self.pass_on_words();
                effects
            }
            (Owner::Synthesizer, ..) => synthesizer.handle_signal(now, signal, tools),
            (Owner::Assistant, Some(assistant), _) => assistant.handle_signal(now, signal, tools),
            (Owner::AnswerSpeech, Some(assistant), _) => assistant.handle_speech_signal(now, signal, tools),
            (Owner::Dialogue, _, Some(dialogue)) => dialogue.handle_signal(now, signal, tools),
            (Owner::Standby, _, Some(dialogue)) => {
                dialogue.handle_standby_signal(now, &signal, &mut tools.lanes)
            }
            (Owner::Relay | Owner::Closing, ..) => Effects::LANE_LEFT,
            _ => Effects::ALL,
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

    /// Lets the conversation continue, which begins no unit once the session closes. Returns the failure of a conversation
    /// that has no upstream any more.
    pub(super) fn advance_dialogue(&mut self, now: Instant, is_open: bool) -> Option<ConnectionFailure> {
        if let Some(assistant) = &mut self.assistant {
            let is_user_speaking = self.intake.speech_input.current_recording().is_some();
            assistant.release_unexpected(now, is_user_speaking, &mut self.tools);
            assistant.advance(now, &mut self.tools);
            self.update_barge_in_watch();
            return None;
        }
        if !is_open || self.dialogue.is_none() {
            return None;
        }
        self.update_barge_in_watch();
        let dialogue = self.dialogue.as_mut()?;
        dialogue.user.in_speech = self.intake.speech_input.voice_activity.is_in_speech();
        dialogue.advance(now, &mut self.tools);
        dialogue.take_failure()
    }

    /// Sends the audio that is due, and ends texts that were played.
    pub(super) fn play(&mut self, now: Instant) {
        let Tools { floor, timers, .. } = &mut self.tools;
        if timers.take_expired(Timer::Playout, now) {
            floor.advance(now);
        }
    }

    /// Dials lanes that had to wait. Arms [`Timer::Playout`] for the floor's next frame or end, and [`Timer::Lanes`] for the lanes.
    pub(super) fn arm_outputs(&mut self, now: Instant) {
        let Tools { floor, lanes, timers, .. } = &mut self.tools;
        lanes.dial_waiting(now);
        timers.set_or_clear(Timer::Playout, floor.next_timeout(now));
        let deadline = lanes.deadline().into_iter().chain(self.transcriber.queue_deadline(lanes)).min();
        timers.set_or_clear(Timer::Lanes, deadline);
    }

    /// Reports audio that was dropped.
    pub(super) fn report_dropped(&mut self, now: Instant) {
        let dropped = self.dropped();
        let report = self.drop_report.report(now, dropped, &mut self.tools.timers);
        self.tools.floor.out.push_if_any(report);
    }

    /// Reports audio that was dropped and not reported yet.
    pub(super) fn flush_drop_report(&mut self, now: Instant) {
        let report = self.drop_report.flush(now, self.dropped());
        self.tools.floor.out.push_if_any(report);
    }

    /// Reports silence, and replies to a client in lock step.
    pub(super) fn report_transcripts(&mut self) {
        if self.intake.last_utterance_end_ms.is_some() {
            self.report_utterance_gap();
        }
        self.tools.floor.out.push_replies(self.transcriber.queue.is_settled());
    }

    /// Reports silence of the length that the client asked for, after the transcripts before it.
    fn report_utterance_gap(&mut self) {
        let gap = self.tools.settings.utterance_gap_ms.map(u64::from);
        if let (Some(gap), Some(last_ms)) = (gap, self.intake.last_utterance_end_ms)
            && self.intake.speech_input.listened_ms() >= last_ms + gap
            && self.transcriber.queue.is_settled()
        {
            self.intake.last_utterance_end_ms = None;
            self.tools.floor.out.push_client(ClientEvent::UtteranceGap { last_ms });
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

    /// Continues when a lane that was left has changed, because its worker may be free.
    pub(super) fn resume_dialling(&mut self, now: Instant) {
        self.transcriber.advance(now, &mut self.tools);
        self.pass_on_words();
        self.synthesizer.advance(now, &mut self.tools);
        if let Some(assistant) = &mut self.assistant {
            assistant.advance(now, &mut self.tools);
        }
    }

    /// Runs the expired timers of the lanes.
    pub(super) fn handle_lanes_timeout(&mut self, now: Instant) {
        for id in self.tools.lanes.expired(now) {
            let signal = self.tools.lanes.handle_timeout(now, id);
            let effects = signal.map_or(Effects::NONE, |signal| self.handle_signal(now, signal));
            if effects.has(Effects::WORKER_WANTED) {
                self.release_idle_workers(now);
            }
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.end_late_reply(now, &mut self.tools);
        }
    }

    /// Stops all speech: the current text, the model's turn or answer, and answers that the client did not ask for.
    pub(super) fn stop_speech(&mut self, now: Instant) {
        self.synthesizer.cancel(now, &mut self.tools);
        if let Some(assistant) = &mut self.assistant {
            assistant.interrupt(now, &mut self.tools);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.interrupt(now, &mut self.tools);
        }
    }

    /// Ends the conversation in full duplex.
    pub(super) fn stop_dialogue(&mut self, now: Instant) {
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.stop(now, &mut self.tools);
        }
    }

    /// Ends every utterance and playback, and leaves every lane.
    pub(super) fn stop(&mut self, now: Instant) {
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

/// Duration of samples at 16 kHz.
const fn length_of(samples: u64) -> Duration {
    Duration::from_nanos(samples * (1_000_000_000 / SPEECH_RATE_HZ as u64))
}
