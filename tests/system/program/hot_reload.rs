//! Ten reloads of certificates, keys and mappings under load, with valid and invalid files in turn, by SIGHUP
//! and by order. No session is dropped and no sample lost. New sessions see the new state. Invalid files
//! change nothing and are reported.

use tokio_rustls::client::TlsStream;

use super::{tls::Authority, *};

/// Sessions that live through all reloads: this many speak, and as many have texts spoken.
const LIVE_SESSIONS: usize = 3;
const ROUNDS: usize = 10;
const TEXT: &str = "Good morning, everybody.";

/// Length of a frame.
const FRAME: Duration = Duration::from_millis(100);

/// An utterance in frames with the silence that ends it.
fn utterance() -> Vec<Message> {
    let samples = [recording("goforward"), vec![0; 8_000]].concat();
    bytes(&samples).chunks(3200).map(|frame| Message::binary(frame.to_vec())).collect()
}

/// A session over TLS.
struct Session {
    socket: WebSocketStream<TlsStream<TcpStream>>,
    /// Certificate the server presented.
    certificate: CertificateDer<'static>,
}

impl Session {
    /// Opens a session; fails with the status of the rejection.
    async fn open(server: &Server, tls: &TlsConnector, key: &str) -> Result<Self, u16> {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let stream = tls.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let certificates = stream.get_ref().1.peer_certificates().unwrap();
        let certificate = certificates[0].clone().into_owned();
        let mut request = "wss://localhost/v1/realtime?model=m".into_client_request().unwrap();
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
        match client_async(request, stream).await {
            Ok((socket, _)) => {
                let mut session = Self { socket, certificate };
                session.wait_for_event("session.created").await;
                Ok(session)
            }
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, message: Message) {
        timeout(PATIENCE, self.socket.send(message)).await.expect("the message cannot be sent").unwrap();
    }

    async fn send_json(&mut self, command: Value) {
        self.send(Message::text(command.to_string())).await;
    }

    /// Waits for the next event of this type and returns it with the audio before it.
    async fn wait_for_event(&mut self, kind: &str) -> (Value, Vec<u8>) {
        let mut audio = Vec::new();
        loop {
            let next = timeout(PATIENCE, self.socket.next()).await.unwrap_or_else(|_| panic!("never {kind}"));
            match next.unwrap_or_else(|| panic!("the connection ended before {kind}")).unwrap() {
                Message::Binary(bytes) => audio.extend_from_slice(&bytes),
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    if event["type"] == kind {
                        return (event, audio);
                    }
                }
                Message::Close(why) => panic!("closed before {kind}: {why:?}"),
                _ => {}
            }
        }
    }

    /// Says an utterance in real time and returns its transcript.
    async fn send_utterance(&mut self) -> Value {
        let mut ticks = interval(FRAME);
        for frame in utterance() {
            ticks.tick().await;
            self.send(frame).await;
        }
        self.wait_for_event("transcript.final").await.0["text"].clone()
    }

    /// Has a text spoken and returns all its samples.
    async fn speak_text(&mut self) -> Vec<u8> {
        self.send_json(json!({"type": "tts.speak", "text": TEXT})).await;
        self.wait_for_event("tts.speaking_end").await.1
    }

    /// The text of an error, which shows the mapping in use.
    async fn error_text(&mut self) -> String {
        self.send_json(json!({"type": "nope"})).await;
        self.wait_for_event("error").await.0["message"].as_str().unwrap().to_owned()
    }
}

/// State that a new session must see after this round.
struct ExpectedState {
    round: usize,
    cert: String,
}

impl ExpectedState {
    /// Writes valid files of this round.
    fn write(round: usize, dir: &Path, authority: &Authority) -> Self {
        let (cert, key) = authority.signed();
        replace_file(dir, "key.pem", &key);
        replace_file(dir, "cert.pem", &cert);
        replace_file(dir, "keys.toml", &format!("[[key]]\nname = \"a\"\nkey = \"{}\"\n", Self::key(round)));
        replace_file(&dir.join("mappings"), "macaw.toml", &macaw_with_error_text(&format!("Round {round}")));
        Self { round, cert }
    }

    fn key(round: usize) -> String {
        format!("key-of-round-{round}")
    }

    /// Checks that a new session sees this state and not the previous one.
    async fn assert_holds(&self, server: &Server, tls: &TlsConnector, round: usize) {
        let key = Self::key(self.round);
        let mut session = Session::open(server, tls, &key).await.unwrap_or_else(|status| panic!("{status}"));
        let own = CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap();
        assert!(session.certificate == own, "round {round}: another certificate");
        assert_eq!(session.error_text().await, format!("Round {}: 'nope'", self.round), "round {round}");
        session.send_json(json!({"type": "session.close"})).await;
        for other in [self.round.wrapping_sub(2), self.round + 1] {
            let refused = Session::open(server, tls, &Self::key(other)).await.err();
            assert_eq!(refused, Some(401), "round {round}: the key of round {other}");
        }
    }
}

/// Replaces a file atomically.
fn replace_file(dir: &Path, name: &str, text: &str) {
    let new = dir.join(format!("{name}.new"));
    fs::write(&new, text).unwrap();
    fs::rename(new, dir.join(name)).unwrap();
}

