//! The end of a command that asks upstreams: what its signals do, and how it leaves an upstream's queue.
//!
//! Both real gateways lose a worker for ever when they assign it to a queued client that has disconnected. So a command that
//! waits in a queue first leaves the queue politely, and says so. A second signal ends it at once.

use std::{io, pin::pin, time::Duration};

use tokio::time::Instant;

use super::{
    output::print_message,
    stop_signals::{StopSignal, StopSignals},
};
use crate::{doctor::step::QUEUE_EXIT_MAX, server::queue_keeper::QueueWaits};

/// The signals of a command, and the queues that it leaves at its end.
pub struct Ending {
    signals: StopSignals,
    leaving: QueueWaits,
}

impl Ending {
    /// Begins to listen for signals.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { signals: StopSignals::listen()?.with_hangup()?, leaving: QueueWaits::default() })
    }

    /// Counter of the sessions for which the end of the command waits.
    pub(super) fn leaving(&self) -> QueueWaits {
        self.leaving.clone()
    }

    /// Runs a command to its end. The first signal calls `stop`, after which `work` should end; the second one ends it at
    /// once.
    ///
    /// # Errors
    /// The number of the second signal.
    pub(super) async fn run<T>(
        mut self,
        work: impl Future<Output = T>,
        stop: impl FnOnce(u8),
    ) -> Result<T, u8> {
        let (mut work, mut stop) = (pin!(work), Some(stop));
        let mut waiting_since: Option<Instant> = None;
        loop {
            tokio::select! {
                done = &mut work => {
                    if let Some(since) = waiting_since {
                        print_message(left_text(since.elapsed()));
                    }
                    return Ok(done);
                }
                () = self.leaving.until_some(), if waiting_since.is_none() => {
                    waiting_since = Some(Instant::now());
                    print_message(waiting_text(QUEUE_EXIT_MAX));
                }
                StopSignal { number, .. } = self.signals.next() => match stop.take() {
                    Some(stop) => {
                        stop(number);
                        if let Some(since) = waiting_since {
                            print_message(waiting_text(QUEUE_EXIT_MAX.saturating_sub(since.elapsed())));
                        }
                    }
                    None => {
                        print_message(cost_text(self.leaving.count()));
                        return Err(number);
                    }
                }
            }
        }
    }
}

fn waiting_text(at_most: Duration) -> String {
    let minutes = at_most.as_secs().div_ceil(60);
    format!(
        "waiting in the upstream's queue, at most {minutes} min: a server that assigns a worker to a client that has \
         disconnected loses the worker until it restarts; a second Ctrl-C ends at once"
    )
}

fn left_text(after: Duration) -> String {
    let seconds = after.as_secs_f64();
    match after < QUEUE_EXIT_MAX {
        true => format!("left the upstream's queue after {seconds:.0} s"),
        false => {
            format!("gave up in the upstream's queue after {seconds:.0} s: the server may lose a worker")
        }
    }
}

fn cost_text(in_queue: usize) -> String {
    match in_queue {
        0 => "ended at once: sessions with the upstream may be left open, and keep their workers a while"
            .to_owned(),
        1 => "ended at once in the upstream's queue: the server may have lost a worker until it restarts"
            .to_owned(),
        count => format!(
            "ended at once with {count} places in the upstream's queue: the server may have lost {count} workers until it \
             restarts"
        ),
    }
}
