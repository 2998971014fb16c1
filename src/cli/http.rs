//! HTTP client for OpenAI's API: one request per connection, bodies sent and received as streams.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::ext::on_informational;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::dial::DEFAULT_MODEL;
use super::error::ClientError;
use super::output::printable;
use super::read_input::{INPUT_MAX_BYTES, read_input};
use crate::net::{Endpoint, UntrustedCertificate, read_certificates};
use crate::secret::{Secret, random_hex};

/// Path before the endpoints, for URLs without a path.
const DEFAULT_BASE: &str = "/v1";
/// Time limit of DNS, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a file in memory at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Longest answer to keep in memory: the transcript of a day has a few megabytes.
const ANSWER_MAX_BYTES: usize = 64 << 20;
/// Longest part of an error's body to show, characters.
const ERROR_MAX_CHARS: usize = 400;

/// How long an upload waits for the server's permission (RFC 9110 §10.1.1). Some servers never give it.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest recording that OpenAI's API takes.
const USUAL_MAX_BYTES: u64 = 25 << 20;

type RequestBody = BoxBody<Bytes, std::io::Error>;

/// Body and headers of a request.
pub(super) struct Payload {
    body: RequestBody,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Told when the server permits the upload. A server that refuses a request would otherwise close the connection under
    /// the upload, and its answer would be lost.
    permission: Option<Arc<Notify>>,
    is_large: bool,
}

impl Payload {
    /// No body.
    fn empty() -> Self {
        let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed();
        Self { body, headers: Vec::new(), permission: None, is_large: false }
    }

    /// JSON.
    pub(super) fn json(body: &Value) -> Self {
        let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed();
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        Self { body, headers, permission: None, is_large: false }
    }
}

/// An HTTP server of OpenAI's API.
#[derive(Clone)]
pub(super) struct HttpTarget {
    url: String,
    endpoint: Endpoint,
    base: String,
    /// The model asked for.
    pub(super) model: String,
    key: Option<Secret>,
}

impl HttpTarget {
    /// The server of an `http://` or `https://` URL.
    pub(super) fn new(
        url: &str,
        model: Option<&str>,
        ca: Option<&Path>,
        key: Option<Secret>,
    ) -> Result<Self, ClientError> {
        let invalid_url = |reason: String| ClientError::InvalidUrl { url: url.to_owned(), reason };
        if let Some(ca) = ca {
            read_certificates(ca).map_err(ClientError::UnreadableCa)?;
        }
        // `Endpoint` has the schemes of WebSockets.
        let uri: Uri =
            url.replacen("http", "ws", 1).parse().map_err(|reason| invalid_url(format!("{reason}")))?;
        let endpoint = Endpoint::from_uri(&uri, ca).map_err(invalid_url)?;
        let base = match uri.path().trim_end_matches('/') {
            "" => DEFAULT_BASE,
            path => path,
        };
        let (url, base, model) = (url.to_owned(), base.to_owned(), model.unwrap_or(DEFAULT_MODEL).to_owned());
        Ok(Self { url, endpoint, base, model, key })
    }

    /// Sends a request and waits for the head of the answer.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`], [`ClientError::UntrustedCertificate`], [`ClientError::ConnectionLost`], or
    /// [`ClientError::HttpFailed`] with the server's own message.
    pub(super) async fn post(&self, path: &str, payload: Payload) -> Result<HttpAnswer, ClientError> {
        self.send(Method::POST, path, payload).await
    }

    /// Requests a path.
    ///
    /// # Errors
    /// As for [`Self::post`].
    pub(super) async fn get(&self, path: &str) -> Result<HttpAnswer, ClientError> {
        self.send(Method::GET, path, Payload::empty()).await
    }

    async fn send(&self, method: Method, path: &str, payload: Payload) -> Result<HttpAnswer, ClientError> {
        let hint = match payload.is_large {
            true => "; the server may not take recordings of this size (OpenAI's limit is 25 MB)",
            false => "",
        };
        let lost = |error: hyper::Error| ClientError::ConnectionLost(format!("{}: {error}{hint}", self.url));
        let transport = match timeout(CONNECT_TIMEOUT, self.endpoint.connect()).await {
            Ok(Ok(transport)) => transport,
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Err(_) => return Err(self.unreachable(&std::io::ErrorKind::TimedOut.into())),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(transport)).await.map_err(lost)?;
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(self.request(method, path, payload)?).await.map_err(lost)?;
        let answer = HttpAnswer { answer, url: self.url.clone(), _connection: AbortOnDrop(connection) };
        if answer.answer.status().is_success() { Ok(answer) } else { Err(answer.into_error().await) }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        payload: Payload,
    ) -> Result<Request<RequestBody>, ClientError> {
        let mut request = Request::new(payload.body);
        if let Some(permission) = payload.permission {
            on_informational(&mut request, move |_| permission.notify_one());
        }
        *request.method_mut() = method;
        let path = format!("{}{path}", self.base);
        *request.uri_mut() = path.parse().map_err(|error| self.unexpected(&format!("{error}")))?;
        let map = request.headers_mut();
        let header =
            |text: &str| HeaderValue::try_from(text).map_err(|error| self.unexpected(&error.to_string()));
        map.insert(HOST, header(&self.endpoint.authority)?);
        if let Some(key) = &self.key {
            let mut value = header(&format!("Bearer {}", key.expose()))?;
            value.set_sensitive(true);
            map.insert(AUTHORIZATION, value);
        }
        map.extend(payload.headers);
        Ok(request)
    }

    fn unreachable(&self, error: &std::io::Error) -> ClientError {
        match UntrustedCertificate::cause_of(error) {
            Some(problem) => {
                ClientError::UntrustedCertificate { url: self.url.clone(), problem, option: "--ca" }
            }
            None => ClientError::Unreachable { url: self.url.clone(), reason: error.to_string() },
        }
    }

