//! Protocol detection and routing to an upstream.

use super::*;

/// The protocol the bridge detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DetectedProtocol {
    /// Macaw, with a model.
    Macaw,
    /// Macaw without a model, which is an error of that protocol.
    MacawWithoutModel,
    OpenAi,
    Relayed(RelayDialect),
}

/// Detects the protocol from the bridge's first message.
async fn detected_protocol(mut client: Client) -> DetectedProtocol {
    loop {
        match client.next().await {
            ClientFrame::Event(event) if event["type"] == "session.queue_done" => {}
            ClientFrame::Event(event) if event["type"] == "session.created" => {
                return protocol_of_created(&event);
            }
            ClientFrame::Event(event) if event["type"] == "error" => {
                assert_eq!(event["message"], "Query parameter 'model' is required");
                client.read_to_end().await;
                assert_close(&client, 1008);
                return DetectedProtocol::MacawWithoutModel;
            }
            other => panic!("unexpected message {other:?}"),
        }
    }
}

fn protocol_of_created(event: &Value) -> DetectedProtocol {
    if event["session"]["object"].as_str().is_some_and(|object| object.starts_with("realtime.")) {
        return DetectedProtocol::OpenAi;
    }
    match (event.get("config"), event.get("prompt_length"), event.get("mode")) {
        (Some(_), None, None) => DetectedProtocol::Macaw,
        (None, Some(_), None) => DetectedProtocol::Relayed(RelayDialect::Legacy),
        (None, None, Some(_)) => DetectedProtocol::Relayed(RelayDialect::Current),
        _ => panic!("event of no known protocol: {event}"),
    }
}

fn text(message: Value) -> Option<Message> {
    Some(Message::text(message.to_string()))
}

/// A gateway of the older protocol, for several clients.
fn legacy_simulator() -> SimulatorConfig {
    let dialect = SimDialect::Legacy { follows_document: false };
    SimulatorConfig { dialect, workers: 4, turn_units: 1, ..instant_simulator() }
}

#[tokio::test]
async fn protocol_is_detected_from_path_query_and_first_message() {
    let bench = Bench::start().await;
    let (older, current) =
        (DetectedProtocol::Relayed(RelayDialect::Legacy), DetectedProtocol::Relayed(RelayDialect::Current));
    let configure = || text(json!({"type": "session.configure", "language": "en"}));
    let opens = |dialect: RelayDialect| text(dialect.opening());
    for (path, first, expected) in [
        ("/v1/realtime?model=x", None, DetectedProtocol::Macaw),
        ("/api/v1/realtime?model=x", None, DetectedProtocol::Macaw),
        ("/v1/realtime?language=en", None, DetectedProtocol::MacawWithoutModel),
        ("/v1/realtime?mode=audio", opens(RelayDialect::Current), current),
        ("/v1/realtime?mode=audio", opens(RelayDialect::Legacy), older),
        ("/v1/realtime?mode=video", opens(RelayDialect::Current), current),
        ("/v1/realtime?mode=video", opens(RelayDialect::Legacy), older),
        ("/v1/realtime?mode=chat", opens(RelayDialect::Current), current),
        ("/v1/realtime", opens(RelayDialect::Current), current),
        ("/v1/realtime", opens(RelayDialect::Legacy), older),
        ("/v1/realtime?unknown=1", opens(RelayDialect::Legacy), older),
        ("/v1/realtime?model=x&mode=audio", opens(RelayDialect::Current), current),
        ("/v1/realtime?model=x&mode=audio", configure(), DetectedProtocol::Macaw),
        ("/v1/realtime?model=x&mode=audio", None, DetectedProtocol::Macaw),
        ("/v1/realtime", configure(), DetectedProtocol::MacawWithoutModel),
        ("/v1/realtime", Some(Message::binary(vec![0; 640])), DetectedProtocol::MacawWithoutModel),
        ("/v1/realtime", text(json!({"type": "what"})), DetectedProtocol::MacawWithoutModel),
        ("/v1/realtime", Some(Message::text("{")), DetectedProtocol::MacawWithoutModel),
    ] {
        let mut client = bench.dial(path).await;
        let request = format!("{path} {first:?}");
        if let Some(message) = first {
            client.send(message).await;
        }
        assert_eq!(detected_protocol(client).await, expected, "{request}");
    }
}

