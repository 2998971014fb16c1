//! Detects the client protocol of a connection from the path, the query string and, at last, the first message. A
//! route may also name it.

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

use super::client_signs::DetectedBy;
use crate::server::{ServiceConfig, websocket::WebSocket};
use crate::spelling::{ClientMapping, client::Framing};

/// How long to wait for a first message where nothing else tells protocols apart. The page of older MiniCPM-o servers
/// speaks after 100 ms (mappings/notes/minicpm-o-legacy.md#demo-page). For clients that wait for the server this delay
/// is harmless.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_millis(300);
/// How long to wait for the first message of a client that is rejected if it stays silent.
const FIRST_MESSAGE_TIMEOUT_BEFORE_REJECTION: Duration = Duration::from_secs(2);
/// Time for the closing handshake with a client whose protocol is not detected when the server drains.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why no protocol can serve a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotServed {
    /// Nothing is served at the path.
    NotFound,
    /// No protocol at the path has the requested mode; the HTTP status to answer with.
    NoSuchMode(u16),
    /// No route serves this client protocol; its name.
    NoRoute(String),
}

/// The protocols that a request may speak, the likeliest first.
pub(crate) fn candidates_for_request(
    config: &ServiceConfig,
    path: &str,
    query: &str,
) -> Result<Vec<Arc<ClientMapping>>, NotServed> {
    let mut candidates: Vec<_> = match config.routes.forced_protocol(path) {
        Some(protocol) => vec![protocol.clone()],
        None => config.library.clients_at(path).cloned().collect(),
    };
    let first = candidates.first().ok_or(NotServed::NotFound)?.clone();
    let check_mode =
        |client: &ClientMapping| client.relay.as_ref().map_or(Ok(()), |relay| relay.mode(query).map(drop));
    let mode_error = candidates.iter().find_map(|client| check_mode(client).err());
    candidates.retain(|client| check_mode(client).is_ok());
    // A protocol that knows the mode by name is likelier than one that takes any.
    let names_mode =
        |client: &ClientMapping| client.relay.as_ref().is_none_or(|relay| relay.has_valid_mode(query));
    if candidates.iter().any(|client| client.is_relayed() && names_mode(client)) {
        candidates.retain(|client| names_mode(client));
    }
    let parameter_names: Vec<_> = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name).collect();
    let count_known_parameters =
        |client: &ClientMapping| parameter_names.iter().filter(|name| client.has_parameter(name)).count();
    let max_known = candidates.iter().map(|client| count_known_parameters(client)).max();
    candidates.retain(|client| Some(count_known_parameters(client)) == max_known);
    // Relayed clients name no model, and need a route. Other protocols reject a model without a route themselves, unless
    // they have none for any model and relayed ones do.
    let is_relayable =
        |client: &ClientMapping| client.is_relayed() && config.routes.find(path, client, "").is_some();
    let has_relay = candidates.iter().any(|client| is_relayable(client));
    let has_route = |client: &ClientMapping| match client.is_relayed() {
        true => is_relayable(client),
        false => !has_relay || config.routes.can_serve(client),
    };
    let likeliest = candidates.first().map_or(first.name.clone(), |client| client.name.clone());
    candidates.retain(|client| has_route(client));
    // Protocols that require a model come last if the request names none. So do those without any known
    // parameter in the request.
    let lacks_model = |client: &ClientMapping| {
        let lacks = |model: &str| parameter_names.iter().all(|name| *name != model);
        client.required_model_parameter().is_some_and(lacks)
            || (!client.is_relayed() && count_known_parameters(client) == 0)
    };
    // Clients recognised by their first message are neither silent nor begin with audio.
    candidates
        .sort_by_key(|client| (lacks_model(client), client.is_relayed(), client.is_told_by_first_message()));
    match (candidates.is_empty(), mode_error) {
        (false, _) => Ok(candidates),
        (true, Some(status)) if max_known.is_none() => Err(NotServed::NoSuchMode(status)),
        (true, _) => Err(NotServed::NoRoute(likeliest)),
    }
}

/// The sign in path and query that decided on the protocol; `None` if several protocols are left.
pub(crate) fn detected_by_place(
    config: &ServiceConfig,
    path: &str,
    candidates: &[Arc<ClientMapping>],
) -> Option<DetectedBy> {
    if config.routes.forced_protocol(path).is_some() {
        return Some(DetectedBy::Route);
    }
    let at_path = config.library.clients_at(path).count();
    match (candidates.len(), at_path) {
        (1, 1) => Some(DetectedBy::Path),
        (1, _) => Some(DetectedBy::Query),
        _ => None,
    }
}

/// Reads the first message, or `None` if none comes in time. Fails if the client disconnects.
pub(crate) async fn read_first_message<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut WebSocket<S>,
    candidates: &[Arc<ClientMapping>],
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
    let is_rejected_if_silent = is_unnamed(candidates);
    let limit =
        if is_rejected_if_silent { FIRST_MESSAGE_TIMEOUT_BEFORE_REJECTION } else { FIRST_MESSAGE_TIMEOUT };
    match tokio::time::timeout(limit, first_message).await {
        Ok(first) => first.map(Some),
        Err(_) => Ok(None),
    }
}

/// Closes the connection of a client without a detected protocol, because the server restarts or has no memory for it.
pub(crate) async fn close_unidentified<S: AsyncRead + AsyncWrite + Unpin>(
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

/// True if the request names neither a model nor a mode, so that the client may speak any of these protocols.
fn is_unnamed(candidates: &[Arc<ClientMapping>]) -> bool {
    candidates.first().is_some_and(|client| client.is_relayed())
        && candidates.iter().any(|client| !client.is_relayed())
}

/// Picks the first protocol that knows the message, or the likeliest if none does. Without a message the likeliest
/// wins; if all protocols are relayed, all stay, because their clients wait for the server and can be told apart later.
/// A silent client that named nothing gets no worker: it gets the error of the protocol that requires a model.
///
/// Returns also whether the message tells the protocol.
pub(crate) fn candidates_for_message(
    candidates: &[Arc<ClientMapping>],
    first: Option<&Message>,
) -> (Vec<Arc<ClientMapping>>, bool) {
    if first.is_none()
        && candidates.first().is_some_and(|client| client.is_relayed())
        && !is_unnamed(candidates)
    {
        return (candidates.iter().filter(|client| client.is_relayed()).cloned().collect(), false);
    }
    let knows_message = |client: &&Arc<ClientMapping>| match first {
        Some(Message::Text(text)) => client.has_command(text),
        Some(Message::Binary(bytes)) if client.framing == Framing::Json => {
            std::str::from_utf8(bytes).is_ok_and(|text| client.has_command(text))
        }
        // Relayed clients send no binary messages, and name their mode if they wait for the server.
        Some(_) => !client.is_relayed() && client.takes_binary_audio && !client.is_told_by_first_message(),
        None => false,
    };
    // A protocol voxbridge serves itself answers unknown messages best.
    let fallback = || candidates.iter().find(|client| !client.is_relayed()).or(candidates.first());
    let known = candidates.iter().find(knows_message);
    let found = known.or_else(fallback).cloned();
    debug!(
        client = found.as_ref().map(|client| &client.name),
        has_first_message = first.is_some(),
        "client protocol detected"
    );
    (Vec::from_iter(found), known.is_some())
}
