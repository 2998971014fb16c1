//! A server that sends invalid output, and a client connected through the bridge.

use super::relay_client::chat_message;
use super::*;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One output of the faulty server.
#[derive(Debug, Clone)]
pub(crate) enum FaultyOutput {
    Say(String),
    Binary(usize),
    /// Raw bytes on the connection.
    Raw(Vec<u8>),
    /// Raw bytes on the connection, and nothing afterwards.
    Half(Vec<u8>),
    Close(u16),
    Drop,
}

/// The moment of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultPoint {
    /// In place of the session's opening.
    Opening,
    /// In reply to the next message.
    Answering,
}

/// The client of the faulty server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    Conversation,
    Speech,
    Relayed(RelayDialect),
    /// Relayed, in chat mode.
    Chat,
}

/// A client, the faulty server's dialect, and whether both share a dialect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultCase {
    pub(crate) client: ClientKind,
    pub(crate) server_dialect: RelayDialect,
}

pub(crate) const FAULT_CASES: [FaultCase; 8] = [
    FaultCase { client: ClientKind::Conversation, server_dialect: RelayDialect::Current },
    FaultCase { client: ClientKind::Conversation, server_dialect: RelayDialect::Legacy },
    FaultCase { client: ClientKind::Speech, server_dialect: RelayDialect::Current },
    FaultCase { client: ClientKind::Chat, server_dialect: RelayDialect::Current },
    FaultCase { client: ClientKind::Relayed(RelayDialect::Current), server_dialect: RelayDialect::Current },
    FaultCase { client: ClientKind::Relayed(RelayDialect::Legacy), server_dialect: RelayDialect::Current },
    FaultCase { client: ClientKind::Relayed(RelayDialect::Current), server_dialect: RelayDialect::Legacy },
    FaultCase { client: ClientKind::Relayed(RelayDialect::Legacy), server_dialect: RelayDialect::Legacy },
];

/// Messages at the client: its texts, unchanged, and how the connection ended.
#[derive(Debug)]
pub(crate) struct ClientLog {
    pub(crate) texts: Vec<String>,
    pub(crate) closed: Option<u16>,
}

impl FaultCase {
    const fn is_native(self) -> bool {
        matches!(
            (self.client, self.server_dialect),
            (ClientKind::Relayed(RelayDialect::Current) | ClientKind::Chat, RelayDialect::Current)
                | (ClientKind::Relayed(RelayDialect::Legacy), RelayDialect::Legacy)
        )
    }

    /// Runs the case: the server sends all outputs, the client leaves after receiving them, and the session
    /// must end.
    pub(crate) async fn run(self, point: FaultPoint, outputs: Vec<FaultyOutput>) {
        let (done, is_done) = watch::channel(false);
        let (address, faulty_server) =
            start_faulty_server(self.server_dialect, point, outputs.clone(), done).await;
        let dialect =
            if self.server_dialect == RelayDialect::Legacy { "minicpm-o-legacy" } else { "minicpm-o" };
        let upstream = vec![UpstreamConfig { dialect: dialect.into(), ..upstream_at(address) }];
        let profile = if self.client == ClientKind::Speech { "speech" } else { "conversation" };
        let config = Config {
            upstream,
            profile: Some(profile.into()),
            mappings: Some(SHORT_TIMEOUTS.clone()),
            ..Config::default()
        };
        let server = Server::bind("127.0.0.1:0", config.build_service().unwrap()).await.unwrap();
        let bridge = server.local_addr().unwrap();
        let serving = tokio::spawn(server.run(std::future::pending()));
        let log = timeout(PATIENCE, self.run_client(bridge, point, is_done)).await;
        serving.abort();
        faulty_server.abort();
        let short: Vec<_> = outputs.iter().map(|output| truncate(&format!("{output:?}"))).collect();
        let Ok(log) = log else { panic!("{self:?} {point:?} {short:?}: the session does not end") };
        self.assert_ended_properly(&log, &format!("{self:?} {point:?} {short:?}"));
    }

