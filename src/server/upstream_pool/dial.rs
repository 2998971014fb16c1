//! Dials one upstream in the mode of a lane: opens a WebSocket, or checks that a server of HTTP requests is there.
//!
//! [`Dialer`] is a [`tower::Service`] from [`DialRequest`] to socket; [`crate::server::upstream_pool`] chooses among
//! several.

use std::{
    io,
    path::Path,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use hyper::{
    Uri,
    header::{AUTHORIZATION, HeaderName, HeaderValue, USER_AGENT},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error as WsError,
        client::IntoClientRequest as _,
        handshake::client::{Request, Response},
        protocol::Role,
    },
};

use super::{
    http_page::{HttpPage, fetch_page},
    http_socket::{HttpSocket, HttpTarget, trace_headers},
    places::Capacity,
    probe::{Probe, WorkerReport},
    status_page::StatusPage,
};
use crate::server::websocket::{WebSocket, http_head::HttpHeadStream, session_socket::websocket_config};
use crate::{
    net::{ClientIdentity, CountedStream, Endpoint, Transport},
    secret::{Secret, redacted_url},
    spelling::{UpstreamMapping, upstream::SendName},
    telemetry::context::TraceContext,
    vocabulary::{DisconnectReason, LanePurpose, Mode},
};

/// A connection to an upstream, with the dialect that it speaks.
pub struct DialledUpstream {
    /// The connection.
    pub socket: UpstreamSocket,
    /// Its dialect.
    pub dialect: Arc<UpstreamMapping>,
    /// The model that the configuration names for it.
    pub model: Option<String>,
}

/// A connection to an upstream.
pub enum UpstreamSocket {
    /// A WebSocket.
    WebSocket(Box<WebSocket<Box<dyn Transport>>>),
    /// A lane of HTTP requests.
    Http(Box<HttpSocket>),
}

/// Parameters of one dial.
#[derive(Debug, Clone)]
pub struct DialRequest {
    /// Mode of the lane.
    pub mode: Mode,
    /// Purpose of the lane.
    pub purpose: LanePurpose,
    /// Trace context that is sent to the upstream.
    pub trace: Option<Arc<TraceContext>>,
}

/// Dialer for one upstream.
#[derive(Clone)]
pub struct Dialer {
    target: Arc<DialTarget>,
}

#[derive(Clone)]
struct DialTarget {
    endpoint: Endpoint,
    /// URL up to the value of the mode parameter, or the whole URL if it has no such parameter.
    url: String,
    mapping: Arc<UpstreamMapping>,
    /// The page that a probe asks for.
    status_page: Option<Arc<StatusPage>>,
    /// Header sent with every request. Its value is marked sensitive and never printed.
    token: Option<(HeaderName, HeaderValue)>,
    /// The purposes that it serves; `None` for all of its dialect.
    serves: Option<Arc<[LanePurpose]>>,
    /// Model that requests over HTTP name, or the URL of a WebSocket.
    model: Option<String>,
    /// Voice that requests to speak name.
    voice: Option<String>,
}