#[tokio::test]
async fn openai_clients_are_recognised_by_their_signs() {
    const BEARER: &str = "Authorization: Bearer sk-test\r\n";
    let bench = Bench::start().await;
    let update = || text(json!({"type": "session.update", "session": {"type": "realtime"}}));
    let append = || text(json!({"type": "input_audio_buffer.append", "audio": "AAAA"}));
    let configure = || text(json!({"type": "session.configure", "language": "en"}));
    let (openai, macaw) = (DetectedProtocol::OpenAi, DetectedProtocol::Macaw);
    for (path, headers, first, expected, sign) in [
        ("/openai/v1/realtime?model=x", "", None, openai, "path"),
        ("/openai/realtime?api-version=2024-10-01&deployment=mine", "", None, openai, "path"),
        ("/v1/realtime?intent=transcription", "", None, openai, "query"),
        ("/v1/realtime?model=x", "Sec-WebSocket-Protocol: realtime\r\n", None, openai, "header"),
        ("/v1/realtime?model=x", "User-Agent: LiveKit Agents\r\n", None, openai, "header"),
        ("/v1/realtime?model=x", "OpenAI-Beta: realtime=v1\r\n", None, openai, "header"),
        ("/v1/realtime?model=gpt-realtime", "", None, openai, "model"),
        ("/v1/realtime?model=x", "", update(), openai, "first_message"),
        ("/v1/realtime?model=x", "", append(), openai, "first_message"),
        ("/v1/realtime?model=x", BEARER, None, openai, "unasked_key"),
        ("/v1/realtime?model=x", BEARER, configure(), macaw, "first_message"),
        ("/v1/realtime?model=x", BEARER, Some(Message::binary(vec![0; 640])), macaw, "first_message"),
        ("/v1/realtime?model=x", "", None, macaw, "default"),
        ("/v1/realtime?model=x", "X-API-Key: k\r\n", None, macaw, "default"),
        ("/v1/realtime?model=x&language=en", BEARER, None, macaw, "query"),
    ] {
        let (head, mut client) = bench.open_websocket(path, headers).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{path} {headers}: {head}");
        assert!(!head.contains("sk-test"), "{head}");
        let request = format!("{path} {headers} {first:?}");
        if let Some(message) = first {
            client.send(message).await;
        }
        let mut created = client.wait_for_event("session.created").await;
        // A request without a sign may be announced as Macaw's before the first message decides.
        if sign == "first_message" && headers.is_empty() && protocol_of_created(&created) == macaw {
            created = client.wait_for_event("session.created").await;
        }
        assert_eq!(protocol_of_created(&created), expected, "{request}");
        let signs: Vec<_> = bench.sessions.all().iter().map(|it| it.info.detected_by.clone()).collect();
        assert!(signs.iter().any(|found| found == sign), "{request}: {sign} is not in {signs:?}");
    }
}

/// Vosk's clients stay what they are where others share their path.
#[tokio::test]
async fn clients_at_the_root_are_told_by_subprotocol_or_first_message() {
    let speech = || Some(Message::binary(vec![0; 640]));
    let run = |task: &str| {
        text(
            json!({"header": {"action": "run-task", "task_id": "t"}, "payload": {"task": task, "parameters": {"format": "pcm"}}}),
        )
    };
    for (path, headers, first, client, sign) in [
        ("/", "Sec-WebSocket-Protocol: binary\r\n", None, "funasr", "header"),
        ("/", "", text(json!({"is_speaking": true, "mode": "2pass"})), "funasr", "first_message"),
        ("/", "", text(json!({"uid": "u", "language": "en"})), "whisper-live", "first_message"),
        ("/", "", text(json!({"config": {"sample_rate": 16000}})), "vosk", "default"),
        ("/", "", speech(), "vosk", "default"),
        ("/", "", None, "vosk", "default"),
        ("/?language=en", "", text(json!({"uid": "u"})), "vosk", "query"),
        ("/funasr", "", None, "funasr", "path"),
        ("/api-ws/v1/inference", "", run("asr"), "dashscope-asr", "default"),
        ("/api-ws/v1/inference/", "", run("tts"), "dashscope-tts", "first_message"),
    ] {
        let bench = Bench::start().await;
        let (head, mut socket) = bench.open_websocket(path, headers).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{path} {headers}: {head}");
        let is_agreed = head.to_ascii_lowercase().contains("sec-websocket-protocol: binary");
        assert_eq!(is_agreed, headers.contains("binary"), "{head}");
        let request = format!("{path} {headers} {first:?}");
        if let Some(message) = first {
            socket.send(message).await;
        }
        let found = || {
            bench
                .sessions
                .all()
                .iter()
                .map(|it| (it.info.client.clone(), it.info.detected_by.clone()))
                .collect::<Vec<_>>()
        };
        wait_until(&request, || found() == [(client.to_owned(), sign.to_owned())]).await;
    }
}

