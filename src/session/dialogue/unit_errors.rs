//! A second of audio that the upstream could not work on, and said so, in a session that goes on (field notes §4).
//!
//! The unit it was about is over, and the next one may do better: nobody waits for an answer that does not come. An
//! upstream that can do nothing any more is lost like one that is silent.

use std::time::Instant;

use super::{Dialogue, SessionSnapshot, rollover::DialogueUpstream};
use crate::session::{context::LaneContext, outbox::Observation};

/// So many in a row, and an upstream is of no use: one may be an accident, three are as many as a new session takes to be
/// of use at all.
const UNIT_ERRORS_MAX: u32 = 3;

impl Dialogue {
    /// The upstream could not answer.
    pub(super) fn handle_unit_error(
        &mut self,
        now: Instant,
        detail: &str,
        view: &SessionSnapshot,
        context: &mut LaneContext,
    ) {
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        // No answer, so it does not count as one.
        session.tracker.take_in_flight();
        session.unit_errors += 1;
        if session.unit_errors < UNIT_ERRORS_MAX || !session.connection.is_engaged() {
            return;
        }
        let detail = format!("the upstream could not work on {UNIT_ERRORS_MAX} seconds in a row: {detail}");
        let lane = session.connection.lane();
        session.connection.close(now, context);
        context.out.observe(Observation::LaneFailed { lane, words: detail.clone() });
        self.handle_upstream_loss(now, detail, view, context);
    }
}
