//! Dials one upstream in the mode of a lane: opens a WebSocket, or checks that a server of HTTP requests is there.
//!
//! [`Dialer`] is a [`tower::Service`] from [`DialRequest`] to socket; [`crate::server::upstream_pool`] chooses among
//! several.

mod target;

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
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WsError, handshake::client::Response},
};

use self::target::DialTarget;
use super::{
    http_page::{HttpPage, fetch_page},
    http_socket::HttpSocket,
    places::Capacity,
    probe::{Probe, WorkerReport},
    status_page::StatusPage,
};
use crate::{
    net::{ClientIdentity, Endpoint, Transport},
    secret::{Secret, redacted_url},
    server::websocket::WebSocket,
    spelling::UpstreamMapping,
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
        // The parser drops it.
        if url.contains('#') {
            return Err(invalid_url("a URL of a server has no part behind `#`".to_owned()));
        }
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

#[cfg(test)]
mod tests;
