//! Byte streams to servers named by URLs: name resolution, TCP, and TLS for secure schemes. Used for upstream
//! connections and by the client commands; WebSocket is not handled here.
//!
//! To change here: addresses, dialling and certificates. Not here: which server is chosen and when it is tried again
//! ([`crate::server`]).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use ::ring::digest::{Context as Digest, SHA256};
use hyper::Uri;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;

pub(crate) mod http_request;
pub(crate) mod probe;
pub(crate) mod turn;
mod untrusted;

use self::turn::{TURN_BYTES, wake_after_others};
pub(crate) use self::untrusted::UntrustedCertificate;

/// Addresses of `localhost`, in the order of trying.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Any bidirectional byte stream.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Byte counters of a stream. During a long message, they show whether the peer is alive.
#[derive(Debug, Default)]
pub struct Traffic {
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
}

impl Traffic {
    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Bytes accepted by the transport so far.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.written.load(Relaxed)
    }
}

/// A stream that counts its bytes, for HTTP and handshakes. A [WebSocket](crate::server) counts its own.
///
/// The HTTP library reads as long as there are bytes, even bytes without a meaning such as interim responses. So the stream
/// gives at most [`TURN_BYTES`] before other tasks get their turn.
#[derive(Debug)]
pub struct CountedStream<S> {
    pub(crate) stream: S,
    pub(crate) traffic: Arc<Traffic>,
    /// Bytes read since the reader last waited.
    given_bytes: usize,
}

impl<S> CountedStream<S> {
    /// Wraps a stream and counts its bytes from now on.
    pub(crate) fn new(stream: S) -> Self {
        Self::counting(stream, Arc::default())
    }

    /// Wraps a stream and adds its bytes to a counter.
    pub(crate) const fn counting(stream: S, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic, given_bytes: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.given_bytes >= TURN_BYTES {
            self.given_bytes = 0;
            wake_after_others(cx);
            return Poll::Pending;
        }
        let most = buf.remaining().min(TURN_BYTES - self.given_bytes);
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let length = part.filled().len();
        buf.advance(length);
        self.traffic.read.fetch_add(length as u64, Relaxed);
        self.given_bytes = if read.is_ready() { self.given_bytes + length } else { 0 };
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(bytes)) = written {
            self.traffic.written.fetch_add(bytes as u64, Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Server address with its TLS settings.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// `ws` or `wss`.
    pub(crate) scheme: &'static str,
    /// Host and port as spelled in the URL.
    pub(crate) authority: String,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    /// Digest of the pinned and client certificates; empty without TLS.
    credentials: Vec<u8>,
}

impl Endpoint {
    /// The server of a `ws://` or `wss://` URL. Trusts the system's authorities and the certificates in the
    /// PEM file `ca`.
    ///
    /// # Errors
    /// A message about the URL or the file.
    pub(crate) fn from_uri(uri: &Uri, ca: Option<&Path>) -> Result<Self, String> {
        let secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            Some(_) => return Err("the scheme must be ws or wss".to_owned()),
            None => return Err("the scheme is missing; use ws:// or wss://".to_owned()),
        };
        let authority = uri.authority().ok_or("the host is missing")?;
        if authority.as_str().contains('@') {
            return Err("credentials in a URL are not accepted, because URLs end up in logs".to_owned());
        }
        // hyper takes any digits for a port, and none for a port that is no number of 16 bits.
        let port = authority.port_u16();
        if port == Some(0) || port.is_none() && authority.as_str().len() > authority.host().len() {
            return Err("the port must be 1 to 65535".to_owned());
        }
        let (tls, credentials) = secure.then(|| tls_connector(ca, None)).transpose()?.unzip();
        Ok(Self {
            scheme: if secure { "wss" } else { "ws" },
            authority: authority.to_string(),
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: port.unwrap_or(if secure { 443 } else { 80 }),
            tls,
            credentials: credentials.unwrap_or_default(),
        })
    }

    /// Adds a client certificate for servers that ask for one. Has no effect without TLS.
    ///
    /// # Errors
    /// A message about the files.
    pub(crate) fn with_identity(
        mut self,
        ca: Option<&Path>,
        identity: &ClientIdentity,
    ) -> Result<Self, String> {
        if self.tls.is_some() {
            let (tls, credentials) = tls_connector(ca, Some(identity))?;
            (self.tls, self.credentials) = (Some(tls), credentials);
        }
        Ok(self)
    }

    /// True if the other endpoint uses the same pinned and client certificates.
    pub(crate) fn has_same_credentials(&self, other: &Self) -> bool {
        self.credentials == other.credentials
    }

    /// Connects; the caller limits the time.
    ///
    /// # Errors
    /// The system's or TLS's error, without OS error codes.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Transport>> {
        let tcp = self.connect_tcp(&self.resolve().await?).await?;
        self.connect_tls(tcp).await.map_err(describe_tls_error)
    }

