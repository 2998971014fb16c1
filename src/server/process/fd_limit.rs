//! File descriptors: how many a server may need, and the system's leave to have so many.
//!
//! Who runs out of them refuses clients at the worst moment; so it is said at the start. Where they run out nevertheless,
//! [`crate::server::serve`](crate::server::Server::serve) makes room. Only the soft limit is raised, which every process may do up to the hard one.

use std::io;

use crate::server::Service;

/// The client's and two lanes'.
const OF_A_SESSION: usize = 3;
/// Listeners, operators' connections, logs, files that are read again.
const OF_THE_SERVER: usize = 64;
/// What a runtime has of its own.
const OF_A_WORKER: usize = 3;

/// How many a server may have open at a time.
#[must_use]
pub fn needed(service: &Service, workers: usize) -> u64 {
    // A traced session writes a file.
    let session = OF_A_SESSION + usize::from(service.traces.is_some());
    let connections = service.limits.connections_max;
    let all = service.sessions_max.saturating_mul(session).saturating_add(connections);
    all.saturating_add(OF_THE_SERVER + workers.saturating_mul(OF_A_WORKER)) as u64
}

/// Raises the soft limit as far as needed and allowed, and lowers none; the limit there is then. Where the system has none it is
/// what is needed.
///
/// # Errors
/// The system's own, which does not tell or does not let.
pub fn raised(needed: u64) -> io::Result<u64> {
    rlimit::increase_nofile_limit(needed)
}

/// What an operator should know if so many are not enough.
#[must_use]
pub fn warning(service: &Service, needed: u64, limit: u64) -> Option<String> {
    let (sessions, connections) = (service.sessions_max, service.limits.connections_max);
    (limit < needed).then(|| {
        format!(
            "{sessions} sessions (sessions_max) and {connections} connections without one (limits.connections_max) may need \
             {needed} file descriptors, and the hard limit is {limit}: raise it (LimitNOFILE={needed} in a systemd unit, \
             `ulimit -n {needed}` in a shell), or lower sessions_max"
        )
    })
}