impl Dialer {
    /// Creates a dialer for `url`: `ws://` or `wss://`, or `http://` or `https://` for a dialect of HTTP requests.
    ///
    /// A URL without a path gets the dialect's path; the mode in its query is replaced by the lane's. Certificates are
    /// verified against the system's authorities and those in the PEM file `ca`. A probe requests `status_path`;
    /// without one, the page by which its dialect is found.
    ///
    /// # Errors
    /// The problem with the URL or the file.
    pub fn new(
        url: &str,
        ca: Option<&Path>,
        status_path: Option<&str>,
        mapping: Arc<UpstreamMapping>,
    ) -> Result<Self, String> {
        let invalid_url = |problem: String| {
            let scheme = if mapping.is_http() { "http" } else { "ws" };
            format!(
                "{:?}: {problem}; an upstream URL looks like {scheme}://HOST:8006{}",
                redacted_url(url),
                mapping.path
            )
        };
        // `Endpoint` has the schemes of WebSockets.
        let websocket_url = match (mapping.is_http(), url.strip_prefix("http")) {
            (true, Some(rest)) => format!("ws{rest}"),
            (true, None) => return Err(invalid_url("the scheme must be http or https".to_owned())),
            (false, Some(_)) => {
                return Err(invalid_url(
                    "the scheme must be ws or wss, unless `dialect` (`--upstream-dialect`) names a server of HTTP requests, such as openai-audio"
                        .to_owned(),
                ));
            }
            (false, None) => url.to_owned(),
        };
        let uri: Uri =
            websocket_url.parse().map_err(|error| invalid_url(format!("invalid URL ({error})")))?;
        let endpoint = Endpoint::from_uri(&uri, ca).map_err(invalid_url)?;
        let path = if uri.path() == "/" { &mapping.path } else { uri.path() };
        let mut query = form_urlencoded::Serializer::new(String::new());
        let url_pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        query.extend_pairs(url_pairs.filter(|(name, _)| mapping.mode_key.as_deref() != Some(name)));
        let query = query.finish();
        let mode_key = mapping.mode_key.as_ref().map(|key| format!("{key}="));
        let query: Vec<String> =
            [Some(query).filter(|query| !query.is_empty()), mode_key].into_iter().flatten().collect();
        let mark = if query.is_empty() { "" } else { "?" };
        let scheme = match (mapping.is_http(), endpoint.is_secure()) {
            (true, true) => "https",
            (true, false) => "http",
            (false, _) => endpoint.scheme,
        };
        let url = format!("{scheme}://{}{path}{mark}{}", endpoint.authority, query.join("&"));
        let status_page = StatusPage::new(&mapping, status_path).map(Arc::new);
        let target = DialTarget {
            endpoint,
            url,
            mapping,
            status_page,
            token: None,
            serves: None,
            model: None,
            voice: None,
        };
        Ok(Self { target: Arc::new(target) })
    }

    /// Limits it to lanes of these purposes.
    #[must_use]
    pub fn serving(self, purposes: Arc<[LanePurpose]>) -> Self {
        Self { target: Arc::new(DialTarget { serves: Some(purposes), ..(*self.target).clone() }) }
    }

    /// Sets the model that requests over HTTP name, or the URL of a WebSocket.
    ///
    /// # Errors
    /// The dialect has no place for it.
    pub fn with_model(self, model: &str) -> Result<Self, String> {
        if !self.target.mapping.names_models() {
            return Err(format!("model has no effect on the dialect {}", self.target.mapping.name));
        }
        let model = Some(model.to_owned());
        Ok(Self { target: Arc::new(DialTarget { model, ..(*self.target).clone() }) })
    }

    /// Sets the voice that requests to speak name.
    ///
    /// # Errors
    /// The dialect's requests to speak name no voice.
    pub fn with_voice(self, voice: &str) -> Result<Self, String> {
        let mapping = &self.target.mapping;
        if mapping.default_voice.is_none() {
            return Err(format!("voice has no effect on the dialect {}", mapping.name));
        }
        let voice = Some(voice.to_owned());
        Ok(Self { target: Arc::new(DialTarget { voice, ..(*self.target).clone() }) })
    }

