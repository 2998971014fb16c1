//! Target of a command for files: a server with a WebSocket, a server with an HTTP API, or MiniCPM-o itself.

use super::args::TargetArgs;
use super::dial::ServerTarget;
use super::error::ClientError;
use super::http::HttpTarget;
use super::local_bridge::LocalBridge;

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
    pub(super) async fn open(args: &TargetArgs) -> Result<Self, ClientError> {
        if args.upstream.is_given() {
            return LocalBridge::start(&args.upstream).await.map(Self::Local);
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

    /// Works with the target until `stop` completes with the number of a signal. Then ends the bridge in this process.
    pub(super) async fn work(
        self,
        stop: impl Future<Output = u8>,
        work: impl AsyncFnOnce(&Self) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let result = tokio::select! {
            result = work(&self) => result,
            signal = stop => Err(ClientError::Stopped(signal)),
        };
        if let Self::Local(bridge) = self {
            bridge.stop().await;
        }
        result
    }
}
