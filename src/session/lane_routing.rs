//! Finding whose lane something is about: the ear's, a text's, the conversation's, or one on its way out.

use std::time::Instant;

use super::{
    Phase, Session,
    context::Host,
    settings::{asking, speaking},
    upstream::connection::UpstreamConnection,
};
use crate::event::{Lane, LaneEvent, Mark, Why};

impl Session {
    /// A lane's transport is up.
    pub(crate) fn lane_opened(&mut self, now: Instant, lane: Lane) {
        if self.hear.lane() == Some(lane) {
            self.hear.opened(now, &mut self.host);
        } else if self.speak.lane() == Some(lane) {
            self.speak.opened(now, &mut self.host);
        } else if let Some(converse) = self.converse.as_mut().filter(|converse| converse.owns(lane)) {
            converse.opened(now, lane, &mut self.host);
        } else {
            self.with_leaving(lane, |link, host| link.opened(now, host));
        }
    }

    /// An upstream said something.
    pub(crate) fn lane_event(&mut self, now: Instant, lane: Lane, event: &LaneEvent<'_>, mark: Mark<'_>) {
        let scene = self.scene();
        if self.hear.lane() == Some(lane) {
            let asking = asking(&self.setup.profile, &self.settings);
            self.hear.event(now, event, &asking, &mut self.host);
        } else if self.speak.lane() == Some(lane) {
            let queued = self.speak.event(now, event, &speaking(&self.setup.profile), &mut self.host);
            if queued {
                self.yield_workers(now);
            }
        } else if let Some(converse) = self.converse.as_mut().filter(|converse| converse.owns(lane)) {
            converse.event(now, lane, event, mark, &scene, &mut self.host);
        } else {
            self.with_leaving(lane, |link, host| {
                link.event(now, event, host);
            });
            self.resume(now);
        }
        self.settle(now);
    }

    /// A text waits for a worker: it may be one that this session itself holds.
    fn yield_workers(&mut self, now: Instant) {
        self.hear.yield_worker(now, &mut self.host);
        let scene = self.scene();
        if let Some(converse) = &mut self.converse {
            converse.lend_worker(now, &scene, &mut self.host);
        }
    }

    /// A lane's transport is gone.
    pub(crate) fn lane_closed(&mut self, now: Instant, lane: Lane, why: &Why) {
        let scene = self.scene();
        if self.hear.lane() == Some(lane) {
            let asking = asking(&self.setup.profile, &self.settings);
            self.hear.closed(now, why, &asking, &mut self.host);
        } else if self.speak.lane() == Some(lane) {
            self.speak.closed(now, why, &speaking(&self.setup.profile), &mut self.host);
        } else if let Some(converse) = self.converse.as_mut().filter(|converse| converse.owns(lane)) {
            converse.closed(now, lane, why, &scene, &mut self.host);
        } else {
            self.with_leaving(lane, |link, host| {
                link.closed(now, why, host);
            });
            self.resume(now);
        }
        self.settle(now);
    }

    fn with_leaving(&mut self, lane: Lane, act: impl FnOnce(&mut UpstreamConnection, &mut Host)) {
        let Some(at) = self.host.leaving.iter().position(|link| link.lane() == lane) else { return };
        let mut link = self.host.leaving.swap_remove(at);
        act(&mut link, &mut self.host);
        if !link.is_gone() {
            self.host.leaving.push(link);
        }
    }

    /// Dials what had to wait until a lane was gone.
    pub(super) fn resume(&mut self, now: Instant) {
        if self.phase != Phase::Over {
            let asking = asking(&self.setup.profile, &self.settings);
            self.hear.resume(now, &asking, &mut self.host);
            self.speak.resume(now, &speaking(&self.setup.profile), &mut self.host);
        }
    }

    /// Time has passed for the lanes.
    pub(super) fn lanes_timeout(&mut self, now: Instant) {
        let leaving = self.host.leaving.iter().any(UpstreamConnection::holds_worker);
        let converse = self.converse.as_ref().is_some_and(|converse| converse.holds_worker());
        self.host.holds_worker = leaving || converse || self.hear.holds_worker() || self.speak.holds_worker();
        let asking = asking(&self.setup.profile, &self.settings);
        if self.hear.interim_is_due(now)
            && let Some(audio) = self.ear.so_far()
        {
            self.hear.ask_interim(now, (audio, self.ear.at_ms()), &asking, &mut self.host);
        }
        self.hear.timeout(now, &asking, &mut self.host);
        self.speak.timeout(now, &speaking(&self.setup.profile), &mut self.host);
        let scene = self.scene();
        if let Some(converse) = &mut self.converse {
            converse.timeout(now, &scene, &mut self.host);
        }
        for mut link in std::mem::take(&mut self.host.leaving) {
            link.timeout(now, &mut self.host);
            if !link.is_gone() {
                self.host.leaving.push(link);
            }
        }
        self.resume(now);
    }

    /// When [`Session::lanes_timeout`] has something to do.
    pub(super) fn next_lanes_timeout(&self, now: Instant) -> Option<Instant> {
        let times = &self.host.times;
        let leaving = self.host.leaving.iter().filter_map(|link| link.next_timeout(times)).min();
        let hear = self.hear.next_timeout(times, &self.setup.profile.hear);
        let converse =
            self.converse.as_ref().and_then(|converse| converse.next_timeout(now, &self.scene(), &self.host));
        [leaving, hear, converse, self.speak.next_timeout(times)].into_iter().flatten().min()
    }
}
