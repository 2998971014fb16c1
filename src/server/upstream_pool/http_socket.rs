//! A lane of HTTP requests: sends one at a time, and gives its answer in pieces. There is no task: the session polls it.
//!
//! Each request has a connection of its own, because servers close idle ones at any time; the connection of the dial serves
//! the first request if that comes at once. Dropping the socket, or sending the next request, drops the connection, by which
//! the server sees that the answer is no longer wanted.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    client::conn::http1,
    header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message as WsMessage;

use crate::{
    net::{
        CountedStream, Endpoint, Traffic, Transport,
        http_request::OWN_AGENT,
        turn::{TURN_BYTES, wake_after_others},
    },
    server::{
        memory::{Held, MemoryShare},
        websocket::session_socket::OUT_OF_MEMORY,
    },
    telemetry::context::{TRACEPARENT, TRACESTATE, TraceContext},
    upstream::sse::EventStream,
    vocabulary::{AnswerPart, DisconnectReason, HttpRequest},
};

/// How long the connection of the dial waits for a request. Servers close idle connections after 5 s and more.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// Bytes of an answer that are read ahead: more than a second of speech.
const READ_BUFFER_BYTES: usize = 256 * 1024;
/// Most bytes before the head of an answer, such as interim responses, and between two events.
const IDLE_MAX_BYTES: usize = 1024 * 1024;
/// Extra weight of each piece of a body, in [`TURN_BYTES`] and in [`IDLE_MAX_BYTES`]: chunks may have one byte.
const PIECE_WEIGHT: usize = 256;
const PIECE_IDLE_BYTES: usize = 64;

type Connection = http1::Connection<TokioIo<CountedStream<Box<dyn Transport>>>, Full<Bytes>>;
type Sent = (Response<Incoming>, Option<Pin<Box<Connection>>>);

/// Where the requests of a lane go.
pub(crate) struct HttpTarget {
    pub(super) endpoint: Endpoint,
    /// Path before the paths of requests.
    pub(super) base: String,
    /// Header with the upstream's token.
    pub(super) token: Option<(HeaderName, HeaderValue)>,
    /// Model that requests name.
    pub(super) model: Option<String>,
    /// Voice that requests to speak name, and their path.
    pub(super) voice: Option<String>,
    pub(super) speak_path: Option<String>,
    /// Longest message of an answer, bytes.
    pub(super) message_max_bytes: usize,
    pub(super) trace: Option<Arc<TraceContext>>,
}

/// The requests of one lane.
pub struct HttpSocket {
    target: HttpTarget,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) memory: MemoryShare,
    /// The connection of the dial, and when it was opened.
    idle: Option<(Box<dyn Transport>, Instant)>,
    exchange: Exchange,
    /// Pieces of the body since the last event.
    idle_pieces: usize,
    /// Pieces of the answer that are ready.
    events: VecDeque<HttpEvent>,
    /// The time after which the last answer wants the request again: its header `Retry-After`, if that is in seconds.
    pub(crate) retry_after: Option<Duration>,
}

/// A piece of an answer.
pub(crate) enum HttpEvent {
    /// The beginning or the end.
    Part(AnswerPart),
    /// A piece of the body.
    Message(WsMessage),
    /// The request failed below HTTP.
    Broken(DisconnectReason),
}

enum Exchange {
    None,
    /// Until the head of the answer.
    Sending {
        sending: BoxFuture<'static, Result<Sent, DisconnectReason>>,
        /// Bytes read before the request.
        read_before: u64,
    },
    Answering {
        connection: Option<Pin<Box<Connection>>>,
        body: Incoming,
        reader: BodyReader,
    },
}

/// How the body of an answer is cut into messages.
enum BodyReader {
    /// One text for each event.
    Events(EventStream),
    /// One text.
    Text(Vec<u8>),
    /// Binary messages as they come.
    Audio,
}

/// Headers that make a request a span of its own in a trace.
pub(super) fn trace_headers(trace: &TraceContext) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let parent = Some((TRACEPARENT, trace.child_traceparent(&mut fastrand::Rng::new())));
    let state = trace.state.clone().map(|state| (TRACESTATE, state));
    // Both values are printable by construction; an invalid one is omitted.
    let header = |(name, value): (&'static str, String)| {
        Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
    };
    parent.into_iter().chain(state).filter_map(header)
}

