//! File descriptor limit: estimates the need and raises the soft limit.
//!
//! A server without file descriptors rejects clients under the highest load, so a shortage is reported at start. If
//! they run out nevertheless, [`crate::server::serve`](crate::server::Server::serve) frees some. Only the soft limit is
//! raised; every process may raise it up to the hard limit.

use std::io;

use crate::server::ServiceConfig;

/// One for the client and two for the lanes.
const FDS_PER_SESSION: usize = 3;
/// Listeners, admin connections, logs, files being reloaded.
const FDS_FOR_SERVER: usize = 64;
/// File descriptors of a runtime.
const FDS_PER_WORKER: usize = 3;

/// Estimates the number of file descriptors that the server needs.
#[must_use]
pub fn count_needed(config: &ServiceConfig, workers: usize) -> u64 {
    // A traced session writes a file.
    let fds_per_session = FDS_PER_SESSION + usize::from(config.traces.is_some());
    let connections = config.limits.handshakes_max;
    let session_fds = config.sessions_max.saturating_mul(fds_per_session).saturating_add(connections);
    session_fds.saturating_add(FDS_FOR_SERVER + workers.saturating_mul(FDS_PER_WORKER)) as u64
}

/// Raises the soft limit towards `needed`, never lowers it, and returns the result. On a system without limits the
/// result is `needed`.
///
/// # Errors
/// The operating system's error on reading or setting the limit.
pub fn raise(needed: u64) -> io::Result<u64> {
    rlimit::increase_nofile_limit(needed)
}

/// Returns a warning for the operator if the limit is below the need.
#[must_use]
pub fn shortage_warning(config: &ServiceConfig, needed: u64, limit: u64) -> Option<String> {
    let (sessions, connections) = (config.sessions_max, config.limits.handshakes_max);
    (limit < needed).then(|| {
        format!(
            "{sessions} sessions (sessions_max) and {connections} pending connections (limits.handshakes_max) may need \
             {needed} file descriptors, but the hard limit is {limit}: raise it (LimitNOFILE={needed} in a systemd unit, \
             `ulimit -n {needed}` in a shell), or lower sessions_max"
        )
    })
}
