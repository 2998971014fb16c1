//! TLS clients with and without a certificate, and replacement of the server's certificate during sessions.

use tokio_rustls::client::TlsStream;
use voxbridge::{server::certificate_watch::watch_certificates, telemetry::metrics::scrape::ServerSnapshot};
use voxbridge_test_support::certs::{Authority, connector};

use super::*;

async fn connect_tls(server: &AccessServer, with: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    timeout(PATIENCE, with.connect(name, server.tcp().await)).await.expect("no TLS handshake")
}

fn write(dir: &Path, pair: &(String, String)) {
    fs::write(dir.join("cert.pem"), &pair.0).unwrap();
    fs::write(dir.join("key.pem"), &pair.1).unwrap();
}

const TLS_CONFIG: &str = "[tls]\ncert = \"DIR/cert.pem\"\nkey = \"DIR/key.pem\"\n";

async fn start_tls_server(name: &str, toml: &str, pair: &(String, String), ca: &Authority) -> AccessServer {
    let files = [("cert.pem", pair.0.as_str()), ("key.pem", pair.1.as_str()), ("ca.pem", &ca.as_ref().pem())];
    AccessServer::start(name, toml, &files).await
}

#[tokio::test]
async fn session_works_over_tls() {
    let ca = authority("ca");
    let toml = format!("{TLS_CONFIG}[limits]\nhandshake_timeout_ms = 400\n");
    let server = start_tls_server("tls", &toml, &signed(&ca, "localhost"), &ca).await;
    let stream = connect_tls(&server, &connector(&ca, None)).await.unwrap();
    let mut served = connect(stream, MACAW, "").await;
    assert_eq!(served.status, 101, "{}", served.body);
    served.assert_alive().await;

    let stream = connect_tls(&server, &connector(&ca, None)).await.unwrap();
    let page = send_request(stream, b"GET /v1/listen HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(page.status == 426 && page.body.contains("wss://<host>/v1/listen"), "{}", page.body);

    let plain = send_request(server.tcp().await, b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!((plain.status, plain.code().as_str()), (400, "tls_required"));
    assert!(connect_tls(&server, &connector(&authority("other"), None)).await.is_err());

    // A silent connection, a half-sent handshake, garbage, and a client that stalls after the handshake.
    assert_disconnected(server.tcp().await).await;
    for begin in [&b"\x16\x03\x01\x02\x00\x01"[..], b"\x16\x03\x01\x00\x05hello", b"\x80\x80\x80"] {
        let mut stalls = server.tcp().await;
        stalls.write_all(begin).await.unwrap();
        assert_disconnected(stalls).await;
    }
    let mut behind = connect_tls(&server, &connector(&ca, None)).await.unwrap();
    behind.write_all(b"GET /v1/real").await.unwrap();
    let _ = timeout(PATIENCE, behind.read_to_end(&mut Vec::new())).await.expect("still open");
    served.assert_alive().await;
    served.close().await;
}

#[tokio::test]
async fn client_certificate_identifies_client() {
    let (ca, clients) = (authority("ca"), authority("clients"));
    let keys = "[[key]]\nname = \"robots\"\ncertificate_name = \"robots.example.com\"\nsessions_max = 1\n";
    let toml = format!("{TLS_CONFIG}client_ca = \"DIR/clients.pem\"\n[access]\nkeys = \"DIR/keys.toml\"\n");
    let pair = signed(&ca, "localhost");
    let files = [
        ("cert.pem", pair.0.as_str()),
        ("key.pem", pair.1.as_str()),
        ("clients.pem", &clients.as_ref().pem()),
        ("keys.toml", keys),
    ];
    let server = AccessServer::start("mtls", &toml, &files).await;
    let answer = async |shown: Option<(String, String)>| {
        let mut stream = connect_tls(&server, &connector(&ca, shown.as_ref())).await.ok()?;
        // With TLS 1.3 a client sees the rejection of its certificate only at its first read.
        stream.write_all(b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut read = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("no answer").ok()?;
        Some(String::from_utf8(read).unwrap()).filter(|read| !read.is_empty())
    };
    assert_eq!(answer(None).await, None, "no certificate");
    assert_eq!(
        answer(Some(signed(&authority("clients"), "robots.example.com"))).await,
        None,
        "certificate of another authority"
    );
    assert!(answer(Some(signed(&clients, "guests"))).await.is_some_and(|answer| answer.contains(" 404 ")));

    let robots = connector(&ca, Some(&signed(&clients, "robots.example.com")));
    let mut served = connect(connect_tls(&server, &robots).await.unwrap(), MACAW, "").await;
    assert_eq!(served.status, 101, "{}", served.body);
    served.assert_alive().await;
    let second = connect(connect_tls(&server, &robots).await.unwrap(), MACAW, "").await;
    assert_eq!(second.status, 429, "the key's quota applies");
    let guests = connector(&ca, Some(&signed(&clients, "guests")));
    assert_eq!(connect(connect_tls(&server, &guests).await.unwrap(), MACAW, "").await.status, 401);

    server.reload(&toml.replace("[access]", "client_certs = \"optional\"\n[access]")).unwrap();
    let anonymous = connect(connect_tls(&server, &connector(&ca, None)).await.unwrap(), MACAW, "").await;
    assert_eq!(anonymous.status, 401, "without a certificate the client is anonymous");
    assert!(answer(Some(signed(&authority("clients"), "robots.example.com"))).await.is_none());
}

#[tokio::test]
async fn certificate_is_replaced_during_session() {
    let (old, new) = (authority("old"), authority("new"));
    let server = start_tls_server("renewed", TLS_CONFIG, &signed(&old, "localhost"), &old).await;
    let stream = connect_tls(&server, &connector(&old, None)).await.unwrap();
    let mut live = connect(stream, MACAW, "").await;
    let accepts = async |ca: &Authority| connect_tls(&server, &connector(ca, None)).await.is_ok();

    // Files are replaced one after the other, as renewal tools do; the server notices by polling.
    let acceptor = server.current().get().tls.clone().unwrap();
    let expires = acceptor.certificate_expiry().unwrap();
    assert!(expires.as_secs() > 1_800_000_000, "{expires:?}");
    write(&server.dir, &signed(&new, "localhost"));
    let metrics = Metrics::new(ServerSnapshot::default);
    let looks = watch_certificates(server.current(), None, metrics.clone(), Duration::from_millis(20));
    let watching = tokio::spawn(looks);
    timeout(PATIENCE, async { while !accepts(&new).await {} })
        .await
        .expect("the new certificate is not used");
    assert!(!accepts(&old).await);
    // The reload is reported after the certificate is in use.
    let expiry = || {
        let text = metrics.render();
        let name = "voxbridge_certificate_expiry_timestamp_seconds{listener=\"clients\"} ";
        text.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok())
    };
    wait_until("the new expiry is reported", || expiry() == Some(expires.as_secs_f64())).await;
    watching.abort();

    // A mismatched pair changes nothing and is reported once, by polling and by a reload.
    fs::write(server.dir.join("key.pem"), signed(&new, "localhost").1).unwrap();
    assert!(acceptor.refresh().unwrap_err().contains("no pair of certificate and key"));
    assert_eq!(acceptor.refresh(), Ok(false), "reported once");
    assert!(server.reload(TLS_CONFIG).unwrap_err().contains("tls: "));
    fs::remove_file(server.dir.join("key.pem")).unwrap();
    assert_eq!(acceptor.refresh(), Ok(false), "the second file may still be missing");
    assert!(accepts(&new).await);

    write(&server.dir, &signed(&old, "localhost"));
    server.reload(TLS_CONFIG).unwrap();
    assert!(accepts(&old).await && !accepts(&new).await);
    live.assert_alive().await;
}
