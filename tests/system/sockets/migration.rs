//! Applications written for one server of MiniCPM-o on the other servers, over real sockets: each client speaks its own
//! protocol, and only its URL has changed.

use std::process::Command;

use super::*;

/// Samples of an answer of a scripted model.
const ANSWER_SAMPLES: usize = 62_400;

/// A server that is not the client's own, behind a bridge.
struct Server {
    name: &'static str,
    bench: Bench,
    #[expect(dead_code, reason = "stops the server")]
    running: (Option<RunningServer>, Option<PackageServer>),
}

impl Server {
    async fn simulated(name: &'static str, profile: &str, dialect: SimDialect) -> Self {
        let config = SimulatorConfig {
            dialect,
            workers: dialect.default_workers(),
            timing: SimTiming::instant(),
            ..SimulatorConfig::default()
        };
        let (address, running, _) = start_simulator("127.0.0.1:0", config, None).await;
        Self::behind_bridge(name, profile, upstream_of(dialect, address), (Some(running), None)).await
    }

    async fn package(name: &'static str, profile: &str, dialect: SimDialect, package: PackageServer) -> Self {
        let upstream = upstream_of(dialect, package.address());
        Self::behind_bridge(name, profile, upstream, (None, Some(package))).await
    }

    async fn behind_bridge(
        name: &'static str,
        profile: &str,
        upstream: UpstreamConfig,
        running: (Option<RunningServer>, Option<PackageServer>),
    ) -> Self {
        let upstream = vec![upstream];
        let voices = [("default".to_owned(), speech_dir().join("goforward_16k.wav"))].into();
        let config = Config { profile: Some(profile.into()), upstream, voices, ..Config::default() };
        Self { name, bench: Bench::with_config(SimulatorConfig::default(), config).await, running }
    }
}

/// Every server that is not a Demo, for this profile: its simulator and, where it is installed, its package without a model.
async fn other_servers(profile: &str) -> Vec<Server> {
    let (sglang, vllm) = (SimDialect::SglangOmni, SimDialect::VllmOmni);
    let mut servers = vec![
        Server::simulated("simulated SGLang-Omni", profile, sglang).await,
        Server::simulated("simulated vLLM-Omni", profile, vllm).await,
    ];
    if let Some(package) = PackageServer::sglang_omni(&[]) {
        servers.push(Server::package("SGLang-Omni's package", profile, sglang, package).await);
    }
    if let Some(package) = PackageServer::vllm_omni(&[]) {
        servers.push(Server::package("vLLM-Omni's package", profile, vllm, package).await);
    }
    servers
}

/// Every server that holds conversations with clients of other servers.
async fn conversing_servers() -> Vec<Server> {
    let legacy = SimDialect::Legacy { follows_document: false };
    let mut servers = other_servers("conversation").await;
    servers.push(Server::simulated("simulated Demo", "conversation", SimDialect::Current).await);
    servers.push(Server::simulated("simulated older Demo", "conversation", legacy).await);
    servers
}

/// Three seconds of silence, a question, and time for its answer.
fn question_seconds() -> Vec<String> {
    let mut samples = vec![0; 48_000];
    samples.extend(recording("goforward"));
    samples.resize(samples.len().next_multiple_of(16_000) + 16_000 * 6, 0);
    samples.chunks(16_000).map(float_base64).collect()
}

fn float_base64(samples: &[i16]) -> String {
    let bytes = samples.iter().flat_map(|sample| (f32::from(*sample) / 32768.0).to_le_bytes());
    STANDARD.encode(bytes.collect::<Vec<u8>>())
}

fn samples_of(base64: &str) -> Vec<i16> {
    let bytes = STANDARD.decode(base64).unwrap();
    let (samples, []) = bytes.as_chunks::<4>() else { panic!("no whole samples") };
    samples.iter().map(|bytes| (f32::from_le_bytes(*bytes) * 32768.0) as i16).collect()
}

