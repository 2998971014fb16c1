//! Standby: the next upstream session, prepared on a second worker to avoid a gap.
//!
//! It is opened at the soft limit, receives the silence during which a new model only listens (field notes §1.6), and
//! takes over at a quiet moment. Without a second worker there is no standby, and the rollover has a gap.
//!
//! The history goes into its prompt when it is initialised. A standby whose prompt misses a later line never takes over. A
//! new one replaces it if there is time, and otherwise the rollover has a gap: the user's audio is kept meanwhile, whereas a
//! model without the last exchange would go on as if nothing had been said.

use std::time::{Duration, Instant};

use super::{Dialogue, history::HistoryMark, rollover::DialogueUpstream, upstream_session::UpstreamSession};
use crate::event::{LaneEvent, MessageMeta};
use crate::session::{
    measurement::LanePurpose,
    timers::Timer,
    upstream::LaneContext,
    upstream::{
        connection::{ConnectionEvent, UpstreamConnection},
        reply_tracker::{UNIT_DURATION, UplinkUnit},
    },
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
    fn is_warmed_up(&self, units: u32) -> bool {
        self.session.connection.is_engaged()
            && self.session.tracker.answered_count >= u64::from(units)
            && self.session.tracker.in_flight.is_none()
    }

    /// True if its prompt holds the whole history.
    fn is_current(&self, context: &LaneContext) -> bool {
        self.history == context.history.mark()
    }

    /// Time that its initialisation took, or has taken so far.
    fn initialisation_time(&self, now: Instant) -> Duration {
        let ready_at = if self.session.connection.is_engaged() { self.session.ready_at } else { now };
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
        context: &mut LaneContext,
    ) -> bool {
        let units = self.rules.rollover.standby_units;
        match &self.standby {
            Some(standby) if standby.is_current(context) => standby.is_warmed_up(units),
            Some(standby) => {
                let can_renew = has_time && self.time_left(now) >= self.preparation_time(now, standby);
                // The end of an open turn adds another line.
                if can_renew && self.turns.open.is_none() {
                    self.replaced_standby = self.retire_standby(now, context);
                }
                !can_renew
            }
            None if self.rules.rollover.standby && !self.standby_unavailable => {
                // The lane that it replaces may still hold the worker. A new one would queue behind it.
                let is_blocked = self.replaced_standby.is_some_and(|lane| context.is_closing(lane));
                if !is_blocked && self.turns.open.is_none() {
                    self.open_standby(now, context);
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
        context: &mut LaneContext,
    ) -> Option<UpstreamSession> {
        let standby = self.standby.take()?;
        if standby.is_current(context) {
            self.known_history = standby.history;
            return Some(standby.session);
        }
        standby.session.connection.retire(now, context);
        None
    }

    /// Time that another standby will take: to initialise as long as this one or the current session, and to be fed.
    fn preparation_time(&self, now: Instant, standby: &Standby) -> Duration {
        let current = match &self.upstream {
            DialogueUpstream::Active(session) => {
                session.connection.granted_at().map_or(Duration::ZERO, |at| session.ready_at - at)
            }
            _ => Duration::ZERO,
        };
        standby.initialisation_time(now).max(current) + UNIT_DURATION * self.rules.rollover.standby_units
    }

    fn time_left(&self, now: Instant) -> Duration {
        let DialogueUpstream::Active(session) = &self.upstream else { return Duration::ZERO };
        session
            .connection
            .granted_at()
            .map_or(Duration::ZERO, |at| self.limits.time_left(now, at, session.context_usage))
    }

    fn open_standby(&mut self, now: Instant, context: &mut LaneContext) {
        self.replaced_standby = None;
        let connection = UpstreamConnection::open(
            now,
            (LanePurpose::Converse, self.mode),
            self.init_command(context),
            context,
        );
        let session = UpstreamSession::new(now, connection);
        self.standby = Some(Standby { session, history: context.history.mark(), opened_at: now });
    }

    fn retire_standby(&mut self, now: Instant, context: &mut LaneContext) -> Option<crate::event::Lane> {
        let standby = self.standby.take()?;
        let lane = standby.session.connection.lane();
        standby.session.connection.retire(now, context);
        Some(lane)
    }

    /// Handles a message of the upstream on the standby's lane.
    pub(super) fn handle_standby_event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
        context: &mut LaneContext,
    ) {
        let Some(standby) = &mut self.standby else { return };
        let connection_event = standby.session.connection.handle_event(now, event, context);
        if matches!(event, LaneEvent::RecoverableError(_)) && standby.session.connection.is_engaged() {
            self.standby_unavailable = true;
            self.retire_standby(now, context);
            return;
        }
        standby.session.handle_reply(now, event, meta, &self.limits, context);
        self.handle_standby_connection_event(now, &connection_event, context);
    }

    pub(super) fn handle_standby_connection_event(
        &mut self,
        now: Instant,
        connection_event: &ConnectionEvent,
        context: &mut LaneContext,
    ) {
        match connection_event {
            ConnectionEvent::Ready => {
                if let Some(standby) = &mut self.standby {
                    standby.session.connection.engage();
                    standby.session.ready_at = now;
                }
            }
            // No worker is free. A standby must not take one from other sessions.
            ConnectionEvent::Queued
            | ConnectionEvent::QueueStuck(_)
            | ConnectionEvent::Failed(_)
            | ConnectionEvent::EmptyAnswer => {
                self.standby_unavailable = true;
                self.retire_standby(now, context);
            }
            ConnectionEvent::None => {}
        }
    }

    /// Sends the standby its silence. Gives it up if it does not answer.
    pub(super) fn feed_standby(&mut self, now: Instant, context: &mut LaneContext) {
        self.arm_standby(context);
        if !context.timers.take_expired(Timer::Standby, now) {
            return;
        }
        let Some(Standby { session, .. }) = &mut self.standby else { return };
        if session.tracker.in_flight.is_some() {
            self.standby_unavailable = true;
            self.retire_standby(now, context);
        } else {
            session.send_unit(now, UplinkUnit::silence(), context);
            self.arm_standby(context);
        }
    }

    /// Arms [`Timer::Standby`] for the next unit of silence, or for the answer to the last one.
    fn arm_standby(&self, context: &mut LaneContext) {
        let due = self.standby.as_ref().and_then(|Standby { session, .. }| {
            if let Some(unit) = session.tracker.in_flight.as_ref() {
                return Some(unit.sent_at + self.rules.converse.unit_reply_max);
            }
            let is_fully_fed = session.tracker.sent_count >= u64::from(self.rules.rollover.standby_units);
            let last_sent_at = session.tracker.last_sent_at;
            let at = last_sent_at.map_or(session.ready_at, |at| at + self.rules.converse.unit_min);
            (session.connection.is_engaged() && !is_fully_fed).then_some(at)
        });
        context.timers.set_or_clear(Timer::Standby, due);
    }
}
