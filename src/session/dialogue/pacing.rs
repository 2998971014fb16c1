//! When the next unit is due: the user's audio as it fills, silence where the model waits for it, and otherwise nothing.
//!
//! A model makes a step for each unit and stands still without one, in the middle of a word too (field notes §1.6, §7.8).
//! So while it speaks, and for a while after the client's last audio, silence takes the place of what does not come.

use std::time::{Duration, Instant};

use super::{
    Converse, Scene,
    rollover::{Place, Talk},
};
use crate::session::upstream::reply_tracker::UNIT;

impl Converse {
    /// When the next unit is to be sent; none as long as nothing changes.
    pub(super) fn unit_due(&self, now: Instant, scene: &Scene, audible: bool) -> Option<Instant> {
        let Place::Talking(talk) = &self.place else { return None };
        if talk.steps.in_flight().is_some() || talk.rolling.is_some() {
            return None;
        }
        if self.turns.wants_force() {
            // The partial unit goes at once: that saves up to a second of a model talking to nobody (§7.18).
            return Some(now);
        }
        let not_before = talk.steps.sent_at().map(|at| at + self.rules.converse.unit_min);
        if self.mic.has_unit() {
            return Some(not_before.map_or(now, |at| at.max(now)));
        }
        self.silence_due(talk, scene, audible)
    }

    /// When silence fills up what is there of a unit.
    fn silence_due(&self, talk: &Talk, scene: &Scene, audible: bool) -> Option<Instant> {
        let rules = &self.rules.converse;
        let clock = talk.steps.sent_at().unwrap_or(talk.ready_at) + UNIT;
        let speaking = self.turns.is_open() || self.turns.is_fenced() || audible || scene.floor_taken;
        // A frame lasts until the next one comes; but who sends a file at once must not make a speaking model wait.
        let longest = if speaking { UNIT } else { Duration::MAX };
        let mic_until = scene.mic.map(|(at, length)| at + length.min(longest) + rules.gap);
        let due = mic_until.map_or(clock, |until| clock.max(until));
        // What was kept while there was no model reaches one later than it came, and is answered later.
        let came = scene.client_at.into_iter().chain(scene.mic.map(|(at, length)| at + length));
        let last = came.chain(talk.steps.spoken_at()).max();
        let lingers = last.is_some_and(|last| due <= last + rules.gap + rules.linger);
        (speaking || lingers || self.mic.len() > 0).then_some(due)
    }

    /// When [`Converse::proceed`] or [`Converse::timeout`] has something to do.
    pub(crate) fn next_timeout(
        &self,
        now: Instant,
        scene: &Scene,
        host: &crate::session::context::Host,
    ) -> Option<Instant> {
        let links = self.links().filter_map(|link| link.next_timeout(&host.times)).min();
        let unit = self.unit_due(now, scene, host.mouth.is_audible());
        let barge_in = &self.rules.barge_in;
        let fence = self.turns.fence_due(scene.voice_at, barge_in).filter(|_| !scene.floor_taken);
        let step = self.step_due();
        let limits = self.limits_due(now, scene, host);
        let redial = self.redial_due(host);
        let standby = self.standby_due();
        [links, unit, fence, self.turns.yield_due(barge_in), step, limits, redial, standby]
            .into_iter()
            .flatten()
            .min()
    }

    fn step_due(&self) -> Option<Instant> {
        let Place::Talking(talk) = &self.place else { return None };
        let unit = talk.steps.in_flight()?;
        let lost = unit.at + self.rules.converse.step_max;
        Some(talk.steps.open_end_due().map_or(lost, |due| due.min(lost)))
    }
}
