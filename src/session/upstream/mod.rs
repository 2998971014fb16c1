//! Upstream sessions of a client: their connections, retries and awaited answers.
//!
//! - [`LaneContext`] is the state that all lanes of a session share
//! - [`connection`] is one connection from the dial to the end of its transport; [`backoff`] is its retry policy
//! - [`reply_tracker`] matches the model's output to the unit in flight
//! - [`output_filter`] removes control tokens from the model's text

pub(crate) mod backoff;
pub(crate) mod connection;
pub(crate) mod output_filter;
pub(crate) mod reply_tracker;

use std::time::{Duration, Instant};

use self::connection::UpstreamConnection;
use super::{
    assistant::entries::Entries,
    dialogue::history::History,
    measurement::LanePurpose,
    millis,
    outbox::Actions,
    timers::{Timer, Timers},
    tts::{player::Player, voices::VoiceEncodingChoice},
};
use crate::{
    event::{ClientCommand, EntryId, Lane, Mode, Speaker},
    mapping::profile::LaneTimeouts,
};

/// State that the lanes of a session share.
#[derive(Debug)]
pub(crate) struct LaneContext {
    pub(crate) out: Actions,
    pub(crate) timers: Timers,
    pub(crate) player: Player,
    pub(crate) history: History,
    /// A conversation that takes turns; empty in other profiles.
    pub(crate) entries: Entries,
    pub(crate) segment_ids: SegmentIds,
    pub(crate) rng: fastrand::Rng,
    pub(crate) lane_times: LaneTimeouts,
    pub(crate) voice_encoding: VoiceEncodingChoice,
    /// Connections that are no longer used and wait for the end of their transport.
    pub(crate) closing: Vec<UpstreamConnection>,
    /// True if a lane of this session holds a worker that another of its lanes may be waiting for.
    pub(crate) holds_worker: bool,
    /// The client gets notices while a request waits in the upstream's queue.
    pub(crate) reports_queue: bool,
    /// Latest end of the closing lanes while the session drains.
    drain_deadline: Option<Instant>,
    next_lane: u32,
}

