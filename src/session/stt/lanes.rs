//! Lanes of the transcriber: which are dialled, used and left.

use std::time::{Duration, Instant};

use super::{recognition::Recognition, transcriber::Transcriber, utterance::UtteranceState};
use crate::event::{DisconnectReason, Lane, LaneCommand};
use crate::session::{
    growing_text::GrowingText,
    upstream::{
        LaneContext,
        connection::{ConnectionEvent, UpstreamConnection},
    },
};

/// Longest time that a further lane stays in the upstream's queue, where it takes a place from other clients. A worker that
/// only cleans up after the last session is free within this time.
const FURTHER_LANE_QUEUE_MAX: Duration = Duration::from_secs(2);

impl Transcriber {
    /// True if it waits in the upstream's queue, without a worker.
    pub(crate) fn is_queued(&self) -> bool {
        !self.holds_worker() && self.recognitions.iter().any(|it| it.connection.is_queued())
    }

    /// True if this is one of its lanes.
    pub(crate) fn owns_lane(&self, lane: Lane) -> bool {
        self.recognitions.iter().any(|recognition| recognition.lane() == lane)
    }

    /// True if it has a lane.
    pub(crate) const fn has_lanes(&self) -> bool {
        !self.recognitions.is_empty()
    }

    /// True if a lane holds an upstream worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.recognitions.iter().any(|recognition| recognition.connection.holds_worker())
    }

    pub(super) fn recognition_mut(&mut self, lane: Lane) -> Option<&mut Recognition> {
        self.recognitions.iter_mut().find(|recognition| recognition.lane() == lane)
    }

    pub(crate) fn handle_opened(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(recognition) = self.recognition_mut(lane) {
            recognition.connection.handle_opened(now, context);
        }
    }

    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        lane: Lane,
        reason: &DisconnectReason,
        context: &mut LaneContext,
    ) {
        let close = |connection: &mut UpstreamConnection, context: &mut LaneContext| {
            connection.handle_closed(now, reason, context)
        };
        self.act_on_connection(now, lane, context, close);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, context: &mut LaneContext) {
        for index in (0..self.recognitions.len()).rev() {
            let Some(lane) = self.recognitions.get(index).map(Recognition::lane) else { continue };
            self.act_on_connection(now, lane, context, |connection, context| {
                connection.handle_timeout(now, context)
            });
        }
        self.advance(now, context);
    }

    /// Lets the connection of a lane handle an input, and follows what came of it.
    fn act_on_connection(
        &mut self,
        now: Instant,
        lane: Lane,
        context: &mut LaneContext,
        act: impl FnOnce(&mut UpstreamConnection, &mut LaneContext) -> ConnectionEvent,
    ) {
        let Some(recognition) = self.recognition_mut(lane) else { return };
        let connection_event = act(&mut recognition.connection, context);
        // Another attempt has another lane.
        let lane = recognition.lane();
        self.handle_connection_event(now, lane, connection_event, context);
    }

    /// Earliest deadline of the lanes.
    pub(crate) fn lane_deadline(&self) -> Option<Instant> {
        let of_connections = self.recognitions.iter().filter_map(|it| it.connection.deadline());
        of_connections.chain(self.recognitions.iter().skip(1).filter_map(queue_deadline)).min()
    }

    /// Returns idle workers, because a text to speak waits for one.
    pub(crate) fn release_idle_worker(&mut self, now: Instant, context: &mut LaneContext) {
        if self.queue.waiting_count() == 0 {
            while let Some(lane) = self.last_unused() {
                self.worker_released = true;
                self.retire(now, lane, context);
            }
        }
    }

    /// Leaves the connection of a lane.
    pub(super) fn retire(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(index) = self.recognitions.iter().position(|recognition| recognition.lane() == lane) {
            self.recognitions.remove(index).connection.retire(now, context);
        }
    }

    /// Sends the next requests, and dials or leaves lanes as needed. The request for an answer is first.
    pub(super) fn update_lanes(&mut self, now: Instant, context: &mut LaneContext) {
        if !self.awaits_request {
            self.send_requests(now, context);
        }
        self.leave_queue(now, context);
        self.retire_unneeded(now, context);
        if !self.awaits_request {
            self.dial_needed(now, context);
        }
    }

    /// Sends the oldest waiting utterances on the ready lanes.
    fn send_requests(&mut self, now: Instant, context: &mut LaneContext) {
        for recognition in self.recognitions.iter_mut().filter(|it| it.connection.is_ready()) {
            let Some(utterance) = self.queue.first_waiting() else { return };
            let UtteranceState::Waiting(audio) = &utterance.state else { return };
            let audio = audio.clone();
            let request = LaneCommand::Transcribe { prompt: utterance.prompt.clone(), audio: audio.clone() };
            recognition.connection.send_request(now, request, context);
            utterance.state = UtteranceState::Requested(recognition.lane(), audio, GrowingText::default());
        }
    }

    /// Leaves the upstream's queue with further lanes that have waited for too long.
    fn leave_queue(&mut self, now: Instant, context: &mut LaneContext) {
        let is_late = |it: &&Recognition| queue_deadline(it).is_some_and(|at| at <= now);
        while let Some(lane) = self.recognitions.iter().skip(1).find(is_late).map(Recognition::lane) {
            self.leave(now, lane, context);
        }
    }

    /// True for a lane that is not the first.
    pub(super) fn is_further_lane(&self, lane: Lane) -> bool {
        self.recognitions.iter().skip(1).any(|recognition| recognition.lane() == lane)
    }

    /// Leaves a further lane because the upstream has no worker for it.
    pub(super) fn leave(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        self.retire(now, lane, context);
        self.lane_limit = self.recognitions.len().max(1);
    }

    /// Leaves unused lanes for which no utterance waits. One is kept while the user speaks.
    fn retire_unneeded(&mut self, now: Instant, context: &mut LaneContext) {
        let needed = self.queue.waiting_count().max(usize::from(self.queue.is_recording()));
        while self.unused_count() > needed
            && let Some(lane) = self.last_unused()
        {
            self.retire(now, lane, context);
        }
    }

    /// Dials for utterances that wait. The first lane is dialled at the first sound, so that queueing and initialisation
    /// overlap the user's speech.
    fn dial_needed(&mut self, now: Instant, context: &mut LaneContext) {
        let expects_utterance = self.recognitions.is_empty()
            && self.queue.is_recording()
            && !self.worker_released
            && self.wants_transcript
            && !self.yields_to_answer;
        let needed = self.queue.waiting_count().max(usize::from(expects_utterance));
        while self.unused_count() < needed
            && self.recognitions.len() < self.lane_limit
            && context.can_dial_beside(self.lane_limit - self.recognitions.len() - 1)
        {
            self.worker_released = false;
            self.recognitions.push(Recognition::open(now, context));
        }
    }

    fn unused_count(&self) -> usize {
        self.recognitions.iter().filter(|recognition| recognition.is_unused()).count()
    }

    /// The newest lane without an outstanding answer, if possible one without a worker.
    fn last_unused(&self) -> Option<Lane> {
        let unused = || self.recognitions.iter().filter(|recognition| recognition.is_unused());
        let without_worker = unused().rfind(|recognition| !recognition.connection.holds_worker());
        without_worker.or_else(|| unused().next_back()).map(Recognition::lane)
    }
}

/// When a further lane leaves the upstream's queue.
fn queue_deadline(recognition: &Recognition) -> Option<Instant> {
    recognition.connection.queue_position().map(|(_, since)| since + FURTHER_LANE_QUEUE_MAX)
}
