//! SGLang-Omni's `/v1/realtime`: exchanges that its own server (`tests/servers`) answered, and the same rules beyond them.
//! Every exchange runs against the simulator, and against the package where Python can install it.
//!
//! A file of `tests/golden/sglang-omni` has the lines of one connection: `> ` is sent, `< ` must come next, in order and
//! complete. `$silence`, `$loud`, `$jpeg` and `$png` with a number stand for that many samples or bytes, `$ramp START COUNT` for
//! audio of the model, `$session` for the session's id, `$any` for any value.

use std::collections::HashSet;

use super::*;

/// One of the two servers, which runs while this is held.
enum RealtimeServer {
    Simulator(SocketAddr, #[expect(dead_code, reason = "stops the server")] RunningServer),
    Package(PackageServer),
}

impl RealtimeServer {
    /// The simulator and, where it is installed, the package.
    async fn both(faults: &[&str], options: &[&str]) -> Vec<Self> {
        let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        let cfg = SimulatorConfig {
            dialect: SimDialect::SglangOmni,
            workers: SimDialect::SglangOmni.default_workers(),
            timing: SimTiming::instant(),
            faults,
            ..SimulatorConfig::default()
        };
        let (address, server, _) = start_simulator("127.0.0.1:0", cfg, None).await;
        let package = PackageServer::sglang_omni(options).map(Self::Package);
        [Self::Simulator(address, server)].into_iter().chain(package).collect()
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Simulator(address, _) => *address,
            Self::Package(server) => server.address(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Simulator(..) => "simulator",
            Self::Package(_) => "package",
        }
    }

    /// Sends a handshake; returns the answer's head.
    async fn dial(&self, query: &str) -> (String, Client) {
        let stream = TcpStream::connect(self.address()).await.unwrap();
        open_websocket(stream, &format!("/v1/realtime{query}"), "", &[]).await
    }

    /// Status and body of a page.
    async fn get(&self, path: &str) -> (String, Value) {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap())
    }
}

/// Replaces the shorthand of a sent message.
fn expand(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(expand),
        Value::String(text) if text.starts_with('$') => {
            let (kind, count) = text.split_once(' ').unwrap();
            let count = count.parse().unwrap();
            let bytes = match kind {
                "$silence" => vec![0; 2 * count],
                "$loud" => [0, 0x20].repeat(count),
                "$jpeg" => [b"\xff\xd8", &vec![0; count - 2][..]].concat(),
                "$png" => [b"\x89PNG", &vec![0; count - 4][..]].concat(),
                _ => panic!("{text}"),
            };
            *text = STANDARD.encode(bytes);
        }
        _ => {}
    }
}

/// Writes an event like the files do. Its id must be new.
fn normalise(event: &Value, session: &mut String, ids: &mut HashSet<String>) -> Value {
    let mut event = event.clone();
    let id = event.as_object_mut().unwrap().remove("event_id").unwrap();
    let id = id.as_str().unwrap();
    assert!(id.len() == 36 && id.starts_with("evt_") && ids.insert(id.to_owned()), "{id}");
    if session.is_empty() {
        event["session"]["id"].as_str().unwrap().clone_into(session);
        assert!(session.len() == 37 && session.starts_with("sess_"), "{session}");
    }
    if event["type"] == "response.output_audio.delta" {
        let ramp = samples(&STANDARD.decode(event["delta"].as_str().unwrap()).unwrap());
        let marks: Vec<_> = ramp.iter().map(|sample| read_watermark(*sample).unwrap()).collect();
        assert!(marks.windows(2).all(|pair| pair[1] == (pair[0].0, (pair[0].1 + 1) % 8190)));
        event["delta"] = format!("$ramp {} {}", marks[0].1, marks.len()).into();
    }
    serde_json::from_str(&event.to_string().replace(session.as_str(), "$session")).unwrap()
}

/// Makes the members equal to which the file gives any value.
fn ignore_any(expected: &Value, event: &mut Value) {
    match (expected, event) {
        (Value::Object(expected), Value::Object(event)) => {
            for (key, value) in expected {
                event.get_mut(key).into_iter().for_each(|it| ignore_any(value, it));
            }
        }
        (Value::String(any), event) if any == "$any" => *event = expected.clone(),
        _ => {}
    }
}

async fn replay(server: &RealtimeServer, lines: &[String], file: &str) {
    let (head, mut client) = server.dial("").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let (mut session, mut ids) = (String::new(), HashSet::new());
    let place = |line: &str| format!("{} in {file}, after {line}", server.name());
    let mut last_sent = "the handshake";
    for line in lines {
        if let Some(sent) = line.strip_prefix("> ") {
            last_sent = sent;
            let message = match (sent, sent.strip_prefix("$text ")) {
                ("$binary", _) => Message::binary("x"),
                (_, Some(text)) => Message::text(text),
                _ => {
                    let mut event = serde_json::from_str(sent).unwrap();
                    expand(&mut event);
                    Message::text(event.to_string())
                }
            };
            client.send(message).await;
        } else if let Some(code) = line.strip_prefix("< $close ") {
            let end = client.next().await;
            assert!(
                matches!(end, ClientFrame::Close(given, _) if given.to_string() == code),
                "{}: {end:?}",
                place(last_sent)
            );
        } else if let Some(expected) = line.strip_prefix("< ") {
            let ClientFrame::Event(event) = client.next().await else {
                panic!("{}: the connection ends", place(last_sent))
            };
            let expected: Value = serde_json::from_str(expected).unwrap();
            let mut event = normalise(&event, &mut session, &mut ids);
            ignore_any(&expected, &mut event);
            assert_eq!(event, expected, "{}", place(last_sent));
        }
    }
}

