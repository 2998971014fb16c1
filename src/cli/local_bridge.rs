//! A server in this process, between a command and the MiniCPM-o servers of `--upstream` or `--config`. The command opens
//! sessions of the client protocol `rest` in memory. Only a command that tests other protocols has the server listen.

use std::{net::SocketAddr, path::Path, pin::pin, time::Duration};

use futures_util::{FutureExt as _, future::select_ok};
use tokio::time::timeout;
use toml::Value;

use super::{args::UpstreamArgs, dial::DEFAULT_MODEL, error::ClientError, running_server::RunningServer};
use crate::{
    config::{Config, DrainConfig, Layers, Setting, UpstreamConfig, path_text},
    doctor::step::QUEUE_EXIT_MAX,
    net::UntrustedCertificate,
    secret::redacted_url,
    server::{
        LocalSessions, RestSession, Server, queue_keeper::QueueWaits, registry::SessionRegistry,
        route::RouteConfig,
    },
    spelling::{FileError, Library},
    telemetry::metrics::Metrics,
};

/// Time to close upstream sessions in an orderly way at the end of the command: longer than the wait for an answer (10 s) and
/// the close of its session. Sessions in an upstream's queue have [`QUEUE_EXIT_MAX`].
const DRAIN_TIMEOUT_MS: u64 = 20_000;

/// Time limit of the first connection to an upstream, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server in this process.
pub(super) struct LocalBridge {
    sessions: LocalSessions,
    voices: Vec<String>,
    addresses: Vec<SocketAddr>,
    registry: SessionRegistry,
    metrics: Metrics,
    server: RunningServer,
    /// Ended sessions of the server in an upstream's queue.
    queued: QueueWaits,
    /// Sessions in a queue for which the end of the command waits.
    leaving: QueueWaits,
}

impl LocalBridge {
    /// Starts the server if an upstream can be reached. All files in progress share it.
    pub(super) async fn start(args: &UpstreamArgs, leaving: QueueWaits) -> Result<Self, ClientError> {
        let mut config = config(args)?;
        config.detect_dialects().await;
        Self::start_with(&config, None, leaving).await
    }

    /// Starts a server with this configuration if an upstream can be reached. It listens only at the address given. Its end
    /// counts the sessions that it waits for in `leaving`.
    pub(super) async fn start_with(
        config: &Config,
        listen: Option<&str>,
        leaving: QueueWaits,
    ) -> Result<Self, ClientError> {
        let voices = config.voices.keys().cloned().collect();
        let mut service = config.build_service().map_err(ClientError::Usage)?;
        // The command's user is the operator.
        service.tells_upstream_addresses = true;
        service.records_all_sessions = true;
        let unwritable = |dir: &Path, reason| {
            let destination = dir.to_owned();
            ClientError::UnwritableOutput { destination, reason }
        };
        if let Some(traces) = &service.traces {
            traces.create_dir().map_err(|reason| unwritable(traces.dir(), reason))?;
        }
        if let Some(recordings) = &service.recordings {
            recordings.create_dir().map_err(|reason| unwritable(recordings.dir(), reason))?;
        }
        connect_to_any(&config.upstream, &service.library).await?;
        let mut server = Server::new(service);
        config.load_turn_model(&mut server).map_err(ClientError::Usage)?;
        let cannot_listen = |error: std::io::Error| ClientError::LocalServer(error.to_string());
        if let Some(listen) = listen {
            server.bind_address(listen).await.map_err(cannot_listen)?;
        }
        let queued = server.wait_in_queues(QUEUE_EXIT_MAX);
        let (sessions, registry, metrics) = (server.local_sessions(), server.registry(), server.metrics());
        let addresses = server.local_addrs().map_err(cannot_listen)?;
        let server = RunningServer::start(|stopped| server.run(async { drop(stopped.await) }));
        Ok(Self { sessions, voices, addresses, registry, metrics, server, queued, leaving })
    }

    /// The address that the server listens at, if any.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// The running sessions.
    pub(super) const fn registry(&self) -> &SessionRegistry {
        &self.registry
    }

    /// The server's metrics.
    pub(super) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// True if sessions that were dropped wait in an upstream's queue.
    pub(super) fn waits_in_queue(&self) -> bool {
        self.queued.count() > 0
    }

    /// Names of the configured voices.
    pub(super) fn voices(&self) -> &[String] {
        &self.voices
    }

    /// Opens a session. With `shows_messages`, its events come with the messages that spell them.
    pub(super) async fn open(&self, shows_messages: bool) -> Result<RestSession, ClientError> {
        self.sessions.open(DEFAULT_MODEL, shows_messages).await.map_err(ClientError::LocalServer)
    }

    /// Opens a session of a client of this protocol, which must take int16 mono at 16 kHz.
    pub(super) async fn open_client(&self, protocol: &str) -> Result<RestSession, ClientError> {
        self.sessions.open_client(protocol, DEFAULT_MODEL).await.map_err(ClientError::LocalServer)
    }

