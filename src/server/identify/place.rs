//! The protocols of the place that a client has come to: a path with its query, or a listener. A route may also name the protocol.

use std::sync::Arc;

use super::{DetectedBy, Identified};
use crate::{server::ServiceConfig, spelling::ClientMapping};

/// Why no protocol can serve a request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) enum NotServed {
    /// Nothing is served at the path.
    NotFound,
    /// No protocol at the path has the requested mode; the HTTP status to answer with.
    NoSuchMode(u16),
    /// No route serves this client protocol; its name.
    NoRoute(String),
}

/// The protocols that the sender of a request may speak.
pub(in crate::server) fn at_path(
    config: &ServiceConfig,
    path: &str,
    query: &str,
) -> Result<Identified, NotServed> {
    let forced = config.routes.forced_protocol(path);
    let mut candidates: Vec<_> = match forced {
        Some(protocol) => vec![protocol.clone()],
        None => config.library.clients_at(path).cloned().collect(),
    };
    let count_at_path = candidates.len();
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
    let by = match (candidates.len(), count_at_path) {
        (1, _) if forced.is_some() => DetectedBy::Route,
        (1, 1) => DetectedBy::Path,
        (1, _) => DetectedBy::Query,
        _ => DetectedBy::Default,
    };
    Identified::among(candidates, by).ok_or_else(|| match mode_error {
        Some(status) if max_known.is_none() => NotServed::NoSuchMode(status),
        _ => NotServed::NoRoute(likeliest),
    })
}

/// The protocols that a client of this listener for bare TCP may speak. The one that the listener is named after comes first.
pub(in crate::server) fn at_listener(config: &ServiceConfig, listener: &str) -> Option<Identified> {
    let is_here = |client: &&Arc<ClientMapping>| {
        client.tcp.as_ref().is_some_and(|tcp| tcp.listener == listener) && config.routes.can_serve(client)
    };
    let mut found: Vec<_> = config.library.clients().filter(is_here).cloned().collect();
    found.sort_by_key(|client| client.name != listener);
    let by = if found.len() == 1 { DetectedBy::Listener } else { DetectedBy::Default };
    Identified::among(found, by)
}
