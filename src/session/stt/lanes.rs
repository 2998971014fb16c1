//! Lanes of the transcriber: which are dialled, used and left.

use std::time::{Duration, Instant};

use super::{recognition::Recognition, transcriber::Transcriber, utterance::UtteranceState};
use crate::session::{
    growing_text::GrowingText,
    lanes::{LaneId, Lanes, Owner},
    tools::Tools,
};
use crate::vocabulary::LaneRequest;

/// Longest time that a further lane stays in the upstream's queue, where it takes a place from other clients. A worker that
/// only cleans up after the last session is free within this time.
const FURTHER_LANE_QUEUE_MAX: Duration = Duration::from_secs(2);

impl Transcriber {
    pub(super) fn recognition_mut(&mut self, id: LaneId) -> Option<&mut Recognition> {
        self.recognitions.iter_mut().find(|recognition| recognition.id == id)
    }

    /// When the next further lane leaves the upstream's queue.
    pub(crate) fn queue_deadline(&self, lanes: &Lanes) -> Option<Instant> {
        self.recognitions.iter().skip(1).filter_map(|recognition| queue_deadline(recognition, lanes)).min()
    }

    /// Returns idle workers, because a text to speak waits for one.
    pub(crate) fn release_idle_worker(&mut self, now: Instant, lanes: &mut Lanes) {
        if self.queue.waiting_count() == 0 {
            while let Some(id) = self.last_unused(lanes) {
                self.worker_released = true;
                self.retire(now, id, lanes);
            }
        }
    }

    /// Leaves a lane.
    pub(super) fn retire(&mut self, now: Instant, id: LaneId, lanes: &mut Lanes) {
        self.recognitions.retain(|recognition| recognition.id != id);
        lanes.retire(now, id);
    }

    /// Sends the next requests, and dials or leaves lanes as needed. The request for an answer is first.
    pub(super) fn update_lanes(&mut self, now: Instant, lanes: &mut Lanes) {
        if !self.awaits_request {
            self.send_requests(now, lanes);
            self.send_pause_request(now, lanes);
        }
        self.leave_queue(now, lanes);
        self.retire_unneeded(now, lanes);
        if !self.awaits_request {
            self.dial_needed(now, lanes);
        }
    }

    /// Sends the oldest waiting utterances on the ready lanes.
    fn send_requests(&mut self, now: Instant, lanes: &mut Lanes) {
        for Recognition { id, .. } in &self.recognitions {
            if !lanes.is_ready(*id) {
                continue;
            }
            let Some(utterance) = self.queue.first_waiting() else { return };
            let UtteranceState::Waiting(audio) = &utterance.state else { return };
            let audio = audio.clone();
            let request = LaneRequest::Transcribe { prompt: utterance.prompt.clone(), audio: audio.clone() };
            lanes.request(now, *id, request);
            utterance.state = UtteranceState::Requested(*id, audio, GrowingText::default());
        }
    }

    /// Leaves the upstream's queue with further lanes that have waited for too long.
    fn leave_queue(&mut self, now: Instant, lanes: &mut Lanes) {
        let is_late =
            |it: &&Recognition, lanes: &Lanes| queue_deadline(it, lanes).is_some_and(|at| at <= now);
        while let Some(late) = self.recognitions.iter().skip(1).find(|it| is_late(it, lanes)) {
            self.leave(now, late.id, lanes);
        }
    }

    /// True for a lane that is not the first.
    pub(super) fn is_further_lane(&self, id: LaneId) -> bool {
        self.recognitions.iter().skip(1).any(|recognition| recognition.id == id)
    }

    /// Leaves a further lane because the upstream has no worker for it.
    pub(super) fn leave(&mut self, now: Instant, id: LaneId, lanes: &mut Lanes) {
        self.retire(now, id, lanes);
        self.lane_limit = self.recognitions.len().max(1);
    }

    /// Leaves unused lanes for which no utterance waits. One is kept while the user speaks.
    fn retire_unneeded(&mut self, now: Instant, lanes: &mut Lanes) {
        let expects_utterance = self.wants_transcript && self.queue.is_recording();
        let needed = self.queue.waiting_count().max(usize::from(expects_utterance));
        while self.unused_count(lanes) > needed
            && let Some(id) = self.last_unused(lanes)
        {
            self.retire(now, id, lanes);
        }
    }

    /// Dials for utterances that wait. The first lane is dialled at the first sound, so that queueing and initialisation
    /// overlap the user's speech.
    fn dial_needed(&mut self, now: Instant, lanes: &mut Lanes) {
        let expects_utterance = self.recognitions.is_empty()
            && self.queue.is_recording()
            && !self.worker_released
            && self.wants_transcript
            && !self.yields_to_answer;
        let needed = self.queue.waiting_count().max(usize::from(expects_utterance));
        while self.unused_count(lanes) < needed && self.recognitions.len() < self.lane_limit {
            self.worker_released = false;
            let spare = self.lane_limit - self.recognitions.len() - 1;
            self.recognitions.push(Recognition::open(now, spare, lanes));
        }
    }

    fn unused_count(&self, lanes: &Lanes) -> usize {
        self.recognitions.iter().filter(|it| !lanes.is_awaiting_reply(it.id)).count()
    }

    /// The newest lane without an outstanding answer, if possible one without a worker.
    fn last_unused(&self, lanes: &Lanes) -> Option<LaneId> {
        let unused = || self.recognitions.iter().map(|it| it.id).filter(|id| !lanes.is_awaiting_reply(*id));
        unused().rfind(|id| !lanes.holds_worker(*id)).or_else(|| unused().next_back())
    }

    /// Reports the queue position of the first lane while no lane has a worker. The others only make transcripts faster.
    pub(super) fn report_queue(&self, now: Instant, id: LaneId, tools: &mut Tools) {
        let is_first = self.recognitions.first().is_some_and(|first| first.id == id);
        if is_first && !tools.lanes.owner_holds_worker(Owner::Transcriber) {
            tools.lanes.report_queue(now, id, &mut tools.out);
        }
    }
}

/// When a further lane leaves the upstream's queue.
fn queue_deadline(recognition: &Recognition, lanes: &Lanes) -> Option<Instant> {
    lanes.queue_position(recognition.id).map(|(_, since)| since + FURTHER_LANE_QUEUE_MAX)
}