    /// Adds a token in this header, by default `Authorization: Bearer`.
    ///
    /// # Errors
    /// The problem with header or token, without the token.
    pub fn with_token(self, header: Option<&str>, token: &Secret) -> Result<Self, String> {
        let name = header.map_or(Ok(AUTHORIZATION), str::parse::<HeaderName>);
        let name =
            name.map_err(|_| format!("{:?} is not a valid header name", header.unwrap_or_default()))?;
        let text = token.expose();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "the token is empty or contains characters that are not allowed in a header".to_owned()
            );
        }
        let value = if header.is_some() { text.to_owned() } else { format!("Bearer {text}") };
        let mut value = HeaderValue::try_from(value).map_err(|_| "the token is not allowed in a header")?;
        value.set_sensitive(true);
        Ok(Self { target: Arc::new(DialTarget { token: Some((name, value)), ..(*self.target).clone() }) })
    }

    /// Adds a client certificate; `ca` as in [`Dialer::new`].
    ///
    /// # Errors
    /// The problem with the files.
    pub fn with_identity(self, ca: Option<&Path>, identity: &ClientIdentity) -> Result<Self, String> {
        let endpoint = self.target.endpoint.clone().with_identity(ca, identity)?;
        Ok(Self { target: Arc::new(DialTarget { endpoint, ..(*self.target).clone() }) })
    }

    /// Host and port, as in the URL.
    pub fn authority(&self) -> &str {
        &self.target.endpoint.authority
    }

    /// Name of its dialect.
    pub fn dialect(&self) -> &str {
        &self.target.mapping.name
    }

    /// Endpoint, for step-by-step diagnostics.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.target.endpoint
    }

    /// URL for a mode; without a value if the dialect lacks the mode.
    pub(crate) fn url(&self, mode: Mode) -> String {
        self.target.url(mode, None)
    }

    /// Performs only the WebSocket handshake on an open connection; returns the server's response too.
    ///
    /// # Errors
    /// The library's error; [`WsError::Http`] contains an HTTP response.
    pub(crate) async fn upgrade(
        &self,
        transport: Box<dyn Transport>,
        mode: Mode,
    ) -> Result<(WebSocketStream<Box<dyn Transport>>, Response), WsError> {
        self.target.upgrade(transport, self.url(mode), None).await
    }

    /// Opens a WebSocket without a lane, to observe the server's behaviour. `mode` is the name of a mode that lanes do not have,
    /// or else one of theirs.
    ///
    /// # Errors
    /// The library's error; [`WsError::Http`] contains an HTTP response.
    pub(crate) async fn try_socket(
        &self,
        mode: Result<&str, Mode>,
    ) -> Result<WebSocketStream<Box<dyn Transport>>, WsError> {
        let transport = self.target.endpoint.connect().await.map_err(WsError::Io)?;
        let url = mode.map_or_else(|mode| self.url(mode), |name| format!("{}{name}", self.target.url));
        Ok(self.target.upgrade(transport, url, None).await?.0)
    }

    /// Requests a page of the server.
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer with HTTP.
    pub(crate) async fn fetch_page(&self, path: &str, bytes_min: usize) -> io::Result<HttpPage> {
        let DialTarget { endpoint, token, .. } = &*self.target;
        let mut transport = endpoint.connect().await?;
        fetch_page(&mut transport, path, &endpoint.authority, token.as_ref(), bytes_min).await
    }

    /// A lane of HTTP requests on an open connection.
    pub(crate) fn http_socket(&self, transport: Box<dyn Transport>) -> HttpSocket {
        HttpSocket::new(self.target.http_target(None), transport)
    }

    /// True if both dialers have the same URL.
    pub(crate) fn has_same_url(&self, other: &Self) -> bool {
        self.target.url == other.target.url
    }

    /// True if both dialers have the same dialect, number of sessions, status page, token, authorities and certificate.
    pub(crate) fn has_same_settings(&self, with: &Self) -> bool {
        let (this, other) = (&self.target, &with.target);
        this.mapping.name == other.mapping.name
            && self.capacity() == Probe::capacity(with)
            && this.status_page == other.status_page
            && this.model == other.model
            && this.voice == other.voice
            && this.token == other.token
            && this.endpoint.has_same_credentials(&other.endpoint)
    }

    /// Extracts the mode from a URL, if it has one.
    pub fn mode_in_url(url: &str, mapping: &UpstreamMapping) -> Option<String> {
        let (_, query) = url.split_once('?')?;
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| mapping.mode_key.as_deref() == Some(name)).map(|(_, mode)| mode.into_owned())
    }
}

