//! voxbridge before voxbridge: the outer one's upstream is the inner one, by OpenAI's Realtime API.

use serde_json::{Value, json};
use voxbridge::{
    config::{Config, UpstreamConfig},
    simulator::SimulatorConfig,
};
use voxbridge_test_support::bench::{Bench, Client, instant_simulator, recording};

/// Two bridges in a row before a model with these answers, the inner one first.
async fn chain(answers: &[&str]) -> (Bench, Bench) {
    let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let simulator = SimulatorConfig { answers, ..instant_simulator() };
    let inner = Bench::with_config(simulator, Config::default()).await;
    let upstream = UpstreamConfig {
        url: format!("ws://{}/v1/realtime", inner.address()),
        dialect: "openai-realtime".into(),
        model: Some("gpt-realtime".into()),
        ..UpstreamConfig::default()
    };
    let outer = Bench::of(Config { upstream: vec![upstream], ..Config::default() }).await;
    (inner, outer)
}

async fn connect(bench: &Bench, session: Value) -> Client {
    let mut client = bench.dial("/openai/v1/realtime?model=gpt-realtime").await;
    client.wait_for_event("session.created").await;
    client.send_json(json!({"type": "session.update", "session": session})).await;
    client.wait_for_event("session.updated").await;
    client
}

async fn ask(client: &mut Client, text: &str) -> Value {
    client
        .send_json(json!({"type": "conversation.item.create", "item": {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}}))
        .await;
    client.send_json(json!({"type": "response.create"})).await;
    client.wait_for_event("response.done").await
}

#[tokio::test]
async fn typed_and_spoken_questions_are_answered_through_two_bridges() {
    let (_inner, outer) = chain(&["The first answer.", "The second answer."]).await;
    let mut client = connect(&outer, json!({"type": "realtime", "instructions": "Be brief."})).await;
    let done = ask(&mut client, "Hello?").await;
    assert_eq!(done["response"]["status"], "completed", "{done}");
    assert_eq!(done["response"]["output"][0]["content"][0]["transcript"], "The first answer.");
    let speech = recording("goforward");
    let at_24_khz: Vec<i16> =
        speech.chunks(2).flat_map(|pair| [pair[0], pair[0], *pair.last().unwrap()]).collect();
    let update = json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}});
    client.send_json(json!({"type": "session.update", "session": update})).await;
    for chunk in at_24_khz.chunks(2400) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let audio = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        client.send_json(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    }
    client.send_json(json!({"type": "input_audio_buffer.commit"})).await;
    client.send_json(json!({"type": "response.create"})).await;
    let done = client.wait_for_event("response.done").await;
    assert_eq!(done["response"]["output"][0]["content"][0]["transcript"], "The second answer.", "{done}");
}

#[tokio::test]
async fn call_and_its_result_pass_two_bridges_and_are_prompted_once() {
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\":  \"Rome\"}}\n</tool_call>";
    let (_inner, outer) = chain(&[call, "Rain."]).await;
    let tool = json!({"type": "function", "name": "get_weather", "description": "Says the weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}});
    let mut client = connect(&outer, json!({"type": "realtime", "tools": [tool]})).await;
    let done = ask(&mut client, "Weather?").await;
    let item = &done["response"]["output"][0];
    assert_eq!((&item["type"], &item["name"]), (&json!("function_call"), &json!("get_weather")), "{done}");
    assert_eq!(item["arguments"], "{\"city\":  \"Rome\"}", "byte for byte");
    client
        .send_json(json!({"type": "conversation.item.create", "item": {
            "type": "function_call_output", "call_id": item["call_id"], "output": "rain"}}))
        .await;
    client.send_json(json!({"type": "response.create"})).await;
    let done = client.wait_for_event("response.done").await;
    assert_eq!(done["response"]["output"][0]["content"][0]["transcript"], "Rain.", "{done}");
}

#[tokio::test]
async fn recording_is_transcribed_and_text_spoken_through_two_bridges() {
    let (_inner, outer) = chain(&[]).await;
    let mut client = outer.client("model=x").await;
    client.stream_until(&recording("goforward"), |frame| frame.kind() == "transcript.final").await;
    let events = client.received.iter().map(|frame| frame.kind().to_owned()).collect::<Vec<_>>();
    assert!(!events.contains(&"error".to_owned()), "{:?}", client.received);
    client.send_json(json!({"type": "tts.speak", "text": "Hello there.", "request_id": "r"})).await;
    client.wait_for_event("tts.speaking_start").await;
    client.wait_for_event("tts.speaking_end").await;
}
