//! `GET PATH/capabilities` beside the path of a protocol that has such a page: what its sessions can do. Its clients read it before
//! they connect.

use hyper::{Method, Request};

use crate::server::accept::{
    admission::{Caller, ClientPeer},
    http_error::{HttpError, HttpResponse, HttpResult, answer_with},
    request_body::ReceivedRequest,
};
use crate::{
    server::{ServiceConfig, Snapshot},
    spelling::ClientMapping,
    telemetry::metrics::RejectReason,
};

/// The page at this address; `None` for any other request.
pub(in crate::server) fn page<B>(request: &Request<B>, config: &ServiceConfig) -> Option<String> {
    let path = request.uri().path().strip_suffix("/capabilities")?;
    let of = |client: &ClientMapping| Some(client.realtime.as_ref()?.capabilities.as_ref()?.to_string());
    let mut at_path = config.library.clients_at(path).chain(config.routes.forced_protocol(path));
    at_path.find_map(|client| of(client)).filter(|_| request.method() == Method::GET)
}

/// Answers with the page, unless no session could be opened.
pub(in crate::server) fn answer(
    page: String,
    request: &ReceivedRequest,
    peer: &ClientPeer,
    Snapshot { server, config }: &Snapshot,
) -> HttpResult<HttpResponse> {
    Caller::identify(config, request, peer, None)?;
    if server.lifecycle.is_shutting_down() {
        return Err(HttpError::service_unavailable(RejectReason::Stopping, "voxbridge is stopping"));
    }
    Ok(answer_with("application/json", page))
}
