//! A second of audio that the upstream could not work on, and said so, in a session that goes on (field notes §4).
//!
//! The unit it was about is over, and the next one may do better: nobody waits for an answer that does not come. An
//! upstream that can do nothing any more is lost like one that is silent.

use std::time::Instant;

use super::{Converse, Scene, rollover::Place};
use crate::session::{context::Host, outbox::Observation};

/// So many in a row, and an upstream is of no use: one may be an accident, three are as many as a new session takes to be
/// of use at all.
const TROUBLES_MAX: u32 = 3;

impl Converse {
    /// The upstream could not answer.
    pub(super) fn troubled(&mut self, now: Instant, words: &str, scene: &Scene, host: &mut Host) {
        let Place::Talking(talk) = &mut self.place else { return };
        // No answer, so it does not count as one.
        talk.steps.take_in_flight();
        talk.troubles += 1;
        if talk.troubles < TROUBLES_MAX || !talk.link.is_engaged() {
            return;
        }
        let words = format!("the upstream could not work on {TROUBLES_MAX} seconds in a row: {words}");
        let lane = talk.link.lane();
        talk.link.close(now, host);
        host.out.observe(Observation::LaneFailed { lane, words: words.clone() });
        self.lose(now, words, scene, host);
    }
}
