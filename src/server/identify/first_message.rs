//! The first message of a client, where the request leaves several protocols.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::coop::consume_budget,
};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tracing::debug;

use super::{DetectedBy, Identified};
use crate::{
    client::Codec,
    server::{ServiceConfig, websocket::WebSocket},
    spelling::{ClientMapping, client::Framing},
};

/// How long to wait for a first message where nothing else tells protocols apart. The page of older MiniCPM-o servers
/// speaks after 100 ms (mappings/notes/minicpm-o-legacy.md#demo-page). For clients that wait for the server this delay
/// is harmless.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_millis(300);
/// How long to wait for the first message of a client that is rejected if it stays silent.
const FIRST_MESSAGE_TIMEOUT_BEFORE_REJECTION: Duration = Duration::from_secs(2);
/// Time for the closing handshake with a client whose protocol is not detected when the server drains.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl Identified {
    /// True if the session of a client at this path, with this query, waits for its first message.
    pub(in crate::server) fn waits_for_message(
        &self,
        config: &ServiceConfig,
        path: &str,
        query: &str,
    ) -> bool {
        !self.is_announced_at_once(config, path, query) && !self.has_single_route(config, path)
    }

    /// True if the session of the likeliest protocol is opened before the client's first message, because its clients wait for
    /// that. A request with a sign of another protocol, or of a client that may be relayed, is no such case.
    fn is_announced_at_once(&self, config: &ServiceConfig, path: &str, query: &str) -> bool {
        let has_route = |client: &Arc<ClientMapping>| {
            let model = Codec::new(client.clone(), 0.0).decode_query(query).model;
            model.is_some_and(|model| !model.is_empty() && config.routes.find(path, client, &model).is_some())
        };
        self.is_open() && self.by == DetectedBy::Default && !self.has_relayed() && has_route(self.likeliest())
    }

    /// True if one session can serve all candidate protocols: there is one candidate, or all are relayed by the same
    /// route, which tells them apart later.
    fn has_single_route(&self, config: &ServiceConfig, path: &str) -> bool {
        let mut routes = self.candidates.iter().map(|client| {
            let route = config.routes.find(path, client, "").filter(|_| client.is_relayed());
            route.map(std::ptr::from_ref)
        });
        let first = routes.next();
        !self.is_open() || routes.all(|route| route.is_some() && Some(route) == first)
    }

    /// True if the first message may be of another protocol than that of the session.
    pub(in crate::server) fn may_be_another(&self) -> bool {
        self.is_open() && !self.has_relayed()
    }

    /// The protocol of a client whose session has the likeliest one, if its first message is of another.
    pub(in crate::server) fn another(mut self, first: &Message) -> Option<Self> {
        let likeliest = self.likeliest().clone();
        self.narrow_by_message(Some(first));
        (self.by == DetectedBy::FirstMessage && !Arc::ptr_eq(self.likeliest(), &likeliest)).then_some(self)
    }

    /// Keeps the first protocol that knows the message, or the likeliest if none does. Without a message the likeliest
    /// wins; if all protocols are relayed, all stay, because their clients wait for the server and can be told apart later.
    /// A silent client that named nothing gets no worker: it gets the error of the protocol that requires a model.
    pub(in crate::server) fn narrow_by_message(&mut self, first: Option<&Message>) {
        if first.is_none() && self.likeliest().is_relayed() && !self.is_unnamed() {
            self.candidates.retain(|client| client.is_relayed());
            return;
        }
        let knows_message = |client: &&Arc<ClientMapping>| match first {
            Some(Message::Text(text)) => client.has_command(text),
            Some(Message::Binary(bytes)) if client.framing == Framing::Json => {
                std::str::from_utf8(bytes).is_ok_and(|text| client.has_command(text))
            }
            // Relayed clients send no binary messages, and name their mode if they wait for the server.
            Some(_) => {
                !client.is_relayed() && client.takes_binary_audio && !client.is_told_by_first_message()
            }
            None => false,
        };
        // A protocol voxbridge serves itself answers unknown messages best.
        let fallback = || self.candidates.iter().find(|client| !client.is_relayed());
        let known = self.candidates.iter().find(knows_message);
        let found = known.or_else(fallback).unwrap_or(self.likeliest()).clone();
        debug!(client = found.name, has_first_message = first.is_some(), "client protocol detected");
        let by = if known.is_some() { DetectedBy::FirstMessage } else { self.by };
        *self = Self::certain(found, by);
    }

    /// True if the request names neither a model nor a mode, so that the client may speak any of these protocols.
    fn is_unnamed(&self) -> bool {
        self.likeliest().is_relayed() && self.candidates.iter().any(|client| !client.is_relayed())
    }
}

/// Reads the first message, or `None` if none comes in time. Fails if the client disconnects.
pub(in crate::server) async fn read_first_message<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut WebSocket<S>,
    client: &Identified,
) -> Result<Option<Message>, ()> {
    let first_message = async {
        while let Some(message) = stream.next().await {
            match message {
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => return Ok(message),
                // After a close frame the library answers it and ends the stream. Others get their turn between pings.
                Ok(_) => consume_budget().await,
                Err(WsError::Capacity(_)) => {
                    let reason = "message too big".into();
                    let _ = stream.close(CloseFrame { code: CloseCode::Size, reason }).await;
                }
                Err(_) => break,
            }
        }
        Err(())
    };
    let is_rejected_if_silent = client.is_unnamed();
    let limit =
        if is_rejected_if_silent { FIRST_MESSAGE_TIMEOUT_BEFORE_REJECTION } else { FIRST_MESSAGE_TIMEOUT };
    match tokio::time::timeout(limit, first_message).await {
        Ok(first) => first.map(Some),
        Err(_) => Ok(None),
    }
}

/// Closes the connection of a client without a detected protocol, because the server restarts or has no memory for it.
pub(in crate::server) async fn close_unidentified<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut WebSocket<S>,
    code: CloseCode,
    reason: &'static str,
) {
    let closing_handshake = async {
        let frame = CloseFrame { code, reason: reason.into() };
        if stream.close(frame).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {
                consume_budget().await;
            }
        }
    };
    // A client that exceeds the timeout is dropped.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing_handshake).await;
}
