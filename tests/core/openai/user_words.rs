//! The words of the user beside a conversation in full duplex: for a client that asks for them, in order, each with its item.

use super::*;

const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";

/// A client of a conversation with this many workers.
fn converse(workers: usize) -> Realtime {
    let mut config = config("model=gpt-realtime");
    config.profile = "conversation";
    config.simulator.workers = workers;
    let mut client = Realtime::with_config(config);
    client.say_silence(2000);
    client
}

fn ask_for_words(client: &mut Realtime, on: bool) {
    let transcription = if on { json!({"model": "whisper-1", "language": "en"}) } else { Value::Null };
    client.update(&json!({"audio": {"input": {"transcription": transcription}}}));
}

/// Speaks, and waits for the model's turn.
fn talk(client: &mut Realtime) {
    client.say(&speech());
    client.say_silence(9000);
    client.wait_for("response.done");
}

/// Ids of the messages as a client has them: each new one behind the one that is named as its predecessor.
fn conversation(client: &Realtime) -> Vec<(String, String)> {
    let mut items: Vec<(String, String)> = Vec::new();
    for event in client.of_type("conversation.item.added") {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let previous = text(&event["previous_item_id"]);
        let at = previous.map_or(0, |previous| {
            1 + items.iter().position(|(id, _)| *id == previous).expect("a known predecessor")
        });
        items.insert(at, (text(&event["item"]["id"]).unwrap(), text(&event["item"]["role"]).unwrap()));
    }
    items
}

#[test]
fn client_that_asks_gets_the_words_of_each_utterance_with_its_item() {
    let mut client = converse(2);
    ask_for_words(&mut client, true);
    (0..3).for_each(|_| talk(&mut client));
    client.check();
    let ids = |kind: &str| -> Vec<Value> {
        client.of_type(kind).iter().map(|event| event["item_id"].clone()).collect()
    };
    let committed = ids("input_audio_buffer.committed");
    assert_eq!(committed.len(), 3, "{:?}", client.types());
    assert_eq!(ids(COMPLETED), committed, "in the order of speech");
    for completed in client.of_type(COMPLETED) {
        assert!(completed["transcript"].as_str().unwrap().starts_with("simulated transcript"), "{completed}");
        assert_eq!(completed["usage"]["type"], "duration");
        assert!(completed["usage"]["seconds"].as_f64().unwrap() > 2.0, "{completed}");
    }
    let done = client.of_type("conversation.item.done");
    let users: Vec<&&Value> = done.iter().filter(|event| event["item"]["role"] == "user").collect();
    assert_eq!(users.len(), 3);
    assert!(users.iter().all(|event| event["item"]["content"][0]["transcript"].is_string()), "{users:?}");
    let roles: Vec<String> = conversation(&client).into_iter().map(|(_, role)| role).collect();
    assert_eq!(roles, ["user", "assistant"].repeat(3), "each question stands before its answer");
    assert!(client.of_type("error").is_empty());
}

#[test]
fn question_stands_before_an_answer_that_begins_while_the_user_still_speaks() {
    let mut client = converse(2);
    ask_for_words(&mut client, true);
    // A long silence ends an utterance, so that the model answers sooner.
    client.update(&json!({"audio": {"input": {"turn_detection": {"type": "server_vad",
        "silence_duration_ms": 5000, "interrupt_response": false}}}}));
    talk(&mut client);
    client.check();
    let types = client.types();
    let at = |kind: &str| types.iter().position(|known| *known == kind);
    assert!(at("response.created") < at("input_audio_buffer.committed"), "the answer is first: {types:?}");
    let committed = client.of_type("input_audio_buffer.committed")[0];
    let items = conversation(&client);
    assert_eq!((items[0].1.as_str(), items[1].1.as_str()), ("user", "assistant"), "{items:?}");
    assert_eq!(committed["item_id"], items[0].0);
    assert_eq!(client.of_type(COMPLETED).len(), 1);
}

#[test]
fn words_can_be_asked_for_and_given_up_at_any_time() {
    let mut client = converse(2);
    talk(&mut client);
    assert!(client.of_type(COMPLETED).is_empty(), "not asked for");
    // In the middle of an utterance: what is said from now on is transcribed.
    let question = speech();
    client.say(&question[..24_000]);
    ask_for_words(&mut client, true);
    client.say(&question[24_000..]);
    client.say_silence(9000);
    assert_eq!(client.of_type(COMPLETED).len(), 1, "{:?}", client.types());
    talk(&mut client);
    assert_eq!(client.of_type(COMPLETED).len(), 2);
    ask_for_words(&mut client, false);
    talk(&mut client);
    assert_eq!(client.of_type(COMPLETED).len(), 2);
    assert!(client.of_type("error").is_empty());
    client.check();
}

#[test]
fn single_worker_converses_although_nobody_can_transcribe_beside_it() {
    let mut client = converse(1);
    ask_for_words(&mut client, true);
    (0..3).for_each(|_| talk(&mut client));
    client.check();
    assert_eq!(client.of_type("response.done").len(), 3);
    assert!(client.of_type("error").is_empty(), "Pipecat ends at any error: {:?}", client.of_type("error"));
}
