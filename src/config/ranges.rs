//! Ranges of numbers in the configuration, and addresses that exclude each other.

use std::net::SocketAddr;

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
        self.check_bare_tcp_addresses(problems);
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

    /// Checks that no listener on bare TCP has the address of another listener.
    fn check_bare_tcp_addresses(&self, problems: &mut ConfigProblems) {
        let clients = self.listen_addresses().into_iter().map(|address| ("listen", address));
        let admin = self.admin.listen.clone().map(|address| ("admin.listen", address));
        let mut taken: Vec<(&str, String)> = clients.chain(admin).collect();
        for (at, listener) in self.tcp.iter().enumerate() {
            let Some(own) = &listener.listen else { continue };
            if let Some((key, other)) = taken.iter().find(|(_, other)| conflict(own, other)) {
                let message = format!(
                    "tcp.listen: {own} conflicts with the address {other} (`{key}`); use another port"
                );
                problems.push(&["tcp", &at.to_string(), "listen"], message);
            }
            taken.push(("tcp.listen", own.clone()));
        }
    }
}

/// True if two listeners cannot have these addresses. A name may have any address.
pub(super) fn conflict(one: &str, other: &str) -> bool {
    let parsed = |address: &str| address.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
    let (Some(one), Some(other)) = (parsed(one), parsed(other)) else { return false };
    let overlap = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && overlap
}