    /// Error for a server that does not keep to the API, or had begun its answer when the request failed.
    pub(super) fn unexpected(&self, problem: &str) -> ClientError {
        ClientError::ConnectionLost(format!("{}: {}", self.url, printable(problem)))
    }
}

/// Ends a connection's task with its request.
struct AbortOnDrop(tokio::task::JoinHandle<Result<(), hyper::Error>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The answer to a request.
pub(super) struct HttpAnswer {
    answer: Response<Incoming>,
    url: String,
    _connection: AbortOnDrop,
}

impl HttpAnswer {
    /// The next part of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.answer.frame().await {
            let frame =
                frame.map_err(|error| ClientError::ConnectionLost(format!("{}: {error}", self.url)))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The whole body.
    pub(super) async fn collect(mut self) -> Result<Bytes, ClientError> {
        let mut body = BytesMut::new();
        while let Some(part) = self.next().await? {
            body.extend_from_slice(&part);
            if body.len() > ANSWER_MAX_BYTES {
                let problem = format!("{}: the answer is longer than {ANSWER_MAX_BYTES} bytes", self.url);
                return Err(ClientError::ConnectionLost(problem));
            }
        }
        Ok(body.freeze())
    }

    async fn into_error(self) -> ClientError {
        let (url, status) = (self.url.clone(), self.answer.status());
        let body = self.collect().await.unwrap_or_default();
        ClientError::HttpFailed { url, status: status.as_u16(), message: error_message(status, &body) }
    }
}

/// The message of an error, as OpenAI, FastAPI and Deepgram have it.
fn error_message(status: StatusCode, body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let pointers = ["/error/message", "/detail", "/detail/0/msg", "/err_msg", "/message"];
    let known = pointers.into_iter().find_map(|pointer| json.pointer(pointer)?.as_str());
    let reason = status.canonical_reason().unwrap_or("an error");
    printable(known.unwrap_or(reason)).chars().take(ERROR_MAX_CHARS).collect()
}

/// A form with texts and a file (RFC 7578).
pub(super) struct Form {
    boundary: String,
    fields: String,
}

impl Form {
    /// An empty form.
    pub(super) fn new() -> Self {
        let random = random_hex::<16>().unwrap_or_else(|| format!("{:032x}", fastrand::u128(..)));
        Self { boundary: format!("voxbridge-{random}"), fields: String::new() }
    }

    /// Adds a text.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        let boundary = &self.boundary;
        self.fields.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        ));
    }

    /// The form with a file, which is read as it is sent. Standard input is sent for `-`.
    pub(super) async fn with_file(self, file: &Path) -> Result<Payload, ClientError> {
        let Self { boundary, mut fields } = self;
        let (source, length) = open(file).await?;
        let name =
            file.file_name().unwrap_or_default().to_string_lossy().replace(['"', '\\', '\r', '\n'], "_");
        fields.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        ));
        let tail = format!("\r\n--{boundary}--\r\n");
        let mut headers = vec![(EXPECT, HeaderValue::from_static("100-continue"))];
        let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
        headers.extend(content_type.map(|value| (CONTENT_TYPE, value)));
        if let Some(length) = length {
            headers.push((CONTENT_LENGTH, (length + (fields.len() + tail.len()) as u64).into()));
        }
        let permission = Arc::new(Notify::new());
        let head = {
            let permission = permission.clone();
            stream::once(async move {
                let _ = timeout(CONTINUE_TIMEOUT, permission.notified()).await;
                Ok(Bytes::from(fields))
            })
        };
        let body = head.chain(chunks_of(source)).chain(stream::iter([Ok(Bytes::from(tail))]));
        let body = BodyExt::boxed(StreamBody::new(body.map(|chunk| chunk.map(Frame::data))));
        let is_large = length.is_some_and(|length| length > USUAL_MAX_BYTES);
        Ok(Payload { body, headers, permission: Some(permission), is_large })
    }
}

type Source = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// Reads a file in chunks.
fn chunks_of(source: Source) -> impl Stream<Item = std::io::Result<Bytes>> + Send + Sync {
    stream::unfold(source, |mut source| async {
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
        match source.read_buf(&mut chunk).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(chunk.freeze()), source)),
            Err(error) => Some((Err(error), source)),
        }
    })
}

/// Opens a file or standard input; the length is known for files.
async fn open(file: &Path) -> Result<(Source, Option<u64>), ClientError> {
    if file == Path::new("-") {
        let bytes = read_input(file, INPUT_MAX_BYTES).await?;
        let length = bytes.len() as u64;
        return Ok((Box::new(Cursor::new(bytes)), Some(length)));
    }
    let opened = async {
        let opened = tokio::fs::File::open(file).await?;
        let metadata = opened.metadata().await?;
        Ok((opened, metadata.is_file().then_some(metadata.len())))
    };
    let (opened, length) = opened
        .await
        .map_err(|reason| ClientError::UnreadableInput { source_name: file.display().to_string(), reason })?;
    Ok((Box::new(opened), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_openai_fastapi_and_deepgram_are_shown() {
        let status = StatusCode::BAD_REQUEST;
        for (body, message) in [
            (r#"{"error": {"message": "no such model", "code": "x"}}"#, "no such model"),
            (r#"{"detail": "Not Found"}"#, "Not Found"),
            (r#"{"detail": [{"msg": "Field required", "loc": ["body"]}]}"#, "Field required"),
            (r#"{"err_code": "Bad Request", "err_msg": "corrupt"}"#, "corrupt"),
            ("<html>", "Bad Request"),
        ] {
            assert_eq!(error_message(status, body.as_bytes()), message);
        }
    }
}
