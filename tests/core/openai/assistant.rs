//! Answers in turns: the order of events, history, barge-in, pictures, cancels and out-of-band responses.

use super::*;

/// Asserts that these types occur in this order.
fn assert_order(client: &Realtime, expected: &[&str]) {
    let types = client.types();
    let mut rest = types.iter();
    for kind in expected {
        assert!(rest.any(|found| found == kind), "{kind} is missing or too early in {types:#?}");
    }
}

#[test]
fn session_in_the_query_holds_from_the_start() {
    let session =
        "%7B%22instructions%22%3A%22Answer+in+rhymes.%22%2C%22output_modalities%22%3A%5B%22text%22%5D%7D";
    let mut client = Realtime::connect(&format!("model=gpt-realtime&session={session}"));
    assert_eq!(client.wait_for("session.created")["session"]["instructions"], "Answer in rhymes.");
    client.send(&json!({"type": "response.create"}));
    client.wait_for("response.output_text.done");
    assert_eq!(client.harness.answer_requests()[0][0]["content"][0]["text"], "Answer in rhymes.");
    let mut client = Realtime::connect("model=gpt-realtime&session=%7B%22voice%22%3A5%7D");
    assert_eq!(client.wait_for("error")["error"]["type"], "invalid_request_error");
}

#[test]
fn spoken_question_is_answered_in_openais_order() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.update(&json!({
        "type": "realtime", "instructions": "Be brief.",
        "audio": {"input": {"transcription": {"model": "gpt-4o-transcribe"}}},
    }));
    client.say_question();
    client.wait_for("response.done");
    client.pass(2000 * MS);
    client.check();
    assert_order(
        &client,
        &[
            "session.created",
            "session.updated",
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio.delta",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
            "rate_limits.updated",
        ],
    );
    assert_order(
        &client,
        &[
            "input_audio_buffer.committed",
            "conversation.item.input_audio_transcription.delta",
            "conversation.item.input_audio_transcription.completed",
        ],
    );
    let item = client.of_type("input_audio_buffer.committed")[0]["item_id"].clone();
    for kind in ["input_audio_buffer.speech_started", "conversation.item.input_audio_transcription.completed"]
    {
        assert_eq!(client.of_type(kind)[0]["item_id"], item, "{kind}");
    }
    let done = client.of_type("response.done")[0];
    assert_eq!(done["response"]["status"], "completed");
    let words = client.of_type("response.output_audio_transcript.done")[0]["transcript"].clone();
    assert_eq!(
        done["response"]["output"][0]["content"][0],
        json!({"type": "output_audio", "transcript": words})
    );
    assert!(client.audio_s() > 0.5, "{} s", client.audio_s());
    let request = &client.harness.answer_requests()[0];
    assert_eq!(request[0]["role"], "system");
    assert_eq!(request[0]["content"][0]["text"], "Be brief.");
    assert_eq!(request[1]["content"][0]["type"], "audio");
}

#[test]
fn second_turn_has_the_history_in_words() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client
        .update(&json!({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}));
    for _ in 0..2 {
        client.say_question();
        client.wait_for("response.done");
        client.pass(1000 * MS);
    }
    client.check();
    let requests = client.harness.answer_requests();
    let roles: Vec<_> =
        requests[1].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    let heard =
        client.of_type("conversation.item.input_audio_transcription.completed")[0]["transcript"].clone();
    assert_eq!(requests[1][1]["content"][0]["text"], heard, "the words of the first question");
    let said = client.of_type("response.output_audio_transcript.done")[0]["transcript"].clone();
    assert_eq!(requests[1][2]["content"][0]["text"], said);
    assert_eq!(requests[1][3]["content"][0]["type"], "audio", "the second question as it was spoken");
}

#[test]
fn barge_in_cancels_the_response_and_nothing_stale_follows() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let question = "Tell me a very long story about the history of the world and everything in it please";
    client.ask(question);
    client.wait_for("response.output_audio.delta");
    client.say(&speech());
    client.check();
    let done = client.of_type("response.done")[0].clone();
    assert_eq!(done["response"]["status"], "cancelled");
    assert_eq!(done["response"]["status_details"], json!({"type": "cancelled", "reason": "turn_detected"}));
    assert_eq!(done["response"]["output"][0]["status"], "incomplete");
    assert_order(&client, &["input_audio_buffer.speech_started", "response.done"]);
    client.say_silence(900);
    client.wait_for("response.done");
    let requests = client.harness.answer_requests();
    let said = &requests[1][2];
    assert_eq!(said["role"], "assistant");
    let heard = said["content"][0]["text"].as_str().unwrap();
    assert!(heard.len() < question.len(), "only what was heard: {heard:?}");
}

