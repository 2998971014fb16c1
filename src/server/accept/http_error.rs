//! What a connection is told that is not upgraded: an HTTP error in the shape of the Macaw server's (field notes macaw.md
//! §6), understandable to any client.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};

use crate::telemetry::metrics::Refused;

/// An answer to a request.
pub(crate) type Answer = Response<Full<Bytes>>;

/// How long to stay away where nobody knows when there will be room.
const COME_BACK: Duration = Duration::from_secs(5);

/// Why a connection is not upgraded: for whoever counts, and for the client.
pub(crate) struct Refusal {
    pub(crate) why: Refused,
    pub(crate) answer: Answer,
}

impl Refusal {
    /// An error of this status and code.
    pub(crate) fn new(why: Refused, status: StatusCode, code: &str, message: &str) -> Box<Self> {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            _ => "invalid_request_error",
        };
        let body = serde_json::json!({"error": {"message": message, "type": kind, "code": code}});
        let mut answer = Response::new(Full::from(body.to_string()));
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Box::new(Self { why, answer })
    }

    /// The same with one header more.
    pub(crate) fn with(mut self: Box<Self>, name: HeaderName, value: &'static str) -> Box<Self> {
        self.answer.headers_mut().insert(name, HeaderValue::from_static(value));
        self
    }

    /// No key, or a wrong one.
    pub(crate) fn unauthorised(message: &str) -> Box<Self> {
        Self::new(Refused::Unauthorized, StatusCode::UNAUTHORIZED, "unauthorized", message)
            .with(WWW_AUTHENTICATE, "Bearer")
    }

    /// Not here, or not from there.
    pub(crate) fn forbidden(why: Refused, code: &str, message: &str) -> Box<Self> {
        Self::new(why, StatusCode::FORBIDDEN, code, message)
    }

    /// Too much of one's own; not before so long.
    pub(crate) fn too_many(why: Refused, message: &str, retry: Option<Duration>) -> Box<Self> {
        Self::new(why, StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message).retry_after(retry)
    }

    /// Too much of everybody's, or an end.
    pub(crate) fn busy(why: Refused, message: &str) -> Box<Self> {
        Self::new(why, StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message).retry_after(None)
    }

    /// In whole seconds, as the header wants them, and never too early.
    fn retry_after(mut self: Box<Self>, retry: Option<Duration>) -> Box<Self> {
        let seconds = retry.unwrap_or(COME_BACK).as_millis().div_ceil(1000).max(1);
        if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
            self.answer.headers_mut().insert(RETRY_AFTER, value);
        }
        self
    }
}