    /// Closes the sessions with the upstreams, and ends the server.
    pub(super) async fn stop(self) {
        let mut ended = pin!(self.server.stop());
        let mut wait = None;
        loop {
            tokio::select! {
                () = &mut ended => return,
                () = self.queued.until_some(), if wait.is_none() => wait = Some(self.leaving.enter()),
            }
        }
    }
}

/// Connects to the upstreams until one accepts, without opening a session. A session would retry a wrong address or
/// certificate for seconds, because most failures of a running server pass.
async fn connect_to_any(upstreams: &[UpstreamConfig], library: &Library) -> Result<(), ClientError> {
    select_ok(upstreams.iter().map(|upstream| connect(upstream, library).boxed())).await.map(drop)
}

async fn connect(upstream: &UpstreamConfig, library: &Library) -> Result<(), ClientError> {
    let url = redacted_url(&upstream.url);
    let dialect = upstream.mapping(library).map_err(ClientError::Usage)?;
    let (_, dialer) = upstream.build_dialer(&dialect).map_err(ClientError::Usage)?;
    let reason = match timeout(CONNECT_TIMEOUT, dialer.endpoint().connect()).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => match UntrustedCertificate::cause_of(&error) {
            Some(problem) => {
                let option = "--upstream-ca, or by `ca` of the [[upstream]] in the configuration";
                return Err(ClientError::UntrustedCertificate { url, problem, option });
            }
            None => error.to_string(),
        },
        Err(_) => format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
    };
    Err(ClientError::UpstreamUnreachable { url, reason })
}

/// Keys of a configuration file that concern the model.
const KEYS_OF_MODEL: [&str; 4] = ["language", "mappings", "upstream", "voices"];

/// Keys that concern a conversation: those of the model, and what the model and voxbridge ask beside it.
const KEYS_OF_CONVERSATION: [&str; 7] =
    ["language", "mappings", "mcp", "turn_judge", "turn_model", "upstream", "voices"];

/// The configuration: of a file, only what concerns the model.
pub(super) fn config(args: &UpstreamArgs) -> Result<Config, ClientError> {
    read_config(args, &KEYS_OF_MODEL)
}

/// The configuration: of a file, only what concerns a conversation.
pub(super) fn conversation_config(args: &UpstreamArgs) -> Result<Config, ClientError> {
    read_config(args, &KEYS_OF_CONVERSATION)
}

fn read_config(args: &UpstreamArgs, keys: &[&str]) -> Result<Config, ClientError> {
    let usage = |error: FileError| ClientError::Usage(error.to_string());
    let settings = settings(args).map_err(ClientError::Usage)?;
    let mut layers = Layers::read(args.config.as_deref(), &settings).map_err(usage)?;
    layers.file.retain(|key, _| keys.contains(&key));
    Ok(Config {
        routes: vec![RouteConfig::catch_all("speech")],
        drain: DrainConfig { timeout_ms: Some(DRAIN_TIMEOUT_MS), ..DrainConfig::default() },
        ..layers.merge().map_err(usage)?
    })
}

/// Options for all upstreams.
fn settings(args: &UpstreamArgs) -> Result<Vec<Setting>, String> {
    let urls = Some(&args.upstream).filter(|urls| !urls.is_empty()).map(|urls| urls.clone().into());
    let ca = args.upstream_ca.clone().map(path_text).transpose()?;
    let settings: [(&str, &str, Option<Value>); 3] = [
        ("upstream.*.url", "--upstream", urls),
        ("upstream.*.ca", "--upstream-ca", ca.map(Value::from)),
        ("upstream.*.dialect", "--upstream-dialect", args.upstream_dialect.clone().map(Value::from)),
    ];
    let given = settings.into_iter().filter_map(|(path, option, value)| Some((path, option, value?)));
    Ok(given.map(|(path, option, value)| Setting { path, value, source: option.to_owned() }).collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn option_names_the_dialect_of_the_upstreams() {
        let path = std::env::temp_dir().join(format!("voxbridge-dialect-{}.toml", std::process::id()));
        std::fs::write(&path, "[[upstream]]\nurl = \"ws://gpu:8006\"\ndialect = \"minicpm-o-legacy\"\n")
            .unwrap();
        let dialect = |option: Option<&str>, config: Option<&PathBuf>| {
            let args = UpstreamArgs {
                upstream: vec!["ws://gpu:8080/backend".to_owned()],
                upstream_ca: None,
                upstream_dialect: option.map(str::to_owned),
                config: config.cloned(),
            };
            super::config(&args).unwrap().upstream.remove(0).dialect
        };
        assert_eq!(dialect(Some("llama-cpp-omni"), None), "llama-cpp-omni");
        assert_eq!(dialect(None, None), "auto");
        assert_eq!(dialect(None, Some(&path)), "minicpm-o-legacy");
        assert_eq!(dialect(Some("llama-cpp-omni"), Some(&path)), "llama-cpp-omni");
        std::fs::remove_file(path).unwrap();
    }
}