/// Most clients also truncate the interrupted item, to about what voxbridge takes for heard.
#[test]
fn truncation_after_barge_in_cuts_the_words_once() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let question = "Tell me a very long story about the history of the world and everything in it please";
    client.ask(question);
    client.wait_for("response.output_audio.delta");
    client.say_silence(1000);
    client.say(&speech());
    let done = client.wait_for("response.done");
    let output = &done["response"]["output"][0];
    let all = output["content"][0]["transcript"].as_str().unwrap().to_owned();
    // Audio is sent half a second ahead.
    let heard_ms = (client.audio_s() * 1000.0) as u64 - 500;
    client.send(&json!({"type": "conversation.item.truncate", "item_id": output["id"], "content_index": 0,
        "audio_end_ms": heard_ms}));
    client.send(&json!({"type": "conversation.item.retrieve", "item_id": output["id"]}));
    let item = &client.of_type("conversation.item.retrieved")[0]["item"];
    let told = item["content"][0]["transcript"].as_str().unwrap().to_owned();
    client.say_silence(900);
    client.wait_for("response.done");
    let remembered =
        client.harness.answer_requests()[1][2]["content"][0]["text"].as_str().unwrap().to_owned();
    let words = |text: &str| text.split(' ').count();
    assert!(all.starts_with(&told) && all.starts_with(&remembered), "{told:?} and {remembered:?} of {all:?}");
    assert!(words(&told).abs_diff(words(&remembered)) <= 1, "{told:?} is told, {remembered:?} is remembered");
    assert!((4..words(&all)).contains(&words(&told)), "{told:?} of {all:?} in {heard_ms} ms");
}

#[test]
fn truncation_after_a_barge_in_keeps_the_words_that_were_heard() {
    let history_after_barge_in = |truncates: bool| {
        let mut client = Realtime::connect("model=gpt-realtime");
        let story = "Tell me a very long story about the history of the world and everything in it please";
        client.send(&json!({"type": "response.create", "response": {"instructions": story}}));
        client.wait_for("response.output_audio.delta");
        client.pass(2000 * MS);
        client.say(&speech());
        let response = client.of_type("response.done")[0]["response"].clone();
        assert_eq!(response["status"], "cancelled");
        if truncates {
            let all_ms = (client.audio_s() * 1000.0) as u64;
            let item = &response["output"][0]["id"];
            client.send(&json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": all_ms}));
            assert_eq!(client.of_type("conversation.item.truncated").len(), 1);
        }
        client.say_silence(900);
        client.wait_for("response.done");
        client.harness.answer_requests()[1].to_string()
    };
    let history = history_after_barge_in(false);
    assert!(history.contains("assistant"), "{history}");
    assert_eq!(history_after_barge_in(true).len(), history.len());
}

#[test]
fn barge_in_before_the_client_reads_discards_the_audio_and_keeps_every_event() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.harness.stop_reading();
    client.send(&json!({"type": "response.create", "response": {"instructions": "Say hello to everybody."}}));
    client.pass(1500 * MS);
    client.say(&speech());
    client.harness.resume_reading();
    client.pass(MS);
    client.check();
    assert_order(
        &client,
        &[
            "response.created",
            "response.output_item.added",
            "response.content_part.added",
            "input_audio_buffer.speech_started",
            "response.output_audio.done",
            "response.content_part.done",
            "response.done",
        ],
    );
    let interrupted = &client.of_type("response.done")[0]["response"];
    assert_eq!(interrupted["status"], "cancelled");
    let deltas = client.of_type("response.output_audio.delta");
    assert!(deltas.iter().all(|delta| delta["response_id"] != interrupted["id"]), "{:?}", client.types());
}