impl LaneContext {
    pub(crate) fn new(
        lane_times: LaneTimeouts,
        voice_encoding: VoiceEncodingChoice,
        player: Player,
        history: History,
        seed: u64,
    ) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            out: Actions::default(),
            timers: Timers::default(),
            player,
            history,
            entries: Entries::default(),
            segment_ids: SegmentIds::default(),
            rng,
            lane_times,
            voice_encoding,
            closing: Vec::new(),
            holds_worker: false,
            reports_queue: false,
            drain_deadline: None,
            next_lane: 0,
        }
    }

    /// Adds the user's words to what later prompts tell the model.
    pub(crate) fn remember_user_words(&mut self, segment_id: u32, text: &str) {
        self.history.push(Speaker::User, segment_id, text);
        self.entries.set_transcript(EntryId(segment_id), text);
    }

    /// Allocates a lane number that this session has not used.
    pub(crate) const fn allocate_lane(&mut self) -> Lane {
        let lane = Lane(self.next_lane);
        self.next_lane += 1;
        lane
    }

    /// Tells the client where a request waits in the upstream's queue, if the client wants to know.
    pub(crate) fn report_queue(&mut self, now: Instant, (position, since): (u32, Instant)) {
        if self.reports_queue {
            let (waited_ms, wait_max_ms) = (millis(now - since), self.lane_times.queue_max_ms);
            self.out.push_client(ClientCommand::Queued { position, waited_ms, wait_max_ms });
        }
    }

    /// Tells the client from time to time where its conversation waits in the upstream's queue, and since when.
    pub(crate) fn report_wait(&mut self, now: Instant, place: Option<(u32, Instant)>) {
        let Some((position, since)) = place else { return self.timers.clear(&[Timer::QueueNotice]) };
        if self.timers.take_expired(Timer::QueueNotice, now) {
            self.timers.set(Timer::QueueNotice, now + QUEUE_NOTICE_INTERVAL);
            let (waited_ms, wait_max_ms) = (millis(now - since), self.lane_times.queue_max_ms);
            self.out.push_client(ClientCommand::Queued { position, waited_ms, wait_max_ms });
        }
        self.timers.set_if_clear(Timer::QueueNotice, now + FIRST_QUEUE_NOTICE);
    }

    /// Context for tests of a single lane.
    #[cfg(test)]
    pub(crate) fn for_lane_tests(lane_times: LaneTimeouts) -> Self {
        let profile = crate::mapping::Library::embedded().unwrap().profile("speech").unwrap();
        let voice_encoding = VoiceEncodingChoice::new([].into());
        let options = crate::session::tts::player::PlayerOptions {
            frame_max_bytes: 4096,
            playout: profile.playout,
            ..Default::default()
        };
        Self::new(lane_times, voice_encoding, Player::new(options), History::new(0), 1)
    }

    /// True if the lane is still closing. A lane that only waits in a queue is not.
    pub(crate) fn is_closing(&self, lane: Lane) -> bool {
        self.closing_now().any(|connection| connection.lane() == lane)
    }

    fn closing_now(&self) -> impl Iterator<Item = &UpstreamConnection> {
        self.closing.iter().filter(|connection| !connection.is_unneeded())
    }

    /// True if a new request can take over an unneeded lane that waits in an upstream's queue.
    pub(crate) fn has_place_in_queue(&self, now: Instant, purpose: LanePurpose, mode: Mode) -> bool {
        self.place_in_queue(now, purpose, mode).is_some()
    }

    /// Takes the unneeded lane that waits in a queue, if there is one for this purpose.
    pub(crate) fn take_from_queue(
        &mut self,
        now: Instant,
        purpose: LanePurpose,
        mode: Mode,
    ) -> Option<UpstreamConnection> {
        self.place_in_queue(now, purpose, mode).map(|index| self.closing.remove(index))
    }

    fn place_in_queue(&self, now: Instant, purpose: LanePurpose, mode: Mode) -> Option<usize> {
        let unneeded = self.closing.len() - self.closing_now().count();
        let moves_at = Some(now).filter(|_| unneeded < MAX_UNNEEDED);
        self.closing.iter().position(|connection| connection.can_return_to_queue(moves_at, purpose, mode))
    }

    /// True if lanes remain, and all of them only wait in a queue to be closed.
    pub(crate) fn only_waits_in_queue(&self) -> bool {
        !self.closing.is_empty() && self.closing_now().next().is_none()
    }

    /// Lets a closing lane handle its transport or a message. Forgets the lane once it is gone.
    pub(crate) fn with_closing(&mut self, lane: Lane, act: impl FnOnce(&mut UpstreamConnection, &mut Self)) {
        let Some(index) = self.closing.iter().position(|connection| connection.lane() == lane) else {
            return;
        };
        let mut connection = self.closing.swap_remove(index);
        act(&mut connection, self);
        if !connection.is_gone() {
            self.closing.push(connection);
        }
    }

    /// Runs the expired timers of the closing lanes.
    pub(crate) fn handle_closing_timeouts(&mut self, now: Instant) {
        for mut connection in std::mem::take(&mut self.closing) {
            connection.handle_timeout(now, self);
            if !connection.is_gone() {
                self.closing.push(connection);
            }
        }
    }

    /// Latest end of a cancelled answer that is drained from now on.
    pub(crate) fn lane_drain_deadline(&self, now: Instant) -> Instant {
        let unhurried = now + Duration::from_millis(self.lane_times.drain_max_ms);
        self.drain_deadline.map_or(unhurried, |by| unhurried.min(by))
    }

    /// Latest end of the closing lanes, while the session drains.
    pub(crate) const fn drain_deadline(&self) -> Option<Instant> {
        self.drain_deadline
    }

    /// Limits the wait for all closing lanes.
    pub(crate) fn set_drain_deadline(&mut self, by: Instant) {
        self.drain_deadline = Some(by);
        self.closing.iter_mut().for_each(|connection| connection.shorten_deadline(by));
    }

    /// True if another lane may be dialled. Otherwise a lane of [`LaneContext::closing`] has to end first.
    pub(crate) fn can_dial(&self) -> bool {
        self.can_dial_beside(0)
    }

    /// Like [`LaneContext::can_dial`], for an owner that could have `spare` lanes beside the one that it dials.
    pub(crate) fn can_dial_beside(&self, spare: usize) -> bool {
        let count = |is: fn(&UpstreamConnection) -> bool| self.closing.iter().filter(|it| is(it)).count();
        count(UpstreamConnection::is_draining) <= MAX_DRAINING
            && count(UpstreamConnection::is_unneeded_for_good) < MAX_UNNEEDED
            && self.closing_now().count() <= MAX_CLOSING + spare
    }
}

/// Numbers of utterances and turns, in the order of their start.
#[derive(Debug, Default)]
pub(crate) struct SegmentIds(u32);

impl SegmentIds {
    /// Allocates the next number.
    pub(crate) const fn next_id(&mut self) -> u32 {
        let number = self.0;
        self.0 += 1;
        number
    }
}

/// Unneeded lanes of a session that wait in queues. From this number on, the next request takes one of them over although
/// its queue is stuck.
const MAX_UNNEEDED: usize = 4;

/// Time in the queue before the first notice. The short queue of an ordinary rollover stays unnoticed.
const FIRST_QUEUE_NOTICE: Duration = Duration::from_secs(2);
/// Time between two notices.
const QUEUE_NOTICE_INTERVAL: Duration = Duration::from_secs(5);

/// Most closing lanes while another is dialled. Without this bound, a client that starts and cancels repeatedly would
/// hold many workers of an upstream that closes slowly.
const MAX_CLOSING: usize = 2;

/// Most lanes that drain cancelled answers while another is dialled, so that a client takes two workers at most.
const MAX_DRAINING: usize = 1;
