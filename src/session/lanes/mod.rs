//! Lanes: every upstream session of one client, with its owner, its connection and its retries.
//!
//! An owner opens a lane, sends requests on it and retires it. Messages, the transport and time go to the connection first;
//! the owner gets a [`LaneSignal`] of what changed. A retired lane belongs to [`Owner::Closing`] until its transport is gone.
//!
//! - [`ask`] is one request over all its attempts, for owners that ask and get answers
//! - [`connection`] is one connection from the dial to the end of its transport; [`backoff`] is its retry policy
//! - [`closing`] bounds the lanes that are left; [`places`] gives their free workers and places in queues to lanes that wait
//! - [`holding`] stops the deadlines of lanes that the driver does not read
//! - [`queue_notice`] tells the client where it waits
//! - [`outbox`] is what leaves for the upstreams, and [`voice_encoding`] how voice samples are encoded there
//!
//! To add an owner, add it to [`Owner`] and to the match of [`super::follow_up`]. An owner never touches a
//! transport.

pub(crate) mod ask;
pub(crate) mod backoff;
mod closing;
pub(crate) mod connection;
mod holding;
mod outbox;
mod places;
mod queue_notice;
pub(crate) mod voice_encoding;

use std::time::Instant;

use self::{
    backoff::{BusyAnswer, BusyServers, ConnectionFailure, RetryState},
    connection::{ConnectionChange, LaneService, QueuePlace, UpstreamConnection, is_progress},
    voice_encoding::VoiceEncodingChoice,
};
use super::outbox::lane_outbox::LaneOutbox;
use crate::{
    spelling::profile::LaneTimeouts,
    vocabulary::{DisconnectReason, Lane, LaneEvent, LanePurpose, LaneRequest, MessageMeta, Mode},
};

/// Names a lane over all attempts to connect it. Each attempt has a [`Lane`] number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneId(u32);

/// Part of the session that uses a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Transcribes utterances.
    Transcriber,
    /// Speaks texts.
    Synthesizer,
    /// Answers utterances and messages.
    Assistant,
    /// Speaks an answer that was asked for silently.
    AnswerSpeech,
    /// Converses.
    Dialogue,
    /// Takes over the conversation later.
    Standby,
    /// Forwards the messages of a client that speaks the model's own protocol.
    Relay,
    /// No part: the lane is left, and waits for the end of its transport.
    Closing,
}

/// Effect of an input on a lane, for its owner.
#[derive(Debug)]
pub(crate) struct LaneSignal<'e> {
    pub(crate) id: LaneId,
    pub(crate) owner: Owner,
    pub(crate) change: ConnectionChange,
    /// The message, if one came.
    pub(crate) message: Option<(&'e LaneEvent<'e>, MessageMeta<'e>)>,
    /// The lane waited for an answer when the message came.
    pub(crate) was_awaiting_reply: bool,
}

/// All upstream sessions of one client.
#[derive(Debug)]
pub(crate) struct Lanes {
    slots: Vec<Slot>,
    pub(crate) shared: LaneShared,
    next_id: u32,
    /// The client gets notices while a request waits in the upstream's queue.
    pub(crate) reports_queue: bool,
    /// Latest end of the closing lanes while the session drains.
    drain_deadline: Option<Instant>,
    /// The driver does not read lanes whose output the client waits for.
    are_held: bool,
    /// Instant of the last output that an owner waited for.
    last_output_at: Option<Instant>,
}

#[derive(Debug)]
struct Slot {
    id: LaneId,
    owner: Owner,
    /// Number of further lanes that the owner could have. As many more may be closing when this lane is dialled.
    spare: usize,
    connection: UpstreamConnection,
}

/// State that the connections of a session share.
#[derive(Debug)]
pub(crate) struct LaneShared {
    /// Messages to the upstreams, and observations of them.
    pub(crate) out: LaneOutbox,
    times: LaneTimeouts,
    voice_encoding: VoiceEncodingChoice,
    busy: BusyServers,
    rng: fastrand::Rng,
    next_lane: u32,
    /// Requests in a row that moved to another upstream.
    moves: u32,
}

/// Moves in a row after which a refusal is final. Each upstream that refuses is left alone for a while, so few sessions get here.
const MOVES_MAX: u32 = 16;

impl LaneShared {
    /// Allocates a lane number that this session has not used.
    const fn allocate_lane(&mut self) -> Lane {
        let lane = Lane(self.next_lane);
        self.next_lane += 1;
        lane
    }
}

