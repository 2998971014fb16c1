//! Standby: the next upstream session, prepared on a second worker to avoid a gap.
//!
//! It is opened at the soft limit, receives the silence during which a new model only listens
//! (mappings/notes/minicpm-o-duplex.md#turns), and takes over at a quiet moment. Without a second worker there is no
//! standby, and the rollover has a gap.
//!
//! The history goes into its prompt when it is initialised. A standby whose prompt misses a later line never takes over. A
//! new one replaces it if there is time, and otherwise the rollover has a gap: the user's audio is kept meanwhile, whereas a
//! model without the last exchange would go on as if nothing had been said.

use std::time::{Duration, Instant};

use super::{
    history::{History, HistoryMark},
    reply_tracker::{UNIT_DURATION, UplinkUnit},
    rollover_limits::RolloverLimits,
    upstream_session::UpstreamSession,
};
use crate::session::{
    effects::Effects,
    lanes::{LaneId, LaneSignal, Lanes, Owner, connection::ConnectionChange},
    timers::{Timer, Timers},
};
use crate::{
    spelling::profile::DialogueRules,
    vocabulary::{LaneEvent, LaneRequest, Mode},
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

/// Place of the standby, which may be empty.
#[derive(Debug, Default)]
pub(super) struct StandbyPlace {
    standby: Option<Standby>,
    /// Lane of an outdated standby. Its replacement is opened when this lane is gone.
    replaced: Option<LaneId>,
    /// No second worker was available during this upstream session.
    is_unavailable: bool,
}

/// Facts that decide about the preparation of a standby.
#[derive(Debug)]
pub(super) struct Prospects<'a> {
    pub(super) rules: &'a DialogueRules,
    pub(super) history: &'a History,
    pub(super) is_turn_open: bool,
    /// Time until the rollover; `None` if it is due at once.
    pub(super) time_left: Option<Duration>,
    /// Time that the current session took to initialise.
    pub(super) usual_time: Duration,
}

impl StandbyPlace {
    /// Opens the standby in this mode, or replaces one whose prompt misses a line, unless the rollover is due at once.
    ///
    /// Returns true if the rollover need not wait: the standby is ready, or there will be none.
    pub(super) fn prepare(
        &mut self,
        now: Instant,
        prospects: &Prospects<'_>,
        mode: Mode,
        init: impl FnOnce() -> LaneRequest,
        lanes: &mut Lanes,
    ) -> bool {
        let rules = &prospects.rules.rollover;
        match &self.standby {
            Some(standby) if standby.is_current(prospects.history) => {
                standby.is_warmed_up(rules.standby_units, lanes)
            }
            Some(standby) => {
                // Another one takes as long to initialise as this one or the current session, and is fed then.
                let initialisation = standby.initialisation_time(now, lanes).max(prospects.usual_time);
                let preparation = initialisation + UNIT_DURATION * rules.standby_units;
                let can_renew = prospects.time_left.is_some_and(|time_left| time_left >= preparation);
                // The end of an open turn adds another line.
                if can_renew && !prospects.is_turn_open {
                    self.replaced = self.retire(now, lanes);
                }
                !can_renew
            }
            None if rules.standby && !self.is_unavailable => {
                // The lane that it replaces may still hold the worker. A new one would queue behind it.
                let is_blocked = self.replaced.is_some_and(|id| lanes.is_closing(id));
                if !is_blocked && !prospects.is_turn_open {
                    self.replaced = None;
                    let id = lanes.open(now, Owner::Standby, mode, Some(init()));
                    let (session, history) = (UpstreamSession::new(now, id), prospects.history.mark());
                    self.standby = Some(Standby { session, history, opened_at: now });
                }
                false
            }
            None => true,
        }
    }

    /// Takes the standby as the next session. Retires it if its prompt misses a line.
    pub(super) fn take(&mut self, now: Instant, history: &History, lanes: &mut Lanes) -> Option<Standby> {
        let standby = self.standby.take()?;
        if standby.is_current(history) {
            lanes.give(standby.session.id, Owner::Dialogue);
            return Some(standby);
        }
        lanes.retire(now, standby.session.id);
        None
    }

    /// Lets the next upstream session have a standby, too.
    pub(super) const fn renew(&mut self) {
        (self.is_unavailable, self.replaced) = (false, None);
    }

    /// Leaves the standby. Returns its lane.
    pub(super) fn retire(&mut self, now: Instant, lanes: &mut Lanes) -> Option<LaneId> {
        let id = self.standby.take()?.session.id;
        lanes.retire(now, id);
        Some(id)
    }

    /// Leaves the standby, and opens no other during this upstream session.
    fn give_up(&mut self, now: Instant, lanes: &mut Lanes) {
        self.is_unavailable = true;
        self.retire(now, lanes);
    }

    /// Handles what happened on the standby's lane.
    pub(super) fn handle_signal(
        &mut self,
        now: Instant,
        signal: &LaneSignal<'_>,
        limits: &RolloverLimits,
        lanes: &mut Lanes,
    ) -> Effects {
        let Some(standby) = &mut self.standby else { return Effects::MODEL };
        if let Some((event, meta)) = signal.message {
            if matches!(event, LaneEvent::RecoverableError(_)) && lanes.is_engaged(signal.id) {
                self.give_up(now, lanes);
                return Effects::MODEL;
            }
            standby.session.handle_reply(now, event, meta, limits, lanes);
        }
        match signal.change {
            ConnectionChange::Ready => {
                lanes.engage(signal.id);
                standby.session.ready_at = now;
            }
            // No worker is free. A standby must not take one from other sessions.
            ConnectionChange::Queued
            | ConnectionChange::QueueStuck(_)
            | ConnectionChange::Failed(_)
            | ConnectionChange::EmptyAnswer => self.give_up(now, lanes),
            ConnectionChange::None => {}
        }
        if signal.message.is_some() { Effects::MODEL } else { Effects::ALL }
    }

    /// Sends the standby its silence. Gives it up if it does not answer.
    pub(super) fn feed(
        &mut self,
        now: Instant,
        rules: &DialogueRules,
        lanes: &mut Lanes,
        timers: &mut Timers,
    ) {
        self.arm(rules, lanes, timers);
        if !timers.take_expired(Timer::Standby, now) {
            return;
        }
        let Some(Standby { session, .. }) = &mut self.standby else { return };
        if session.tracker.in_flight.is_some() {
            self.give_up(now, lanes);
        } else {
            let request = session.begin_unit(now, UplinkUnit::silence());
            lanes.send(lanes.lane(session.id), request);
            self.arm(rules, lanes, timers);
        }
    }

    /// Arms [`Timer::Standby`] for the next unit of silence, or for the answer to the last one.
    fn arm(&self, rules: &DialogueRules, lanes: &Lanes, timers: &mut Timers) {
        let due = self.standby.as_ref().and_then(|Standby { session, .. }| {
            if let Some(unit) = session.tracker.in_flight.as_ref() {
                return Some(unit.sent_at + rules.converse.unit_reply_max);
            }
            let is_fully_fed = session.tracker.sent_count >= u64::from(rules.rollover.standby_units);
            let last_sent_at = session.tracker.last_sent_at;
            let at = last_sent_at.map_or(session.ready_at, |at| at + rules.converse.unit_min);
            (lanes.is_engaged(session.id) && !is_fully_fed).then_some(at)
        });
        timers.set_or_clear(Timer::Standby, due);
    }
}
