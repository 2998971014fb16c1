//! Conversations over real sockets, and what only sockets do: clients that do not read, that hang up, that compete for a
//! worker; upstreams that are silently gone; the order to stop; large pictures.
#![cfg(feature = "io")]

#[path = "support/bench.rs"]
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
mod bench;
#[path = "support/wire.rs"]
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
mod wire;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bench::{
    Bench, Client, Options, Seen, assert_pairs, audio, events, quick, recording, simulate, tuned_talk,
    upgrade, upstream_at,
};
use serde_json::{Value, json};
use tokio::{
    net::TcpSocket,
    time::{Instant, advance, pause, resume, sleep, timeout},
};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::{
    config::Config,
    server::tap::{Passed, Tap, Wire as Place},
    simulator::{Dialect, SimulatorConfig, read_marker, socket::Received},
};
use wire::Wire;

const RATE_HZ: f64 = 24_000.0;
/// What is sent ahead of what is heard, and a frame, s; a busy machine is late with its clock, not early.
const LEAD_S: f64 = 0.4 + 0.2;

fn talk(profile: &str) -> Config {
    Config { profile: Some(profile.into()), ..Config::default() }
}

fn with_fault(fault: &str) -> SimulatorConfig {
    SimulatorConfig { faults: vec![fault.parse().unwrap()], ..quick() }
}

fn is(kind: &'static str) -> impl Fn(&Seen) -> bool {
    move |seen| seen.kind() == kind
}

/// A question, and its answer to the end.
async fn ask(client: &mut Client) {
    let question = recording("goforward");
    let seen = client.live(&question, is("tts.speaking_end")).await;
    assert_eq!(events(seen, "tts.speaking_end")[0]["cancelled"], false, "{seen:?}");
    assert_one_turn(seen);
}

/// All audio is one turn's, from its beginning and in order.
#[track_caller]
fn assert_one_turn(seen: &[Seen]) {
    let marks: Vec<_> =
        audio(seen).into_iter().map(|sample| read_marker(sample).expect("no marker")).collect();
    assert_eq!(marks[0].1, 0);
    for pair in marks.windows(2) {
        assert_eq!(pair[1], (pair[0].0, (pair[0].1 + 1) % 8190));
    }
}

/// The upstream was told goodbye and had no connection torn.
fn assert_polite(received: &[Received], sessions: usize) {
    let of_type = |kind: &str| {
        let is = |received: &&Received| match received {
            Received::Message(_, text) => serde_json::from_str::<Value>(text).unwrap()["type"] == kind,
            _ => false,
        };
        received.iter().filter(is).count()
    };
    assert_eq!((of_type("session.init"), of_type("session.close")), (sessions, sessions));
    assert!(!received.iter().any(|received| matches!(received, Received::Gone(_))), "left without a goodbye");
}

/// Lets so much time pass for everything in this process at once; the client goes on reading.
async fn skip(client: &mut Client, time: Duration) {
    pause();
    advance(time).await;
    resume();
    while timeout(Duration::from_millis(50), client.next()).await.is_ok() {}
}

#[derive(Default)]
struct Flow {
    to_client: AtomicUsize,
}