#[test]
fn client_cancel_is_told_apart_and_a_second_one_is_an_error() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.send(
        &json!({"type": "response.create", "response": {"instructions": "Say hello to everybody here."}}),
    );
    client.wait_for("response.output_audio.delta");
    client.send(&json!({"type": "response.cancel"}));
    let done = client.of_type("response.done")[0].clone();
    assert_eq!(done["response"]["status_details"]["reason"], "client_cancelled");
    client.send(&json!({"type": "response.cancel", "event_id": "mine"}));
    let error = &client.of_type("error")[0]["error"];
    assert_eq!((&error["code"], &error["event_id"]), (&json!("response_cancel_not_active"), &json!("mine")));
    client.pass(5000 * MS);
    client.check();
    let request = &client.harness.answer_requests()[0];
    assert_eq!(request[0]["content"][0]["text"], "Say hello to everybody here.");
    assert_eq!(request[1]["role"], "user", "the model needs a user's message");
}

#[test]
fn written_answers_metadata_and_out_of_band_responses() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.send(&json!({"type": "response.create", "response": {
        "output_modalities": ["text"], "conversation": "none", "metadata": {"topic": "classification"},
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which one?"}]}]}}));
    client.wait_for("response.done");
    client.check();
    let created = &client.of_type("response.created")[0]["response"];
    assert_has(created, json!({"/metadata": {"topic": "classification"}, "/conversation_id": null}));
    assert_eq!(client.of_type("response.output_text.done")[0]["text"], "simulated answer to: Which one?");
    assert_eq!(client.audio_s(), 0.0);
    assert!(client.of_type("conversation.item.added").is_empty(), "it belongs to no conversation");
    client.respond();
    assert_eq!(client.harness.answer_requests()[1].as_array().unwrap().len(), 2, "no history of it");
}

#[test]
fn own_input_of_a_response_may_refer_to_items_of_the_conversation() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client
        .update(&json!({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}));
    client.say(&speech());
    client.say_silence(900);
    client.wait_for("response.done");
    client.pass(1000 * MS);
    let ids: Vec<Value> =
        client.of_type("conversation.item.done").iter().map(|event| event["item"]["id"].clone()).collect();
    let refer = |id: &Value| json!({"type": "item_reference", "id": id});
    let input = [
        refer(&ids[0]),
        refer(&ids[1]),
        json!({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Was that polite?"}]}),
    ];
    client.send(&json!({"type": "response.create", "response": {"conversation": "none", "input": input}}));
    client.wait_for("response.done");
    let heard =
        client.of_type("conversation.item.input_audio_transcription.completed")[0]["transcript"].clone();
    let said = client.of_type("response.output_audio_transcript.done")[0]["transcript"].clone();
    let request = client.harness.answer_requests()[1].clone();
    let texts: Vec<_> =
        request.as_array().unwrap().iter().skip(1).map(|it| &it["content"][0]["text"]).collect();
    assert_eq!(texts, [&heard, &said, &json!("Was that polite?")]);
    client.send(&json!({"type": "response.create", "response": {"input": [refer(&json!("item_nowhere"))]}}));
    let error = client.wait_for("error")["error"].clone();
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("invalid_item_id"), &json!("response.input[0].id"))
    );
}

/// A response holds a voice's name even if the session holds an object: clients reject the object there.
#[test]
fn response_names_a_voice_that_was_given_as_an_object() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.update(&json!({"type": "realtime", "audio": {"output": {"voice": {"id": "voice_1"}}}}));
    client.respond();
    let session = &client.of_type("session.updated")[0]["session"];
    assert_eq!(session["audio"]["output"]["voice"], json!({"id": "voice_1"}));
    for kind in ["response.created", "response.done"] {
        assert_eq!(client.of_type(kind)[0]["response"]["audio"]["output"]["voice"], "voice_1", "{kind}");
    }
}

#[test]
fn pictures_reach_the_next_answer_only() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.update(&json!({"type": "realtime", "output_modalities": ["text"]}));
    client.send(
        &json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [
        {"type": "input_image", "image_url": format!("data:image/jpeg;base64,{PICTURE}")},
        {"type": "input_text", "text": "What is this?"}]}}),
    );
    for _ in 0..2 {
        client.respond();
    }
    let types = |request: &Value| -> Vec<String> {
        let parts = request[1]["content"].as_array().unwrap();
        parts.iter().map(|part| part["type"].as_str().unwrap().to_owned()).collect()
    };
    let requests = client.harness.answer_requests();
    assert_eq!(types(&requests[0]), ["image", "text"]);
    assert_eq!(types(&requests[1]), ["text"]);
}

