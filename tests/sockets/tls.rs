//! A `wss://` upstream: the gateway's own certificate is trusted when it is named, and nothing else is.

use std::path::PathBuf;

use crate::bench::{Bench, quick, scratch, simulate};
use crate::certs::{acceptor, encrypted, own};
use serde_json::json;
use voxbridge::config::{Config, UpstreamConfig};

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
    let shown = own("localhost");
    let port = encrypted(upstream, acceptor(&shown)).await.port();
    let bench = bridge(port, Some(pem("own.pem", &shown.0))).await;
    let mut client = bench.client("model=m").await;
    client.command(json!({"type": "tts.speak", "text": "All is well."})).await;
    client.event("tts.speaking_end").await;
}

#[tokio::test]
async fn another_certificate_is_not_and_the_client_hears_why() {
    let (upstream, _running, _) = simulate("127.0.0.1:0", quick(), None).await;
    let port = encrypted(upstream, acceptor(&own("localhost"))).await.port();
    for ca in [None, Some(pem("other.pem", &own("localhost").0))] {
        let bench = bridge(port, ca).await;
        let mut client = bench.client("model=m").await;
        client.command(json!({"type": "tts.speak", "text": "Nobody hears this."})).await;
        let error = client.event("error").await;
        assert_eq!(error["code"], "worker_unavailable", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("localhost:{port}")) && message.contains("`ca` file"), "{message}");
    }
}