impl HttpSocket {
    /// A lane without a request, with the connection of its dial.
    pub(super) fn new(target: HttpTarget, transport: Box<dyn Transport>) -> Self {
        Self {
            target,
            traffic: Arc::default(),
            memory: MemoryShare::default(),
            idle: Some((transport, Instant::now())),
            exchange: Exchange::None,
            idle_pieces: 0,
            events: VecDeque::new(),
            retry_after: None,
        }
    }

    /// Sends a request. One that is not answered is dropped.
    pub(crate) fn send(&mut self, request: HttpRequest) {
        self.events.clear();
        let idle = self.idle.take().filter(|(_, opened_at)| opened_at.elapsed() < IDLE_MAX);
        let (endpoint, traffic) = (self.target.endpoint.clone(), self.traffic.clone());
        let (request, length) = match self.target.build_request(request) {
            Ok(built) => built,
            Err(problem) => return self.break_off(DisconnectReason::Unreachable(problem)),
        };
        if !self.memory.hold(Held::Outgoing, length) {
            return self.break_off(DisconnectReason::Lost(OUT_OF_MEMORY.to_owned()));
        }
        let read_before = traffic.bytes_read();
        let sending = Box::pin(async move {
            let transport = match idle {
                Some((transport, _)) => transport,
                None => endpoint.connect().await.map_err(|error| {
                    DisconnectReason::Unreachable(format!("{}: {error}", endpoint.authority))
                })?,
            };
            exchange_heads(CountedStream::counting(transport, traffic), request).await
        });
        self.exchange = Exchange::Sending { sending, read_before };
    }

    fn break_off(&mut self, reason: DisconnectReason) {
        self.exchange = Exchange::None;
        self.events.push_back(HttpEvent::Broken(reason));
    }

    /// The next piece of the answer. Pending for ever without a request. Other tasks get their turn while the server sends bytes
    /// without an event.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<HttpEvent> {
        let mut weight = 0;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            if weight > TURN_BYTES {
                wake_after_others(cx);
                return Poll::Pending;
            }
            match &mut self.exchange {
                Exchange::None => return Poll::Pending,
                Exchange::Sending { sending, read_before } => match sending.as_mut().poll(cx) {
                    Poll::Ready(Ok((answer, connection))) => self.handle_head(answer, connection),
                    Poll::Ready(Err(reason)) => self.break_off(reason),
                    Poll::Pending if self.traffic.bytes_read() - *read_before > IDLE_MAX_BYTES as u64 => {
                        self.break_off(DisconnectReason::Lost("its answer has no head".to_owned()));
                    }
                    Poll::Pending => return Poll::Pending,
                },
                Exchange::Answering { connection, body, .. } => {
                    poll_connection(connection, cx);
                    match std::task::ready!(Pin::new(body).poll_frame(cx)) {
                        Some(Ok(frame)) => {
                            let bytes = frame.into_data().unwrap_or_default();
                            weight += bytes.len() + PIECE_WEIGHT;
                            self.handle_bytes(bytes);
                        }
                        Some(Err(error)) => self.break_off(lost(&error)),
                        None => self.handle_end(),
                    }
                }
            }
        }
    }

    fn handle_head(&mut self, answer: Response<Incoming>, connection: Option<Pin<Box<Connection>>>) {
        // The request is sent.
        self.memory.hold(Held::Outgoing, 0);
        let content_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let reader = BodyReader::for_answer(answer.status().is_success(), &content_type);
        let status = answer.status().as_u16();
        let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        self.idle_pieces = 0;
        self.retry_after = seconds.map(Duration::from_secs);
        self.events.push_back(HttpEvent::Part(AnswerPart::Head { status, content_type }));
        self.exchange = Exchange::Answering { connection, body: answer.into_body(), reader };
    }

    fn handle_bytes(&mut self, bytes: Bytes) {
        let Exchange::Answering { reader, .. } = &mut self.exchange else { return };
        let mut idle_bytes = 0;
        self.idle_pieces += 1;
        let held_bytes = match reader {
            BodyReader::Audio if bytes.is_empty() => 0,
            BodyReader::Audio => {
                self.events.push_back(HttpEvent::Message(WsMessage::Binary(bytes)));
                0
            }
            BodyReader::Text(text) => {
                text.extend_from_slice(&bytes);
                text.len()
            }
            BodyReader::Events(stream) => {
                stream.push(&bytes);
                let data = std::iter::from_fn(|| stream.pop());
                self.events.extend(data.map(|data| HttpEvent::Message(WsMessage::text(data))));
                if !self.events.is_empty() {
                    self.idle_pieces = 0;
                }
                idle_bytes = stream.idle_bytes() + self.idle_pieces * PIECE_IDLE_BYTES;
                stream.held_bytes()
            }
        };
        if idle_bytes > IDLE_MAX_BYTES {
            let words = format!("its answer has {} MiB without an event", IDLE_MAX_BYTES >> 20);
            return self.break_off(DisconnectReason::Lost(words));
        }
        let limit = self.target.message_max_bytes;
        if held_bytes > limit {
            self.break_off(DisconnectReason::Lost(format!("a message of its answer exceeds {limit} bytes")));
        } else if !self.memory.hold(Held::Incoming, held_bytes) {
            self.break_off(DisconnectReason::Lost(OUT_OF_MEMORY.to_owned()));
        }
    }

    fn handle_end(&mut self) {
        let Exchange::Answering { reader, .. } = std::mem::replace(&mut self.exchange, Exchange::None) else {
            return;
        };
        self.memory.hold(Held::Incoming, 0);
        let rest = match reader {
            BodyReader::Audio => None,
            BodyReader::Text(text) if text.is_empty() => None,
            BodyReader::Text(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            BodyReader::Events(mut stream) => stream.finish(),
        };
        self.events.extend(rest.map(|text| HttpEvent::Message(WsMessage::text(text))));
        self.events.push_back(HttpEvent::Part(AnswerPart::End));
    }
}

