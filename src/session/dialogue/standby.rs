//! Standby: the next upstream session, prepared on a second worker to avoid a gap.
//!
//! It is opened at the soft limit, receives the silence during which a new model only listens (field notes §1.6), and
//! takes over at a quiet moment. Without a second worker there is no standby, and the rollover has a gap.
//!
//! The history goes into its prompt when it is initialised. A standby whose prompt misses a later line never takes over. A
//! new one replaces it if there is time, and otherwise the rollover has a gap: the user's audio is kept meanwhile, whereas a
//! model without the last exchange would go on as if nothing had been said.

use std::time::{Duration, Instant};

use super::{
    Dialogue,
    history::{History, HistoryMark},
    reply_tracker::{UNIT_DURATION, UplinkUnit},
    rollover::DialogueUpstream,
    upstream_session::UpstreamSession,
};
use crate::event::LaneEvent;
use crate::session::{
    effects::Effects,
    lanes::{LaneId, LaneSignal, Lanes, Owner, connection::ConnectionChange},
    outbox::Actions,
    timers::{Timer, Timers},
    tools::Tools,
};

/// Next upstream session.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) session: UpstreamSession,
    /// History in its prompt.
    pub(super) history: HistoryMark,
    opened_at: Instant,
}

impl Standby {
    /// True once it has answered the units during which a new model only listens.
    fn is_warmed_up(&self, units: u32, lanes: &Lanes) -> bool {
        lanes.is_engaged(self.session.id)
            && self.session.tracker.answered_count >= u64::from(units)
            && self.session.tracker.in_flight.is_none()
    }

    /// True if its prompt holds the whole history.
    fn is_current(&self, history: &History) -> bool {
        self.history == history.mark()
    }

    /// Time that its initialisation took, or has taken so far.
    fn initialisation_time(&self, now: Instant, lanes: &Lanes) -> Duration {
        let ready_at = if lanes.is_engaged(self.session.id) { self.session.ready_at } else { now };
        ready_at - self.opened_at
    }
}

impl Dialogue {
    /// Opens the standby, or replaces one whose prompt misses a line, unless the rollover is due at once.
    ///
    /// Returns true if the rollover need not wait: the standby is ready, or there will be none.
    pub(super) fn prepare_standby(
        &mut self,
        now: Instant,
        has_time: bool,
        lanes: &mut Lanes,
        out: &mut Actions,
    ) -> bool {
        let units = self.rules.rollover.standby_units;
        match &self.standby {
            Some(standby) if standby.is_current(&self.turns.history) => standby.is_warmed_up(units, lanes),
            Some(standby) => {
                let can_renew =
                    has_time && self.time_left(now, lanes) >= self.preparation_time(now, standby, lanes);
                // The end of an open turn adds another line.
                if can_renew && self.turns.open.is_none() {
                    self.replaced_standby = self.retire_standby(now, lanes, out);
                }
                !can_renew
            }
            None if self.rules.rollover.standby && !self.standby_unavailable => {
                // The lane that it replaces may still hold the worker. A new one would queue behind it.
                let is_blocked = self.replaced_standby.is_some_and(|id| lanes.is_closing(id));
                if !is_blocked && self.turns.open.is_none() {
                    self.open_standby(now, lanes, out);
                }
                false
            }
            None => true,
        }
    }

    /// Takes the standby as the next session. Retires it if its prompt misses a line.
    pub(super) fn take_standby(
        &mut self,
        now: Instant,
        lanes: &mut Lanes,
        out: &mut Actions,
    ) -> Option<UpstreamSession> {
        let standby = self.standby.take()?;
        if standby.is_current(&self.turns.history) {
            self.known_history = standby.history;
            lanes.give(standby.session.id, Owner::Dialogue);
            return Some(standby.session);
        }
        lanes.retire(now, standby.session.id, out);
        None
    }

