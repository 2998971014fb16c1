//! Synthesizer: has an upstream speak texts, one at a time. A new text cancels the current one.
//!
//! An upstream cannot stop an answer (mappings/notes/minicpm-o.md#stopping-a-chat). After a cancel the client hears
//! silence at once; the lane is drained before its worker is returned.

use std::{sync::Arc, time::Instant};

use super::speaker::{SpeakStyle, Speaker};
use crate::session::{
    effects::Effects,
    floor::SpeechSource,
    lanes::{
        LaneSignal, Owner,
        ask::{AskAgain, Reply},
        backoff::ConnectionFailure,
    },
    tools::Tools,
};
use crate::{
    error::{Error, ErrorKind},
    spelling::Profile,
    vocabulary::{LaneRequest, SpeechId, VoiceSample},
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
    /// Name of the voice, for an upstream with voices of its own.
    pub(crate) voice_name: Option<String>,
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
    speaker: Speaker,
    /// Parts answered. The next part has this number.
    parts_done: usize,
    /// Number of those without audio.
    silent_parts: usize,
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
        tools.floor.cancel(now, SpeechSource::Text);
        let init = LaneRequest::Init(job.voice.clone());
        let mut reusable = self.current.take().and_then(|active| active.speaker.ask.lane());
        if let Some(id) = reusable.take_if(|id| !tools.lanes.can_serve(*id, &init)) {
            tools.lanes.retire(now, id);
        }
        let speech = tools.floor.begin(now, SpeechSource::Text, job.request_id.clone(), job.text.clone());
        if job.parts.is_empty() {
            if let Some(id) = reusable {
                tools.lanes.retire(now, id);
            }
            return tools.floor.finish_unspoken(now, speech);
        }
        let mut speaker = Speaker::new(Owner::Synthesizer);
        speaker.ask.use_lane(reusable);
        self.current = Some(ActiveJob { job, speech, speaker, parts_done: 0, silent_parts: 0 });
        self.advance(now, tools);
    }

    /// Stops speaking. Sends nothing if no text is being spoken (tests/golden/macaw/c10i_tts_cancel_idle.json).
    pub(crate) fn cancel(&mut self, now: Instant, tools: &mut Tools) {
        tools.floor.cancel(now, SpeechSource::Text);
        self.stop(now, tools);
    }

    /// Stops synthesizing; audio received so far is still played.
    fn stop(&mut self, now: Instant, tools: &mut Tools) {
        if let Some(mut active) = self.current.take() {
            active.speaker.stop(now, &mut tools.lanes);
        }
    }

    /// Handles what happened on the lane.
    pub(crate) fn handle_signal(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        let effects = signal.effects(tools.floor.is_audible());
        let id = signal.id;
        match signal.into_reply() {
            Reply::None | Reply::Text(_) | Reply::Call { .. } => {}
            Reply::Queued => tools.floor.out.push_if_any(tools.lanes.queue_notice(now, id)),
            Reply::QueueStuck(words) => {
                tools.floor.out.push_error(self.named(Error::new(ErrorKind::QueueStuck, words)));
            }
            Reply::Ready => self.advance(now, tools),
            Reply::Audio(samples) => {
                if !self.push_audio(now, samples, tools) {
                    self.finish_job(now, tools);
                    return Effects::ALL;
                }
            }
            Reply::Done { audio, .. } => self.finish_part(now, audio, tools),
            Reply::Empty => self.skip_part(now, tools),
            Reply::Failed(failure) => self.handle_failure(now, failure, tools),
        }
        effects
    }

    /// Plays audio of the current text. Returns false if some of it was dropped, so that the text ends there.
    fn push_audio(&mut self, now: Instant, samples: &[f32], tools: &mut Tools) -> bool {
        let Some(active) = self.current.as_mut().filter(|_| !samples.is_empty()) else { return true };
        active.speaker.part_has_audio = true;
        tools.floor.push_audio(now, active.speech, samples) == 0
    }

    /// Completes a part whose answer was empty. The lane ended with it; the remaining parts need another.
    fn skip_part(&mut self, now: Instant, tools: &mut Tools) {
        if let Some(active) = &mut self.current {
            tools.lanes.leave(now, &mut active.speaker.ask);
        }
        self.finish_part(now, &[], tools);
    }

    /// Completes a part of the text. `audio` is all of its audio if the upstream did not stream.
    fn finish_part(&mut self, now: Instant, audio: &[f32], tools: &mut Tools) {
        let Some(active) = &mut self.current else { return };
        active.parts_done += 1;
        if !active.speaker.complete_part(&mut tools.lanes) {
            if !self.push_audio(now, audio, tools) {
                return self.finish_job(now, tools);
            }
            if let Some(active) = &mut self.current {
                active.silent_parts += usize::from(!std::mem::take(&mut active.speaker.part_has_audio));
            }
        }
        if self.current.as_ref().is_some_and(|active| active.parts_done == active.job.parts.len()) {
            self.finish_job(now, tools);
        }
        self.advance(now, tools);
    }

    /// Completes the whole text.
    fn finish_job(&mut self, now: Instant, tools: &mut Tools) {
        let Some(active) = &self.current else { return };
        let (speech, silent, parts) = (active.speech, active.silent_parts, active.parts_done);
        if silent > 0 {
            // The back-end hides its speech errors (mappings/notes/minicpm-o.md#chat): it answers with text and no
            // audio.
            let words = format!("the upstream answered {silent} of {parts} parts of the text without audio");
            tools.floor.out.push_error(self.named(Error::new(ErrorKind::SpeakFailed, words)));
        }
        tools.floor.finish(now, speech);
        self.stop(now, tools);
    }

    fn handle_failure(&mut self, now: Instant, failure: ConnectionFailure, tools: &mut Tools) {
        let Some(active) = &mut self.current else { return };
        let (was_in_use, speech) = (failure.was_in_use(), active.speech);
        let again = AskAgain {
            attempts_max: self.profile.speak.attempts,
            is_possible: !tools.floor.is_announced(speech),
            error_kind: ErrorKind::SpeakFailed,
        };
        let Some(error) = tools.lanes.fail(now, &mut active.speaker.ask, failure, again) else {
            // No audio was audible yet, so the text is repeated from its start.
            (active.speaker.part_has_audio, active.parts_done, active.silent_parts) = (false, 0, 0);
            tools.floor.restart(speech);
            return self.advance(now, tools);
        };
        tools.floor.out.push_error(self.named(error));
        // The error goes first. A text that failed in its upstream has a normal end, if it was heard
        // (tests/golden/macaw/c10k_tts_crash_before_audio.json, tests/golden/macaw/c10l_tts_crash_mid.json).
        if was_in_use {
            tools.floor.finish(now, speech);
        } else {
            tools.floor.fail(now, speech);
        }
        self.current = None;
    }

    /// The error with the name of the current text.
    fn named(&self, error: Error) -> Error {
        match &self.current {
            Some(active) => error.for_request(active.job.request_id.clone()),
            None => error,
        }
    }

    /// Dials, or sends the next part to a ready lane.
    pub(crate) fn advance(&mut self, now: Instant, tools: &mut Tools) {
        let Some(ActiveJob { job, speaker, parts_done, .. }) = &mut self.current else { return };
        let style = SpeakStyle {
            rules: &self.profile.speak,
            instruction: job.instruction.as_deref(),
            voice: job.voice.as_ref(),
            voice_name: job.voice_name.as_deref(),
        };
        let part = job.parts.get(*parts_done).map(String::as_str);
        speaker.advance(now, part, style, &tools.floor, &mut tools.lanes);
    }
}
