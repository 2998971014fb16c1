//! The line of the lanes that wait for a place at upstreams without a queue: first come, first served.
//!
//! A pool has one line. A lane takes the first free place at any upstream that serves it, unless an earlier lane wants that
//! place too. For reports, each lane stands at one upstream.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{signals::Signals, upstream::PooledUpstream};
use crate::vocabulary::LanePurpose;

/// The line of a pool.
#[derive(Debug, Default, Clone)]
pub(super) struct Line(Arc<LineShared>);

#[derive(Debug, Default)]
struct LineShared {
    state: Mutex<LineState>,
    signals: Signals,
}

#[derive(Debug, Default)]
struct LineState {
    next: u64,
    waiting: BTreeMap<DialNumber, Waiter>,
}

/// Number of a lane's dial, in order of arrival. A dial keeps it at every upstream that it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DialNumber(u64);

/// A lane in line.
#[derive(Debug)]
struct Waiter {
    /// The upstream that it is reported at.
    stands_at: Arc<PooledUpstream>,
    /// The upstreams that serve it.
    upstreams: Vec<Arc<PooledUpstream>>,
    purpose: LanePurpose,
}

/// A lane's place in the line, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct PlaceInLine(LineView);

/// Where a lane waits, for reports to its session.
#[derive(Debug, Clone)]
pub(super) struct LineView {
    line: Line,
    number: DialNumber,
}

impl Waiter {
    /// True if it takes a place at this upstream: at one that is ejected only if all are, and at a misconfigured one only if no
    /// other is in service.
    fn wants(&self, upstream: &PooledUpstream) -> bool {
        let rank = |it: &PooledUpstream| (!it.is_in_service(), it.is_misconfigured(self.purpose));
        self.upstreams.iter().any(|it| std::ptr::eq(&**it, upstream))
            && self.upstreams.iter().all(|it| rank(upstream) <= rank(it))
    }

    fn stands_at(&self, upstream: &PooledUpstream) -> bool {
        std::ptr::eq(&*self.stands_at, upstream)
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        // Every change leaves a valid map, so a poisoned lock holds valid state.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals of the pool, by which the line moves.
    pub(super) fn signals(&self) -> &Signals {
        &self.0.signals
    }

    /// The number of the next dial.
    pub(super) fn next_number(&self) -> DialNumber {
        let mut state = self.state();
        state.next += 1;
        DialNumber(state.next)
    }

    /// True if a lane that came before this dial wants a place at the upstream.
    pub(super) fn has_earlier(&self, number: DialNumber, upstream: &PooledUpstream) -> bool {
        self.state().waiting.range(..number).any(|(_, waiter)| waiter.wants(upstream))
    }

    /// True if a lane waits for a place at the upstream.
    pub(super) fn is_wanted(&self, upstream: &PooledUpstream) -> bool {
        self.state().waiting.values().any(|waiter| waiter.wants(upstream))
    }

    /// Number of lanes that are reported at the upstream.
    pub(super) fn waiting_at(&self, upstream: &PooledUpstream) -> u32 {
        let count = self.state().waiting.values().filter(|waiter| waiter.stands_at(upstream)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Adds a lane that these upstreams serve.
    pub(super) fn join(
        &self,
        number: DialNumber,
        stands_at: Arc<PooledUpstream>,
        upstreams: Vec<Arc<PooledUpstream>>,
        purpose: LanePurpose,
    ) -> PlaceInLine {
        stands_at.lane_opened();
        self.state().waiting.insert(number, Waiter { stands_at, upstreams, purpose });
        PlaceInLine(LineView { line: self.clone(), number })
    }
}

impl LineView {
    /// Position from 1 among the lanes that want a place at the same upstreams; `None` once the lane has left the line.
    pub(super) fn position(&self) -> Option<u32> {
        let state = self.line.state();
        let own = state.waiting.get(&self.number)?;
        let competes =
            |(_, waiter): &(_, &Waiter)| own.upstreams.iter().any(|upstream| waiter.wants(upstream));
        let before = state.waiting.range(..self.number).filter(competes).count();
        u32::try_from(before + 1).ok()
    }
}

impl PlaceInLine {
    pub(super) fn view(&self) -> LineView {
        self.0.clone()
    }

    /// Moves the lane to this upstream in reports, if its own is no longer in service.
    pub(super) fn stand_at(&self, upstream: Arc<PooledUpstream>) {
        let mut state = self.0.line.state();
        if let Some(waiter) = state.waiting.get_mut(&self.0.number)
            && !waiter.stands_at.is_in_service()
        {
            waiter.stands_at.lane_closed();
            upstream.lane_opened();
            waiter.stands_at = upstream;
        }
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        let left = self.0.line.state().waiting.remove(&self.0.number);
        if let Some(waiter) = left {
            waiter.stands_at.lane_closed();
        }
        self.0.line.signals().notify_places();
    }
}