impl BodyReader {
    fn for_answer(is_success: bool, content_type: &str) -> Self {
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.as_str() {
            "text/event-stream" => Self::Events(EventStream::default()),
            "application/octet-stream" if is_success => Self::Audio,
            audio if is_success && audio.starts_with("audio/") => Self::Audio,
            _ => Self::Text(Vec::new()),
        }
    }
}

impl HttpTarget {
    /// Adds what only the configuration knows. Returns the request with the length of its body.
    fn build_request(&self, request: HttpRequest) -> Result<(Request<Full<Bytes>>, usize), String> {
        let speaks = self.speak_path.as_ref() == Some(&request.path);
        let model = self.model.iter().map(|model| ("model", model));
        let voice = self.voice.iter().filter(|_| speaks).map(|voice| ("voice", voice));
        let members: Vec<_> =
            model.chain(voice).map(|(name, value)| (name.to_owned(), value.clone())).collect();
        let (content_type, body) = request.body.into_bytes(&members);
        let length = body.len();
        let built = Request::post(format!("{}{}", self.base, request.path))
            .header(HOST, &self.endpoint.authority)
            .header(USER_AGENT, OWN_AGENT)
            .header(ACCEPT, "*/*")
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(body));
        let mut built = built.map_err(|error| format!("{}{}: {error}", self.base, request.path))?;
        built.headers_mut().extend(self.token.clone());
        built.headers_mut().extend(self.trace.as_deref().into_iter().flat_map(trace_headers));
        Ok((built, length))
    }
}

/// Sends a request, and waits for the head of its answer.
async fn exchange_heads(
    stream: CountedStream<Box<dyn Transport>>,
    request: Request<Full<Bytes>>,
) -> Result<Sent, DisconnectReason> {
    let handshake =
        http1::Builder::new().max_buf_size(READ_BUFFER_BYTES).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| lost(&error))?;
    let mut connection = Some(Box::pin(connection));
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = std::future::poll_fn(|cx| {
        poll_connection(&mut connection, cx);
        answer.as_mut().poll(cx)
    });
    let answer = answer.await.map_err(|error| lost(&error))?;
    Ok((answer, connection))
}

/// Moves bytes of the connection. The request or its answer report a failure.
fn poll_connection(connection: &mut Option<Pin<Box<Connection>>>, cx: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| connection.as_mut().poll(cx).is_ready()) {
        *connection = None;
    }
}

fn lost(error: &hyper::Error) -> DisconnectReason {
    // The cause is more precise, such as a reset.
    let cause = std::error::Error::source(error);
    DisconnectReason::Lost(cause.map_or_else(|| error.to_string(), |cause| format!("{error} ({cause})")))
}