/// Breaks one of the files, a different one each round, beside valid files of a round that must never become
/// visible.
fn break_files(round: usize, dir: &Path, authority: &Authority) -> &'static str {
    ExpectedState::write(round, dir, authority);
    match round % 5 {
        0 => replace_file(dir, "key.pem", &authority.signed().1),
        1 => replace_file(dir, "keys.toml", "[[key]]\nname = \"a\"\nkei = \"x\"\n"),
        2 => replace_file(
            &dir.join("mappings"),
            "macaw.toml",
            &macaw_with_error_text("Bad").replace("command_key", "comand_key"),
        ),
        3 => replace_file(dir, "cert.pem", "no certificate"),
        _ => replace_file(dir, "keys.toml", "no keys"),
    }
    ["key.pem", "keys.toml", "macaw.toml", "cert.pem", "keys.toml"][round % 5]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_drop_no_session() {
    let _machine = busy_machine().await;
    let simulator = SimulatorConfig { record: false, workers: 32, ..instant_simulator() };
    let (address, _simulator, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    fs::remove_dir_all(scratch("replaced")).unwrap();
    let dir = scratch("replaced");
    fs::create_dir(dir.join("mappings")).unwrap();
    let authority = Authority::new();
    let mut state = ExpectedState::write(0, &dir, &authority);
    let toml = "mappings = \"mappings\"\n[access]\nkeys = \"keys.toml\"\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    let path = config(&dir, toml);
    let upstream = format!("ws://{address}/v1/realtime");
    let mut server = Server::start(&upstream, &["--config", &path]).await;
    let tls = authority.connector();
    let stop = Arc::new(AtomicBool::new(false));
    let rounds: Arc<[AtomicUsize; 2]> = Arc::default();
    let open = async || {
        let session = Session::open(&server, &tls, &ExpectedState::key(0)).await;
        session.unwrap_or_else(|status| panic!("{status}"))
    };
    let mut first = open().await;
    let voice = first.speak_text().await;
    assert!(voice.len() > 10_000, "{} bytes of a voice", voice.len());
    let mut tasks = Vec::new();
    for number in 0..2 * LIVE_SESSIONS {
        let (mut session, stop, rounds, voice) = (open().await, stop.clone(), rounds.clone(), voice.clone());
        tasks.push(tokio::spawn(async move {
            let mut words = Vec::new();
            while !stop.load(SeqCst) {
                match number % 2 {
                    0 => words.push(session.send_utterance().await),
                    _ => assert!(session.speak_text().await == voice, "samples are lost"),
                }
                rounds[number % 2].fetch_add(1, SeqCst);
            }
            assert_eq!(session.error_text().await, "Round 0: 'nope'", "an open session keeps its mapping");
            words
        }));
    }
    // Expected results from a server without reloads.
    let calm = Server::start(&upstream, &["--log", "error"]).await;
    let ended = stop.clone();
    let undisturbed = tokio::spawn(async move {
        let mut client = calm.client().await;
        let mut words = Vec::new();
        while !ended.load(SeqCst) || words.len() < 4 {
            let mut ticks = interval(FRAME);
            for frame in utterance() {
                ticks.tick().await;
                client.send(frame).await;
            }
            words.push(client.wait_for_event("transcript.final").await["text"].clone());
        }
        words
    });

    for round in 1..=ROUNDS {
        let (good, by_signal) = (round % 2 == 0, round % 4 < 2);
        let broken = match good {
            true => {
                state = ExpectedState::write(round, &dir, &authority);
                ""
            }
            false => break_files(round, &dir, &authority),
        };
        if by_signal {
            server.signal("-HUP").await;
            let line = server.wait_for_log("reloaded").await;
            assert!(line.contains("not reloaded") != good && line.contains(broken), "round {round}: {line}");
        } else {
            let answer = server.request("POST", "/reload").await;
            assert_eq!(answer.status, if good { 200 } else { 422 }, "round {round}: {answer:?}");
            assert!(answer.body.contains(broken), "round {round}: {answer:?}");
            server.wait_for_log("reloaded").await;
        }
        state.assert_holds(&server, &tls, round).await;
    }
    // Sessions that were speaking at the last reload have finished and speak once more.
    let utterance_count = || rounds[0].load(SeqCst);
    let enough = utterance_count() + 2 * LIVE_SESSIONS;
    let has_continued = || utterance_count() >= enough || tasks.iter().any(JoinHandle::is_finished);
    wait_until("the sessions continue", has_continued).await;
    stop.store(true, SeqCst);
    let undisturbed = undisturbed.await.unwrap();
    for one in tasks {
        let words = one.await.unwrap();
        let known = words.len().min(undisturbed.len());
        assert_eq!(words[..known], undisturbed[..known], "words are lost");
    }
    assert!(first.speak_text().await == voice, "the idle session still works");
    let metrics = server.request("GET", "/metrics").await.body;
    let [utterances, texts] = [0, 1].map(|kind: usize| rounds[kind].load(SeqCst));
    println!(
        "{utterances} utterances and {texts} texts of {} sessions during {ROUNDS} reloads",
        2 * LIVE_SESSIONS
    );
    println!("{}", metrics.lines().filter(|line| line.contains("reload")).collect::<Vec<_>>().join("\n"));
}
