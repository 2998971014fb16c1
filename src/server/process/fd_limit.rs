//! File descriptors: how many the server may need, and raising the soft limit to that number.
//!
//! A shortage is reported at start, because later it would reject clients at the worst moment.
//! [`Server::serve`](crate::server::Server::serve) makes room if descriptors run out nevertheless.

use std::io;

use crate::server::ServiceConfig;

/// One for the client, two for lanes.
const FDS_PER_SESSION: usize = 3;
/// Listeners, admin connections, logs, and files that are read again.
const FDS_FOR_SERVER: usize = 64;
/// Descriptors of a tokio runtime.
const FDS_PER_WORKER: usize = 3;

/// Descriptors the server may have open at a time.
pub fn count_needed(config: &ServiceConfig, workers: usize) -> u64 {
    // A traced session writes a file, and a recorded one two.
    let files = usize::from(config.traces.is_some()) + 2 * usize::from(config.recordings.is_some());
    let fds_per_session = FDS_PER_SESSION + files;
    let connections = config.limits.handshakes_max;
    let session_fds = config.sessions_max.saturating_mul(fds_per_session).saturating_add(connections);
    session_fds.saturating_add(FDS_FOR_SERVER + workers.saturating_mul(FDS_PER_WORKER)) as u64
}

/// Raises the soft limit to `needed`, at most to the hard limit, and returns it. Never lowers the limit. Returns
/// `needed` on systems without such a limit.
///
/// # Errors
/// Fails if the system does not report the limit or does not allow the change.
pub fn raise(needed: u64) -> io::Result<u64> {
    rlimit::increase_nofile_limit(needed)
}

/// A warning for the log if `limit` is too low.
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
