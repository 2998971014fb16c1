//! Opening a WebSocket to an upstream, in the mode a lane wants.
//!
//! A [`tower::Service`] from [`DialRequest`] to socket; [`crate::server::upstream_pool`] chooses among several.

use std::{
    io,
    path::Path,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use hyper::{
    Uri,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error as WsError,
        client::IntoClientRequest as _,
        handshake::client::{Request, Response},
        protocol::Role,
    },
};

use super::probe::Probe;
use crate::server::websocket::{
    WebSocket,
    http_head::HttpHeadStream,
    outbox::{MeteredWebSocket, websocket_config},
};
use crate::{
    event::{DisconnectReason, Mode},
    mapping::UpstreamMapping,
    net::{ClientIdentity, CountedStream, Endpoint, Transport},
    secret::{Secret, redacted_url},
    telemetry::context::{TRACEPARENT, TRACESTATE, TraceContext},
};

/// A WebSocket to an upstream.
pub type UpstreamSocket = MeteredWebSocket<Box<dyn Transport>>;

/// What a lane asks for.
#[derive(Debug, Clone)]
pub struct DialRequest {
    /// The mode it wants.
    pub mode: Mode,
    /// Whose request it is part of; the upstream is told.
    pub trace: Option<Arc<TraceContext>>,
}

/// The way to an upstream.
#[derive(Clone)]
pub struct Dialer {
    target: Arc<DialTarget>,
}

#[derive(Clone)]
struct DialTarget {
    endpoint: Endpoint,
    /// The URL up to the mode's value.
    url: String,
    mapping: Arc<UpstreamMapping>,
    /// A probe asks this path.
    status_path: Option<String>,
    /// What it is shown with every request. Its value cannot be printed.
    token: Option<(HeaderName, HeaderValue)>,
}

impl Dialer {
    /// The way to `url` (`ws://` or `wss://`). The dialect's path stands in for one that is missing, the lane's mode for
    /// one that is there; certificates are checked against the system's authorities and those in the PEM file `ca`. A probe
    /// asks `status_path`; without one it only connects.
    ///
    /// # Errors
    /// What is wrong with the URL or the file, in words.
    pub fn new(
        url: &str,
        ca: Option<&Path>,
        status_path: Option<&str>,
        mapping: Arc<UpstreamMapping>,
    ) -> Result<Self, String> {
        let invalid_url = |problem: String| {
            format!(
                "{:?}: {problem}; an upstream looks like ws://HOST:8006{}",
                redacted_url(url),
                mapping.path
            )
        };
        let uri: Uri = url.parse().map_err(|error| invalid_url(format!("it is no URL ({error})")))?;
        let endpoint = Endpoint::from_uri(&uri, ca).map_err(invalid_url)?;
        let path = if uri.path() == "/" { &mapping.path } else { uri.path() };
        let mut query = form_urlencoded::Serializer::new(String::new());
        let url_pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        query.extend_pairs(url_pairs.filter(|(name, _)| *name != mapping.mode_key));
        let mut query = query.finish();
        if !query.is_empty() {
            query.push('&');
        }
        let url = format!("{}://{}{path}?{query}{}=", endpoint.scheme, endpoint.authority, mapping.mode_key);
        let status_path = status_path.map(str::to_owned);
        Ok(Self { target: Arc::new(DialTarget { endpoint, url, mapping, status_path, token: None }) })
    }

