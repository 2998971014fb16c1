//! Target of a command for files: a server with a WebSocket, a server with an HTTP API, or MiniCPM-o itself.

use tokio::sync::oneshot;

use super::args::TargetArgs;
use super::dial::ServerTarget;
use super::ending::Ending;
use super::error::ClientError;
use super::http::HttpTarget;
use super::local_bridge::LocalBridge;
use crate::server::queue_keeper::QueueWaits;

/// Files in progress at a time where the model sets the pace.
const PARALLEL_FILES: usize = 4;

/// Where recordings and texts are sent.
pub(super) enum Target {
    /// A Macaw server or voxbridge, by WebSocket and in real time.
    Live(ServerTarget),
    /// A server with OpenAI's HTTP API.
    Http(HttpTarget),
    /// MiniCPM-o, through a bridge in this process.
    Local(LocalBridge),
}

impl Target {
    /// The target of the options. Starts the bridge, if it takes one.
    async fn open(args: &TargetArgs, leaving: QueueWaits) -> Result<Self, ClientError> {
        if args.upstream.is_given() {
            return LocalBridge::start(&args.upstream, leaving).await.map(Self::Local);
        }
        let target = args.server.target()?;
        if !target.url.starts_with("http://") && !target.url.starts_with("https://") {
            return Ok(Self::Live(target));
        }
        let ServerTarget { url, model, ca, key, .. } = target;
        HttpTarget::new(&url, model.as_deref(), ca.as_deref(), key).map(Self::Http)
    }

    /// Files in progress at a time by default. A server in real time gets one after the other, because it may serve few
    /// sessions.
    pub(super) const fn parallel_files(&self) -> usize {
        match self {
            Self::Live(_) => 1,
            Self::Http(_) | Self::Local(_) => PARALLEL_FILES,
        }
    }

    /// Works with the target of the options until the first signal. Then ends the bridge in this process.
    pub(super) async fn work(
        args: &TargetArgs,
        ending: Ending,
        work: impl AsyncFnOnce(&Self) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let (leaving, (stopping, stopped)) = (ending.leaving(), oneshot::channel());
        let work_and_end = async {
            let mut target = None;
            let open_and_work = async { work(target.insert(Self::open(args, leaving).await?)).await };
            let result = tokio::select! {
                result = open_and_work => result,
                Ok(signal) = stopped => Err(ClientError::Stopped(signal)),
            };
            if let Some(Self::Local(bridge)) = target {
                bridge.stop().await;
            }
            result
        };
        let stop = |signal| {
            // The work may be over.
            let _ = stopping.send(signal);
        };
        ending.run(work_and_end, stop).await.unwrap_or_else(|signal| Err(ClientError::Stopped(signal)))
    }
}
