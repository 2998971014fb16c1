//! The API that a client expects: OpenAI's, Macaw's, or that of another vendor. They differ in defaults and in the form of errors.

use std::ops::RangeInclusive;

use hyper::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde_json::{Value, json};

use super::super::accept::http_error::HttpError;
use super::endpoint::Endpoint;
use crate::{
    error::{Error, ErrorKind},
    server::identify::{DetectedBy, Identified},
    spelling::Library,
    telemetry::metrics::RejectReason,
};

/// The API that a client expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    OpenAi,
    Macaw,
    Deepgram,
    Pipecat,
    ElevenLabs,
    Cartesia,
    Speechmatics,
    AssemblyAi,
}

impl Style {
    /// The style of a request. OpenAI and Macaw share their paths: a client that shows a header of OpenAI's libraries or any
    /// key is OpenAI's, because Macaw's REST API has no keys.
    pub(super) fn of(
        endpoint: &Endpoint,
        library: &Library,
        headers: &HeaderMap,
        asks_for_keys: bool,
    ) -> Self {
        match endpoint {
            Endpoint::Listen | Endpoint::DeepgramSpeak => Self::Deepgram,
            Endpoint::Offer(_) => Self::Pipecat,
            Endpoint::ElevenLabsSpeak(..) | Endpoint::ElevenLabsListen => Self::ElevenLabs,
            Endpoint::CartesiaSpeak | Endpoint::CartesiaEvents => Self::Cartesia,
            Endpoint::AssemblyAiSpeak => Self::AssemblyAi,
            Endpoint::SpeechmaticsSpeak(_) => Self::Speechmatics,
            Endpoint::Call | Endpoint::LiveSession | Endpoint::HangUp(_) | Endpoint::DeleteCall(_) => {
                Self::OpenAi
            }
            _ => {
                let both = ["macaw", "openai-realtime"].into_iter();
                let both = both.filter_map(|name| library.client(name).ok()).collect();
                let shows_sign = Identified::among(both, DetectedBy::Default)
                    .is_some_and(|mut client| client.narrow_by_signs(headers, "", asks_for_keys));
                if shows_sign || headers.contains_key(AUTHORIZATION) { Self::OpenAi } else { Self::Macaw }
            }
        }
    }
}

impl Style {
    /// A refusal in the form of the API, where its clients read more than the status.
    pub(super) fn restyle(self, refusal: Box<HttpError>) -> Box<HttpError> {
        let is_vendors =
            matches!(self, Self::ElevenLabs | Self::Cartesia | Self::Speechmatics | Self::AssemblyAi);
        match refusal.words.clone().filter(|_| is_vendors) {
            Some((code, message)) => {
                let body = self.vendor_body(refusal.response.status(), &code, &message);
                refusal.with_other_body(body.to_string())
            }
            None => refusal,
        }
    }

    /// An error in the form of ElevenLabs (a code and words below `detail`), Cartesia (its page "API Errors"), Speechmatics (that
    /// of its batch API) or AssemblyAI (its text to speech).
    fn vendor_body(self, status: StatusCode, code: &str, message: &str) -> Value {
        let title = status.canonical_reason().unwrap_or("Error");
        match self {
            Self::ElevenLabs => {
                let code = match status {
                    StatusCode::UNAUTHORIZED => "invalid_api_key",
                    StatusCode::TOO_MANY_REQUESTS => "too_many_concurrent_requests",
                    StatusCode::SERVICE_UNAVAILABLE => "system_busy",
                    _ => code,
                };
                json!({"detail": {"status": code, "message": message}})
            }
            Self::Speechmatics => json!({"code": status.as_u16(), "error": title, "detail": message}),
            Self::AssemblyAi => {
                let retryable = is_temporary(status);
                json!({"code": code, "message": message, "param": null, "request_id": null, "retryable": retryable})
            }
            _ => {
                let id = format!("{:016x}", fastrand::u64(..));
                json!({"error_code": code, "title": title, "message": message, "request_id": id})
            }
        }
    }
}

