//! Synthesizer: has an upstream speak texts, one at a time. A new text cancels the current one.
//!
//! An upstream cannot stop an answer (MiniCPM-o field notes §2). After a cancel the client hears silence at once; the
//! lane is drained before its worker is returned.

use std::{sync::Arc, time::Instant};

use crate::session::{
    effects::Effects,
    floor::{Floor, SpeechSource},
    lanes::{LaneId, LaneSignal, Lanes, Owner, backoff::ConnectionFailure, connection::ConnectionChange},
    outbox::{Actions, Observation},
    tools::Tools,
};
use crate::{
    error::{Error, ErrorKind},
    spelling::Profile,
    vocabulary::{LaneEvent, LaneRequest, Mode, SpeechId, VoiceSample},
};

/// A text prepared for speaking.
#[derive(Debug)]
pub(crate) struct SpeechJob {
    pub(crate) request_id: String,
    /// The client's own text.
    pub(crate) text: String,
    /// Normalised text for the model, in parts; none if there is nothing to say.
    pub(crate) parts: Vec<String>,
    pub(crate) instruction: Option<String>,
    pub(crate) voice: Option<VoiceSample>,
}

/// The text being synthesized in a session, if any.
#[derive(Debug)]
pub(crate) struct Synthesizer {
    profile: Arc<Profile>,
    current: Option<ActiveJob>,
}

#[derive(Debug)]
struct ActiveJob {
    job: SpeechJob,
    /// Names the text on the floor.
    speech: SpeechId,
    lane: Option<LaneId>,
    /// The upstream has sent audio for the current part.
    part_has_audio: bool,
    /// Parts answered. The next part has this number.
    parts_done: usize,
    /// Number of those without audio.
    silent_parts: usize,
    attempts: u32,
    /// When the current part was first requested.
    part_requested_at: Option<Instant>,
}

impl Synthesizer {
    pub(crate) const fn new(profile: Arc<Profile>) -> Self {
        Self { profile, current: None }
    }

    /// True if a text is being synthesized or about to be.
    pub(crate) const fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Cancels the current text and speaks this one.
    pub(crate) fn start_job(&mut self, now: Instant, job: SpeechJob, tools: &mut Tools) {
        tools.floor.cancel(now, SpeechSource::Text, &mut tools.out);
        let init = LaneRequest::Init(job.voice.clone());
        let can_serve = |id: LaneId, lanes: &Lanes| lanes.get(id).is_some_and(|lane| lane.can_serve(&init));
        let mut reusable = self.current.take().and_then(|active| active.lane);
        if let Some(id) = reusable.take_if(|id| !can_serve(*id, &tools.lanes)) {
            tools.lanes.retire(now, id);
        }
        let speech = tools.floor.begin(now, SpeechSource::Text, job.request_id.clone(), job.text.clone());
        if job.parts.is_empty() {
            if let Some(id) = reusable {
                tools.lanes.retire(now, id);
            }
            return tools.floor.finish_unspoken(now, speech, &mut tools.out);
        }
        self.current = Some(ActiveJob {
            job,
            speech,
            lane: reusable,
            part_has_audio: false,
            parts_done: 0,
            silent_parts: 0,
            attempts: 0,
            part_requested_at: None,
        });
        self.advance(now, tools);
    }

    /// Stops speaking. Sends nothing if no text is being spoken (golden c10i).
    pub(crate) fn cancel(&mut self, now: Instant, tools: &mut Tools) {
        tools.floor.cancel(now, SpeechSource::Text, &mut tools.out);
        self.stop(now, &mut tools.lanes);
    }

    /// Stops synthesizing; audio received so far is still played.
    fn stop(&mut self, now: Instant, lanes: &mut Lanes) {
        if let Some(id) = self.current.take().and_then(|active| active.lane) {
            lanes.retire(now, id);
        }
    }

    /// Handles what happened on the lane.
    pub(crate) fn handle_signal(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        let was_audible = tools.floor.is_audible();
        let effects = match signal.change {
            ConnectionChange::None if was_audible => match signal.message {
                Some((LaneEvent::Text(_) | LaneEvent::Audio(_), _)) => Effects::DELTA,
                _ => Effects::ALL,
            },
            ConnectionChange::Queued => Effects::WORKER_WANTED,
            _ => Effects::ALL,
        };
        self.handle_change(now, signal.id, signal.change, tools);
        match signal.message.filter(|_| signal.was_awaiting_reply) {
            Some((LaneEvent::Audio(samples), _))
                if !self.push_audio(now, samples, &mut tools.floor, &mut tools.out) =>
            {
                let Tools { floor, lanes, out, .. } = tools;
                self.finish_job(now, floor, lanes, out);
                return Effects::ALL;
            }
            Some((LaneEvent::Done { audio, .. }, _)) => self.finish_part(now, audio, tools),
            _ => {}
        }
        effects
    }

    /// Plays audio of the current text. Returns false if some of it was dropped, so that the text ends there.
    fn push_audio(&mut self, now: Instant, samples: &[f32], floor: &mut Floor, out: &mut Actions) -> bool {
        let Some(active) = self.current.as_mut().filter(|_| !samples.is_empty()) else { return true };
        active.part_has_audio = true;
        floor.push_audio(now, active.speech, samples, out) == 0
    }

