//! voxbridge as the upstream of voxbridge: a client gets what it gets from the second one itself.

use super::*;

/// Bridges between the clients and the simulator.
struct Hops {
    /// The one that clients dial.
    first: Bench,
    /// The one before the simulator; `None` with one hop.
    #[expect(dead_code, reason = "stops when dropped")]
    second: Option<Bench>,
}

impl Hops {
    async fn new(count: usize, answers: &[&str]) -> Self {
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let last = Bench::with_config(
            SimulatorConfig { workers: 4, answers, ..instant_simulator() },
            Config::default(),
        )
        .await;
        if count == 1 {
            return Self { first: last, second: None };
        }
        let mut upstream = realtime_upstream(last.address());
        upstream.url = format!("ws://{}/openai/v1/realtime", last.address());
        let first = Bench::of(Config { upstream: vec![upstream], ..Config::default() }).await;
        Self { first, second: Some(last) }
    }
}

/// The same for one hop and for two.
async fn compare<A: PartialEq + std::fmt::Debug>(
    answers: &[&str],
    settings: Value,
    script: impl AsyncFn(&mut Client) -> A,
) {
    let mut outcomes = Vec::new();
    for count in [1, 2] {
        let hops = Hops::new(count, answers).await;
        let mut client = openai_client(&hops.first, settings.clone()).await;
        let outcome = script(&mut client).await;
        let errors = events(&client.received, "error");
        assert!(errors.is_empty(), "{count} hops: {errors:?}");
        outcomes.push(outcome);
    }
    let [one, two] = &outcomes[..] else { unreachable!() };
    assert_eq!(one, two, "one hop, two hops");
}

#[tokio::test]
async fn written_questions_have_the_same_answers_through_two_bridges() {
    compare(&["Rome is in Italy.", "About three million."], json!({}), async |client| {
        let answers = [ask(client, "Where is Rome?").await, ask(client, "How many people?").await];
        assert!(answers.iter().all(|answer| answer.status == "completed" && !answer.audio.is_empty()));
        answers
    })
    .await;
}

#[tokio::test]
async fn spoken_question_has_the_same_answer_through_two_bridges() {
    compare(&["It moved ten meters."], json!({}), async |client| {
        let answered = say(client, &recording("goforward")).await;
        (answered.text, answered.audio, answered.status)
    })
    .await;
}

#[tokio::test]
async fn call_and_its_result_pass_through_two_bridges_byte_for_byte() {
    const CALL: &str = r#"<tool_call>{"name": "get_weather", "arguments": {"city":  "Rome"}}</tool_call>"#;
    compare(&[CALL, "It is sunny in Rome."], weather_tools(), async |client| {
        let Answered { calls, audio, text, .. } = ask(client, "Weather in Rome?").await;
        let [(call_id, arguments)] = &calls[..] else { panic!("{calls:?} {text}") };
        assert!(audio.is_empty() && text.is_empty(), "{text}");
        add_item(client, &json!({"type": "function_call_output", "call_id": call_id, "output": "sunny"}))
            .await;
        (arguments.clone(), respond(client).await)
    })
    .await;
}

#[tokio::test]
async fn interruption_stops_the_answer_through_two_bridges() {
    for count in [1, 2] {
        let hops = Hops::new(count, &["A very long story. ".repeat(40).as_str(), "Yes."]).await;
        let mut client = openai_client(&hops.first, json!({})).await;
        client.send_json(json!({"type": "response.create"})).await;
        client.wait_for_event("response.output_audio.delta").await;
        client.send_json(json!({"type": "response.cancel"})).await;
        let done = client.wait_for_event("response.done").await;
        assert_eq!(done["response"]["status"], "cancelled", "{count} hops");
        assert_eq!(ask(&mut client, "Are you there?").await.text.trim(), "Yes.", "{count} hops");
    }
}

#[tokio::test]
async fn bridge_is_found_as_a_server_of_openais_protocol_and_does_all_that_it_does_itself() {
    let last = Bench::with_config(
        SimulatorConfig { workers: 4, answers: vec!["Rome.".to_owned()], ..instant_simulator() },
        Config::default(),
    )
    .await;
    let url = format!("ws://{}", last.address());
    let mut config = Config::default();
    config.upstream.push(UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() });
    config.detect_dialects().await;
    assert_eq!(config.upstream[0].dialect, "openai-realtime");
    let first = Bench::of(config).await;
    let mut client = openai_client(&first, json!({})).await;
    assert_eq!(ask(&mut client, "Where?").await.text.trim(), "Rome.");
    let mut macaw = first.client("model=x").await;
    macaw.send_json(json!({"type": "tts.speak", "text": "This is spoken."})).await;
    macaw.wait_for_event("tts.speaking_end").await;
    macaw.send_utterance(&recording("goforward")).await;
    let words = macaw.wait_for_event("transcript.final").await;
    assert!(!words["text"].as_str().unwrap().is_empty(), "{words}");
    let frames = macaw.close().await;
    assert!(!audio(&frames).is_empty() && events(&frames, "error").is_empty(), "{frames:?}");
    let seen: Vec<_> = last.sessions.all().iter().map(|session| session.info.client.clone()).collect();
    assert!(seen.iter().all(|client| client == "openai-realtime"), "{seen:?}");
}

#[tokio::test]
async fn bridge_that_is_about_to_ask_has_its_worker_before_it_asks() {
    let bench = Bench::start().await;
    let mut clients = Vec::new();
    for agent in ["OpenAI/Python 3.57.0", "voxbridge/0.1.0 openai-realtime"] {
        let headers = format!("User-Agent: {agent}\r\n");
        let (_, mut client) = bench.open_websocket("/openai/v1/realtime?model=gpt-realtime", &headers).await;
        let input = json!({"turn_detection": null});
        let session = json!({"type": "realtime", "audio": {"input": input}});
        client.send_json(json!({"type": "session.update", "session": session})).await;
        client.wait_for_event("session.updated").await;
        clients.push(client);
    }
    // The first client's worker would have come before.
    let is_init = |input: &RecordedInput| matches!(input, RecordedInput::Message(_, text) if text.contains("session.init"));
    let inits = || bench.recorder.all().iter().filter(|input| is_init(input)).count();
    wait_until("the worker of a bridge", || inits() > 0).await;
    assert_eq!(inits(), 1);
}