#[tokio::test]
async fn exchanges_are_answered_like_the_package_answered_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/sglang-omni");
    let mut count = 0;
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        let options = |name: &str| -> Vec<&str> {
            let start = format!("# {name}: ");
            lines
                .iter()
                .filter_map(|line| line.strip_prefix(&start))
                .flat_map(str::split_whitespace)
                .collect()
        };
        for server in RealtimeServer::both(&options("simulator"), &options("package")).await {
            replay(&server, &lines, &path.file_name().unwrap().to_string_lossy()).await;
        }
        count += 1;
    }
    assert_eq!(count, 8);
}

#[tokio::test]
async fn third_connection_is_refused_until_one_of_two_ends() {
    for server in RealtimeServer::both(&[], &[]).await {
        let (_, first) = server.dial("").await;
        let (_, second) = server.dial("").await;
        let (head, _) = server.dial("").await;
        assert!(head.starts_with("HTTP/1.1 503 "), "{}: {head}", server.name());
        drop(first);
        // The server notices the end a moment later.
        let next_served = async { while !server.dial("").await.0.starts_with("HTTP/1.1 101 ") {} };
        timeout(Duration::from_secs(20), next_served).await.expect("no session is free");
        drop(second);
    }
}

#[tokio::test]
async fn handshake_that_names_a_session_or_another_model_is_forbidden() {
    for server in RealtimeServer::both(&[], &[]).await {
        for (query, status) in [
            ("?session_id=sess_1", "403"),
            ("?model=gpt-realtime", "403"),
            ("?model=openbmb/MiniCPM-o-4_5", "101"),
            ("?intent=conversation", "101"),
        ] {
            let (head, mut client) = server.dial(query).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{} {query}: {head}", server.name());
            if status == "101" {
                client.wait_for_event("session.created").await;
                client.send_json(json!({"type": "session.close", "event_id": "a"})).await;
                client.read_to_end().await;
            }
        }
    }
}

#[tokio::test]
async fn pages_describe_the_deployment() {
    let mut pages = Vec::new();
    for server in RealtimeServer::both(&[], &[]).await {
        let (status, page) = server.get("/v1/realtime/capabilities").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert_eq!(page["input_image_format"]["max_frames_per_unit"], 4);
        assert_eq!(server.get("/health").await.1, json!({"status": "healthy", "running": true}));
        assert_eq!(
            server.get("/nothing").await,
            ("HTTP/1.1 404 Not Found".into(), json!({"detail": "Not Found"}))
        );
        pages.push(page);
    }
    assert!(pages.windows(2).all(|pair| pair[0] == pair[1]), "{pages:?}");
}

#[test]
fn session_without_an_update_ends_after_a_minute() {
    let mut sim =
        TestGateway::new(SimulatorConfig { dialect: SimDialect::SglangOmni, ..SimulatorConfig::default() });
    let conn = sim.connect_with_mode(SimMode::Video);
    sim.advance(Duration::from_secs(59));
    assert_eq!(event_names(&sim.events_of(conn)), ["session.created"]);
    sim.advance(Duration::from_secs(1));
    assert_eq!(event_names(&sim.events_of(conn)), ["session.created", "error", "session.closed"]);
    let events = sim.events_of(conn);
    assert_eq!(events[1]["error"]["code"], "session_update_timeout");
    assert_eq!(events[1]["error"]["message"], "session not opened within 60 s");
    assert_eq!(events[1]["sglang"]["fatal"], true);
    assert_eq!(sim.end_of(conn), normal_close());
}

#[test]
fn input_budget_of_a_minute_refuses_an_append_that_may_be_repeated() {
    let mut sim = TestGateway::new(SimulatorConfig {
        dialect: SimDialect::SglangOmni,
        faults: vec!["never-answers".parse().unwrap()],
        ..SimulatorConfig::default()
    });
    let conn = sim.connect_with_mode(SimMode::Video);
    sim.send(conn, &json!({"type": "session.update", "event_id": "a", "session": {}}));
    sim.advance(Duration::from_secs(1));
    let append = |seq: usize, samples: usize| {
        let audio = STANDARD.encode(vec![0; 2 * samples]);
        json!({"type": "input_audio_buffer.append", "event_id": "b", "audio": audio, "sglang": {"seq": seq}})
    };
    for (seq, samples, answer) in [
        (0, 16_000, "sglang.input_audio.accepted"),
        (1, 58 * 16_000, "sglang.input_audio.accepted"),
        (2, 16_001, "error"),
        (2, 16_000, "sglang.input_audio.accepted"),
        (3, 1, "error"),
    ] {
        sim.send(conn, &append(seq, samples));
        let event = sim.last_event(conn);
        assert_eq!(event["type"], answer, "{event}");
        assert!(answer != "error" || event["error"]["code"] == "buffer_overflow", "{event}");
    }
}
