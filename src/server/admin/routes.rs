//! What can be asked of the admin listener, and ordered. All of it is here; how it looks is [`super::views`]'s business.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::info;

use super::{
    Control, Reloaded,
    auth::{Guard, Peer},
    views,
};
use crate::{
    server::registry::{Live, Order},
    telemetry::{self, metrics},
};

type Answer = Response<Full<Bytes>>;

/// A body holds a log filter at most.
const BODY_MAX_BYTES: usize = 4 * 1024;
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// What there is: path, methods, what it is.
const ENDPOINTS: [(&str, &str, &str); 12] = [
    ("/healthz", "GET, HEAD", "the process lives"),
    ("/readyz", "GET, HEAD", "new sessions would be served; if not, why not"),
    ("/metrics", "GET, HEAD", "for Prometheus"),
    ("/sessions", "GET, HEAD", "all sessions that run; ?client=, ?profile= and ?state= choose among them"),
    ("/sessions/{id}", "GET, HEAD", "one of them"),
    ("/sessions/{id}/close", "POST", "ends it when nobody is cut off by that"),
    ("/sessions/{id}/rollover", "POST", "has its conversation go on in another upstream session"),
    ("/drain", "POST", "takes no more sessions, lets those that run finish, and stops, as SIGTERM does"),
    ("/reload", "POST", "reads configuration and mappings again, as SIGHUP does"),
    ("/config", "GET, HEAD", "what holds, without secrets"),
    ("/loglevel", "GET, HEAD, PUT, POST", "how much is logged; a level or a filter in the body changes it"),
    ("/", "GET, HEAD", "this list"),
];

/// The answer to a request.
pub(super) async fn answer(
    request: Request<Incoming>,
    peer: Peer,
    guard: &Guard,
    control: &Control,
) -> Answer {
    let path = request.uri().path().to_owned();
    let Some(route) = Route::of(&path) else { return nowhere(&path) };
    if !matches!(route, Route::Health | Route::Ready)
        && let Err(no) = guard.check(request.headers(), peer)
    {
        let mut answer = failure(no.status, no.code, &no.words);
        if no.status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return answer;
    }
    let methods = route.methods();
    let asked = request.method().clone();
    if !methods.split(", ").any(|method| method == asked.as_str()) {
        let words = format!("{asked} does nothing at {path}; it takes {methods}");
        let mut answer = failure(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &words);
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        return answer;
    }
    let acts = !matches!(asked, Method::GET | Method::HEAD);
    if acts {
        info!(method = %asked, path, "an operator's order");
    }
    route.answer(request, acts, control).await
}

/// What is asked.
enum Route<'p> {
    Health,
    Ready,
    Metrics,
    Sessions,
    Session(&'p str),
    Order(&'p str, Order),
    Drain,
    Reload,
    Config,
    LogLevel,
    List,
}

impl<'p> Route<'p> {
    fn of(path: &'p str) -> Option<Self> {
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
                    Some((id, "close")) => Self::Order(id, Order::Close),
                    Some((id, "rollover")) => Self::Order(id, Order::Rollover),
                    Some(_) => return None,
                }
            }
        })
    }

    const fn methods(&self) -> &'static str {
        match self {
            Self::Order(..) | Self::Drain | Self::Reload => "POST",
            Self::LogLevel => "GET, HEAD, PUT, POST",
            _ => "GET, HEAD",
        }
    }

    async fn answer(self, request: Request<Incoming>, acts: bool, control: &Control) -> Answer {
        match self {
            Self::List => ok(&json!({"endpoints": endpoints()})),
            Self::Health => ok(&json!({"status": "ok", "state": control.life.state()})),
            Self::Ready => {
                let view = views::readiness(control);
                let status = if view.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                shown(status, &view)
            }
            Self::Metrics => text(control.metrics.render()),
            Self::Sessions => {
                let query = request.uri().query().unwrap_or_default();
                ok(&views::sessions(&control.registry, query))
            }
            Self::Session(id) => match control.registry.get(id) {
                Some(live) => ok(&views::session(&live)),
                None => no_session(id),
            },
            Self::Order(id, order) => match control.registry.get(id) {
                Some(live) => ordered(&live, order),
                None => no_session(id),
            },
            Self::Drain => {
                let news = control.life.drain();
                let view = json!({
                    "state": control.life.state(), "already": !news, "sessions": control.registry.len(),
                });
                shown(StatusCode::ACCEPTED, &view)
            }
            Self::Reload => match reloaded(control).await {
                Ok(reloaded) => ok(&reloaded),
                Err(problem) => failure(StatusCode::UNPROCESSABLE_ENTITY, "not_reloaded", &problem),
            },
            Self::Config => ok(&control.configuration.shown().await),
            Self::LogLevel if acts => set_log_level(request).await,
            Self::LogLevel => ok(&json!({"level": telemetry::log::level()})),
        }
    }
}

