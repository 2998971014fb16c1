//! Tokens and certificates for upstreams: sent to their upstream only.

use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Starts a server that rejects every connection with this text, and returns the head of the first request
/// and the client's error.
async fn captured_request(
    toml: impl Fn(u16) -> String,
    name: &str,
    files: &[(&str, &str)],
) -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let short_timeouts =
        profile_with_numbers(&format!("access-{name}-mappings"), &[("retry_total_ms", 10_000, 300)]);
    let toml = format!("mappings = {short_timeouts:?}\n{}", toml(port));
    let server = AccessServer::start(name, &toml, files).await;
    let mut client = server.connect(MACAW, "").await;
    client.send(Message::text(json!({"type": "tts.speak", "text": "Hello."}).to_string())).await;
    let (mut stream, _) =
        timeout(PATIENCE, listener.accept()).await.expect("the bridge does not connect").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(timeout(PATIENCE, stream.read_buf(&mut head)).await.expect("no request").unwrap() > 0);
    }
    stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    drop((stream, listener));
    let client_error = loop {
        let event = client.wait_for_event().await;
        if event["type"] == "error" {
            break event.to_string();
        }
    };
    (String::from_utf8(head).unwrap(), client_error)
}

#[tokio::test]
async fn upstream_token_is_sent_and_not_in_errors() {
    let files = [("token", "up-s3cret\n")];
    let plain = |port| {
        format!("[[upstream]]\nurl = \"ws://127.0.0.1:{port}/v1/realtime\"\ntoken_file = \"DIR/token\"\n")
    };
    let (head, told) = captured_request(plain, "token", &files).await;
    assert!(head.contains("\r\nauthorization: Bearer up-s3cret\r\n"), "{head}");
    assert!(!told.contains("s3cret"), "{told}");
    let named = |port| format!("{}token_header = \"X-API-Key\"\n", plain(port));
    let (head, told) = captured_request(named, "token-header", &files).await;
    assert!(head.contains("\r\nx-api-key: up-s3cret\r\n") && !head.contains("authorization"), "{head}");
    assert!(!told.contains("s3cret"), "{told}");
}

#[tokio::test]
async fn client_certificate_is_presented_upstream() {
    let (gateway, simulator, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let ca = authority("ca");
    let (own, client) = (signed(&ca, "localhost"), signed(&ca, "voxbridge"));
    let port = serve_with_client_certificates(gateway, &ca.as_ref().pem(), &own).await;
    let files = [("ca.pem", ca.as_ref().pem()), ("c.pem", client.0), ("k.pem", client.1)];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let url = format!("[[upstream]]\nurl = \"wss://localhost:{port}/v1/realtime\"\nca = \"DIR/ca.pem\"\n");
    let certificate_config = format!("{url}client_cert = \"DIR/c.pem\"\nclient_key = \"DIR/k.pem\"\n");
    let server = AccessServer::start("upstream-mtls", &certificate_config, &files).await;
    let mut served = server.connect(MACAW, "").await;
    served.send(Message::text(json!({"type": "tts.speak", "text": "All is well."}).to_string())).await;
    while !matches!(served.message().await, Some(Message::Text(text)) if text.contains("tts.speaking_end")) {}
    served.close().await;
    let problem = server.reload(&certificate_config.replace("DIR/k.pem", "DIR/c.pem")).unwrap_err();
    assert!(problem.contains("no private key") && problem.contains("c.pem"), "{problem}");
    drop(simulator);
}

/// TLS in front of a plain server. It accepts only clients with a certificate of this authority.
async fn serve_with_client_certificates(plain: SocketAddr, ca: &str, own: &(String, String)) -> u16 {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(own.0.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(own.1.as_bytes()).unwrap(),
        )
        .unwrap();
    serve_tls(plain, TlsAcceptor::from(Arc::new(config))).await.port()
}

#[test]
fn file_paths_are_relative_to_configuration() {
    let dir = scratch("access-relative");
    let toml = "[[upstream]]\nurl = \"wss://x\"\ntoken_file = \"t\"\nclient_cert = \"c\"\nclient_key = \"k\"\n\
                [access]\nkeys = \"keys.toml\"\n[tls]\ncert = \"a\"\nkey = \"b\"\nclient_ca = \"/abs\"\n";
    fs::write(dir.join("voxbridge.toml"), toml).unwrap();
    let config = Config::read(&dir.join("voxbridge.toml")).unwrap();
    let at = |name: &str| Some(dir.join(name));
    assert_eq!((&config.upstream[0].token_file, &config.upstream[0].client_key), (&at("t"), &at("k")));
    assert_eq!((&config.access.keys, &config.tls.cert), (&at("keys.toml"), &at("a")));
    assert_eq!(config.tls.client_ca, Some(PathBuf::from("/abs")));
}
