//! Opening a WebSocket to an upstream: name, TCP, TLS, upgrade.
//!
//! A [`tower::Service`] from mode to socket, so that what chooses among upstreams can be put in front of it.

use std::{
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use hyper::Uri;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error as WsError, protocol::WebSocketConfig},
};

use crate::{
    event::{Mode, Why},
    mapping::UpstreamMapping,
};

/// Read buffer of an upstream socket: 16 KiB cost least (field notes libraries.md), the default is 128 KiB a socket.
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// A byte stream, encrypted or not.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A WebSocket to an upstream.
pub type UpstreamSocket = WebSocketStream<Box<dyn Transport>>;

/// Where an upstream is.
#[derive(Clone)]
pub struct Dialer {
    target: Arc<Target>,
}

struct Target {
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    /// Path and query without the mode.
    url: String,
    mapping: Arc<UpstreamMapping>,
}

/// Why a URL leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Not a URL of a WebSocket.
    #[error("{url:?} is not a WebSocket URL ({problem}); it looks like ws://HOST:PORT/v1/realtime")]
    Url {
        /// As given.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The certificate file.
    #[error("{}: {problem}", path.display())]
    Certificates {
        /// As given.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl Dialer {
    /// The way to `url` (`ws://` or `wss://`); a path and a mode in it are replaced by the dialect's when absent. Certificates
    /// are checked against the system's authorities and those in the PEM file `ca`.
    ///
    /// # Errors
    /// [`TargetError`] for a URL or a certificate file that cannot be used.
    pub fn new(url: &str, ca: Option<&PathBuf>, mapping: Arc<UpstreamMapping>) -> Result<Self, TargetError> {
        let bad = |problem: &str| TargetError::Url { url: url.to_owned(), problem: problem.to_owned() };
        let uri: Uri = url.parse().map_err(|error| bad(&format!("{error}")))?;
        let secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(bad("it must begin with ws:// or wss://")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("it names no host"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(bad("credentials in a URL end up in logs"));
        }
        let path = if uri.path() == "/" { &mapping.path } else { uri.path() };
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            if name != mapping.mode_key {
                query.append_pair(&name, &value);
            }
        }
        let (scheme, query) = (if secure { "wss" } else { "ws" }, query.finish());
        let target = Target {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            tls: secure.then(|| connector(ca)).transpose()?,
            url: format!("{scheme}://{authority}{path}?{query}{}", if query.is_empty() { "" } else { "&" }),
            mapping,
        };
        Ok(Self { target: Arc::new(target) })
    }

    /// The mode a URL names, if it names one.
    #[must_use]
    pub fn mode_of(url: &str, mapping: &UpstreamMapping) -> Option<String> {
        let (_, query) = url.split_once('?')?;
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| *name == mapping.mode_key).map(|(_, mode)| mode.into_owned())
    }
}

impl tower::Service<Mode> for Dialer {
    type Response = UpstreamSocket;
    type Error = Why;
    type Future = BoxFuture<'static, Result<UpstreamSocket, Why>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Why>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mode: Mode) -> Self::Future {
        let target = self.target.clone();
        Box::pin(async move { target.dial(mode).await })
    }
}

impl Target {
    async fn dial(&self, mode: Mode) -> Result<UpstreamSocket, Why> {
        let Some(mode) = self.mapping.modes.get(&mode) else {
            return Err(Why::Unreachable(format!("the dialect {} has no mode {mode:?}", self.mapping.name)));
        };
        let place = format!("{}:{}", self.host, self.port);
        let unreachable = |error: &dyn std::fmt::Display| Why::Unreachable(format!("{place}: {error}"));
        let tcp =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| unreachable(&error))?;
        tcp.set_nodelay(true).map_err(|error| unreachable(&error))?;
        let transport: Box<dyn Transport> = match &self.tls {
            None => Box::new(tcp),
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| unreachable(&error))?;
                let stream = tls.connect(name, tcp).await;
                Box::new(stream.map_err(|error| unreachable(&format!("TLS: {error}")))?)
            }
        };
        let url = format!("{}{}={mode}", self.url, self.mapping.mode_key);
        match client_async_with_config(url, transport, Some(self.limits())).await {
            Ok((socket, _)) => Ok(socket),
            Err(WsError::Http(response)) => Err(Why::Refused(response.status().as_u16())),
            Err(error) => Err(unreachable(&error)),
        }
    }

    fn limits(&self) -> WebSocketConfig {
        let max = self.mapping.message_max_bytes;
        WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(max)
            .max_message_size(Some(max))
            .max_frame_size(Some(max))
    }
}

fn connector(ca: Option<&PathBuf>) -> Result<TlsConnector, TargetError> {
    let mut roots = RootCertStore::empty();
    // A system without authorities still has its uses: with a `ca` of one's own.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        let bad = |problem: String| TargetError::Certificates { path: path.clone(), problem };
        let before = roots.len();
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        if roots.len() == before {
            return Err(bad("no certificate in it".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TargetError::Certificates {
            path: ca.cloned().unwrap_or_default(),
            problem: error.to_string(),
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