/// To the end, even if who has ordered it hangs up: the service manager was told that it began.
async fn reloaded(control: &Control) -> Result<Reloaded, String> {
    let configuration = control.configuration.clone();
    let reloading = tokio::spawn(async move { configuration.reload().await });
    reloading.await.unwrap_or_else(|error| Err(error.to_string()))
}

fn ordered(live: &Live, order: Order) -> Answer {
    let id = &live.who.id;
    if order == Order::Rollover && !live.who.converses {
        let words = format!(
            "session {id} has no conversation that could go on elsewhere: it is served by profile {:?}",
            live.who.profile
        );
        return failure(StatusCode::CONFLICT, "no_conversation", &words);
    }
    if !live.order(order) {
        let words = format!("session {id} has not yet carried out the orders it was given");
        return failure(StatusCode::CONFLICT, "busy", &words);
    }
    let what = match order {
        Order::Close => "it ends when nobody is cut off by that",
        Order::Rollover => "it goes on in another upstream session at the next quiet moment",
    };
    shown(StatusCode::ACCEPTED, &json!({"id": id, "ordered": what}))
}

async fn set_log_level(request: Request<Incoming>) -> Answer {
    let body = Limited::new(request.into_body(), BODY_MAX_BYTES).collect();
    let Ok(Ok(body)) = timeout(BODY_WITHIN, body).await else {
        let words = format!("the body is to be a level or a filter, of {BODY_MAX_BYTES} bytes at most");
        return failure(StatusCode::BAD_REQUEST, "bad_body", &words);
    };
    let body = body.to_bytes();
    let level = String::from_utf8_lossy(&body);
    let level = level.trim();
    if level.is_empty() {
        let words =
            "the body is empty; it is to be a level such as debug, or a filter such as voxbridge=debug";
        return failure(StatusCode::BAD_REQUEST, "bad_level", words);
    }
    match telemetry::log::set_level(level) {
        Ok(()) => ok(&json!({"level": telemetry::log::level()})),
        Err(problem) => failure(StatusCode::BAD_REQUEST, "bad_level", &problem),
    }
}

fn endpoints() -> Vec<Value> {
    let view =
        |(path, methods, what): &(&str, &str, &str)| json!({"path": path, "methods": methods, "what": what});
    ENDPOINTS.iter().map(view).collect()
}

fn nowhere(path: &str) -> Answer {
    let words = format!("there is nothing at {path}");
    let body = json!({"error": {"code": "not_found", "message": words}, "endpoints": endpoints()});
    shown(StatusCode::NOT_FOUND, &body)
}

fn no_session(id: &str) -> Answer {
    failure(
        StatusCode::NOT_FOUND,
        "no_such_session",
        &format!("no session {id:?} runs; /sessions lists those that do"),
    )
}

fn failure(status: StatusCode, code: &str, words: &str) -> Answer {
    shown(status, &json!({"error": {"code": code, "message": words}}))
}

fn ok(view: &impl serde::Serialize) -> Answer {
    shown(StatusCode::OK, view)
}

fn shown(status: StatusCode, view: &impl serde::Serialize) -> Answer {
    let mut body = serde_json::to_vec(view).unwrap_or_default();
    body.push(b'\n');
    of(status, body, "application/json")
}

fn text(body: String) -> Answer {
    of(StatusCode::OK, body.into_bytes(), metrics::CONTENT_TYPE)
}

fn of(status: StatusCode, body: Vec<u8>, kind: &'static str) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
