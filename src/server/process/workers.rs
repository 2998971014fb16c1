//! Worker threads: one single-threaded runtime per core. A session stays on the thread where it began.
//!
//! A runtime whose threads share all sessions wakes one thread from another and moves session data between caches.
//! That costs 20 % of all CPU time with as many threads as cores (mappings/notes/libraries.md#threads).

use std::{io, num::NonZeroUsize, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    task::AbortHandle,
};

/// Tasks that a thread runs before it looks at the network again. With the runtime's 61, busy tasks that wake themselves would
/// delay the others of their thread by as many time slices.
const TASKS_BETWEEN_EVENTS: u32 = 8;

/// Handles to the session threads.
#[derive(Debug, Clone)]
pub struct Workers(Arc<[Handle]>);

impl Workers {
    /// The current runtime, for a server embedded in another program.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn current_runtime() -> Self {
        Self(Arc::new([Handle::current()]))
    }

    /// Starts `count` threads that run as long as the program; without a number, one per core.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn start(count: Option<NonZeroUsize>) -> io::Result<Self> {
        let count = count.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        (0..count).map(start_worker).collect::<io::Result<Arc<[_]>>>().map(Self)
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Spawns a task on the thread with the fewest tasks.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let least_busy = self.0.iter().min_by_key(|worker| worker.metrics().num_alive_tasks());
        match least_busy {
            Some(worker) => worker.spawn(task).abort_handle(),
            // Unreachable: there is at least one worker.
            None => tokio::spawn(task).abort_handle(),
        }
    }
}

fn start_worker(number: usize) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().event_interval(TASKS_BETWEEN_EVENTS).build()?;
    let handle = runtime.handle().clone();
    let name = format!("sessions-{number}");
    thread::Builder::new().name(name).spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
