//! The server at its socket: HTTP, the handshake, every way in which a session ends, and clients that misbehave.
#![cfg(feature = "io")]

#[path = "support/bench.rs"]
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
mod bench;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bench::{
    Bench, Client, Options, Seen, assert_pairs, audio, bytes as bytes_of, events, quick, recording, upgrade,
    upstream_at,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{advance, pause, resume, sleep, timeout},
};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use voxbridge::{
    config::Config,
    server::{
        route::RouteFile,
        tap::{Passed, Tap, Wire},
    },
    simulator::{SimulatorConfig, socket::Received},
};

const ERROR: &str = "error";

fn route(model: &str) -> RouteFile {
    RouteFile { model: model.into(), ..RouteFile::all_to("speech") }
}

/// Lets so much time pass for everything in this process at once.
async fn skip(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

async fn assert_works(client: &mut Client) {
    client.say(&recording("goforward")).await;
    client.event("transcript.final").await;
    client.event("vad.speech_end").await;
}

#[tokio::test]
async fn both_paths_are_served() {
    let bench = Bench::start().await;
    for path in ["/v1/realtime?model=x", "/api/v1/realtime?language=en&model=x&unknown=%00"] {
        let mut client = bench.dial(path).await;
        let Seen::Event(created) = client.next().await else { panic!("{}", client.story()) };
        assert_eq!((&created["type"], &created["model"]), (&json!("session.created"), &json!("x")));
        assert_works(&mut client).await;
    }
}

#[tokio::test]
async fn what_is_no_handshake_is_answered_in_http() {
    let bench = Bench::start().await;
    let ask = |line: &str, headers: &str| {
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        let bench = &bench;
        async move { bench.http(&request).await.to_lowercase() }
    };
    let plain = ask("GET /v1/realtime?model=x", "").await;
    assert!(plain.starts_with("http/1.1 426 ") && plain.contains("\r\nupgrade: websocket\r\n"), "{plain}");
    let posted = ask("POST /v1/realtime?model=x", "Content-Length: 0\r\n").await;
    assert!(posted.starts_with("http/1.1 405 ") && posted.contains("\r\nallow: get\r\n"), "{posted}");
    let lost = ask("GET /v2/realtime?model=x", "").await;
    assert!(lost.starts_with("http/1.1 404 ") && lost.contains("/api/v1/realtime, /v1/listen"), "{lost}");
    let long = ask("GET /v1/realtime?model=x", &format!("X: {}\r\n", "x".repeat(20_000))).await;
    assert!(long.starts_with("http/1.1 431 "), "{long}");
    let junk = bench.http("\u{16}\u{3}\u{1} this is no HTTP\r\n\r\n").await;
    assert!(junk.starts_with("HTTP/1.1 400 "), "{junk}");
}

#[tokio::test]
async fn a_handshake_of_another_version_is_refused() {
    let bench = Bench::start().await;
    let answer = bench
        .http(
            "GET /v1/realtime?model=x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn a_connection_that_cannot_be_served_is_told_why_and_closed() {
    let bench = Bench::with(quick(), Config { routes: vec![route("whisper*")], ..Config::default() }).await;
    for (query, code, message, reason) in [
        (
            "",
            "invalid_request",
            "Query parameter 'model' is required",
            "Missing required query parameter: model",
        ),
        ("?model=nope", "model_not_found", "Model 'nope' not found in registry", "Model not found: nope"),
        ("?model=", "model_not_found", "Model '' not found in registry", "Model not found: "),
    ] {
        let mut client = bench.dial(&format!("/v1/realtime{query}")).await;
        client.rest().await;
        let error = json!({
            "type": ERROR, "code": code, "message": message, "recoverable": false, "resume_segment_id": null,
        });
        let expected = [Seen::Event(error), Seen::Close(1008, reason.into()), Seen::End(None)];
        assert_eq!(client.seen, expected, "{query}");
    }
    // A reason too long for a close frame is cut, not fatal.
    let mut client = bench.dial(&format!("/v1/realtime?model={}", "%C3%A9".repeat(300))).await;
    client.rest().await;
    assert!(matches!(&client.seen[1], Seen::Close(1008, reason) if reason.len() > 100), "{}", client.story());
    bench.client("model=whisper-tiny").await;
}

#[tokio::test]
async fn the_session_is_created_whatever_the_upstream_does() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for upstream in [silent.local_addr().unwrap(), dead] {
        let config = Config { upstream: vec![upstream_at(upstream)], ..Config::default() };
        let bench = Bench::with(quick(), config).await;
        let asked = tokio::time::Instant::now();
        let mut client = bench.client("model=x").await;
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        client.command(json!({"type": "nonsense"})).await;
        assert_eq!(client.event(ERROR).await["code"], "unknown_command");
        let seen = client.close().await;
        assert_eq!(events(&seen, "session.closed")[0]["reason"], "client_request");
    }
}

#[tokio::test]
async fn what_came_with_the_handshake_is_not_lost() {
    let bench = Bench::start().await;
    let stream = TcpStream::connect(bench.address()).await.unwrap();
    let frame = masked(0x81, br#"{"type":"early"}"#);
    let (_, mut client) = upgrade(stream, "/v1/realtime?model=x", "", &frame).await;
    client.event("session.created").await;
    assert_eq!(client.event(ERROR).await["message"], "Unknown command type: 'early'");
}

#[tokio::test]
async fn what_is_offered_and_not_had_is_ignored() {
    let bench = Bench::start().await;
    for offer in [
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
        "Sec-WebSocket-Protocol: realtime, x.y\r\n",
        "Origin: https://example.org\r\nAuthorization: Bearer none\r\n",
    ] {
        let (head, mut client) = bench.upgrade("/v1/realtime?model=x", offer).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let head = head.to_lowercase();
        assert!(
            !head.contains("sec-websocket-extensions") && !head.contains("sec-websocket-protocol"),
            "{head}"
        );
        client.event("session.created").await;
        assert_works(&mut client).await;
    }
}

/// A frame as a client must send it; the mask is zero, so the payload is plain.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![opcode, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn violations_of_the_websocket_protocol_close_with_their_codes() {
    let bench = Bench::start().await;
    let unmasked = b"\x81\x02{}".to_vec();
    let bad_opcode = masked(0x83, b"");
    let reserved_bit = masked(0xc1, b"{}");
    let not_utf8 = masked(0x81, b"\xff\xfe");
    for (bytes, code) in [(unmasked, 1002), (bad_opcode, 1002), (reserved_bit, 1002), (not_utf8, 1007)] {
        let mut client = bench.client("model=x").await;
        client.socket.get_mut().write_all(&bytes).await.unwrap();
        let rest = client.rest().await;
        assert!(matches!(rest[0], Seen::Close(seen, _) if seen == code), "{bytes:?}: {rest:?}");
    }
}

#[tokio::test]
async fn a_message_beyond_the_limit_closes_its_session_and_no_other() {
    let bench = Bench::start().await;
    let mut other = bench.client("model=x").await;
    let mut client = bench.client("model=x").await;
    // Sent as it is, whatever becomes of it: the server stops listening after the header.
    let _ = client.socket.get_mut().write_all(&[0x82, 0xff]).await;
    let _ = client.socket.get_mut().write_all(&(17u64 << 20).to_be_bytes()).await;
    let _ = client.socket.get_mut().write_all(&vec![0; (17 << 20) + 4]).await;
    let rest = client.rest().await;
    assert!(matches!(rest[0], Seen::Close(1009, _)), "{rest:?}");
    assert_works(&mut other).await;
    // In fragments, too.
    let mut client = bench.client("model=x").await;
    for (at, opcode) in [0x02u8].into_iter().chain(std::iter::repeat_n(0, 20)).enumerate() {
        let mut fragment = vec![opcode, 0xff];
        fragment.extend((1u64 << 20).to_be_bytes());
        fragment.extend(vec![0; (1 << 20) + 4]);
        if client.socket.get_mut().write_all(&fragment).await.is_err() {
            assert!(at >= 16, "refused at fragment {at}");
            break;
        }
    }
    let rest = client.rest().await;
    assert!(matches!(rest[0], Seen::Close(1009, _)), "{rest:?}");
    assert_works(&mut other).await;
}

#[tokio::test]
async fn a_frame_too_large_is_told_and_the_session_goes_on() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.send(Message::binary(vec![0; (1 << 20) + 2])).await;
    let error = client.event(ERROR).await;
    assert_eq!((&error["code"], &error["recoverable"]), (&json!("frame_too_large"), &json!(true)));
    assert_eq!(error["message"], "Frame too large: 1048578 bytes (max 1048576)");
    assert_works(&mut client).await;
}