/// Checks that an answer arrived whole and in order: the ramp of most scripted models, or the levels of vLLM-Omni's.
#[track_caller]
fn assert_whole_answer(audio: &[i16], server: &str) {
    if server == "vLLM-Omni's package" {
        let levels = [1, 2, 3].map(|unit| (f64::from(unit) * 0.05 * 32767.0) as i16);
        let seconds: Vec<i16> = audio.chunks(24_000).map(|second| second[100]).collect();
        return assert_eq!((seconds.as_slice(), audio.len()), (&levels[..], 72_000));
    }
    let marks: Vec<_> = audio.iter().map(|sample| read_watermark(*sample).expect("no watermark")).collect();
    assert_eq!(marks.first().map(|mark| mark.1), Some(0), "{server}: the first sample");
    assert!(marks.windows(2).all(|pair| pair[1] == (pair[0].0, (pair[0].1 + 1) % 8190)), "{server}");
    assert!(server == "simulated vLLM-Omni" || audio.len() == ANSWER_SAMPLES, "{server}: {}", audio.len());
}

#[track_caller]
fn assert_polite_end(frames: &[ClientFrame], server: &str) {
    // Settings that the server lacks are reported, and the session goes on.
    let is_note = |error: &Value| error["error"]["message"].as_str().unwrap().contains("has no effect");
    assert!(events(frames, "error").into_iter().all(is_note), "{server}: {frames:?}");
    assert_eq!(events(frames, "session.closed").len(), 1, "{server}");
    assert!(frames.iter().any(|frame| matches!(frame, ClientFrame::Close(1000, _))), "{server}: {frames:?}");
}

fn voice() -> String {
    float_base64(&recording("goforward"))
}

async fn close(mut client: Client) -> Vec<ClientFrame> {
    client.send_json(json!({"type": "session.close", "reason": "user_stop"})).await;
    client.read_to_end().await;
    client.received
}

#[tokio::test]
async fn application_for_the_demo_gets_a_whole_answer_from_other_servers() {
    for server in other_servers("relay").await {
        for mode in ["audio", "video"] {
            let mut client = server.bench.dial(&format!("/v1/realtime?mode={mode}")).await;
            let payload = json!({
                "system_prompt": "Speak briefly.", "config": {"temperature": 0.7, "length_penalty": 1.1},
                "voice": {"ref_audio_base64": voice()}
            });
            client.send_json(json!({"type": "session.init", "payload": payload})).await;
            assert!(client.wait_for_event("session.created").await["session_id"].is_string());
            for (at, audio) in question_seconds().into_iter().enumerate() {
                let frames = if mode == "video" { json!([PICTURE]) } else { Value::Null };
                let input = json!({"audio": audio, "input_id": format!("in{at}"), "video_frames": frames});
                client.send_json(json!({"type": "input.append", "input": input})).await;
                client.wait_for_event("response.output.delta").await;
            }
            let frames = close(client).await;
            assert_polite_end(&frames, server.name);
            let deltas = events(&frames, "response.output.delta");
            let of = |kind: &str| deltas.iter().filter(|delta| delta["kind"] == kind).collect::<Vec<_>>();
            let audio: Vec<i16> =
                of("audio").iter().flat_map(|delta| samples_of(delta["audio"].as_str().unwrap())).collect();
            assert_whole_answer(&audio, server.name);
            assert!(of("text").iter().any(|delta| !delta["text"].as_str().unwrap().is_empty()));
            assert_eq!(of("listen")[0]["input_id"], "in0", "{}: {:?}", server.name, of("listen")[0]);
        }
    }
}

