//! Conversations through voxbridge.

use super::*;

pub(super) use voxbridge_test_support::bench::is;

pub(super) fn upstream_at(address: SocketAddr) -> UpstreamConfig {
    let url = format!("ws://{address}/v1/realtime");
    UpstreamConfig { url, dialect: "vllm-omni".into(), ..UpstreamConfig::with_default_dialect() }
}

pub(super) fn config_for(address: SocketAddr) -> Config {
    Config {
        profile: Some("conversation".into()),
        upstream: vec![upstream_at(address)],
        voices: [("default".to_owned(), speech_dir().join("goforward_16k.wav"))].into(),
        ..Config::default()
    }
}

pub(super) async fn bench_at(address: SocketAddr) -> Bench {
    Bench::with_config(Default::default(), config_for(address)).await
}

pub(super) fn finals(frames: &[ClientFrame]) -> Vec<String> {
    let texts = events(frames, "transcript.final");
    texts.iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

/// Everything that the package's model heard, without the samples that stay in the server's buffer.
async fn heard(server: &PackageServer) -> Vec<i16> {
    let record = server.record().await;
    assert_eq!(record.len(), 1, "one session");
    assert_eq!(record[0]["silence_units"], 0, "the server added silence of its own");
    recorded_samples(&record[0])
}

fn package(servers: Vec<VllmServer>) -> Option<PackageServer> {
    servers.into_iter().find_map(|server| match server {
        VllmServer::Package(_, server) => Some(server),
        VllmServer::Simulated(..) => None,
    })
}

#[tokio::test]
async fn conversation_has_turns_with_their_words_and_audio() {
    for server in servers(Setup::default()).await {
        let bench = bench_at(server.address()).await;
        let mut client = bench.client("model=x").await;
        for _ in 0..2 {
            client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        }
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").is_empty(), "{}: {frames:?}", server.name());
        assert_eq!(finals(&frames).len(), 2, "{}: {frames:?}", server.name());
        if let VllmServer::Package(_, server) = server {
            assert_eq!(finals(&frames), ["Part 1. Part 2. Part 3."; 2]);
            let seconds: Vec<i16> = audio(&frames).chunks(24_000).map(|second| second[100]).collect();
            let levels = [1, 2, 3, 1, 2, 3].map(|unit| (f64::from(unit) * 0.05 * 32767.0) as i16);
            assert_eq!(seconds, levels);
            heard(&server).await;
        }
    }
}

#[tokio::test]
async fn interruption_cancels_the_answer_and_nothing_of_it_is_heard_afterwards() {
    for server in servers(Setup { turn_units: 60, ..Setup::default() }).await {
        let bench = bench_at(server.address()).await;
        let mut client = bench.client("model=x").await;
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        client.stream_until(&[], is("audio")).await;
        client.send_json(json!({"type": "tts.cancel"})).await;
        let frames = client.stream_until(&[], is("tts.speaking_end")).await;
        assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], true, "{}", server.name());
        // The model goes on to listen, and answers the next question.
        let before = client.received.len();
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        let between = &client.received[before..];
        assert!(audio(between).is_empty(), "{}: {between:?}", server.name());
        assert_pairs_closed(&client.close().await);
    }
}

/// A question in which every millisecond is different, so that lost or repeated audio shows.
fn ramp(seconds: usize) -> Vec<i16> {
    (0..seconds * 16_000).map(|at| (at / 16 % 2_000) as i16 * 8 + 400).collect()
}

/// Speaks for some seconds while the connection to the server is cut once; returns what the server heard of it.
async fn speak_through_a_cut(server: &PackageServer, said: &[i16]) -> Vec<i16> {
    let proxy = TcpProxy::to(server.address()).await;
    let bench = bench_at(proxy.address()).await;
    let mut client = bench.client("model=x").await;
    let (first, second) = said.split_at(said.len() / 2);
    stream(&mut client, first).await;
    proxy.cut();
    stream(&mut client, second).await;
    client.stream_until(&[], is("tts.speaking_start")).await;
    assert!(events(&client.close().await, "error").is_empty());
    heard(server).await
}

async fn stream(client: &mut Client, samples: &[i16]) {
    let mut ticks = interval(Duration::from_millis(20));
    for frame in samples.chunks(320) {
        ticks.tick().await;
        client.send_audio(&bytes(frame), 640).await;
    }
}

#[tokio::test]
async fn cut_connection_loses_at_most_one_append_and_repeats_nothing() {
    let Some(server) = package(servers(Setup::default()).await) else { return };
    let said = ramp(8);
    let heard = speak_through_a_cut(&server, &said).await;
    let voiced: Vec<i16> = heard.into_iter().filter(|sample| *sample != 0).collect();
    let missing = said.len().abs_diff(voiced.len());
    assert!(voiced.len() <= said.len() && missing <= 16_000, "{missing} samples");
    // In the order in which they were said: what is left out is one stretch.
    let same_start = said.iter().zip(&voiced).take_while(|(a, b)| a == b).count();
    let same_end = said.iter().rev().zip(voiced.iter().rev()).take_while(|(a, b)| a == b).count();
    assert!(same_start + same_end >= voiced.len(), "{same_start} and {same_end} of {}", voiced.len());
}

#[tokio::test]
async fn conversation_goes_on_after_a_cut() {
    for server in servers(Setup::default()).await {
        let proxy = TcpProxy::to(server.address()).await;
        let bench = bench_at(proxy.address()).await;
        let mut client = bench.client("model=x").await;
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        proxy.cut();
        let frames = client.stream_until(&[], is("tts.speaking_end")).await;
        assert_eq!(
            events(frames, "tts.speaking_end")[0]["cancelled"],
            false,
            "{}: {frames:?}",
            server.name()
        );
        let frames = client.close().await;
        assert!(events(&frames, "error").is_empty(), "{}: {frames:?}", server.name());
        let words = finals(&frames);
        let whole = ["Part 1. Part 2. Part 3.", "I heard 3.0 seconds of speech."];
        assert!(whole.iter().any(|whole| words == [*whole]) || words[0].starts_with("I heard"), "{words:?}");
    }
}

#[tokio::test]
async fn refused_appends_are_sent_again_in_order() {
    let Some(server) = package(servers(Setup::default()).await) else { return };
    let bench = bench_at(server.address()).await;
    let mut client = bench.client("model=x").await;
    let said = ramp(4);
    let (first, second) = said.split_at(20_000);
    stream(&mut client, first).await;
    server.script(json!({"refuse_appends": 2})).await;
    stream(&mut client, second).await;
    client.stream_until(&[], is("tts.speaking_start")).await;
    client.close().await;
    let voiced: Vec<i16> = heard(&server).await.into_iter().filter(|sample| *sample != 0).collect();
    assert!(voiced == said, "{} of {} samples", voiced.len(), said.len());
}

#[tokio::test]
async fn client_waits_while_the_server_has_no_place() {
    for server in servers(Setup { max_sessions: 1, ..Setup::default() }).await {
        let bench = bench_at(server.address()).await;
        let mut first = bench.client("model=x").await;
        first.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        let mut second = bench.client("model=x").await;
        second.send_audio(&[0; 640], 640).await;
        assert_eq!(second.wait_for_event("session.hold").await["queue_position"], 1, "{}", server.name());
        first.close().await;
        second.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        let frames = second.close().await;
        assert!(events(&frames, "error").is_empty(), "{}: {frames:?}", server.name());
        assert_eq!(finals(&frames).len(), 1, "{}: {frames:?}", server.name());
    }
}