impl tower::Service<DialRequest> for Dialer {
    type Response = DialledUpstream;
    type Error = DisconnectReason;
    type Future = BoxFuture<'static, Result<DialledUpstream, DisconnectReason>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: DialRequest) -> Self::Future {
        let target = self.target.clone();
        Box::pin(async move {
            let socket = target.dial(request).await?;
            Ok(DialledUpstream { socket, dialect: target.mapping.clone(), model: target.model.clone() })
        })
    }
}

impl Probe for Dialer {
    fn probe(&self) -> BoxFuture<'static, Result<Option<WorkerReport>, String>> {
        let target = self.target.clone();
        Box::pin(async move { target.probe().await })
    }

    fn reports_workers(&self) -> bool {
        self.target.status_page.as_ref().is_some_and(|page| page.has_workers())
    }

    fn capacity(&self) -> Capacity {
        let mapping = &self.target.mapping;
        match mapping.sessions_max {
            _ if mapping.has_queue() => Capacity::QueuesItself,
            Some(count) => Capacity::AtMost(count),
            None => Capacity::Unknown,
        }
    }

    fn serves(&self, purpose: LanePurpose, mode: Mode) -> bool {
        let DialTarget { mapping, serves, .. } = &*self.target;
        serves.as_ref().is_none_or(|serves| serves.contains(&purpose)) && mapping.can(purpose, mode)
    }
}

impl DialTarget {
    /// URL for a mode and a purpose; without a value if the dialect lacks the mode.
    fn url(&self, mode: Mode, purpose: Option<LanePurpose>) -> String {
        let value = self.mapping.mode_key.as_ref().map_or("", |_| self.mapping.mode_name(mode));
        let url = format!("{}{value}", self.url);
        match self.own_query(purpose) {
            Some(query) => format!("{url}{}{query}", if url.contains('?') { '&' } else { '?' }),
            None => url,
        }
    }

    /// The dialect's query for a purpose, or else the model.
    fn own_query(&self, purpose: Option<LanePurpose>) -> Option<String> {
        if let Some(query) = purpose.and_then(|purpose| self.mapping.queries.get(&purpose)) {
            return Some(query.clone());
        }
        let (key, model) = self.mapping.model_key.as_ref().zip(self.model.as_ref())?;
        Some(form_urlencoded::Serializer::new(String::new()).append_pair(key, model).finish())
    }

    async fn dial(
        &self,
        DialRequest { mode, purpose, trace }: DialRequest,
    ) -> Result<UpstreamSocket, DisconnectReason> {
        let authority = &self.endpoint.authority;
        if !self.mapping.modes.contains_key(&mode) {
            return Err(DisconnectReason::Unreachable(format!(
                "{authority}: the dialect has no mode {}",
                mode.name()
            )));
        }
        let transport = self.endpoint.connect().await;
        let transport =
            transport.map_err(|error| DisconnectReason::Unreachable(format!("{authority}: {error}")))?;
        if self.mapping.is_http() {
            return Ok(UpstreamSocket::Http(Box::new(HttpSocket::new(self.http_target(trace), transport))));
        }
        let transport = HttpHeadStream::new(CountedStream::new(transport));
        match self.upgrade(transport, self.url(mode, Some(purpose)), trace.as_deref()).await {
            Ok((upgraded, _)) => {
                let config = *upgraded.get_config();
                let (transport, read) = upgraded.into_inner().into_parts();
                let CountedStream { stream, traffic, .. } = transport;
                let mut socket = WebSocket::new(stream, read, Role::Client, config);
                socket.traffic = traffic;
                Ok(UpstreamSocket::WebSocket(Box::new(socket)))
            }
            Err(WsError::Http(response)) => Err(DisconnectReason::HttpRejected(response.status().as_u16())),
            Err(error) => Err(DisconnectReason::Unreachable(format!("{authority}: {error}"))),
        }
    }

