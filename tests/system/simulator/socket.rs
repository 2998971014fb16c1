//! The driver on real sockets.

use futures_util::FutureExt as _;
use voxbridge::simulator::socket::{Simulator, bind};

use super::*;

type Client = WebSocketStream<TcpStream>;

/// Starts a simulator that ends when the sender is dropped.
async fn start(
    cfg: SimulatorConfig,
    with: impl FnOnce(Simulator) -> Simulator,
) -> (SocketAddr, InputRecorder, oneshot::Sender<()>) {
    let simulator = with(bind("127.0.0.1:0", cfg).await.unwrap());
    let (address, recorder) = (simulator.local_addr(), simulator.recorder());
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(simulator.run(stopped.map(|_| ())));
    (address, recorder, stop)
}

async fn connect(address: SocketAddr, target: &str) -> Result<Client, Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    client_async(format!("ws://{address}{target}"), stream).await.map(|(client, _)| client)
}

async fn next_output(client: &mut Client) -> ServerOutput {
    match client.next().await {
        Some(Ok(Message::Text(text))) => ServerOutput::Event(serde_json::from_str(&text).unwrap()),
        Some(Ok(Message::Close(Some(frame)))) => {
            ServerOutput::Close(frame.code.into(), frame.reason.to_string())
        }
        Some(Err(_)) | None => ServerOutput::Abort,
        other => panic!("{other:?}"),
    }
}

/// The events until the connection ends or `until` has arrived.
async fn read_until(client: &mut Client, until: &str) -> (Vec<Value>, Option<ServerOutput>) {
    let mut events = Vec::new();
    loop {
        match next_output(client).await {
            ServerOutput::Event(event) => {
                let is_match = event["type"] == until;
                events.push(event);
                if is_match {
                    return (events, None);
                }
            }
            end => return (events, Some(end)),
        }
    }
}

async fn send_json(client: &mut Client, message: Value) {
    client.send(Message::text(message.to_string())).await.unwrap();
}

async fn run_asr_session(address: SocketAddr, samples: usize) -> (Client, Vec<Value>, Option<ServerOutput>) {
    let mut client = connect(address, "/v1/realtime?mode=chat").await.unwrap();
    send_json(&mut client, json!({"type": "session.init", "payload": {}})).await;
    send_json(&mut client, json!({"type": "input.append", "input": asr_request(samples)})).await;
    let (events, end) = read_until(&mut client, "response.done").await;
    (client, events, end)
}

#[tokio::test]
async fn chat_session_works_over_socket() {
    let (address, recorder, stop) = start(instant_simulator(), |simulator| simulator).await;
    for target in ["/v1/realtime?mode=", "/v1/realtime?mode=Chat", "/elsewhere?mode=chat"] {
        match connect(address, target).await {
            Err(Error::Http(response)) => assert_eq!(response.status(), 403, "{target}"),
            other => panic!("{target}: {other:?}"),
        }
    }
    let (mut client, events, _) = run_asr_session(address, 480_000).await;
    assert_eq!(events.last().unwrap()["text"], "simulated transcript: 30.00 s of speech");
    send_json(&mut client, json!({"type": "session.close", "reason": "done"})).await;
    let (events, end) = read_until(&mut client, "nothing").await;
    assert_eq!((events[0]["reason"].as_str(), end), (Some("done"), normal_close()));
    assert_eq!(recorder.asr_audio(), [vec![0.25; 480_000]]);
    assert_eq!(recorder.all().iter().filter(|one| matches!(one, RecordedInput::Message(..))).count(), 3);
    assert!(
        !recorder.take().iter().any(|one| matches!(one, RecordedInput::Disconnected(_))),
        "the session was closed politely"
    );
    drop(stop);
}

