//! A server on a task of its own, which stops when its command says so.

use tokio::{sync::oneshot, task::JoinHandle};

/// A running server. Without [`Self::stop`], it drains by itself.
pub(super) struct RunningServer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RunningServer {
    /// Starts a server, which gets a signal when it should stop.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(oneshot::Receiver<()>) -> F,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, task: tokio::spawn(run(stopped)) }
    }

    /// Stops the server and waits for its end.
    pub(super) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}
