//! A rolling restart under a hundred sessions: the old process takes leave while a new one takes over, and between them and
//! the clients stands what stands there in a cluster, which sends everybody to the one that says it is ready.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::Instant,
};
use voxbridge::simulator::{SimulatorConfig, Timing};

use crate::bench::{
    Client, Seen, assert_pairs, audio, bytes, events, quick, recording, scratch, simulate, upgrade,
};
use crate::operated::{PATIENCE, Server, config};

/// A balancer: connections go to who was ready when last asked.
struct Front {
    address: SocketAddr,
    target: watch::Sender<SocketAddr>,
}

impl Front {
    async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (target, at) = watch::channel(target);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server = *at.borrow();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.expect("who is ready accepts");
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, target }
    }

    /// A session, by whoever gives one. Who is refused is told to come back, and does.
    async fn dial(&self, path: &str) -> Client {
        for _ in 0..500 {
            let (head, client) =
                upgrade(TcpStream::connect(self.address).await.unwrap(), path, "", &[]).await;
            if head.starts_with("HTTP/1.1 101 ") {
                return client;
            }
            let head = head.to_lowercase();
            assert!(head.starts_with("http/1.1 503 ") && head.contains("\r\nretry-after: "), "{head}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody is let in");
    }

    async fn client(&self) -> Client {
        let mut client = self.dial(SPEECH).await;
        assert_eq!(client.next().await.kind(), "session.created");
        client
    }
}

const SPEECH: &str = "/v1/realtime?model=m";
const TALK: &str = "/v1/realtime?model=talk";
const CHAT: &str = "/v1/realtime?mode=chat";
const TEXT: &str = "Two seconds of this, and some more words that take their time until they have all been spoken. \
                    A second sentence follows the first one, as they do, and a third one is not far behind it, \
                    so that there is enough to say for a while.";

/// What a session is doing when the order comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In the middle of an utterance.
    Speaking,
    /// An utterance is said, and its words are not there yet.
    Owed,
    /// A text is being spoken.
    Text,
    /// The model's turn sounds.
    Turn,
    /// A relayed answer is on its way.
    Relay,
    /// Nothing.
    Idle,
}

const KINDS: [(Kind, usize); 6] = [
    (Kind::Speaking, 22),
    (Kind::Owed, 20),
    (Kind::Text, 20),
    (Kind::Turn, 10),
    (Kind::Relay, 14),
    (Kind::Idle, 14),
];

/// Where everybody is.
#[derive(Default)]
struct Progress {
    in_the_middle: AtomicUsize,
    ended: Mutex<Vec<(Kind, Instant)>>,
}

/// What is to be seen with a restart as without one.
#[derive(Debug, PartialEq)]
struct Heard {
    words: Vec<Value>,
    sound: Vec<i16>,
}

fn heard(seen: &[Seen]) -> Heard {
    Heard { words: words(seen), sound: audio(seen) }
}

fn words(seen: &[Seen]) -> Vec<Value> {
    let part = |event: &&Value| json!([event["text"], event["start_ms"], event["end_ms"]]);
    events(seen, "transcript.final").iter().map(part).collect()
}

/// The goodbye of a server that comes back, with nothing cut before it.
fn assert_goodbye(client: &Client) {
    assert_pairs(&client.seen);
    let last = client.seen.iter().rev().nth(1);
    assert!(matches!(last, Some(Seen::Close(1012, why)) if why == "server_shutdown"), "{}", client.story());
}

/// The rounds of everybody: first the rest comes into the middle of something, at last those whose middle is short.
struct Cast {
    front: Arc<Front>,
    progress: Arc<Progress>,
    /// 0 until all are connected and turns sound, 1 until texts do, 2 until the order has been given, then 3.
    act: watch::Receiver<u8>,
}

impl Cast {
    fn middle(&self) {
        self.progress.in_the_middle.fetch_add(1, SeqCst);
    }

    async fn act(&mut self, act: u8) {
        self.act.wait_for(|now| *now >= act).await.unwrap();
    }

