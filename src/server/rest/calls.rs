//! Begins and ends calls by WebRTC: `POST /v1/realtime/calls` with an offer (SDP), alone or in a form with the session's
//! settings, and the same at `POST /v1/realtime`, as OpenAI's beta had it. Sources: OpenAI API reference, "Create call" and
//! "Hang up call"; mappings/notes/webrtc.md#openai-calls.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, LOCATION},
    http::request::Parts,
};
use serde_json::Value;
use tracing::info;

use super::{
    super::accept::request_body::{ReceivedRequest, RequestBody},
    Body, RestResult,
    body::read_body,
    form, models, secret_request,
    session::Opening,
    style::Failure,
};
use crate::{
    client::Codec,
    server::{
        CallChannel, CallProtocol, CallRates, ServiceConfig, Snapshot,
        accept::{
            admission::{authorize, key_places, refusal_words, secret_session, spawn_session},
            http_error::{HttpError, HttpResponse},
            session_opening::ConnectRequest,
            session_start::run_port_session,
        },
        access::credential::find_watch_name,
        client_port::{PortEnd, PortForm},
        identify::{
            DetectedBy, Identified,
            query::{add_session, add_shape},
        },
        webrtc::{AcceptedCall, CallOffer, CallRejection, Calls, OpenSession},
    },
    spelling::{ClientMapping, client::RealtimeNames},
    telemetry::metrics::RejectReason,
};

/// Longest offer, bytes. Browsers' offers of one audio track and a channel have 2 to 7 KiB.
pub(super) const OFFER_MAX_BYTES: usize = 32 * 1024;
/// Longest form: an offer, and a session with long instructions.
const FORM_MAX_BYTES: usize = 128 * 1024;

/// A request to begin a call.
pub(super) struct Offer {
    pub(super) sdp: String,
    /// The session's settings as JSON.
    pub(super) session: Option<Arc<str>>,
    pub(super) channel: CallChannel,
}

/// Begins a call of OpenAI's.
pub(super) async fn begin(request: ReceivedRequest, opening: Opening) -> RestResult {
    let (head, body) = request.into_parts();
    let offer = read_offer(&head.headers, body, &opening).await?;
    let path = opening.path.strip_suffix("/calls").unwrap_or(&opening.path).to_owned();
    let serves_calls =
        |client: &ClientMapping| client.realtime.as_ref().is_some_and(RealtimeNames::serves_calls);
    let client = protocol(&opening.config, &path, serves_calls)?;
    let location = format!("{path}/calls/");
    let (id, answer) = start(offer, path, client, &head, opening).await?;
    Ok(created(&format!("{location}{id}"), answer))
}

/// Starts a call for a client of this path and mapping. Returns its id and the answer (SDP).
pub(super) async fn start(
    offer: Offer,
    path: String,
    client: Arc<ClientMapping>,
    head: &Parts,
    opening: Opening,
) -> Result<(String, String), Failure> {
    let calls = calls(&opening)?;
    let Offer { sdp, session, channel } = offer;
    let mut client = Identified::certain(client, DetectedBy::Path);
    let query = CallQuery::read(session, &path, &mut client, head, &opening)?;
    // The session is admitted once the client has connected. A full server rejects the offer already.
    opening.check_offer()?;
    let watch_name = opening.config.playground.then(|| find_watch_name(&head.headers).map(str::to_owned));
    let Opening { server, config, caller, served, .. } = opening;
    // A call that waits for its client delays no shutdown.
    let waiting_server = Arc::downgrade(&server);
    let for_session = caller.clone();
    let open_session: OpenSession = Box::new(move |call_id, rates, inputs| {
        let caller = for_session;
        let server = waiting_server.upgrade().ok_or("voxbridge is stopping")?;
        let admission = caller.admit(&config, &server).map_err(|error| {
            server.metrics.record_rejection(error.reason);
            refusal_words(error.reason).to_owned()
        })?;
        let request = ConnectRequest {
            path,
            query: query.of_call(&client, call_id, rates),
            peer: caller.address,
            trace_context: caller.trace_context,
            client,
            is_bridge: false,
            watch_name: watch_name.flatten(),
            seed: fastrand::u64(..),
        };
        let cut_off = server.cut_off.clone();
        let (port, events) = PortEnd::new(PortForm::Messages, inputs);
        let snapshot = Snapshot { server, config };
        spawn_session(Box::pin(run_port_session(port, request, snapshot, admission)), cut_off);
        Ok(events)
    });
    let offer = CallOffer { sdp, address: caller.address.ip(), key: caller.key_name(), channel };
    let accepted = calls.accept(offer, &server.codec_threads, open_session).await;
    let AcceptedCall { id, answer, task } = accepted.map_err(failure)?;
    server.workers.spawn(task);
    drop(served);
    info!(call = id, peer = %caller.address, "call accepted");
    Ok((id, answer))
}

/// The client's query, and the settings of the session.
struct CallQuery {
    /// Without the settings.
    own: String,
    /// With them.
    full: String,
    session: Option<Arc<str>>,
}

impl CallQuery {
    /// Reads them, and rejects a call that the key does not allow or no route serves.
    fn read(
        session: Option<Arc<str>>,
        path: &str,
        client: &mut Identified,
        head: &Parts,
        opening: &Opening,
    ) -> Result<Self, Failure> {
        let Opening { server, config, caller, .. } = opening;
        let places = key_places(config, path);
        let query = head.uri.query().unwrap_or_default();
        let (query, query_keys) = config.access.extract_query_keys(query, &places);
        let own = add_shape(client.candidates(), &head.headers, query);
        let of_secret = || secret_session(config, &head.headers, &query_keys, path, &server.client_secrets);
        let session = session.or_else(of_secret);
        let full = add_session(client.candidates(), session.as_deref(), own.clone());
        authorize(config, caller.key.as_deref(), path, &full, client)?;
        let client = client.likeliest();
        let model = Codec::new(client.clone(), 0.0).decode_query(&full).model.unwrap_or_default();
        if model.is_empty() || config.routes.find(path, client, &model).is_none() {
            return Err(models::not_found(&model));
        }
        Ok(Self { own, full, session })
    }

