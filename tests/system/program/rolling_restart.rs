//! Rolling restart under a hundred sessions: a new process takes over while the old one drains. A balancer
//! stands between them and the clients and routes to the ready process, as in a cluster.

use tokio::{io::copy_bidirectional, runtime};

use super::*;

/// A balancer: routes connections to the server that was ready at the last check.
struct Balancer {
    address: SocketAddr,
    target: watch::Sender<SocketAddr>,
}

impl Balancer {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (target, at) = watch::channel(target);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server = *at.borrow();
                tokio::spawn(async move {
                    let mut server =
                        TcpStream::connect(server).await.expect("a ready server accepts connections");
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, target }
    }

    /// Opens a session and retries after a rejection.
    async fn dial(&self, path: &str) -> Client {
        for _ in 0..500 {
            let (head, client) =
                open_websocket(TcpStream::connect(self.address).await.unwrap(), path, "", &[]).await;
            if head.starts_with("HTTP/1.1 101 ") {
                return client;
            }
            let head = head.to_lowercase();
            assert!(head.starts_with("http/1.1 503 ") && head.contains("\r\nretry-after: "), "{head}");
            sleep(Duration::from_millis(10)).await;
        }
        panic!("no server accepts the session");
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

/// A session's activity at the moment of the restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// In the middle of an utterance.
    Speaking,
    /// An utterance was sent, and its transcript is pending.
    AwaitingTranscript,
    /// A text is being spoken.
    Text,
    /// A model turn is being played.
    Turn,
    /// A relayed answer is pending.
    Relay,
    /// Idle.
    Idle,
}

const ACTIVITIES: [(Activity, usize); 6] = [
    (Activity::Speaking, 22),
    (Activity::AwaitingTranscript, 20),
    (Activity::Text, 20),
    (Activity::Turn, 10),
    (Activity::Relay, 14),
    (Activity::Idle, 14),
];

/// Progress of all sessions.
#[derive(Default)]
struct Progress {
    active: AtomicUsize,
    ended: Mutex<Vec<(Activity, Instant)>>,
}

/// Results that must be equal with and without a restart.
#[derive(Debug, PartialEq)]
struct Outcome {
    words: Vec<Value>,
    sound: Vec<i16>,
}

fn outcome_of(frames: &[ClientFrame]) -> Outcome {
    Outcome { words: transcript_words(frames), sound: audio(frames) }
}

fn transcript_words(frames: &[ClientFrame]) -> Vec<Value> {
    let part = |event: &&Value| json!([event["text"], event["start_ms"], event["end_ms"]]);
    events(frames, "transcript.final").iter().map(part).collect()
}

/// Checks that the session closed with the restart's reason and without a cut turn.
fn assert_goodbye(client: &Client) {
    assert_pairs_closed(&client.received);
    let last = client.received.iter().rev().nth(1);
    assert!(
        matches!(last, Some(ClientFrame::Close(1012, why)) if why == "server_shutdown"),
        "{}",
        client.describe_received()
    );
}

/// One session with its steps. Long activities start first, short ones last.
struct Participant {
    balancer: Arc<Balancer>,
    progress: Arc<Progress>,
    /// 0 until all are connected and turns play, 1 until texts play, 2 until the restart, then 3.
    phase: watch::Receiver<u8>,
}

impl Participant {
    fn mark_active(&self) {
        self.progress.active.fetch_add(1, SeqCst);
    }

    async fn wait_for_phase(&mut self, phase: u8) {
        self.phase.wait_for(|now| *now >= phase).await.unwrap();
    }

