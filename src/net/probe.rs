//! Finds out whether a port speaks TLS or plain HTTP, after it failed to speak what its URL says.
//!
//! Each probe opens its own connection and reveals no credentials.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::{ClientConfig, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{Endpoint, PinnedOrAuthorityVerifier};

/// Sixteen zero bytes; the server's answer to the key is ignored.
const WEBSOCKET_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAA==";

impl Endpoint {
    /// True if the server speaks TLS. The caller limits the time.
    pub(crate) async fn speaks_tls(&self, addresses: &[SocketAddr]) -> bool {
        let Ok(name) = ServerName::try_from(self.host.clone()) else { return false };
        let (Some(tls), Ok(tcp)) = (connector_trusting_none(), TcpStream::connect(addresses).await) else {
            return false;
        };
        match tls.connect(name, tcp).await {
            Ok(_) => true,
            // A certificate error proves that the server speaks TLS. This verifier trusts no server.
            Err(error) => tls_error(&error).is_some_and(is_from_tls_server),
        }
    }

    /// True if the server speaks HTTP without TLS. Requests a WebSocket upgrade, because some servers answer
    /// nothing else. The caller limits the time.
    pub(crate) async fn speaks_plain_http(&self, addresses: &[SocketAddr]) -> bool {
        let request_head = async {
            let mut tcp = TcpStream::connect(addresses).await?;
            let request = format!(
                "GET / HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {WEBSOCKET_KEY}\r\n\r\n",
                self.authority
            );
            tcp.write_all(request.as_bytes()).await?;
            let mut head = [0; 5];
            tcp.read_exact(&mut head).await?;
            Ok::<_, io::Error>(&head == b"HTTP/")
        };
        request_head.await.unwrap_or(false)
    }
}

/// The TLS error inside a connection error.
pub(crate) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// True if a TLS server sent the error or its certificate caused it.
const fn is_from_tls_server(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::AlertReceived(_)
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::NoCertificatesPresented
    )
}

fn connector_trusting_none() -> Option<TlsConnector> {
    let provider = Arc::new(ring::default_provider());
    let schemes = provider.signature_verification_algorithms;
    let verifier = PinnedOrAuthorityVerifier { pinned: Vec::new(), authorities: None, schemes };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let config =
        config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    Some(TlsConnector::from(Arc::new(config)))
}