#[test]
fn committed_audio_without_turn_detection_is_one_turn() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.update(&json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}}));
    let updated = client.of_type("session.updated")[0];
    assert_eq!(updated["session"]["audio"]["input"]["turn_detection"], Value::Null);
    client.say_silence(5000);
    client.say(&speech());
    client.say_silence(1500);
    client.say(&speech());
    assert_eq!(client.types().len(), 2, "no voice activity is told: {:?}", client.types());
    client.send(&json!({"type": "input_audio_buffer.commit"}));
    client.respond();
    client.check();
    assert_eq!(client.of_type("input_audio_buffer.committed").len(), 1);
    let audio = client.harness.answer_requests()[0][1]["content"][0]["data"].as_str().unwrap().len();
    let seconds = audio as f64 * 0.75 / 4.0 / 16_000.0;
    assert!((7.0..9.5).contains(&seconds), "{seconds} s: both sentences, without the silence before them");
    client.send(&json!({"type": "input_audio_buffer.commit", "event_id": "mine"}));
    let error = &client.of_type("error")[0]["error"];
    let expected = (&json!("input_audio_buffer_commit_empty"), &json!("mine"));
    assert_eq!((&error["code"], &error["event_id"]), expected);
}

#[test]
fn item_store_answers_retrieve_truncate_and_delete() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.respond();
    let item = client.of_type("response.output_item.done")[0]["item"]["id"].clone();
    client.send(&json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 500}));
    assert_eq!(client.of_type("conversation.item.truncated")[0]["audio_end_ms"], 500);
    client.send(&json!({"type": "conversation.item.retrieve", "item_id": item}));
    let said =
        client.of_type("response.output_audio_transcript.done")[0]["transcript"].as_str().unwrap().to_owned();
    let kept = client.of_type("conversation.item.retrieved")[0]["item"]["content"][0]["transcript"].clone();
    let kept = kept.as_str().unwrap().to_owned();
    assert!(said.starts_with(&kept) && kept.len() < said.len(), "{kept:?} of {said:?}");
    client.respond();
    let requests = client.harness.answer_requests();
    let history = requests[1].to_string();
    assert!(!history.contains(&said), "the model is told of words that nobody heard: {history}");
    client.send(&json!({"type": "conversation.item.delete", "item_id": item}));
    assert_eq!(client.of_type("conversation.item.deleted")[0]["item_id"], item);
    client.send(&json!({"type": "conversation.item.retrieve", "item_id": item}));
    assert_eq!(client.of_type("error")[0]["error"]["code"], "item_retrieve_invalid_item_id");
}

#[test]
fn lost_upstream_fails_the_response_and_the_session_goes_on() {
    let config = config("model=gpt-realtime").faults(&["die-mid-answer,times=1"]);
    let mut client = Realtime::with_config(config);
    client.send(&json!({"type": "response.create"}));
    let failed = client.wait_for("response.done");
    assert_eq!(failed["response"]["status"], "failed", "{failed}");
    assert!(client.of_type("error").is_empty(), "several clients end at an error");
    client.send(&json!({"type": "response.create"}));
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["status"], "completed", "{done}");
    client.check();
}

#[test]
fn duplex_turns_get_responses_of_their_own() {
    let mut config = config("model=gpt-realtime");
    config.profile = "conversation";
    let mut client = Realtime::with_config(config);
    client.pass(1000 * MS);
    // An utterance is done without a transcript, because the client wants none.
    client.update(&json!({"audio": {"input": {"transcription": null}}}));
    client.say(&speech());
    for _ in 0..150 {
        client.say_silence(100);
    }
    client.check();
    let done = client.of_type("response.done");
    assert!(!done.is_empty(), "{:?}", client.types());
    assert_eq!(done[0]["response"]["status"], "completed");
    assert!(client.audio_s() > 0.5, "{} s", client.audio_s());
    let users =
        |kind: &str| client.of_type(kind).iter().filter(|event| event["item"]["role"] == "user").count();
    assert!(users("conversation.item.added") > 0, "{:?}", client.types());
    assert_eq!(users("conversation.item.done"), users("conversation.item.added"), "{:?}", client.types());
}

