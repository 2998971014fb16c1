//! llama.cpp-omni's `/backend` as an upstream: no gateway, no queue, one session at a time.

use super::*;

const DIALECT: SimDialect = SimDialect::LlamaCppOmni;

/// A server that takes some time for everything, so that early messages would show.
fn simulator() -> SimulatorConfig {
    let ms = Duration::from_millis;
    let timing = SimTiming {
        init: ms(2),
        first_delta: ms(2),
        text_delta: ms(1),
        speech_second: ms(1),
        listen_step: ms(2),
        speak_step: ms(2),
        ..SimTiming::default()
    };
    SimulatorConfig { dialect: DIALECT, timing, record: true, ..SimulatorConfig::default() }
}

async fn bench(profile: &str) -> Bench {
    Bench::with_config(simulator(), Config { profile: Some(profile.into()), ..Config::default() }).await
}

fn messages(received: &[RecordedInput]) -> Vec<Value> {
    let message = |input: &RecordedInput| match input {
        RecordedInput::Message(_, text) => Some(serde_json::from_str(text).unwrap()),
        _ => None,
    };
    received.iter().filter_map(message).collect()
}

/// Modes that each attempt to open a session named. Checks that the server got no other messages than it takes.
#[track_caller]
fn opened_modes(received: &[RecordedInput]) -> Vec<String> {
    let messages = messages(received);
    assert!(messages.iter().all(|it| it["type"] == "session.init" || it["type"] == "input.append"));
    let opened = messages.iter().filter(|message| message["type"] == "session.init");
    opened.map(|init| init["payload"]["mode"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn speech_uses_the_single_session_for_one_request_after_the_other() {
    const CLIENTS: usize = 20;
    let bench = bench("speech").await;
    let speech = recording("goforward");
    for client in 0..CLIENTS {
        let mut caller = bench.client("model=x").await;
        caller.send_utterance(&speech).await;
        // Every other client has a text spoken before its transcript arrives.
        if client % 2 == 0 {
            caller.wait_for_event("vad.speech_end").await;
        }
        caller.send_json(json!({"type": "tts.speak", "text": "Yes."})).await;
        caller.wait_for_event("tts.speaking_end").await;
        let frames = caller.close().await;
        assert_pairs_closed(&frames);
        assert_eq!(events(&frames, "transcript.final").len(), 1, "client {client}: {frames:?}");
        assert!(!audio(&frames).is_empty());
        assert!(events(&frames, "error").is_empty(), "client {client}: {frames:?}");
    }
    let modes = opened_modes(&bench.recorder.all());
    assert!(modes.iter().all(|mode| mode == "turn_based"));
    assert_eq!(modes.len(), 2 * CLIENTS, "no attempt was refused and repeated");
}

#[tokio::test]
async fn conversation_answers_and_lends_its_session_to_a_text() {
    let bench = bench("conversation").await;
    let mut client = bench.client("model=x").await;
    let question = recording("goforward");
    let frames = client.stream_until(&question, is("tts.speaking_end")).await;
    let marks: Vec<_> = audio(frames).into_iter().map(|sample| read_watermark(sample).unwrap()).collect();
    assert!(marks.windows(2).all(|pair| pair[1] == (pair[0].0, (pair[0].1 + 1) % 8190)), "one whole turn");
    client.send_json(json!({"type": "tts.speak", "text": "One moment, please."})).await;
    let spoken = client.stream_until(&[], is("tts.speaking_end")).await;
    assert!(!audio(spoken).is_empty() && events(spoken, "error").is_empty(), "{spoken:?}");
    // The conversation has its session again.
    let frames = client.stream_until(&question, is("tts.speaking_end")).await;
    assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], false, "{frames:?}");
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
    let modes = opened_modes(&bench.recorder.all());
    assert_eq!(modes, ["full_duplex", "turn_based", "full_duplex"]);
    // The server is free for the next client at once.
    let mut next = bench.client("model=x").await;
    next.stream_until(&question, is("tts.speaking_start")).await;
    let frames = next.close().await;
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
}

#[tokio::test]
async fn text_is_spoken_although_its_conversation_got_the_session_after_it_was_asked_for() {
    let bench = bench("conversation").await;
    let first = bench.client("model=x").await;
    let mut second = bench.client("model=x").await;
    second.send_json(json!({"type": "tts.speak", "text": "One moment, please."})).await;
    second.stream_until(&[], is("session.hold")).await;
    first.close().await;
    let spoken = second.stream_until(&[], is("tts.speaking_end")).await;
    assert!(!audio(spoken).is_empty() && events(spoken, "error").is_empty(), "{spoken:?}");
}

#[tokio::test]
async fn assistant_answers_two_turns_with_the_history() {
    let bench = bench("assistant").await;
    let mut client = bench.client("model=x").await;
    for _ in 0..2 {
        client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    }
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert!(!audio(&frames).is_empty() && events(&frames, "error").is_empty(), "{frames:?}");
    let received = bench.recorder.all();
    assert!(opened_modes(&received).iter().all(|mode| mode == "turn_based"));
    let answers =
        messages(&received).into_iter().filter(|message| message["input"]["tts"]["enabled"] == true);
    let lengths: Vec<_> = answers.map(|it| it["input"]["messages"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [2, 4], "instructions and the user, then also the answer and the user");
}

#[tokio::test]
async fn second_client_waits_and_is_served_when_the_first_leaves() {
    let dir = profile_with_numbers("llama_cpp_omni_waits", &[("queue_stuck_ms", 15_000, 200)]);
    let routes = |profile: &str| Config {
        profile: Some(profile.into()),
        mappings: Some(dir.clone()),
        ..Config::default()
    };
    let bench = Bench::with_config(simulator(), routes("conversation")).await;
    let mut first = bench.client("model=x").await;
    first.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    let mut second = bench.client("model=x").await;
    second.send_utterance(&recording("goforward")).await;
    let error = second.wait_for_event("error").await;
    let words = error["message"].as_str().unwrap();
    assert!(words.contains("position 1") && words.contains("another client"), "{words}");
    first.close().await;
    second.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
    assert_pairs_closed(&second.close().await);
    assert_eq!(opened_modes(&bench.recorder.all()).len(), 2, "no attempt was refused");
}

#[tokio::test]
async fn client_that_leaves_the_line_needs_no_place_later() {
    let mut bench = bench("conversation").await;
    let mut first = bench.client("model=x").await;
    first.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    let mut second = bench.client("model=x").await;
    second.stream_until(&recording("goforward"), is("vad.speech_end")).await;
    second.close().await;
    first.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    assert!(events(&first.close().await, "error").is_empty());
    bench.bridge.stop();
    bench.bridge.wait_for_end().await;
    let received = bench.recorder.all();
    let connections = received.iter().filter(|it| matches!(it, RecordedInput::Disconnected(_))).count();
    assert_eq!((opened_modes(&received), connections), (vec!["full_duplex".to_owned()], 1));
}

#[tokio::test]
async fn server_that_another_program_uses_is_named() {
    let (address, _simulator, _) = start_simulator("127.0.0.1:0", simulator(), None).await;
    let mut other = dial(address, "/backend").await;
    other.send_json(json!({"type": "session.init", "payload": {}})).await;
    other.wait_for_event("session.created").await;
    let dir = profile_with_numbers("llama_cpp_omni_taken", &[("queue_max_ms", 120_000, 3_000)]);
    let config =
        Config { upstream: vec![upstream_of(DIALECT, address)], mappings: Some(dir), ..Config::default() };
    let bench = Bench::with_config(simulator(), config).await;
    let mut client = bench.client("model=x").await;
    client.send_utterance(&recording("goforward")).await;
    let error = client.wait_for_event("error").await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("another client may hold the worker"), "{error}");
    // It is served as soon as the other program has left.
    other.send(Message::Close(None)).await;
    other.read_to_end().await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
    client.close().await;
}

#[tokio::test]
async fn client_of_the_gateway_is_relayed() {
    let bench = Bench::with_config(simulator(), Config::default()).await;
    for _ in 0..2 {
        let mut client = bench.dial("/v1/realtime?mode=audio").await;
        client.wait_for_event("session.queue_done").await;
        client.send_json(json!({"type": "session.init", "payload": {"system_prompt": "Be brief."}})).await;
        assert_eq!(client.wait_for_event("session.created").await["mode"], "full_duplex");
        let silence = STANDARD.encode([0; 64_000]);
        client.send_json(json!({"type": "input.append", "input": {"audio": silence}})).await;
        assert_eq!(client.wait_for_event("response.output.delta").await["kind"], "listen");
        client.send_json(json!({"type": "session.close", "reason": "user_stop"})).await;
        assert_eq!(client.wait_for_event("session.closed").await["reason"], "user_stop");
        client.read_to_end().await;
    }
    assert_eq!(opened_modes(&bench.recorder.all()), ["full_duplex", "full_duplex"]);
}
