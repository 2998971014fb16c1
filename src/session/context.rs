//! What the lanes of a session share: the list of things to do, the mouth, what was said, how voices are written,
//! randomness, patience, and those on their way out.

use std::time::{Duration, Instant};

use super::{
    dialogue::history::Memory,
    outbox::Actions,
    tts::{player::Mouth, voices::Encodings},
    upstream::connection::UpstreamConnection,
};
use crate::{event::Lane, mapping::profile::LaneTimes};

/// What the lanes of a session share.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) out: Actions,
    pub(crate) mouth: Mouth,
    pub(crate) memory: Memory,
    pub(crate) segments: Segments,
    pub(crate) rng: fastrand::Rng,
    pub(crate) times: LaneTimes,
    pub(crate) encodings: Encodings,
    /// Links that are done and wait for the end of their transport.
    pub(crate) leaving: Vec<UpstreamConnection>,
    /// A lane of this session holds a worker; others may wait for it.
    pub(crate) holds_worker: bool,
    /// The session is to be over by then: voxbridge stops.
    hurry: Option<Instant>,
    next_lane: u32,
}

impl Host {
    pub(crate) fn new(
        times: LaneTimes,
        encodings: Encodings,
        mouth: Mouth,
        memory: Memory,
        seed: u64,
    ) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            out: Actions::default(),
            mouth,
            memory,
            segments: Segments::default(),
            rng,
            times,
            encodings,
            leaving: Vec::new(),
            holds_worker: false,
            hurry: None,
            next_lane: 0,
        }
    }

    /// A number no lane of this session has had.
    pub(crate) const fn new_lane(&mut self) -> Lane {
        let lane = Lane(self.next_lane);
        self.next_lane += 1;
        lane
    }

    /// A host of lanes alone.
    #[cfg(test)]
    pub(crate) fn of_times(times: LaneTimes) -> Self {
        let profile = crate::mapping::Library::embedded().unwrap().profile("speech").unwrap();
        let encodings = Encodings::new([].into());
        Self::new(times, encodings, Mouth::new(4096, profile.playout), Memory::new(0), 1)
    }

    /// Whether a lane that was left is still there.
    pub(crate) fn is_leaving(&self, lane: Lane) -> bool {
        self.leaving.iter().any(|link| link.lane() == lane)
    }

    /// Until when an answer that nobody wants is waited out.
    pub(crate) fn drained_by(&self, now: Instant) -> Instant {
        let patient = now + Duration::from_millis(self.times.drain_max_ms);
        self.hurry.map_or(patient, |by| patient.min(by))
    }

    /// By when everything is to be over.
    pub(crate) const fn is_in_hurry(&self) -> Option<Instant> {
        self.hurry
    }

    /// From now on nothing is waited for longer than until then.
    pub(crate) fn hurry(&mut self, by: Instant) {
        self.hurry = Some(by);
        self.leaving.iter_mut().for_each(|link| link.hurry(by));
    }

    /// Whether another lane may be dialled; if not, when one of [`Host::leaving`] is gone.
    pub(crate) fn may_dial(&self) -> bool {
        let draining = self.leaving.iter().filter(|link| link.is_draining()).count();
        draining <= MAX_DRAINING && self.leaving.len() <= MAX_LEAVING
    }
}

/// The numbers of utterances and turns, in the order they began.
#[derive(Debug, Default)]
pub(crate) struct Segments(u32);

impl Segments {
    /// The next number.
    pub(crate) const fn take(&mut self) -> u32 {
        let number = self.0;
        self.0 += 1;
        number
    }
}

/// Lanes on their way out above which none is dialled: a client that starts and cancels, and an upstream that takes long
/// to say goodbye, would else hold one worker after the other.
const MAX_LEAVING: usize = 2;

/// Answers for nobody that are waited out at a time: one more question then waits, so that a client takes two workers at
/// most.
const MAX_DRAINING: usize = 1;
