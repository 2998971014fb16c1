//! vLLM-Omni as an upstream: the server's own package without a model.

use serde_json::{Value, json};
use voxbridge::config::{Config, UpstreamConfig};
use voxbridge_test_support::{
    bench::{Bench, Client, ClientFrame, assert_pairs_closed, audio, events, recording, speech_dir},
    servers::{PublicServer, recorded_samples},
    tcp_proxy::TcpProxy,
};

fn start(args: &[&str]) -> Option<PublicServer> {
    PublicServer::start("vllm-omni", args)
}

fn upstream_at(address: std::net::SocketAddr) -> UpstreamConfig {
    let url = format!("ws://{address}/v1/realtime");
    UpstreamConfig { url, dialect: "vllm-omni".into(), ..UpstreamConfig::with_default_dialect() }
}

async fn bench_with(upstream: UpstreamConfig) -> Bench {
    let voice = speech_dir().join("goforward_16k.wav");
    let config = Config {
        profile: Some("conversation".into()),
        upstream: vec![upstream],
        voices: [("default".to_owned(), voice)].into(),
        ..Config::default()
    };
    Bench::with_config(Default::default(), config).await
}

fn is(kind: &'static str) -> impl Fn(&ClientFrame) -> bool {
    move |frame| frame.kind() == kind
}

fn finals(frames: &[ClientFrame]) -> Vec<String> {
    events(frames, "transcript.final")
        .iter()
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn conversation_has_turns_with_their_words_and_audio() {
    let Some(server) = start(&[]) else { return };
    let bench = bench_with(upstream_at(server.address())).await;
    let mut client = bench.client("model=x").await;
    for _ in 0..2 {
        client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    }
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert_eq!(finals(&frames), ["Part 1. Part 2. Part 3.", "Part 1. Part 2. Part 3."]);
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
    let levels: Vec<i16> = audio(&frames).chunks(24_000).map(|second| second[100]).collect();
    let level = |unit: i32| (f64::from(unit) * 0.05 * 32767.0) as i16;
    assert_eq!(levels.len(), 6, "{levels:?}");
    assert!(
        levels.iter().zip([1, 2, 3, 1, 2, 3]).all(|(got, unit)| (got - level(unit)).abs() <= 2),
        "{levels:?}"
    );
    let record = server.record().await;
    assert_eq!(record.len(), 1);
    assert_eq!(record[0]["silence_units"], 0, "the server added silence of its own to what the user said");
}