#[tokio::test]
async fn pings_are_answered_and_sent() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.socket.get_mut().write_all(&masked(0x89, b"hello")).await.unwrap();
    let mut pong = [0; 7];
    timeout(Duration::from_secs(5), client.socket.get_mut().read_exact(&mut pong)).await.unwrap().unwrap();
    assert_eq!(&pong, b"\x8a\x05hello");
    skip(Duration::from_secs(20)).await;
    let mut ping = [0; 2];
    timeout(Duration::from_secs(5), client.socket.get_mut().read_exact(&mut ping)).await.unwrap().unwrap();
    assert_eq!(&ping, b"\x89\x00");
}

#[tokio::test]
async fn a_client_that_is_silently_gone_is_given_up() {
    let bench = Bench::with(quick(), Config { idle_timeout_ms: Some(0), ..Config::default() }).await;
    let mut client = bench.client("model=x").await;
    for _ in 0..4 {
        // Nothing is read here, so no ping is answered.
        skip(Duration::from_secs(20)).await;
        sleep(Duration::from_millis(10)).await;
    }
    let rest = client.rest().await;
    assert!(matches!(rest, [Seen::End(_)]), "{rest:?}");
}

#[tokio::test]
async fn a_goodbye_is_answered_before_the_close_frame() {
    let bench = Bench::start().await;
    for (command, reason) in [("session.close", "client_request"), ("session.cancel", "cancelled")] {
        let mut client = bench.client("model=x").await;
        client.command(json!({"type": command})).await;
        let asked = tokio::time::Instant::now();
        let rest = client.rest().await;
        assert!(matches!(rest, [Seen::Event(_), Seen::Close(1000, _), Seen::End(None)]), "{rest:?}");
        assert_eq!(events(rest, "session.closed")[0]["reason"], reason);
        // Clients wait for the server to end the transport (RFC 6455 §7.1.1); it must not wait for them.
        assert!(asked.elapsed() < Duration::from_secs(2), "the end took {:?}", asked.elapsed());
    }
}

