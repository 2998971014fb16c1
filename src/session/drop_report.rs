//! Reports of dropped audio to the client: at most one a second, with the milliseconds that no earlier report counted.
//! They add up to the total, which is rounded once.

use std::time::{Duration, Instant};

use super::{
    millis,
    timers::{Timer, Timers},
};
use crate::vocabulary::ClientEvent;

/// Shortest time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The reports so far.
#[derive(Debug, Default)]
pub(super) struct DropReport {
    reported_ms: u64,
    reported_at: Option<Instant>,
}

impl DropReport {
    /// Report of dropped audio of this total length, if one is due. Arms [`Timer::DropReport`] if the last one is too recent.
    pub(super) fn report(
        &mut self,
        now: Instant,
        dropped: Duration,
        timers: &mut Timers,
    ) -> Option<ClientEvent> {
        timers.take_expired(Timer::DropReport, now);
        if millis(dropped) == self.reported_ms {
            return None;
        }
        match self.reported_at.map(|at| at + REPORT_INTERVAL) {
            Some(due_at) if now < due_at => {
                timers.set(Timer::DropReport, due_at);
                None
            }
            _ => self.flush(now, dropped),
        }
    }

    /// Report of what was not reported yet.
    pub(super) fn flush(&mut self, now: Instant, dropped: Duration) -> Option<ClientEvent> {
        let dropped_ms = millis(dropped).saturating_sub(self.reported_ms);
        if dropped_ms == 0 {
            return None;
        }
        self.reported_ms += dropped_ms;
        self.reported_at = Some(now);
        Some(ClientEvent::FramesDropped { dropped_ms })
    }
}
