//! The page that tells clients where to connect, at the `setup_page` of their protocol: xiaozhi's OTA page and Pipecat's `/start`.
//! The mapping file has its answer.
//!
//! The page is open to everybody, unless the protocol has `key_headers` or `key_parameters`. A device whose id stands in `[access]
//! device_keys` gets its key, and a client that sends a key gets it back, because a browser cannot send it to the WebSocket as a
//! header. A page with `signature` answers GET with a URL that has a client secret for the sender's key. No other client gets
//! one, and no page of an origin that is not listed.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW,
        CACHE_CONTROL, HeaderValue, ORIGIN, VARY,
    },
    http::request::Parts,
};
use serde::Deserialize;
use tracing::info;

use super::setup_query::with_settings;
use crate::server::accept::{
    admission::{Caller, ClientPeer, check_origin, key_places},
    host::host,
    http_error::{HttpError, HttpResponse, HttpResult, answer_with},
    request_body::ReceivedRequest,
    session_opening::unix_now,
};
use crate::{
    date::rfc3339,
    secret::random_hex,
    server::{ServiceConfig, Snapshot, access::credential::find_key, rest::read_short_body},
    spelling::{ClientMapping, client::SetupSlot},
    telemetry::metrics::RejectReason,
    vocabulary::SlotValue,
};

/// Longest description of a device.
const BODY_MAX_BYTES: usize = 64 * 1024;
/// Longest version that is echoed.
const VERSION_MAX_BYTES: usize = 64;
/// Lifetime of a signed URL, s, as ElevenLabs has it.
const SIGNATURE_LIFETIME_S: u64 = 15 * 60;
/// Methods of the page.
const METHODS: &str = "GET, POST";

/// A device's description of itself, or a page's wishes, as far as they matter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Description {
    application: Application,
    transport: Option<String>,
    #[serde(rename = "enableDefaultIceServers")]
    needs_ice_servers: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Application {
    version: String,
}

/// The protocol whose page this is; `None` for any other request, and without a route for the protocol.
pub(in crate::server) fn protocol<B>(
    request: &Request<B>,
    config: &ServiceConfig,
) -> Option<Arc<ClientMapping>> {
    let path = request.uri().path();
    let mut clients = config.library.clients();
    let found = clients.find(|client| client.setup_page.as_ref().is_some_and(|page| *page.path == *path));
    found.filter(|client| config.routes.can_serve(client)).cloned()
}

/// Answers a request for the page.
pub(in crate::server) async fn answer(
    client: &Arc<ClientMapping>,
    request: ReceivedRequest,
    peer: &ClientPeer,
    snapshot: &Snapshot,
) -> HttpResult<HttpResponse> {
    let Snapshot { server, config } = snapshot;
    let serves_calls = server.calls.is_some();
    let origin = request.headers().get(ORIGIN).cloned();
    let origin = origin.filter(|_| config.access.is_origin_allowed(request.headers()));
    let mut response = match *request.method() {
        Method::GET if let Some(signature) = signature(client) => {
            let query = signed_query(signature, &request, peer, snapshot)?;
            let url = socket_url(client, &request, &query, config)?;
            setup(client, &SetupTarget { url, key: String::new() }, b"", serves_calls)?
        }
        Method::GET => {
            let query = request.uri().query().unwrap_or_default();
            answer_with(
                "text/plain",
                format!("Connect at {}\n", socket_url(client, &request, query, config)?),
            )
        }
        Method::OPTIONS => preflight_response(),
        Method::POST => {
            check_origin(config, request.headers())?;
            if !(client.key_headers.is_empty() && client.key_parameters.is_empty()) {
                Caller::identify(config, &request, peer, Some(&server.client_secrets))?;
            }
            let (head, body) = request.into_parts();
            let key = key_for(config, &head).unwrap_or_default();
            let body = read_short_body(body, BODY_MAX_BYTES, server).await?;
            let request = Request::from_parts(head, ());
            let own_query = request.uri().query().unwrap_or_default();
            let page = client.setup_page.as_ref();
            match page.map_or(Ok(own_query.to_owned()), |page| with_settings(client, page, own_query, &body))
            {
                Ok(query) => {
                    let query = add_key(client, query, &key);
                    let url = socket_url(client, &request, &query, config)?;
                    setup(client, &SetupTarget { url, key }, &body, serves_calls)?
                }
                Err(problem) => return Err(refusal(client, &problem)),
            }
        }
        _ => {
            let (reason, status) = (RejectReason::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED);
            let message = "This page answers GET and POST";
            return Err(
                HttpError::new(reason, status, "method_not_allowed", message).with_header(ALLOW, METHODS)
            );
        }
    };
    if let Some(origin) = origin {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
    }
    Ok(response)
}

