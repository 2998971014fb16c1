//! Sessions on streams in memory, polled step by step.

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::{io::DuplexStream, task::unconstrained};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use super::{socket_poll::CLIENT_OUTBOX_MAX_BYTES, *};
use crate::{
    bridge::Input,
    client::{Codec, ConnectQuery},
    net::Transport,
    server::websocket::{
        WebSocket,
        session_socket::{SessionSocket, websocket_config},
    },
    session::{RelaySetup, SessionSetup},
    spelling::Library,
    vocabulary::{DisconnectReason, Message},
};

/// Room for a few appends in each direction of a stream.
const STREAM_BYTES: usize = 64 << 10;

type Task = SessionTask<DuplexStream>;

struct Relayed {
    task: Task,
    client: WebSocketStream<DuplexStream>,
    upstream: WebSocketStream<DuplexStream>,
}

impl Relayed {
    /// A session that is open at both ends.
    async fn open() -> Self {
        let library = Library::embedded().unwrap();
        let setup = RelaySetup {
            profile: library.profile("relay").unwrap(),
            idle_ms: None,
            session_max_ms: 0,
            unix_s: 0.0,
            seed: 1,
        };
        let (client, dialect) =
            (library.client("minicpm-o").unwrap(), library.upstream("minicpm-o").unwrap());
        let bridge = Bridge::open_relay(std_now(), &[client], "mode=audio", dialect, setup);
        let (task, client) = start(bridge).await;
        let (near, far) = tokio::io::duplex(STREAM_BYTES);
        let upstream = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
        let mut relayed = Self { task, client, upstream };
        relayed.connect_lane(near);
        relayed.upstream.send(WsMessage::text(r#"{"type":"session.queue_done"}"#)).await.unwrap();
        relayed.client.send(WsMessage::text(r#"{"type":"session.init","payload":{}}"#)).await.unwrap();
        relayed.run();
        assert!(relayed.received_upstream()[0].contains("session.init"));
        let created = r#"{"type":"session.created","session_id":"s"}"#;
        relayed.upstream.send(WsMessage::text(created)).await.unwrap();
        relayed.run();
        relayed
    }

    /// Connects the lane that the session dials.
    fn connect_lane(&mut self, stream: DuplexStream) {
        self.task.drain_bridge().unwrap();
        let lane = self.task.lanes[0].0;
        let socket = SessionSocket::new(websocket(Box::new(stream) as Box<dyn Transport>, Role::Client));
        self.task.lanes[0].1 = LaneSocket::Connected(Box::new(socket));
        self.task.bridge.handle_input(std_now(), Input::LaneOpened(lane));
    }

    /// Handles events until there are no more.
    fn run(&mut self) {
        while step(&mut self.task) {}
    }

    async fn send_append(&mut self, number: usize) {
        let text = format!(
            r#"{{"type":"input.append","input":{{"number":{number},"audio":"{}"}}}}"#,
            "A".repeat(8192)
        );
        self.client.send(WsMessage::text(text)).await.unwrap();
    }

    /// Everything that the upstream can read now.
    fn received_upstream(&mut self) -> Vec<String> {
        let next = std::iter::from_fn(|| unconstrained(self.upstream.next()).now_or_never().flatten());
        next.map(|message| message.unwrap().to_text().unwrap().to_owned()).collect()
    }
}

/// A frame of 20 ms of a recording that pauses for good after 2.5 s.
fn microphone_frame(number: usize) -> WsMessage {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech/librivox_0870_16k.wav");
    let mut wav = hound::WavReader::open(path).unwrap();
    let all: Vec<i16> = wav.samples().map(Result::unwrap).collect();
    let samples = (0..320).map(|at| if number < 125 { all[number * 320 + at] } else { 0 });
    WsMessage::binary(samples.flat_map(i16::to_le_bytes).collect::<Vec<u8>>())
}

/// The end of the utterance, in frames of silence, if the pool's only judge gives this verdict.
async fn frames_to_speech_end(probability: Option<f32>) -> usize {
    let library = Library::embedded().unwrap();
    let (mapping, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
    let mut profile = (*library.profile("assistant").unwrap()).clone();
    profile.listen.turn_end = crate::vocabulary::TurnEndRule::Semantic;
    let mut setup = SessionSetup::new(&mapping, Arc::new(profile), &dialect.clone().into(), 1);
    setup.has_turn_judge = true;
    let bridge = Bridge::open(std_now(), Codec::new(mapping, 0.0), ConnectQuery::default(), dialect, setup);
    let (mut task, mut client) = start(bridge).await;
    let judge: crate::server::turn_judge::Judge =
        Box::new(move |audio| probability.filter(|_| audio.len() > 16_000));
    let metrics = crate::telemetry::metrics::Metrics::new(Default::default);
    task.pauses = PauseQuestions::new(TurnJudge::start(vec![judge], metrics).ok());
    for number in 0..250 {
        client.send(microphone_frame(number)).await.unwrap();
        tokio::time::advance(Duration::from_millis(20)).await;
        // The judge's thread does not know the virtual time.
        while step(&mut task) || task.pauses.is_judging() {}
        let ended = |message: &WsMessage| message.to_text().is_ok_and(|text| text.contains("vad.speech_end"));
        let mut messages = std::iter::from_fn(|| unconstrained(client.next()).now_or_never().flatten());
        if messages.any(|message| ended(&message.unwrap())) {
            return number.saturating_sub(124);
        }
    }
    panic!("the utterance does not end");
}

#[tokio::test(start_paused = true)]
async fn pool_judges_a_pause_and_its_verdict_ends_the_turn() {
    let [finished, unfinished, failed] = [
        frames_to_speech_end(Some(0.95)).await,
        frames_to_speech_end(Some(0.6)).await,
        frames_to_speech_end(None).await,
    ];
    assert!((8..=15).contains(&finished), "{finished} frames");
    assert!((22..=30).contains(&failed), "{failed} frames: the fixed silence");
    assert!((50..=62).contains(&unfinished), "{unfinished} frames");
}

/// A session's task, and its client.
async fn start(bridge: Bridge) -> (Task, WebSocketStream<DuplexStream>) {
    start_with_room(bridge, STREAM_BYTES).await
}

/// The same, where the stream has room for `bytes` in each direction.
async fn start_with_room(bridge: Bridge, bytes: usize) -> (Task, WebSocketStream<DuplexStream>) {
    let (near, far) = tokio::io::duplex(bytes);
    let context = SessionContext {
        tap: None,
        memory: (Arc::default(), MemoryBudget::DEFAULT_MAX_BYTES),
        eviction: Arc::default(),
        undecided: None,
        tells_upstream_addresses: false,
        traces: Vec::new(),
        recording: None,
        trace_context: Arc::new(TraceContext::from_headers(
            std::iter::empty(),
            std::iter::empty(),
            &mut fastrand::Rng::new(),
        )),
        registration: None,
        drain: watch::channel(None).1,
        close_timeout: Duration::ZERO,
        drain_guard: mpsc::channel(1).0,
        queue_keeper: QueueKeeper::default(),
        turn_judge: None,
        tools: None,
        message_threads: Default::default(),
    };
    let socket = ClientEnd::Socket(SessionSocket::new(websocket(near, Role::Server)));
    let task = SessionTask::new(bridge, socket, Pool::new([]), context);
    let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    (task, client)
}

/// Handles one event; false if there is none.
fn step(task: &mut Task) -> bool {
    let due = task.drain_bridge().expect("the session is open");
    // A poll that has read much finds nothing, so that other sessions get their turn.
    let mut wakeups = (0..2).map(|_| unconstrained(task.next_wakeup(due)).now_or_never());
    let wakeup = wakeups.find_map(|wakeup| wakeup);
    wakeup.map(|wakeup| task.handle_wakeup(wakeup)).is_some()
}

fn websocket<S: AsyncRead + AsyncWrite + Unpin>(stream: S, role: Role) -> WebSocket<S> {
    WebSocket::new(stream, Vec::new(), role, websocket_config(1 << 20))
}

fn number_of(append: &str) -> usize {
    let message: serde_json::Value = serde_json::from_str(append).unwrap();
    message["input"]["number"].as_u64().unwrap() as usize
}

#[tokio::test(start_paused = true)]
async fn message_read_as_the_hold_ends_does_not_overtake_those_held_back() {
    let mut relayed = Relayed::open().await;
    let mut sent = 0;
    while relayed.task.backlog.bytes == 0 {
        relayed.send_append(sent).await;
        relayed.run();
        sent += 1;
    }
    assert!(relayed.task.is_client_held());
    // In one poll, first the upstream takes enough to end the hold, then the next message is read.
    let mut received = relayed.received_upstream();
    relayed.send_append(sent).await;
    relayed.task.lanes_first = false;
    assert!(step(&mut relayed.task) && !relayed.task.is_client_held());
    while step(&mut relayed.task) || received.len() <= sent {
        received.extend(relayed.received_upstream());
    }
    let numbers: Vec<_> = received.iter().map(|append| number_of(append)).collect();
    assert_eq!(numbers, (0..=sent).collect::<Vec<_>>());
}

/// A process that was stopped for a while finds both: the answer, and the end of its time.
#[tokio::test(start_paused = true)]
async fn message_that_came_in_time_is_read_before_a_deadline_that_passed_meanwhile() {
    let mut relayed = Relayed::open().await;
    let due = Instant::now() + Duration::from_secs(5);
    let mut waiting = Box::pin(relayed.task.next_wakeup(Some(due)));
    assert!(waiting.as_mut().now_or_never().is_none());
    relayed.upstream.send(WsMessage::text(r#"{"type":"response.done"}"#)).await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    let first = waiting.as_mut().now_or_never();
    assert!(matches!(first, Some(Wakeup::Lane(_, SocketEvent::Message(_)))));
    drop(waiting);
    let then = relayed.task.next_wakeup(Some(due)).await;
    assert!(matches!(then, Wakeup::Timer));
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_no_answers_is_not_read_either() {
    let library = Library::embedded().unwrap();
    let (mapping, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
    let setup = SessionSetup::new(&mapping, library.profile("speech").unwrap(), &dialect.clone().into(), 1);
    let codec = Codec::new(mapping, 0.0);
    let bridge = Bridge::open(std_now(), codec, ConnectQuery::default(), dialect, setup);
    let (mut task, mut client) = start(bridge).await;
    let outbox_bytes = |task: &Task| task.client.as_ref().map_or(0, ClientEnd::outbox_bytes);
    loop {
        // Each is answered by an error. There is always one to read.
        let unknown = || WsMessage::text(r#"{"type":"x"}"#);
        while unconstrained(client.send(unknown())).now_or_never().is_some() {}
        if !step(&mut task) {
            break;
        }
        assert!(outbox_bytes(&task) < CLIENT_OUTBOX_MAX_BYTES / 2, "the client is still read");
    }
    assert!(outbox_bytes(&task) > CLIENT_OUTBOX_MAX_BYTES / 8);
}

#[tokio::test(start_paused = true)]
async fn speech_that_waits_for_the_client_is_told_whenever_that_changes() {
    let library = Library::embedded().unwrap();
    let (mapping, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
    let setup = SessionSetup::new(&mapping, library.profile("speech").unwrap(), &dialect.clone().into(), 1);
    let bridge = Bridge::open(std_now(), Codec::new(mapping, 0.0), ConnectQuery::default(), dialect, setup);
    let (mut task, mut client) = start(bridge).await;
    while step(&mut task) {}
    assert_eq!(task.unwritten(), None);
    let (turn, frame) = (SpeechId(1), bytes::Bytes::from_static(&[0; 4096]));
    for _ in 0..100 {
        task.client.as_mut().unwrap().send_tagged(Message::Binary(frame.clone()), Some(turn));
    }
    assert_eq!(task.unwritten(), Some((turn, 409_600, 409_600)));
    assert_eq!(task.unwritten(), None, "nothing has changed");
    while step(&mut task) {}
    let (_, waiting, total) = task.unwritten().expect("the stream takes a part");
    assert!(waiting > 0 && waiting < total && total == 409_600, "{waiting} of {total}");
    while client.next().now_or_never().is_some() {
        while step(&mut task) {}
    }
    assert_eq!(task.unwritten(), Some((turn, 0, 409_600)), "all is written");
    assert_eq!(task.unwritten(), None);
}

/// Neighbours on the session's thread wait for its turn.
#[tokio::test(start_paused = true)]
async fn heavy_messages_end_the_turn_of_their_session() {
    const MESSAGES: usize = 40;
    /// Heavy, and still handled on the session's own thread: larger ones finish whenever their thread has time.
    const MESSAGE_BYTES: usize = 30_000;
    let library = Library::embedded().unwrap();
    let (mapping, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
    let setup = SessionSetup::new(&mapping, library.profile("speech").unwrap(), &dialect.clone().into(), 1);
    let bridge = Bridge::open(std_now(), Codec::new(mapping, 0.0), ConnectQuery::default(), dialect, setup);
    let (task, mut client) = start_with_room(bridge, 4 << 20).await;
    for _ in 0..MESSAGES {
        let unknown = format!(r#"{{"type":"x","filler":"{}"}}"#, "x".repeat(MESSAGE_BYTES));
        client.send(WsMessage::text(unknown)).await.unwrap();
    }
    let mut running = Box::pin(unconstrained(Box::new(task).run(None)));
    let (mut answered, mut most) = (0, 0);
    while answered < MESSAGES {
        assert!((&mut running).now_or_never().is_none());
        let errors = std::iter::from_fn(|| unconstrained(client.next()).now_or_never().flatten())
            .filter(|message| message.as_ref().unwrap().to_text().unwrap().contains("error"))
            .count();
        most = most.max(errors);
        answered += errors;
    }
    // Two slices: answers that a slice leaves unwritten are written by the next.
    assert!(most <= 12, "{most} messages in one poll");
}

/// Every attempt to reach the upstream fails. Returns the client's messages.
async fn words_about_unreachable_upstream(tells_upstream_addresses: bool) -> String {
    let library = Library::embedded().unwrap();
    let setup = RelaySetup {
        profile: library.profile("relay").unwrap(),
        idle_ms: None,
        session_max_ms: 0,
        unix_s: 0.0,
        seed: 1,
    };
    let (mapping, dialect) = (library.client("minicpm-o").unwrap(), library.upstream("minicpm-o").unwrap());
    let (mut task, mut client) =
        start(Bridge::open_relay(std_now(), &[mapping], "mode=audio", dialect, setup)).await;
    task.tells_upstream_addresses = tells_upstream_addresses;
    while let Some(due) = task.drain_bridge() {
        let wakeup = match task.lanes.first() {
            Some((lane, _)) => {
                let reason = "10.0.0.7:8006: connection refused".to_owned();
                Wakeup::Dialled(*lane, Err(DisconnectReason::Unreachable(reason)))
            }
            None => {
                tokio::time::sleep_until(due.expect("a retry or the end")).await;
                Wakeup::Timer
            }
        };
        task.handle_wakeup(wakeup);
    }
    let mut words = String::new();
    while let Ok(Some(Ok(message))) = tokio::time::timeout(Duration::from_secs(10), client.next()).await {
        words.push_str(&message.to_string());
    }
    words
}

#[tokio::test(start_paused = true)]
async fn addresses_of_upstreams_are_for_operators_only() {
    let (client, operator) =
        (words_about_unreachable_upstream(false).await, words_about_unreachable_upstream(true).await);
    assert!(client.contains("cannot be reached") && !client.contains("10.0.0.7"), "{client}");
    assert!(operator.contains("10.0.0.7:8006: connection refused"), "{operator}");
}
