//! The lanes' own outbox: what owners send and observe without a request, and what the bridge takes.

use super::Lanes;
use crate::{
    session::{
        measurement::Measurement,
        outbox::{Observation, lane_outbox::LaneAction, numbered::Numbers},
    },
    vocabulary::{Lane, LaneRequest},
};

impl Lanes {
    /// Sends a message that is not answered by itself, such as a unit of a conversation.
    pub(crate) fn send(&mut self, lane: Lane, message: LaneRequest) {
        self.shared.out.send(lane, message);
    }

    /// Reports what an owner observes on a lane.
    pub(crate) fn observe(&mut self, observation: Observation) {
        self.shared.out.observe(observation);
    }

    /// Reports what an owner measures on a lane.
    pub(crate) fn measure(&mut self, measurement: Measurement) {
        self.shared.out.measure(measurement);
    }

    /// The numbers of its actions, for the client's outbox.
    pub(crate) fn action_numbers(&self) -> Numbers {
        self.shared.out.numbers()
    }

    /// Takes the oldest action, if it is older than the client's oldest one, which has this number.
    pub(crate) fn pop_older(&mut self, of_client: Option<u64>) -> Option<LaneAction> {
        let own = self.shared.out.next_number()?;
        if of_client.is_none_or(|of_client| own < of_client) { self.shared.out.pop() } else { None }
    }

    /// True if the bridge has taken every action.
    pub(crate) fn is_drained(&self) -> bool {
        self.shared.out.next_number().is_none()
    }
}
