//! What the lanes of a session share: the list of things to do, the player, what was said, how voices are written,
//! randomness, patience, and those on their way out.

use std::time::{Duration, Instant};

use super::{
    dialogue::history::History,
    outbox::Actions,
    tts::{player::Player, voices::VoiceEncodingChoice},
    upstream::connection::UpstreamConnection,
};
use crate::{event::Lane, mapping::profile::LaneTimeouts};

/// What the lanes of a session share.
#[derive(Debug)]
pub(crate) struct LaneContext {
    pub(crate) out: Actions,
    pub(crate) player: Player,
    pub(crate) history: History,
    pub(crate) segment_ids: SegmentIds,
    pub(crate) rng: fastrand::Rng,
    pub(crate) lane_times: LaneTimeouts,
    pub(crate) voice_encoding: VoiceEncodingChoice,
    /// Links that are done and wait for the end of their transport.
    pub(crate) closing: Vec<UpstreamConnection>,
    /// A lane of this session holds a worker; others may wait for it.
    pub(crate) holds_worker: bool,
    /// The session is to be over by then: voxbridge stops.
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
            player,
            history,
            segment_ids: SegmentIds::default(),
            rng,
            lane_times,
            voice_encoding,
            closing: Vec::new(),
            holds_worker: false,
            drain_deadline: None,
            next_lane: 0,
        }
    }

    /// A number no lane of this session has had.
    pub(crate) const fn allocate_lane(&mut self) -> Lane {
        let lane = Lane(self.next_lane);
        self.next_lane += 1;
        lane
    }

    /// A context of lanes alone.
    #[cfg(test)]
    pub(crate) fn for_lane_tests(lane_times: LaneTimeouts) -> Self {
        let profile = crate::mapping::Library::embedded().unwrap().profile("speech").unwrap();
        let voice_encoding = VoiceEncodingChoice::new([].into());
        Self::new(lane_times, voice_encoding, Player::new(4096, profile.playout), History::new(0), 1)
    }

    /// Whether a lane that was left is still there.
    pub(crate) fn is_closing(&self, lane: Lane) -> bool {
        self.closing.iter().any(|connection| connection.lane() == lane)
    }

    /// Until when an answer that nobody wants is waited out.
    pub(crate) fn lane_drain_deadline(&self, now: Instant) -> Instant {
        let unhurried = now + Duration::from_millis(self.lane_times.drain_max_ms);
        self.drain_deadline.map_or(unhurried, |by| unhurried.min(by))
    }

    /// By when everything is to be over.
    pub(crate) const fn drain_deadline(&self) -> Option<Instant> {
        self.drain_deadline
    }

    /// From now on nothing is waited for longer than until then.
    pub(crate) fn set_drain_deadline(&mut self, by: Instant) {
        self.drain_deadline = Some(by);
        self.closing.iter_mut().for_each(|connection| connection.shorten_deadline(by));
    }

    /// Whether another lane may be dialled; if not, when one of [`LaneContext::closing`] is gone.
    pub(crate) fn can_dial(&self) -> bool {
        let draining = self.closing.iter().filter(|connection| connection.is_draining()).count();
        draining <= MAX_DRAINING && self.closing.len() <= MAX_CLOSING
    }
}

/// The numbers of utterances and turns, in the order they began.
#[derive(Debug, Default)]
pub(crate) struct SegmentIds(u32);

impl SegmentIds {
    /// The next number.
    pub(crate) const fn next_id(&mut self) -> u32 {
        let number = self.0;
        self.0 += 1;
        number
    }
}

/// Lanes on their way out above which none is dialled: a client that starts and cancels, and an upstream that takes long
/// to say goodbye, would else hold one worker after the other.
const MAX_CLOSING: usize = 2;

/// Answers for nobody that are waited out at a time: one more question then waits, so that a client takes two workers at
/// most.
const MAX_DRAINING: usize = 1;