#[tokio::test]
async fn application_for_the_older_demo_gets_a_whole_answer_from_other_servers() {
    for server in other_servers("relay").await {
        let mut client = server.bench.dial("/v1/realtime?mode=audio").await;
        let session = json!({"instructions": "Speak briefly.", "ref_audio": voice()});
        client.send_json(json!({"type": "session.update", "session": session})).await;
        client.wait_for_event("session.created").await;
        for audio in question_seconds() {
            client.send_json(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
            client.next().await;
        }
        let frames = close(client).await;
        assert_polite_end(&frames, server.name);
        let deltas = events(&frames, "response.output_audio.delta");
        let audio = deltas.iter().filter_map(|delta| delta["audio"].as_str()).flat_map(samples_of);
        assert_whole_answer(&audio.collect::<Vec<_>>(), server.name);
        assert_eq!(deltas.iter().filter(|delta| delta["end_of_turn"] == true).count(), 1, "{deltas:?}");
        assert!(!events(&frames, "response.listen").is_empty(), "{}", server.name);
    }
}

/// Talks through a client's program; `None` without Python.
fn run_client(client: Option<Command>, url: &str) -> Option<Value> {
    let output = client?.arg(url).arg(speech_dir().join("goforward_16k.wav")).output().unwrap();
    assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Talks through a client's program on every server, all at once, because the client speaks at the pace of speech.
async fn talk_on_every_server(
    client: fn() -> Option<Command>,
    path: &str,
) -> Vec<(Server, JoinHandle<Option<Value>>)> {
    let start = |server: Server| {
        let url = format!("ws://{}{path}", server.bench.address());
        (server, tokio::task::spawn_blocking(move || run_client(client(), &url)))
    };
    conversing_servers().await.into_iter().map(start).collect()
}

#[tokio::test]
async fn duplex_client_of_vllm_omni_gets_a_whole_answer_from_every_other_server() {
    let path = "/vllm/v1/realtime";
    for (server, talk) in talk_on_every_server(PackageServer::vllm_omni_client, path).await {
        let Some(came) = talk.await.unwrap() else { return };
        let audio = STANDARD.decode(came["audio"].as_str().unwrap()).unwrap();
        assert_whole_answer(&samples(&audio), server.name);
        assert_eq!(came["status"], "completed", "{}: {came}", server.name);
        assert!(!came["transcript"].as_str().unwrap().is_empty());
        assert!(came["session_id"].is_string());
        assert_eq!(came["cancelled_without_response"], "response_not_active");
        let kinds: Vec<&str> = came["events"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
        assert_eq!(kinds.last(), Some(&"session.closed"), "{}: {kinds:?}", server.name);
        assert_eq!(kinds.iter().filter(|kind| **kind == "error").count(), 1, "{}: {kinds:?}", server.name);
    }
}

#[tokio::test]
async fn strict_client_of_sglang_omni_gets_a_whole_answer_from_every_server() {
    let path = "/sglang/v1/realtime";
    for (server, talk) in talk_on_every_server(PackageServer::sglang_omni_client, path).await {
        let Some(came) = talk.await.unwrap() else { return };
        let audio = STANDARD.decode(came["audio"].as_str().unwrap()).unwrap();
        assert_whole_answer(&samples(&audio), server.name);
        assert_eq!(came["statuses"], json!(["completed"]), "{}: {came}", server.name);
        assert!(!came["transcript"].as_str().unwrap().is_empty());
        let kinds = came["events"].as_array().unwrap();
        assert_eq!(kinds.last().unwrap(), "session.closed", "{}: {kinds:?}", server.name);
    }
}

#[tokio::test]
async fn strict_client_of_sglang_omni_finds_no_fault_in_its_own_server() {
    let Some(package) = PackageServer::sglang_omni(&[]) else { return };
    let url = format!("ws://{}/v1/realtime", package.address());
    let talk = tokio::task::spawn_blocking(move || run_client(PackageServer::sglang_omni_client(), &url));
    let came = talk.await.unwrap().unwrap();
    let audio = STANDARD.decode(came["audio"].as_str().unwrap()).unwrap();
    assert_whole_answer(&samples(&audio), "SGLang-Omni's package");
}
