//! Reports of dropped audio to the client: at most one a second, with the milliseconds that no earlier report counted.
//! They add up to the total, which is rounded once.

use std::time::{Duration, Instant};

use super::{Session, SessionPhase, millis, timers::Timer};
use crate::event::ClientCommand;

/// Shortest time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The reports so far.
#[derive(Debug, Default)]
pub(super) struct DropReport {
    reported_ms: u64,
    reported_at: Option<Instant>,
}

impl Session {
    /// Reports dropped audio, or arms [`Timer::DropReport`] if the last report is too recent.
    pub(super) fn report_dropped(&mut self, now: Instant) {
        self.tools.timers.take_expired(Timer::DropReport, now);
        if self.phase == SessionPhase::Ended || self.unreported_drop_ms() == 0 {
            return;
        }
        match self.drop_report.reported_at.map(|at| at + REPORT_INTERVAL) {
            Some(due_at) if now < due_at => self.tools.timers.set(Timer::DropReport, due_at),
            _ => self.flush_drop_report(now),
        }
    }

    /// Reports dropped audio that was not reported yet.
    pub(super) fn flush_drop_report(&mut self, now: Instant) {
        let dropped_ms = self.unreported_drop_ms();
        if dropped_ms > 0 {
            self.drop_report.reported_ms += dropped_ms;
            self.drop_report.reported_at = Some(now);
            self.tools.out.push_client(ClientCommand::FramesDropped { dropped_ms });
        }
    }

    fn unreported_drop_ms(&self) -> u64 {
        let dropped = self.intake.audio_totals.dropped_too_fast + self.dropped_backlog();
        millis(dropped).saturating_sub(self.drop_report.reported_ms)
    }
}
