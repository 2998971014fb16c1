//! Search for room at another upstream, for lanes that wait in their own upstream's queue.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    bridge::Input,
    server::upstream_pool::{Pool, lane_leases::LaneLeases},
    vocabulary::{LanePurpose, Mode},
};

/// Time in a queue before the first search: a gateway also queues a lane that it serves at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two searches.
const INTERVAL: Duration = Duration::from_secs(1);

/// The search of one session.
#[derive(Debug, Default)]
pub(super) struct RoomSearch {
    looked_at: Option<Instant>,
    /// The upstream that has room.
    upstream: Option<(LanePurpose, Mode, String)>,
}

impl RoomSearch {
    /// Instant of the next search; `None` while no lane waits.
    pub(super) fn next_look(&self, leases: &LaneLeases) -> Option<Instant> {
        let first = leases.waiting().map(|(_, since)| since + PATIENCE).min()?;
        Some(self.looked_at.map_or(first, |at| first.max(at + INTERVAL)))
    }

    /// Searches for room if a search is due. The lane that the bridge then opens goes to the upstream found.
    pub(super) fn look(&mut self, now: Instant, pool: &Pool, leases: &LaneLeases) -> Option<Input<'static>> {
        // The last answer opened no lane.
        self.upstream = None;
        self.next_look(leases).filter(|at| *at <= now)?;
        self.looked_at = Some(now);
        let mut waiting = leases.waiting().filter(|(_, since)| *since + PATIENCE <= now);
        let (lane, upstream) = waiting.find_map(|(lane, _)| Some((lane, pool.room_beside(lane, leases)?)))?;
        let (purpose, mode) = leases.get(lane)?.request();
        self.upstream = Some((purpose, mode, upstream));
        Some(Input::PlaceFound(lane))
    }

    /// The upstream for the lane that the bridge opens because of the last answer.
    pub(super) fn take_upstream(&mut self, mode: Mode, purpose: LanePurpose) -> Option<String> {
        let found = self.upstream.take_if(|found| (found.0, found.1) == (purpose, mode));
        found.map(|(.., upstream)| upstream)
    }
}