    async fn play(mut self, activity: Activity) -> Outcome {
        let spoken = recording("goforward");
        match activity {
            Activity::Speaking => {
                let mut client = self.balancer.client().await;
                self.mark_active();
                self.wait_for_phase(2).await;
                client.send_audio(&bytes(&spoken[..16_000]), 640).await;
                client.wait_for_event("vad.speech_start").await;
                self.mark_active();
                self.wait_for_phase(3).await;
                client.send_utterance(&spoken[16_000..]).await;
                self.finish_and_reconnect(client, activity).await
            }
            Activity::AwaitingTranscript => {
                let mut client = self.balancer.client().await;
                self.mark_active();
                self.wait_for_phase(2).await;
                client.send_utterance(&spoken).await;
                self.mark_active();
                self.finish_and_reconnect(client, activity).await
            }
            Activity::Text => {
                let mut client = self.balancer.client().await;
                self.mark_active();
                self.wait_for_phase(1).await;
                client.send_json(json!({"type": "tts.speak", "text": TEXT})).await;
                client.wait_for_event("tts.speaking_start").await;
                self.mark_active();
                let client = self.read_to_goodbye(client, activity).await;
                assert_eq!(events(&client.received, "tts.speaking_end")[0]["cancelled"], false);
                outcome_of(&client.received)
            }
            Activity::Turn => {
                let mut client = self.balancer.dial(TALK).await;
                self.mark_active();
                client.stream_until(&spoken, |frame| frame.kind() == "tts.speaking_start").await;
                self.mark_active();
                client.stream_until(&[], |frame| frame.kind() == "close").await;
                client.read_to_end().await;
                self.progress.ended.lock().unwrap().push((activity, Instant::now()));
                assert_goodbye(&client);
                let ends = events(&client.received, "tts.speaking_end");
                assert!(
                    !ends.is_empty() && ends.iter().all(|end| end["cancelled"] == false),
                    "{}",
                    client.describe_received()
                );
                Outcome { words: Vec::new(), sound: Vec::new() }
            }
            Activity::Relay => {
                let mut client = self.balancer.dial(CHAT).await;
                client.send_json(json!({"type": "session.init", "payload": {}})).await;
                client.wait_for_event("session.created").await;
                self.mark_active();
                self.wait_for_phase(2).await;
                let input = json!({
                    "messages": [{"role": "user", "content": "Hello"}], "streaming": true, "tts": {"enabled": false},
                });
                client.send_json(json!({"type": "input.append", "input": input})).await;
                self.mark_active();
                client.read_to_end().await;
                self.progress.ended.lock().unwrap().push((activity, Instant::now()));
                assert_eq!(
                    events(&client.received, "response.done").len(),
                    1,
                    "{}",
                    client.describe_received()
                );
                assert!(
                    client.received.contains(&ClientFrame::Close(1012, "server_shutdown".into())),
                    "{}",
                    client.describe_received()
                );
                Outcome { words: Vec::new(), sound: Vec::new() }
            }
            Activity::Idle => {
                let client = self.balancer.client().await;
                self.mark_active();
                self.wait_for_phase(2).await;
                self.mark_active();
                self.finish_and_reconnect(client, activity).await
            }
        }
    }

    async fn read_to_goodbye(&self, mut client: Client, activity: Activity) -> Client {
        client.read_to_end().await;
        self.progress.ended.lock().unwrap().push((activity, Instant::now()));
        assert_goodbye(&client);
        client
    }

    /// Finishes the activity, reconnects as instructed, and says the next sentence there.
    async fn finish_and_reconnect(&self, client: Client, activity: Activity) -> Outcome {
        let before = self.read_to_goodbye(client, activity).await;
        let mut client = self.balancer.client().await;
        client.send_utterance(&recording("arctic_a0007")).await;
        client.wait_for_event("transcript.final").await;
        let after = client.close().await;
        let mut all = outcome_of(&before.received);
        all.words.extend(transcript_words(&after));
        all
    }
}

/// A simulated model with a thread of its own, as a hundred clients on the threads of the test would delay its answers.
struct ModelApart {
    address: SocketAddr,
    _simulator: RunningServer,
    runtime: Option<Runtime>,
}

impl ModelApart {
    async fn start(config: SimulatorConfig) -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let starting = runtime.spawn(start_simulator("127.0.0.1:0", config, None));
        let (address, simulator, _) = starting.await.unwrap();
        Self { address, _simulator: simulator, runtime: Some(runtime) }
    }
}

