//! Asking an upstream: a request is sent on a lane, and yields parts until its answer is complete. If its lane fails, it may be
//! asked again on another.

use std::time::Instant;

use super::{LaneId, LaneSignal, Lanes, Owner, backoff::ConnectionFailure, connection::ConnectionChange};
use crate::{
    error::{Error, ErrorKind},
    session::{effects::Effects, outbox::Observation},
    vocabulary::{LaneEvent, LaneRequest, Mode},
};

/// A request to an upstream, over all its attempts.
#[derive(Debug)]
pub(crate) struct Ask {
    owner: Owner,
    lane: Option<LaneId>,
    attempts: u32,
    /// When it was first sent.
    sent_at: Option<Instant>,
}

/// Result of a request.
#[derive(Debug)]
pub(crate) enum Reply<'e> {
    /// Nothing.
    None,
    /// The lane waits in a queue that others occupy.
    Queued,
    /// The queue does not move; a description.
    QueueStuck(String),
    /// The lane is ready for the request.
    Ready,
    /// A part of the answer.
    Text(&'e str),
    /// A part of the answer, mono at the model's rate.
    Audio(&'e [f32]),
    /// A call of a tool, by a model that is not prompted for calls.
    Call { call_id: &'e str, name: &'e str, arguments: &'e str },
    /// The answer is complete. Text and audio are all of it if the upstream did not stream.
    Done { text: Option<&'e str>, audio: &'e [f32] },
    /// The model had no answer. The lane is closing.
    Empty,
    /// The request failed on its lane, which is closing.
    Failed(ConnectionFailure),
}

/// Bounds on asking again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskAgain {
    pub(crate) attempts_max: u32,
    /// False once the client has got some of the answer.
    pub(crate) is_possible: bool,
    /// Kind of the error for a request that failed while the upstream answered it.
    pub(crate) error_kind: ErrorKind,
}

impl<'e> LaneSignal<'e> {
    /// Result of the request on the lane.
    pub(crate) fn into_reply(self) -> Reply<'e> {
        match self.change {
            ConnectionChange::None => {}
            ConnectionChange::Ready => return Reply::Ready,
            ConnectionChange::Queued => return Reply::Queued,
            ConnectionChange::QueueStuck(detail) => return Reply::QueueStuck(detail),
            ConnectionChange::EmptyAnswer => return Reply::Empty,
            ConnectionChange::Failed(failure) => return Reply::Failed(failure),
        }
        match self.message.filter(|_| self.was_awaiting_reply) {
            Some((LaneEvent::Text(text), _)) => Reply::Text(text),
            Some((LaneEvent::Audio(samples), _)) => Reply::Audio(samples),
            Some((LaneEvent::Call { call_id, name, arguments }, _)) => {
                Reply::Call { call_id, name, arguments }
            }
            Some((LaneEvent::Done { text, audio }, _)) => Reply::Done { text: *text, audio },
            _ => Reply::None,
        }
    }

    /// Effects of this signal on a lane that speaks a text. `is_audible` if the client hears speech.
    pub(crate) const fn effects(&self, is_audible: bool) -> Effects {
        match (&self.change, &self.message) {
            (ConnectionChange::Queued, _) => Effects::WORKER_WANTED,
            (ConnectionChange::None, Some((LaneEvent::Text(_) | LaneEvent::Audio(_), _))) if is_audible => {
                Effects::DELTA
            }
            _ => Effects::ALL,
        }
    }
}

impl Ask {
    /// A request without a lane.
    pub(crate) const fn new(owner: Owner) -> Self {
        Self { owner, lane: None, attempts: 0, sent_at: None }
    }

    pub(crate) const fn lane(&self) -> Option<LaneId> {
        self.lane
    }

    /// Uses a lane that was dialled before, if there is one.
    pub(crate) const fn use_lane(&mut self, lane: Option<LaneId>) {
        self.lane = lane;
    }

    /// True if its lane is ready for it.
    pub(crate) fn is_ready(&self, lanes: &Lanes) -> bool {
        self.lane.is_some_and(|id| lanes.is_ready(id))
    }

    /// True if the dialect of its lane offers tools in messages. Otherwise the model is prompted for calls.
    pub(crate) fn calls_tools(&self, lanes: &Lanes) -> bool {
        self.lane.is_some_and(|id| lanes.calls_tools(id))
    }

    /// Forgets when it was sent, because the next request is another.
    pub(crate) const fn begin_next(&mut self) {
        self.sent_at = None;
    }

    /// Forgets the failed attempts.
    pub(crate) const fn reset_attempts(&mut self) {
        self.attempts = 0;
    }
}

impl Lanes {
    /// Dials for a request, unless it has a lane. Returns the lane.
    pub(crate) fn dial(&mut self, now: Instant, ask: &mut Ask, init: LaneRequest) -> LaneId {
        *ask.lane.get_or_insert_with(|| self.open(now, ask.owner, Mode::Chat, Some(init)))
    }

    /// Sends a request on its lane, which is ready.
    pub(crate) fn ask(&mut self, now: Instant, ask: &mut Ask, request: LaneRequest) {
        if let Some(id) = ask.lane {
            self.request(now, id, request);
            ask.sent_at.get_or_insert(now);
        }
    }

    /// Completes the answer to a request. The lane is ready for another one.
    pub(crate) fn complete(&mut self, ask: &Ask) {
        if let Some(id) = ask.lane {
            self.complete_reply(id);
        }
    }

    /// Completes the answer to a request, and leaves its lane.
    pub(crate) fn finish(&mut self, now: Instant, ask: &mut Ask) {
        self.complete(ask);
        self.leave(now, ask);
    }

    /// Leaves the lane of a request. An answer that is still outstanding is not heard.
    pub(crate) fn leave(&mut self, now: Instant, ask: &mut Ask) {
        if let Some(id) = ask.lane.take() {
            self.retire(now, id);
        }
    }

    /// Leaves the lane of a request after its failure. Returns the error if the request may not be asked again.
    pub(crate) fn fail(
        &mut self,
        now: Instant,
        ask: &mut Ask,
        failure: ConnectionFailure,
        again: AskAgain,
    ) -> Option<Error> {
        self.leave(now, ask);
        ask.attempts += 1;
        self.settle_failure(now, ask.owner, failure, again, ask.attempts, ask.sent_at)
    }

    /// Settles the failure of this owner's request after so many attempts, which the client has waited for since an instant.
    /// Returns the error if it may not be asked again.
    pub(crate) fn settle_failure(
        &mut self,
        now: Instant,
        owner: Owner,
        failure: ConnectionFailure,
        again: AskAgain,
        attempts: u32,
        since: Option<Instant>,
    ) -> Option<Error> {
        let may_ask_again =
            self.may_ask_again(now, owner, &failure) || failure.may_repeat() && attempts < again.attempts_max;
        if may_ask_again && again.is_possible {
            self.observe(Observation::AskedAgain(failure.detail));
            return None;
        }
        let waited = since.map(|since| now - since);
        let (kind, detail) = failure.after_attempts(again.error_kind, attempts, waited);
        Some(Error::new(kind, detail))
    }
}
