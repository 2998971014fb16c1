//! A server in this process, between a command and the MiniCPM-o servers of `--upstream` or `--config`.
//!
//! It listens on the loopback interface, at a path that no other program knows, and serves the client protocol `rest` there.

use tokio::{sync::oneshot, task::JoinHandle};

use super::{args::UpstreamArgs, dial::ServerTarget, error::ClientError};
use crate::{
    config::{Config, DrainConfig, UpstreamConfig},
    secret,
    server::{Server, route::RouteConfig},
};

/// Time to close upstream sessions in an orderly way when the command is stopped.
const DRAIN_TIMEOUT_MS: u64 = 5000;

/// A server in this process.
pub(super) struct LocalBridge {
    target: ServerTarget,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl LocalBridge {
    /// Starts the server. Files in progress at a time share its upstreams.
    pub(super) async fn start(args: &UpstreamArgs) -> Result<Self, ClientError> {
        let failed = |error: String| ClientError::LocalServer(error);
        let name = secret::random_hex::<16>();
        let path = format!("/{}", name.ok_or_else(|| failed("the system has no random numbers".to_owned()))?);
        let mut service = config(args, &path)?.build_service().map_err(ClientError::Usage)?;
        // The command's user is the operator.
        service.tells_upstream_addresses = true;
        let server = Server::bind("127.0.0.1:0", service).await.map_err(|error| failed(error.to_string()))?;
        let address = server.local_addr().map_err(|error| failed(error.to_string()))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.run(async { drop(stopped.await) }));
        let target = ServerTarget { url: format!("ws://{address}{path}"), ..ServerTarget::default() };
        Ok(Self { target, stop, serving })
    }

    /// Where the server is.
    pub(super) const fn target(&self) -> &ServerTarget {
        &self.target
    }

    /// Closes the sessions with the upstreams, and ends the server.
    pub(super) async fn stop(self) {
        drop(self.stop);
        let _ = self.serving.await;
    }
}

/// The configuration: of a file, only what concerns the model.
fn config(args: &UpstreamArgs, path: &str) -> Result<Config, ClientError> {
    let file = args.config.as_deref().map(Config::read).transpose();
    let file = file.map_err(|error| ClientError::Usage(error.to_string()))?.unwrap_or_default();
    let upstream = |url: &String| UpstreamConfig {
        url: url.clone(),
        ca: args.upstream_ca.clone(),
        ..UpstreamConfig::with_default_dialect()
    };
    let route = RouteConfig {
        path: path.to_owned(),
        protocol: Some("rest".to_owned()),
        ..RouteConfig::catch_all("speech")
    };
    let of_file = Config {
        upstream: file.upstream,
        voices: file.voices,
        mappings: file.mappings,
        language: file.language,
        routes: vec![route],
        drain: DrainConfig { timeout_ms: Some(DRAIN_TIMEOUT_MS), ..DrainConfig::default() },
        ..Config::default()
    };
    let upstreams = args.upstream.iter().map(upstream).collect();
    Ok(of_file.overlaid_with(Config { upstream: upstreams, ..Config::default() }))
}