    /// The query of a call's session.
    fn of_call(self, client: &Identified, call_id: &str, rates: CallRates) -> String {
        let Self { own, full, session } = self;
        match session.filter(|_| client.likeliest().is_live) {
            // The session has the call's id, by which its client names it.
            Some(session) => {
                let session = with_id(&session, call_id);
                call_query(&add_session(client.candidates(), Some(&session), own), rates)
            }
            None => call_query(&full, rates),
        }
    }
}

/// A session's settings, as JSON, with its id.
fn with_id(session: &str, id: &str) -> String {
    let mut session: Value = serde_json::from_str(session).unwrap_or_default();
    session["id"] = id.into();
    session.to_string()
}

/// The query of a call's session. The call's own pairs come before the client's, because the first of a name counts.
fn call_query(query: &str, rates: CallRates) -> String {
    let [rate_in, rate_out] = [rates.in_hz, rates.out_hz].map(|rate| rate.to_string());
    let call = [("transport", "webrtc"), ("call_rate_in", &rate_in), ("call_rate_out", &rate_out)];
    let call = form_urlencoded::Serializer::new(String::new()).extend_pairs(call).finish();
    format!("{call}&{query}")
}

fn created(location: &str, answer: String) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(answer))));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/sdp"));
    response.headers_mut().extend(HeaderValue::from_str(location).ok().map(|value| (LOCATION, value)));
    response
}

/// Ends a call. Only the key that began it may.
pub(super) fn end(id: &str, opening: &Opening) -> Result<HttpResponse, Failure> {
    let key = opening.caller.key.as_ref().map(|key| &*key.name);
    match calls(opening)?.hang_up(id, key) {
        true => Ok(Response::new(Full::default())),
        false => {
            Err(Failure::new(StatusCode::NOT_FOUND, "call_not_found", format!("There is no call '{id}'")))
        }
    }
}

/// The calls.
pub(super) fn calls(opening: &Opening) -> Result<Calls, Failure> {
    let off = || {
        HttpError::new(
            RejectReason::NotFound,
            StatusCode::NOT_FOUND,
            "not_found",
            "Calls by WebRTC are off ([webrtc] in the configuration)",
        )
    };
    opening.server.calls.clone().ok_or_else(|| off().into())
}

/// The protocol of the WebSocket clients at this path for which the call stands.
pub(super) fn protocol(
    config: &ServiceConfig,
    path: &str,
    serves_calls: impl Fn(&ClientMapping) -> bool,
) -> Result<Arc<ClientMapping>, Failure> {
    let mut at_path = config.routes.forced_protocol(path).into_iter().chain(config.library.clients_at(path));
    let client = at_path.find(|client| serves_calls(client)).cloned();
    let missing =
        || Failure::new(StatusCode::NOT_FOUND, "not_found", format!("No calls are served at {path}"));
    client.ok_or_else(missing)
}

/// Reads the body: an offer, or a form with one.
async fn read_offer(headers: &HeaderMap, body: RequestBody, opening: &Opening) -> Result<Offer, Failure> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = form::boundary_of(content_type);
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let max_bytes = match &boundary {
        Some(_) => FORM_MAX_BYTES,
        None if kind.eq_ignore_ascii_case("application/sdp") => OFFER_MAX_BYTES,
        None => {
            let message = "The body must be application/sdp, or multipart/form-data with 'sdp' and 'session'";
            return Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_content_type",
                message,
            ));
        }
    };
    let mut memory = opening.memory_share();
    let body = read_body(body, max_bytes, &mut memory, &opening.server.bodies).await?;
    let Some(boundary) = boundary else {
        return Ok(Offer { sdp: text(&body)?, session: None, channel: CallProtocol::OpenAi.channel() });
    };
    let broken = |problem| Failure::invalid(format!("The body is not a form: {problem}"));
    let (mut sdp, mut session) = (None, None);
    for part in form::parts(&body, &boundary).map_err(broken)? {
        match part.name.as_str() {
            "sdp" if part.contents.len() > OFFER_MAX_BYTES => {
                return Err(super::body::too_large(OFFER_MAX_BYTES));
            }
            "sdp" => sdp = Some(text(&part.contents)?),
            "session" => session = secret_request::checked_session(&text(&part.contents)?)?,
            _ => {}
        }
    }
    let sdp = sdp.ok_or_else(|| Failure::parameter("sdp", "Missing required parameter: 'sdp'."))?;
    Ok(Offer { sdp, session, channel: CallProtocol::OpenAi.channel() })
}

fn text(bytes: &[u8]) -> Result<String, Failure> {
    let text = std::str::from_utf8(bytes).map_err(|_| Failure::invalid("The offer is not UTF-8"));
    text.map(str::to_owned)
}

pub(super) fn failure(rejection: CallRejection) -> Failure {
    match rejection {
        CallRejection::Full(message) => {
            HttpError::service_unavailable(RejectReason::TooManySessions, message).into()
        }
        CallRejection::Offer(message) => Failure::new(StatusCode::BAD_REQUEST, "invalid_offer", message),
        CallRejection::Internal(message) => {
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
        }
    }
}