/// Why a request failed.
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// Code of the error, as OpenAI and Macaw have them.
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Name of the wrong parameter.
    pub(super) parameter: Option<&'static str>,
    /// The error in a field as Macaw's framework has it.
    field_error: Option<Box<FieldError>>,
    /// The request was refused before it was looked at; the answer is ready.
    refusal: Option<Box<HttpError>>,
}

/// A limit of a field, by its name.
pub(super) struct FieldLimit {
    pub(super) name: &'static str,
    pub(super) value: Value,
}

/// An error in a field in the form of Macaw's framework (pydantic), which checks the fields with HTTP 422
/// (mappings/notes/macaw.md#rest).
struct FieldError {
    kind: &'static str,
    message: String,
    input: Value,
    /// The limit that the input exceeds.
    limit: Option<FieldLimit>,
    /// Name of the field; none if the whole body is wrong.
    field: Option<&'static str>,
}

impl FieldError {
    fn body(&self) -> Value {
        let location = ["body"].into_iter().chain(self.field).collect::<Vec<_>>();
        let mut error = json!({"type": self.kind, "loc": location, "msg": self.message, "input": self.input});
        if let Some(FieldLimit { name, value }) = &self.limit {
            error["ctx"] = json!({*name: value});
        }
        json!({"detail": [error]})
    }
}

/// A request that may not be served.
impl From<serde_json::Error> for Failure {
    /// HTTP 400: the body is not a JSON object.
    fn from(error: serde_json::Error) -> Self {
        let failure = Self::invalid(format!("The body is not a JSON object: {error}"));
        let (kind, message) = match error.is_data() {
            true => (
                "model_attributes_type",
                "Input should be a valid dictionary or object to extract fields from",
            ),
            false => ("json_invalid", "JSON decode error"),
        };
        failure.with_field_error(kind, message, json!({}), None)
    }
}

impl From<Box<HttpError>> for Failure {
    fn from(refusal: Box<HttpError>) -> Self {
        Self { refusal: Some(refusal), ..Self::invalid("") }
    }
}

/// A session that has failed.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of_session(error.kind, error.detail)
    }
}

