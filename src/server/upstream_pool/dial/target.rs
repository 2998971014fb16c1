//! One upstream as it is dialled: its address, and what every request to it carries.

use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue, USER_AGENT};
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

use super::{DialRequest, UpstreamSocket};
use crate::{
    net::{CountedStream, Endpoint},
    server::{
        upstream_pool::{
            http_socket::{HttpSocket, HttpTarget, trace_headers},
            probe::WorkerReport,
            status_page::StatusPage,
        },
        websocket::{WebSocket, http_head::HttpHeadStream, session_socket::websocket_config},
    },
    spelling::{UpstreamMapping, upstream::SendName},
    telemetry::context::TraceContext,
    vocabulary::{DisconnectReason, LanePurpose, Mode},
};

#[derive(Clone)]
pub(super) struct DialTarget {
    pub(super) endpoint: Endpoint,
    /// URL up to the value of the mode parameter, or the whole URL if it has no such parameter.
    pub(super) url: String,
    pub(super) mapping: Arc<UpstreamMapping>,
    /// The page that a probe asks for.
    pub(super) status_page: Option<Arc<StatusPage>>,
    /// Header sent with every request. Its value is marked sensitive and never printed.
    pub(super) token: Option<(HeaderName, HeaderValue)>,
    /// The purposes that it serves; `None` for all of its dialect.
    pub(super) serves: Option<Arc<[LanePurpose]>>,
    /// Model that requests over HTTP name, or the URL of a WebSocket.
    pub(super) model: Option<String>,
    /// Voice that requests to speak name.
    pub(super) voice: Option<String>,
}

impl DialTarget {
    /// URL for a mode and a purpose; without a value if the dialect lacks the mode.
    pub(super) fn url(&self, mode: Mode, purpose: Option<LanePurpose>) -> String {
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

    pub(super) async fn dial(
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
    pub(super) async fn upgrade<T: AsyncRead + AsyncWrite + Unpin>(
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
    pub(super) fn http_target(&self, trace: Option<Arc<TraceContext>>) -> HttpTarget {
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
    pub(super) async fn probe(&self) -> Result<Option<WorkerReport>, String> {
        let mut transport = self.endpoint.connect().await.map_err(|error| error.to_string())?;
        let Some(page) = &self.status_page else { return Ok(None) };
        page.ask(&mut transport, &self.endpoint.authority, self.token.as_ref()).await
    }
}
