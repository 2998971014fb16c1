//! Client of the Model Context Protocol: connects to a server, lists its tools and calls them.
//!
//! The library `rmcp` speaks the protocol; [`http`] and [`child`] are the transports. A server's own requests (sampling, roots,
//! questions to the user) are declined, as the library does.
//!
//! Bounds: pages and bytes of a list, the time of each step, the bytes of a message. A result is text for the model, cut after
//! 64 KiB with a note, and pictures.

mod child;
mod http;
mod result;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceExt as _,
    model::{
        CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
        Implementation, PaginatedRequestParams, ServerResult,
    },
    service::{
        ClientInitializeError, NotificationContext, PeerRequestOptions, RunningService,
        RunningServiceCancellationToken, ServiceError,
    },
};
use tokio::{process::Child, sync::Notify, time::timeout};
use tracing::{debug, warn};

use self::result::to_result;
use super::{ToolCaller, ToolServerSettings, ToolServerTransport};
use crate::vocabulary::{ListedTool, ServerCallResult, Tool};

/// Time to connect and to agree on a version. A program may have to fetch its packages first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a page of the list of tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that the library has to end a call by itself.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// Most pages of tools.
const PAGES_MAX: usize = 32;
/// Most tools of a server (OpenAI's bound on an offer).
const TOOLS_MAX: usize = 128;
/// All tools of a server together, bytes: more than the model's context.
const TOOLS_MAX_BYTES: usize = 64 * 1024;
/// Longest hints on a tool, bytes; longer ones are dropped.
const ANNOTATIONS_MAX_BYTES: usize = 4096;
/// Longest message of a server, bytes. A picture has about 1 MB.
const MESSAGE_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Longest description of an error, bytes: a server's answer may be in it.
const WORDS_MAX_BYTES: usize = 500;

/// Checks that this program has tool servers.
#[expect(clippy::unnecessary_wraps, reason = "a program without the feature has an error")]
pub(crate) const fn check() -> Result<(), String> {
    Ok(())
}

/// A connected server. Dropping it ends the connection.
pub(super) struct Connected {
    peer: Peer<RoleClient>,
    /// Ends the library's task.
    stop: Option<RunningServiceCancellationToken>,
    /// Ended with the connection.
    _child: Option<Child>,
    list_changed: Arc<Notify>,
    /// The server has forgotten the session.
    expiry: Arc<Notify>,
    /// The connection has ended.
    end: Arc<Notify>,
}

/// Takes the server's notifications.
#[derive(Clone)]
struct Handler {
    list_changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let program = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), program)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }
}

/// Connects to a server.
///
/// # Errors
/// The failed step and its cause, without secrets.
pub(super) async fn connect(settings: &ToolServerSettings) -> Result<Connected, String> {
    let late = |_| format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
    timeout(CONNECT_TIMEOUT, start(settings)).await.map_err(late)?
}

async fn start(settings: &ToolServerSettings) -> Result<Connected, String> {
    let handler = Handler { list_changed: Arc::default() };
    match &settings.transport {
        ToolServerTransport::Http { target, is_public } => {
            let answer_max = settings.timeout.max(LIST_TIMEOUT) + ANSWER_GRACE;
            let client = http::HttpClient::new(target.clone(), *is_public, answer_max);
            let expiry = client.expiry();
            let service =
                handler.serve(client.into_transport()).await.map_err(|error| words_of_start(&error))?;
            Ok(Connected::new(service, None, expiry))
        }
        ToolServerTransport::Child { .. } => {
            let (transport, child) = child::start(settings)?;
            let service = handler.serve(transport).await.map_err(|error| words_of_start(&error))?;
            Ok(Connected::new(service, Some(child), Arc::default()))
        }
    }
}

impl Connected {
    /// A connection whose library's task has begun.
    fn new(service: RunningService<RoleClient, Handler>, child: Option<Child>, expiry: Arc<Notify>) -> Self {
        let end = Arc::<Notify>::default();
        let connected = Self {
            peer: service.peer().clone(),
            stop: Some(service.cancellation_token()),
            _child: child,
            list_changed: service.service().list_changed.clone(),
            expiry,
            end: end.clone(),
        };
        tokio::spawn(async move {
            // It ends with the connection, however that ends.
            let _ = service.waiting().await;
            end.notify_one();
        });
        connected
    }

