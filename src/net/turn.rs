//! Turns of the tasks on one thread: a reader whose peer never stops sending gives way.

use std::task::Context;

/// Most bytes that a reader takes without a message before other tasks get their turn: a millisecond of work at most, even if
/// they are lines of one byte.
pub(crate) const TURN_BYTES: usize = 32 * 1024;

/// Has the task polled again after the others of its thread have run and the network was looked at. A task that wakes itself
/// instead is polled again before the network.
pub(crate) fn wake_after_others(cx: &mut Context<'_>) {
    // The runtime takes the waker at the first poll.
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
}