    /// The same way, with a token in this header, or as `Authorization: Bearer`.
    ///
    /// # Errors
    /// What cannot be sent so, in words without the token.
    pub fn with_token(self, header: Option<&str>, token: &Secret) -> Result<Self, String> {
        let name = header.map_or(Ok(AUTHORIZATION), str::parse::<HeaderName>);
        let name = name.map_err(|_| format!("{:?} is no name of a header", header.unwrap_or_default()))?;
        let text = token.expose();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("its token is empty, or has letters that cannot go into a header".to_owned());
        }
        let value = if header.is_some() { text.to_owned() } else { format!("Bearer {text}") };
        let mut value = HeaderValue::try_from(value).map_err(|_| "its token cannot go into a header")?;
        value.set_sensitive(true);
        Ok(Self { target: Arc::new(DialTarget { token: Some((name, value)), ..(*self.target).clone() }) })
    }

    /// The same way, showing a certificate to who asks for one; `ca` as in [`Dialer::new`].
    ///
    /// # Errors
    /// What is wrong with the files, in words.
    pub fn with_identity(self, ca: Option<&Path>, identity: &ClientIdentity) -> Result<Self, String> {
        let endpoint = self.target.endpoint.clone().with_identity(ca, identity)?;
        Ok(Self { target: Arc::new(DialTarget { endpoint, ..(*self.target).clone() }) })
    }

    /// Host and port, as the URL spells them.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.target.endpoint.authority
    }

    /// The server, to be reached step by step.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.target.endpoint
    }

    /// The URL that is asked for in a mode; without one where the dialect does not have it.
    pub(crate) fn url(&self, mode: Mode) -> String {
        let value = self.target.mapping.modes.get(&mode).map_or("", String::as_str);
        format!("{}{value}", self.target.url)
    }

    /// The handshake alone, on a connection that is up, and the server's answer to it.
    ///
    /// # Errors
    /// The library's: [`WsError::Http`] is an answer, too.
    pub(crate) async fn upgrade(
        &self,
        transport: Box<dyn Transport>,
        mode: Mode,
    ) -> Result<(WebSocketStream<Box<dyn Transport>>, Response), WsError> {
        let value = self.target.mapping.modes.get(&mode).map_or("", String::as_str);
        self.target.upgrade(transport, value, None).await
    }

    /// Whether another one leads to the same place.
    pub(crate) fn has_same_url(&self, other: &Self) -> bool {
        self.target.url == other.target.url
    }

    /// Whether another one goes there in the same way: asks, trusts and shows the same.
    pub(crate) fn has_same_settings(&self, other: &Self) -> bool {
        let (this, other) = (&self.target, &other.target);
        this.status_path == other.status_path
            && this.token == other.token
            && this.endpoint.has_same_credentials(&other.endpoint)
    }

    /// The mode a URL names, if it names one.
    #[must_use]
    pub fn mode_in_url(url: &str, mapping: &UpstreamMapping) -> Option<String> {
        let (_, query) = url.split_once('?')?;
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| *name == mapping.mode_key).map(|(_, mode)| mode.into_owned())
    }
}

impl tower::Service<DialRequest> for Dialer {
    type Response = UpstreamSocket;
    type Error = DisconnectReason;
    type Future = BoxFuture<'static, Result<UpstreamSocket, DisconnectReason>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: DialRequest) -> Self::Future {
        let target = self.target.clone();
        Box::pin(async move { target.dial(request).await })
    }
}

impl Probe for Dialer {
    fn probe(&self) -> BoxFuture<'static, Result<(), String>> {
        let target = self.target.clone();
        Box::pin(async move { target.probe().await })
    }
}

impl DialTarget {
    async fn dial(
        &self,
        DialRequest { mode, trace }: DialRequest,
    ) -> Result<UpstreamSocket, DisconnectReason> {
        let authority = &self.endpoint.authority;
        let Some(mode) = self.mapping.modes.get(&mode) else {
            return Err(DisconnectReason::Unreachable(format!(
                "{authority}: its dialect has no mode {mode:?}"
            )));
        };
        let transport = self.endpoint.connect().await;
        let transport =
            transport.map_err(|error| DisconnectReason::Unreachable(format!("{authority}: {error}")))?;
        let (transport, traffic) = CountedStream::new(transport);
        let transport = HttpHeadStream::new(Box::new(transport) as Box<dyn Transport>);
        match self.upgrade(transport, mode, trace.as_deref()).await {
            Ok((upgraded, _)) => {
                let config = *upgraded.get_config();
                let (transport, read) = upgraded.into_inner().into_parts();
                Ok(MeteredWebSocket {
                    stream: WebSocket::new(transport, read, Role::Client, config),
                    traffic,
                })
            }
            Err(WsError::Http(response)) => Err(DisconnectReason::HttpRejected(response.status().as_u16())),
            Err(error) => Err(DisconnectReason::Unreachable(format!("{authority}: {error}"))),
        }
    }

