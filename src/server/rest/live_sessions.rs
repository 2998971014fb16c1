//! Begins sessions of OpenAI's Live protocol by WebRTC: `POST /v1/live/sessions` with an offer (SDP) and the configuration of the
//! session in JSON. Their calls are those of [`super::calls`]. Sources: OpenAI API reference, "Create session" of Live; the types of
//! openai-python 3.57 (`openai/types/live/live_create_params.py`).

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    super::accept::request_body::ReceivedRequest,
    Body, RestResult,
    body::read_body,
    calls::{self, OFFER_MAX_BYTES, Offer},
    session::Opening,
    style::Failure,
};
use crate::{
    client::check_live_session,
    server::{CallChannel, CallProtocol, channel_rules::ChannelRules},
};

/// Longest body: an offer, and a session with long instructions.
const BODY_MAX_BYTES: usize = 128 * 1024;

/// A request for a session. Its members are parsed only where they are short.
#[derive(Default, Deserialize)]
struct SessionRequest<'b> {
    #[serde(borrow, default)]
    session: Option<&'b RawValue>,
    #[serde(default)]
    transport: Option<Transport>,
}

/// Transport of a session.
#[derive(Deserialize)]
struct Transport {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    sdp: String,
}

/// The member of a session that restricts the page with the data channel.
#[derive(Deserialize)]
struct ClientField {
    #[serde(default)]
    client: Value,
}

/// Begins a session.
pub(super) async fn begin(request: ReceivedRequest, opening: Opening) -> RestResult {
    let (head, body) = request.into_parts();
    calls::calls(&opening)?;
    let client = calls::protocol(&opening.config, &opening.path, |client| client.is_live)?;
    let mut memory = opening.memory_share();
    let body = read_body(body, BODY_MAX_BYTES, &mut memory, &opening.server.bodies).await?;
    let SessionRequest { session, transport } = serde_json::from_slice(&body)?;
    let session = session.ok_or_else(|| missing("session"))?.get();
    let transport = transport.ok_or_else(|| missing("transport"))?;
    if transport.kind != "webrtc" {
        return Err(Failure::parameter("transport.type", "'transport.type' must be 'webrtc'"));
    }
    if transport.sdp.is_empty() {
        return Err(missing("transport.sdp"));
    }
    if transport.sdp.len() > OFFER_MAX_BYTES {
        return Err(super::body::too_large(OFFER_MAX_BYTES));
    }
    check_live_session(session).map_err(|error| Failure::parameter("session", error.detail))?;
    let client_field: ClientField = serde_json::from_str(session)?;
    let rules = ChannelRules::read(&client_field.client)
        .map_err(|field| Failure::parameter("session", format!("Invalid value for '{field}'.")))?;
    let channel = CallChannel { protocol: CallProtocol::OpenAi, rules };
    let offer = Offer { sdp: transport.sdp, session: Some(Arc::from(session)), channel };
    let path = opening.path.clone();
    let (id, sdp) = calls::start(offer, path, client, &head, opening).await?;
    Ok(created(&json!({ "session": { "id": id }, "transport": { "type": "webrtc", "sdp": sdp } })))
}

fn missing(name: &'static str) -> Failure {
    Failure::parameter(name, format!("Missing required parameter: '{name}'."))
}

fn created(answer: &Value) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(answer.to_string()))));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
