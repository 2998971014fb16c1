//! A relayed session between two streams in memory, polled step by step.

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::io::DuplexStream;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use super::*;
use crate::{
    bridge::Input,
    mapping::Library,
    net::{CountedStream, Transport},
    server::websocket::{WebSocket, session_socket::websocket_config, stream::ClientStream},
    session::RelaySetup,
};

/// Room for everything that the client sends.
const CLIENT_STREAM_BYTES: usize = 4 << 20;
/// Room for a few appends.
const LANE_STREAM_BYTES: usize = 64 << 10;

struct Relayed {
    task: SessionTask<CountedStream<ClientStream>>,
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
        let (near, far) = tokio::io::duplex(CLIENT_STREAM_BYTES);
        let (stream, _) = CountedStream::new(ClientStream::Memory(near));
        let context = SessionContext {
            tap: None,
            memory: (Arc::default(), MemoryBudget::DEFAULT_MAX_BYTES),
            traces: Vec::new(),
            trace_context: Arc::new(TraceContext::from_headers(
                std::iter::empty(),
                std::iter::empty(),
                &mut fastrand::Rng::new(),
            )),
            registration: None,
            drain: watch::channel(None).1,
            close_timeout: Duration::ZERO,
            drain_guard: mpsc::channel(1).0,
        };
        let task = SessionTask::new(bridge, websocket(stream, Role::Server), Pool::new([]), context);
        let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let (near, far) = tokio::io::duplex(LANE_STREAM_BYTES);
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

    /// Handles one event; false if there is none.
    fn step(&mut self) -> bool {
        let due = self.task.drain_bridge().expect("the session is open");
        let wakeup = self.task.next_wakeup(due).now_or_never();
        wakeup.map(|wakeup| self.task.handle_wakeup(wakeup)).is_some()
    }

    /// Handles events until there are no more.
    fn run(&mut self) {
        while self.step() {}
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
        let next = std::iter::from_fn(|| self.upstream.next().now_or_never().flatten());
        next.map(|message| message.unwrap().to_text().unwrap().to_owned()).collect()
    }
}

fn websocket<S: AsyncRead + AsyncWrite + Unpin>(stream: S, role: Role) -> MeteredWebSocket<S> {
    let stream = WebSocket::new(stream, Vec::new(), role, websocket_config(1 << 20));
    MeteredWebSocket { stream, traffic: Arc::default() }
}

fn number_of(append: &str) -> usize {
    let message: serde_json::Value = serde_json::from_str(append).unwrap();
    message["input"]["number"].as_u64().unwrap() as usize
}

#[tokio::test(start_paused = true)]
async fn message_read_as_the_hold_ends_does_not_overtake_those_held_back() {
    let mut relayed = Relayed::open().await;
    let mut sent = 0;
    while relayed.task.backlog.is_empty() {
        relayed.send_append(sent).await;
        relayed.run();
        sent += 1;
    }
    assert!(relayed.task.is_client_held());
    // In one poll, first the upstream takes enough to end the hold, then the next message is read.
    let mut received = relayed.received_upstream();
    relayed.send_append(sent).await;
    relayed.task.lanes_first = false;
    assert!(relayed.step() && !relayed.task.is_client_held());
    while relayed.step() || received.len() <= sent {
        received.extend(relayed.received_upstream());
    }
    let numbers: Vec<_> = received.iter().map(|append| number_of(append)).collect();
    assert_eq!(numbers, (0..=sent).collect::<Vec<_>>());
}
