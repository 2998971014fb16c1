//! Ranges of numbers in the configuration, and addresses that exclude each other.

use super::{Config, problems::ConfigProblems};
use crate::spelling::check::MAX_MS;

/// Upper bound of `sessions_max`, above the number of ports of any machine.
const SESSIONS_MAX: usize = 1_000_000;
/// Upper bound of `workers`, above the number of cores of any machine.
const WORKERS_MAX: usize = 1024;
/// Least idle timeout that still leaves a client time to send a frame.
const IDLE_MIN_MS: u64 = 100;
/// Least size of a trace file: its first line may hold a whole mapping.
const TRACE_MIN_BYTES: u64 = 64 * 1024;

impl Config {
    /// Checks the numbers and the addresses.
    pub(super) fn check_ranges(&self, problems: &mut ConfigProblems) {
        if self.idle_timeout_ms.is_some_and(|ms| ms > 0 && !(IDLE_MIN_MS..=MAX_MS).contains(&ms)) {
            let message = format!("idle_timeout_ms: must be 0 for never, or {IDLE_MIN_MS} to {MAX_MS}");
            problems.push(&["idle_timeout_ms"], message);
        }
        problems.take_named(self.drain.check());
        let addresses = self.listen_addresses();
        for (at, listen) in addresses.iter().enumerate() {
            problems.take_named(self.admin.check_address_conflict(listen));
            if addresses[..at].contains(listen) && !listen.ends_with(":0") {
                problems.push(&["listen"], format!("listen: {listen} is given twice"));
            }
        }
        if self.trace.file_max_bytes.is_some_and(|max| max < TRACE_MIN_BYTES) {
            let message = format!("trace.file_max_bytes: must be {TRACE_MIN_BYTES} or more");
            problems.push(&["trace", "file_max_bytes"], message);
        }
        if self.sessions_max.is_some_and(|max| !(1..=SESSIONS_MAX).contains(&max)) {
            problems.push(&["sessions_max"], format!("sessions_max: must be 1 to {SESSIONS_MAX}"));
        }
        if self.workers.is_some_and(|count| count.get() > WORKERS_MAX) {
            problems.push(&["workers"], format!("workers: must be 1 to {WORKERS_MAX}"));
        }
    }
}
