//! Tool servers that a client names: a connection for its session alone, to a host that the operator allows.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use hyper::header::{HeaderName, HeaderValue};
use tokio::{sync::Semaphore, time::timeout};
use tracing::{Instrument as _, info, warn};

use super::{
    AllowedServers, ToolCaller, ToolServerSettings, ToolServerTransport,
    allowed::AllowedServer,
    mcp::{self, Connected},
};
use crate::{
    net::{Endpoint, http_request::RequestTarget},
    secret::redacted_url,
    vocabulary::{ListedTool, RemoteServer, ServerCallResult},
};

/// Time to connect and to list the tools. Clients wait for it before their first question.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Calls of one server at a time. More wait, within their time.
const CALLS_AT_ONCE: usize = 8;

/// A connected server of a client.
pub(super) struct RemoteConnection {
    connected: Connected,
    settings: ToolServerSettings,
    pub(super) slots: Arc<Semaphore>,
}

impl RemoteConnection {
    /// Calls tools, and keeps the connection until their ends.
    pub(super) fn caller(self: Arc<Self>) -> Arc<dyn ToolCaller> {
        self
    }

    /// The tools, once the server says that they have changed.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) async fn next_list(self: Arc<Self>) -> Result<Vec<ListedTool>, String> {
        self.connected.wait_for_change().await?;
        self.connected.list_tools(&self.settings).await
    }
}

impl ToolCaller for RemoteConnection {
    fn call(
        &self,
        tool: String,
        arguments: String,
        at_most: Duration,
    ) -> BoxFuture<'static, Result<ServerCallResult, String>> {
        self.connected.caller().call(tool, arguments, at_most)
    }
}

/// A connection and the server's tools, or why there are none.
pub(super) type Listed = Result<(Arc<RemoteConnection>, Vec<ListedTool>), String>;

/// Connects to a server and lists its tools, in a task of its own.
pub(super) async fn connect(server: RemoteServer, allowed: Arc<AllowedServers>) -> Listed {
    let listing = async move {
        let url = redacted_url(&server.url);
        let listed = timeout(LIST_TIMEOUT, list_tools(&server, &allowed)).await;
        let late = |_| Err(format!("no list of tools within {} s", LIST_TIMEOUT.as_secs()));
        let listed = listed.unwrap_or_else(late);
        match &listed {
            Ok((_, tools)) => info!(url, tools = tools.len(), "tool server of the client connected"),
            Err(problem) => warn!(url, "tool server of the client: {problem}"),
        }
        listed
    };
    let ended = tokio::spawn(listing.in_current_span()).await;
    ended.unwrap_or_else(|_| Err("the connection failed".to_owned()))
}

async fn list_tools(server: &RemoteServer, allowed: &AllowedServers) -> Listed {
    let settings = settings_of(server, allowed.check(&server.url)?).await?;
    let connected = mcp::connect(&settings).await?;
    let tools = connected.list_tools(&settings).await?;
    let slots = Arc::new(Semaphore::new(CALLS_AT_ONCE));
    Ok((Arc::new(RemoteConnection { connected, settings, slots }), tools))
}

async fn settings_of(server: &RemoteServer, allowed: AllowedServer) -> Result<ToolServerSettings, String> {
    let AllowedServer { uri, is_named } = allowed;
    let at = uri.clone();
    // Reads the system's certificates.
    let endpoint = tokio::task::spawn_blocking(move || Endpoint::from_uri(&at, None)).await;
    let endpoint = endpoint.map_err(|error| error.to_string())??;
    let header = |(name, value): &(String, String)| {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some((name.parse::<HeaderName>().ok()?, value))
    };
    let headers: Option<Vec<_>> = server.headers.iter().map(header).collect();
    Ok(ToolServerSettings {
        name: server.label.clone(),
        transport: ToolServerTransport::Http {
            target: RequestTarget::new(endpoint, &uri, headers.ok_or("a header is not allowed")?),
            is_public: !is_named,
        },
        allowed: None,
        timeout: CALL_TIMEOUT,
        calls_max: u32::MAX,
    })
}
