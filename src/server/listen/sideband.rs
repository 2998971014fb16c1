//! A second connection to a call: `GET /v1/realtime?call_id=` and `/v1/live/sessions/{id}/attach`, as OpenAI has them. It gets the
//! call's greeting and events, without audio, and its commands count as the client's. Source: OpenAI API guide, "Webhooks and server-side
//! controls".
//!
//! The call never waits for it: a connection that does not read is closed.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::StatusCode;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};
use tracing::info;

use crate::server::accept::{
    admission::{Caller, ClientPeer, spawn_session},
    http_error::{HttpError, HttpResponse, HttpResult},
    request_body::ReceivedRequest,
    session_start::{RawStream, raw_stream},
    upgrade::{check_upgrade, handshake_response},
};
use crate::{
    server::{
        Snapshot,
        client_port::PortInput,
        webrtc::{Calls, Sideband},
        websocket::{session_socket::websocket_config, stream::ClientStream},
    },
    telemetry::metrics::RejectReason,
    vocabulary,
};

/// Longest command, as on a WebSocket of its own without audio.
const MESSAGE_MAX_BYTES: usize = 256 * 1024;
/// Commands that may wait for the call to begin, bytes.
const EARLY_MAX_BYTES: usize = 512 * 1024;
/// Time for the peer to read an event.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The call that a request wants to join.
pub(super) fn call_id(request: &ReceivedRequest) -> Option<String> {
    let path = request.uri().path();
    let path = path.strip_prefix("/openai").unwrap_or(path);
    if let Some(id) = path.strip_prefix("/v1/live/sessions/").and_then(|rest| rest.strip_suffix("/attach")) {
        return Some(id.to_owned());
    }
    let is_realtime = path == "/v1/realtime";
    let query = request.uri().query().filter(|_| is_realtime)?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "call_id").map(|(_, id)| id.into_owned())
}

/// Joins a call. Only the key that began it may.
pub(super) async fn join(
    mut request: ReceivedRequest,
    calls: &Calls,
    id: &str,
    peer: &ClientPeer,
    Snapshot { server, config }: &Snapshot,
) -> HttpResult<HttpResponse> {
    check_upgrade(&request, config, "", &[])?;
    let caller = Caller::identify(config, &request, peer, Some(&server.client_secrets))?;
    let response = handshake_response(&request)?;
    let key = caller.key.as_ref().map(|key| &*key.name);
    let Some(sideband) = calls.join(id, key).await else {
        let body = serde_json::json!({ "error": {
            "message": format!("There is no call '{id}' that takes another connection"),
            "type": "invalid_request_error", "code": "call_not_found", "param": null,
        } });
        return Err(HttpError::with_body(RejectReason::NotFound, StatusCode::NOT_FOUND, body.to_string()));
    };
    info!(call = id, peer = %caller.address, "second connection to a call");
    let upgraded = hyper::upgrade::on(&mut request);
    let serving = async move {
        let Some(RawStream { io, read }) = raw_stream(upgraded, caller.address).await else { return };
        let limits = Some(websocket_config(MESSAGE_MAX_BYTES));
        let socket = WebSocketStream::from_partially_read(io, read, Role::Server, limits).await;
        serve(socket, sideband).await;
    };
    spawn_session(serving, server.cut_off.clone());
    Ok(response)
}

/// Passes on events and commands, until the call or the connection ends.
async fn serve(mut socket: WebSocketStream<ClientStream>, mut sideband: Sideband) {
    let (mut command, mut has_begun, mut early_bytes) = (None, false, 0);
    loop {
        tokio::select! {
            event = sideband.events.recv() => {
                has_begun = true;
                let Some(event) = event else {
                    let _ = timeout(SEND_TIMEOUT, socket.close(None)).await;
                    return;
                };
                if !matches!(timeout(SEND_TIMEOUT, socket.send(Message::text(event))).await, Ok(Ok(()))) {
                    return;
                }
            }
            message = socket.next(), if command.is_none() && (has_begun || early_bytes < EARLY_MAX_BYTES) => match message {
                Some(Ok(Message::Text(text))) => {
                    early_bytes += text.len();
                    command = Some(text);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                // Audio comes by the call.
                _ => return,
            },
            room = sideband.commands.reserve(), if command.is_some() => match room {
                Ok(room) => {
                    if let Some(text) = command.take() {
                        room.send(PortInput::Message(vocabulary::Message::Text(text.to_string())));
                    }
                }
                // The session has ended, and the call ends with its last events.
                Err(_) => command = None,
            },
        }
    }
}
