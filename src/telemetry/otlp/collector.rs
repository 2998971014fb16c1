//! One path of a collector: posts requests on a connection that stays open.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Response, StatusCode,
    body::Incoming,
    client::conn::http1::SendRequest,
    header::{CONTENT_ENCODING, HeaderValue, RETRY_AFTER},
};
use tokio::time::timeout;

use super::{gzip::gzip, settings::Target};
use crate::net::http_request;

/// Longest answer that is read.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
/// Most letters of an error's page that are quoted.
const QUOTED_CHARS: usize = 200;

/// Posts requests to one path.
pub(super) struct Collector {
    target: Target,
    /// Longest time of a request.
    timeout: Duration,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// A request that the collector did not take.
#[derive(Debug)]
pub(super) struct Failure {
    /// What happened.
    pub(super) words: String,
    /// The same request may succeed later.
    pub(super) may_pass: bool,
    /// How long the collector wants a pause.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of the connection.
    fn of_connection(words: impl ToString) -> Self {
        Self { words: words.to_string(), may_pass: true, retry_after: None }
    }
}

impl Collector {
    pub(super) const fn new(target: Target, timeout: Duration) -> Self {
        Self { target, timeout, connection: None }
    }

    /// Its address without secrets, for the log.
    pub(super) fn url(&self) -> &str {
        &self.target.url
    }

    /// The body of a request as it is sent.
    pub(super) fn pack(&self, body: Vec<u8>) -> Bytes {
        if self.target.is_compressed { gzip(&body).into() } else { body.into() }
    }

    /// Posts a body that was packed. Returns the body of the answer.
    pub(super) async fn post(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        let at_most = self.timeout;
        let late = |_| Failure::of_connection(format!("no answer within {} s", at_most.as_secs_f32()));
        let answered =
            timeout(at_most, self.exchange(body)).await.map_err(late).and_then(|answered| answered);
        if answered.is_err() {
            self.connection = None;
        }
        answered
    }

    async fn exchange(&mut self, body: Bytes) -> Result<Bytes, Failure> {
        let request = self.target.request.post("application/x-protobuf", body);
        let mut request = request.map_err(Failure::of_connection)?;
        if self.target.is_compressed {
            request.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let connection = self.connect().await?;
        let answer = connection.send_request(request).await.map_err(Failure::of_connection)?;
        let head = Head::of(&answer);
        let body = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
        let body = body.map_err(Failure::of_connection)?.to_bytes();
        if head.status.is_success() { Ok(body) } else { Err(head.failure(&body)) }
    }

    /// The open connection, or a new one.
    async fn connect(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, Failure> {
        let is_open = match &mut self.connection {
            Some(connection) => connection.ready().await.is_ok(),
            None => false,
        };
        if !is_open {
            let opened = http_request::open(&self.target.request.endpoint).await;
            self.connection = Some(opened.map_err(Failure::of_connection)?);
        }
        self.connection.as_mut().ok_or_else(|| Failure::of_connection("no connection"))
    }
}

/// What the head of an answer says.
struct Head {
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl Head {
    fn of(answer: &Response<Incoming>) -> Self {
        let header = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let seconds = header.and_then(|seconds| seconds.parse().ok());
        Self { status: answer.status(), retry_after: seconds.map(Duration::from_secs) }
    }

    /// The failure of an answer with this body. Four statuses ask for the request again (OTLP/HTTP, "Failures").
    fn failure(self, body: &[u8]) -> Failure {
        let page = String::from_utf8_lossy(body);
        let page: String = page.chars().filter(|letter| !letter.is_control()).take(QUOTED_CHARS).collect();
        let words = format!("HTTP {} {page}", self.status).trim_end().to_owned();
        let may_pass = matches!(self.status.as_u16(), 429 | 502 | 503 | 504);
        Failure { words, may_pass, retry_after: self.retry_after }
    }
}
