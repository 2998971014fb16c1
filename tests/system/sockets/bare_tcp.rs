//! Protocols on bare TCP: Wyoming and AudioSocket over real sockets, with broken, slow and refused clients.

use mdns_sd::{ServiceDaemon, ServiceEvent};

use super::*;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const LISTENERS: &str =
    "[[tcp]]\nprotocol = \"wyoming\"\nlisten = 0\n[[tcp]]\nprotocol = \"audiosocket\"\nlisten = 0\n";

fn config(more: &str) -> Config {
    toml::from_str(&format!("{more}\n{LISTENERS}")).unwrap()
}

async fn bench() -> Bench {
    Bench::of(config("")).await
}

/// A client of Wyoming.
struct Wyoming(BufReader<TcpStream>);

impl Wyoming {
    async fn connect(bench: &Bench) -> Self {
        Self(BufReader::new(TcpStream::connect(bench.tcp_address(0)).await.unwrap()))
    }

    /// Sends a message as the Python package does: its data behind the line.
    async fn send(&mut self, kind: &str, data: Value, payload: &[u8]) {
        let data = data.to_string();
        let line = json!({
            "type": kind, "version": "1.10.2", "data_length": data.len(), "payload_length": payload.len(),
        });
        self.send_bytes(&[line.to_string().as_bytes(), b"\n", data.as_bytes(), payload].concat()).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }

    /// The next message with its bytes; `None` at the end of the stream.
    async fn next(&mut self) -> Option<(Value, Vec<u8>)> {
        let mut line = String::new();
        timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("no message").unwrap();
        let message: Value =
            serde_json::from_str(Some(line).filter(|line| !line.is_empty())?.as_str()).unwrap();
        let length = message["payload_length"].as_u64().unwrap_or_default();
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        timeout(PATIENCE, self.0.read_exact(&mut payload)).await.expect("no bytes").unwrap();
        Some((message, payload))
    }

    /// All messages up to one of this kind, and all their bytes.
    async fn read_to(&mut self, kind: &str) -> (Vec<Value>, Vec<u8>) {
        let (mut messages, mut audio) = (Vec::new(), Vec::new());
        loop {
            let (message, payload) = self.next().await.unwrap_or_else(|| panic!("no {kind}: {messages:?}"));
            audio.extend(payload);
            let is_last = message["type"] == kind;
            messages.push(message);
            if is_last {
                return (messages, audio);
            }
        }
    }

    /// The text of the error that ends the connection.
    async fn read_error(&mut self) -> String {
        let (messages, _) = self.read_to("error").await;
        assert!(self.next().await.is_none(), "the connection stays open");
        messages.last().unwrap()["data"]["text"].as_str().unwrap().to_owned()
    }
}

