//! A byte stream to a server named by a URL: name, TCP, and TLS where the URL says so. Shared by the bridge's way to its
//! upstreams and by the client commands; knows no WebSocket.

use std::{io, path::Path, sync::Arc};

use hyper::Uri;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// Anything bytes go through.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A server that can be connected to.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// `ws` or `wss`.
    pub(crate) scheme: &'static str,
    /// Host and port as the URL spells them.
    pub(crate) authority: String,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
}

impl Endpoint {
    /// The server of a `ws://` or `wss://` URL, trusting this system's authorities and those in the PEM file `ca`.
    ///
    /// # Errors
    /// What is wrong with the URL or the file, in words.
    pub(crate) fn of(uri: &Uri, ca: Option<&Path>) -> Result<Self, String> {
        let secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            Some(_) => return Err("the scheme is neither ws nor wss".to_owned()),
            None => return Err("it has no scheme".to_owned()),
        };
        let authority = uri.authority().ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("credentials in a URL end up in logs".to_owned());
        }
        Ok(Self {
            scheme: if secure { "wss" } else { "ws" },
            authority: authority.to_string(),
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            tls: secure.then(|| connector(ca)).transpose()?,
        })
    }

    /// Connects; the caller bounds the time.
    ///
    /// # Errors
    /// The system's or TLS's, without codes.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Transport>> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(in_words)?;
        // Small frames must not wait for one another.
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let stream =
            tls.connect(name, tcp).await.map_err(|error| io::Error::other(format!("TLS: {error}")))?;
        Ok(Box::new(stream))
    }
}

/// Without "(os error 111)".
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => io::Error::new(error.kind(), "connection refused"),
        _ => error,
    }
}

fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        let bad = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
        let before = roots.len();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
            roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
        }
        if roots.len() == before {
            return Err(bad(&"there is no certificate in it"));
        }
    }
    if roots.is_empty() {
        return Err("this system has no trusted certificates".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
