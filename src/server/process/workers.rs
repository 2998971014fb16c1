//! The threads that sessions run on: a runtime of one thread for each core, and a session stays where it began.
//!
//! A runtime whose threads share all sessions wakes one thread up from another, and moves what a session holds from cache to
//! cache: 20 % of all CPU time with as many threads as cores (field notes libraries.md).

use std::{io, num::NonZeroUsize, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    task::AbortHandle,
};

/// The threads that sessions run on.
#[derive(Debug, Clone)]
pub struct Workers(Arc<[Handle]>);

impl Workers {
    /// Those of the runtime that this is called in, for a server that is part of another program.
    ///
    /// # Panics
    /// Outside a runtime.
    #[must_use]
    pub fn current_runtime() -> Self {
        Self(Arc::new([Handle::current()]))
    }

    /// So many threads of their own, for as long as the program runs; one for each core without a number.
    ///
    /// # Errors
    /// The system's, which may have no thread left.
    pub fn start(count: Option<NonZeroUsize>) -> io::Result<Self> {
        let count = count.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        (0..count).map(start_worker).collect::<io::Result<Arc<[_]>>>().map(Self)
    }

    /// How many threads.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Goes on with this on the thread that has least to do.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let least_busy = self.0.iter().min_by_key(|worker| worker.metrics().num_alive_tasks());
        match least_busy {
            Some(worker) => worker.spawn(task).abort_handle(),
            // There is one at least.
            None => tokio::spawn(task).abort_handle(),
        }
    }
}

fn start_worker(number: usize) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let name = format!("sessions-{number}");
    thread::Builder::new().name(name).spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