impl Failure {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), parameter: None, field_error: None, refusal: None }
    }

    /// HTTP 400: the request is wrong.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// HTTP 400: a parameter is wrong.
    pub(super) fn parameter(name: &'static str, message: impl Into<String>) -> Self {
        let failure = Self::invalid(message).about(name);
        let words = failure.message.clone();
        failure.with_field_error("value_error", words, Value::Null, None)
    }

    /// Adds Macaw's type and words of an error in a parameter, with the input and the limit that it exceeds.
    pub(super) fn with_field_error(
        self,
        kind: &'static str,
        message: impl Into<String>,
        input: Value,
        limit: Option<FieldLimit>,
    ) -> Self {
        let error = FieldError { kind, message: message.into(), input, limit, field: self.parameter };
        Self { field_error: Some(Box::new(error)), ..self }
    }

    /// Adds Macaw's words for a number that is not in this range.
    pub(super) fn with_range_error(self, input: Value, value: f64, range: RangeInclusive<f64>) -> Self {
        let (kind, words, name, limit) = match value < *range.start() {
            true => ("greater_than_equal", "greater than or equal to", "ge", range.start()),
            false => ("less_than_equal", "less than or equal to", "le", range.end()),
        };
        self.with_field_error(
            kind,
            format!("Input should be {words} {limit}"),
            input,
            Some(FieldLimit { name, value: json!(limit) }),
        )
    }

    /// Macaw's server answers that this field is missing.
    pub(super) fn with_missing_field(self, name: &'static str) -> Self {
        let parameter = self.parameter;
        let failure = self.about(name).with_field_error("missing", "Field required", Value::Null, None);
        Self { parameter, ..failure }
    }

    /// Names the wrong parameter, where the real Macaw server checks it after its framework.
    pub(super) fn about(self, parameter: &'static str) -> Self {
        Self { parameter: Some(parameter), ..self }
    }

    /// HTTP 400: a parameter is missing.
    pub(super) fn missing(name: &'static str) -> Self {
        let message = format!("Missing required parameter: '{name}'.");
        Self::invalid(message).about(name).with_missing_field(name)
    }

    /// HTTP 400: the upload is no audio that can be decoded.
    pub(super) fn audio(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_audio", message)
    }

    /// The failure of a session, by the kind of its error.
    pub(super) fn of_session(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (status, code) = match kind {
            ErrorKind::QueueFull => (StatusCode::TOO_MANY_REQUESTS, "queue_full"),
            ErrorKind::QueueTimeout | ErrorKind::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable")
            }
            ErrorKind::UnknownModel | ErrorKind::NoModel => (StatusCode::NOT_FOUND, "model_not_found"),
            ErrorKind::TranscribeFailed | ErrorKind::SpeakFailed => (StatusCode::BAD_GATEWAY, "bad_gateway"),
            ErrorKind::Invalid
            | ErrorKind::BadSetting
            | ErrorKind::BadReference
            | ErrorKind::UnknownVoice => (StatusCode::BAD_REQUEST, "invalid_request"),
            ErrorKind::Refused => (StatusCode::BAD_REQUEST, "refused"),
            kind => match kind.fallback() {
                Some(kind) => return Self::of_session(kind, message),
                None => return Self::internal(message),
            },
        };
        Self::new(status, code, message)
    }

    /// HTTP 500: voxbridge has failed.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// True if the upstream failed, or refused a part of the recording: what it transcribed before is worth having.
    pub(super) fn is_upstreams(&self) -> bool {
        let codes = ["queue_full", "service_unavailable", "bad_gateway", "refused"];
        self.refusal.is_none() && codes.contains(&self.code)
    }

    /// Status, code and message of the error.
    pub(super) fn words(&self) -> (StatusCode, String, String) {
        match &self.refusal {
            Some(refusal) => {
                let (code, message) = refusal.words.clone().unwrap_or_default();
                (refusal.response.status(), code, message)
            }
            None => (self.status, self.code.to_owned(), self.message.clone()),
        }
    }

    /// True if the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        is_temporary(self.words().0)
    }

    /// The error with the body that `spell` writes of its status, code and message.
    pub(super) fn spelled(mut self, spell: impl Fn(StatusCode, &str, &str) -> String) -> Box<HttpError> {
        let (status, code, message) = self.words();
        let body = spell(status, &code, &message);
        match self.refusal.take() {
            Some(refusal) => refusal.with_other_body(body),
            None => http_error(status, body),
        }
    }

    /// The error as the client's API has it.
    pub(super) fn into_http_error(mut self, style: Style) -> Box<HttpError> {
        if let Some(refusal) = self.refusal.take() {
            return style.restyle(refusal);
        }
        let (status, body) = self.response_parts(style);
        http_error(status, body.to_string())
    }

    /// The error as a member of an event stream.
    pub(super) fn body(&self, style: Style) -> Value {
        self.response_parts(style).1
    }

    fn response_parts(&self, style: Style) -> (StatusCode, Value) {
        let (message, code) = (&self.message, self.code);
        match (style, &self.field_error) {
            (Style::Deepgram, ..) => {
                let code = match self.status {
                    StatusCode::BAD_REQUEST => "Bad Request",
                    StatusCode::PAYLOAD_TOO_LARGE => "PAYLOAD_TOO_LARGE",
                    StatusCode::TOO_MANY_REQUESTS => "TOO_MANY_REQUESTS",
                    _ => "INTERNAL_SERVER_ERROR",
                };
                (self.status, json!({"err_code": code, "err_msg": message, "request_id": ""}))
            }
            // As FastAPI has it.
            (Style::Pipecat, ..) => (self.status, json!({ "detail": message })),
            (Style::ElevenLabs, None) | (Style::Cartesia | Style::Speechmatics | Style::AssemblyAi, _) => {
                (self.status, style.vendor_body(self.status, code, message))
            }
            // As FastAPI has it, too.
            (Style::ElevenLabs | Style::Macaw, Some(error)) => {
                (StatusCode::UNPROCESSABLE_ENTITY, error.body())
            }
            (..) => {
                let kind = match (style, code) {
                    (Style::Macaw, "invalid_audio") => "audio_format_error",
                    (Style::Macaw, "file_too_large") => "audio_too_large_error",
                    (Style::Macaw, "model_not_found") => "model_not_found_error",
                    (Style::Macaw, "bad_gateway") => "worker_crash_error",
                    _ if self.status == StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
                    _ if self.status.is_server_error() => "server_error",
                    _ => "invalid_request_error",
                };
                let error = json!({"message": message, "type": kind, "param": self.parameter, "code": code});
                (self.status, json!({ "error": error }))
            }
        }
    }
}

