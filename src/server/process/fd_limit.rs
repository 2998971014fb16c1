//! File descriptors: how many a server may need, and the system's leave to have so many.
//!
//! Who runs out of them refuses clients at the worst moment; so it is said at the start. Where they run out nevertheless,
//! [`crate::server::serve`](crate::server::Server::serve) makes room. Only the soft limit is raised, which every process may do up to the hard one.

use std::io;

use crate::server::ServiceConfig;

/// The client's and two lanes'.
const FDS_PER_SESSION: usize = 3;
/// Listeners, operators' connections, logs, files that are read again.
const FDS_FOR_SERVER: usize = 64;
/// What a runtime has of its own.
const FDS_PER_WORKER: usize = 3;

/// How many a server may have open at a time.
#[must_use]
pub fn count_needed(config: &ServiceConfig, workers: usize) -> u64 {
    // A traced session writes a file.
    let fds_per_session = FDS_PER_SESSION + usize::from(config.traces.is_some());
    let connections = config.limits.handshakes_max;
    let session_fds = config.sessions_max.saturating_mul(fds_per_session).saturating_add(connections);
    session_fds.saturating_add(FDS_FOR_SERVER + workers.saturating_mul(FDS_PER_WORKER)) as u64
}

/// Raises the soft limit as far as needed and allowed, and lowers none; the limit there is then. Where the system has none it is
/// what is needed.
///
/// # Errors
/// The system's own, which does not tell or does not let.
pub fn raise(needed: u64) -> io::Result<u64> {
    rlimit::increase_nofile_limit(needed)
}

/// What an operator should know if so many are not enough.
#[must_use]
pub fn shortage_warning(config: &ServiceConfig, needed: u64, limit: u64) -> Option<String> {
    let (sessions, connections) = (config.sessions_max, config.limits.handshakes_max);
    (limit < needed).then(|| {
        format!(
            "{sessions} sessions (sessions_max) and {connections} connections without one (limits.handshakes_max) may need \
             {needed} file descriptors, and the hard limit is {limit}: raise it (LimitNOFILE={needed} in a systemd unit, \
             `ulimit -n {needed}` in a shell), or lower sessions_max"
        )
    })
}
