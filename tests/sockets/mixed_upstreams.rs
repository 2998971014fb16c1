//! Upstreams of several dialects behind one address, and upstreams that serve only some purposes.

use std::time::Duration;

use voxbridge::{
    config::{Config, UpstreamConfig},
    event::LanePurpose,
    simulator::{SimDialect, SimTiming, SimulatorConfig, socket::RecordedInput},
};
use voxbridge_test_support::bench::{
    Bench, ClientFrame, assert_pairs_closed, audio, conversation_profile_with, events, recording,
    start_simulator, upstream_of,
};

fn simulator(dialect: SimDialect) -> SimulatorConfig {
    let timing = SimTiming { listen_step: Duration::from_millis(2), ..SimTiming::default() };
    SimulatorConfig { dialect, timing, record: true, ..SimulatorConfig::default() }
}

fn ends_speech(frame: &ClientFrame) -> bool {
    frame.kind() == "tts.speaking_end"
}

#[tokio::test]
async fn user_of_a_conversation_is_transcribed_by_an_upstream_of_another_dialect() {
    let legacy = SimDialect::Legacy { follows_document: false };
    let (talking, _talking, _) = start_simulator("127.0.0.1:0", simulator(legacy), None).await;
    let listening_upstream = simulator(SimDialect::Current);
    let (listening, _listening, recorder) = start_simulator("127.0.0.1:0", listening_upstream, None).await;
    let talking =
        UpstreamConfig { serves: Some(vec![LanePurpose::Converse]), ..upstream_of(legacy, talking) };
    let listening = UpstreamConfig {
        serves: Some(vec![LanePurpose::Transcribe]),
        ..upstream_of(SimDialect::Current, listening)
    };
    let mappings = conversation_profile_with(
        "mixed-transcribe",
        &[("transcribe_user = false", "transcribe_user = true ")],
    );
    let config = Config {
        profile: Some("conversation".into()),
        upstream: vec![talking, listening],
        mappings: Some(mappings),
        ..Config::default()
    };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut client = bench.client("model=x").await;
    client.stream_until(&recording("goforward"), ends_speech).await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert!(!audio(&frames).is_empty() && events(&frames, "error").is_empty(), "{frames:?}");
    let transcripts = events(&frames, "transcript.final");
    let of = |speaker: &str| transcripts.iter().filter(|event| event["speaker"] == speaker).count();
    assert_eq!((of("user"), of("assistant")), (1, 1), "{transcripts:?}");
    let received = recorder.all();
    let asked = received.iter().filter(|input| matches!(input, RecordedInput::AsrAudio(..))).count();
    assert_eq!(asked, 1, "{received:?}");
    assert!(!received.iter().any(|input| matches!(input, RecordedInput::DuplexOpened(..))), "{received:?}");
}

#[tokio::test]
async fn conversation_moves_to_an_upstream_of_another_dialect_when_its_own_is_lost() {
    let legacy = SimDialect::Legacy { follows_document: false };
    let (first, mut first_server, _) = start_simulator("127.0.0.1:0", simulator(legacy), None).await;
    let (second, _second, recorder) =
        start_simulator("127.0.0.1:0", simulator(SimDialect::Current), None).await;
    let upstream = vec![upstream_of(legacy, first), upstream_of(SimDialect::Current, second)];
    let config = Config { profile: Some("conversation".into()), upstream, ..Config::default() };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut client = bench.client("model=x").await;
    let question = recording("goforward");
    client.stream_until(&question, ends_speech).await;
    assert_eq!(recorder.all().len(), 0, "the first upstream has the conversation");
    first_server.stop();
    client.stream_until(&question, ends_speech).await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert_eq!(events(&frames, "tts.speaking_end").len(), 2, "{frames:?}");
    assert!(!recorder.all().is_empty());
}

#[tokio::test]
async fn dialect_of_each_server_is_found_by_its_pages() {
    let mut servers = Vec::new();
    let mut config = Config::default();
    for dialect in [SimDialect::Current, SimDialect::SglangOmni] {
        let (address, server, _) = start_simulator("127.0.0.1:0", simulator(dialect), None).await;
        servers.push(server);
        let url = format!("ws://{address}");
        config.upstream.push(UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() });
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("ws://{closed}");
    config.upstream.push(UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() });
    config.detect_dialects().await;
    let found: Vec<&str> = config.upstream.iter().map(|upstream| &*upstream.dialect).collect();
    assert_eq!(found, ["minicpm-o", "sglang-omni", "auto"]);
    assert!(config.has_unknown_dialects());
    // Without an answer, it counts as the server that most users have.
    assert!(config.build_service().is_ok());
}