impl Drop for ModelApart {
    fn drop(&mut self) {
        // A runtime that waits for its tasks cannot be dropped within another.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Outcomes of the same sentences and texts without a restart.
async fn outcomes_without_restart(upstream: &str) -> [Outcome; 2] {
    let server = Server::start(upstream, &["--log", "error"]).await;
    let mut sentences = Vec::new();
    for name in ["goforward", "arctic_a0007"] {
        let mut client = server.client().await;
        client.send_utterance(&recording(name)).await;
        client.wait_for_event("transcript.final").await;
        sentences.extend(transcript_words(&client.close().await));
    }
    let mut client = server.client().await;
    client.send_json(json!({"type": "tts.speak", "text": TEXT})).await;
    client.wait_for_event("tts.speaking_end").await;
    let spoken = outcome_of(&client.close().await);
    [Outcome { words: sentences, sound: Vec::new() }, spoken]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_interrupts_none_of_a_hundred_sessions() {
    let _machine = calm_machine().await;
    // Slow enough that the restart hits sessions in mid-activity.
    let timing = SimTiming { first_delta: Duration::from_millis(1_500), ..SimTiming::default() };
    let simulator =
        SimulatorConfig { record: false, workers: 120, timing, turn_units: 6, ..instant_simulator() };
    let model = ModelApart::start(simulator).await;
    let upstream = format!("ws://{}/v1/realtime", model.address);
    let toml = "[drain]\ngrace_ms = 1000\n[[route]]\nmodel = \"talk\"\nprofile = \"conversation\"\n\
                [[route]]\nclient = \"minicpm-o*\"\nprofile = \"relay\"\n[[route]]\nprofile = \"speech\"\n";
    let path = config(&scratch("restart"), toml);
    let args = ["--log", "error", "--config", &path];
    let [sentences, text] = outcomes_without_restart(&upstream).await;
    let (old, new) = tokio::join!(Server::start(&upstream, &args), Server::start(&upstream, &args));
    let balancer = Arc::new(Balancer::start(old.address).await);
    let progress = Arc::new(Progress::default());
    let (acts, phase) = watch::channel(0);
    let mut cast = Vec::new();
    for (activity, count) in ACTIVITIES {
        for _ in 0..count {
            let one =
                Participant { balancer: balancer.clone(), progress: progress.clone(), phase: phase.clone() };
            cast.push((activity, tokio::spawn(one.play(activity))));
        }
    }
    let all = cast.len();
    wait_for_active(&progress, all, "all are connected").await;
    // By now turns play, and they last for seconds.
    let count_of = |wanted: Activity| {
        ACTIVITIES.iter().filter(|(activity, _)| *activity == wanted).map(|(_, count)| count).sum::<usize>()
    };
    wait_for_active(&progress, all + count_of(Activity::Turn), "turns sound").await;
    acts.send_replace(1);
    wait_for_active(&progress, all + count_of(Activity::Turn) + count_of(Activity::Text), "texts sound")
        .await;
    acts.send_replace(2);
    wait_for_active(&progress, 2 * all, "everybody is in the middle of something").await;

    old.signal("-TERM").await;
    let ordered = Instant::now();
    old.request_until("/readyz", |answer| answer.status == 503).await;
    assert_eq!(new.request("GET", "/readyz").await.status, 200);
    balancer.target.send_replace(new.address);
    acts.send_replace(3);
    let newcomers = join_all((0..10).map(|_| balancer.client()));
    let newcomers = timeout(PATIENCE, newcomers).await.expect("new clients are not accepted");

    for (activity, played) in cast {
        let outcome_of = played.await.unwrap_or_else(|problem| panic!("{activity:?}: {problem}"));
        match activity {
            Activity::Speaking | Activity::AwaitingTranscript => {
                assert_eq!(outcome_of, sentences, "{activity:?}");
            }
            Activity::Text => {
                assert!(
                    outcome_of == text,
                    "{} samples instead of {}",
                    outcome_of.sound.len(),
                    text.sound.len()
                );
            }
            Activity::Idle => assert_eq!(outcome_of.words, sentences.words[1..], "{activity:?}"),
            Activity::Turn | Activity::Relay => {}
        }
    }
    assert_eq!(old.wait_for_end().await, 0);
    println!("the old process has ended {:.1?} after the order", ordered.elapsed());
    for (activity, count) in ACTIVITIES {
        let ended = progress.ended.lock().unwrap();
        let after: Vec<Duration> = ended
            .iter()
            .filter(|one| one.0 == activity)
            .filter_map(|one| one.1.checked_duration_since(ordered))
            .collect();
        println!(
            "{activity:?}: {} of {count} ended after the order, the last {:.1?}",
            after.len(),
            after.iter().max()
        );
        assert!(!after.is_empty(), "{activity:?}: no session was active at the restart");
    }
    join_all(newcomers.into_iter().map(Client::close)).await;
    new.signal("-TERM").await;
    assert_eq!(new.wait_for_end().await, 0);
}

async fn wait_for_active(progress: &Progress, count: usize, what: &str) {
    wait_until(&format!("{what}: {count} are active"), || progress.active.load(SeqCst) >= count).await;
}

#[tokio::test]
async fn drain_limit_ends_endless_session() {
    let (address, _simulator, _) =
        start_simulator("127.0.0.1:0", SimulatorConfig { record: false, ..instant_simulator() }, None).await;
    let path = config(&scratch("restart-bound"), "[drain]\ntimeout_ms = 700\n");
    let server = Server::start(&format!("ws://{address}/v1/realtime"), &["--config", &path]).await;
    let mut client = server.client().await;
    // The client keeps speaking and ignores the drain.
    client.send_audio(&bytes(&recording("goforward")[..16_000]), 640).await;
    client.wait_for_event("vad.speech_start").await;
    // Connections without a handshake must not delay the end.
    let idle_connections = join_all((0..20).map(|_| TcpStream::connect(server.address))).await;
    let from = Instant::now();
    server.signal("-TERM").await;
    let code = server.wait_for_end().await;
    assert!(code == 0 || code == 3, "{code}");
    assert!(from.elapsed() < Duration::from_secs(8), "{:?}", from.elapsed());
    drop((client, idle_connections));
}

#[tokio::test]
async fn stalled_connections_do_not_delay_shutdown() {
    use tokio::io::AsyncWriteExt as _;
    let server = Server::start("ws://127.0.0.1:9/v1/realtime", &[]).await;
    let mut stalled = Vec::new();
    for begin in [&b""[..], b"GET /v1/realtime HTTP/1.1\r\nHost: half"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begin).await.unwrap();
        stalled.push(stream);
    }
    // All connections are accepted once the next one has been answered.
    assert!(server.dial().await.0.starts_with("HTTP/1.1 101 "));
    let from = Instant::now();
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
    // Unfinished requests would otherwise have ten seconds.
    assert!(from.elapsed() < Duration::from_secs(8), "{:?}", from.elapsed());
}