/// A Macaw client waits for the announcement, so it comes before the first message has told the protocol.
#[tokio::test]
async fn macaw_client_is_announced_before_its_protocol_is_certain() {
    let bench = Bench::start().await;
    let mut client = bench.dial("/v1/realtime?model=x").await;
    let created = client.wait_for_event("session.created").await;
    assert_eq!(protocol_of_created(&created), DetectedProtocol::Macaw);
    client.send_json(json!({"type": "session.update", "session": {"type": "realtime"}})).await;
    assert_eq!(detected_protocol(client).await, DetectedProtocol::OpenAi);
}

#[tokio::test]
async fn silent_client_without_model_or_mode_gets_no_worker() {
    let bench = Bench::start().await;
    for path in ["/v1/realtime", "/v1/realtime?unknown=1"] {
        let mut client = bench.dial(path).await;
        let ClientFrame::Event(error) = client.next().await else { panic!("{}", client.describe_received()) };
        assert_eq!(error["message"], "Query parameter 'model' is required", "{path}");
        client.read_to_end().await;
        assert_close(&client, 1008);
    }
    let mut late = bench.dial("/v1/realtime").await;
    sleep(Duration::from_secs(1)).await;
    late.send(Message::text(RelayDialect::Current.opening().to_string())).await;
    assert_eq!(detected_protocol(late).await, DetectedProtocol::Relayed(RelayDialect::Current));
}

/// Where only relayed clients are served, a silent one waits for a worker, as on the real servers.
#[tokio::test]
async fn silent_unnamed_client_gets_queue_events_where_all_clients_are_relayed() {
    let relayed_only = configuration("[[route]]\nprofile = \"relay\"\n");
    let bench = Bench::of(relayed_only).await;
    for dialect in [RelayDialect::Current, RelayDialect::Legacy] {
        let mut client = bench.dial("/v1/realtime").await;
        assert_eq!(client.next().await.kind(), "session.queue_done");
        client.send(Message::text(dialect.opening().to_string())).await;
        assert_eq!(detected_protocol(client).await, DetectedProtocol::Relayed(dialect));
    }
}

/// The legacy server takes every unknown mode for audio, so its clients may name any mode.
#[tokio::test]
async fn unknown_mode_is_rejected_before_upgrade_when_detectable() {
    const ROUTE: &str = "[[route]]\npath = \"/current\"\nprotocol = \"minicpm-o\"\nprofile = \"relay\"\n";
    let bench = Bench::of(configuration(&format!("profile = \"speech\"\n{ROUTE}"))).await;
    for query in ["mode=", "mode=Audio", "mode=audio&mode=telepathy", "mode=%00"] {
        let (head, _) = bench.open_websocket(&format!("/current?{query}"), "").await;
        assert!(head.starts_with("HTTP/1.1 403 "), "{query}: {head}");
        let mut client = bench.dial(&format!("/v1/realtime?{query}")).await;
        client.send(Message::text(RelayDialect::Legacy.opening().to_string())).await;
        assert_eq!(
            detected_protocol(client).await,
            DetectedProtocol::Relayed(RelayDialect::Legacy),
            "{query}"
        );
    }
}

#[tokio::test]
async fn relayed_client_without_route_gets_error() {
    let bench = Bench::of(configuration("[[route]]\nclient = \"macaw\"\nprofile = \"speech\"\n")).await;
    let (head, _) = bench.open_websocket("/v1/realtime?mode=audio", "").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    // Without a relay route, the path belongs to Macaw alone.
    assert_eq!(
        detected_protocol(bench.dial("/v1/realtime").await).await,
        DetectedProtocol::MacawWithoutModel
    );
}

