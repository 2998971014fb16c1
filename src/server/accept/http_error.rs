//! What a connection is told that is not upgraded: an HTTP error in the shape of the Macaw server's (field notes macaw.md
//! §6), understandable to any client.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};

use crate::telemetry::metrics::RejectReason;

/// An answer to a request.
pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// How long to stay away where nobody knows when there will be room.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a connection is not upgraded: for whoever counts, and for the client.
pub(crate) struct HttpError {
    pub(crate) reason: RejectReason,
    pub(crate) response: HttpResponse,
}

impl HttpError {
    /// An error of this status and code.
    pub(crate) fn new(reason: RejectReason, status: StatusCode, code: &str, message: &str) -> Box<Self> {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            _ => "invalid_request_error",
        };
        let body = serde_json::json!({"error": {"message": message, "type": kind, "code": code}});
        let mut response = Response::new(Full::from(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Box::new(Self { reason, response })
    }

    /// The same with one header more.
    pub(crate) fn with_header(mut self: Box<Self>, name: HeaderName, value: &'static str) -> Box<Self> {
        self.response.headers_mut().insert(name, HeaderValue::from_static(value));
        self
    }

    /// No key, or a wrong one.
    pub(crate) fn unauthorized(message: &str) -> Box<Self> {
        Self::new(RejectReason::Unauthorized, StatusCode::UNAUTHORIZED, "unauthorized", message)
            .with_header(WWW_AUTHENTICATE, "Bearer")
    }

    /// Not here, or not from there.
    pub(crate) fn forbidden(reason: RejectReason, code: &str, message: &str) -> Box<Self> {
        Self::new(reason, StatusCode::FORBIDDEN, code, message)
    }

    /// Too much of one's own; not before so long.
    pub(crate) fn too_many_requests(
        reason: RejectReason,
        message: &str,
        retry: Option<Duration>,
    ) -> Box<Self> {
        Self::new(reason, StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message).retry_after(retry)
    }

    /// Too much of everybody's, or an end.
    pub(crate) fn service_unavailable(reason: RejectReason, message: &str) -> Box<Self> {
        Self::new(reason, StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message).retry_after(None)
    }

    /// In whole seconds, as the header wants them, and never too early.
    fn retry_after(mut self: Box<Self>, retry: Option<Duration>) -> Box<Self> {
        let seconds = retry.unwrap_or(DEFAULT_RETRY_AFTER).as_millis().div_ceil(1000).max(1);
        if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
            self.response.headers_mut().insert(RETRY_AFTER, value);
        }
        self
    }
}
