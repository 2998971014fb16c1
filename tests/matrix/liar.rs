//! A server that says what no good server says, and a client who has to live with it.

use std::{net::SocketAddr, path::PathBuf, sync::LazyLock, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};
use voxbridge::{
    config::{Config, UpstreamConfig},
    mapping::Library,
    server::Server,
};

use crate::{
    bench::{Client, scratch, upgrade, upstream_at},
    doors::push,
    relayed::{Tongue, asked},
};

/// Longer than anything takes here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// One thing that it says.
#[derive(Debug, Clone)]
pub(crate) enum Lie {
    Say(String),
    Binary(usize),
    /// Bytes of its own on the connection.
    Raw(Vec<u8>),
    /// The same, and nothing ever again.
    Half(Vec<u8>),
    Close(u16),
    Drop,
}

/// When it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// In place of saying that the session is open.
    Opening,
    /// In answer to what it is told next.
    Answering,
}

/// Who meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Talks,
    Dictates,
    Relayed(Tongue),
    /// Relayed, in mode chat.
    Chats,
}

/// A client, the dialect of the liar, and whether both spell alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meeting {
    pub(crate) who: Who,
    pub(crate) liar: Tongue,
}

pub(crate) const MEETINGS: [Meeting; 8] = [
    Meeting { who: Who::Talks, liar: Tongue::Current },
    Meeting { who: Who::Talks, liar: Tongue::Older },
    Meeting { who: Who::Dictates, liar: Tongue::Current },
    Meeting { who: Who::Chats, liar: Tongue::Current },
    Meeting { who: Who::Relayed(Tongue::Current), liar: Tongue::Current },
    Meeting { who: Who::Relayed(Tongue::Older), liar: Tongue::Current },
    Meeting { who: Who::Relayed(Tongue::Current), liar: Tongue::Older },
    Meeting { who: Who::Relayed(Tongue::Older), liar: Tongue::Older },
];

/// What the client saw: its texts as they came, and how it ended.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) texts: Vec<String>,
    pub(crate) closed: Option<u16>,
}

impl Meeting {
    const fn native(self) -> bool {
        matches!(
            (self.who, self.liar),
            (Who::Relayed(Tongue::Current) | Who::Chats, Tongue::Current)
                | (Who::Relayed(Tongue::Older), Tongue::Older)
        )
    }

    /// They meet: the liar says all this, the client leaves when it was heard, and it has an end.
    pub(crate) async fn take_place(self, when: When, lies: Vec<Lie>) {
        let (done, heard) = watch::channel(false);
        let (address, liar) = listen(self.liar, when, lies.clone(), done).await;
        let dialect = if self.liar == Tongue::Older { "minicpm-o-legacy" } else { "minicpm-o" };
        let upstream = vec![UpstreamConfig { dialect: dialect.into(), ..upstream_at(address) }];
        let profile = if self.who == Who::Dictates { "speech" } else { "conversation" };
        let config = Config {
            upstream,
            profile: Some(profile.into()),
            mappings: Some(HASTY.clone()),
            ..Config::default()
        };
        let server = Server::bind("127.0.0.1:0", config.service().unwrap()).await.unwrap();
        let bridge = server.local_addr().unwrap();
        let serving = tokio::spawn(server.run(std::future::pending()));
        let story = timeout(PATIENCE, self.visit(bridge, when, heard)).await;
        serving.abort();
        liar.abort();
        let short: Vec<_> = lies.iter().map(|lie| shortened(&format!("{lie:?}"))).collect();
        let Ok(story) = story else { panic!("{self:?} {when:?} {short:?}: it does not end") };
        self.judge(&story, &format!("{self:?} {when:?} {short:?}"));
    }

    async fn visit(self, bridge: SocketAddr, when: When, mut heard: watch::Receiver<bool>) -> Story {
        let path = match self.who {
            Who::Talks | Who::Dictates => "/v1/realtime?model=x",
            Who::Relayed(_) => "/v1/realtime?mode=audio",
            Who::Chats => "/v1/realtime?mode=chat",
        };
        let (_, mut client) = upgrade(TcpStream::connect(bridge).await.unwrap(), path, "", &[]).await;
        let mut story = Story { texts: Vec::new(), closed: None };
        push(&mut client, self.says()).await;
        let input = match self.who {
            Who::Relayed(tongue) => Some(tongue.append(&[0; 16_000], false, false)),
            Who::Chats => Some(asked("Hello there")),
            Who::Talks | Who::Dictates => None,
        };
        if let Some(input) = input.filter(|_| when == When::Answering) {
            story.goes_on_until(&mut client, |text| text.contains("session.created")).await;
            push(&mut client, Message::text(input.to_string())).await;
        }
        // Either everything was heard, or it is over before.
        tokio::select! {
            _ = heard.wait_for(|heard| *heard) => {}
            () = story.goes_on(&mut client) => return story,
        }
        push(&mut client, Message::text(json!({"type": "session.close"}).to_string())).await;
        story.goes_on(&mut client).await;
        story
    }

    /// What makes the bridge open an upstream session, and ask something of it.
    fn says(self) -> Message {
        match self.who {
            Who::Talks => Message::binary(vec![0; 64_000]),
            Who::Dictates => Message::text(json!({"type": "tts.speak", "text": "Hello there."}).to_string()),
            Who::Relayed(tongue) => Message::text(tongue.opening().to_string()),
            Who::Chats => Message::text(Tongue::Current.opening().to_string()),
        }
    }

