//! Places in queues: a lane that waits for a worker takes the first worker that the session is assigned.
//!
//! A lane that was left stays in its queue until it has a worker, because a queued client that has gone costs the gateway that
//! worker. Until then, the next lane that waits can use this place. A lane in one upstream's queue may move to another upstream
//! that has room. If the old place gets a worker first, that worker serves the lane.

use std::time::Instant;

use super::{
    LaneId, Lanes, Owner, Slot,
    closing::MAX_UNNEEDED,
    connection::{LaneService, UpstreamConnection},
};
use crate::vocabulary::{Lane, Mode};

impl Lanes {
    /// True if a new request can take over an unneeded lane that waits in an upstream's queue.
    pub(crate) fn has_place_in_queue(&self, now: Instant, owner: Owner, mode: Mode) -> bool {
        self.place_in_queue(now, LaneService { purpose: owner.purpose(), mode }).is_some()
    }

    /// The unneeded lane that waits in a queue, if there is one for this service.
    pub(super) fn place_in_queue(&self, now: Instant, service: LaneService) -> Option<usize> {
        let moves_at = Some(now).filter(|_| self.unneeded_count() < MAX_UNNEEDED);
        self.unneeded_index(|connection| connection.can_return_to_queue(moves_at, service))
    }

    fn unneeded_index(&self, is_it: impl Fn(&UpstreamConnection) -> bool) -> Option<usize> {
        self.slots.iter().position(|slot| slot.owner == Owner::Closing && is_it(&slot.connection))
    }

    fn unneeded_count(&self) -> usize {
        self.closing().filter(|connection| connection.is_unneeded()).count()
    }

    /// Dials held lanes while closing lanes leave room. A lane that is not dialled takes over a place in a queue if there is
    /// one.
    pub(crate) fn dial_waiting(&mut self, now: Instant) {
        let is_undialled = |slot: &&Slot| slot.owner != Owner::Closing && slot.connection.is_undialled();
        let waiting: Vec<LaneId> = self.slots.iter().filter(is_undialled).map(|slot| slot.id).collect();
        for id in waiting {
            let Some(at) = self.slots.iter().position(|slot| slot.id == id) else { continue };
            let service = self.slots[at].connection.service;
            let has_room = self.can_dial_beside(service.purpose, self.slots[at].spare);
            let place = self.place_in_queue(now, service);
            let place = place.map(|index| self.slots.remove(index).connection);
            let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == id) else { continue };
            match place {
                Some(place) => _ = slot.connection.take_place_of(now, place, &mut self.shared),
                None if has_room => {
                    let not_before = self.shared.busy.next_at(service.purpose);
                    slot.connection.dial_held(now, not_before, &mut self.shared);
                }
                None => {}
            }
        }
    }

    /// Moves a lane that waits in a queue to another upstream that has room. Returns false if the lane does not wait, or the
    /// session has too many places already. The lane's owner does not notice.
    pub(crate) fn leave_queue_for_room(&mut self, now: Instant, lane: Lane) -> bool {
        let is_it = |slot: &&mut Slot| {
            slot.connection.lane == lane
                && slot.connection.is_queued()
                && !matches!(slot.owner, Owner::Closing | Owner::Standby | Owner::Relay)
        };
        let has_room = self.unneeded_count() < MAX_UNNEEDED;
        let Some(slot) = self.slots.iter_mut().find(is_it).filter(|_| has_room) else { return false };
        let next = self.shared.allocate_lane();
        let left = slot.connection.leave_place(now, next, &mut self.shared);
        self.keep_left(left);
        true
    }

    /// Gives a worker to a lane that needs one, when the worker was assigned to a lane that was left.
    pub(super) fn pass_on_worker(&mut self, now: Instant, lane: Lane) {
        let is_granted = |connection: &UpstreamConnection| {
            connection.lane == lane && connection.can_return_to_queue(None, connection.service)
        };
        let Some(granted) = self.unneeded_index(is_granted) else { return };
        let service = self.slots[granted].connection.service;
        let needs_it = |slot: &Slot| {
            !matches!(slot.owner, Owner::Closing | Owner::Standby | Owner::Relay)
                && slot.connection.needs_worker()
                && slot.connection.service == service
        };
        let Some(needy) = self.slots.iter().find(|slot| needs_it(slot)).map(|slot| slot.id) else { return };
        let granted = self.slots.remove(granted).connection;
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == needy) else { return };
        let mut left = slot.connection.take_place_of(now, granted, &mut self.shared);
        left.close(now, &mut self.shared);
        self.keep_left(left);
    }

    /// Keeps a lane that was left until its transport is gone.
    fn keep_left(&mut self, connection: UpstreamConnection) {
        if !connection.is_gone() {
            let id = self.allocate_id();
            self.slots.push(Slot { id, owner: Owner::Closing, spare: 0, connection });
        }
    }
}
