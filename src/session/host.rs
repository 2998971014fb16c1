//! What the lanes of a session share: the list of things to do, randomness, patience, and those on their way out.

use super::{action::Actions, link::Link};
use crate::{event::Lane, mapping::profile::LaneTimes};

/// What the lanes of a session share.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) out: Actions,
    pub(crate) rng: fastrand::Rng,
    pub(crate) times: LaneTimes,
    /// Links that are done and wait for the end of their transport.
    pub(crate) leaving: Vec<Link>,
    next_lane: u32,
}

impl Host {
    pub(crate) fn new(times: LaneTimes, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { out: Actions::default(), rng, times, leaving: Vec::new(), next_lane: 0 }
    }

    /// A number no lane of this session has had.
    pub(crate) const fn new_lane(&mut self) -> Lane {
        let lane = Lane(self.next_lane);
        self.next_lane += 1;
        lane
    }

    /// Whether another lane may be dialled; if not, when one of [`Host::leaving`] is gone.
    pub(crate) const fn may_dial(&self) -> bool {
        self.leaving.len() <= MAX_LEAVING
    }
}

/// Lanes on their way out above which none is dialled: a client that starts and cancels, and an upstream that takes long
/// to say goodbye, would else hold one worker after the other.
const MAX_LEAVING: usize = 2;
