//! The driver on real sockets.

use std::{net::SocketAddr, sync::Arc};

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _, future::BoxFuture};
use tokio::{net::TcpStream, sync::oneshot};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message},
};

use super::*;
use crate::simulator::{
    FaultKind, Timing,
    engines::Engines,
    socket::{Received, Recorder, Simulator, bind},
};

type Client = WebSocketStream<TcpStream>;

/// A running simulator; it ends with the sender.
async fn start(
    cfg: SimulatorConfig,
    with: impl FnOnce(Simulator) -> Simulator,
) -> (SocketAddr, Recorder, oneshot::Sender<()>) {
    let simulator = with(bind("127.0.0.1:0", cfg).await.unwrap());
    let (address, recorder) = (simulator.local_addr(), simulator.recorder());
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(simulator.run(stopped.map(|_| ())));
    (address, recorder, stop)
}

fn quick() -> SimulatorConfig {
    SimulatorConfig { timing: Timing::instant(), record: true, ..SimulatorConfig::default() }
}

async fn connect(address: SocketAddr, target: &str) -> Result<Client, Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    client_async(format!("ws://{address}{target}"), stream).await.map(|(client, _)| client)
}

async fn event(client: &mut Client) -> Seen {
    match client.next().await {
        Some(Ok(Message::Text(text))) => Seen::Event(serde_json::from_str(&text).unwrap()),
        Some(Ok(Message::Close(Some(frame)))) => Seen::Close(frame.code.into(), frame.reason.to_string()),
        Some(Err(_)) | None => Seen::Drop,
        other => panic!("{other:?}"),
    }
}

/// The names of the events until the connection ends or `until` has come.
async fn until(client: &mut Client, until: &str) -> (Vec<Value>, Option<Seen>) {
    let mut events = Vec::new();
    loop {
        match event(client).await {
            Seen::Event(event) => {
                let found = event["type"] == until;
                events.push(event);
                if found {
                    return (events, None);
                }
            }
            end => return (events, Some(end)),
        }
    }
}

async fn say(client: &mut Client, message: Value) {
    client.send(Message::text(message.to_string())).await.unwrap();
}

async fn transcribe(address: SocketAddr, samples: usize) -> (Client, Vec<Value>, Option<Seen>) {
    let mut client = connect(address, "/v1/realtime?mode=chat").await.unwrap();
    say(&mut client, json!({"type": "session.init", "payload": {}})).await;
    say(&mut client, json!({"type": "input.append", "input": asr(samples)})).await;
    let (events, end) = until(&mut client, "response.done").await;
    (client, events, end)
}

#[tokio::test]
async fn a_session_over_a_socket() {
    let (address, recorder, stop) = start(quick(), |simulator| simulator).await;
    for target in ["/v1/realtime?mode=", "/v1/realtime?mode=Chat", "/elsewhere?mode=chat"] {
        match connect(address, target).await {
            Err(Error::Http(response)) => assert_eq!(response.status(), 403, "{target}"),
            other => panic!("{target}: {other:?}"),
        }
    }
    let (mut client, events, _) = transcribe(address, 480_000).await;
    assert_eq!(events.last().unwrap()["text"], "simulated transcript: 30.00 s of speech");
    say(&mut client, json!({"type": "session.close", "reason": "done"})).await;
    let (events, end) = until(&mut client, "nothing").await;
    assert_eq!((events[0]["reason"].as_str(), end), (Some("done"), polite()));
    assert_eq!(recorder.heard(), [vec![0.25; 480_000]]);
    assert_eq!(recorder.all().iter().filter(|one| matches!(one, Received::Message(..))).count(), 3);
    assert!(!recorder.take().iter().any(|one| matches!(one, Received::Gone(_))), "it closed politely");
    drop(stop);
}