/// Sends a request head in two parts and returns the whole answer.
async fn http_get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET ").await.unwrap();
    tokio::task::yield_now().await;
    stream.write_all(format!("{path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn http_pages_are_served_beside_the_websocket() {
    let (address, _recorder, _stop) = start(instant_simulator(), |simulator| simulator).await;
    let (_client, ..) = run_asr_session(address, 16_000).await;
    let status = http_get(address, "/status?full=1").await;
    assert!(status.starts_with("HTTP/1.1 200 OK\r\n") && status.contains(r#""busy_workers":1,"#), "{status}");
    assert!(http_get(address, "/health").await.contains(r#"{"status":"healthy","#));
    assert!(http_get(address, "/nowhere").await.starts_with("HTTP/1.1 404 Not Found\r\n"));
}

#[tokio::test]
async fn full_duplex_session_works_over_socket() {
    let (address, recorder, _stop) = start(instant_simulator(), |simulator| simulator).await;
    for (target, has_video) in [("/v1/realtime?mode=audio", false), ("/v1/realtime", true)] {
        let mut client = connect(address, target).await.unwrap();
        send_json(&mut client, json!({"type": "session.init", "payload": {}})).await;
        let mut words = Vec::new();
        for (second, level) in [0.1, 0.2, 0.0, 0.0, 0.0, 0.0].into_iter().enumerate() {
            let input = json!({"audio": base64_f32(&[level; 16_000]), "force_listen": second == 0});
            send_json(&mut client, json!({"type": "input.append", "input": input})).await;
        }
        send_json(&mut client, json!({"type": "session.close", "reason": "done"})).await;
        let (events, end) = read_until(&mut client, "nothing").await;
        words.extend(event_names(&events));
        let expected = "session.queue_done session.created listen listen listen text audio text audio text audio \
                        listen session.closed";
        assert_eq!((words.join(" ").as_str(), end), (expected, normal_close()), "{target}");
        let received = recorder.take();
        let opened = |one: &RecordedInput| matches!(one, RecordedInput::DuplexOpened(_, opening) if opening.has_video == has_video);
        assert!(received.iter().any(opened));
        let units = received.iter().filter_map(|one| match one {
            RecordedInput::DuplexUnit(_, unit) => {
                Some((unit.samples[0], unit.samples.len(), unit.force_listen))
            }
            _ => None,
        });
        let expected = [(0.1, true), (0.2, false), (0.0, false), (0.0, false), (0.0, false), (0.0, false)];
        assert!(units.eq(expected.map(|(level, forced)| (level, 16_000, forced))));
    }
}

#[tokio::test]
async fn dropped_socket_makes_worker_reject_next_session() {
    let (address, recorder, _stop) = start(instant_simulator(), |simulator| simulator).await;
    let (client, ..) = run_asr_session(address, 16_000).await;
    drop(client);
    let is_disconnected = |one: &RecordedInput| matches!(one, RecordedInput::Disconnected(_));
    wait_until("the socket is dropped", || recorder.all().iter().any(is_disconnected)).await;
    let (_client, events, end) = run_asr_session(address, 16_000).await;
    assert_eq!(
        (event_names(&events), end),
        (vec!["session.queue_done".to_owned(), "error".to_owned()], normal_close())
    );
    // The worker's cleanup began before the disconnect was recorded.
    sleep(instant_simulator().timing.cleanup).await;
    let (_client, _, end) = run_asr_session(address, 16_000).await;
    assert_eq!(end, None);
}

#[tokio::test]
async fn drop_fault_sends_no_close_frame() {
    let faults = vec!["drop-mid-answer=1".parse().unwrap()];
    let (address, _recorder, _stop) =
        start(SimulatorConfig { faults, ..instant_simulator() }, |simulator| simulator).await;
    let (_client, _, end) = run_asr_session(address, 16_000).await;
    assert_eq!(end, Some(ServerOutput::Abort));
}

struct EchoEngines;

impl SpeechEngines for EchoEngines {
    fn recognise(&self, samples: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        async move { Ok(format!("heard {}", samples.len())) }.boxed()
    }

    fn speak(&self, text: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        async move { Ok(vec![0.5; text.len() * 10_000]) }.boxed()
    }
}

#[tokio::test]
async fn engines_answer_over_socket() {
    let (address, _recorder, _stop) =
        start(instant_simulator(), |simulator| simulator.with_engines(Arc::new(EchoEngines))).await;
    let (mut client, events, _) = run_asr_session(address, 16_000).await;
    assert_eq!(events.last().unwrap()["text"], "heard 16000");
    send_json(&mut client, json!({"type": "input.append", "input": tts_request("Four", true)})).await;
    let (events, _) = read_until(&mut client, "response.done").await;
    assert_eq!(event_names(&events), ["text", "audio", "audio", "response.done"]);
}

/// Engines that find no words and say none.
struct SilentEngines;

impl SpeechEngines for SilentEngines {
    fn recognise(&self, _: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        async { Ok(" ".to_owned()) }.boxed()
    }

    fn speak(&self, _: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        async { Ok(Vec::new()) }.boxed()
    }
}

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn empty_results_of_engines_are_logged() {
    let log = LogBuffer::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (address, _recorder, _stop) =
        start(instant_simulator(), |simulator| simulator.with_engines(Arc::new(SilentEngines))).await;
    let (_client, events, _) = run_asr_session(address, 24_000).await;
    assert_eq!(events.last().unwrap()["type"], "session.closed");
    let mut client = connect(address, "/v1/realtime?mode=chat").await.unwrap();
    send_json(&mut client, json!({"type": "session.init", "payload": {}})).await;
    send_json(&mut client, json!({"type": "input.append", "input": tts_request("Four", true)})).await;
    read_until(&mut client, "response.done").await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("WARN") && text.contains("recognised no words audio_s=1.5"), "{text}");
    assert!(text.contains("spoke nothing chars=4"), "{text}");
}

#[tokio::test]
async fn simulator_shutdown_ends_connections() {
    let (address, _recorder, stop) = start(instant_simulator(), |simulator| simulator).await;
    let (mut client, ..) = run_asr_session(address, 16_000).await;
    drop(stop);
    assert_eq!(read_until(&mut client, "nothing").await, (Vec::new(), Some(ServerOutput::Abort)));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn faults_can_be_injected_and_cleared_at_run_time() {
    let simulator = bind("127.0.0.1:0", instant_simulator()).await.unwrap();
    let (address, breaker) = (simulator.local_addr(), simulator.fault_injector());
    let (_stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(simulator.run(stopped.map(|_| ())));
    for (faulty, first) in [(false, "session.queue_done"), (true, "error"), (false, "session.queue_done")] {
        if faulty {
            breaker.inject(FaultKind::QueueFull.into()).await;
        } else {
            breaker.clear_faults().await;
        }
        let mut client = connect(address, "/v1/realtime?mode=chat").await.unwrap();
        let ServerOutput::Event(event) = next_output(&mut client).await else { panic!("no event") };
        assert_eq!(event["type"], first);
        let goodbye = r#"{"type":"session.init","payload":{}}"#;
        client.send(Message::text(goodbye)).await.unwrap();
        client.send(Message::text(r#"{"type":"session.close"}"#)).await.unwrap();
        while !matches!(next_output(&mut client).await, ServerOutput::Close(..) | ServerOutput::Abort) {}
    }
}
