//! Tokens of answers: estimated where the server counts none, as it reports them where it does.

use super::*;

/// Tokens of a response: of its input by text, audio, pictures and cached, and of its output by text and audio.
type Tokens = ([u64; 4], [u64; 2]);

fn counts(done: &Value) -> Tokens {
    let usage = &done["response"]["usage"];
    let (input, output) = (&usage["input_token_details"], &usage["output_token_details"]);
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{usage}"));
    let inputs =
        ["text_tokens", "audio_tokens", "image_tokens", "cached_tokens"].map(|key| count(&input[key]));
    let outputs = ["text_tokens", "audio_tokens"].map(|key| count(&output[key]));
    assert_eq!(count(&usage["input_tokens"]), inputs[..3].iter().sum::<u64>(), "{usage}");
    assert_eq!(count(&usage["output_tokens"]), outputs.iter().sum::<u64>(), "{usage}");
    let total = count(&usage["input_tokens"]) + count(&usage["output_tokens"]);
    assert_eq!(count(&usage["total_tokens"]), total, "{usage}");
    (inputs, outputs)
}

#[test]
fn chat_turn_has_an_estimate_of_text_audio_and_pictures() {
    for query in ["model=gpt-realtime", "model=gpt-4o-realtime-preview&shape=beta"] {
        let mut client = Realtime::connect(query);
        client.update(&json!({"instructions": "Answer in one short sentence, please."}));
        client.say_question();
        let (input, output) = counts(&client.wait_for("response.done"));
        assert!((5..200).contains(&input[0]) && input[3] == 0, "{input:?}");
        // About three seconds of speech.
        assert!((25..45).contains(&input[1]) && input[2] == 0, "{input:?}");
        assert!(output[0] > 3 && output[1] > 10, "{output:?}");
    }
    let mut client = Realtime::connect("model=gpt-realtime");
    let picture = format!("data:image/jpeg;base64,{PICTURE}");
    client.send(&json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": picture}]}}));
    client.send(&json!({"type": "response.create", "response": {"output_modalities": ["text"]}}));
    let done = client.wait_for("response.done");
    let (input, output) = counts(&done);
    assert_eq!(done["response"]["status"], "completed", "{done}");
    assert!(input[2] > 0 && input[1] == 0, "{input:?}");
    assert!(output[0] > 0 && output[1] == 0, "{output:?}");
}

#[test]
fn interrupted_answer_counts_what_was_made() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.send(&json!({"type": "response.create"}));
    client.wait_for("response.output_audio.delta");
    client.send(&json!({"type": "response.cancel"}));
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["status"], "cancelled");
    let (input, output) = counts(&done);
    assert!(input[0] > 0 && output[1] > 0, "{done}");
}

/// The first two responses of a conversation in full duplex.
fn talk(counts_tokens: bool) -> (Tokens, Tokens) {
    let mut config = config("model=gpt-realtime");
    config.profile = "conversation";
    config.simulator.counts_tokens = counts_tokens;
    let mut client = Realtime::with_config(config);
    client.say_silence(4000);
    let mut done = Vec::new();
    for _ in 0..2 {
        client.say(&speech());
        client.say_silence(10_000);
        done.push(counts(&client.wait_for("response.done")));
    }
    client.check();
    (done[0], done[1])
}

#[test]
fn turn_in_full_duplex_counts_everything_since_the_last_turn() {
    let (first, second) = talk(false);
    // The prompt, and at least four seconds before the speech.
    assert!(first.0[0] > 5 && first.0[1] > 60 && second.0[0] == 0, "{first:?} {second:?}");
    assert!(second.0[1] > 30 && second.1[0] > 3 && second.1[1] > 20, "{second:?}");
}

#[test]
fn counters_of_the_server_replace_the_estimate_in_full_duplex() {
    let (estimate, _) = talk(false);
    let (first, second) = talk(true);
    // The simulator counts one token of text for each unit of ten tokens of audio.
    assert!(second.0[0] > 2 && second.0[1] == second.0[0] * 10, "{second:?}");
    assert_eq!(first.0[1], estimate.0[1], "both count ten tokens for a second");
    assert_eq!(first.1[1], estimate.1[1], "both count 25 tokens for a second");
}
