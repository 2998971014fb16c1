//! What a connection is told that is not upgraded: an HTTP error in the shape of the Macaw server's (field notes macaw.md
//! §6), understandable to any client.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};

/// An answer to a request.
pub(super) type Answer = Response<Full<Bytes>>;

/// How long to stay away where nobody knows when there will be room.
const COME_BACK: Duration = Duration::from_secs(5);

/// An error of this status and code.
pub(super) fn refuse(status: StatusCode, code: &str, message: &str) -> Answer {
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        _ => "invalid_request_error",
    };
    let body = serde_json::json!({"error": {"message": message, "type": kind, "code": code}});
    let mut answer = Response::new(Full::from(body.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// The same with one header more.
pub(super) fn with(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// No key, or a wrong one.
pub(super) fn unauthorised(message: &str) -> Answer {
    with(refuse(StatusCode::UNAUTHORIZED, "unauthorized", message), WWW_AUTHENTICATE, "Bearer")
}

/// Not here, or not from there.
pub(super) fn forbidden(code: &str, message: &str) -> Answer {
    refuse(StatusCode::FORBIDDEN, code, message)
}

/// Too much of one's own; not before so long.
pub(super) fn too_many(message: &str, retry: Option<Duration>) -> Answer {
    retry_after(refuse(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message), retry)
}

/// Too much of everybody's, or an end.
pub(super) fn busy(message: &str) -> Answer {
    retry_after(refuse(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message), None)
}

/// In whole seconds, as the header wants them, and never too early.
fn retry_after(mut answer: Answer, retry: Option<Duration>) -> Answer {
    let seconds = retry.unwrap_or(COME_BACK).as_millis().div_ceil(1000).max(1);
    if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
        answer.headers_mut().insert(RETRY_AFTER, value);
    }
    answer
}
