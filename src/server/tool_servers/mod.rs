//! Tool servers. Those of the operator have one connection, which all sessions share; those that a client names are connected for
//! its session ([`remote`]), within what the operator allows ([`allowed`]).
//!
//! A server that is down costs its tools: sessions are not offered them until it is back, and the connection is tried again. A
//! call has a task of its own, so it goes on when its session ends. [`mcp`] speaks the Model Context Protocol; a program without
//! the cargo feature `mcp` has no tool servers.

mod allowed;
#[cfg(any(feature = "mcp", test))]
mod inner_addresses;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(not(feature = "mcp"))]
#[path = "off.rs"]
mod mcp;
mod remote;
mod session_tools;
mod settings;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{Semaphore, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout},
};
use tracing::{Instrument as _, info, warn};

use self::remote::RemoteConnection;
pub use self::{allowed::AllowedServers, settings::ToolServerSettings};
pub(crate) use self::{
    mcp::check,
    session_tools::{SessionTools, ToolNews},
    settings::ToolServerTransport,
};
use crate::{
    telemetry::metrics::Metrics,
    vocabulary::{ServerCall, ServerCallResult, Tool, ToolServer},
};

/// Calls of one server at a time. More wait, within their time.
const CALLS_AT_ONCE: usize = 32;
/// Name of all servers of clients in the metrics.
const OF_CLIENTS: &str = "(client)";
/// Time in which a call that takes too long is cancelled.
const CANCEL_TIME: Duration = Duration::from_secs(1);
/// First and longest pause before a server is connected again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A connection on which tools are called.
pub(crate) trait ToolCaller: Send + Sync {
    /// Calls a tool, and cancels the call after a time.
    fn call(
        &self,
        tool: String,
        arguments: String,
        at_most: Duration,
    ) -> BoxFuture<'static, Result<ServerCallResult, String>>;
}

/// All tool servers of this process. Clones share them.
#[derive(Clone)]
pub struct ToolServers(Arc<Shared>);

struct Shared {
    servers: Vec<ServerEntry>,
    /// Sends when a server's tools have changed.
    changed: watch::Sender<()>,
    metrics: Metrics,
}

/// One server, and its connection.
struct ServerEntry {
    settings: ToolServerSettings,
    connection: Mutex<Connection>,
    slots: Arc<Semaphore>,
}

/// State of the connection to a server.
#[derive(Clone, Default)]
struct Connection {
    /// `None` while the server is not connected.
    caller: Option<Arc<dyn ToolCaller>>,
    tools: Arc<[Tool]>,
}

/// A server, for operators.
#[derive(Debug, serde::Serialize)]
pub struct ToolServerView {
    /// Its name in the configuration.
    pub name: String,
    /// It can be called now.
    pub is_connected: bool,
    /// Number of tools that it offers.
    pub tools: usize,
}

impl ServerEntry {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A panic leaves the connection as it was.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolServers {
    /// Servers that are not connected yet.
    pub(crate) fn new(servers: Vec<ToolServerSettings>, metrics: Metrics) -> Self {
        let entry = |settings: ToolServerSettings| {
            metrics.set_tool_server_up(&settings.name, false);
            ServerEntry {
                settings,
                connection: Mutex::default(),
                slots: Arc::new(Semaphore::new(CALLS_AT_ONCE)),
            }
        };
        let servers = servers.into_iter().map(entry).collect();
        Self(Arc::new(Shared { servers, changed: watch::Sender::new(()), metrics }))
    }

    /// Keeps all servers connected until the future is dropped.
    pub(crate) async fn run(self) {
        let mut connections = JoinSet::new();
        for at in 0..self.0.servers.len() {
            connections.spawn(self.clone().keep_connected(at));
        }
        while connections.join_next().await.is_some() {}
    }