/// The query parameter of the URL that a page signs; `None` for pages that sign none.
fn signature(client: &ClientMapping) -> Option<&str> {
    client.setup_page.as_ref()?.signature.as_deref()
}

/// The request's own query with a client secret for the sender's key: the application that opens the URL never sees the key.
/// Without keys, the URL needs no signature.
fn signed_query<B>(
    signature: &str,
    request: &Request<B>,
    peer: &ClientPeer,
    Snapshot { server, config }: &Snapshot,
) -> HttpResult<String> {
    check_origin(config, request.headers())?;
    let query = request.uri().query().unwrap_or_default().to_owned();
    let Caller { key, .. } = Caller::identify(config, request, peer, None)?;
    if key.is_none() {
        return Ok(query);
    }
    let now_s = unix_now().as_secs();
    let secret = server.client_secrets.issue(key, None, now_s, now_s + SIGNATURE_LIFETIME_S);
    let secret = secret.ok_or_else(|| {
        HttpError::service_unavailable(RejectReason::Stopping, "The system has no random numbers")
    })?;
    Ok(form_urlencoded::Serializer::new(query).append_pair(signature, &secret).finish())
}

/// Where a client connects, and its key; an empty one for none.
struct SetupTarget {
    url: String,
    key: String,
}

/// The answer to a client.
fn setup(
    client: &ClientMapping,
    target: &SetupTarget,
    body: &[u8],
    serves_calls: bool,
) -> HttpResult<HttpResponse> {
    let description: Description = serde_json::from_slice(body).unwrap_or_default();
    let wants_call = description.wants_call();
    let (version, unix_ms) = (description.version(), unix_now().as_millis() as i64);
    let (id, time) = (random_hex::<16>().unwrap_or_default(), rfc3339(unix_now().as_secs_f64()));
    let mut answer = String::new();
    if let Some(page) = &client.setup_page {
        let template = page.call_answer.as_ref().filter(|_| wants_call);
        if template.is_some() && !serves_calls {
            return Err(HttpError::bad_request("Calls by WebRTC are off ([webrtc] in the configuration)"));
        }
        template.unwrap_or(&page.answer).render(&mut answer, |slot| match slot {
            SetupSlot::Url => SlotValue::Str(&target.url),
            SetupSlot::Key => SlotValue::Str(&target.key),
            SetupSlot::Version => SlotValue::Str(&version),
            SetupSlot::Id => SlotValue::Str(&id),
            SetupSlot::UnixMs => SlotValue::Int(unix_ms),
            SetupSlot::Time => SlotValue::Str(&time),
            SetupSlot::Message => SlotValue::Null,
        });
    }
    let mut response = answer_with("application/json", answer);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The answer to a wrong request, in the protocol's form if it has one.
fn refusal(client: &ClientMapping, problem: &str) -> Box<HttpError> {
    let Some(template) = client.setup_page.as_ref().and_then(|page| page.refusal.as_ref()) else {
        return HttpError::bad_request(problem);
    };
    let (id, time) = (random_hex::<16>().unwrap_or_default(), rfc3339(unix_now().as_secs_f64()));
    let mut body = String::new();
    template.render(&mut body, |slot| match slot {
        SetupSlot::Message => SlotValue::Str(problem),
        SetupSlot::Id => SlotValue::Str(&id),
        SetupSlot::Time => SlotValue::Str(&time),
        SetupSlot::UnixMs => SlotValue::Int(unix_now().as_millis() as i64),
        SetupSlot::Url | SetupSlot::Key | SetupSlot::Version => SlotValue::Null,
    });
    HttpError::with_body(RejectReason::BadBody, StatusCode::BAD_REQUEST, body)
}

/// The query with the sender's key, for clients that give the socket no other one than the URL's.
fn add_key(client: &ClientMapping, query: String, key: &str) -> String {
    match client.key_parameters.first().filter(|_| !key.is_empty()) {
        Some(parameter) => form_urlencoded::Serializer::new(query).append_pair(parameter, key).finish(),
        None => query,
    }
}

impl Description {
    /// The version that a device says it has, so that it updates nothing.
    fn version(self) -> String {
        let version = Some(self.application.version);
        let version = version.filter(|text| (1..=VERSION_MAX_BYTES).contains(&text.len()));
        version.unwrap_or_else(|| "0.0.0".to_owned())
    }

    /// True for a page that asks for a call by WebRTC, as Pipecat's do.
    fn wants_call(&self) -> bool {
        self.transport
            .as_deref()
            .map_or(self.needs_ice_servers == Some(true), |transport| transport == "webrtc")
    }
}

fn device_id(headers: &HeaderMap) -> &str {
    headers.get("device-id").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The key for a sender: the device's, or the one that the request itself has. Devices name no origin; a page gets a device's key
/// only where origins are listed.
fn key_for(config: &ServiceConfig, request: &Parts) -> Option<String> {
    let headers = &request.headers;
    let is_any_page = headers.contains_key(ORIGIN) && config.access.origins.is_unrestricted();
    let id = device_id(headers);
    let key = config.access.device_key(id).filter(|_| !is_any_page);
    if key.is_some() {
        info!(device = %id, "the setup page gave a device its key");
    }
    key.map(str::to_owned).or_else(|| find_key(headers, &[], &key_places(config, request.uri.path())).ok()?)
}

/// The URL of the protocol's WebSocket at the host that the request names, with this query.
fn socket_url<B>(
    client: &ClientMapping,
    request: &Request<B>,
    query: &str,
    config: &ServiceConfig,
) -> HttpResult<String> {
    let host = host(request.headers()).filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| HttpError::bad_request("The request names no host"))?;
    // A sender that lies changes its own answer only.
    let proxied = request.headers().get("x-forwarded-proto").is_some_and(|value| value == "https");
    let scheme = if config.tls.is_some() || proxied { "wss" } else { "ws" };
    let path = client.paths.first().map_or("/", String::as_str);
    let mark = if query.is_empty() { "" } else { "?" };
    Ok(format!("{scheme}://{host}{path}{mark}{query}"))
}

/// Answers a browser that asks whether a page may send the request.
fn preflight_response() -> HttpResponse {
    let mut response = HttpResponse::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("authorization, content-type, device-id, client-id, activation-version, *"),
    );
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn version_of_the_device_is_echoed_if_it_is_one() {
        let body =
            |version: &str| json!({"application": {"name": "xiaozhi", "version": version}}).to_string();
        let version = |body: &str| serde_json::from_str::<Description>(body).unwrap_or_default().version();
        assert_eq!(version(&body("2.0.3")), "2.0.3");
        assert_eq!(version(&body(&"9".repeat(64))), "9".repeat(64));
        for body in [body(""), body(&"9".repeat(65)), "{}".to_owned(), "[]".to_owned(), "{".to_owned()] {
            assert_eq!(version(&body), "0.0.0", "{body}");
        }
    }

    #[test]
    fn page_asks_for_a_call_by_name_or_by_ice_servers() {
        for (body, expected) in [
            (json!({ "transport": "webrtc" }), true),
            (json!({ "enableDefaultIceServers": true }), true),
            (json!({ "transport": "websocket", "enableDefaultIceServers": true }), false),
            (json!({ "enableDefaultIceServers": false }), false),
            (json!({ "body": { "transport": "webrtc" } }), false),
        ] {
            let description: Description = serde_json::from_value(body.clone()).unwrap();
            assert_eq!(description.wants_call(), expected, "{body}");
        }
    }
}
