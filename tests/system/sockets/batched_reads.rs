//! Batched reads: client audio may stay unread for a moment, without any effect on transcripts and events.

use super::*;

/// Long for a busy machine, but shorter than voxbridge's own timeouts: a reaction after this is a missed
/// wake-up.
const REACTION_MAX: Duration = Duration::from_secs(8);

/// The default profile with read batching turned off.
fn unbatched_config() -> Config {
    let profile = include_str!("../../../mappings/profile/speech.toml");
    let gathers = "\nquiet_ms = 100 ";
    assert_eq!(profile.matches(gathers).count(), 1, "the default profile does not batch");
    let profile = profile.replace(gathers, "\nquiet_ms = 0 ");
    Config { mappings: Some(mappings_with("gathered-at-once", "speech.toml", &profile)), ..Config::default() }
}

/// Streams room noise for this long, as a microphone does.
async fn stream_silence(client: &mut Client, time: Duration) {
    let mut ticks = interval(Duration::from_millis(20));
    for _ in 0..time.as_millis() / 20 {
        ticks.tick().await;
        client.send(Message::binary(vec![0; 640])).await;
    }
}

/// A client that has streamed long enough for batched reads.
async fn client_streaming_silence(bench: &Bench) -> Client {
    let mut client = bench.client("model=x").await;
    stream_silence(&mut client, Duration::from_millis(1_200)).await;
    client
}

async fn within_reaction_time<T>(what: impl Future<Output = T>) -> T {
    timeout(REACTION_MAX, what).await.expect("the wake-up was missed")
}

async fn wait_until_empty(bench: &Bench) {
    wait_until("the sessions end", || bench.sessions.is_empty()).await;
}

/// The client's events and the model's questions without values unique to a session.
async fn events_and_questions(config: Config) -> (Vec<Value>, Vec<Value>) {
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=x").await;
    let speech = [recording("goforward"), vec![0; 12_000], recording("goforward"), vec![0; 8_000]].concat();
    let frames = bytes(&speech);
    let mut ticks = interval(Duration::from_millis(20));
    for frame in frames.chunks(640) {
        ticks.tick().await;
        client.send(Message::binary(frame.to_vec())).await;
    }
    while events(&client.received, "transcript.final").len()
        < events(&client.received, "vad.speech_end").len().max(2)
    {
        client.next().await;
    }
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    let told = ["vad.speech_start", "vad.speech_end", "transcript.final", "error"];
    let mut told: Vec<Value> = told.iter().flat_map(|kind| events(&frames, kind)).cloned().collect();
    // Removes wall-clock times; positions in the audio remain.
    for event in &mut told {
        event.as_object_mut().unwrap().remove("timestamp");
    }
    let questions = bench.recorder.all().into_iter().filter_map(|received| match received {
        RecordedInput::Message(_, text) => serde_json::from_str::<Value>(&text).ok(),
        _ => None,
    });
    (told, questions.filter(|message| message["type"] == "input.append").collect())
}

#[tokio::test]
async fn batched_reads_change_no_sample_or_event() {
    let (gathered, each) =
        tokio::join!(events_and_questions(Config::default()), events_and_questions(unbatched_config()));
    assert_eq!(gathered.0, each.0);
    assert!(gathered.1 == each.1 && gathered.1.len() >= 2, "the questions differ");
}

#[tokio::test]
async fn commands_and_pings_between_frames_are_answered() {
    let bench = Bench::start().await;
    let mut client = client_streaming_silence(&bench).await;
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
        within_reaction_time(answered).await;
    }
}

#[tokio::test]
async fn command_after_audio_pause_is_answered() {
    let bench = Bench::start().await;
    let mut client = client_streaming_silence(&bench).await;
    // The pause is what is tested: the scheduled reads find no data.
    sleep(Duration::from_millis(400)).await;
    client.send_json(json!({"type": "nonsense"})).await;
    assert_eq!(within_reaction_time(client.wait_for_event("error")).await["code"], "unknown_command");
    stream_silence(&mut client, Duration::from_millis(700)).await;
    client.send_json(json!({"type": "tts.speak", "text": "Yes."})).await;
    within_reaction_time(client.wait_for_event("tts.speaking_end")).await;
    assert_pairs_closed(&within_reaction_time(client.close()).await);
}

#[tokio::test]
async fn disconnect_of_streaming_client_is_noticed() {
    let bench = Bench::start().await;
    for how in 0..3 {
        let mut client = client_streaming_silence(&bench).await;
        assert_eq!(bench.sessions.len(), 1);
        match how {
            0 => drop(client),
            1 => {
                client.socket.get_ref().set_zero_linger().unwrap();
                drop(client);
            }
            _ => {
                client.socket.close(None).await.unwrap();
                within_reaction_time(client.read_to_end()).await;
            }
        }
        within_reaction_time(wait_until_empty(&bench)).await;
    }
}

#[tokio::test]
async fn speech_during_model_turn_interrupts() {
    let simulator = SimulatorConfig { turn_units: 30, ..instant_simulator() };
    let config = Config { profile: Some("conversation".into()), ..Config::default() };
    let bench = Bench::with_config(simulator, config).await;
    let mut client = bench.client("model=x").await;
    let has_kind = |kind: &'static str| move |frame: &ClientFrame| frame.kind() == kind;
    client.stream_until(&recording("goforward"), has_kind("tts.speaking_start")).await;
    // Streams for long enough to be read in batches.
    let started = Instant::now();
    client
        .stream_until(&[], move |frame| {
            frame.kind() == "audio" && started.elapsed() > Duration::from_millis(1_200)
        })
        .await;
    let before = client.received.len();
    client.stream_until(&recording("cards_005"), has_kind("tts.speaking_end")).await;
    let interrupted = &client.received[before..];
    assert_eq!(events(interrupted, "tts.speaking_end")[0]["cancelled"], true);
    // The whole turn would last half a minute.
    assert!(audio(interrupted).len() < 15 * 24_000);
    assert_pairs_closed(&within_reaction_time(client.close()).await);
}