    async fn run_client(
        self,
        bridge: SocketAddr,
        point: FaultPoint,
        mut heard: watch::Receiver<bool>,
    ) -> ClientLog {
        let path = match self.client {
            ClientKind::Conversation | ClientKind::Speech => "/v1/realtime?model=x",
            ClientKind::Relayed(_) => "/v1/realtime?mode=audio",
            ClientKind::Chat => "/v1/realtime?mode=chat",
        };
        let (_, mut client) = open_websocket(TcpStream::connect(bridge).await.unwrap(), path, "", &[]).await;
        let mut log = ClientLog { texts: Vec::new(), closed: None };
        send_ignoring_errors(&mut client, self.first_message()).await;
        let input = match self.client {
            ClientKind::Relayed(dialect) => Some(dialect.append(&[0; 16_000])),
            ClientKind::Chat => Some(chat_message("Hello there")),
            ClientKind::Conversation | ClientKind::Speech => None,
        };
        if let Some(input) = input.filter(|_| point == FaultPoint::Answering) {
            log.read_until(&mut client, |text| text.contains("session.created")).await;
            send_ignoring_errors(&mut client, Message::text(input.to_string())).await;
        }
        // Either the client received everything, or the session ended before.
        tokio::select! {
            _ = heard.wait_for(|heard| *heard) => {}
            () = log.read_to_end(&mut client) => return log,
        }
        send_ignoring_errors(&mut client, Message::text(json!({"type": "session.close"}).to_string())).await;
        log.read_to_end(&mut client).await;
        log
    }

    /// The message that makes the bridge open an upstream session and use it.
    fn first_message(self) -> Message {
        match self.client {
            ClientKind::Conversation => Message::binary(vec![0; 64_000]),
            ClientKind::Speech => {
                Message::text(json!({"type": "tts.speak", "text": "Hello there."}).to_string())
            }
            ClientKind::Relayed(dialect) => Message::text(dialect.opening().to_string()),
            ClientKind::Chat => Message::text(RelayDialect::Current.opening().to_string()),
        }
    }

    /// Checks that the client's session ended in its own protocol, with known events only.
    fn assert_ended_properly(self, log: &ClientLog, what: &str) {
        let texts: Vec<_> = log.texts.iter().map(|text| truncate(text)).collect();
        let codes: &[u16] = match self.client {
            ClientKind::Conversation | ClientKind::Speech => &[1000, 1011],
            ClientKind::Relayed(_) | ClientKind::Chat => &[1000, 1012, 1013],
        };
        let closed = log.closed.is_some_and(|code| codes.contains(&code));
        assert!(closed, "{what}: {:?} {texts:?}", log.closed);
        if self.is_native() {
            return;
        }
        let mut speaking = false;
        for text in &log.texts {
            let event: Value =
                serde_json::from_str(text).unwrap_or_else(|_| panic!("{what}: not JSON: {text}"));
            let kind = event["type"].as_str().unwrap_or_else(|| panic!("{what}: {text}"));
            assert!(self.knows_event(kind), "{what}: {text}");
            match kind {
                "tts.speaking_start" => assert!(!std::mem::replace(&mut speaking, true), "{what}: {texts:?}"),
                "tts.speaking_end" => assert!(std::mem::replace(&mut speaking, false), "{what}: {texts:?}"),
                _ => {}
            }
        }
        assert!(!speaking, "{what}: {texts:?}");
    }

    /// True if the client's protocol has this event.
    fn knows_event(self, kind: &str) -> bool {
        let own: &[&str] = match self.client {
            ClientKind::Conversation | ClientKind::Speech => &[
                "tts.speaking_start",
                "tts.speaking_end",
                "transcript.partial",
                "transcript.final",
                "vad.speech_start",
                "vad.speech_end",
                "session.frames_dropped",
                "session.rate_limit",
            ],
            ClientKind::Relayed(RelayDialect::Legacy) => &[
                "session.queued",
                "session.queue_update",
                "session.queue_done",
                "response.listen",
                "response.output_audio.delta",
            ],
            ClientKind::Relayed(RelayDialect::Current) | ClientKind::Chat => &[
                "session.queued",
                "session.queue_update",
                "session.queue_done",
                "response.output.delta",
                "response.done",
            ],
        };
        own.contains(&kind) || ["session.created", "session.closed", "error"].contains(&kind)
    }
}

impl ClientLog {
    /// Reads to the end of the connection.
    async fn read_to_end(&mut self, client: &mut Client) {
        self.read_until(client, |_| false).await;
    }

