//! Calls of Pipecat's SmallWebRTC clients: `POST /api/offer` with an offer in JSON, and `PATCH /api/offer` with the client's
//! addresses. Sources: pipecat-ai 1.14.0 (transports/smallwebrtc/request_handler.py, runner/run.py), npm
//! @pipecat-ai/small-webrtc-transport 1.10.8.
//!
//! A client that repeats its call's id has another offer for the call: with `restart_pc` from a new peer connection, as after
//! a change of its network. A call that has gone meanwhile begins anew.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Method, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    super::accept::request_body::ReceivedRequest,
    Body, RestResult,
    body::read_body,
    calls::{self, OFFER_MAX_BYTES, Offer, calls, failure},
    session::Opening,
    style::Failure,
};
use crate::server::CallProtocol;

/// Longest body, bytes: an offer as JSON, and data of the application, which voxbridge ignores.
const BODY_MAX_BYTES: usize = 128 * 1024;

/// An offer.
#[derive(Deserialize)]
struct OfferBody {
    sdp: String,
    #[serde(rename = "type")]
    kind: String,
    /// The call that the offer continues.
    pc_id: Option<String>,
    /// The offer is from a new peer connection.
    restart_pc: Option<bool>,
}

/// Addresses of a client. voxbridge needs none of them, because each proves itself (ICE lite, RFC 8445 §2.5).
#[derive(Deserialize)]
struct CandidatesBody {
    pc_id: String,
}

/// Answers an offer, or a list of addresses.
pub(super) async fn answer(protocol: &str, request: ReceivedRequest, opening: Opening) -> RestResult {
    let (head, body) = request.into_parts();
    let calls = calls(&opening)?;
    let mut memory = opening.memory_share();
    let body = read_body(body, BODY_MAX_BYTES, &mut memory, &opening.server.bodies).await?;
    let key = opening.caller.key.as_ref().map(|key| &*key.name);
    if head.method == Method::PATCH {
        let CandidatesBody { pc_id } = parse(&body)?;
        return match calls.has(&pc_id, key) {
            true => Ok(answered(&json!({ "status": "success" }))),
            false => Err(Failure::new(StatusCode::NOT_FOUND, "call_not_found", "Peer connection not found")),
        };
    }
    let OfferBody { sdp, kind, pc_id, restart_pc } = parse(&body)?;
    if kind != "offer" {
        return Err(Failure::parameter("type", format!("'type' is '{kind}' and must be 'offer'")));
    }
    if sdp.len() > OFFER_MAX_BYTES {
        return Err(super::body::too_large(OFFER_MAX_BYTES));
    }
    if pc_id.is_some() {
        opening.count_offer()?;
    }
    if let Some(id) = pc_id
        && let Some(renewed) = calls
            .renew(&id, key, sdp.clone(), &opening.server.codec_threads, restart_pc.unwrap_or(false))
            .await
    {
        return renewed.map(|sdp| described(&id, &sdp)).map_err(failure);
    }
    let client = opening.config.library.client(protocol).map_err(Failure::invalid)?.clone();
    let path = client.paths.first().cloned().unwrap_or_default();
    let offer = Offer { sdp, session: None, channel: CallProtocol::Pipecat.channel() };
    let (id, sdp) = calls::start(offer, path, client, &head, opening).await?;
    Ok(described(&id, &sdp))
}

fn parse<B: DeserializeOwned>(body: &[u8]) -> Result<B, Failure> {
    Ok(serde_json::from_slice(body)?)
}

fn described(id: &str, sdp: &str) -> Response<Body> {
    answered(&json!({ "sdp": sdp, "type": "answer", "pc_id": id }))
}

fn answered(answer: &Value) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(answer.to_string()))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