    /// The handshake on a connection that is up, and the server's answer to it.
    async fn upgrade<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        transport: T,
        mode: &str,
        trace: Option<&TraceContext>,
    ) -> Result<(WebSocketStream<T>, Response), WsError> {
        let limits = websocket_config(self.mapping.message_max_bytes);
        client_async_with_config(self.request(mode, trace)?, transport, Some(limits)).await
    }

    /// The upgrade request; in a trace each is a span of its own.
    fn request(&self, mode: &str, trace: Option<&TraceContext>) -> Result<Request, WsError> {
        let mut request = format!("{}{mode}", self.url).into_client_request()?;
        request.headers_mut().extend(self.token.clone());
        let Some(trace) = trace else { return Ok(request) };
        let parent = trace.child_traceparent(&mut fastrand::Rng::new());
        let state = trace.state.as_deref().map(|state| (TRACESTATE, state));
        for (name, value) in [(TRACEPARENT, parent.as_str())].into_iter().chain(state) {
            // Both are printable by construction; what is not would be left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                request.headers_mut().insert(name, value);
            }
        }
        Ok(request)
    }

    /// Connects, and asks the status path where there is one: anything but an error of the server's is an answer.
    async fn probe(&self) -> Result<(), String> {
        let mut transport = self.endpoint.connect().await.map_err(|error| error.to_string())?;
        let Some(path) = &self.status_path else { return Ok(()) };
        let status = fetch_status(&mut transport, path, &self.endpoint.authority, self.token.as_ref()).await;
        match status.map_err(|error| format!("{path}: {error}"))? {
            100..500 => Ok(()),
            status => Err(format!("{path} answers with HTTP {status}")),
        }
    }
}

/// The status of a plain HTTP request.
async fn fetch_status(
    transport: &mut Box<dyn Transport>,
    path: &str,
    host: &str,
    token: Option<&(HeaderName, HeaderValue)>,
) -> io::Result<u16> {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n").into_bytes();
    if let Some((name, value)) = token {
        request.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    request.extend_from_slice(b"\r\n");
    transport.write_all(&request).await?;
    transport.flush().await?;
    // All that matters stands at its beginning: "HTTP/1.1 200".
    let mut head = [0; 12];
    transport.read_exact(&mut head).await?;
    let status = head.strip_prefix(b"HTTP/1.").and_then(|rest| std::str::from_utf8(rest.get(2..)?).ok());
    status.and_then(|status| status.parse().ok()).ok_or_else(|| io::Error::other("it does not speak HTTP"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::mapping::Library;

    /// What a probe says of a server that answers every connection with this.
    async fn probe_against(answer: &'static str, status_path: Option<&str>) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let mapping = Library::embedded().unwrap().upstream("minicpm-o").unwrap();
        let dialer = Dialer::new(&url, None, status_path, mapping).unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut received = Vec::new();
            // To its end, which is a reset when the rest of the answer is not read.
            let _ = stream.read_to_end(&mut received).await;
            String::from_utf8(received).unwrap()
        };
        let (result, received) = tokio::join!(dialer.probe(), serve);
        let path = status_path.map(|path| format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:"));
        assert!(received.starts_with(path.as_deref().unwrap_or_default()), "{received}");
        result
    }

    #[tokio::test]
    async fn probe_requests_status_path_and_fails_only_on_server_error() {
        let status_path = Some("/status?full=1");
        assert_eq!(probe_against("", None).await, Ok(()));
        for (answer, words) in [
            ("HTTP/1.1 200 OK\r\n\r\n", ""),
            ("HTTP/1.0 404 Not Found\r\n\r\n", ""),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP 503"),
            ("SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP"),
            ("", "/status?full=1: "),
        ] {
            let problem = probe_against(answer, status_path).await.err().unwrap_or_default();
            assert!(problem.contains(words) && problem.is_empty() == words.is_empty(), "{answer}: {problem}");
        }
    }

    #[tokio::test]
    async fn probe_of_closed_port_fails() {
        let mapping = Library::embedded().unwrap().upstream("minicpm-o").unwrap();
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let dialer = Dialer::new(&format!("ws://{address}"), None, None, mapping).unwrap();
        assert_eq!(dialer.probe().await, Err("connection refused".to_owned()));
    }
}
