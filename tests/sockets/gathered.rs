//! What a client streams may lie unread for a moment, and nobody can tell by what is heard.

use std::time::Duration;

use crate::bench::{Bench, Client, Seen, assert_pairs, audio, bytes, events, quick, recording, scratch};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::{
    config::Config,
    simulator::{SimulatorConfig, socket::Received},
};

/// Long for a busy machine, and less than any of voxbridge's own patience: what is not done until then was forgotten.
const SOON: Duration = Duration::from_secs(8);

/// The default profile, but that all that comes is read at once.
fn at_once() -> Config {
    let profile = include_str!("../../mappings/profile/speech.toml");
    let gathers = "\nquiet_ms = 100 ";
    assert_eq!(profile.matches(gathers).count(), 1, "nothing gathers by default");
    let mappings = scratch("gathered-at-once");
    std::fs::write(mappings.join("speech.toml"), profile.replace(gathers, "\nquiet_ms = 0 ")).unwrap();
    Config { mappings: Some(mappings), ..Config::default() }
}

/// So much of the noise of a room, as a microphone sends it.
async fn room(client: &mut Client, time: Duration) {
    let mut ticks = interval(Duration::from_millis(20));
    for _ in 0..time.as_millis() / 20 {
        ticks.tick().await;
        client.send(Message::binary(vec![0; 640])).await;
    }
}

/// A client that has streamed for long enough to be looked at, instead of being listened to.
async fn streaming(bench: &Bench) -> Client {
    let mut client = bench.client("model=x").await;
    room(&mut client, Duration::from_millis(1_200)).await;
    client
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("it is forgotten")
}

async fn is_empty(bench: &Bench) {
    while !bench.sessions.is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// What the client was told and what the model was asked, but for what is of its own each time.
async fn told_and_asked(config: Config) -> (Vec<Value>, Vec<Value>) {
    let bench = Bench::with(quick(), config).await;
    let mut client = bench.client("model=x").await;
    let said = [recording("goforward"), vec![0; 12_000], recording("goforward"), vec![0; 8_000]].concat();
    let frames = bytes(&said);
    let mut ticks = interval(Duration::from_millis(20));
    for frame in frames.chunks(640) {
        ticks.tick().await;
        client.send(Message::binary(frame.to_vec())).await;
    }
    while events(&client.seen, "transcript.final").len() < events(&client.seen, "vad.speech_end").len().max(2)
    {
        client.next().await;
    }
    let seen = client.close().await;
    assert_pairs(&seen);
    let told = ["vad.speech_start", "vad.speech_end", "transcript.final", "error"];
    let mut told: Vec<Value> = told.iter().flat_map(|kind| events(&seen, kind)).cloned().collect();
    // By the wall clock; where in the audio it was stands beside it.
    for event in &mut told {
        event.as_object_mut().unwrap().remove("timestamp");
    }
    let asked = bench.recorder.all().into_iter().filter_map(|received| match received {
        Received::Message(_, text) => serde_json::from_str::<Value>(&text).ok(),
        _ => None,
    });
    (told, asked.filter(|message| message["type"] == "input.append").collect())
}

#[tokio::test]
async fn what_is_heard_and_told_is_the_same_to_the_last_sample() {
    let (gathered, each) = tokio::join!(told_and_asked(Config::default()), told_and_asked(at_once()));
    assert_eq!(gathered.0, each.0);
    assert!(gathered.1 == each.1 && gathered.1.len() >= 2, "what is asked differs");
}

#[tokio::test]
async fn commands_and_pings_between_the_frames_are_answered() {
    let bench = Bench::with(quick(), Config::default()).await;
    let mut client = streaming(&bench).await;
    let mut ticks = interval(Duration::from_millis(20));
    for round in 0..8 {
        let ping = round % 2 == 0;
        client
            .send(if ping { Message::Ping("?".into()) } else { Message::text("{\"type\":\"nonsense\"}") })
            .await;
        let answered = async {
            loop {
                tokio::select! {
                    message = client.socket.next() => match message.unwrap().unwrap() {
                        Message::Pong(bytes) if ping => return assert_eq!(bytes, "?"),
                        Message::Text(text) if !ping => return assert!(text.contains("unknown_command"), "{text}"),
                        other => assert!(!other.is_close(), "{other:?}"),
                    },
                    _ = ticks.tick() => {
                        futures_util::SinkExt::send(&mut client.socket, Message::binary(vec![0; 640])).await.unwrap();
                    }
                }
            }
        };
        soon(answered).await;
    }
}

#[tokio::test]
async fn who_stops_and_goes_on_with_a_command_is_heard() {
    let bench = Bench::with(quick(), Config::default()).await;
    let mut client = streaming(&bench).await;
    // Whoever looks finds nothing now.
    sleep(Duration::from_millis(400)).await;
    client.command(json!({"type": "nonsense"})).await;
    assert_eq!(soon(client.event("error")).await["code"], "unknown_command");
    room(&mut client, Duration::from_millis(700)).await;
    client.command(json!({"type": "tts.speak", "text": "Yes."})).await;
    soon(client.event("tts.speaking_end")).await;
    assert_pairs(&soon(client.close()).await);
}

#[tokio::test]
async fn the_end_of_who_streams_is_noticed() {
    let bench = Bench::with(quick(), Config::default()).await;
    for how in 0..3 {
        let mut client = streaming(&bench).await;
        assert_eq!(bench.sessions.len(), 1);
        match how {
            0 => drop(client),
            1 => {
                client.socket.get_ref().set_zero_linger().unwrap();
                drop(client);
            }
            _ => {
                client.socket.close(None).await.unwrap();
                soon(client.rest()).await;
            }
        }
        soon(is_empty(&bench)).await;
    }
}

#[tokio::test]
async fn who_speaks_while_the_model_does_interrupts_it() {
    let simulator = SimulatorConfig { turn_units: 30, ..quick() };
    let config = Config { profile: Some("conversation".into()), ..Config::default() };
    let bench = Bench::with(simulator, config).await;
    let mut client = bench.client("model=x").await;
    let is = |kind: &'static str| move |seen: &Seen| seen.kind() == kind;
    client.live(&recording("goforward"), is("tts.speaking_start")).await;
    // It is streamed for so long that it is looked at.
    let begun = Instant::now();
    client
        .live(&[], move |seen| seen.kind() == "audio" && begun.elapsed() > Duration::from_millis(1_200))
        .await;
    let before = client.seen.len();
    client.live(&recording("cards_005"), is("tts.speaking_end")).await;
    let heard = &client.seen[before..];
    assert_eq!(events(heard, "tts.speaking_end")[0]["cancelled"], true);
    // Half a minute would have been said.
    assert!(audio(heard).len() < 15 * 24_000);
    assert_pairs(&soon(client.close()).await);
}