impl Owner {
    const fn purpose(self) -> LanePurpose {
        match self {
            Self::Transcriber => LanePurpose::Transcribe,
            Self::Synthesizer | Self::AnswerSpeech => LanePurpose::Speak,
            Self::Assistant => LanePurpose::Answer,
            Self::Dialogue | Self::Standby | Self::Closing => LanePurpose::Converse,
            Self::Relay => LanePurpose::Relay,
        }
    }
}

impl Lanes {
    pub(crate) fn new(times: LaneTimeouts, voice_encoding: VoiceEncodingChoice, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            slots: Vec::new(),
            shared: LaneShared {
                out: LaneOutbox::default(),
                times,
                voice_encoding,
                busy: BusyServers::default(),
                rng,
                next_lane: 0,
                moves: 0,
            },
            next_id: 0,
            reports_queue: false,
            drain_deadline: None,
            are_held: false,
            last_output_at: None,
        }
    }

    /// Timeouts of the profile.
    pub(crate) const fn times(&self) -> &LaneTimeouts {
        &self.shared.times
    }

    /// The session's random numbers, for ids and pauses.
    pub(crate) const fn rng(&mut self) -> &mut fastrand::Rng {
        &mut self.shared.rng
    }

    /// When the next attempt after a failure is due.
    ///
    /// # Errors
    /// The failure to report when the attempts are used up.
    pub(crate) fn next_attempt(
        &mut self,
        now: Instant,
        retry: &RetryState,
    ) -> Result<Instant, ConnectionFailure> {
        let LaneShared { times, rng, .. } = &mut self.shared;
        retry.next_attempt(now, now, times, rng)
    }

    /// Dials as soon as closing lanes leave room, or takes over the place of an unneeded lane in the upstream's queue. The
    /// initialisation may follow later.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        owner: Owner,
        mode: Mode,
        init: Option<LaneRequest>,
    ) -> LaneId {
        self.open_beside(now, 0, owner, mode, init)
    }

    /// Like [`Lanes::open`], for an owner that could have `spare` lanes beside this one.
    pub(crate) fn open_beside(
        &mut self,
        now: Instant,
        spare: usize,
        owner: Owner,
        mode: Mode,
        init: Option<LaneRequest>,
    ) -> LaneId {
        let purpose = owner.purpose();
        let service = LaneService { purpose, mode };
        let id = self.allocate_id();
        let place = self.place_in_queue(now, service).map(|index| self.slots.remove(index).connection);
        let lane = place.as_ref().map_or_else(|| self.shared.allocate_lane(), |place| place.lane);
        let can_dial = self.can_dial_beside(purpose, spare);
        let mut connection = UpstreamConnection::new(now, lane, service, init);
        match place {
            Some(place) => _ = connection.take_place_of(now, place, &mut self.shared),
            None if can_dial => {
                connection.dial_first(now, self.shared.busy.next_at(purpose), &mut self.shared);
            }
            None => connection.hold(now, &self.shared.times),
        }
        self.slots.reserve_exact(1);
        self.slots.push(Slot { id, owner, spare, connection });
        id
    }

    const fn allocate_id(&mut self) -> LaneId {
        let id = LaneId(self.next_id);
        self.next_id += 1;
        id
    }

    /// The connection of a lane.
    pub(crate) fn get(&self, id: LaneId) -> Option<&UpstreamConnection> {
        self.slots.iter().find(|slot| slot.id == id).map(|slot| &slot.connection)
    }

    /// The connection of a lane, and what it shares with others.
    fn get_mut(&mut self, id: LaneId) -> Option<(&mut UpstreamConnection, &mut LaneShared)> {
        let slot = self.slots.iter_mut().find(|slot| slot.id == id)?;
        Some((&mut slot.connection, &mut self.shared))
    }

    /// Gives a lane to another owner.
    pub(crate) fn give(&mut self, id: LaneId, owner: Owner) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == id) {
            slot.owner = owner;
        }
    }

    /// The lanes of an owner, oldest first.
    pub(crate) fn of_owner(&self, owner: Owner) -> impl DoubleEndedIterator<Item = &UpstreamConnection> {
        self.slots.iter().filter(move |slot| slot.owner == owner).map(|slot| &slot.connection)
    }

    /// True if a lane is ready for a request.
    pub(crate) fn is_ready(&self, id: LaneId) -> bool {
        self.get(id).is_some_and(UpstreamConnection::is_ready)
    }

    /// True if a lane is unused and is (or will be) initialised with `init`.
    pub(crate) fn can_serve(&self, id: LaneId, init: &LaneRequest) -> bool {
        self.get(id).is_some_and(|connection| connection.can_serve(init))
    }

    /// True if a lane is in use until it ends.
    pub(crate) fn is_engaged(&self, id: LaneId) -> bool {
        self.get(id).is_some_and(UpstreamConnection::is_engaged)
    }

    /// True if the dialect of a lane that is open offers tools in messages.
    pub(crate) fn calls_tools(&self, id: LaneId) -> bool {
        self.get(id).is_some_and(|connection| connection.calls_tools)
    }

    /// True if a lane waits for an answer.
    pub(crate) fn is_awaiting_reply(&self, id: LaneId) -> bool {
        self.get(id).is_some_and(UpstreamConnection::is_awaiting_reply)
    }

    /// True if a worker is assigned to a lane.
    pub(crate) fn holds_worker(&self, id: LaneId) -> bool {
        self.get(id).is_some_and(UpstreamConnection::holds_worker)
    }

    /// True if a worker is assigned to a lane of this owner.
    pub(crate) fn owner_holds_worker(&self, owner: Owner) -> bool {
        self.of_owner(owner).any(UpstreamConnection::holds_worker)
    }

    /// True if a lane of this owner waits in the upstream's queue.
    pub(crate) fn owner_is_queued(&self, owner: Owner) -> bool {
        self.of_owner(owner).any(UpstreamConnection::is_queued)
    }

    /// Position of a lane in the upstream's queue, and the time since which it waits.
    pub(crate) fn queue_position(&self, id: LaneId) -> Option<QueuePlace> {
        self.get(id)?.queue_position()
    }

    /// When a worker was assigned to a lane.
    pub(crate) fn granted_at(&self, id: LaneId) -> Option<Instant> {
        self.get(id)?.granted_at
    }

    /// Number of the lane's current attempt, for messages and logs.
    pub(crate) fn lane(&self, id: LaneId) -> Lane {
        self.get(id).map_or(Lane(u32::MAX), |connection| connection.lane)
    }

    /// Sends a request on a ready lane.
    pub(crate) fn request(&mut self, now: Instant, id: LaneId, request: LaneRequest) {
        if let Some((connection, shared)) = self.get_mut(id) {
            let (request, _) = shared.voice_encoding.encode_voice(request);
            connection.send_request(now, request, shared);
        }
    }

    /// Marks the answer on a lane as complete.
    pub(crate) fn complete_reply(&mut self, id: LaneId) {
        if let Some((connection, shared)) = self.get_mut(id) {
            shared.busy.forget(connection.service.purpose);
            shared.moves = 0;
            connection.complete_reply();
        }
    }

    /// True if this owner's request failed only because of its server, and may be sent again on another lane: the server was
    /// busy, so that lane is dialled after a pause; or it is misconfigured, and another upstream may serve the request.
    pub(crate) fn may_ask_again(&self, now: Instant, owner: Owner, failure: &ConnectionFailure) -> bool {
        let LaneShared { busy, times, .. } = &self.shared;
        failure.may_move || failure.is_busy() && busy.may_ask_again(now, owner.purpose(), times)
    }

    /// Puts a ready lane to use until it ends. Its end then is a failure without a retry.
    pub(crate) fn engage(&mut self, id: LaneId) {
        if let Some((connection, _)) = self.get_mut(id) {
            connection.engage();
        }
    }

    /// Sets the initialisation of a lane.
    pub(crate) fn initialise(&mut self, now: Instant, id: LaneId, init: LaneRequest) {
        if let Some((connection, shared)) = self.get_mut(id) {
            connection.initialise_with(now, init, shared);
        }
    }

    /// Waits for another initialisation of a lane, because the upstream refused the last one.
    pub(crate) fn await_init(&mut self, id: LaneId) {
        if let Some((connection, _)) = self.get_mut(id) {
            connection.await_init();
        }
    }

    /// Sets the number of outstanding answers. They are drained when the lane is retired.
    pub(crate) fn await_replies(&mut self, now: Instant, id: LaneId, answers: u16) {
        if let Some((connection, shared)) = self.get_mut(id) {
            connection.await_replies(now, answers, &shared.times);
        }
    }

    /// Counts the wait in the queue from now on, because the client begins to wait for this lane.
    pub(crate) fn restart_queue_wait(&mut self, now: Instant, id: LaneId) {
        if let Some((connection, shared)) = self.get_mut(id) {
            connection.restart_queue_wait(now, &shared.times);
        }
    }

    /// Closes a lane politely. Its owner keeps it.
    pub(crate) fn close(&mut self, now: Instant, id: LaneId) {
        if let Some((connection, shared)) = self.get_mut(id) {
            connection.close(now, shared);
        }
    }

    /// Closes a lane with an encoded message. Its owner keeps it.
    pub(crate) fn close_with_message(&mut self, now: Instant, id: LaneId, message: String) {
        if let Some((connection, shared)) = self.get_mut(id) {
            connection.close_with_message(now, message, shared);
        }
    }

    /// Notes that another upstream may serve the requests of a lane whose own refuses all of them.
    pub(crate) fn mark_replaceable(&mut self, lane: Lane) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.connection.lane == lane) {
            slot.connection.is_replaceable = true;
        }
    }

    /// Notes whether the dialect of a lane offers tools in messages.
    pub(crate) fn set_calls_tools(&mut self, lane: Lane, calls_tools: bool) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.connection.lane == lane) {
            slot.connection.calls_tools = calls_tools;
        }
    }

    /// Handles the opened transport of a lane. Unknown lanes are ignored.
    pub(crate) fn handle_opened(&mut self, now: Instant, lane: Lane) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.connection.lane == lane) {
            slot.connection.handle_opened(now, &mut self.shared);
        }
    }

    /// Handles a message of the upstream. `None` for an unknown lane.
    pub(crate) fn handle_event<'e>(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &'e LaneEvent<'e>,
        meta: MessageMeta<'e>,
    ) -> Option<LaneSignal<'e>> {
        if matches!(event, LaneEvent::Granted) {
            self.pass_on_worker(now, lane);
        }
        let slot = self.slots.iter_mut().find(|slot| slot.connection.lane == lane)?;
        let (id, owner) = (slot.id, slot.owner);
        let was_awaiting_reply = slot.connection.is_awaiting_reply();
        if was_awaiting_reply
            && owner != Owner::Closing
            && is_progress(slot.connection.service.purpose, event)
        {
            self.last_output_at = Some(now);
        }
        let mut change = slot.connection.handle_event(now, event, &mut self.shared);
        let LaneShared { busy, times, rng, moves, .. } = &mut self.shared;
        match &mut change {
            ConnectionChange::Failed(failure) if failure.is_busy() => {
                let answer = BusyAnswer { detail: &failure.detail, retry_after: meta.retry_after };
                busy.record_refusal(now, owner.purpose(), answer, times, rng);
            }
            ConnectionChange::Failed(failure) if failure.may_move => {
                *moves += 1;
                failure.may_move = *moves <= MOVES_MAX;
            }
            _ => {}
        }
        if owner == Owner::Closing {
            self.forget_if_gone(id);
        }
        Some(LaneSignal { id, owner, change, message: Some((event, meta)), was_awaiting_reply })
    }

    /// Handles the closed transport of a lane. `None` for an unknown lane.
    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        lane: Lane,
        reason: &DisconnectReason,
    ) -> Option<LaneSignal<'static>> {
        let slot = self.slots.iter_mut().find(|slot| slot.connection.lane == lane)?;
        let (id, owner) = (slot.id, slot.owner);
        let change = slot.connection.handle_closed(now, reason, &mut self.shared);
        if owner == Owner::Closing {
            self.forget_if_gone(id);
        }
        Some(LaneSignal { id, owner, change, message: None, was_awaiting_reply: false })
    }

    /// Lanes whose deadline has expired, oldest first.
    pub(crate) fn expired(&self, now: Instant) -> Vec<LaneId> {
        let is_expired = |slot: &&Slot| slot.deadline(self.are_held).is_some_and(|at| at <= now);
        self.slots.iter().filter(is_expired).map(|slot| slot.id).collect()
    }

    /// Handles the expired deadline of a lane. The signal has no change if the deadline has not expired. `None` for an unknown
    /// lane.
    pub(crate) fn handle_timeout(&mut self, now: Instant, id: LaneId) -> Option<LaneSignal<'static>> {
        let session_holds_worker = self.slots.iter().any(|slot| slot.connection.holds_worker());
        let slot = self.slots.iter_mut().find(|slot| slot.id == id)?;
        let owner = slot.owner;
        let change = slot.connection.handle_timeout(now, session_holds_worker, &mut self.shared);
        if owner == Owner::Closing {
            self.forget_if_gone(id);
        }
        Some(LaneSignal { id, owner, change, message: None, was_awaiting_reply: false })
    }

    /// Instant of the last output that an owner waited for.
    pub(crate) const fn last_output_at(&self) -> Option<Instant> {
        self.last_output_at
    }

    /// Earliest deadline of all lanes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.deadline(self.are_held)).min()
    }
}

#[cfg(test)]
mod tests;
