//! Which client protocol a connection speaks. A route may say so; otherwise the path, the query string and at last the
//! first message do.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tracing::debug;

use crate::mapping::ClientMapping;
use crate::server::{Service, websocket::Wire};

/// How long a client's first message is waited for where nothing else tells protocols apart. The page that comes with
/// older MiniCPM-o servers speaks after 100 ms (field notes §4); who waits for the server to speak first is no worse off
/// for so little.
const FIRST_WITHIN: Duration = Duration::from_millis(300);

/// Why a request is for nobody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Nobody {
    /// There is nothing at its path.
    NotFound,
    /// Its mode is one that no protocol at its path has; the HTTP status that says so.
    NoSuchMode(u16),
    /// No route leads clients like it anywhere; the name of their protocol.
    NoRoute(String),
}

/// The protocols that a request may be for, the likeliest first.
pub(crate) fn by_request(
    service: &Service,
    path: &str,
    query: &str,
) -> Result<Vec<Arc<ClientMapping>>, Nobody> {
    let mut candidates: Vec<_> = match service.routes.protocol_at(path) {
        Some(protocol) => vec![protocol.clone()],
        None => service.library.clients_at(path).cloned().collect(),
    };
    let first = candidates.first().ok_or(Nobody::NotFound)?.clone();
    let mode =
        |client: &ClientMapping| client.relay.as_ref().map_or(Ok(()), |relay| relay.mode(query).map(drop));
    let refused = candidates.iter().find_map(|client| mode(client).err());
    candidates.retain(|client| mode(client).is_ok());
    // A word for the mode is a better sign than a protocol that takes any.
    let named = |client: &ClientMapping| client.relay.as_ref().is_none_or(|relay| relay.names_mode(query));
    if candidates.iter().any(|client| client.relays() && named(client)) {
        candidates.retain(|client| named(client));
    }
    let names: Vec<_> = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name).collect();
    let known = |client: &ClientMapping| names.iter().filter(|name| client.has_parameter(name)).count();
    let most = candidates.iter().map(|client| known(client)).max();
    candidates.retain(|client| Some(known(client)) == most);
    // A relayed client has nobody to talk to where no route leads; it names no model.
    let served = |client: &ClientMapping| !client.relays() || service.routes.find(path, client, "").is_some();
    let likeliest = candidates.first().map_or(first.name.clone(), |client| client.name.clone());
    candidates.retain(|client| served(client));
    // Who names no model is none of those that have to.
    let lacks = |client: &ClientMapping| {
        client.model_parameter().is_some_and(|model| names.iter().all(|name| *name != model))
    };
    candidates.sort_by_key(|client| (lacks(client), client.relays()));
    match (candidates.is_empty(), refused) {
        (false, _) => Ok(candidates),
        (true, Some(status)) if most.is_none() => Err(Nobody::NoSuchMode(status)),
        (true, _) => Err(Nobody::NoRoute(likeliest)),
    }
}

/// The first message, where it has to tell protocols apart; `Err` when the client went away instead.
pub(crate) async fn first_message<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut Wire<S>,
) -> Result<Option<Message>, ()> {
    let first = async {
        while let Some(message) = stream.next().await {
            match message {
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => return Ok(message),
                // Behind a close frame the stream ends, when that is answered.
                Ok(_) => {}
                Err(WsError::Capacity(_)) => {
                    let reason = "message too big".into();
                    let _ = stream.close(CloseFrame { code: CloseCode::Size, reason }).await;
                }
                Err(_) => break,
            }
        }
        Err(())
    };
    match tokio::time::timeout(FIRST_WITHIN, first).await {
        Ok(first) => first.map(Some),
        Err(_) => Ok(None),
    }
}

/// The first protocol that has such a message, the likeliest when none has; without a message the likeliest, and all that
/// are relayed where that one is: they wait to be told that there is a worker, and can be told apart later.
pub(crate) fn by_message(
    candidates: &[Arc<ClientMapping>],
    first: Option<&Message>,
) -> Vec<Arc<ClientMapping>> {
    if first.is_none() && candidates.first().is_some_and(|client| client.relays()) {
        return candidates.iter().filter(|client| client.relays()).cloned().collect();
    }
    let has = |client: &&Arc<ClientMapping>| match first {
        Some(Message::Text(text)) => client.has_command(text),
        // Relayed clients send none.
        _ => !client.relays(),
    };
    // What nobody knows is answered best by those who answer everything.
    let any = || candidates.iter().find(|client| !client.relays()).or(candidates.first());
    let found = candidates.iter().find(has).or_else(any).cloned();
    debug!(client = found.as_ref().map(|client| &client.name), spoke = first.is_some(), "recognised");
    Vec::from_iter(found)
}