    /// The tools that are offered.
    pub(super) async fn list_tools(&self, settings: &ToolServerSettings) -> Result<Vec<ListedTool>, String> {
        let mut list = ToolList { settings, tools: Vec::new(), bytes: 0, left_out: 0 };
        let mut known = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = timeout(LIST_TIMEOUT, self.peer.list_tools(Some(params))).await;
            let late = |_| format!("no list of tools within {} s", LIST_TIMEOUT.as_secs());
            let page = page.map_err(late)?.map_err(|error| words_of(&error))?;
            for tool in page.tools {
                known.push(tool.name.to_string());
                list.add(&tool);
            }
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || list.left_out > 0 {
                break;
            }
        }
        list.warn_if_incomplete(cursor.is_some(), &known);
        Ok(list.tools)
    }

    /// Calls tools on this connection.
    pub(super) fn caller(&self) -> Arc<dyn ToolCaller> {
        Arc::new(Caller(self.peer.clone()))
    }

    /// Waits until the list of tools has changed.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) async fn wait_for_change(&self) -> Result<(), String> {
        tokio::select! {
            () = self.list_changed.notified() => Ok(()),
            () = self.expiry.notified() => Err("the server has forgotten the session".to_owned()),
            () = self.end.notified() => Err("the server has closed the connection".to_owned()),
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.stop.take().into_iter().for_each(RunningServiceCancellationToken::cancel);
    }
}

/// Tools of a server, within the bounds.
struct ToolList<'s> {
    settings: &'s ToolServerSettings,
    tools: Vec<ListedTool>,
    bytes: usize,
    /// Tools that found no room.
    left_out: usize,
}

impl ToolList<'_> {
    fn add(&mut self, tool: &rmcp::model::Tool) {
        let allowed = self.settings.allowed.as_ref();
        let is_allowed = allowed.is_none_or(|allowed| allowed.iter().any(|name| *name == tool.name));
        let is_new = self.tools.iter().all(|known| known.tool.name != tool.name);
        if !is_allowed || !is_new || tool.name.is_empty() {
            return;
        }
        let parameters = serde_json::to_string(&*tool.input_schema).unwrap_or_else(|_| "{}".to_owned());
        let description = tool.description.as_ref().map(ToString::to_string);
        let annotations = tool.annotations.as_ref().and_then(|hints| serde_json::to_string(hints).ok());
        let annotations =
            annotations.filter(|text| text.len() <= ANNOTATIONS_MAX_BYTES).map(String::into_boxed_str);
        let bytes = tool.name.len() + parameters.len() + description.as_ref().map_or(0, String::len);
        if self.tools.len() >= TOOLS_MAX || self.bytes + bytes > TOOLS_MAX_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += bytes;
        let tool = Tool { name: tool.name.to_string(), description, parameters: parameters.into() };
        self.tools.push(ListedTool { tool, annotations });
    }

    fn warn_if_incomplete(&self, has_more_pages: bool, known: &[String]) {
        let server = &self.settings.name;
        let is_incomplete = self.left_out > 0 || has_more_pages;
        if matches!(self.settings.transport, ToolServerTransport::Http { is_public: true, .. }) {
            // The operator cannot change it.
            if is_incomplete {
                debug!(server, offered = self.tools.len(), "tool server of a client has too many tools");
            }
            return;
        }
        if is_incomplete {
            warn!(
                server,
                offered = self.tools.len(),
                "tool server has too many tools, so that some are not offered; name those to offer in mcp.{server}.tools"
            );
        }
        for name in self.settings.allowed.iter().flatten().filter(|name| !known.contains(name)) {
            warn!(server, "mcp.{server}.tools: the server has no tool {name:?}");
        }
    }
}

/// Calls tools of one server.
struct Caller(Peer<RoleClient>);

impl ToolCaller for Caller {
    fn call(
        &self,
        tool: String,
        arguments: String,
        at_most: Duration,
    ) -> BoxFuture<'static, Result<ServerCallResult, String>> {
        let peer = self.0.clone();
        Box::pin(async move {
            let arguments = serde_json::from_str(&arguments)
                .map_err(|error| format!("the arguments are not an object: {error}"))?;
            let params = CallToolRequestParams::new(tool).with_arguments(arguments);
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
            // The server is told when the time is over.
            let options = PeerRequestOptions::with_timeout(at_most);
            let answer = match peer.send_request_with_option(request, options).await {
                Ok(handle) => handle.await_response().await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(ServerResult::CallToolResult(result)) => to_result(&result),
                Ok(_) => Err("the tool asks for something that only a person can answer".to_owned()),
                Err(ServiceError::McpError(error)) => Err(error.message.to_string()),
                Err(ServiceError::TransportClosed) => {
                    Err("the connection to the server is closed".to_owned())
                }
                Err(ServiceError::TransportSend(error)) => Err(words_of(&*error.error)),
                Err(error) => Err(words_of(&error)),
            }
        })
    }
}

/// Why a session with a server could not begin.
fn words_of_start(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => words_of(&*error.error),
        error => words_of(error),
    }
}

/// The words of an error and of its causes.
fn words_of(error: &dyn std::error::Error) -> String {
    /// Words of the library in front of an error of the transport.
    const OF_TRANSPORT: &str = "Client error: ";
    let text = error.to_string();
    let mut words = text.strip_prefix(OF_TRANSPORT).unwrap_or(&text).to_owned();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !words.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = inner.source();
    }
    words.truncate(words.floor_char_boundary(WORDS_MAX_BYTES));
    words
}
