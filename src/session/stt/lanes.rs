//! Lanes of the transcriber: which are dialled, used and left.

use std::time::{Duration, Instant};

use super::{recognition::Recognition, transcriber::Transcriber, utterance::UtteranceState};
use crate::session::{
    growing_text::GrowingText,
    lanes::{LaneId, Lanes, Owner},
};
use crate::vocabulary::{ClientEvent, LaneRequest, Mode};

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
            while let Some((id, request)) =
                self.next_request(lanes).or_else(|| self.take_pause_request(lanes))
            {
                lanes.request(now, id, request);
            }
        }
        while let Some(id) = self.late_lane(now, lanes) {
            self.leave(now, id, lanes);
        }
        while let Some(id) = self.unneeded_lane(lanes) {
            self.retire(now, id, lanes);
        }
        if !self.awaits_request {
            self.dial_needed(now, lanes);
        }
    }

    /// The request for the oldest waiting utterance, and the ready lane that it goes on.
    fn next_request(&mut self, lanes: &Lanes) -> Option<(LaneId, LaneRequest)> {
        let id = self.recognitions.iter().map(|recognition| recognition.id).find(|id| lanes.is_ready(*id))?;
        let utterance = self.queue.first_waiting()?;
        let UtteranceState::Waiting(audio) = &utterance.state else { return None };
        let audio = audio.clone();
        let request = LaneRequest::Transcribe { prompt: utterance.prompt.clone(), audio: audio.clone() };
        utterance.state = UtteranceState::Requested(id, audio, GrowingText::default());
        Some((id, request))
    }

    /// A further lane that has waited for too long in the upstream's queue.
    fn late_lane(&self, now: Instant, lanes: &Lanes) -> Option<LaneId> {
        let is_late = |further: &&Recognition| queue_deadline(further, lanes).is_some_and(|at| at <= now);
        self.recognitions.iter().skip(1).find(is_late).map(|late| late.id)
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

    /// An unused lane for which no utterance waits. One is kept while the user speaks.
    fn unneeded_lane(&self, lanes: &Lanes) -> Option<LaneId> {
        let expects_utterance = self.wants_transcript && self.queue.is_recording();
        let needed = self.queue.waiting_count().max(usize::from(expects_utterance));
        self.last_unused(lanes).filter(|_| self.unused_count(lanes) > needed)
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
            let init = Some(LaneRequest::Init(None));
            let id = lanes.open_beside(now, spare, Owner::Transcriber, Mode::Chat, init);
            self.recognitions.push(Recognition::new(id));
        }
    }

    fn unused_count(&self, lanes: &Lanes) -> usize {
        self.recognitions.iter().filter(|lane| !lanes.is_awaiting_reply(lane.id)).count()
    }

    /// The newest lane without an outstanding answer, if possible one without a worker.
    fn last_unused(&self, lanes: &Lanes) -> Option<LaneId> {
        let unused =
            || self.recognitions.iter().map(|lane| lane.id).filter(|id| !lanes.is_awaiting_reply(*id));
        unused().rfind(|id| !lanes.holds_worker(*id)).or_else(|| unused().next_back())
    }

    /// Notice of the first lane's place in the queue while no lane has a worker. The others only make transcripts faster.
    pub(super) fn queue_notice(&self, now: Instant, id: LaneId, lanes: &Lanes) -> Option<ClientEvent> {
        let is_first = self.recognitions.first().is_some_and(|first| first.id == id);
        let may_wait = is_first && !lanes.owner_holds_worker(Owner::Transcriber);
        lanes.queue_notice(now, id).filter(|_| may_wait)
    }
}

/// When a further lane leaves the upstream's queue.
fn queue_deadline(recognition: &Recognition, lanes: &Lanes) -> Option<Instant> {
    lanes.queue_position(recognition.id).map(|place| place.since + FURTHER_LANE_QUEUE_MAX)
}
