//! Outbox of the lanes: what leaves for the upstreams, and the observations about them.

use super::{Observation, numbered::Numbered};
use crate::{
    session::measurement::Measurement,
    vocabulary::{Lane, LanePurpose, LaneRequest, Mode},
};

/// One action on a lane.
#[derive(Debug, PartialEq)]
pub(crate) enum LaneAction {
    /// Connect to an upstream that serves this mode and purpose.
    Open(Lane, Mode, LanePurpose),
    /// Send a request to an upstream.
    Send(Lane, LaneRequest),
    /// Drop the transport. Later messages of this lane are ignored.
    Drop(Lane),
    /// Report to the log and the metrics.
    Observe(Observation),
}

/// Actions on lanes, oldest first.
pub(crate) type LaneOutbox = Numbered<LaneAction>;

impl LaneOutbox {
    pub(crate) fn send(&mut self, lane: Lane, request: LaneRequest) {
        self.push(LaneAction::Send(lane, request));
    }

    pub(crate) fn observe(&mut self, observation: Observation) {
        self.push(LaneAction::Observe(observation));
    }

    pub(crate) fn measure(&mut self, measurement: Measurement) {
        self.push(LaneAction::Observe(Observation::Measured(measurement)));
    }
}
