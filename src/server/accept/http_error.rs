//! HTTP errors for connections that are not upgraded, in the shape of the Macaw server's
//! (mappings/notes/macaw.md#connect, mappings/notes/macaw.md#rest), with OpenAI's `param`.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::json;

use crate::telemetry::metrics::RejectReason;

/// The response to an HTTP request.
pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// A response with HTTP 200 and a body of this type.
pub(crate) fn answer_with(content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// `Retry-After` where the time until a slot is free is unknown.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A rejected request: the reason for the metrics, and the response for the client.
pub(crate) struct HttpError {
    pub(crate) reason: RejectReason,
    pub(crate) response: HttpResponse,
    /// Its code and message, for APIs that have other forms.
    pub(crate) words: Option<(String, String)>,
}

/// Something, or why the request is refused.
pub(crate) type HttpResult<T> = Result<T, Box<HttpError>>;

impl HttpError {
    /// An error response with this status and code.
    pub(crate) fn new(reason: RejectReason, status: StatusCode, code: &str, message: &str) -> Box<Self> {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            _ => "invalid_request_error",
        };
        let body = json!({"error": {"message": message, "type": kind, "code": code, "param": null}});
        let mut error = Self::with_body(reason, status, body.to_string());
        error.words = Some((code.to_owned(), message.to_owned()));
        error
    }

    /// The same error with another body.
    pub(crate) fn with_other_body(mut self: Box<Self>, body: String) -> Box<Self> {
        *self.response.body_mut() = Full::new(body.into());
        self
    }

    /// An error response with a body of another shape.
    pub(crate) fn with_body(reason: RejectReason, status: StatusCode, body: String) -> Box<Self> {
        let mut response = answer_with("application/json", body);
        *response.status_mut() = status;
        Box::new(Self { reason, response, words: None })
    }

    /// Adds a header.
    pub(crate) fn with_header(mut self: Box<Self>, name: HeaderName, value: &'static str) -> Box<Self> {
        self.response.headers_mut().insert(name, HeaderValue::from_static(value));
        self
    }

    /// HTTP 400: the handshake is malformed.
    pub(crate) fn bad_request(message: &str) -> Box<Self> {
        Self::new(RejectReason::BadHandshake, StatusCode::BAD_REQUEST, "bad_handshake", message)
    }

    /// HTTP 401: the API key is missing or wrong.
    pub(crate) fn unauthorized(message: &str) -> Box<Self> {
        Self::new(RejectReason::Unauthorized, StatusCode::UNAUTHORIZED, "unauthorized", message)
            .with_header(WWW_AUTHENTICATE, "Bearer")
    }

    /// HTTP 403: this client may not use this path, origin or route.
    pub(crate) fn forbidden(reason: RejectReason, code: &str, message: &str) -> Box<Self> {
        Self::new(reason, StatusCode::FORBIDDEN, code, message)
    }

    /// HTTP 429: the key or address has used up its quota; `retry` is when to try again.
    pub(crate) fn too_many_requests(
        reason: RejectReason,
        message: &str,
        retry: Option<Duration>,
    ) -> Box<Self> {
        Self::new(reason, StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message).retry_after(retry)
    }

    /// HTTP 503: the server is full or stopping.
    pub(crate) fn service_unavailable(reason: RejectReason, message: &str) -> Box<Self> {
        Self::new(reason, StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message).retry_after(None)
    }

    /// Sets `Retry-After` in whole seconds, rounded up.
    fn retry_after(mut self: Box<Self>, retry: Option<Duration>) -> Box<Self> {
        let seconds = retry.unwrap_or(DEFAULT_RETRY_AFTER).as_millis().div_ceil(1000).max(1);
        if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
            self.response.headers_mut().insert(RETRY_AFTER, value);
        }
        self
    }
}
