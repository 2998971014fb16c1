//! Fairness between the tasks of one thread: a reader whose peer never stops sending yields.

use std::task::Context;

/// Most bytes without a message that a reader takes before it yields: at most a millisecond of work, even as lines of one byte.
pub(crate) const TURN_BYTES: usize = 32 * 1024;

/// Wakes the task after the other tasks of its thread have run and the network has been polled. A task that woke itself directly
/// would run before the network is polled.
pub(crate) fn wake_after_others(cx: &mut Context<'_>) {
    // The runtime takes the waker at the first poll.
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
}