    /// Connects to an address of the host, if all of them are good.
    ///
    /// # Errors
    /// As [`Endpoint::connect`]; or an address that is not good, which is not named, because the host's owner chose it.
    #[cfg(feature = "mcp")]
    pub(crate) async fn connect_if(
        &self,
        is_good: impl Fn(IpAddr) -> bool,
    ) -> io::Result<Box<dyn Transport>> {
        let addresses = self.resolve().await?;
        if !addresses.iter().all(|address| is_good(address.ip())) {
            let problem = "the host has an address of an inner network";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        let tcp = self.connect_tcp(&addresses).await?;
        self.connect_tls(tcp).await.map_err(describe_tls_error)
    }

    /// True if the endpoint uses TLS.
    pub(crate) const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// The IP address, if the URL has one instead of a name.
    pub(crate) fn literal_address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Step 1 of [`Endpoint::connect`]: resolves the host name to addresses, in the system's order. No name server is asked for
    /// `localhost`, which a machine without a file of hosts does not know: RFC 6761, section 6.3.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.eq_ignore_ascii_case("localhost") {
            return Ok(LOOPBACK.map(|address| (address, self.port).into()).to_vec());
        }
        Ok(lookup_host((self.host.as_str(), self.port)).await?.collect())
    }

    /// Step 2: connects to the first address that accepts.
    ///
    /// # Errors
    /// The system's error for the last address, without OS error codes.
    pub(crate) async fn connect_tcp(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let tcp = TcpStream::connect(addresses).await.map_err(without_os_code)?;
        // Small frames must not wait for more data (Nagle).
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }

    /// Step 3: the TLS handshake, for secure URLs.
    ///
    /// # Errors
    /// The unchanged error; a TLS failure holds a [`rustls::Error`].
    pub(crate) async fn connect_tls(&self, tcp: TcpStream) -> io::Result<Box<dyn Transport>> {
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, tcp).await?))
    }
}

/// Client certificate with its private key.
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientIdentity {
    /// Reads the certificate chain and the key from two PEM files.
    ///
    /// # Errors
    /// A message that names the file but never quotes it.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, String> {
        let private_key = PrivateKeyDer::from_pem_file(key);
        let private_key =
            private_key.map_err(|_| format!("{}: no private key (PEM) could be read", key.display()))?;
        Ok(Self { chain: read_certificates(cert)?, key: private_key })
    }
}

/// Removes the OS code, as in "(os error 111)".
fn without_os_code(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => io::Error::new(error.kind(), "connection refused"),
        _ => error,
    }
}

/// Describes a TLS error; for an untrusted certificate, adds how to trust it.
fn describe_tls_error(error: io::Error) -> io::Error {
    let certificate = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let Some(rustls::Error::InvalidCertificate(problem)) = certificate {
        return io::Error::other(UntrustedCertificate::new(problem));
    }
    io::Error::other(format!("TLS: {error}"))
}

/// Builds the connector, and the digest of its certificates.
fn tls_connector(
    ca: Option<&Path>,
    identity: Option<&ClientIdentity>,
) -> Result<(TlsConnector, Vec<u8>), String> {
    let pinned = ca.map_or_else(|| Ok(Vec::new()), read_certificates)?;
    let credentials = credentials_digest(&pinned, identity);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(pinned.iter().cloned());
    if roots.is_empty() && pinned.is_empty() {
        return Err(
            "this system has no trusted certificates; name a file with the server's certificate by --ca or --upstream-ca"
                .to_owned(),
        );
    }
    let provider = Arc::new(ring::default_provider());
    let authorities = match roots.is_empty() {
        true => None,
        false => Some(
            WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone())
                .build()
                .map_err(|error| error.to_string())?,
        ),
    };
    let schemes = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedOrAuthorityVerifier {
            pinned,
            authorities,
            schemes,
        }));
    let config = match identity {
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(|error| format!("client_cert and client_key do not match ({error})"))?,
        None => builder.with_no_client_auth(),
    };
    Ok((TlsConnector::from(Arc::new(config)), credentials))
}

/// Digest of certificates and key, to detect changed files without keeping their contents.
fn credentials_digest(pinned: &[CertificateDer<'_>], identity: Option<&ClientIdentity>) -> Vec<u8> {
    let mut context = Digest::new(&SHA256);
    let chain = identity.map(|identity| identity.chain.as_slice()).unwrap_or_default();
    for list in [pinned, chain] {
        context.update(&list.len().to_be_bytes());
        for certificate in list {
            context.update(&certificate.len().to_be_bytes());
            context.update(certificate);
        }
    }
    context.update(identity.map(|identity| identity.key.secret_der()).unwrap_or_default());
    context.finish().as_ref().to_vec()
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// A message with the path.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let file_error = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| file_error(&error))?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(|error| file_error(&error))?;
    if certificates.is_empty() { Err(file_error(&"no certificate found")) } else { Ok(certificates) }
}

/// Certificate verifier: trusts pinned certificates byte for byte, and otherwise certificates of known
/// authorities.
///
/// The MiniCPM-o gateway creates a self-signed certificate that is its own authority
/// (mappings/notes/minicpm-o.md#connect). Chain validation rejects such a server certificate, so it is pinned instead.
#[derive(Debug)]
struct PinnedOrAuthorityVerifier {
    pinned: Vec<CertificateDer<'static>>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    schemes: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedOrAuthorityVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pinned.iter().any(|pinned| pinned == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.authorities {
            Some(verifier) => {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(rustls::CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn localhost_is_this_machine_whatever_name_servers_say() {
        for url in ["ws://localhost:8006/", "ws://LocalHost:8006/"] {
            let endpoint = Endpoint::from_uri(&url.parse().unwrap(), None).unwrap();
            let addresses = endpoint.resolve().await.unwrap();
            assert_eq!(addresses, ["127.0.0.1:8006", "[::1]:8006"].map(|address| address.parse().unwrap()));
        }
    }
}
