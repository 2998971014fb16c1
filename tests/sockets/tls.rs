//! A `wss://` upstream: the gateway's own certificate is trusted when it is named, and nothing else is.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use crate::bench::{Bench, quick, scratch, simulate};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use voxbridge::config::{Config, UpstreamConfig};

/// A certificate as the gateway makes one for itself: its own authority (`openssl req -x509`).
fn certificate(name: &str) -> (String, TlsAcceptor) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    (certificate.pem(), TlsAcceptor::from(Arc::new(config)))
}

/// TLS in front of a server without it.
async fn encrypted(plain: SocketAddr, acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust us hangs up: that is what some of these tests are about.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut upstream = TcpStream::connect(plain).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut upstream).await;
            });
        }
    });
    address
}

fn pem(name: &str, text: &str) -> PathBuf {
    let path = scratch("tls").join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn bridge(port: u16, ca: Option<PathBuf>) -> Bench {
    let url = format!("wss://localhost:{port}/v1/realtime");
    let upstream = UpstreamConfig { url, ca, ..UpstreamConfig::of_dialect() };
    let speech = include_str!("../../mappings/profile/speech.toml");
    let mappings = scratch(&format!("tls-{port}"));
    let impatient = speech.replace("retry_total_ms = 10000", "retry_total_ms = 300");
    std::fs::write(mappings.join("speech.toml"), impatient).unwrap();
    let config = Config { upstream: vec![upstream], mappings: Some(mappings), ..Config::default() };
    Bench::with(quick(), config).await
}

#[tokio::test]
async fn the_gateways_own_certificate_is_trusted_when_it_is_named() {
    let (upstream, _running, _) = simulate("127.0.0.1:0", quick(), None).await;
    let (own, acceptor) = certificate("localhost");
    let port = encrypted(upstream, acceptor).await.port();
    let bench = bridge(port, Some(pem("own.pem", &own))).await;
    let mut client = bench.client("model=m").await;
    client.command(json!({"type": "tts.speak", "text": "All is well."})).await;
    client.event("tts.speaking_end").await;
}

#[tokio::test]
async fn another_certificate_is_not_and_the_client_hears_why() {
    let (upstream, _running, _) = simulate("127.0.0.1:0", quick(), None).await;
    let (_, acceptor) = certificate("localhost");
    let port = encrypted(upstream, acceptor).await.port();
    for ca in [None, Some(pem("other.pem", &certificate("localhost").0))] {
        let bench = bridge(port, ca).await;
        let mut client = bench.client("model=m").await;
        client.command(json!({"type": "tts.speak", "text": "Nobody hears this."})).await;
        let error = client.event("error").await;
        assert_eq!(error["code"], "worker_unavailable", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("localhost:{port}")) && message.contains("`ca` file"), "{message}");
    }
}
