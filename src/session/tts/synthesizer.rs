//! Synthesizer: has an upstream speak texts, one at a time. A new text cancels the current one.
//!
//! An upstream cannot stop an answer (MiniCPM-o field notes §2). After a cancel the client hears silence at once; the
//! lane is drained before its worker is returned.

use std::{sync::Arc, time::Instant};

use crate::session::{
    floor::SpeechSource,
    measurement::LanePurpose,
    outbox::Observation,
    upstream::LaneContext,
    upstream::{
        backoff::ConnectionFailure,
        connection::{ConnectionEvent, UpstreamConnection},
    },
};
use crate::{
    error::{Error, ErrorKind},
    event::{DisconnectReason, Lane, LaneCommand, LaneEvent, Mode, TurnTag, VoiceSample},
    mapping::Profile,
};

/// A text prepared for speaking.
#[derive(Debug)]
pub(crate) struct SpeechJob {
    pub(crate) request_id: String,
    /// The client's own text.
    pub(crate) text: String,
    /// Normalised text for the model, in parts.
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
    turn: TurnTag,
    connection: Option<UpstreamConnection>,
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

    /// The lane in use.
    pub(crate) fn lane(&self) -> Option<Lane> {
        self.connection().map(UpstreamConnection::lane)
    }

    /// True if the lane waits in the upstream's queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.connection().is_some_and(UpstreamConnection::is_queued)
    }

    /// True if the lane holds an upstream worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.connection().is_some_and(UpstreamConnection::holds_worker)
    }

    fn connection(&self) -> Option<&UpstreamConnection> {
        self.current.as_ref()?.connection.as_ref()
    }

    fn connection_mut(&mut self) -> Option<&mut UpstreamConnection> {
        self.current.as_mut()?.connection.as_mut()
    }

    /// Cancels the current text and speaks this one.
    pub(crate) fn start_job(&mut self, now: Instant, job: SpeechJob, context: &mut LaneContext) {
        context.floor.cancel(now, SpeechSource::Text, &mut context.out);
        let init = LaneCommand::Init(job.voice.clone());
        let reusable = self.current.take().and_then(|active| active.connection).and_then(|connection| {
            if connection.can_serve(&init) {
                return Some(connection);
            }
            connection.retire(now, context);
            None
        });
        let turn = context.floor.begin(now, SpeechSource::Text, job.request_id.clone(), job.text.clone());
        self.current = Some(ActiveJob {
            job,
            turn,
            connection: reusable,
            part_has_audio: false,
            parts_done: 0,
            silent_parts: 0,
            attempts: 0,
            part_requested_at: None,
        });
        self.advance(now, context);
    }

    /// Stops speaking. Sends nothing if no text is being spoken (golden c10i).
    pub(crate) fn cancel(&mut self, now: Instant, context: &mut LaneContext) {
        context.floor.cancel(now, SpeechSource::Text, &mut context.out);
        self.retire_connection(now, context);
    }

    /// Stops synthesizing; audio received so far is still played.
    fn retire_connection(&mut self, now: Instant, context: &mut LaneContext) {
        if let Some(connection) = self.current.take().and_then(|active| active.connection) {
            connection.retire(now, context);
        }
    }

    /// Handles an upstream event of the lane; returns what it meant for the connection.
    pub(crate) fn handle_lane_event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        context: &mut LaneContext,
    ) -> ConnectionEvent {
        let Some(connection) = self.connection_mut() else { return ConnectionEvent::None };
        let was_awaiting_reply = connection.is_awaiting_reply();
        let connection_event = connection.handle_event(now, event, context);
        if connection_event != ConnectionEvent::None {
            self.handle_connection_event(now, connection_event.clone(), context);
        }
        if was_awaiting_reply {
            match event {
                LaneEvent::Audio(samples) => self.push_audio(now, samples, context),
                LaneEvent::Done { audio, .. } => self.finish_part(now, audio, context),
                _ => {}
            }
        }
        connection_event
    }

    fn push_audio(&mut self, now: Instant, samples: &[f32], context: &mut LaneContext) {
        let Some(active) = self.current.as_mut().filter(|_| !samples.is_empty()) else { return };
        active.part_has_audio = true;
        context.floor.push_audio(now, active.turn, samples, &mut context.out);
    }

    /// Completes a part of the text. `audio` is all of its audio if the upstream did not stream.
    fn finish_part(&mut self, now: Instant, audio: &[f32], context: &mut LaneContext) {
        let Some(active) = &mut self.current else { return };
        if let Some(connection) = &mut active.connection {
            connection.complete_reply();
        }
        let had_audio = std::mem::take(&mut active.part_has_audio);
        active.part_requested_at = None;
        active.parts_done += 1;
        if !had_audio {
            self.push_audio(now, audio, context);
            if let Some(active) = &mut self.current {
                active.silent_parts += usize::from(!std::mem::take(&mut active.part_has_audio));
            }
        }
        if self.current.as_ref().is_some_and(|active| active.parts_done == active.job.parts.len()) {
            self.finish_job(now, context);
        }
        self.advance(now, context);
    }

    /// Completes the whole text.
    fn finish_job(&mut self, now: Instant, context: &mut LaneContext) {
        let Some(active) = &self.current else { return };
        let (turn, silent, parts) = (active.turn, active.silent_parts, active.parts_done);
        if silent > 0 {
            // The back-end hides its speech errors (field notes §2): it answers with text and no audio.
            let words = format!("the upstream answered {silent} of {parts} parts of the text without audio");
            self.report_error(ErrorKind::SpeakFailed, words, context);
        }
        context.floor.finish(now, turn, &mut context.out);
        self.retire_connection(now, context);
    }

    fn handle_connection_event(
        &mut self,
        now: Instant,
        connection_event: ConnectionEvent,
        context: &mut LaneContext,
    ) {
        match connection_event {
            ConnectionEvent::None => {}
            ConnectionEvent::Queued => {
                if let Some(place) = self.connection().and_then(UpstreamConnection::queue_position) {
                    context.report_queue(now, place);
                }
            }
            ConnectionEvent::Ready => self.advance(now, context),
            ConnectionEvent::QueueStuck(words) => {
                self.report_error(ErrorKind::QueueStuck, words, context);
            }
            ConnectionEvent::EmptyAnswer => {
                // The connection ended with its answer; the remaining parts need another.
                if let Some(connection) = self.current.as_mut().and_then(|active| active.connection.take()) {
                    connection.retire(now, context);
                }
                self.finish_part(now, &[], context);
            }
            ConnectionEvent::Failed(failure) => self.handle_failure(now, failure, context),
        }
    }

    fn handle_failure(&mut self, now: Instant, failure: ConnectionFailure, context: &mut LaneContext) {
        let Some(active) = &mut self.current else { return };
        if let Some(connection) = active.connection.take() {
            connection.retire(now, context);
        }
        active.attempts += 1;
        if failure.was_in_use
            && !context.floor.is_announced(active.turn)
            && active.attempts < self.profile.speak.attempts
        {
            context.out.observe(Observation::AskedAgain(failure.detail));
            // No audio was audible yet, so the text is repeated from its start.
            (active.part_has_audio, active.parts_done, active.silent_parts) = (false, 0, 0);
            context.floor.restart(active.turn);
            return self.advance(now, context);
        }
        let (was_in_use, turn) = (failure.was_in_use, active.turn);
        let waited = active.part_requested_at.map(|at| now - at);
        let (kind, detail) = failure.after_attempts(ErrorKind::SpeakFailed, active.attempts, waited);
        self.report_error(kind, detail, context);
        // The error goes first. A text that failed in its upstream has a normal end, if it was heard (golden c10k, c10l).
        if was_in_use {
            context.floor.finish(now, turn, &mut context.out);
        } else {
            context.floor.fail(now, turn, &mut context.out);
        }
        self.current = None;
    }

    /// Reports an error that concerns the current text.
    fn report_error(&self, kind: ErrorKind, words: String, context: &mut LaneContext) {
        let error = Error::new(kind, words);
        context.out.push_error(match &self.current {
            Some(active) => error.for_request(active.job.request_id.clone()),
            None => error,
        });
    }

    pub(crate) fn handle_opened(&mut self, now: Instant, context: &mut LaneContext) {
        if let Some(connection) = self.connection_mut() {
            connection.handle_opened(now, context);
        }
    }

    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        reason: &DisconnectReason,
        context: &mut LaneContext,
    ) {
        if let Some(connection) = self.connection_mut() {
            let connection_event = connection.handle_closed(now, reason, context);
            self.handle_connection_event(now, connection_event, context);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, context: &mut LaneContext) {
        if let Some(connection) = self.connection_mut() {
            let connection_event = connection.handle_timeout(now, context);
            self.handle_connection_event(now, connection_event, context);
        }
        self.advance(now, context);
    }

    /// Deadline of the lane.
    pub(crate) fn lane_deadline(&self) -> Option<Instant> {
        self.connection()?.deadline()
    }

    /// Dials, or sends the next part to a ready lane.
    pub(crate) fn advance(&mut self, now: Instant, context: &mut LaneContext) {
        let Some(active) = &mut self.current else { return };
        match &mut active.connection {
            None if context.can_dial() => {
                let init = LaneCommand::Init(active.job.voice.clone());
                active.connection =
                    Some(UpstreamConnection::open(now, (LanePurpose::Speak, Mode::Chat), init, context));
            }
            // Audio made far ahead of playout would be wasted by a cancel.
            Some(connection) if connection.is_ready() && !context.floor.is_far_ahead(now) => {
                let Some(part) = active.job.parts.get(active.parts_done) else { return };
                let request = LaneCommand::Speak {
                    before_voice: self.profile.speak.before_voice.clone(),
                    after_voice: self.profile.speak.system_prompt_end(active.job.instruction.as_deref()),
                    request: self.profile.speak.read_aloud_request(part),
                    voice: active.job.voice.clone(),
                };
                connection.send_request(now, request, context);
                active.part_requested_at.get_or_insert(now);
            }
            _ => {}
        }
    }
}
