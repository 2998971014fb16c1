//! Endpoints of the admin listener. [`super::views`] builds the response bodies.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::info;

use super::{
    AdminContext, ReloadOutcome,
    auth::{AdminAuth, AdminPeer},
    views,
};
use crate::{
    server::registry::{LiveSession, OperatorOrder},
    telemetry::{self, metrics::MetricsFormat},
};

type AdminResponse = Response<Full<Bytes>>;

/// Maximum size of a body, which is at most a log filter.
const BODY_MAX_BYTES: usize = 4 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Endpoints: path, methods, description.
const ENDPOINTS: [(&str, &str, &str); 12] = [
    ("/healthz", "GET, HEAD", "liveness of the process"),
    ("/readyz", "GET, HEAD", "readiness for new sessions, with reasons if not ready"),
    ("/metrics", "GET, HEAD", "metrics for Prometheus"),
    ("/sessions", "GET, HEAD", "live sessions; filter with ?client=, ?profile= and ?state="),
    ("/sessions/{id}", "GET, HEAD", "one live session"),
    ("/sessions/{id}/close", "POST", "ends the session as soon as that interrupts no one"),
    ("/sessions/{id}/rollover", "POST", "continues the conversation in a new upstream session"),
    ("/drain", "POST", "rejects new sessions, lets live ones finish, then stops, as SIGTERM does"),
    ("/reload", "POST", "reloads configuration and mappings, as SIGHUP does"),
    ("/config", "GET, HEAD", "active configuration without secrets"),
    ("/loglevel", "GET, HEAD, PUT, POST", "log level; PUT or POST a level or filter to change it"),
    ("/", "GET, HEAD", "this list"),
];

/// Handles one request.
pub(super) async fn handle_request(
    request: Request<Incoming>,
    peer: AdminPeer,
    auth: &AdminAuth,
    context: &AdminContext,
) -> AdminResponse {
    let path = request.uri().path().to_owned();
    let Some(endpoint) = AdminEndpoint::parse(&path) else { return endpoint_not_found(&path) };
    if !matches!(endpoint, AdminEndpoint::Health | AdminEndpoint::Ready)
        && let Err(failure) = auth.authorize(request.headers(), peer)
    {
        let mut response = error_response(failure.status, failure.code, &failure.message);
        if failure.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return response;
    }
    let methods = endpoint.allowed_methods();
    let method = request.method().clone();
    if !methods.split(", ").any(|allowed| allowed == method.as_str()) {
        let message = format!("{path} does not support {method}; allowed: {methods}");
        let mut response = error_response(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &message);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        return response;
    }
    let is_write = !matches!(method, Method::GET | Method::HEAD);
    if is_write {
        info!(method = %method, path, "admin request");
    }
    endpoint.handle(request, is_write, context).await
}

/// A parsed endpoint.
enum AdminEndpoint<'p> {
    Health,
    Ready,
    Metrics,
    Sessions,
    Session(&'p str),
    Order(&'p str, OperatorOrder),
    Drain,
    Reload,
    Config,
    LogLevel,
    List,
}

impl<'p> AdminEndpoint<'p> {
    fn parse(path: &'p str) -> Option<Self> {
        Some(match path {
            "/" => Self::List,
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/sessions" => Self::Sessions,
            "/drain" => Self::Drain,
            "/reload" => Self::Reload,
            "/config" => Self::Config,
            "/loglevel" => Self::LogLevel,
            _ => {
                let rest = path.strip_prefix("/sessions/").filter(|rest| !rest.is_empty())?;
                match rest.split_once('/') {
                    None => Self::Session(rest),
                    Some((id, "close")) => Self::Order(id, OperatorOrder::Close),
                    Some((id, "rollover")) => Self::Order(id, OperatorOrder::Rollover),
                    Some(_) => return None,
                }
            }
        })
    }

    const fn allowed_methods(&self) -> &'static str {
        match self {
            Self::Order(..) | Self::Drain | Self::Reload => "POST",
            Self::LogLevel => "GET, HEAD, PUT, POST",
            _ => "GET, HEAD",
        }
    }

    async fn handle(
        self,
        request: Request<Incoming>,
        is_write: bool,
        context: &AdminContext,
    ) -> AdminResponse {
        match self {
            Self::List => ok_json(&json!({"endpoints": endpoints()})),
            Self::Health => ok_json(&json!({"status": "ok", "state": context.life.state()})),
            Self::Ready => {
                let view = views::readiness(context);
                let status = if view.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                json_response(status, &view)
            }
            Self::Metrics => {
                let format = accepted_metrics(request.headers());
                response(
                    StatusCode::OK,
                    context.metrics.render_as(format).into_bytes(),
                    format.content_type(),
                )
            }
            Self::Sessions => {
                let query = request.uri().query().unwrap_or_default();
                ok_json(&views::sessions(&context.registry, query))
            }
            Self::Session(id) => match context.registry.get(id) {
                Some(live) => ok_json(&views::session(&live)),
                None => session_not_found(id),
            },
            Self::Order(id, order) => match context.registry.get(id) {
                Some(live) => give_order(&live, order),
                None => session_not_found(id),
            },
            Self::Drain => {
                let is_news = context.life.start_drain();
                let view = json!({
                    "state": context.life.state(), "already": !is_news, "sessions": context.registry.len(),
                });
                json_response(StatusCode::ACCEPTED, &view)
            }
            Self::Reload => match reload(context).await {
                Ok(reloaded) => ok_json(&reloaded),
                Err(problem) => error_response(StatusCode::UNPROCESSABLE_ENTITY, "not_reloaded", &problem),
            },
            Self::Config => ok_json(&context.configuration.to_redacted_json().await),
            Self::LogLevel if is_write => set_log_level(request).await,
            Self::LogLevel => ok_json(&json!({"level": telemetry::log::level()})),
        }
    }
}

