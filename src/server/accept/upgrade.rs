//! The WebSocket handshake of a request: what it must contain, and the answer to it (RFC 6455 §4.2).

use std::{str::FromStr, sync::Arc};

use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    header::{
        ALLOW, CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
    },
};
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;

use super::{
    http_error::{HttpError, HttpResponse, HttpResult},
    request_body::ReceivedRequest,
};
use crate::{
    client::{Codec, answer_headers},
    server::{
        ServiceConfig,
        access::{
            credential::{SUBPROTOCOL, list_items, split_query_parameter},
            has_own_subprotocol,
        },
    },
    spelling::ClientMapping,
    telemetry::metrics::RejectReason,
};

/// Rejects requests that are no WebSocket upgrade, in the words of the real Macaw server
/// (mappings/notes/macaw.md#connect).
pub(in crate::server) fn check_upgrade(
    request: &ReceivedRequest,
    config: &ServiceConfig,
    query: &str,
    candidates: &[Arc<ClientMapping>],
) -> HttpResult<()> {
    if request.method() != Method::GET {
        let (reason, status) = (RejectReason::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED);
        let body = json!({"detail": "Method Not Allowed"}).to_string();
        return Err(HttpError::with_body(reason, status, body).with_header(ALLOW, "GET"));
    }
    if has_item(request.headers(), UPGRADE, "websocket") {
        return Ok(());
    }
    let parameter = candidates.iter().find_map(|client| client.required_model_parameter());
    let value_of = |parameter: &str| split_query_parameter(query, parameter).1.into_iter().next_back();
    let model = parameter.map(|parameter| (parameter, value_of(parameter)));
    let reason = RejectReason::NoUpgrade;
    if let Some((parameter, None)) = model {
        // A text, because a JSON object would sort its keys.
        let body = format!(
            r#"{{"detail":[{{"type":"missing","loc":["query",{}],"msg":"Field required","input":null}}]}}"#,
            json!(parameter)
        );
        return Err(HttpError::with_body(reason, StatusCode::UNPROCESSABLE_ENTITY, body));
    }
    let model =
        model.map_or_else(String::new, |(name, value)| format!("?{name}={}", value.unwrap_or_default()));
    let (scheme, path) = (config.websocket_scheme(), request.uri().path());
    let body = json!({
        "error": "This endpoint requires a WebSocket connection",
        "hint": format!("Connect using: {scheme}://<host>{path}{model}"),
    });
    Err(HttpError::with_body(reason, StatusCode::UPGRADE_REQUIRED, body.to_string())
        .with_header(UPGRADE, "websocket"))
}

/// Checks the WebSocket handshake and builds the response to it.
pub(in crate::server) fn handshake_response(request: &ReceivedRequest) -> HttpResult<HttpResponse> {
    let length = request.headers().get(CONTENT_LENGTH);
    if request.headers().contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0") {
        // A proxy in front might take a body for the first bytes of the session, or the reverse.
        let message = "A WebSocket handshake must not have a body (Content-Length or Transfer-Encoding)";
        return Err(HttpError::bad_request(message));
    }
    create_response_with_body(&with_single_items(request), Full::default).map_err(|error| {
        // RFC 6455 §4.4: name the supported version.
        HttpError::bad_request(&error.to_string()).with_header(SEC_WEBSOCKET_VERSION, "13")
    })
}

/// True if a header has this item in its list, which may be on several lines (RFC 9110 §5.3).
fn has_item(headers: &HeaderMap, name: HeaderName, item: &str) -> bool {
    list_items(headers, name).any(|found| found.eq_ignore_ascii_case(item))
}

/// The head of a request for tungstenite, which reads one line of a header only, and one item of `Upgrade`.
fn with_single_items(request: &ReceivedRequest) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    for (name, item) in [(CONNECTION, "Upgrade"), (UPGRADE, "websocket")] {
        if has_item(request.headers(), name.clone(), item) {
            head.headers_mut().insert(name, HeaderValue::from_static(item));
        }
    }
    head
}

/// Rejects a wrong query of a client whose protocol refuses the handshake then, with the error in a header.
pub(in crate::server) fn check_query(
    client: &Arc<ClientMapping>,
    query: &str,
    answer_headers: &HeaderMap,
) -> HttpResult<()> {
    let Some(header) = &client.refusal_header else { return Ok(()) };
    let problems = Codec::new(client.clone(), 0.0).decode_query(query).problems;
    let fatal = problems.iter().find_map(|problem| {
        let spelling = client.error(problem.kind).filter(|spelling| spelling.close.is_some())?;
        Some(spelling.message(&problem.detail))
    });
    let Some(words) = fatal else { return Ok(()) };
    let mut refusal = HttpError::bad_request(&words);
    let headers = refusal.response.headers_mut();
    headers.extend(answer_headers.clone());
    headers.extend(HeaderName::from_str(header).ok().zip(words.parse().ok()));
    Err(refusal)
}

/// The headers that the likeliest protocol wants in the answer, whose session gets this seed.
pub(in crate::server) fn own_headers(candidates: &[Arc<ClientMapping>], seed: u64) -> HeaderMap {
    let headers = candidates.first().map(|client| answer_headers(client, seed)).unwrap_or_default();
    let parsed = |(name, value): (&str, String)| HeaderName::from_str(name).ok().zip(value.parse().ok());
    headers.into_iter().filter_map(parsed).collect()
}

/// The header in which voxbridge's own client asks whether speech is answered, and the server says so.
pub(crate) const ANSWERS_HEADER: HeaderName = HeaderName::from_static("voxbridge-answers");

/// For a client that asks: for each protocol that it may speak, whether the profile answers speech, as in `macaw=no`. Others get
/// no header.
pub(in crate::server) fn answers_header(
    config: &ServiceConfig,
    headers: &HeaderMap,
    path: &str,
    query: &str,
    candidates: &[Arc<ClientMapping>],
) -> Option<HeaderValue> {
    headers.get(ANSWERS_HEADER)?;
    let answers = candidates.iter().filter_map(|client| {
        let model = Codec::new(client.clone(), 0.0).decode_query(query).model.unwrap_or_default();
        let profile = &config.routes.find(path, client, &model)?.profile;
        let answers = profile.dialogue.is_some() || profile.answers.is_some();
        Some(format!("{}={}", client.name, if answers { "yes" } else { "no" }))
    });
    HeaderValue::try_from(answers.collect::<Vec<_>>().join(", ")).ok()
}

/// The subprotocol to agree to: the first offered one that the client's protocol knows, or the one that carries a
/// key. Browsers fail a connection whose subprotocols are all ignored (RFC 6455 §4.1).
pub(in crate::server) fn negotiate_subprotocol(
    headers: &HeaderMap,
    candidates: &[Arc<ClientMapping>],
) -> Option<HeaderValue> {
    let known = candidates.iter().find_map(|mapping| match_subprotocol(headers, mapping));
    known.or_else(|| has_own_subprotocol(headers).then(|| HeaderValue::from_static(SUBPROTOCOL)))
}

fn match_subprotocol(offered: &HeaderMap, mapping: &ClientMapping) -> Option<HeaderValue> {
    let mut names = list_items(offered, SEC_WEBSOCKET_PROTOCOL);
    let agreed = names.find_map(|name| mapping.subprotocols.iter().find(|known| *known == name))?;
    HeaderValue::from_str(agreed).ok()
}
