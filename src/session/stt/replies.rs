//! Replies to transcription requests: partial and final transcripts, failed requests and their repetition.

use std::time::Instant;

use super::{
    transcriber::Transcriber,
    utterance::{Transcript, Utterance, UtteranceState, length_ms},
};
use crate::session::{
    growing_text::TEXT_MAX_BYTES,
    outbox::Observation,
    upstream::{LaneContext, backoff::ConnectionFailure, connection::ConnectionEvent},
};
use crate::{
    audio::word_times::estimate_word_times,
    error::{Error, ErrorKind},
    event::{Lane, LaneEvent},
};

impl Transcriber {
    /// Handles an upstream event of the lane.
    pub(crate) fn handle_lane_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        context: &mut LaneContext,
    ) {
        let Some(recognition) = self.recognition_mut(lane) else { return };
        let was_awaiting_reply = !recognition.is_unused();
        let connection_event = recognition.connection.handle_event(now, event, context);
        self.handle_connection_event(now, lane, connection_event, context);
        if !was_awaiting_reply {
            return;
        }
        match event {
            LaneEvent::Text(text) => self.append_text(now, lane, text, context),
            LaneEvent::Done { text, .. } => self.complete_reply(now, lane, *text, context),
            _ => {}
        }
    }

    fn append_text(&mut self, now: Instant, lane: Lane, text: &str, context: &mut LaneContext) {
        let recognition = self.recognition_mut(lane);
        if let Some(interim) = recognition.and_then(|recognition| recognition.interim.as_mut()) {
            // Too long a text is cut; the final transcript decides.
            interim.text.push(text);
            return;
        }
        // Only the oldest unreported utterance gets partials; a late one only gets its final.
        let front = self.queue.utterances.iter().position(|utterance| !utterance.released);
        let is_requested = |(_, utterance): &(usize, &mut Utterance)| utterance.is_requested_on(lane);
        let requested = self.queue.utterances.iter_mut().enumerate().find(is_requested);
        let Some((index, utterance)) = requested else { return };
        let UtteranceState::Requested(_, audio, reply) = &mut utterance.state else { return };
        if !reply.push(text) {
            return self.fail_endless_reply(now, lane, context);
        }
        // An answer starts at the first word, which the client may have got from an interim decode or a failed attempt.
        let is_long_enough = |text: &&str| text.chars().count() >= utterance.longest_partial_chars;
        if self.options.partials
            && (front == Some(index) || self.speech_end_wait.is_zero())
            && let Some(text) = reply.due_report().filter(is_long_enough)
        {
            let (text, audio_ms) = (text.to_owned(), length_ms(audio));
            utterance.first_transcript.record(now, utterance.completed_at, context);
            utterance.push_partial(text, audio_ms, utterance.audio_start_ms, context);
        }
    }

    /// Ends an answer that does not end by itself.
    fn fail_endless_reply(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(utterance) = self.queue.requested_on(lane) {
            let cause = format!("its transcript has more than {TEXT_MAX_BYTES} bytes");
            utterance.fail(ErrorKind::TranscribeFailed, &cause);
        }
        self.retire(now, lane, context);
        self.advance(now, context);
    }

    /// Completes an answer. `text` is the whole answer if the upstream repeats it.
    fn complete_reply(&mut self, now: Instant, lane: Lane, text: Option<&str>, context: &mut LaneContext) {
        let word_time_config = self.word_time_config();
        let Some(recognition) = self.recognition_mut(lane) else { return };
        recognition.connection.complete_reply();
        if let Some(interim) = recognition.interim.take() {
            self.report_interim(text.unwrap_or(interim.text.as_str()), &interim, context);
        } else if let Some(utterance) = self.queue.requested_on(lane)
            && let UtteranceState::Requested(_, audio, reply) = &utterance.state
        {
            let text =
                text.filter(|text| !text.trim().is_empty()).unwrap_or(reply.as_str()).trim().to_owned();
            let words = word_time_config.map_or_else(Vec::new, |config| {
                estimate_word_times(&text, audio, utterance.audio_start_ms, config)
            });
            let language = Some(utterance.language.clone());
            let transcript = Transcript { text, duration_ms: length_ms(audio), language, words };
            utterance.state = UtteranceState::Settled(Some(Ok(transcript)));
            self.lane_limit = self.parallel_max.min(self.lane_limit + 1);
        }
        // Each utterance gets a fresh upstream session (field notes §5): earlier requests must not influence the answer.
        self.retire(now, lane, context);
        self.advance(now, context);
    }

    pub(super) fn handle_connection_event(
        &mut self,
        now: Instant,
        lane: Lane,
        connection_event: ConnectionEvent,
        context: &mut LaneContext,
    ) {
        match connection_event {
            ConnectionEvent::None => {}
            ConnectionEvent::Queued => self.report_queue(now, lane, context),
            ConnectionEvent::Ready => self.advance(now, context),
            ConnectionEvent::QueueStuck(_) if self.is_further_lane(lane) => self.leave(now, lane, context),
            ConnectionEvent::QueueStuck(words) => {
                context.out.push_error(Error::new(ErrorKind::QueueStuck, words));
            }
            ConnectionEvent::EmptyAnswer => self.complete_reply(now, lane, Some(""), context),
            ConnectionEvent::Failed(failure) => {
                self.handle_failure(now, lane, failure, context);
                self.retire(now, lane, context);
                self.advance(now, context);
            }
        }
    }

    /// Reports the queue position of the first lane while no lane has a worker. The others only make transcripts faster.
    fn report_queue(&self, now: Instant, lane: Lane, context: &mut LaneContext) {
        let first = self.recognitions.first();
        let first = first.filter(|recognition| recognition.lane() == lane && !self.holds_worker());
        if let Some(place) = first.and_then(|recognition| recognition.connection.queue_position()) {
            context.report_queue(now, place);
        }
    }

    fn handle_failure(
        &mut self,
        now: Instant,
        lane: Lane,
        failure: ConnectionFailure,
        context: &mut LaneContext,
    ) {
        if self.recognition_mut(lane).is_some_and(|recognition| recognition.interim.take().is_some()) {
            return;
        }
        if !failure.was_in_use && self.recognitions.len() > 1 {
            // The other lanes serve its utterance.
            self.lane_limit = self.recognitions.len() - 1;
            return;
        }
        let max_attempts = self.rules().attempts;
        let affected =
            if failure.was_in_use { self.queue.requested_on(lane) } else { self.queue.first_waiting() };
        let Some(utterance) = affected else {
            // The user is still speaking, so nothing is lost yet.
            self.worker_released = true;
            return;
        };
        utterance.attempts += 1;
        if let UtteranceState::Requested(_, audio, _) = &utterance.state
            && utterance.attempts < max_attempts
        {
            utterance.state = UtteranceState::Waiting(audio.clone());
            context.out.observe(Observation::AskedAgain(failure.detail));
            return;
        }
        let waited = utterance.completed_at.map(|at| now - at);
        let (kind, cause) = failure.after_attempts(ErrorKind::TranscribeFailed, utterance.attempts, waited);
        utterance.fail(kind, &cause);
    }
}