#[tokio::test]
async fn route_can_fix_protocol() {
    let routes = |lines: &[(&str, &str, &str)]| -> String {
        let route = |(path, protocol, profile): &(&str, &str, &str)| {
            format!("[[route]]\npath = {path:?}\nprotocol = {protocol:?}\nprofile = {profile:?}\n")
        };
        lines.iter().map(route).collect()
    };
    let forced = configuration(&routes(&[
        ("/older", "minicpm-o-legacy", "relay"),
        ("/newer", "minicpm-o", "relay"),
        ("/v1/*", "macaw", "conversation"),
    ]));
    let bench = Bench::of(forced).await;
    for (path, expected) in [
        ("/older?mode=audio", DetectedProtocol::Relayed(RelayDialect::Legacy)),
        ("/older", DetectedProtocol::Relayed(RelayDialect::Legacy)),
        ("/newer?mode=audio", DetectedProtocol::Relayed(RelayDialect::Current)),
        ("/newer", DetectedProtocol::Relayed(RelayDialect::Current)),
        ("/v1/realtime?mode=audio", DetectedProtocol::MacawWithoutModel),
        ("/v1/anything?model=x", DetectedProtocol::Macaw),
    ] {
        let mut client = bench.dial(path).await;
        if let DetectedProtocol::Relayed(dialect) = expected {
            client.send_json(dialect.opening()).await;
        }
        assert_eq!(detected_protocol(client).await, expected, "{path}");
    }
    // A client of another protocol on that route gets an error in the route's protocol.
    let mut foreign = bench.dial("/older?mode=audio").await;
    foreign.send_json(RelayDialect::Current.opening()).await;
    assert_eq!(foreign.wait_for_event("error").await["error"]["code"], "unknown_event");
    foreign.send_json(RelayDialect::Legacy.opening()).await;
    foreign.wait_for_event("session.created").await;
    // The legacy server accepts any mode; the current one does not.
    assert!(bench.open_websocket("/older?mode=chat", "").await.0.starts_with("HTTP/1.1 101 "));
    assert!(bench.open_websocket("/newer?mode=loud", "").await.0.starts_with("HTTP/1.1 403 "));
    assert!(bench.open_websocket("/elsewhere", "").await.0.starts_with("HTTP/1.1 404 "));
}

/// Two servers of two dialects.
const TWO: &str = r#"
    [[route]]
    client = "minicpm-o-legacy"
    upstream = "old"
    profile = "relay"

    [[route]]
    client = "minicpm-o"
    upstream = "new"
    profile = "relay"

    [[route]]
    client = "macaw"
    model = "talk-*"
    upstream = "old"
    profile = "conversation"

    [[route]]
    upstream = "new"
    profile = "speech"
"#;

#[tokio::test]
async fn routes_select_their_upstream() {
    let (old, _old, to_old) = start_simulator("127.0.0.1:0", legacy_simulator(), None).await;
    let named = |name: &str, upstream: UpstreamConfig| UpstreamConfig { name: Some(name.into()), ..upstream };
    let (new, _new, to_new) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let older = UpstreamConfig { dialect: "minicpm-o-legacy".into(), ..upstream_at(old) };
    let upstream = vec![named("new", upstream_at(new)), named("old", older)];
    let bench = Bench::of(Config { upstream, ..configuration(TWO) }).await;
    for (query, speaks, opened_old, opened_new) in [
        ("mode=audio", Some(RelayDialect::Legacy), 1, 0),
        ("mode=audio", Some(RelayDialect::Current), 0, 1),
        ("mode=video", Some(RelayDialect::Legacy), 1, 0),
        ("", Some(RelayDialect::Legacy), 1, 0),
        ("", Some(RelayDialect::Current), 0, 1),
        ("model=talk-1", None, 1, 0),
        ("model=whisper", None, 0, 1),
    ] {
        drop((to_old.take(), to_new.take()));
        let mut client = bench.dial(&format!("/v1/realtime?{query}")).await;
        match speaks {
            Some(dialect) => {
                client.send_json(dialect.opening()).await;
                client.wait_for_event("session.created").await;
            }
            // A client connects to only one of the two servers; the first second of audio shows which.
            None => {
                client.send_utterance(&recording("goforward")).await;
                client.stream_until(&[], |frame| frame.kind() == "transcript.final").await;
            }
        }
        client.close().await;
        let opened = |recorder: &InputRecorder| {
            let text = format!("{:?}", recorder.take());
            usize::from(text.contains("session.init") || text.contains("session.update"))
        };
        assert_eq!((opened(&to_old), opened(&to_new)), (opened_old, opened_new), "{query} {speaks:?}");
    }
}