fn of_kind<'m>(messages: &'m [Value], kind: &str) -> Vec<&'m Value> {
    messages.iter().filter(|message| message["type"] == kind).map(|message| &message["data"]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_utterances_are_one_transcript_with_its_parts() {
    let bench = bench().await;
    let mut client = Wyoming::connect(&bench).await;
    let format = json!({"rate": 16000, "width": 2, "channels": 1, "timestamp": null});
    for _ in 0..2 {
        client.send("transcribe", json!({"language": "en", "transcript_terms": ["Ada"]}), &[]).await;
        client.send("audio-start", format.clone(), &[]).await;
        let silence = vec![0; 16_000];
        let speech = [recording("goforward"), silence.clone(), recording("goforward"), silence].concat();
        for chunk in bytes(&speech).chunks(2048) {
            client.send("audio-chunk", format.clone(), chunk).await;
        }
        client.send("audio-stop", json!({}), &[]).await;
        let (messages, _) = client.read_to("transcript-stop").await;
        let finals = of_kind(&messages, "transcript");
        let [transcript] = finals.as_slice() else { panic!("{messages:?}") };
        let parts = of_kind(&messages, "transcript-chunk");
        let joined: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
        assert_eq!((parts.len(), json!(joined)), (2, transcript["text"].clone()), "{messages:?}");
        assert_eq!(messages[0]["type"], "transcript-start");
    }
    client.send("audio-stop", json!({}), &[]).await;
    let (messages, _) = client.read_to("transcript-stop").await;
    assert_eq!(of_kind(&messages, "transcript")[0]["text"], "", "a request without audio is answered, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_spoken_whole_or_as_it_comes() {
    let bench = bench().await;
    let text = "This is the first sentence. This is the second one";
    let mut client = Wyoming::connect(&bench).await;
    client.send("synthesize", json!({"text": text, "voice": {"name": "default"}}), &[]).await;
    let (messages, whole) = client.read_to("audio-stop").await;
    assert_eq!(messages[0]["data"], json!({"rate": 24000, "width": 2, "channels": 1}));
    assert!(whole.len() > 48_000, "{}", whole.len());

    client.send("synthesize-start", json!({}), &[]).await;
    for piece in ["This is the fir", "st sentence. Th"] {
        client.send("synthesize-chunk", json!({"text": piece}), &[]).await;
    }
    // The first sentence is spoken before the rest has come.
    client.read_to("audio-stop").await;
    client.send("synthesize-chunk", json!({"text": "is is the second one"}), &[]).await;
    client.send("synthesize", json!({"text": text}), &[]).await;
    client.send("synthesize-stop", json!({}), &[]).await;
    let (messages, _) = client.read_to("synthesize-stopped").await;
    assert_eq!(of_kind(&messages, "audio-start").len(), 1, "spoken once: {messages:?}");

    client.send("synthesize", json!({"text": "Again."}), &[]).await;
    client.read_to("audio-stop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_a_client_without_audio_are_answered() {
    let bench = bench().await;
    let mut client = Wyoming::connect(&bench).await;
    let context = json!({"conversation_id": "1"});
    client.send("transcript", json!({"text": "How are you?", "context": context}), &[]).await;
    let (messages, _) = client.read_to("handled-stop").await;
    let answer = of_kind(&messages, "handled")[0]["text"].as_str().unwrap();
    let chunks: String =
        of_kind(&messages, "handled-chunk").iter().map(|chunk| chunk["text"].as_str().unwrap()).collect();
    assert!(answer.contains("How are you?") && answer == chunks, "{messages:?}");
    client.send("transcript", json!({"text": ""}), &[]).await;
    client.read_to("not-handled").await;
    client.send("ping", json!({"text": "here"}), &[]).await;
    assert_eq!(client.read_to("pong").await.0[0]["data"]["text"], "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_messages_are_answered_and_end_the_connection() {
    let bench = bench().await;
    for (bytes, words) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "the line is not JSON"),
        (b"{\"type\":\"audio-chunk\",\"payload_length\":4294967295}\n", "(max 2097152)"),
        (b"{\"type\":\"audio-start\",\"data\":{\"rate\":16000,\"width\":4}}\n", "width"),
        (b"{\"type\":\"audio-start\",\"data\":{\"rate\":1}}\n", "1 Hz is not supported"),
        (b"{\"type\":\"synthesize\"}\n", "Field required"),
    ] {
        let mut client = Wyoming::connect(&bench).await;
        client.send_bytes(bytes).await;
        let told = client.read_error().await;
        assert!(told.contains(words), "{told}");
    }
    // Half a message, then the end: there is no client to answer.
    let mut client = Wyoming::connect(&bench).await;
    client.send_bytes(b"{\"type\":\"pi").await;
    client.0.get_mut().shutdown().await.unwrap();
    assert!(client.next().await.is_none());
    // An unknown message does not end the connection.
    let mut client = Wyoming::connect(&bench).await;
    client.send("detect", json!({}), &[]).await;
    client.send("describe", json!({}), &[]).await;
    let (messages, _) = client.read_to("info").await;
    assert_eq!(messages[0]["data"]["code"], "unknown-type");
    assert_eq!(messages[1]["data"]["asr"][0]["supports_transcript_streaming"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_or_stopping_server_turns_clients_away_in_their_protocol() {
    let mut bench = Bench::of(config("sessions_max = 1")).await;
    let mut first = Wyoming::connect(&bench).await;
    first.send("ping", json!({}), &[]).await;
    first.read_to("pong").await;
    let mut second = Wyoming::connect(&bench).await;
    assert_eq!(second.read_error().await, "too many sessions");
    bench.bridge.stop();
    assert_eq!(first.read_error().await, "voxbridge is stopping");
    bench.bridge.wait_until_ended().await;
}

/// Silence is no session: it takes no place and no worker, and newcomers are served.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_take_no_session_and_no_worker() {
    let simulator = SimulatorConfig { workers: 1, ..instant_simulator() };
    let limits = "sessions_max = 2\n[limits]\nhandshakes_max = 20\n";
    let bench = Bench::with_config(simulator, config(limits)).await;
    let mut silent = Vec::new();
    for at in 0..60 {
        let mut stream = TcpStream::connect(bench.tcp_address(at % 2)).await.unwrap();
        // Half a message does not count as a message.
        stream.write_all(if at % 4 < 2 { b"" } else { &[1, 0] }).await.unwrap();
        silent.push(stream);
    }
    let mut call = TcpStream::connect(bench.tcp_address(1)).await.unwrap();
    assert!(bench.sessions.is_empty() && bench.recorder.all().is_empty());
    call.write_all(&[&[1, 0, 16][..], &[7; 16]].concat()).await.unwrap();
    wait_until("the call is a session", || bench.sessions.len() == 1).await;
    let mut client = Wyoming::connect(&bench).await;
    client.send("ping", json!({}), &[]).await;
    client.read_to("pong").await;
    assert_eq!(bench.sessions.len(), 2);
    let count = |text: &str| -> Option<usize> {
        text.lines()
            .find_map(|line| line.strip_prefix("voxbridge_waiting{kind=\"connections\"} ")?.parse().ok())
    };
    let waiting = count(&bench.metrics.render()).unwrap();
    assert!((10..=20).contains(&waiting), "{waiting}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_without_a_message_ends_with_a_reason() {
    let bench = Bench::of(config("idle_timeout_ms = 300")).await;
    let mut client = Wyoming::connect(&bench).await;
    assert_eq!(client.read_error().await, "no message came");
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_admits_only_its_networks() {
    let config: Config =
        toml::from_str("[[tcp]]\nprotocol = \"wyoming\"\nlisten = 0\nallow = [\"10.0.0.0/8\"]").unwrap();
    let bench = Bench::of(config).await;
    let mut client = Wyoming::connect(&bench).await;
    assert!(client.next().await.is_none(), "closed without a word");
    assert!(bench.sessions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn audiosocket_call_is_answered_at_its_own_rate() {
    let bench = bench().await;
    let mut call = TcpStream::connect(bench.tcp_address(1)).await.unwrap();
    let (kind, frame_bytes) = (0x12, 640);
    call.write_all(&[&[1, 0, 16][..], &[7; 16]].concat()).await.unwrap();
    let question = [recording("goforward"), vec![0; 16_000]].concat();
    let mut audio =
        bytes(&question).chunks_exact(frame_bytes).map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter();
    let (mut pace, mut heard) = (interval(Duration::from_millis(20)), Vec::new());
    let (mut reader, mut writer) = call.split();
    let mut header = [0; 3];
    let dialogue = async {
        while heard.len() < 16_000 {
            tokio::select! {
                _ = pace.tick() => {
                    let frame = audio.next().unwrap_or_else(|| vec![0; frame_bytes]);
                    writer.write_all(&[&[kind, 2, 128][..], &frame].concat()).await.unwrap();
                }
                read = reader.read(&mut header[..1]) => {
                    assert_eq!(read.unwrap(), 1, "the call ended");
                    reader.read_exact(&mut header[1..]).await.unwrap();
                    assert_eq!(header, [kind, 2, 128]);
                    let mut frame = vec![0; frame_bytes];
                    reader.read_exact(&mut frame).await.unwrap();
                    heard.extend(frame);
                }
            }
        }
    };
    timeout(PATIENCE, dialogue).await.expect("no answer");
    writer.write_all(&[0, 0, 0]).await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, reader.read_to_end(&mut rest)).await.expect("the call goes on").unwrap();
    assert!(rest.ends_with(&[0, 0, 0]), "hung up");
}

/// Home Assistant finds a server by multicast DNS, and hears its goodbye.
#[tokio::test(flavor = "multi_thread")]
async fn announced_listener_is_found_and_says_goodbye() {
    let name = format!("Vox test {}", std::process::id());
    let config = format!(
        "[[tcp]]\nprotocol = \"wyoming\"\nlisten = \"0.0.0.0:0\"\nallow = [\"127.0.0.0/8\"]\nannounce = \"{name}\"\n"
    );
    let bench = Bench::of(toml::from_str(&config).unwrap()).await;
    let browser = ServiceDaemon::new().unwrap();
    let found = browser.browse("_wyoming._tcp.local.").unwrap();
    let full_name = format!("{name}._wyoming._tcp.local.");
    let next = async |is_wanted: &dyn Fn(&ServiceEvent) -> bool| loop {
        let event = timeout(PATIENCE, found.recv_async()).await.expect("nothing is announced").unwrap();
        if is_wanted(&event) {
            break event;
        }
    };
    let resolved =
        next(&|event| matches!(event, ServiceEvent::ServiceResolved(it) if it.fullname == full_name)).await;
    let ServiceEvent::ServiceResolved(service) = resolved else { unreachable!() };
    assert_eq!(service.port, bench.tcp_address(0).port());
    assert!(!service.addresses.is_empty());
    drop(bench);
    next(&|event| matches!(event, ServiceEvent::ServiceRemoved(_, name) if *name == full_name)).await;
    browser.shutdown().unwrap();
}
