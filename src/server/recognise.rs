//! Which client protocol a connection speaks. A route may say so; otherwise the path, the query string and at last the
//! first message do.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};
use tracing::debug;

use super::Service;
use crate::mapping::ClientMapping;

/// How long a client's first message is waited for where nothing else tells protocols apart. The page that comes with
/// older MiniCPM-o servers speaks after 100 ms (field notes §4); who waits for the server to speak first is no worse off
/// for so little.
const FIRST_WITHIN: Duration = Duration::from_millis(300);

/// The protocols that a request may be for, the likeliest first; none when there is nothing at its path.
pub(super) fn by_request(service: &Service, path: &str, query: &str) -> Vec<Arc<ClientMapping>> {
    if let Some(protocol) = service.routes.protocol_at(path) {
        return vec![protocol.clone()];
    }
    // A relayed client has nobody to talk to where no route leads; it names no model.
    let served =
        |client: &&Arc<ClientMapping>| !client.relays() || service.routes.find(path, client, "").is_some();
    let mut candidates: Vec<_> = service.library.clients_at(path).filter(served).cloned().collect();
    candidates.sort_by_key(|client| client.relays());
    let names: Vec<_> = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name).collect();
    let known = |client: &ClientMapping| names.iter().filter(|name| client.has_parameter(name)).count();
    let most = candidates.iter().map(|client| known(client)).max();
    candidates.retain(|client| Some(known(client)) == most);
    candidates
}

/// The first message, where it has to tell protocols apart; `Err` when the client went away instead.
pub(super) async fn first_message<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut WebSocketStream<S>,
) -> Result<Option<Message>, ()> {
    let first = async {
        while let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Text(_) | Message::Binary(_) => return Ok(message),
                Message::Close(_) | Message::Frame(_) => break,
            }
        }
        Err(())
    };
    match tokio::time::timeout(FIRST_WITHIN, first).await {
        Ok(first) => first.map(Some),
        Err(_) => Ok(None),
    }
}

/// The first protocol that has such a message; the likeliest when none has, or none came. Of those that are relayed all
/// remain while none has spoken: they wait to be told that there is a worker, and can be told apart later.
pub(super) fn by_message(
    candidates: &[Arc<ClientMapping>],
    first: Option<&Message>,
) -> Vec<Arc<ClientMapping>> {
    if first.is_none() && candidates.iter().all(|client| client.relays()) {
        return candidates.to_vec();
    }
    let has = |client: &&Arc<ClientMapping>| match first {
        Some(Message::Text(text)) => client.has_command(text),
        // Relayed clients send none.
        _ => !client.relays(),
    };
    let found = candidates.iter().find(has).or(candidates.first()).cloned();
    debug!(client = found.as_ref().map(|client| &client.name), spoke = first.is_some(), "recognised");
    Vec::from_iter(found)
}
