//! Servers of OpenAI's Realtime API that deviate from its documents, and what a client gets from them.

use super::*;

/// A client whose first question the server does not answer by itself.
fn connect() -> Realtime {
    let config = config("model=gpt-realtime").realtime(RealtimeServer::Openai);
    Realtime::with_config(config.faults(&["never-answers,times=1"]))
}

/// Asks, and lets the server send these messages.
fn ask(client: &mut Realtime, messages: &[Value]) {
    client.ask("Hello?");
    client.pass(1000 * MS);
    let lane = *client.harness.lanes().last().unwrap();
    for message in messages {
        client.harness.inject_upstream_text(lane, &message.to_string());
    }
    client.take_events();
}

fn created(response: &str) -> Value {
    json!({"type": "response.created", "response": {"id": response, "status": "in_progress"}})
}

fn ended(response: &str, status: &str) -> Value {
    json!({"type": "response.done", "response": {"id": response, "status": status, "status_details": null}})
}

fn words(response: &str, words: &str) -> Value {
    json!({"type": "response.output_audio_transcript.delta", "response_id": response, "delta": words})
}

fn audio(response: &str, bytes: &[u8]) -> Value {
    json!({"type": "response.output_audio.delta", "response_id": response, "delta": STANDARD.encode(bytes)})
}

/// int16 audio of so many milliseconds.
fn sound(ms: usize) -> Vec<u8> {
    bytes_of(&vec![3000; 24 * ms])
}

#[test]
fn client_gets_a_whole_answer_in_spite_of_each_deviation() {
    let text = [words("r", "One two "), words("r", "three.")];
    let usual = |middle: Vec<Value>| -> Vec<Value> {
        [&[created("r")][..], &text, &middle, &[ended("r", "completed")]].concat()
    };
    let second = usual(vec![audio("r", &sound(1000))]);
    let other: Vec<Value> =
        [created("s"), words("s", "And."), audio("s", &sound(500)), ended("s", "completed")].into();
    let odd = sound(1000);
    let beta: Vec<Value> = second
        .iter()
        .map(|message| {
            let text = message.to_string().replace("response.output_audio", "response.audio");
            serde_json::from_str(&text).unwrap()
        })
        .collect();
    let item = |kind: &str, id: &str| json!({"type": kind, "item": {"id": id, "type": "message"}});
    let unknown = json!({"type": "response.thinking.delta", "response_id": "r", "delta": "hm"});
    for (what, messages) in [
        ("usual", second.clone()),
        ("names of the beta", beta),
        ("the end twice", [&second[..], &second[4..]].concat()),
        ("audio after the end", [&second[..], &second[3..4]].concat()),
        ("a second response", [second.clone(), other].concat()),
        ("an unknown event", usual(vec![unknown, audio("r", &sound(1000))])),
        ("empty deltas", usual(vec![audio("r", &[]), words("r", ""), audio("r", &sound(1000))])),
        ("split samples", usual(odd.chunks(4801).map(|piece| audio("r", piece)).collect())),
        ("units of 80 ms", usual(sound(1000).chunks(3840).map(|piece| audio("r", piece)).collect())),
        ("one long delta", usual(vec![audio("r", &sound(1000))])),
        ("items in another order", {
            let items = [item("conversation.item.done", "b"), item("conversation.item.added", "a")];
            [&items[..], &second].concat()
        }),
        ("the turn is taken already", {
            let code = "conversation_already_has_active_response";
            let error = json!({"type": "error", "error": {"code": code, "message": "words"}});
            [&[error][..], &second].concat()
        }),
    ] {
        let mut client = connect();
        ask(&mut client, &messages);
        let response = client.wait_for("response.done")["response"].clone();
        assert_eq!(response["status"], "completed", "{what}: {response}");
        let said = &response["output"][0]["content"][0]["transcript"];
        assert_eq!(said.as_str().map(str::trim), Some("One two three."), "{what}");
        assert!((client.audio_s() - 1.0).abs() < 0.001, "{what}: {} s", client.audio_s());
        assert!(client.of_type("error").is_empty(), "{what}");
        client.pass(3000 * MS);
        client.ask("And now?");
        assert_eq!(client.wait_for("response.done")["response"]["status"], "completed", "{what}");
        client.check();
    }
}

#[test]
fn client_is_told_what_broke_its_answer_off_and_the_next_question_is_answered() {
    let begun = [created("r"), words("r", "One two "), audio("r", &sound(1000))];
    let error = |code: &str| json!({"code": code, "message": "the words"});
    for (what, end, status, told) in [
        (
            "session_expired",
            json!({"type": "error", "error": error("session_expired")}),
            "failed",
            "session_expired",
        ),
        ("an error without a type", json!({"error": error("server_error")}), "failed", "server_error"),
        ("cancelled by the server", ended("r", "cancelled"), "incomplete", ""),
    ] {
        let mut client = connect();
        ask(&mut client, &[&begun[..], &[end]].concat());
        let response = client.wait_for("response.done")["response"].clone();
        assert_eq!(response["status"], status, "{what}: {response}");
        assert!(response["status_details"].to_string().contains(told), "{what}: {response}");
        assert!((client.audio_s() - 1.0).abs() < 0.001, "{what}: {} s", client.audio_s());
        client.pass(3000 * MS);
        client.ask("And now?");
        assert_eq!(client.wait_for("response.done")["response"]["status"], "completed", "{what}");
        client.check();
    }
}

#[test]
fn busy_server_is_asked_again_after_the_pause_that_it_names() {
    for (error, pause_ms) in [
        (json!({"retry_after": 7, "message": "Slow down."}), 7000..8000),
        (json!({"message": "Rate limit reached. Please try again in 4s."}), 4000..5000),
        (json!({"message": "Slow down."}), 0..3000),
        (json!({"retry_after": 3600, "message": "Come back in an hour."}), 60_000..61_000),
    ] {
        let mut client = connect();
        let mut busy = error.clone();
        busy["code"] = "rate_limit_exceeded".into();
        ask(&mut client, &[json!({"type": "error", "error": busy})]);
        let asked = |client: &Realtime| client.harness.sent_containing("\"response.create\"").len();
        assert_eq!(asked(&client), 1);
        let mut waited_ms = 0;
        while asked(&client) == 1 && waited_ms < 100_000 {
            client.pass(100 * MS);
            waited_ms += 100;
        }
        assert!(pause_ms.contains(&waited_ms), "{error}: {waited_ms} ms");
        assert_eq!(client.wait_for("response.done")["response"]["status"], "completed", "{error}");
        client.check();
    }
}
