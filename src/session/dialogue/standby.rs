//! The next upstream session of a conversation, made ready beforehand on a second worker, so that nobody waits for it.
//!
//! It is opened when the soft bound is reached, gets the silence that a new model only listens to (field notes §1.6), and
//! takes over at a quiet moment. Where no second worker is to be had there is none, and the conversation waits.

use std::time::{Duration, Instant};

use super::{
    Converse,
    rollover::{Place, Talk},
};
use crate::event::{LaneEvent, Mark};
use crate::session::{
    context::Host,
    measurement::Purpose,
    upstream::{
        connection::{UpstreamConnection, News},
        reply_tracker::Unit,
    },
};

/// The next upstream session.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) talk: Talk,
    /// What had been said when it was opened.
    version: u64,
    opened_at: Instant,
}

impl Standby {
    /// It has listened to nothing for as long as a new model only listens.
    fn is_warm(&self, units: u32) -> bool {
        self.talk.link.is_engaged()
            && self.talk.steps.answered() >= u64::from(units)
            && self.talk.steps.in_flight().is_none()
    }
}

impl Converse {
    /// Opens the next session, and renews it if it does not know the newest and there is `time` for that. Whether nothing is
    /// to be waited for: it is ready, or there will be none.
    pub(super) fn mind_successor(&mut self, now: Instant, time: bool, host: &mut Host) -> bool {
        let wanted = self.rules.rollover.standby && !self.alone;
        match &self.standby {
            None if wanted => {
                // Not while the one it takes the place of still has the worker: it would queue behind that.
                if self.renewing.is_none_or(|lane| !host.is_leaving(lane)) {
                    self.open_standby(now, host);
                }
                false
            }
            None => true,
            Some(standby) if !standby.is_warm(self.rules.rollover.standby_units) => false,
            Some(standby) => {
                let newest = standby.version == host.memory.version();
                // Another one would take as long as this one took, at least.
                let takes = 2 * (standby.talk.ready_at - standby.opened_at);
                if newest || !time || self.time_left(now) < takes {
                    return true;
                }
                self.renewing = self.drop_standby(now, host);
                false
            }
        }
    }

    fn time_left(&self, now: Instant) -> Duration {
        let Place::Talking(talk) = &self.place else { return Duration::ZERO };
        talk.link.granted_at().map_or(Duration::ZERO, |at| self.limits.left(now, at, talk.context))
    }

    fn open_standby(&mut self, now: Instant, host: &mut Host) {
        self.renewing = None;
        let link = UpstreamConnection::open(now, (Purpose::Converse, self.mode), self.opening(host), host);
        let version = host.memory.version();
        self.standby = Some(Standby { talk: Talk::new(now, link), version, opened_at: now });
    }

    fn drop_standby(&mut self, now: Instant, host: &mut Host) -> Option<crate::event::Lane> {
        let standby = self.standby.take()?;
        let lane = standby.talk.link.lane();
        standby.talk.link.retire(now, host);
        Some(lane)
    }

    /// The upstream said something on the lane kept in readiness.
    pub(super) fn standby_event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        mark: Mark<'_>,
        host: &mut Host,
    ) {
        let Some(standby) = &mut self.standby else { return };
        let news = standby.talk.link.event(now, event, host);
        if matches!(event, LaneEvent::Trouble(_)) && standby.talk.link.is_engaged() {
            self.alone = true;
            self.drop_standby(now, host);
            return;
        }
        standby.talk.heard(now, event, mark, &self.limits, host);
        self.standby_news(now, &news, host);
    }

    pub(super) fn standby_news(&mut self, now: Instant, news: &News, host: &mut Host) {
        match news {
            News::Ready => {
                if let Some(standby) = &mut self.standby {
                    standby.talk.link.engage();
                    standby.talk.ready_at = now;
                }
            }
            // No worker is free, and it is not for us to take one from others.
            News::Queued | News::Stuck(_) | News::Failed(_) | News::Empty => {
                self.alone = true;
                self.drop_standby(now, host);
            }
            News::None => {}
        }
    }

    /// Sends the next session the silence that it only listens to; one that does not answer is none.
    pub(super) fn mind_standby(&mut self, now: Instant, host: &mut Host) {
        if self.standby_due().is_none_or(|due| due > now) {
            return;
        }
        let Some(Standby { talk, .. }) = &mut self.standby else { return };
        if talk.steps.in_flight().is_some() {
            self.alone = true;
            self.drop_standby(now, host);
        } else {
            talk.append(now, Unit::silence(), host);
        }
    }

    /// When [`Converse::mind_standby`] has something to do.
    pub(super) fn standby_due(&self) -> Option<Instant> {
        let Standby { talk, .. } = self.standby.as_ref()?;
        if let Some(unit) = talk.steps.in_flight() {
            return Some(unit.at + self.rules.converse.step_max);
        }
        let fed = talk.steps.sent_number() >= u64::from(self.rules.rollover.standby_units);
        let at = talk.steps.sent_at().map_or(talk.ready_at, |at| at + self.rules.converse.unit_min);
        (talk.link.is_engaged() && !fed).then_some(at)
    }
}