    /// Keeps one server connected.
    async fn keep_connected(self, at: usize) {
        let settings = &self.0.servers[at].settings;
        let mut pause = FIRST_PAUSE;
        loop {
            let problem = match mcp::connect(settings).await {
                Ok(connected) => {
                    info!(server = settings.name, "tool server connected");
                    pause = FIRST_PAUSE;
                    loop {
                        match connected.list_tools(settings).await {
                            Ok(tools) => {
                                let tools = tools.into_iter().map(|listed| listed.tool).collect();
                                self.set_connection(at, Some(connected.caller()), tools);
                            }
                            Err(problem) => break problem,
                        }
                        if let Err(problem) = connected.wait_for_change().await {
                            break problem;
                        }
                    }
                }
                Err(problem) => problem,
            };
            self.set_connection(at, None, Vec::new());
            warn!(server = settings.name, retry_s = pause.as_secs(), "tool server is down: {problem}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Notes the tools of a server, or that it is not connected.
    fn set_connection(&self, at: usize, caller: Option<Arc<dyn ToolCaller>>, tools: Vec<Tool>) {
        let entry = &self.0.servers[at];
        self.0.metrics.set_tool_server_up(&entry.settings.name, caller.is_some());
        let has_changed = {
            let mut connection = entry.connection();
            let has_changed = *connection.tools != *tools;
            *connection = Connection { caller, tools: tools.into() };
            has_changed
        };
        if has_changed {
            self.0.changed.send_replace(());
        }
    }

    /// The servers with these names that are connected.
    fn offered(&self, names: &[String]) -> Arc<[ToolServer]> {
        let is_named = |entry: &&ServerEntry| names.contains(&entry.settings.name);
        let offered = |entry: &ServerEntry| {
            let Connection { caller, tools } = entry.connection().clone();
            caller.map(|_| ToolServer {
                name: entry.settings.name.clone(),
                timeout: entry.settings.timeout,
                calls_max: entry.settings.calls_max,
                tools: tools.to_vec(),
            })
        };
        self.0.servers.iter().filter(is_named).filter_map(offered).collect()
    }

    /// Calls a tool of an operator's server in a task of its own.
    fn call(&self, call: ServerCall) -> oneshot::Receiver<ServerCallResult> {
        let servers = self.clone();
        self.spawn_call(call, move |server| {
            let entry = servers.0.servers.iter().find(|entry| entry.settings.name == server);
            let entry = entry.ok_or_else(|| format!("there is no server {server}"))?;
            let caller = entry.connection().caller.clone();
            let caller = caller.ok_or_else(|| format!("the server {server} is not connected"))?;
            Ok((caller, entry.slots.clone()))
        })
    }

    /// Calls a tool of a client's server in a task of its own. The connection lasts as long as the call.
    fn call_remote(
        &self,
        call: ServerCall,
        connection: Option<Arc<RemoteConnection>>,
    ) -> oneshot::Receiver<ServerCallResult> {
        self.spawn_call(call, move |server| {
            let connection = connection.ok_or_else(|| format!("the server {server} is not connected"))?;
            let slots = connection.slots.clone();
            Ok((connection.caller(), slots))
        })
    }

    fn spawn_call(
        &self,
        call: ServerCall,
        find: impl FnOnce(&str) -> Result<(Arc<dyn ToolCaller>, Arc<Semaphore>), String> + Send + 'static,
    ) -> oneshot::Receiver<ServerCallResult> {
        let (reply, result) = oneshot::channel();
        let metrics = self.0.metrics.clone();
        let calling = async move {
            // The session may have ended.
            let _ = reply.send(finish_call(call, find, &metrics).await);
        };
        tokio::spawn(calling.in_current_span());
        result
    }

    /// All servers, for operators.
    pub fn views(&self) -> Vec<ToolServerView> {
        let view = |entry: &ServerEntry| {
            let connection = entry.connection();
            ToolServerView {
                name: entry.settings.name.clone(),
                is_connected: connection.caller.is_some(),
                tools: connection.tools.len(),
            }
        };
        self.0.servers.iter().map(view).collect()
    }
}

impl std::fmt::Debug for ToolServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.views()).finish()
    }
}

/// Calls a tool and reports its end to operators. `find` gives the server's connection, and the room for calls on it.
async fn finish_call(
    call: ServerCall,
    find: impl FnOnce(&str) -> Result<(Arc<dyn ToolCaller>, Arc<Semaphore>), String>,
    metrics: &Metrics,
) -> ServerCallResult {
    let ServerCall { server, tool, arguments, timeout: at_most, list, .. } = call;
    let started = Instant::now();
    let called = async {
        let (caller, slots) = find(&server)?;
        let _slot = slots.acquire().await;
        let left = at_most.saturating_sub(started.elapsed());
        caller.call(tool.clone(), arguments, left).await
    };
    let ended = timeout(at_most + CANCEL_TIME, called).await.ok();
    let is_late = started.elapsed() >= at_most;
    let (outcome, result) = match ended {
        Some(Ok(result)) => ("ok", Ok(result)),
        Some(Err(problem)) if !is_late => ("failed", Err(problem)),
        _ => ("timeout", Err(format!("no result within {} s", at_most.as_secs_f32()))),
    };
    let result = result.unwrap_or_else(|problem| {
        warn!(server, tool, "call of a tool failed: {problem}");
        ServerCallResult::failed(&problem)
    });
    let seconds = started.elapsed().as_secs_f64();
    info!(server, tool, result = outcome, seconds, bytes = result.output.len(), "tool called");
    // Clients may invent any number of names.
    let server = if list.is_some() { OF_CLIENTS } else { server.as_str() };
    metrics.record_tool_call(server, outcome, seconds);
    result
}