#[tokio::test]
async fn what_was_said_before_the_goodbye_is_still_answered() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.say(&recording("goforward")).await;
    let seen = client.close().await;
    assert_pairs(&seen);
    assert_eq!(events(&seen, "transcript.final").len(), 1, "{seen:?}");
    assert_eq!(events(&seen, "session.closed")[0]["segments_transcribed"], 1);
}

#[tokio::test]
async fn the_clients_close_frame_is_echoed() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    let code = CloseCode::from(1001);
    client.socket.close(Some(CloseFrame { code, reason: "bye".into() })).await.unwrap();
    let rest = client.rest().await;
    assert_eq!(rest, [Seen::Close(1001, "bye".into()), Seen::End(None)]);
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_the_worker_politely() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.audio(&bench::bytes(&recording("goforward")), 640).await;
    client.event("vad.speech_start").await;
    // No linger: the drop is a reset.
    client.socket.get_mut().set_zero_linger().unwrap();
    drop(client);
    let mut next = bench.client("model=x").await;
    assert_works(&mut next).await;
    let seen = next.close().await;
    assert!(events(&seen, ERROR).is_empty(), "{seen:?}");
    let gone = bench.recorder.all().into_iter().filter(|it| matches!(it, Received::Gone(_))).count();
    assert_eq!(gone, 0, "a worker was left without a goodbye");
}

#[tokio::test]
async fn a_session_without_audio_is_closed() {
    let bench = Bench::with(quick(), Config { idle_timeout_ms: Some(100), ..Config::default() }).await;
    let mut client = bench.client("model=x").await;
    let rest = client.rest().await;
    assert_eq!(events(rest, "session.closed")[0]["reason"], "inactivity_timeout");
    assert_eq!(rest[1..], [Seen::Close(1000, "inactivity_timeout".into()), Seen::End(None)]);
}

#[tokio::test]
async fn audio_even_empty_keeps_a_session_and_text_does_not() {
    // The protocol's own bound, a minute, in no time.
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    for _ in 0..4 {
        // Each answer is waited for, so that the frame before it has arrived.
        client.send(Message::binary(Vec::new())).await;
        client.command(json!({"type": "x"})).await;
        client.event(ERROR).await;
        skip(Duration::from_secs(40)).await;
    }
    client.command(json!({"type": "x"})).await;
    client.event(ERROR).await;
    skip(Duration::from_secs(40)).await;
    let rest = client.rest().await;
    assert_eq!(events(rest, "session.closed")[0]["reason"], "inactivity_timeout");
}