#[test]
fn request_during_a_duplex_turn_is_an_error_also_outside_of_the_conversation() {
    let mut config = config("model=gpt-realtime");
    config.profile = "conversation";
    let mut client = Realtime::with_config(config);
    client.pass(1000 * MS);
    client.say(&speech());
    let mut steps = 0..150;
    while client.of_type("response.created").is_empty() && steps.next().is_some() {
        client.say_silence(100);
    }
    client.send(&json!({"type": "response.create", "response": {"conversation": "none"}}));
    assert_eq!(client.wait_for("error")["error"]["code"], "conversation_already_has_active_response");
    client.check();
}

#[test]
fn speech_cut_off_by_manual_commits_gets_its_end() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.say(&speech());
    let count = |client: &Realtime, kind: &str| client.of_type(kind).len();
    assert_eq!(count(&client, "input_audio_buffer.speech_started"), 1);
    client.update(&json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}}));
    assert_eq!(count(&client, "input_audio_buffer.speech_stopped"), 1, "{:?}", client.types());
    client.say(&speech());
    client
        .update(&json!({"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad"}}}}));
    client.say_silence(900);
    let edges = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"];
    assert_eq!(edges.map(|kind| count(&client, kind)), [1, 1], "{:?}", client.types());
}

#[test]
fn single_worker_answers_before_it_transcribes() {
    let mut client = Realtime::with_config(config("model=gpt-realtime").workers(1));
    client
        .update(&json!({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}));
    client.say_question();
    client.wait_for("conversation.item.input_audio_transcription.completed");
    client.wait_for("response.done");
    client.check();
    assert_order(
        &client,
        &["response.output_audio.delta", "conversation.item.input_audio_transcription.completed"],
    );
}

/// The client commits, or asks for the answer when it learns that the utterance is committed.
#[test]
fn single_worker_answers_a_request_before_it_transcribes() {
    for detection in [Value::Null, json!({"type": "server_vad", "create_response": false})] {
        let mut client = Realtime::with_config(config("model=gpt-realtime").workers(1));
        client.update(&json!({"type": "realtime", "audio": {"input": {
            "transcription": {"model": "whisper-1"}, "turn_detection": detection}}}));
        client.say(&speech());
        if detection.is_null() {
            client.send(&json!({"type": "input_audio_buffer.commit"}));
        }
        while client.of_type("input_audio_buffer.committed").is_empty() {
            client.say_silence(100);
        }
        client.send(&json!({"type": "response.create"}));
        client.wait_for("conversation.item.input_audio_transcription.completed");
        client.wait_for("response.done");
        client.check();
        assert_order(
            &client,
            &["response.output_audio.delta", "conversation.item.input_audio_transcription.completed"],
        );
    }
}

#[test]
fn utterance_without_a_request_is_transcribed_after_a_short_wait() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.update(&json!({"type": "realtime", "audio": {"input": {
        "transcription": {"model": "whisper-1"}, "turn_detection": null}}}));
    client.say(&speech());
    client.send(&json!({"type": "input_audio_buffer.commit"}));
    client.pass(2000 * MS);
    assert_eq!(client.of_type("conversation.item.input_audio_transcription.completed").len(), 1);
    client.check();
}

#[test]
fn transcript_that_is_being_made_still_comes_when_transcription_is_turned_off() {
    let mut config = config("model=gpt-realtime");
    config.latency = 300 * MS;
    let mut client = Realtime::with_config(config);
    client
        .update(&json!({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}));
    client.say(&speech());
    while client.of_type("input_audio_buffer.committed").is_empty() {
        client.say_silence(100);
    }
    assert!(client.of_type("conversation.item.input_audio_transcription.completed").is_empty());
    client.update(&json!({"type": "realtime", "audio": {"input": {"transcription": null}}}));
    let completed = client.wait_for("conversation.item.input_audio_transcription.completed");
    let item = &client.of_type("input_audio_buffer.committed")[0]["item_id"];
    assert_eq!(&completed["item_id"], item);
    let words = completed["transcript"].clone();
    assert_order(
        &client,
        &["conversation.item.input_audio_transcription.completed", "conversation.item.done"],
    );
    client.send(&json!({"type": "conversation.item.retrieve", "item_id": completed["item_id"]}));
    assert_eq!(client.of_type("conversation.item.retrieved")[0]["item"]["content"][0]["transcript"], words);
    // The next utterance has none.
    client.say(&speech());
    client.say_silence(3000);
    client.check();
    assert_eq!(client.of_type("input_audio_buffer.committed").len(), 2);
    assert_eq!(client.of_type("conversation.item.input_audio_transcription.completed").len(), 1);
}
