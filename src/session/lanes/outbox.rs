//! What owners send and observe without a request, for the lanes' own outbox.

use super::Lanes;
use crate::{
    session::{measurement::Measurement, outbox::Observation},
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
}
