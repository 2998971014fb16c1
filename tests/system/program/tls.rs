//! Certificates for tests, TLS clients that trust them, and `serve --tls-self-signed`.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};

use super::*;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Signs another certificate for localhost; returns it and its key (PEM).
    pub(crate) fn signed(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// A TLS client that trusts only this authority.
    pub(crate) fn connector(&self) -> TlsConnector {
        connector(self.0.der().clone())
    }
}

/// A TLS client that trusts only this certificate.
fn connector(trusted: CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// A certificate for localhost, its key (PEM), and a client that trusts its issuer.
pub(crate) fn certificate() -> (String, String, TlsConnector) {
    let authority = Authority::new();
    let (cert, key) = authority.signed();
    (cert, key, authority.connector())
}

/// Starts `serve --tls-self-signed`; returns the process, its address, and the printed path and fingerprint.
async fn serve_self_signed(state: &Path) -> (Child, String, PathBuf, String) {
    let args = ["serve", "--upstream", "ws://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tls-self-signed"];
    let mut process = voxbridge(&args).env("XDG_STATE_HOME", state).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut line = async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = line().await.trim_start_matches("listening on ").to_owned();
    let trust = line().await;
    let (path, fingerprint) =
        trust.strip_prefix("clients must trust ").and_then(|rest| rest.split_once(", SHA-256 ")).unwrap();
    (process, address, path.into(), fingerprint.to_owned())
}

#[tokio::test]
async fn self_signed_certificate_is_kept_and_trusted_by_its_file() {
    let state = scratch("self-signed");
    fs::remove_dir_all(&state).unwrap();
    let (mut first, _, path, fingerprint) = serve_self_signed(&state).await;
    let key = path.with_extension("key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600, "{key:?}");
    first.kill().await.unwrap();
    let (_second, address, same_path, same_fingerprint) = serve_self_signed(&state).await;
    assert_eq!((same_path, same_fingerprint), (path.clone(), fingerprint));

    let certificate = CertificateDer::from_pem_file(&path).unwrap();
    for name in ["localhost", "127.0.0.1", "::1"] {
        let stream = TcpStream::connect(&address).await.unwrap();
        let server_name = ServerName::try_from(name).unwrap();
        let stream = connector(certificate.clone()).connect(server_name, stream).await.unwrap();
        let request = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        assert_eq!(send_request(stream, request).await.status, 426, "{name:?}");
    }
}

#[tokio::test]
async fn self_signed_certificate_beside_a_configured_one_is_refused() {
    let dir = scratch("self-signed-conflict");
    let (certificate, key) = self_signed("localhost");
    fs::write(dir.join("cert.pem"), certificate).unwrap();
    fs::write(dir.join("key.pem"), key).unwrap();
    let file = config(&dir, "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n");
    let upstream = ["--upstream", "ws://127.0.0.1:9/v1/realtime"];
    let options = [&["serve", "--config", &file, "--tls-self-signed"], &upstream[..]].concat();
    let (code, _, error) = run(&options).await;
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("another certificate is configured"), "{error}");
}