    /// Performs the WebSocket handshake on an open connection.
    async fn upgrade<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        transport: T,
        url: String,
        trace: Option<&TraceContext>,
    ) -> Result<(WebSocketStream<T>, Response), WsError> {
        let limits = websocket_config(self.mapping.message_max_bytes);
        client_async_with_config(self.request(url, trace)?, transport, Some(limits)).await
    }

    /// Builds the upgrade request. In a trace, each request is a span of its own.
    fn request(&self, url: String, trace: Option<&TraceContext>) -> Result<Request, WsError> {
        let mut request = url.into_client_request()?;
        request.headers_mut().extend(self.user_agent());
        request.headers_mut().extend(self.token.clone());
        request.headers_mut().extend(trace.into_iter().flat_map(trace_headers));
        Ok(request)
    }

    /// The header that names voxbridge and the dialect. By it, another voxbridge knows the protocol.
    fn user_agent(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = format!("voxbridge/{} {}", env!("CARGO_PKG_VERSION"), self.mapping.name);
        HeaderValue::from_str(&value).ok().map(|value| (USER_AGENT, value))
    }

    /// Where the requests of a lane go.
    fn http_target(&self, trace: Option<Arc<TraceContext>>) -> HttpTarget {
        let base = self.url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        let base = base.unwrap_or_default();
        HttpTarget {
            endpoint: self.endpoint.clone(),
            base: base.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned(),
            token: self.token.clone(),
            model: self.model.clone(),
            voice: self.voice.clone().or_else(|| self.mapping.default_voice.clone()),
            speak_path: self.mapping.request_path(SendName::Speak).map(str::to_owned),
            message_max_bytes: self.mapping.message_max_bytes,
            trace,
        }
    }

    /// Connects and requests the status page, if there is one. Without it, a connection suffices.
    async fn probe(&self) -> Result<Option<WorkerReport>, String> {
        let mut transport = self.endpoint.connect().await.map_err(|error| error.to_string())?;
        let Some(page) = &self.status_page else { return Ok(None) };
        page.ask(&mut transport, &self.endpoint.authority, self.token.as_ref()).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::spelling::Library;

    /// Probes a server that sends `answer` on every connection.
    async fn probe_against(
        answer: &'static str,
        status_path: Option<&str>,
    ) -> Result<Option<WorkerReport>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let mapping = Library::embedded().unwrap().upstream("minicpm-o").unwrap();
        let dialer = Dialer::new(&url, None, status_path, mapping).unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut received = Vec::new();
            // Reads to the end. The read fails with a reset if the client did not read the whole answer.
            let _ = stream.read_to_end(&mut received).await;
            String::from_utf8(received).unwrap()
        };
        let (result, received) = tokio::join!(dialer.probe(), serve);
        let path = status_path.unwrap_or("/status");
        assert!(received.starts_with(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:")), "{received}");
        result
    }

    #[test]
    fn url_names_the_model_or_has_the_query_of_its_purpose() {
        let mapping = Library::embedded().unwrap().upstream("openai-realtime").unwrap();
        for (given, mark) in [("ws://127.0.0.1:1", "/v1/realtime?"), ("ws://127.0.0.1:1/a?b=c", "/a?b=c&")] {
            let dialer = Dialer::new(given, None, None, mapping.clone()).unwrap();
            let target = dialer.with_model("gpt realtime").unwrap().target;
            let url = |purpose| target.url(Mode::Chat, purpose);
            let expected = |query: &str| format!("ws://127.0.0.1:1{mark}{query}");
            assert_eq!(url(Some(LanePurpose::Answer)), expected("model=gpt+realtime"));
            assert_eq!(url(Some(LanePurpose::Transcribe)), expected("intent=transcription"));
            assert_eq!(url(None), expected("model=gpt+realtime"));
        }
    }

    #[tokio::test]
    async fn probe_requests_status_path_and_fails_only_on_server_error() {
        let status_path = Some("/status?full=1");
        assert_eq!(probe_against("", None).await, Ok(None), "a connection suffices");
        for (answer, words) in [
            ("HTTP/1.1 200 OK\r\n\r\n", ""),
            ("HTTP/1.0 404 Not Found\r\n\r\n", ""),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP 503"),
            ("SSH-2.0-OpenSSH_9.6\r\n", "is not HTTP"),
            ("", "/status?full=1: "),
        ] {
            let problem = probe_against(answer, status_path).await.err().unwrap_or_default();
            assert!(problem.contains(words) && problem.is_empty() == words.is_empty(), "{answer}: {problem}");
        }
    }

    #[tokio::test]
    async fn probe_reads_a_gateways_report_of_its_workers() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n{\"gateway_healthy\":true,\"total_workers\":8,\"idle_workers\":3,\
            \"queue_length\":0,\"running_tasks\":[]}";
        let report = WorkerReport { total: 8, idle: 3, queued: 0 };
        for status_path in [None, Some("/status")] {
            assert_eq!(probe_against(answer, status_path).await, Ok(Some(report)));
        }
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n35\r\n{\"total_workers\":8,\"idle_workers\":3,\
            \"queue_length\":0,\r\n13\r\n\"running_tasks\":[]}\r\n0\r\n\r\n";
        assert_eq!(probe_against(chunked, None).await, Ok(Some(report)));
    }

    #[tokio::test]
    async fn probe_reads_a_long_report_of_workers() {
        let tasks = vec!["{\"task_id\":\"0123456789\",\"kind\":\"duplex\"}"; 4000].join(",");
        let report = "HTTP/1.1 200 OK\r\n\r\n{\"running_tasks\":[TASKS],\"total_workers\":8,\"idle_workers\":3,\"queue_length\":0}";
        let answer = report.replace("TASKS", &tasks).leak();
        assert_eq!(
            probe_against(answer, None).await,
            Ok(Some(WorkerReport { total: 8, idle: 3, queued: 0 }))
        );
    }

    #[tokio::test]
    async fn page_that_has_answered_must_answer_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let dialer_of = |dialect| {
            let mapping = Library::embedded().unwrap().upstream(dialect).unwrap();
            Dialer::new(&url, None, None, mapping).unwrap()
        };
        let (server, gateway) = (dialer_of("llama-cpp-omni"), dialer_of("minicpm-o"));
        for (dialer, answer, words) in [
            (&server, "", None),
            (&server, "HTTP/1.1 503 Service Unavailable\r\n\r\n", None),
            (&server, "HTTP/1.1 200 OK\r\n\r\n", None),
            (&server, "HTTP/1.1 503 Service Unavailable\r\n\r\n", Some("/health returned HTTP 503")),
            (&server, "", Some("/health: ")),
            (&server, "HTTP/1.1 200 OK\r\n\r\n", None),
            (&gateway, "HTTP/1.1 200 OK\r\n\r\n", None),
            (&gateway, "HTTP/1.1 502 Bad Gateway\r\n\r\n", None),
            (&gateway, "", Some("/status: ")),
        ] {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
                // The read fails with a reset if the client did not read the whole answer.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            };
            let (result, ()) = tokio::join!(dialer.probe(), serve);
            let problem = result.err();
            assert!(problem.is_some() == words.is_some(), "{answer}: {problem:?}");
            assert!(problem.unwrap_or_default().contains(words.unwrap_or_default()), "{answer}");
        }
    }

    #[tokio::test]
    async fn probe_of_closed_port_fails() {
        let mapping = Library::embedded().unwrap().upstream("minicpm-o").unwrap();
        let address = TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap();
        let dialer = Dialer::new(&format!("ws://{address}"), None, None, mapping).unwrap();
        assert_eq!(dialer.probe().await, Err("connection refused".to_owned()));
    }
}
