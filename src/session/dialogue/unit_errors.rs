//! Units that the upstream failed to process, in a session that continues (field notes §4).
//!
//! The failed unit is over, and the next one may succeed. After several failures in a row the session counts as lost.

use std::time::Instant;

use super::{Dialogue, rollover::DialogueUpstream};
use crate::session::{outbox::Observation, timers::Timer, tools::Tools};

/// Consecutive failures after which a session is lost. One may be an accident; three units are what a new session needs
/// to become useful.
const UNIT_ERRORS_MAX: u32 = 3;

impl Dialogue {
    /// Handles an error that the upstream reported for a unit.
    pub(super) fn handle_unit_error(&mut self, now: Instant, detail: &str, tools: &mut Tools) {
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        // The unit is not counted as answered.
        session.tracker.in_flight.take();
        tools.timers.clear(&[Timer::Reply, Timer::ReplyEnd]);
        session.unit_errors += 1;
        if session.unit_errors < UNIT_ERRORS_MAX || !tools.lanes.is_engaged(session.id) {
            return;
        }
        let detail = format!("the upstream failed on {UNIT_ERRORS_MAX} seconds of audio in a row: {detail}");
        let lane = tools.lanes.lane(session.id);
        tools.lanes.close(now, session.id, &mut tools.out);
        tools.out.observe(Observation::LaneFailed { lane, words: detail.clone() });
        self.handle_upstream_loss(now, detail, tools);
    }
}
