//! Requests for a client secret, as OpenAI's API has them: `POST PATH/client_secrets` beside every path of an OpenAI Realtime
//! protocol, and the older `POST PATH/sessions` and `PATH/transcription_sessions`.
//!
//! The session in the request is checked, returned, and applied to the sessions that the secret opens. Source: the OpenAI API
//! reference, "Client secrets" and, for the older paths, "Session tokens".

use std::sync::Arc;

use hyper::{
    Method, Request, StatusCode,
    header::{CACHE_CONTROL, HeaderValue, ORIGIN},
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use tracing::info;

use super::{preflight_response, read_short_body};
use crate::{
    client::check_session,
    error::Error,
    server::{
        ServiceConfig, Snapshot,
        accept::{
            admission::{Caller, ClientPeer},
            host::{check_local_host, check_page},
            http_error::{HttpError, HttpResponse, HttpResult, answer_with},
            request_body::ReceivedRequest,
            session_opening::unix_now,
        },
    },
    telemetry::metrics::RejectReason,
};

/// Longest body: instructions may be long.
const BODY_MAX_BYTES: usize = 256 * 1024;
/// Longest session of a secret, as JSON.
const SESSION_MAX_BYTES: usize = 64 * 1024;
/// Longest `expires_after`, as JSON.
const LIFETIME_MAX_BYTES: usize = 1024;
/// Lifetime of a secret, s.
const LIFETIME_S: u64 = 600;
/// Lifetimes that a client may ask for, s.
const LIFETIMES_S: std::ops::RangeInclusive<u64> = 10..=7200;

/// The forms of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SecretRequest {
    /// The session is a member of the request and of the answer.
    Current,
    /// The session is the request; in the answer, the secret is a member of it. With its `object`.
    Older(&'static str),
}

impl SecretRequest {
    /// The form of a request for a secret; `None` for any other request.
    pub(in crate::server) fn of<B>(request: &Request<B>, config: &ServiceConfig) -> Option<Self> {
        let (path, name) = request.uri().path().rsplit_once('/')?;
        let form = match name {
            "client_secrets" => Self::Current,
            "sessions" => Self::Older("realtime.session"),
            "transcription_sessions" => Self::Older("realtime.transcription_session"),
            _ => return None,
        };
        let mut at_path = config.library.clients_at(path).chain(config.routes.forced_protocol(path));
        let is_served = at_path.any(|client| client.realtime.is_some());
        let is_preflight = request.method() == Method::OPTIONS && request.headers().contains_key(ORIGIN);
        ((request.method() == Method::POST || is_preflight) && is_served).then_some(form)
    }

    /// Issues a secret for sessions of the key in the request, or answers a browser that asks whether a page may have one.
    pub(in crate::server) async fn answer(
        self,
        request: ReceivedRequest,
        peer: &ClientPeer,
        Snapshot { server, config }: &Snapshot,
    ) -> HttpResult<HttpResponse> {
        if request.method() == Method::OPTIONS {
            return Ok(preflight_response("POST"));
        }
        check_page(config, request.headers())?;
        check_local_host(config, request.headers(), peer.address.ip())?;
        let Caller { key, .. } = Caller::identify(config, &request, peer, None)?;
        if server.lifecycle.is_shutting_down() {
            return Err(HttpError::service_unavailable(RejectReason::Stopping, "voxbridge is stopping"));
        }
        let bytes = read_short_body(request.into_body(), BODY_MAX_BYTES, server).await?;
        let body = parse_body(&bytes)?;
        let now_s = unix_now().as_secs();
        let expires_at = now_s + lifetime_s(&body)?;
        let session = match (self, body.session) {
            (Self::Current, None) => Map::new(),
            (Self::Current, Some(session)) => parse_session(session.get())?,
            (Self::Older(_), _) if bytes.is_empty() => Map::new(),
            (Self::Older(_), _) => parse_session(&String::from_utf8_lossy(&bytes))?,
        };
        let settings = settings_json(&session)?;
        let name = key.as_ref().map(|key| key.name.clone());
        let secret = server.client_secrets.issue(key, settings, now_s, expires_at).ok_or_else(|| {
            HttpError::service_unavailable(RejectReason::Stopping, "The system has no random numbers")
        })?;
        info!(peer = %peer.address, key = name.as_deref(), lifetime_s = expires_at - now_s, "client secret issued");
        Ok(self.response(&secret, expires_at, session))
    }

    fn response(self, secret: &str, expires_at: u64, mut session: Map<String, Value>) -> HttpResponse {
        let body = match self {
            Self::Current => {
                let kind = session.entry("type").or_insert_with(|| "realtime".into());
                let is_transcription = kind == "transcription";
                let object =
                    if is_transcription { "realtime.transcription_session" } else { "realtime.session" };
                session.entry("object").or_insert_with(|| object.into());
                json!({"value": secret, "expires_at": expires_at, "session": session})
            }
            Self::Older(object) => {
                session.insert("object".into(), object.into());
                session.insert("client_secret".into(), json!({"value": secret, "expires_at": expires_at}));
                session.into()
            }
        };
        let mut response = answer_with("application/json", body.to_string());
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// A request whose members are parsed only where they are short, because a parsed object takes up to a hundred times the memory
/// of its text.
#[derive(Default, Deserialize)]
struct Body<'b> {
    #[serde(borrow, default)]
    expires_after: Option<&'b RawValue>,
    #[serde(borrow, default)]
    session: Option<&'b RawValue>,
}

/// Parses a body that is a JSON object or empty.
fn parse_body(body: &[u8]) -> HttpResult<Body<'_>> {
    match body.trim_ascii_start() {
        [] => Ok(Body::default()),
        // Otherwise an array would be taken for the members in their order.
        [b'{', ..] => serde_json::from_slice(body).map_err(|_| no_object()),
        _ => Err(no_object()),
    }
}

fn no_object() -> Box<HttpError> {
    invalid("The body must be a JSON object", "invalid_json", None)
}

/// Parses an object, such as the session; `None` if it is another type.
fn parse_object(json: &str, max_bytes: usize, name: &str) -> HttpResult<Option<Map<String, Value>>> {
    if json.len() > max_bytes {
        let message = format!("'{name}' is longer than {} KiB", max_bytes >> 10);
        return Err(invalid(&message, "invalid_value", Some(name)));
    }
    Ok(serde_json::from_str(json).ok())
}

/// The lifetime that the request asks for, s.
fn lifetime_s(body: &Body<'_>) -> HttpResult<u64> {
    let Some(after) = body.expires_after else { return Ok(LIFETIME_S) };
    let after = parse_object(after.get(), LIFETIME_MAX_BYTES, "expires_after")?.ok_or_else(|| {
        let message = "Invalid type for 'expires_after': must be an object.";
        invalid(message, "invalid_type", Some("expires_after"))
    })?;
    if !matches!(after.get("anchor").and_then(Value::as_str), None | Some("created_at")) {
        let message = "Invalid value for 'expires_after.anchor': must be 'created_at'.";
        return Err(invalid(message, "invalid_value", Some("expires_after.anchor")));
    }
    let seconds = after.get("seconds").map_or(Some(LIFETIME_S), Value::as_u64);
    seconds.filter(|seconds| LIFETIMES_S.contains(seconds)).ok_or_else(|| {
        let message = format!(
            "Invalid value for 'expires_after.seconds': must be an integer from {} to {}.",
            LIFETIMES_S.start(),
            LIFETIMES_S.end()
        );
        invalid(&message, "invalid_value", Some("expires_after.seconds"))
    })
}

/// The session in a request.
fn parse_session(json: &str) -> HttpResult<Map<String, Value>> {
    parse_object(json, SESSION_MAX_BYTES, "session")?.ok_or_else(|| {
        invalid("Invalid type for 'session': must be an object.", "invalid_type", Some("session"))
    })
}

/// The session in a request for a call, as a secret would keep it.
pub(in crate::server) fn checked_session(json: &str) -> HttpResult<Option<Arc<str>>> {
    settings_json(&parse_session(json)?)
}

/// The session as the secret keeps it, if it has settings. A session that no client could update to is rejected.
fn settings_json(session: &Map<String, Value>) -> HttpResult<Option<Arc<str>>> {
    let rejected = |error: Error| invalid(&error.detail, "invalid_value", Some("session"));
    check_session(session).map_err(rejected)?;
    let json = Value::from(session.clone()).to_string();
    if json.len() > SESSION_MAX_BYTES {
        return Err(invalid("'session' is longer than 64 KiB", "invalid_value", Some("session")));
    }
    Ok((!session.is_empty()).then(|| json.into()))
}

/// HTTP 400 in OpenAI's shape.
fn invalid(message: &str, code: &str, param: Option<&str>) -> Box<HttpError> {
    let error = json!({"message": message, "type": "invalid_request_error", "code": code, "param": param});
    let body = json!({ "error": error }).to_string();
    HttpError::with_body(RejectReason::BadHandshake, StatusCode::BAD_REQUEST, body)
}
