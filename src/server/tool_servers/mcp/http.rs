//! A tool server over streamable HTTP: each message is a POST of its own, whose answer is JSON or a stream of events.
//!
//! `rmcp` posts one message after the other, and waits for the head of each answer. A slow tool would hold up all others, so a
//! request is posted by the stream of its answer. Its failure becomes an answer, too: JSON-RPC's error.
//!
//! Requests go to the configured host only: a redirect is an error. There is no cache of connections, because calls are rare. For
//! a server that a client has named, each request goes to an address that was checked for this request, so that a name cannot
//! lead to an inner address later.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    future::ready,
    stream::{self, BoxStream},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT},
};
use rmcp::{
    model::{
        ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage,
    },
    transport::{
        StreamableHttpClientTransport,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
            StreamableHttpPostResponse,
        },
    },
};
use sse_stream::Sse;
use tokio::{sync::Notify, time::timeout};

use super::MESSAGE_MAX_BYTES;
use crate::{
    net::{
        Transport,
        http_request::{self, CONNECT_TIMEOUT, OWN_AGENT, RequestTarget},
    },
    server::tool_servers::inner_addresses::is_inner,
    upstream::sse::EventStream,
};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// Most bytes of an error's page that are quoted.
const PAGE_MAX_BYTES: usize = 200;

type Failure = StreamableHttpError<HttpFailure>;
type EventStreamOf = BoxStream<'static, Result<Sse, SseError>>;

/// A request that failed below MCP.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct HttpFailure(String);

/// Sends requests to one server.
#[derive(Clone)]
pub(super) struct HttpClient {
    target: RequestTarget,
    /// Inner addresses are refused.
    is_public: bool,
    /// Longest time of an answer.
    answer_max: Duration,
    /// The server does not know its session any more.
    has_expired: Arc<Notify>,
}

impl HttpClient {
    /// A client of this server, whose answers take no longer than this.
    pub(super) fn new(target: RequestTarget, is_public: bool, answer_max: Duration) -> Self {
        Self { target, is_public, answer_max, has_expired: Arc::default() }
    }

    /// Completes when the server has forgotten the session.
    pub(super) fn expiry(&self) -> Arc<Notify> {
        self.has_expired.clone()
    }

    /// The transport to the server.
    pub(super) fn into_transport(self) -> StreamableHttpClientTransport<Self> {
        // The client itself knows the address.
        let config = StreamableHttpClientTransportConfig::with_uri(self.target.path.as_str());
        StreamableHttpClientTransport::with_client(self, config)
    }
}

fn failure(words: impl ToString) -> Failure {
    StreamableHttpError::Client(HttpFailure(words.to_string()))
}

impl HttpClient {
    /// Connects to the server.
    async fn connect(&self) -> io::Result<Box<dyn Transport>> {
        match self.is_public {
            true => self.target.endpoint.connect_if(|address| !is_inner(address)).await,
            false => self.target.endpoint.connect().await,
        }
    }

    /// Sends a request, and waits for the head of the answer.
    async fn send(
        &self,
        method: Method,
        body: String,
        session_id: Option<&str>,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(&self.target.path)
            .header(HOST, &self.target.endpoint.authority)
            .header(USER_AGENT, OWN_AGENT)
            .header(ACCEPT, format!("{JSON}, {EVENTS}"))
            .body(Full::new(Bytes::from(body)))
            .map_err(failure)?;
        let session_id = session_id.map(HeaderValue::from_str).transpose().map_err(failure)?;
        let session_id = session_id.map(|id| (SESSION_ID, id));
        // The operator's headers come last, so that the server's cannot take their place.
        for (name, value) in headers.into_iter().chain(session_id).chain(self.target.headers.iter().cloned())
        {
            request.headers_mut().insert(name, value);
        }
        http_request::send_over(self.connect(), &self.target.endpoint.authority, request)
            .await
            .map_err(failure)
    }
}

/// The whole body of an answer, within the bound.
async fn whole_body(answer: Response<Incoming>, max_bytes: usize) -> Result<Bytes, Failure> {
    let body = Limited::new(answer.into_body(), max_bytes).collect().await;
    let too_long =
        |error| failure(format!("the answer is longer than {max_bytes} bytes, or breaks off ({error})"));
    Ok(body.map_err(too_long)?.to_bytes())
}

fn header<'a>(answer: &'a Response<Incoming>, name: &HeaderName) -> Option<&'a str> {
    answer.headers().get(name).and_then(|value| value.to_str().ok())
}

/// The error of an answer that is no success.
async fn refusal(answer: Response<Incoming>) -> Failure {
    let status = answer.status();
    if status.is_redirection() {
        return failure(format!("HTTP {status}: redirects are not followed"));
    }
    let page = whole_body(answer, MESSAGE_MAX_BYTES).await.unwrap_or_default();
    let page = String::from_utf8_lossy(&page[..page.len().min(PAGE_MAX_BYTES)]).into_owned();
    failure(format!("HTTP {status}: {page}"))
}