impl Tap for Flow {
    fn passed(&self, _: &str, _: std::time::Instant, place: Place, passed: Passed<'_>) {
        if let (Place::ToClient, Passed::Binary(bytes)) = (place, passed) {
            self.to_client.fetch_add(bytes.len(), Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn who_does_not_read_is_sent_no_more_than_what_is_heard_and_can_still_interrupt() {
    let flow = Arc::new(Flow::default());
    let bench = Bench::of(Options {
        simulator: with_fault("burst=34"),
        config: talk("conversation"),
        tap: Some(flow.clone()),
        ..Options::default()
    })
    .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(bench.address()).await.unwrap();
    let (_, mut client) = upgrade(stream, "/v1/realtime?model=x", "", &[]).await;
    client.live(&recording("goforward"), is("tts.speaking_start")).await;
    let (start, before) = (Instant::now(), client.seen.len());
    // Half a minute of speech is there at once; the microphone goes on, and nothing is read.
    while start.elapsed() < Duration::from_secs(3) {
        client.send(Message::binary(vec![0; 640])).await;
        sleep(Duration::from_millis(20)).await;
        let sent_s = flow.to_client.load(Ordering::Relaxed) as f64 / 2.0 / RATE_HZ;
        assert!(sent_s <= start.elapsed().as_secs_f64() + LEAD_S, "{sent_s} s after {:?}", start.elapsed());
    }
    assert!(flow.to_client.load(Ordering::Relaxed) > 2 * 48_000, "it is spoken on");
    client.live(&recording("cards_005"), is("tts.speaking_end")).await;
    let heard = &client.seen[before..];
    assert_eq!(events(heard, "tts.speaking_end")[0]["cancelled"], true);
    assert_one_turn(heard);
    // The next turn is another one, and whole.
    client.live(&[], is("tts.speaking_start")).await;
    client.command(json!({"type": "tts.cancel"})).await;
    client.event("tts.speaking_end").await;
    assert_pairs(&client.close().await);
}

#[tokio::test]
async fn an_upstream_that_is_silently_gone_is_noticed_and_replaced() {
    let (upstream, _simulator, _) = simulate("127.0.0.1:0", quick(), None).await;
    let wire = Wire::to(upstream).await;
    let config = Config {
        upstream: vec![upstream_at(wire.address())],
        idle_timeout_ms: Some(0),
        ..talk("conversation")
    };
    let bench = Bench::with(quick(), config).await;
    let mut client = bench.client("model=x").await;
    ask(&mut client).await;
    // Nobody says anything for long: no unit is owed an answer, and pings are all that could tell.
    for _ in 0..3 {
        skip(&mut client, Duration::from_secs(15)).await;
    }
    assert!(events(&client.seen, "error").is_empty(), "{}", client.story());
    wire.hold(true);
    for _ in 0..4 {
        skip(&mut client, Duration::from_secs(20)).await;
    }
    let errors = events(&client.seen, "error");
    assert!(errors[0]["message"].as_str().unwrap().contains("nothing heard for 60 s"), "{errors:?}");
    wire.hold(false);
    ask(&mut client).await;
    assert_pairs(&client.close().await);
}

#[tokio::test]
async fn who_hangs_up_in_the_middle_of_a_turn_leaves_nothing_behind() {
    for polite in [true, false] {
        let simulator = SimulatorConfig { turn_units: 20, ..quick() };
        let bench = Bench::with(simulator, talk("conversation")).await;
        let mut client = bench.client("model=x").await;
        client.live(&recording("goforward"), is("tts.speaking_start")).await;
        if polite {
            client.socket.close(None).await.unwrap();
            client.rest().await;
        }
        drop(client);
        // With one worker, who is served next shows that it is free.
        let mut next = bench.client("model=x").await;
        next.live(&recording("goforward"), is("tts.speaking_start")).await;
        let seen = next.close().await;
        assert_pairs(&seen);
        assert!(events(&seen, "error").is_empty(), "{seen:?}");
        assert_polite(&bench.recorder.all(), 2);
    }
}

#[tokio::test]
async fn the_order_to_stop_ends_talks_politely_and_soon() {
    // What is left to be heard is a moment, or half a minute.
    for (fault, within_ms, heard_to_its_end) in
        [("think,times=1", 25_000, true), ("burst=34,times=1", 3_000, false)]
    {
        let simulator = SimulatorConfig { workers: 2, ..with_fault(fault) };
        let mut config = talk("conversation");
        config.drain.within_ms = Some(within_ms);
        let mut bench = Bench::with(simulator, config).await;
        let mut client = bench.client("model=x").await;
        let mut silent = bench.client("model=x").await;
        client.live(&recording("goforward"), is("tts.speaking_start")).await;
        bench.bridge.stop();
        client.rest().await;
        silent.rest().await;
        for client in [&client, &silent] {
            assert_pairs(&client.seen);
            assert_eq!(events(&client.seen, "session.closed")[0]["reason"], "server_shutdown");
            assert!(events(&client.seen, "error").is_empty(), "{}", client.story());
        }
        assert_one_turn(&client.seen);
        let ends = events(&client.seen, "tts.speaking_end");
        assert_eq!(ends[0]["cancelled"], !heard_to_its_end, "{fault}");
        bench.bridge.ended().await;
        assert_polite(&bench.recorder.all(), 2);
    }
}

#[tokio::test]
async fn who_waits_for_a_worker_is_told_and_gets_it_when_it_is_free() {
    let mappings = tuned_talk("talks-queue", &[("queue_stuck_ms = 15000", "queue_stuck_ms = 500")]);
    let bench = Bench::with(quick(), Config { mappings: Some(mappings), ..talk("conversation") }).await;
    let mut first = bench.client("model=x").await;
    ask(&mut first).await;
    let mut second = bench.client("model=x").await;
    // What is said meanwhile is kept.
    second.say(&recording("goforward")).await;
    let error = second.event("error").await;
    assert_eq!((&error["code"], &error["recoverable"]), (&json!("service_unavailable"), &json!(true)));
    assert!(error["message"].as_str().unwrap().contains("position 1"), "{error}");
    first.close().await;
    let seen = second.live(&[], is("tts.speaking_end")).await;
    assert_one_turn(seen);
    assert_eq!(events(seen, "tts.speaking_end")[0]["cancelled"], false);
    assert_pairs(&second.close().await);
}

/// Something that begins as a JPEG file does, of this size; base64.
fn picture(bytes: usize) -> String {
    let mut jpeg = vec![0xff, 0xd8, 0xff, 0xe0];
    jpeg.extend((jpeg.len()..bytes).map(|at| (at * 31 % 251) as u8));
    STANDARD.encode(jpeg)
}

#[tokio::test]
async fn large_pictures_go_with_the_audio_and_hold_nothing_up() {
    let bench = Bench::with(quick(), talk("video")).await;
    let mut client = bench.client("model=x").await;
    let frame = json!({"type": "video.frame", "image": picture(300_000)});
    // More of them than seconds: the newest goes, the rest does not.
    let question = recording("goforward");
    for second in question.chunks(16_000) {
        for _ in 0..4 {
            client.command(frame.clone()).await;
        }
        client.audio(&bench::bytes(second), 640).await;
    }
    client.command(json!({"type": "video.frame", "image": picture(1_600_000)})).await;
    assert_eq!(client.event("error").await["code"], "validation_error");
    client.command(json!({"type": "video.frame", "image": "bm90IGEgcGljdHVyZQ=="})).await;
    assert_eq!(client.event("error").await["code"], "validation_error");
    let seen = client.live(&[], is("tts.speaking_end")).await;
    assert_one_turn(seen);
    let units = bench.recorder.units();
    let frames: Vec<usize> = units.iter().map(|(_, unit)| unit.frames).collect();
    assert!(frames.iter().all(|frames| *frames <= 1) && frames.contains(&1), "{frames:?}");
    assert_pairs(&client.close().await);
    assert_polite(&bench.recorder.all(), 1);
}

#[tokio::test]
async fn a_legacy_server_is_talked_with_as_any_other() {
    for documented in [false, true] {
        let simulator = SimulatorConfig { dialect: Dialect::Legacy { documented }, ..quick() };
        let bench = Bench::with(simulator, talk("conversation")).await;
        let mut client = bench.client("model=x").await;
        ask(&mut client).await;
        client.command(json!({"type": "tts.speak", "text": "Hello."})).await;
        let seen = client.live(&[], is("error")).await;
        let words = events(seen, "error")[0]["message"].as_str().unwrap().to_owned();
        assert!(words.contains("no chat mode"), "{words}");
        let before = client.seen.len();
        client.live(&recording("goforward"), is("tts.speaking_start")).await;
        client.live(&[], is("tts.speaking_end")).await;
        assert_one_turn(&client.seen[before..]);
        let seen = client.close().await;
        assert_pairs(&seen);
        assert_eq!(events(&seen, "error").len(), 1, "{seen:?}");
        let received = bench.recorder.all();
        let of_type = |kind: &str| {
            let is =
                |received: &&Received| matches!(received, Received::Message(_, text) if text.contains(kind));
            received.iter().filter(is).count()
        };
        assert_eq!((of_type("\"session.update\""), of_type("\"session.close\"")), (1, 1));
    }
}