    /// Time that another standby will take: to initialise as long as this one or the current session, and to be fed.
    fn preparation_time(&self, now: Instant, standby: &Standby, lanes: &Lanes) -> Duration {
        let current = match &self.upstream {
            DialogueUpstream::Active(session) => {
                lanes.granted_at(session.id).map_or(Duration::ZERO, |at| session.ready_at - at)
            }
            _ => Duration::ZERO,
        };
        standby.initialisation_time(now, lanes).max(current)
            + UNIT_DURATION * self.rules.rollover.standby_units
    }

    fn time_left(&self, now: Instant, lanes: &Lanes) -> Duration {
        let DialogueUpstream::Active(session) = &self.upstream else { return Duration::ZERO };
        lanes
            .granted_at(session.id)
            .map_or(Duration::ZERO, |at| self.limits.time_left(now, at, session.context_usage))
    }

    fn open_standby(&mut self, now: Instant, lanes: &mut Lanes, out: &mut Actions) {
        self.replaced_standby = None;
        let id = lanes.open(now, Owner::Standby, self.mode, Some(self.init_command()), out);
        let session = UpstreamSession::new(now, id);
        self.standby = Some(Standby { session, history: self.turns.history.mark(), opened_at: now });
    }

    /// Leaves the standby. Returns its lane.
    pub(super) fn retire_standby(
        &mut self,
        now: Instant,
        lanes: &mut Lanes,
        out: &mut Actions,
    ) -> Option<LaneId> {
        let id = self.standby.take()?.session.id;
        lanes.retire(now, id, out);
        Some(id)
    }

    /// Handles what happened on the standby's lane.
    pub(crate) fn handle_standby_signal(
        &mut self,
        now: Instant,
        signal: &LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        let Tools { lanes, out, .. } = tools;
        if let (Some(standby), Some((event, meta))) = (&mut self.standby, signal.message) {
            if matches!(event, LaneEvent::RecoverableError(_)) && lanes.is_engaged(signal.id) {
                self.standby_unavailable = true;
                self.retire_standby(now, lanes, out);
                return Effects::MODEL;
            }
            standby.session.handle_reply(now, event, meta, &self.limits, lanes, out);
        }
        match signal.change {
            ConnectionChange::Ready => {
                if let Some(standby) = &mut self.standby {
                    lanes.engage(signal.id);
                    standby.session.ready_at = now;
                }
            }
            // No worker is free. A standby must not take one from other sessions.
            ConnectionChange::Queued
            | ConnectionChange::QueueStuck(_)
            | ConnectionChange::Failed(_)
            | ConnectionChange::EmptyAnswer => {
                self.standby_unavailable = true;
                self.retire_standby(now, lanes, out);
            }
            ConnectionChange::None => {}
        }
        if signal.message.is_some() { Effects::MODEL } else { Effects::ALL }
    }

    /// Sends the standby its silence. Gives it up if it does not answer.
    pub(super) fn feed_standby(&mut self, now: Instant, tools: &mut Tools) {
        let Tools { lanes, timers, out, .. } = tools;
        self.arm_standby(lanes, timers);
        if !timers.take_expired(Timer::Standby, now) {
            return;
        }
        let Some(Standby { session, .. }) = &mut self.standby else { return };
        if session.tracker.in_flight.is_some() {
            self.standby_unavailable = true;
            self.retire_standby(now, lanes, out);
        } else {
            session.send_unit(now, UplinkUnit::silence(), lanes, out);
            self.arm_standby(lanes, timers);
        }
    }

    /// Arms [`Timer::Standby`] for the next unit of silence, or for the answer to the last one.
    fn arm_standby(&self, lanes: &Lanes, timers: &mut Timers) {
        let due = self.standby.as_ref().and_then(|Standby { session, .. }| {
            if let Some(unit) = session.tracker.in_flight.as_ref() {
                return Some(unit.sent_at + self.rules.converse.unit_reply_max);
            }
            let is_fully_fed = session.tracker.sent_count >= u64::from(self.rules.rollover.standby_units);
            let last_sent_at = session.tracker.last_sent_at;
            let at = last_sent_at.map_or(session.ready_at, |at| at + self.rules.converse.unit_min);
            (lanes.is_engaged(session.id) && !is_fully_fed).then_some(at)
        });
        timers.set_or_clear(Timer::Standby, due);
    }
}
