//! Lanes that their owners have left: closes them, and bounds their number.

use std::time::{Duration, Instant};

use super::{LaneId, Lanes, Owner, connection::UpstreamConnection};
use crate::vocabulary::LanePurpose;

/// Unneeded lanes of a session that wait in queues. From this number on, the next request takes one of them over although
/// its queue is stuck.
pub(super) const MAX_UNNEEDED: usize = 4;

/// Most closing lanes while another is dialled. Without this bound, a client that starts and cancels repeatedly would
/// hold many workers of an upstream that closes slowly.
const MAX_CLOSING: usize = 2;

/// Most lanes that drain cancelled answers while another is dialled, so that a client takes two workers at most.
const MAX_DRAINING: usize = 1;

impl Lanes {
    /// Leaves a lane politely once no answer is outstanding.
    pub(crate) fn retire(&mut self, now: Instant, id: LaneId) {
        let drain_until = self.latest_drain_end(now);
        let drain_deadline = self.drain_deadline;
        let Some((connection, shared)) = self.get_mut(id) else { return };
        connection.leave(now, drain_until, shared);
        if let Some(by) = drain_deadline {
            // A close always gets its full time, but does not wait for an initialisation longer than that.
            connection.shorten_deadline(by.max(now) + Duration::from_millis(shared.times.close_max_ms));
        }
        self.release(id);
    }

    /// Leaves a lane that is closing already.
    pub(crate) fn release(&mut self, id: LaneId) {
        let Some(index) = self.slots.iter().position(|slot| slot.id == id) else { return };
        let mut slot = self.slots.remove(index);
        slot.owner = Owner::Closing;
        if !slot.connection.is_gone() {
            self.slots.push(slot);
        }
    }

    /// Latest end of a cancelled answer that is drained from now on.
    fn latest_drain_end(&self, now: Instant) -> Instant {
        let unhurried = now + Duration::from_millis(self.shared.times.drain_max_ms);
        self.drain_deadline.map_or(unhurried, |by| unhurried.min(by))
    }

    /// Limits the wait for all closing lanes.
    pub(crate) fn set_drain_deadline(&mut self, by: Instant) {
        self.drain_deadline = Some(by);
        let closing = self.slots.iter_mut().filter(|slot| slot.owner == Owner::Closing);
        closing.for_each(|slot| slot.connection.shorten_deadline(by));
    }

    /// Forgets a lane that is left, once its transport is gone.
    pub(super) fn forget_if_gone(&mut self, id: LaneId) {
        self.slots.retain(|slot| slot.id != id || !slot.connection.is_gone());
    }

    pub(super) fn closing(&self) -> impl Iterator<Item = &UpstreamConnection> {
        self.of_owner(Owner::Closing)
    }

    /// Closing lanes without those that only wait in a queue.
    fn closing_now(&self) -> impl Iterator<Item = &UpstreamConnection> {
        self.closing().filter(|connection| !connection.is_unneeded())
    }

    /// True if the lane is still closing. A lane that only waits in a queue is not.
    pub(crate) fn is_closing(&self, id: LaneId) -> bool {
        let mut closing = self.slots.iter().filter(|slot| slot.owner == Owner::Closing);
        closing.any(|slot| slot.id == id && !slot.connection.is_unneeded())
    }

    /// True if a lane drains a cancelled answer.
    pub(crate) fn is_any_draining(&self) -> bool {
        self.closing().any(UpstreamConnection::is_draining)
    }

    /// True if no part of the session uses a lane.
    pub(crate) fn are_left(&self) -> bool {
        self.slots.iter().all(|slot| slot.owner == Owner::Closing)
    }

    /// True if every lane is gone.
    pub(crate) const fn are_gone(&self) -> bool {
        self.slots.is_empty()
    }

    /// True if lanes remain, and all of them only wait in a queue to be closed.
    pub(crate) fn only_wait_in_queue(&self) -> bool {
        self.are_left() && !self.are_gone() && self.closing_now().next().is_none()
    }

    /// True if this owner may dial another lane. Otherwise a closing lane has to end first.
    pub(crate) fn can_dial(&self, owner: Owner) -> bool {
        self.can_dial_beside(owner.purpose(), 0)
    }

    /// Like [`Lanes::can_dial`], for an owner that could have `spare` lanes beside the one that it dials.
    pub(super) fn can_dial_beside(&self, purpose: LanePurpose, spare: usize) -> bool {
        let stays = |it: &&UpstreamConnection| it.is_unneeded_for_good() && it.service.purpose == purpose;
        self.closing().filter(|it| it.is_draining()).count() <= MAX_DRAINING
            // A stuck queue for one purpose says nothing about the upstreams for another.
            && self.closing().filter(stays).count() < MAX_UNNEEDED
            && self.closing_now().count() <= MAX_CLOSING + spare
    }
}