    /// Completes a part of the text. `audio` is all of its audio if the upstream did not stream.
    fn finish_part(&mut self, now: Instant, audio: &[f32], tools: &mut Tools) {
        let Some(active) = &mut self.current else { return };
        if let Some(id) = active.lane {
            tools.lanes.complete_reply(id);
        }
        let had_audio = std::mem::take(&mut active.part_has_audio);
        active.part_requested_at = None;
        active.parts_done += 1;
        if !had_audio {
            if !self.push_audio(now, audio, &mut tools.floor, &mut tools.out) {
                return self.finish_job(now, &mut tools.floor, &mut tools.lanes, &mut tools.out);
            }
            if let Some(active) = &mut self.current {
                active.silent_parts += usize::from(!std::mem::take(&mut active.part_has_audio));
            }
        }
        if self.current.as_ref().is_some_and(|active| active.parts_done == active.job.parts.len()) {
            self.finish_job(now, &mut tools.floor, &mut tools.lanes, &mut tools.out);
        }
        self.advance(now, tools);
    }

    /// Completes the whole text.
    fn finish_job(&mut self, now: Instant, floor: &mut Floor, lanes: &mut Lanes, out: &mut Actions) {
        let Some(active) = &self.current else { return };
        let (turn, silent, parts) = (active.speech, active.silent_parts, active.parts_done);
        if silent > 0 {
            // The back-end hides its speech errors (field notes §2): it answers with text and no audio.
            let words = format!("the upstream answered {silent} of {parts} parts of the text without audio");
            self.report_error(ErrorKind::SpeakFailed, words, out);
        }
        floor.finish(now, turn, out);
        self.stop(now, lanes);
    }

    fn handle_change(&mut self, now: Instant, id: LaneId, change: ConnectionChange, tools: &mut Tools) {
        match change {
            ConnectionChange::None => {}
            ConnectionChange::Queued => tools.lanes.report_queue(now, id, &mut tools.out),
            ConnectionChange::Ready => self.advance(now, tools),
            ConnectionChange::QueueStuck(words) => {
                self.report_error(ErrorKind::QueueStuck, words, &mut tools.out);
            }
            ConnectionChange::EmptyAnswer => {
                // The lane ended with its answer; the remaining parts need another.
                if let Some(id) = self.current.as_mut().and_then(|active| active.lane.take()) {
                    tools.lanes.retire(now, id);
                }
                self.finish_part(now, &[], tools);
            }
            ConnectionChange::Failed(failure) => self.handle_failure(now, failure, tools),
        }
    }

    fn handle_failure(&mut self, now: Instant, failure: ConnectionFailure, tools: &mut Tools) {
        let Some(active) = &mut self.current else { return };
        if let Some(id) = active.lane.take() {
            tools.lanes.retire(now, id);
        }
        active.attempts += 1;
        let may_ask_again = tools.lanes.may_ask_again(now, Owner::Synthesizer, &failure)
            || failure.may_repeat() && active.attempts < self.profile.speak.attempts;
        if may_ask_again && !tools.floor.is_announced(active.speech) {
            tools.out.observe(Observation::AskedAgain(failure.detail));
            // No audio was audible yet, so the text is repeated from its start.
            (active.part_has_audio, active.parts_done, active.silent_parts) = (false, 0, 0);
            tools.floor.restart(active.speech);
            return self.advance(now, tools);
        }
        let (was_in_use, turn) = (failure.was_in_use(), active.speech);
        let waited = active.part_requested_at.map(|at| now - at);
        let (kind, detail) = failure.after_attempts(ErrorKind::SpeakFailed, active.attempts, waited);
        self.report_error(kind, detail, &mut tools.out);
        // The error goes first. A text that failed in its upstream has a normal end, if it was heard (golden c10k, c10l).
        if was_in_use {
            tools.floor.finish(now, turn, &mut tools.out);
        } else {
            tools.floor.fail(now, turn, &mut tools.out);
        }
        self.current = None;
    }

    /// Reports an error that concerns the current text.
    fn report_error(&self, kind: ErrorKind, words: String, out: &mut Actions) {
        let error = Error::new(kind, words);
        out.push_error(match &self.current {
            Some(active) => error.for_request(active.job.request_id.clone()),
            None => error,
        });
    }

    /// Dials, or sends the next part to a ready lane.
    pub(crate) fn advance(&mut self, now: Instant, tools: &mut Tools) {
        let Some(active) = &mut self.current else { return };
        match active.lane {
            None => {
                let init = Some(LaneRequest::Init(active.job.voice.clone()));
                let lane = tools.lanes.open(now, Owner::Synthesizer, Mode::Chat, init);
                active.lane = Some(lane);
            }
            // Audio made far ahead of playout would be wasted by a cancel, or by a client that does not read.
            Some(id)
                if tools.lanes.is_ready(id) && !tools.lanes.are_held() && !tools.floor.is_far_ahead(now) =>
            {
                let Some(part) = active.job.parts.get(active.parts_done) else { return };
                let request = LaneRequest::Speak {
                    before_voice: self.profile.speak.before_voice.clone(),
                    after_voice: self.profile.speak.system_prompt_end(active.job.instruction.as_deref()),
                    request: self.profile.speak.read_aloud_request(part),
                    text: part.clone(),
                    voice: active.job.voice.clone(),
                };
                tools.lanes.request(now, id, request);
                active.part_requested_at.get_or_insert(now);
            }
            _ => {}
        }
    }
}
