//! A `wss://` upstream: the bridge trusts a self-signed gateway certificate only if the configuration names
//! it.

use voxbridge_test_support::certs::acceptor;

use super::*;

fn write_pem(name: &str, text: &str) -> PathBuf {
    let path = scratch("tls").join(name);
    fs::write(&path, text).unwrap();
    path
}

async fn start_bridge(port: u16, ca: Option<PathBuf>) -> Bench {
    let url = format!("wss://localhost:{port}/v1/realtime");
    let upstream = UpstreamConfig { url, ca, ..UpstreamConfig::with_default_dialect() };
    let speech = include_str!("../../../mappings/profile/speech.toml");
    let mappings = scratch(&format!("tls-{port}"));
    let short_timeouts = speech.replace("retry_total_ms = 10000", "retry_total_ms = 300");
    fs::write(mappings.join("speech.toml"), short_timeouts).unwrap();
    let config = Config { upstream: vec![upstream], mappings: Some(mappings), ..Config::default() };
    Bench::of(config).await
}

#[tokio::test]
async fn named_self_signed_certificate_is_trusted() {
    let (upstream, _running, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let certificate = self_signed("localhost");
    let port = serve_tls(upstream, acceptor(&certificate)).await.port();
    let bench = start_bridge(port, Some(write_pem("own.pem", &certificate.0))).await;
    let mut client = bench.client("model=m").await;
    client.send_json(json!({"type": "tts.speak", "text": "All is well."})).await;
    client.wait_for_event("tts.speaking_end").await;
}

#[tokio::test]
async fn requests_over_http_use_tls() {
    let simulator = SimulatorConfig { http_api: Some(HttpApi::SglangOmni), ..instant_simulator() };
    let (upstream, _running, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    let certificate = self_signed("localhost");
    let port = serve_tls(upstream, acceptor(&certificate)).await.port();
    let upstream = UpstreamConfig {
        url: format!("https://localhost:{port}"),
        dialect: HttpApi::SglangOmni.dialect().into(),
        ca: Some(write_pem("https.pem", &certificate.0)),
        ..UpstreamConfig::default()
    };
    let config = Config { upstream: vec![upstream], ..Config::default() };
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=m").await;
    client.send_json(json!({"type": "tts.speak", "text": "All is well."})).await;
    client.wait_for_event("tts.speaking_end").await;
}

#[tokio::test]
async fn untrusted_certificate_is_rejected_and_its_address_is_not_shown_to_the_client() {
    let (upstream, _running, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let port = serve_tls(upstream, acceptor(&self_signed("localhost"))).await.port();
    for ca in [None, Some(write_pem("other.pem", &self_signed("localhost").0))] {
        let bench = start_bridge(port, ca).await;
        let mut client = bench.client("model=m").await;
        client.send_json(json!({"type": "tts.speak", "text": "Nobody hears this."})).await;
        let error = client.wait_for_event("error").await;
        assert_eq!(error["code"], "worker_unavailable", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("the upstream cannot be reached"), "{message}");
        assert!(!message.contains(&port.to_string()), "{message}");
    }
}
