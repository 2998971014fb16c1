//! Tool servers as one session has them: which it offers, and its calls.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{Stream as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::watch;

use super::ToolServers;
use crate::vocabulary::{EntryId, ServerCall, ServerCallResult, ToolServer};

/// Calls and tools of one session.
pub(crate) struct SessionTools {
    servers: ToolServers,
    /// Servers that its profile names.
    names: Arc<[String]>,
    /// Completes when tools have changed.
    change: BoxFuture<'static, watch::Receiver<()>>,
    calls: FuturesUnordered<BoxFuture<'static, (EntryId, ServerCallResult)>>,
}

/// News of a session's tools.
#[derive(Debug)]
pub(crate) enum ToolNews {
    /// The servers that can be called have changed.
    Servers(Arc<[ToolServer]>),
    /// A call has ended.
    Result(EntryId, ServerCallResult),
}

impl SessionTools {
    /// The tools of these servers; `None` without names.
    pub(crate) fn new(servers: &ToolServers, names: &[String]) -> Option<Self> {
        (!names.is_empty()).then(|| Self {
            servers: servers.clone(),
            names: names.into(),
            change: next_change(servers.0.changed.subscribe()),
            calls: FuturesUnordered::new(),
        })
    }

    /// The servers that can be called now.
    pub(crate) fn offered(&self) -> Arc<[ToolServer]> {
        self.servers.offered(&self.names)
    }

    /// Begins a call.
    pub(crate) fn call(&self, call: ServerCall) {
        let id = call.id;
        let result = self.servers.call(call);
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
        let Poll::Ready(receiver) = self.change.as_mut().poll(cx) else { return Poll::Pending };
        self.change = next_change(receiver);
        Poll::Ready(ToolNews::Servers(self.offered()))
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
