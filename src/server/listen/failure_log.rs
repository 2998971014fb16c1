//! Log of failed accepts: at most one line a second, because a process without file descriptors fails at every retry.

use std::time::{Duration, Instant};

/// Shortest time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Failed accepts since the last log line.
#[derive(Debug, Default)]
pub(in crate::server) struct FailureLog {
    logged_at: Option<Instant>,
    failures: u64,
}

impl FailureLog {
    /// Counts a failure. Returns the number of failures since the last log line when the next line is due.
    pub(in crate::server) fn count(&mut self, now: Instant) -> Option<u64> {
        self.failures += 1;
        if self.logged_at.is_some_and(|at| now < at + LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_accept_failures_are_logged_once_a_second_with_their_number() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let start = Instant::now();
        let mut log = FailureLog::default();
        let lines: Vec<_> =
            (0..=30).filter_map(|tenth| log.count(start + Duration::from_millis(100 * tenth))).collect();
        assert_eq!(lines, [1, 10, 10, 10], "31 failures in 3 s");
    }
}