/// True for a status after which the same request may succeed later.
fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// An error with this body. Clients of OpenAI's libraries repeat a request after 408, 409, 429 and 5xx.
fn http_error(status: StatusCode, body: String) -> Box<HttpError> {
    let error = HttpError::with_body(RejectReason::BadBody, status, body);
    if is_temporary(status) { error.with_header(RETRY_AFTER, "5") } else { error }
}

/// Adds a header with this value, if the value is one.
pub(super) fn set_header(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_form_of_the_clients_api() {
        let body = |failure: &Failure, style| failure.response_parts(style);
        let missing = Failure::missing("file");
        assert_eq!(
            body(&missing, Style::OpenAi),
            (
                StatusCode::BAD_REQUEST,
                json!({"error": {"message": "Missing required parameter: 'file'.", "type": "invalid_request_error",
                    "param": "file", "code": "invalid_request"}})
            )
        );
        assert_eq!(
            body(&missing, Style::Macaw),
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                json!({"detail": [{"type": "missing", "loc": ["body", "file"], "msg": "Field required", "input": null}]})
            )
        );
        let (status, deepgram) = body(&missing, Style::Deepgram);
        assert_eq!((status, &deepgram["err_code"]), (StatusCode::BAD_REQUEST, &json!("Bad Request")));
        let (status, elevenlabs) = body(&missing, Style::ElevenLabs);
        assert_eq!(
            (status, &elevenlabs["detail"][0]["type"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("missing"))
        );
        let (status, cartesia) = body(&missing, Style::Cartesia);
        assert_eq!((status, &cartesia["title"]), (StatusCode::BAD_REQUEST, &json!("Bad Request")));
        assert_eq!(body(&missing, Style::Speechmatics).1["code"], 400);
        let assemblyai = body(&missing, Style::AssemblyAi).1;
        assert_eq!(
            (&assemblyai["code"], &assemblyai["retryable"]),
            (&json!("invalid_request"), &json!(false))
        );
        let broken = Failure::audio("no");
        assert_eq!(body(&broken, Style::Macaw).1["error"]["type"], "audio_format_error");
    }

    #[test]
    fn refusals_have_the_form_of_the_clients_api() {
        let restyled = |style: Style| {
            let refusal = style.restyle(HttpError::unauthorized("no key"));
            assert_eq!(refusal.response.status(), StatusCode::UNAUTHORIZED);
            format!("{:?}", refusal.response.body())
        };
        assert!(restyled(Style::ElevenLabs).contains("invalid_api_key"));
        assert!(restyled(Style::Cartesia).contains("error_code"));
        assert!(restyled(Style::OpenAi).contains("authentication_error"));
    }

    #[test]
    fn session_errors_have_an_http_status() {
        let full = Failure::of_session(ErrorKind::QueueFull, "full").into_http_error(Style::OpenAi);
        assert_eq!(full.response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(full.response.headers()[RETRY_AFTER], "5");
        let lost = Failure::of_session(ErrorKind::TranscribeFailed, "lost").into_http_error(Style::Macaw);
        assert_eq!(lost.response.status(), StatusCode::BAD_GATEWAY);
        let refused = Failure::of_session(ErrorKind::Refused, "too short");
        let (status, openai) = refused.response_parts(Style::OpenAi);
        assert_eq!(
            (status, &openai["error"]["type"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_request_error"))
        );
        assert_eq!(refused.response_parts(Style::Deepgram).1["err_code"], "Bad Request");
        assert!(refused.into_http_error(Style::Macaw).response.headers().get(RETRY_AFTER).is_none());
    }
}
