//! Flow control of one session, whose client may read more slowly than upstreams answer.
//!
//! Audio waits in the session while the client has not read its outbox, so that a cancel still finds it. Upstreams are read
//! ahead meanwhile, because some end a session whose output is not read. Their lanes are held once the waiting audio takes too
//! much memory.

use tokio::io::{AsyncRead, AsyncWrite};

use super::ClientEnd;
use crate::{
    server::websocket::pausable_stream::PausableRead, session::SessionReport, vocabulary::FlowControl,
};

/// The client is behind while its outbox holds more bytes than this.
const CLIENT_BEHIND_ABOVE_BYTES: usize = 256 * 1024;
/// This much may wait for any client before its lanes are held, bytes: twenty seconds of speech.
const WAITS_ALWAYS_BYTES: usize = 1024 * 1024;
/// Part of the memory for messages in transit that may wait for one client: ten minutes of speech, by default.
const CLIENT_PART: usize = 8;
/// Lanes are held when less than this part of the memory is left.
const LEFT_PART: usize = 2;

/// Decides what to hold back now. `memory_max_bytes` bounds the memory for messages in transit.
pub(super) fn flow_control<C>(
    client: Option<&ClientEnd<C>>,
    report: &SessionReport,
    memory_max_bytes: usize,
) -> FlowControl
where
    C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static,
{
    let Some(client) = client else { return FlowControl::default() };
    let outbox_bytes = client.outbox_bytes();
    let waiting_bytes = outbox_bytes + report.unsent_bytes;
    let is_memory_scarce =
        || waiting_bytes > memory_max_bytes / CLIENT_PART || client.memory().leaves_less_than(LEFT_PART);
    FlowControl {
        is_client_behind: outbox_bytes > CLIENT_BEHIND_ABOVE_BYTES,
        are_lanes_held: report.is_far_ahead || (waiting_bytes > WAITS_ALWAYS_BYTES && is_memory_scarce()),
    }
}