    async fn play(mut self, kind: Kind) -> Heard {
        let spoken = recording("goforward");
        match kind {
            Kind::Speaking => {
                let mut client = self.front.client().await;
                self.middle();
                self.act(2).await;
                client.audio(&bytes(&spoken[..16_000]), 640).await;
                client.event("vad.speech_start").await;
                self.middle();
                self.act(3).await;
                client.say(&spoken[16_000..]).await;
                self.goes_on(client, kind).await
            }
            Kind::Owed => {
                let mut client = self.front.client().await;
                self.middle();
                self.act(2).await;
                client.say(&spoken).await;
                self.middle();
                self.goes_on(client, kind).await
            }
            Kind::Text => {
                let mut client = self.front.client().await;
                self.middle();
                self.act(1).await;
                client.command(json!({"type": "tts.speak", "text": TEXT})).await;
                client.event("tts.speaking_start").await;
                self.middle();
                let client = self.to_the_end(client, kind).await;
                assert_eq!(events(&client.seen, "tts.speaking_end")[0]["cancelled"], false);
                heard(&client.seen)
            }
            Kind::Turn => {
                let mut client = self.front.dial(TALK).await;
                self.middle();
                client.live(&spoken, |seen| seen.kind() == "tts.speaking_start").await;
                self.middle();
                client.live(&[], |seen| seen.kind() == "close").await;
                client.rest().await;
                self.progress.ended.lock().unwrap().push((kind, Instant::now()));
                assert_goodbye(&client);
                let ends = events(&client.seen, "tts.speaking_end");
                assert!(
                    !ends.is_empty() && ends.iter().all(|end| end["cancelled"] == false),
                    "{}",
                    client.story()
                );
                Heard { words: Vec::new(), sound: Vec::new() }
            }
            Kind::Relay => {
                let mut client = self.front.dial(CHAT).await;
                client.command(json!({"type": "session.init", "payload": {}})).await;
                client.event("session.created").await;
                self.middle();
                self.act(2).await;
                let input = json!({
                    "messages": [{"role": "user", "content": "Hello"}], "streaming": true, "tts": {"enabled": false},
                });
                client.command(json!({"type": "input.append", "input": input})).await;
                self.middle();
                client.rest().await;
                self.progress.ended.lock().unwrap().push((kind, Instant::now()));
                assert_eq!(events(&client.seen, "response.done").len(), 1, "{}", client.story());
                assert!(
                    client.seen.contains(&Seen::Close(1012, "server_shutdown".into())),
                    "{}",
                    client.story()
                );
                Heard { words: Vec::new(), sound: Vec::new() }
            }
            Kind::Idle => {
                let client = self.front.client().await;
                self.middle();
                self.act(2).await;
                self.middle();
                self.goes_on(client, kind).await
            }
        }
    }

    async fn to_the_end(&self, mut client: Client, kind: Kind) -> Client {
        client.rest().await;
        self.progress.ended.lock().unwrap().push((kind, Instant::now()));
        assert_goodbye(&client);
        client
    }

    /// It hears all it is owed, connects again as it was told, and says its next sentence there.
    async fn goes_on(&self, client: Client, kind: Kind) -> Heard {
        let before = self.to_the_end(client, kind).await;
        let mut client = self.front.client().await;
        client.say(&recording("arctic_a0007")).await;
        client.event("transcript.final").await;
        let after = client.close().await;
        let mut all = heard(&before.seen);
        all.words.extend(words(&after));
        all
    }
}

