//! Tool servers as one session has them: which it offers, those that its client names, and its calls.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::{FutureExt as _, Stream as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::watch;
use tracing::debug;

use super::{
    AllowedServers, ToolServers,
    remote::{Listed, RemoteConnection, connect},
};
use crate::vocabulary::{EntryId, ListedTool, RemoteServer, ServerCall, ServerCallResult, ToolServer};

/// Most servers of a client that are being connected.
const LISTINGS_MAX: usize = 16;

/// Calls and tools of one session.
pub(crate) struct SessionTools {
    servers: ToolServers,
    /// Servers that its profile names.
    names: Arc<[String]>,
    /// Servers that its client may name.
    allowed: Arc<AllowedServers>,
    /// Completes when tools have changed.
    change: BoxFuture<'static, watch::Receiver<()>>,
    calls: FuturesUnordered<BoxFuture<'static, (EntryId, ServerCallResult)>>,
    /// Servers of the client whose tools are being listed, and whether they are still wanted.
    listings: FuturesUnordered<BoxFuture<'static, (EntryId, Listed)>>,
    awaited: Vec<EntryId>,
    /// Connected servers of the client.
    remote: Vec<RemoteServerEntry>,
}

/// A connected server of the client.
struct RemoteServerEntry {
    number: EntryId,
    connection: Arc<RemoteConnection>,
    /// Its next list of tools; `None` once the connection is gone.
    next_list: Option<BoxFuture<'static, Result<Vec<ListedTool>, String>>>,
}

impl RemoteServerEntry {
    fn new(number: EntryId, connection: Arc<RemoteConnection>) -> Self {
        let next_list = Some(connection.clone().next_list().boxed());
        Self { number, connection, next_list }
    }

    /// The tools when they have changed.
    fn poll_list(&mut self, cx: &mut Context<'_>) -> Poll<Vec<ListedTool>> {
        let Some(next_list) = &mut self.next_list else { return Poll::Pending };
        match ready!(next_list.as_mut().poll(cx)) {
            Ok(tools) => {
                self.next_list = Some(self.connection.clone().next_list().boxed());
                Poll::Ready(tools)
            }
            Err(problem) => {
                // Its calls fail from now on, and say why.
                debug!("tool server of the client is gone: {problem}");
                self.next_list = None;
                Poll::Pending
            }
        }
    }
}

/// News of a session's tools.
#[derive(Debug)]
pub(crate) enum ToolNews {
    /// The servers that can be called have changed.
    Servers(Arc<[ToolServer]>),
    /// A call has ended.
    Result(EntryId, ServerCallResult),
    /// The tools of a client's server, or why there are none; and again when they have changed.
    List(EntryId, Result<Vec<ListedTool>, String>),
}

impl SessionTools {
    /// The tools of these servers, and of those that a client may name; `None` without names and without allowed servers.
    pub(crate) fn new(
        servers: &ToolServers,
        names: &[String],
        allowed: Option<&Arc<AllowedServers>>,
    ) -> Option<Self> {
        let allowed = allowed.filter(|allowed| !allowed.is_empty()).cloned();
        (!names.is_empty() || allowed.is_some()).then(|| Self {
            servers: servers.clone(),
            names: names.into(),
            allowed: allowed.unwrap_or_default(),
            change: next_change(servers.0.changed.subscribe()),
            calls: FuturesUnordered::new(),
            listings: FuturesUnordered::new(),
            awaited: Vec::new(),
            remote: Vec::new(),
        })
    }

    /// The servers of the profile that can be called now; `None` if it names none.
    pub(crate) fn offered(&self) -> Option<Arc<[ToolServer]>> {
        (!self.names.is_empty()).then(|| self.servers.offered(&self.names))
    }

    /// Connects to a server that the client names, and lists its tools.
    pub(crate) fn connect(&mut self, number: EntryId, server: RemoteServer) {
        let is_full = self.listings.len() >= LISTINGS_MAX;
        let allowed = self.allowed.clone();
        self.awaited.push(number);
        self.listings.push(Box::pin(async move {
            let listed = match is_full {
                true => Err(format!("more than {LISTINGS_MAX} servers are being connected")),
                false => connect(server, allowed).await,
            };
            (number, listed)
        }));
    }

    /// Leaves a server that the client names no longer. Calls in progress go on.
    pub(crate) fn leave(&mut self, number: EntryId) {
        self.awaited.retain(|known| *known != number);
        self.remote.retain(|server| server.number != number);
    }

    /// Begins a call.
    pub(crate) fn call(&self, call: ServerCall) {
        let id = call.id;
        let result = match call.list {
            None => self.servers.call(call),
            Some(list) => {
                let server = self.remote.iter().find(|server| server.number == list);
                self.servers.call_remote(call, server.map(|server| server.connection.clone()))
            }
        };
        let lost = || ServerCallResult::failed("the call was lost");
        self.calls.push(Box::pin(async move { (id, result.await.unwrap_or_else(|_| lost())) }));
    }

    /// The next news. Pending for ever without calls and changes.
    pub(crate) fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<ToolNews> {
        if !self.calls.is_empty()
            && let Poll::Ready(Some((id, result))) = Pin::new(&mut self.calls).poll_next(cx)
        {
            return Poll::Ready(ToolNews::Result(id, result));
        }
        while !self.listings.is_empty()
            && let Poll::Ready(Some((number, listed))) = Pin::new(&mut self.listings).poll_next(cx)
        {
            let Some(at) = self.awaited.iter().position(|known| *known == number) else { continue };
            self.awaited.swap_remove(at);
            let list = listed.map(|(connection, tools)| {
                self.remote.push(RemoteServerEntry::new(number, connection));
                tools
            });
            return Poll::Ready(ToolNews::List(number, list));
        }
        for server in &mut self.remote {
            if let Poll::Ready(tools) = server.poll_list(cx) {
                return Poll::Ready(ToolNews::List(server.number, Ok(tools)));
            }
        }
        loop {
            let Poll::Ready(receiver) = self.change.as_mut().poll(cx) else { return Poll::Pending };
            self.change = next_change(receiver);
            if let Some(servers) = self.offered() {
                return Poll::Ready(ToolNews::Servers(servers));
            }
        }
    }
}

/// Waits for a change that the receiver has not seen.
fn next_change(mut receiver: watch::Receiver<()>) -> BoxFuture<'static, watch::Receiver<()>> {
    Box::pin(async move {
        if receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        receiver
    })
}