#[tokio::test]
async fn client_waiting_for_server_is_detected() {
    let (old, _old, _) = start_simulator("127.0.0.1:0", legacy_simulator(), None).await;
    let (new, _new, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let older = UpstreamConfig { dialect: "minicpm-o-legacy".into(), ..upstream_at(old) };
    let upstream = vec![
        UpstreamConfig { name: Some("new".into()), ..upstream_at(new) },
        UpstreamConfig { name: Some("old".into()), ..older },
    ];
    let bench = Bench::of(Config { upstream, ..configuration(TWO) }).await;
    for dialect in [RelayDialect::Legacy, RelayDialect::Current] {
        let mut client = bench.dial("/v1/realtime?mode=audio").await;
        client.wait_for_event("session.queue_done").await;
        client.send_json(dialect.opening()).await;
        assert_eq!(detected_protocol(client).await, DetectedProtocol::Relayed(dialect));
    }
}

#[test]
fn routes_that_cannot_work_are_rejected() {
    let upstreams = "[[upstream]]\nname = \"new\"\nurl = \"ws://new/v1/realtime\"\n\
        [[upstream]]\nname = \"old\"\nurl = \"ws://old/v1/realtime\"\ndialect = \"minicpm-o-legacy\"\n";
    let config_with = |rest: &str| configuration(&format!("{rest}{upstreams}"));
    for rest in ["", "[[route]]\nprofile = \"conversation\"\n", "[[route]]\nprofile = \"relay\"\n"] {
        assert_eq!(config_with(rest).check(), Ok(()), "upstreams of two dialects serve one route");
    }
    for (rest, words) in [
        (
            "[[route]]\nupstream = \"nwe\"\nprofile = \"relay\"\n",
            &["no upstream matches `nwe`", "did you mean `new`"][..],
        ),
        ("[[route]]\nupstream = \"old\"\nprofile = \"speech\"\n", &["needs mode chat"]),
        ("[[route]]\nprotocol = \"macaw\"\nupstream = \"new\"\nprofile = \"speech\"\n", &["needs a `path`"]),
        (
            "[[route]]\nclient = \"macaw\"\nupstream = \"old\"\nprofile = \"relay\"\n",
            &["client \"macaw\" does not speak a protocol of the model"],
        ),
        (
            "[[route]]\nclient = \"minicpm-*\"\nupstream = \"new\"\nprofile = \"speech\"\n",
            &["matches no client", "is relayed"],
        ),
        (
            "[[route]]\nmodel = \"whisper*\"\nupstream = \"new\"\nprofile = \"relay\"\n",
            &["send no model name"],
        ),
        (
            "[[route]]\nclient = \"makaw\"\nupstream = \"new\"\nprofile = \"speech\"\n",
            &["unknown client protocol", "did you mean `macaw`"],
        ),
    ] {
        let problem = config_with(rest).check().unwrap_err();
        assert!(words.iter().all(|words| problem.contains(words)), "{rest}: {problem}");
    }
    assert_eq!(config_with(TWO).check(), Ok(()));
}

#[test]
fn speech_profile_on_server_without_chat_fails_configuration() {
    let config = |route: &str| -> Config {
        let upstream = "[[upstream]]\nurl = \"ws://gpu:8006/v1/realtime\"\ndialect = \"minicpm-o-legacy\"\n";
        toml::from_str(&format!("{upstream}{route}")).unwrap()
    };
    for route in ["", "profile = \"speech\"", "[[route]]\nclient = \"macaw\"\nprofile = \"speech\""] {
        let config = match route {
            "profile = \"speech\"" => Config { profile: Some("speech".into()), ..config("") },
            route => config(route),
        };
        for problem in [config.check().unwrap_err(), config.build_service().err().unwrap()] {
            assert!(problem.contains("profile \"speech\" needs mode chat"), "{route}: {problem}");
        }
    }
    assert_eq!(config("[[route]]\nprofile = \"conversation\"").check(), Ok(()));
}
