//! Upstream failures as the client sees them: a precise error, closed pairs, and a session that continues.

use std::sync::OnceLock;

use tokio_tungstenite::tungstenite::protocol::frame::{
    Frame,
    coding::{Data, OpCode},
};

use super::*;

/// The default profile with short timeouts.
fn short_timeouts() -> PathBuf {
    static READY: OnceLock<PathBuf> = OnceLock::new();
    let times = [
        ("retry_first_ms", 250, 50),
        ("retry_max_ms", 4000, 200),
        ("retry_total_ms", 10_000, 800),
        ("dial_max_ms", 5000, 1000),
        ("queue_stuck_ms", 15_000, 500),
        ("queue_max_ms", 120_000, 1500),
        ("init_max_ms", 60_000, 600),
        ("answer_max_ms", 30_000, 1000),
        ("close_max_ms", 3000, 300),
    ];
    READY.get_or_init(|| profile_with_numbers("impatient", &times)).clone()
}

fn config() -> Config {
    Config { mappings: Some(short_timeouts()), ..Config::default() }
}

/// Sends an utterance and returns the frames received until its end.
async fn send_utterance_and_collect(client: &mut Client) -> Vec<ClientFrame> {
    let from = client.received.len();
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("vad.speech_end").await;
    client.received[from..].to_vec()
}

/// Has a text spoken and returns the frames received until its end, or until an error before its start.
async fn speak_and_collect(client: &mut Client) -> Vec<ClientFrame> {
    let from = client.received.len();
    client
        .send_json(
            json!({"type": "tts.speak", "text": "Three or four seconds of nothing in particular, please."}),
        )
        .await;
    loop {
        let frames = client.next().await;
        let started = !events(&client.received[from..], "tts.speaking_start").is_empty();
        if frames.kind() == "tts.speaking_end" || (frames.kind() == "error" && !started) {
            return client.received[from..].to_vec();
        }
    }
}

/// Checks for exactly one error: recoverable, with this code and these words.
#[track_caller]
fn assert_error(frames: &[ClientFrame], code: &str, words: &[&str]) -> Value {
    let errors = events(frames, "error");
    assert_eq!(errors.len(), 1, "{frames:#?}");
    let message = errors[0]["message"].as_str().unwrap();
    assert_eq!((&errors[0]["code"], &errors[0]["recoverable"]), (&json!(code), &json!(true)), "{message}");
    for words in words {
        assert!(message.contains(words), "{message:?} does not say {words:?}");
    }
    errors[0].clone()
}

#[track_caller]
fn assert_heard(frames: &[ClientFrame]) {
    assert_pairs_closed(frames);
    assert!(events(frames, "error").is_empty(), "{frames:#?}");
    let finals = events(frames, "transcript.final");
    assert_eq!(finals.len(), 1, "{frames:#?}");
    assert!(finals[0]["text"].as_str().unwrap().starts_with("simulated transcript: "), "{}", finals[0]);
}

#[track_caller]
fn assert_spoken(frames: &[ClientFrame]) {
    assert_pairs_closed(frames);
    assert!(events(frames, "error").is_empty(), "{frames:#?}");
    assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], false);
    assert!(audio(frames).len() > 72_000);
}

/// Checks that transcription, speech and `session.close` work.
async fn assert_recovered(mut client: Client) {
    assert_heard(&send_utterance_and_collect(&mut client).await);
    assert_spoken(&speak_and_collect(&mut client).await);
    let frames = client.close().await;
    assert_eq!(events(&frames, "session.closed")[0]["reason"], "client_request");
}

#[tokio::test]
async fn missing_upstream_is_reported_without_its_address_and_used_once_available() {
    let address = closed_port();
    let bench = Bench::of(Config { upstream: vec![upstream_at(address)], ..config() }).await;
    let mut client = bench.client("model=x").await;
    let frames = send_utterance_and_collect(&mut client).await;
    assert_pairs_closed(&frames);
    assert_error(&frames, "worker_unavailable", &["utterance 0", "the upstream cannot be reached"]);
    let spoken = speak_and_collect(&mut client).await;
    assert_error(&spoken, "worker_unavailable", &["the upstream cannot be reached"]);
    assert!(!format!("{frames:?}{spoken:?}").contains(&address.to_string()), "{frames:?} {spoken:?}");
    let (_, _simulator, _) = start_simulator(&address.to_string(), instant_simulator(), None).await;
    assert_recovered(client).await;
}

#[tokio::test]
async fn silent_upstream_is_named() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = vec![upstream_at(silent.local_addr().unwrap())];
    let bench = Bench::of(Config { upstream, ..config() }).await;
    let mut client = bench.client("model=x").await;
    let frames = send_utterance_and_collect(&mut client).await;
    assert_pairs_closed(&frames);
    assert_error(&frames, "worker_unavailable", &["did not answer the connection within 1000 ms"]);
    client.close().await;
}

#[tokio::test]
async fn lane_that_is_no_longer_needed_is_closed_after_its_handshake() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config { upstream: vec![upstream_at(upstream.local_addr().unwrap())], ..Config::default() };
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=x").await;
    client.send_json(json!({"type": "tts.speak", "text": "Nobody will hear this."})).await;
    let (stream, _) = upstream.accept().await.unwrap();
    // The client leaves during the handshake.
    client.close().await;
    wait_until("the session ends", || bench.sessions.is_empty()).await;
    let mut socket = accept_async(stream).await.unwrap();
    let received = socket.next().await.expect("a frame, not the bare end").unwrap();
    assert!(matches!(received, Message::Close(Some(_))), "{received:?}");
}

#[tokio::test]
async fn upstream_that_breaks_the_protocol_is_told_so() {
    let text_that_is_not_utf_8 = Frame::message(vec![0xff], OpCode::Data(Data::Text), true);
    let continuation_of_nothing = Frame::message(vec![], OpCode::Data(Data::Continue), true);
    for (broken, code) in [(text_that_is_not_utf_8, 1007), (continuation_of_nothing, 1002)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = vec![upstream_at(listener.local_addr().unwrap())];
        let bench = Bench::of(Config { upstream, ..Config::default() }).await;
        let mut client = bench.client("model=x").await;
        client.send_json(json!({"type": "tts.speak", "text": "Who answers?"})).await;
        let mut socket = accept_async(listener.accept().await.unwrap().0).await.unwrap();
        socket.send(Message::Frame(broken)).await.unwrap();
        let received = socket.next().await.expect("a frame, not the bare end").unwrap();
        let Message::Close(Some(frame)) = received else { panic!("{received:?}") };
        assert_eq!(u16::from(frame.code), code);
    }
}