/// The same sentences and texts with nobody restarting anything.
async fn undisturbed(upstream: &str) -> [Heard; 2] {
    let server = Server::start(upstream, &["--log", "error"]).await;
    let mut sentences = Vec::new();
    for name in ["goforward", "arctic_a0007"] {
        let mut client = server.client().await;
        client.say(&recording(name)).await;
        client.event("transcript.final").await;
        sentences.extend(words(&client.close().await));
    }
    let mut client = server.client().await;
    client.command(json!({"type": "tts.speak", "text": TEXT})).await;
    client.event("tts.speaking_end").await;
    let spoken = heard(&client.close().await);
    [Heard { words: sentences, sound: Vec::new() }, spoken]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sessions_and_nobody_is_cut_off() {
    // Slow enough to be in the middle of something.
    let timing = Timing { first_delta: Duration::from_millis(1_500), ..Timing::default() };
    let simulator = SimulatorConfig { record: false, workers: 120, timing, turn_units: 6, ..quick() };
    let (address, _simulator, _) = simulate("127.0.0.1:0", simulator, None).await;
    let upstream = format!("ws://{address}/v1/realtime");
    let toml = "[drain]\ngrace_ms = 1000\n[[route]]\nmodel = \"talk\"\nprofile = \"conversation\"\n\
                [[route]]\nclient = \"minicpm-o*\"\nprofile = \"relay\"\n[[route]]\nprofile = \"speech\"\n";
    let path = config(&scratch("restart"), toml);
    let args = ["--log", "error", "--config", &path];
    let [sentences, text] = undisturbed(&upstream).await;
    let (old, new) = tokio::join!(Server::start(&upstream, &args), Server::start(&upstream, &args));
    let front = Arc::new(Front::before(old.address).await);
    let progress = Arc::new(Progress::default());
    let (acts, act) = watch::channel(0);
    let mut cast = Vec::new();
    for (kind, count) in KINDS {
        for _ in 0..count {
            let one = Cast { front: front.clone(), progress: progress.clone(), act: act.clone() };
            cast.push((kind, tokio::spawn(one.play(kind))));
        }
    }
    let all = cast.len();
    reached(&progress, all, "all are connected").await;
    // Turns take until now to sound, and last for seconds.
    let of = |wanted: Kind| {
        KINDS.iter().filter(|(kind, _)| *kind == wanted).map(|(_, count)| count).sum::<usize>()
    };
    reached(&progress, all + of(Kind::Turn), "turns sound").await;
    acts.send_replace(1);
    reached(&progress, all + of(Kind::Turn) + of(Kind::Text), "texts sound").await;
    acts.send_replace(2);
    reached(&progress, 2 * all, "everybody is in the middle of something").await;

    old.signal("-TERM").await;
    let ordered = Instant::now();
    old.until("/readyz", |answer| answer.status == 503).await;
    assert_eq!(new.ask("GET", "/readyz").await.status, 200);
    front.target.send_replace(new.address);
    acts.send_replace(3);
    let newcomers = join_all((0..10).map(|_| front.client()));
    let newcomers = tokio::time::timeout(PATIENCE, newcomers).await.expect("nobody new is let in");

    for (kind, played) in cast {
        let heard = played.await.unwrap_or_else(|problem| panic!("{kind:?}: {problem}"));
        match kind {
            Kind::Speaking | Kind::Owed => assert_eq!(heard, sentences, "{kind:?}"),
            Kind::Text => {
                assert!(heard == text, "{} samples instead of {}", heard.sound.len(), text.sound.len());
            }
            Kind::Idle => assert_eq!(heard.words, sentences.words[1..], "{kind:?}"),
            Kind::Turn | Kind::Relay => {}
        }
    }
    assert_eq!(old.ended().await, 0);
    println!("the old process has ended {:.1?} after the order", ordered.elapsed());
    for (kind, count) in KINDS {
        let ended = progress.ended.lock().unwrap();
        let after: Vec<Duration> = ended
            .iter()
            .filter(|one| one.0 == kind)
            .filter_map(|one| one.1.checked_duration_since(ordered))
            .collect();
        println!(
            "{kind:?}: {} of {count} ended after the order, the last {:.1?}",
            after.len(),
            after.iter().max()
        );
        assert!(!after.is_empty(), "{kind:?}: none was in the middle of anything");
    }
    join_all(newcomers.into_iter().map(Client::close)).await;
    new.signal("-TERM").await;
    assert_eq!(new.ended().await, 0);
}

async fn reached(progress: &Progress, count: usize, what: &str) {
    let reaching = async {
        while progress.in_the_middle.load(SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(2 * PATIENCE, reaching).await;
    assert!(reached.is_ok(), "{what}: never, but {} of {count}", progress.in_the_middle.load(SeqCst));
}

#[tokio::test]
async fn who_never_finishes_is_waited_for_no_longer_than_was_said() {
    let (address, _simulator, _) =
        simulate("127.0.0.1:0", SimulatorConfig { record: false, ..quick() }, None).await;
    let path = config(&scratch("restart-bound"), "[drain]\nwithin_ms = 700\n");
    let server = Server::start(&format!("ws://{address}/v1/realtime"), &["--config", &path]).await;
    let mut client = server.client().await;
    // It goes on talking, and hears nothing of the end.
    client.audio(&bytes(&recording("goforward")[..16_000]), 640).await;
    client.event("vad.speech_start").await;
    // Strangers who have not even begun are no reason to wait.
    let strangers = join_all((0..20).map(|_| TcpStream::connect(server.address))).await;
    let from = Instant::now();
    server.signal("-TERM").await;
    let code = server.ended().await;
    assert!(code == 0 || code == 3, "{code}");
    assert!(from.elapsed() < Duration::from_secs(8), "{:?}", from.elapsed());
    drop((client, strangers));
}

#[tokio::test]
async fn strangers_who_stall_do_not_hold_up_the_end() {
    use tokio::io::AsyncWriteExt as _;
    let server = Server::start("ws://127.0.0.1:9/v1/realtime", &[]).await;
    let mut strangers = Vec::new();
    for begin in [&b""[..], b"GET /v1/realtime HTTP/1.1\r\nHost: half"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begin).await.unwrap();
        strangers.push(stream);
    }
    // They have been accepted when the next one has been answered.
    assert!(server.dial().await.0.starts_with("HTTP/1.1 101 "));
    let from = Instant::now();
    server.signal("-TERM").await;
    assert_eq!(server.ended().await, 0);
    // They would have had ten seconds to finish their requests.
    assert!(from.elapsed() < Duration::from_secs(8), "{:?}", from.elapsed());
}