    /// Reads until a matching text or the end.
    async fn read_until(&mut self, client: &mut Client, matches: impl Fn(&str) -> bool) {
        while let Some(Ok(message)) = client.socket.next().await {
            match message {
                Message::Text(text) => {
                    self.texts.push(text.to_string());
                    if matches(&text) {
                        return;
                    }
                }
                Message::Close(frame) => self.closed = frame.map(|frame| frame.code.into()),
                _ => {}
            }
        }
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(160).collect()
}

/// A server at this address; `done` fires after its last output.
async fn start_faulty_server(
    dialect: RelayDialect,
    point: FaultPoint,
    outputs: Vec<FaultyOutput>,
    done: watch::Sender<bool>,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listening = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (outputs, done) = (outputs.clone(), done.clone());
            tokio::spawn(async move {
                serve(stream, dialect, point, outputs).await;
                done.send_replace(true);
            });
        }
    });
    (address, listening)
}

type Socket = WebSocketStream<TcpStream>;

/// Serves one session; `None` if the peer disconnects.
async fn serve(
    stream: TcpStream,
    dialect: RelayDialect,
    point: FaultPoint,
    outputs: Vec<FaultyOutput>,
) -> Option<()> {
    let mut socket = accept_async(stream).await.ok()?;
    send_json(&mut socket, &json!({"type": "session.queue_done"})).await?;
    read_text(&mut socket).await?;
    if point == FaultPoint::Answering {
        let created = match dialect {
            RelayDialect::Legacy => {
                json!({"type": "session.created", "session_id": "rt_1", "prompt_length": 58})
            }
            RelayDialect::Current => {
                json!({"type": "session.created", "session_id": "sess_1", "mode": "full_duplex"})
            }
        };
        send_json(&mut socket, &created).await?;
        read_text(&mut socket).await?;
    }
    for output in outputs {
        match output {
            FaultyOutput::Say(text) => socket.send(Message::text(text)).await.ok()?,
            FaultyOutput::Binary(bytes) => socket.send(Message::binary(vec![0; bytes])).await.ok()?,
            FaultyOutput::Raw(bytes) => socket.get_mut().write_all(&bytes).await.ok()?,
            FaultyOutput::Half(bytes) => {
                socket.get_mut().write_all(&bytes).await.ok()?;
                tokio::spawn(async move { while let Some(Ok(_)) = socket.next().await {} });
                return Some(());
            }
            FaultyOutput::Close(code) => {
                let frame = CloseFrame { code: CloseCode::from(code), reason: "because".into() };
                socket.close(Some(frame)).await.ok()?;
            }
            FaultyOutput::Drop => return None,
        }
    }
    // A pong proves that the bridge has read everything before it.
    socket.send(Message::Ping(Vec::new().into())).await.ok()?;
    while !matches!(socket.next().await?.ok()?, Message::Pong(_)) {}
    // The close is not answered either.
    tokio::spawn(async move { while let Some(Ok(_)) = socket.next().await {} });
    Some(())
}

async fn send_json(socket: &mut Socket, message: &Value) -> Option<()> {
    socket.send(Message::text(message.to_string())).await.ok()
}

/// Waits for the next message.
async fn read_text(socket: &mut Socket) -> Option<()> {
    while !matches!(socket.next().await?.ok()?, Message::Text(_)) {}
    Some(())
}

/// Profiles with short timeouts.
static SHORT_TIMEOUTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = scratch("matrix-hasty");
    let times = [
        ("close_max_ms =", "300"),
        ("retry_first_ms =", "20"),
        ("retry_total_ms =", "1000"),
        ("init_max_ms =", "1000"),
        ("answer_max_ms =", "1000"),
        ("drain_max_ms =", "300"),
    ];
    for (_, name, _, source) in Library::embedded().unwrap().files() {
        let changed =
            times.iter().fold(source.to_owned(), |source, (key, value)| with_value(&source, key, value));
        if source.contains("\nclose_max_ms") {
            fs::write(dir.join(format!("{name}.toml")), changed).unwrap();
        }
    }
    dir
});

/// Replaces the value in the line that begins with this key.
fn with_value(source: &str, key: &str, value: &str) -> String {
    let line = |line: &str| if line.starts_with(key) { format!("{key} {value}") } else { line.to_owned() };
    source.lines().map(line).collect::<Vec<_>>().join("\n")
}
