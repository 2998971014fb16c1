//! TLS for clients and operators: certificates, client certificates, and reloading them while connections live.
//!
//! [`ReloadableAcceptor::refresh`] reads changed files as a whole, for future handshakes; files that cannot be used
//! change nothing. Open connections keep their certificate. TLS 1.2 and 1.3 by rustls and ring; the caller bounds the
//! time of a handshake. [`names`] reads certificates, and [`self_signed`] makes one.

pub mod names;
pub mod self_signed;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use ring::digest::{Context, SHA256};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// `[tls]` of the configuration, also used for other listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificate chain (PEM), the server's own certificate first.
    pub cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
    /// Certificate authorities (PEM) that sign client certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether clients must show a certificate; required by default where `client_ca` is set.
    pub client_certs: Option<ClientCerts>,
}

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientCerts {
    /// A certificate is optional, but a wrong one is rejected.
    Optional,
    /// Clients without a certificate are rejected.
    Required,
}

impl TlsConfig {
    /// True if nothing is configured: then there is no TLS.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The configured files; `None` without TLS.
    ///
    /// # Errors
    /// Names the key that is missing.
    pub fn resolve(&self) -> Result<Option<TlsFiles>, String> {
        let (cert, key) = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => (cert.clone(), key.clone()),
            _ if self.is_empty() => return Ok(None),
            (None, _) => return Err("`cert` is missing; TLS needs a certificate and its `key`".to_owned()),
            (Some(_), None) => return Err("`key` is missing, the private key of `cert`".to_owned()),
        };
        if self.client_ca.is_none() && self.client_certs.is_some() {
            return Err("`client_certs` needs a `client_ca`, the authorities that sign them".to_owned());
        }
        let is_client_cert_optional = self.client_certs == Some(ClientCerts::Optional);
        Ok(Some(TlsFiles { cert, key, client_ca: self.client_ca.clone(), is_client_cert_optional }))
    }
}

/// The files of a TLS configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain (PEM).
    pub cert: PathBuf,
    /// Private key (PEM).
    pub key: PathBuf,
    /// Authorities of client certificates (PEM); without them clients are not asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// Clients may show no certificate.
    pub is_client_cert_optional: bool,
}

/// Accepts TLS handshakes with the current certificate. Clones share it.
#[derive(Clone)]
pub struct ReloadableAcceptor(Arc<RwLock<LoadedTls>>);

#[derive(Clone)]
struct LoadedTls {
    files: TlsFiles,
    acceptor: TlsAcceptor,
    expires_since_epoch: Option<Duration>,
    /// Digest of the files when they were last read, valid or not.
    content_digest: Vec<u8>,
}

impl ReloadableAcceptor {
    /// Loads these files.
    ///
    /// # Errors
    /// Names the invalid file and the problem, never the contents.
    pub fn load(files: TlsFiles) -> Result<Self, String> {
        let contents = PemContents::read(&files)?;
        Ok(Self(Arc::new(RwLock::new(contents.build(files)?))))
    }

    /// Takes the files of another acceptor, for future handshakes.
    pub fn replace_with(&self, other: &Self) {
        let loaded = other.loaded();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    /// Reads the files again and returns whether they changed. Blocks on file access.
    ///
    /// # Errors
    /// Says what is wrong with the new contents, once per change; the old certificate stays in use.
    pub fn refresh(&self) -> Result<bool, String> {
        let LoadedTls { files, content_digest, .. } = self.loaded();
        // A file that is being replaced may be missing for a moment; the next refresh finds it.
        let Ok(contents) = PemContents::read(&files) else { return Ok(false) };
        let digest = contents.digest();
        if digest == content_digest {
            return Ok(false);
        }
        let loaded = contents.build(files);
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        current.content_digest = digest;
        *current = loaded?;
        Ok(true)
    }

    /// Expiry of the certificate since 1970; `None` if it cannot be read.
    pub fn certificate_expiry(&self) -> Option<Duration> {
        self.loaded().expires_since_epoch
    }

    /// Accepts a handshake. A client that speaks plain HTTP gets an HTTP error. The caller bounds the time.
    ///
    /// # Errors
    /// Fails with the client's or the system's error.
    pub async fn accept<S>(&self, mut stream: TcpStream) -> io::Result<TlsStream<S>>
    where
        S: From<TcpStream> + AsyncRead + AsyncWrite + Unpin,
    {
        // Waits for the first byte before it allocates anything.
        let mut first_byte = [0];
        stream.peek(&mut first_byte).await?;
        if first_byte[0].is_ascii_uppercase() {
            stream.write_all(PLAIN_HTTP_RESPONSE).await?;
            stream.shutdown().await?;
            return Err(io::Error::other("client speaks plain HTTP to a TLS port"));
        }
        let acceptor = self.loaded().acceptor;
        acceptor.accept(stream.into()).await
    }

    fn loaded(&self) -> LoadedTls {
        // It is replaced as a whole, whatever panicked.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sent to clients without TLS. Every TLS record begins with a byte below 0x20, every HTTP request with a capital
/// letter.
const PLAIN_HTTP_RESPONSE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 115\r\n\
Connection: close\r\n\r\n{\"error\": {\"message\": \"This port speaks TLS; use wss://\", \
\"type\": \"invalid_request_error\", \"code\": \"tls_required\"}}";

/// The contents of the files, read once, so that the digest covers what is used.
struct PemContents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl PemContents {
    fn read(files: &TlsFiles) -> Result<Self, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let client_ca = files.client_ca.as_deref().map(read).transpose()?;
        Ok(Self { cert: read(&files.cert)?, key: read(&files.key)?, client_ca })
    }

    fn digest(&self) -> Vec<u8> {
        let mut context = Context::new(&SHA256);
        for part in [&self.cert, &self.key].into_iter().chain(&self.client_ca) {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        context.finish().as_ref().to_vec()
    }

    fn build(&self, files: TlsFiles) -> Result<LoadedTls, String> {
        let chain = parse_certificates(&self.cert).map_err(prefix_path(&files.cert))?;
        let expires_since_epoch = chain.first().and_then(|own| names::expiry_since_epoch(own));
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| prefix_path(&files.key)("no private key (PEM) found".to_owned()))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match self.verifier(&files)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let pair = format!("{} and {}", files.cert.display(), files.key.display());
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("{pair}: no pair of certificate and key ({error})"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(LoadedTls { files, acceptor, expires_since_epoch, content_digest: self.digest() })
    }

    fn verifier(&self, files: &TlsFiles) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        let (Some(pem), Some(path)) = (&self.client_ca, &files.client_ca) else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for authority in parse_certificates(pem).map_err(prefix_path(path))? {
            roots.add(authority).map_err(|error| prefix_path(path)(error.to_string()))?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        let builder = if files.is_client_cert_optional { builder.allow_unauthenticated() } else { builder };
        builder.build().map(Some).map_err(|error| prefix_path(path)(error.to_string()))
    }
}

fn prefix_path(path: &Path) -> impl Fn(String) -> String {
    move |problem| format!("{}: {problem}", path.display())
}

fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err("no certificate (PEM) found".to_owned()),
        Err(_) => Err("a certificate is not readable as PEM".to_owned()),
    }
}