#[tokio::test]
async fn full_duplex_over_a_socket() {
    let (address, recorder, _stop) = start(quick(), |simulator| simulator).await;
    for (target, sees) in [("/v1/realtime?mode=audio", false), ("/v1/realtime", true)] {
        let mut client = connect(address, target).await.unwrap();
        say(&mut client, json!({"type": "session.init", "payload": {}})).await;
        let mut said = Vec::new();
        for (second, level) in [0.1, 0.2, 0.0, 0.0, 0.0, 0.0].into_iter().enumerate() {
            let input = json!({"audio": base64_f32(&[level; 16_000]), "force_listen": second == 0});
            say(&mut client, json!({"type": "input.append", "input": input})).await;
        }
        say(&mut client, json!({"type": "session.close", "reason": "done"})).await;
        let (events, end) = until(&mut client, "nothing").await;
        said.extend(names(&events));
        let expected = "session.queue_done session.created listen listen listen text audio text audio text audio \
                        listen session.closed";
        assert_eq!((said.join(" ").as_str(), end), (expected, polite()), "{target}");
        let received = recorder.take();
        let opened = |one: &Received| matches!(one, Received::Opened(_, opening) if opening.sees == sees);
        assert!(received.iter().any(opened));
        let units = received.iter().filter_map(|one| match one {
            Received::Unit(_, unit) => Some((unit.samples[0], unit.samples.len(), unit.forced)),
            _ => None,
        });
        let expected = [(0.1, true), (0.2, false), (0.0, false), (0.0, false), (0.0, false), (0.0, false)];
        assert!(units.eq(expected.map(|(level, forced)| (level, 16_000, forced))));
    }
}

#[tokio::test]
async fn a_dropped_connection_costs_the_next_one() {
    let (address, recorder, _stop) = start(quick(), |simulator| simulator).await;
    let (client, ..) = transcribe(address, 16_000).await;
    drop(client);
    while !recorder.all().iter().any(|one| matches!(one, Received::Gone(_))) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (_client, events, end) = transcribe(address, 16_000).await;
    assert_eq!((names(&events), end), (vec!["session.queue_done".to_owned(), "error".to_owned()], polite()));
    tokio::time::sleep(Duration::from_millis(350)).await;
    let (_client, _, end) = transcribe(address, 16_000).await;
    assert_eq!(end, None);
}

#[tokio::test]
async fn a_broken_connection_has_no_close_frame() {
    let faults = vec!["drop-mid-answer=1".parse().unwrap()];
    let (address, _recorder, _stop) =
        start(SimulatorConfig { faults, ..quick() }, |simulator| simulator).await;
    let (_client, _, end) = transcribe(address, 16_000).await;
    assert_eq!(end, Some(Seen::Drop));
}

struct Echo;

impl Engines for Echo {
    fn recognise(&self, samples: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        async move { Ok(format!("heard {}", samples.len())) }.boxed()
    }

    fn speak(&self, text: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        async move { Ok(vec![0.5; text.len() * 10_000]) }.boxed()
    }
}

#[tokio::test]
async fn engines_answer_over_a_socket() {
    let (address, _recorder, _stop) =
        start(quick(), |simulator| simulator.with_engines(Arc::new(Echo))).await;
    let (mut client, events, _) = transcribe(address, 16_000).await;
    assert_eq!(events.last().unwrap()["text"], "heard 16000");
    say(&mut client, json!({"type": "input.append", "input": tts("Four", true)})).await;
    let (events, _) = until(&mut client, "response.done").await;
    assert_eq!(names(&events), ["text", "audio", "audio", "response.done"]);
}

#[tokio::test]
async fn the_end_of_the_simulator_ends_its_connections() {
    let (address, _recorder, stop) = start(quick(), |simulator| simulator).await;
    let (mut client, ..) = transcribe(address, 16_000).await;
    drop(stop);
    assert_eq!(until(&mut client, "nothing").await, (Vec::new(), Some(Seen::Drop)));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn faults_come_and_go_while_it_runs() {
    let simulator = bind("127.0.0.1:0", quick()).await.unwrap();
    let (address, breaker) = (simulator.local_addr(), simulator.breaker());
    let (_stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(simulator.run(stopped.map(|_| ())));
    for (faulty, first) in [(false, "session.queue_done"), (true, "error"), (false, "session.queue_done")] {
        if faulty {
            breaker.begin(FaultKind::QueueFull.into()).await;
        } else {
            breaker.mend().await;
        }
        let mut client = connect(address, "/v1/realtime?mode=chat").await.unwrap();
        let Seen::Event(seen) = event(&mut client).await else { panic!("no event") };
        assert_eq!(seen["type"], first);
        let goodbye = r#"{"type":"session.init","payload":{}}"#;
        client.send(Message::text(goodbye)).await.unwrap();
        client.send(Message::text(r#"{"type":"session.close"}"#)).await.unwrap();
        while !matches!(event(&mut client).await, Seen::Close(..) | Seen::Drop) {}
    }
}