/// Reloads the configuration in a task of its own. It completes even if the client hangs up, because the service
/// manager was notified of its start.
async fn reload(context: &AdminContext) -> Result<ReloadOutcome, String> {
    let configuration = context.configuration.clone();
    let task = tokio::spawn(async move { configuration.reload().await });
    task.await.unwrap_or_else(|error| Err(error.to_string()))
}

fn give_order(live: &LiveSession, order: OperatorOrder) -> AdminResponse {
    let id = &live.info.id;
    if order == OperatorOrder::Rollover && !live.info.has_conversation {
        let message =
            format!("session {id} has no conversation to roll over: its profile is {:?}", live.info.profile);
        return error_response(StatusCode::CONFLICT, "no_conversation", &message);
    }
    if !live.send_order(order) {
        let message = format!("session {id} has not yet carried out earlier orders");
        return error_response(StatusCode::CONFLICT, "busy", &message);
    }
    let what = match order {
        OperatorOrder::Close => "the session ends as soon as that interrupts no one",
        OperatorOrder::Rollover => {
            "the conversation continues in a new upstream session at the next quiet moment"
        }
    };
    json_response(StatusCode::ACCEPTED, &json!({"id": id, "ordered": what}))
}

async fn set_log_level(request: Request<Incoming>) -> AdminResponse {
    let body = Limited::new(request.into_body(), BODY_MAX_BYTES).collect();
    let Ok(Ok(body)) = timeout(BODY_TIMEOUT, body).await else {
        let message = format!("the body must be a level or filter of at most {BODY_MAX_BYTES} bytes");
        return error_response(StatusCode::BAD_REQUEST, "bad_body", &message);
    };
    let body = body.to_bytes();
    let level = String::from_utf8_lossy(&body);
    let level = level.trim();
    if level.is_empty() {
        let message = "the body is empty; send a level such as debug, or a filter such as voxbridge=debug";
        return error_response(StatusCode::BAD_REQUEST, "bad_level", message);
    }
    match telemetry::log::set_level(level) {
        Ok(()) => ok_json(&json!({"level": telemetry::log::level()})),
        Err(problem) => error_response(StatusCode::BAD_REQUEST, "bad_level", &problem),
    }
}

fn endpoints() -> Vec<Value> {
    let view =
        |(path, methods, what): &(&str, &str, &str)| json!({"path": path, "methods": methods, "what": what});
    ENDPOINTS.iter().map(view).collect()
}

fn endpoint_not_found(path: &str) -> AdminResponse {
    let message = format!("no endpoint at {path}");
    let body = json!({"error": {"code": "not_found", "message": message}, "endpoints": endpoints()});
    json_response(StatusCode::NOT_FOUND, &body)
}

fn session_not_found(id: &str) -> AdminResponse {
    error_response(
        StatusCode::NOT_FOUND,
        "no_such_session",
        &format!("no live session {id:?}; /sessions lists them"),
    )
}

fn error_response(status: StatusCode, code: &str, message: &str) -> AdminResponse {
    json_response(status, &json!({"error": {"code": code, "message": message}}))
}

fn ok_json(view: &impl serde::Serialize) -> AdminResponse {
    json_response(StatusCode::OK, view)
}

fn json_response(status: StatusCode, view: &impl serde::Serialize) -> AdminResponse {
    let mut body = serde_json::to_vec(view).unwrap_or_default();
    body.push(b'\n');
    response(status, body, "application/json")
}

/// The format of metrics that a request prefers.
fn accepted_metrics(headers: &HeaderMap) -> MetricsFormat {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    MetricsFormat::preferred(&accepted.collect::<Vec<_>>().join(","))
}

fn response(status: StatusCode, body: Vec<u8>, kind: &'static str) -> AdminResponse {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
