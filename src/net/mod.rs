//! A byte stream to a server named by a URL: name, TCP, and TLS where the URL says so. Shared by the bridge's way to its
//! upstreams and by the client commands; knows no WebSocket.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
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

pub(crate) mod probe;

/// Anything bytes go through.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// How many bytes have gone through a stream. What waits for a long message sees by it whether the peer lives.
#[derive(Debug, Default)]
pub struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
}

impl Traffic {
    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Bytes the transport has taken so far.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.written.load(Relaxed)
    }
}

/// A stream whose bytes are counted.
#[derive(Debug)]
pub struct CountedStream<S> {
    pub(crate) stream: S,
    traffic: Arc<Traffic>,
}

impl<S> CountedStream<S> {
    /// Counts the bytes of a stream from now on.
    pub(crate) fn new(stream: S) -> (Self, Arc<Traffic>) {
        let traffic = Arc::<Traffic>::default();
        (Self { stream, traffic: traffic.clone() }, traffic)
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.traffic.written.fetch_add(bytes as u64, Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.traffic.read.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

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
    /// Of the certificates from files by which it is trusted and is shown who we are; without any of them empty.
    credentials: Vec<u8>,
}

impl Endpoint {
    /// The server of a `ws://` or `wss://` URL, trusting this system's authorities and those in the PEM file `ca`.
    ///
    /// # Errors
    /// What is wrong with the URL or the file, in words.
    pub(crate) fn from_uri(uri: &Uri, ca: Option<&Path>) -> Result<Self, String> {
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
        let (tls, credentials) = secure.then(|| tls_connector(ca, None)).transpose()?.unzip();
        Ok(Self {
            scheme: if secure { "wss" } else { "ws" },
            authority: authority.to_string(),
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            tls,
            credentials: credentials.unwrap_or_default(),
        })
    }

    /// The same, showing a certificate to a server that asks for one; without TLS nobody asks.
    ///
    /// # Errors
    /// What is wrong with the files, in words.
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

    /// Whether another one is trusted by the same certificates and shown the same.
    pub(crate) fn has_same_credentials(&self, other: &Self) -> bool {
        self.credentials == other.credentials
    }

    /// Connects; the caller bounds the time.
    ///
    /// # Errors
    /// The system's or TLS's, without codes.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Transport>> {
        let tcp = self.connect_tcp(&self.resolve().await?).await?;
        self.connect_tls(tcp).await.map_err(describe_tls_error)
    }

    /// Whether it is spoken to through TLS.
    pub(crate) const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// The address, where the URL spells one and no name.
    pub(crate) fn literal_address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The first step of [`Endpoint::connect`]: the addresses of its name, in the system's order.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((self.host.as_str(), self.port)).await?.collect())
    }

    /// The second step: a connection to the first of the addresses that takes it.
    ///
    /// # Errors
    /// The system's for the last of them, without codes.
    pub(crate) async fn connect_tcp(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let tcp = TcpStream::connect(addresses).await.map_err(without_os_code)?;
        // Small frames must not wait for one another.
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }

    /// The third step: TLS where the URL says so.
    ///
    /// # Errors
    /// As they come; what TLS has to say is a [`rustls::Error`] inside.
    pub(crate) async fn connect_tls(&self, tcp: TcpStream) -> io::Result<Box<dyn Transport>> {
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, tcp).await?))
    }
}

/// The certificate that servers are shown which ask for one, and its key.
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientIdentity {
    /// From two PEM files.
    ///
    /// # Errors
    /// Which file is wrong; never what is in it.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, String> {
        let private_key = PrivateKeyDer::from_pem_file(key);
        let private_key = private_key.map_err(|_| {
            format!("{}: there is no private key (PEM) that can be read in it", key.display())
        })?;
        Ok(Self { chain: read_certificates(cert)?, key: private_key })
    }
}

/// Without "(os error 111)".
fn without_os_code(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => io::Error::new(error.kind(), "connection refused"),
        _ => error,
    }
}

/// With the way out when it is the certificate.
fn describe_tls_error(error: io::Error) -> io::Error {
    let certificate = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let Some(rustls::Error::InvalidCertificate(problem)) = certificate {
        return io::Error::other(format!(
            "its certificate is not trusted ({problem:?}); to trust it, name it in a `ca` file"
        ));
    }
    io::Error::other(format!("TLS: {error}"))
}

/// And what the files held that it is made of.
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
            "this system has no trusted certificates; name the server's own with a `ca` file".to_owned()
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
            .map_err(|error| format!("client_cert and client_key are no pair ({error})"))?,
        None => builder.with_no_client_auth(),
    };
    Ok((TlsConnector::from(Arc::new(config)), credentials))
}

/// To tell what files hold from what they held, without keeping it.
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

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let file_error = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| file_error(&error))?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(|error| file_error(&error))?;
    if certificates.is_empty() { Err(file_error(&"there is no certificate in it")) } else { Ok(certificates) }
}

/// Trusts a server whose very certificate was given, and otherwise asks the authorities.
///
/// The MiniCPM-o gateway makes itself a certificate that is its own authority (field notes §1.1), which no chain of
/// trust allows for a server; knowing it byte for byte is as good.
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