    /// The client had an end, in its own words, and nothing that its protocol does not have.
    fn judge(self, story: &Story, what: &str) {
        let told: Vec<_> = story.texts.iter().map(|text| shortened(text)).collect();
        let codes: &[u16] = match self.who {
            Who::Talks | Who::Dictates => &[1000, 1011],
            Who::Relayed(_) | Who::Chats => &[1000, 1012, 1013],
        };
        let closed = story.closed.is_some_and(|code| codes.contains(&code));
        assert!(closed, "{what}: {:?} {told:?}", story.closed);
        if self.native() {
            return;
        }
        let mut speaking = false;
        for text in &story.texts {
            let event: Value =
                serde_json::from_str(text).unwrap_or_else(|_| panic!("{what}: no JSON: {text}"));
            let kind = event["type"].as_str().unwrap_or_else(|| panic!("{what}: {text}"));
            assert!(self.has(kind), "{what}: {text}");
            match kind {
                "tts.speaking_start" => assert!(!std::mem::replace(&mut speaking, true), "{what}: {told:?}"),
                "tts.speaking_end" => assert!(std::mem::replace(&mut speaking, false), "{what}: {told:?}"),
                _ => {}
            }
        }
        assert!(!speaking, "{what}: {told:?}");
    }

    /// The client's protocol has such an event.
    fn has(self, kind: &str) -> bool {
        let own: &[&str] = match self.who {
            Who::Talks | Who::Dictates => &[
                "tts.speaking_start",
                "tts.speaking_end",
                "transcript.partial",
                "transcript.final",
                "vad.speech_start",
                "vad.speech_end",
                "session.frames_dropped",
                "session.rate_limit",
            ],
            Who::Relayed(Tongue::Older) => &[
                "session.queued",
                "session.queue_update",
                "session.queue_done",
                "response.listen",
                "response.output_audio.delta",
            ],
            Who::Relayed(Tongue::Current) | Who::Chats => &[
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

impl Story {
    /// Until the end.
    async fn goes_on(&mut self, client: &mut Client) {
        self.goes_on_until(client, |_| false).await;
    }

    /// Until such a text came, or the end.
    async fn goes_on_until(&mut self, client: &mut Client, such: impl Fn(&str) -> bool) {
        while let Some(Ok(message)) = client.socket.next().await {
            match message {
                Message::Text(text) => {
                    self.texts.push(text.to_string());
                    if such(&text) {
                        return;
                    }
                }
                Message::Close(frame) => self.closed = frame.map(|frame| frame.code.into()),
                _ => {}
            }
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(160).collect()
}

/// A server at this address that has said everything when `done`.
async fn listen(
    tongue: Tongue,
    when: When,
    lies: Vec<Lie>,
    done: watch::Sender<bool>,
) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listening = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (lies, done) = (lies.clone(), done.clone());
            tokio::spawn(async move {
                serve(stream, tongue, when, lies).await;
                done.send_replace(true);
            });
        }
    });
    (address, listening)
}

type Socket = WebSocketStream<TcpStream>;

/// One session: `None` when the other end is gone.
async fn serve(stream: TcpStream, tongue: Tongue, when: When, lies: Vec<Lie>) -> Option<()> {
    let mut socket = accept_async(stream).await.ok()?;
    say(&mut socket, &json!({"type": "session.queue_done"})).await?;
    hears(&mut socket).await?;
    if when == When::Answering {
        let created = match tongue {
            Tongue::Older => json!({"type": "session.created", "session_id": "rt_1", "prompt_length": 58}),
            Tongue::Current => {
                json!({"type": "session.created", "session_id": "sess_1", "mode": "full_duplex"})
            }
        };
        say(&mut socket, &created).await?;
        hears(&mut socket).await?;
    }
    for lie in lies {
        match lie {
            Lie::Say(text) => socket.send(Message::text(text)).await.ok()?,
            Lie::Binary(bytes) => socket.send(Message::binary(vec![0; bytes])).await.ok()?,
            Lie::Raw(bytes) => socket.get_mut().write_all(&bytes).await.ok()?,
            Lie::Half(bytes) => {
                socket.get_mut().write_all(&bytes).await.ok()?;
                tokio::spawn(async move { while let Some(Ok(_)) = socket.next().await {} });
                return Some(());
            }
            Lie::Close(code) => {
                let frame = CloseFrame { code: CloseCode::from(code), reason: "because".into() };
                socket.close(Some(frame)).await.ok()?;
            }
            Lie::Drop => return None,
        }
    }
    // What answers this has read all that came before.
    socket.send(Message::Ping(Vec::new().into())).await.ok()?;
    while !matches!(socket.next().await?.ok()?, Message::Pong(_)) {}
    // A goodbye is not answered either.
    tokio::spawn(async move { while let Some(Ok(_)) = socket.next().await {} });
    Some(())
}

async fn say(socket: &mut Socket, message: &Value) -> Option<()> {
    socket.send(Message::text(message.to_string())).await.ok()
}

/// The next message.
async fn hears(socket: &mut Socket) -> Option<()> {
    while !matches!(socket.next().await?.ok()?, Message::Text(_)) {}
    Some(())
}

/// Profiles without patience.
static HASTY: LazyLock<PathBuf> = LazyLock::new(|| {
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
        let changed = times
            .iter()
            .fold(source.to_owned(), |source, (key, value)| crate::servers::with_value(&source, key, value));
        if source.contains("\nclose_max_ms") {
            std::fs::write(dir.join(format!("{name}.toml")), changed).unwrap();
        }
    }
    dir
});