#[tokio::test]
async fn the_idle_timeout_can_be_switched_off() {
    let bench = Bench::with(quick(), Config { idle_timeout_ms: Some(0), ..Config::default() }).await;
    let mut client = bench.client("model=x").await;
    for _ in 0..10 {
        skip(Duration::from_secs(40)).await;
        // Its answer, and those to the pings, prove that both are still there.
        client.command(json!({"type": "x"})).await;
        client.event(ERROR).await;
    }
    assert_eq!(events(&client.close().await, "session.closed")[0]["reason"], "client_request");
}

#[tokio::test]
async fn the_order_to_stop_lets_an_utterance_finish() {
    let mut bench = Bench::start().await;
    let mut idle = bench.client("model=x").await;
    let mut client = bench.client("model=x").await;
    client.audio(&bench::bytes(&recording("goforward")[..32_000]), 640).await;
    client.event("vad.speech_start").await;
    bench.bridge.stop();
    client.rest().await;
    assert_pairs(&client.seen);
    assert_eq!(events(&client.seen, "transcript.final").len(), 1, "{}", client.story());
    assert_eq!(events(&client.seen, "session.closed")[0]["reason"], "server_shutdown");
    assert!(client.seen.contains(&Seen::Close(1012, "server_shutdown".into())), "{}", client.story());
    assert_eq!(events(idle.rest().await, "session.closed")[0]["reason"], "server_shutdown");
    let address = bench.address();
    bench.bridge.ended().await;
    assert!(TcpStream::connect(address).await.is_err(), "it still listens");
}

#[tokio::test]
async fn the_order_to_stop_lets_a_text_be_spoken_to_its_end() {
    let mut bench =
        Bench::with(SimulatorConfig { record: true, ..SimulatorConfig::default() }, Config::default()).await;
    let mut client = bench.client("model=x").await;
    client.command(json!({"type": "tts.speak", "text": "Two seconds of this, and some more words."})).await;
    client.event("tts.speaking_start").await;
    bench.bridge.stop();
    client.rest().await;
    assert_pairs(&client.seen);
    assert_eq!(events(&client.seen, "tts.speaking_end")[0]["cancelled"], false);
    bench.bridge.ended().await;
}

#[tokio::test]
async fn one_session_too_many_is_asked_to_come_back() {
    let bench = Bench::with(quick(), Config { sessions_max: Some(1), ..Config::default() }).await;
    let first = bench.client("model=x").await;
    let (head, _) = bench.upgrade("/v1/realtime?model=x", "").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.to_lowercase().contains("\r\nretry-after: 5\r\n"), "{head}");
    first.close().await;
    // The session's end is seen by its client a moment before its place is free.
    let again = timeout(Duration::from_secs(5), async {
        while bench.upgrade("/v1/realtime?model=x", "").await.0.starts_with("HTTP/1.1 503 ") {}
    });
    again.await.expect("the place stays taken");
}

/// How much went to whom.
#[derive(Default)]
struct Flow {
    to_clients: AtomicUsize,
}

impl Tap for Flow {
    fn passed(&self, _: &str, _: Instant, wire: Wire, frame: Passed<'_>) {
        if let (Wire::ToClient, Passed::Binary(bytes)) = (wire, frame) {
            self.to_clients.fetch_add(bytes.len(), Ordering::Relaxed);
        }
    }
}

/// A bench with a client that has asked for minutes of speech and reads nothing.
async fn stalled() -> (Bench, Client, Arc<Flow>) {
    let flow = Arc::new(Flow::default());
    let bench = Bench::of(Options {
        simulator: SimulatorConfig { workers: 2, ..quick() },
        config: Config { sessions_max: Some(2), ..Config::default() },
        tap: Some(flow.clone()),
        ..Options::default()
    })
    .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(bench.address()).await.unwrap();
    let (_, mut slow) = upgrade(stream, "/v1/realtime?model=x", "", &[]).await;
    slow.event("session.created").await;
    slow.command(json!({"type": "tts.speak", "text": text_of(4096)})).await;
    // As much as the kernel takes for it and as the bridge keeps for it; then no more comes.
    let mut before = 0;
    loop {
        sleep(Duration::from_millis(300)).await;
        let passed = flow.to_clients.load(Ordering::Relaxed);
        if passed > 0 && passed == before {
            break;
        }
        before = passed;
    }
    (bench, slow, flow)
}

/// About five minutes of speech for 4096 characters: 14 MB.
fn text_of(chars: usize) -> String {
    "Nothing of this is read for a while. ".chars().cycle().take(chars).collect()
}

/// What the kernel may hold (Linux takes up to 4 MiB for a sender), the bridge's own bound, and one delta.
const HELD_MAX_BYTES: usize = 7 << 20;