/// Events of a body, each at most [`MESSAGE_MAX_BYTES`] long.
fn events(body: Incoming) -> EventStreamOf {
    let state = Some((body, EventStream::default()));
    Box::pin(stream::unfold(state, |state| async move {
        let (mut body, mut events) = state?;
        loop {
            if let Some(data) = events.pop() {
                return Some((Ok(Sse::default().data(data)), Some((body, events))));
            }
            let problem = match body.frame().await? {
                Ok(frame) => {
                    events.push(&frame.into_data().unwrap_or_default());
                    if events.held_bytes().max(events.idle_bytes()) <= MESSAGE_MAX_BYTES {
                        continue;
                    }
                    format!("an event is longer than {MESSAGE_MAX_BYTES} bytes")
                }
                Err(error) => error.to_string(),
            };
            return Some((Err(SseError::Body(problem.into())), None));
        }
    }))
}

/// A message to post, as rmcp passes it on.
struct Posted {
    body: String,
    session_id: Option<Arc<str>>,
    headers: HashMap<HeaderName, HeaderValue>,
}

impl HttpClient {
    /// Posts a message, and waits for the head of its answer.
    async fn post(&self, message: Posted) -> Result<Response<Incoming>, Failure> {
        let Posted { body, session_id, mut headers } = message;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let answer = self.send(Method::POST, body, session_id.as_deref(), headers).await?;
        match answer.status() {
            StatusCode::NOT_FOUND if session_id.is_some() => {
                self.has_expired.notify_one();
                Err(StreamableHttpError::SessionExpired)
            }
            status if !status.is_success() => Err(refusal(answer).await),
            _ => Ok(answer),
        }
    }

    /// Posts a request. Gives the events of its answer, or the answer as an event.
    async fn post_request(&self, message: Posted) -> Result<EventStreamOf, Failure> {
        let answer = self.post(message).await?;
        let content_type = header(&answer, &CONTENT_TYPE).unwrap_or_default().to_owned();
        if content_type.starts_with(EVENTS) {
            return Ok(events(answer.into_body()));
        }
        let body = whole_body(answer, MESSAGE_MAX_BYTES).await?;
        let message: Result<ServerJsonRpcMessage, _> = serde_json::from_slice(&body);
        let data = message.and_then(|message| serde_json::to_string(&message)).map_err(|error| {
            failure(format!("the answer is no JSON of MCP ({error}), but {content_type:?}"))
        })?;
        Ok(one_event(data))
    }

    /// Posts a request when its answer is asked for.
    fn answer_stream(&self, id: RequestId, message: Posted) -> EventStreamOf {
        let (client, answer_max) = (self.clone(), self.answer_max);
        let error_id = id.clone();
        let events = stream::once(async move { client.post_request(message).await })
            .flat_map(move |answer| answer.unwrap_or_else(|error| one_event(error_data(&id, &error))))
            .map(move |event| match event {
                Err(error) => Ok(Sse::default().data(error_data(&error_id, &error))),
                event => event,
            });
        events.take_until(tokio::time::sleep(answer_max)).boxed()
    }

    /// Opens the session: this answer alone has its id.
    async fn initialize(&self, message: Posted) -> Result<StreamableHttpPostResponse, Failure> {
        let answer = self.post(message).await?;
        let session_id = header(&answer, &SESSION_ID).map(str::to_owned);
        if header(&answer, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with(EVENTS)) {
            return Ok(StreamableHttpPostResponse::Sse(events(answer.into_body()), session_id));
        }
        let body = whole_body(answer, MESSAGE_MAX_BYTES).await?;
        Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&body)?, session_id))
    }
}

fn one_event(data: String) -> EventStreamOf {
    stream::once(ready(Ok(Sse::default().data(data)))).boxed()
}

/// JSON-RPC's answer to a request that failed.
fn error_data(id: &RequestId, error: &dyn std::error::Error) -> String {
    let error = ErrorData::internal_error(super::words_of(error), None);
    serde_json::to_string(&ServerJsonRpcMessage::error(error, Some(id.clone()))).unwrap_or_default()
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let posted = Posted { body: serde_json::to_string(&message)?, session_id, headers };
        match message {
            ClientJsonRpcMessage::Request(request) => match request.request {
                ClientRequest::InitializeRequest(_) => self.initialize(posted).await,
                _ => Ok(StreamableHttpPostResponse::Sse(self.answer_stream(request.id, posted), None)),
            },
            // A server that does not answer must not hold up the next message.
            ClientJsonRpcMessage::Notification(notification)
                if !matches!(notification.notification, ClientNotification::InitializedNotification(_)) =>
            {
                let client = self.clone();
                tokio::spawn(async move { timeout(CONNECT_TIMEOUT, client.post(posted)).await.map(drop) });
                Ok(StreamableHttpPostResponse::Accepted)
            }
            _ => {
                let late = |_| failure(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()));
                timeout(CONNECT_TIMEOUT, self.post(posted)).await.map_err(late)??;
                Ok(StreamableHttpPostResponse::Accepted)
            }
        }
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        self.send(Method::DELETE, String::new(), Some(&session_id), headers).await.map(drop)
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        mut headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<EventStreamOf, Failure> {
        if let Some(id) = last_event_id {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_str(&id).map_err(failure)?);
        }
        let answer = self.send(Method::GET, String::new(), session_id.as_deref(), headers).await?;
        match answer.status() {
            StatusCode::NOT_FOUND if session_id.is_some() => {
                self.has_expired.notify_one();
                Err(StreamableHttpError::SessionExpired)
            }
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(refusal(answer).await),
            _ if header(&answer, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with(EVENTS)) => {
                Ok(events(answer.into_body()))
            }
            _ => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}