#[tokio::test]
async fn a_client_that_reads_late_holds_up_only_itself_and_gets_all() {
    let (bench, mut slow, flow) = stalled().await;
    let held = flow.to_clients.load(Ordering::Relaxed);
    assert!(held < HELD_MAX_BYTES, "{held} bytes on their way to a client that does not read");
    let mut other = bench.client("model=x").await;
    assert_works(&mut other).await;
    slow.event("tts.speaking_end").await;
    let spoken = audio(&slow.seen).len();
    assert!(spoken > 280 * 24_000, "{spoken} samples of a text of five minutes");
    assert_eq!(spoken * 2, flow.to_clients.load(Ordering::Relaxed));
    assert_eq!(events(&slow.seen, "tts.speaking_end")[0]["cancelled"], false);
    assert_pairs(&slow.seen);
}

#[tokio::test]
async fn a_client_that_never_reads_is_given_up() {
    let (bench, mut slow, flow) = stalled().await;
    skip(Duration::from_secs(31)).await;
    // Its place is free again: two more clients fit.
    let mut clients = Vec::new();
    timeout(Duration::from_secs(10), async {
        while clients.len() < 2 {
            let (head, client) = bench.upgrade("/v1/realtime?model=x", "").await;
            if head.starts_with("HTTP/1.1 101 ") {
                clients.push(client);
            } else {
                sleep(Duration::from_millis(20)).await;
            }
        }
    })
    .await
    .expect("the place stays taken");
    assert_works(&mut clients[1]).await;
    assert!(flow.to_clients.load(Ordering::Relaxed) < HELD_MAX_BYTES);
    assert!(matches!(slow.rest().await.last(), Some(Seen::End(_))));
}

#[tokio::test]
async fn a_head_that_never_ends_is_hung_up_on() {
    let bench = Bench::with(quick(), Config { sessions_max: Some(1), ..Config::default() }).await;
    let mut half = TcpStream::connect(bench.address()).await.unwrap();
    half.write_all(b"GET /v1/realtime?model=x HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
    // It takes nobody's place meanwhile; and its head has certainly arrived when another one is served.
    bench.client("model=x").await.close().await;
    skip(Duration::from_secs(11)).await;
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(5), half.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "still open; it said {:?}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn the_first_subprotocol_that_is_known_is_agreed_to() {
    let bench = Bench::start().await;
    for (path, offered, agreed) in [
        ("/v1/listen", "new, token, a-key", Some("token")),
        ("/v1/speak", "bearer,a.b.c", Some("bearer")),
        ("/v1/listen", "Token", None),
        ("/", "token", None),
        ("/v1/realtime?model=x", "token", None),
    ] {
        let (head, _) = bench.upgrade(path, &format!("Sec-WebSocket-Protocol: {offered}\r\n")).await;
        let line = |name: &str| head.contains(&format!("\r\nsec-websocket-protocol: {name}\r\n"));
        assert!(head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
        match agreed {
            Some(name) => assert!(line(name), "{path}: {head}"),
            None => assert!(!head.contains("sec-websocket-protocol"), "{path}: {head}"),
        }
    }
}

#[tokio::test]
async fn a_file_sent_at_once_is_held_back_and_heard_to_its_end() {
    const PARTS: usize = 24;
    let faults = vec!["slow-init=0.1".parse().unwrap()];
    let bench = Bench::with(SimulatorConfig { faults, ..quick() }, Config::default()).await;
    let mut client = bench.dial("/v1/listen").await;
    let voice = recording("librivox_0870");
    let part: Vec<i16> = voice.into_iter().chain([0; 16_000]).collect();
    let file = bytes_of(&part).repeat(PARTS);
    for frame in file.chunks(32_000) {
        client.send(Message::binary(frame.to_vec())).await;
    }
    // More than two minutes wait: what is answered is answered while it is held back.
    client.send(Message::Ping("still there?".into())).await;
    client.command(json!({"type": "CloseStream"})).await;
    client.rest().await;
    let words = events(&client.seen, "Results");
    assert_eq!(words.len(), PARTS, "{}", client.story());
    let heard: f64 = words.iter().filter_map(|event| event["duration"].as_f64()).sum();
    let duration = events(&client.seen, "Metadata")[0]["duration"].as_f64().unwrap();
    assert!(duration > 190.0 && heard > 0.8 * duration, "{heard} s of {duration} s");
    assert!(client.seen.contains(&Seen::Close(1000, String::new())));
}
