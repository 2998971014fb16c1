//! An upstream that never assigns a worker: the client is read, its commands are answered, and waiting transcripts fail with
//! their item's id.

use super::*;

const S: Duration = Duration::from_secs(1);

/// A client that commits its audio and wants transcripts, behind others that keep every worker.
fn connect_behind_others(profile: &'static str) -> Realtime {
    let base = config("model=gpt-realtime");
    let mut client = Realtime::with_config(HarnessConfig { profile, taken_workers: 1, ..base });
    client.update(&json!({"type": "realtime", "output_modalities": ["text"], "audio": {"input": {
        "transcription": {"model": "any"}, "turn_detection": null}}}));
    client
}

#[test]
fn client_is_read_while_transcripts_wait_and_the_oldest_fail_by_name() {
    for profile in ["assistant", "transcribed"] {
        let mut client = match profile {
            "transcribed" => {
                let conversation = HarnessConfig::transcribed_conversation();
                let base = HarnessConfig { library: conversation.library, ..config("model=gpt-realtime") };
                Realtime::with_config(HarnessConfig { profile, taken_workers: 1, ..base })
            }
            _ => connect_behind_others(profile),
        };
        client.update(&json!({"type": "realtime", "audio": {"input": {
            "transcription": {"model": "any"}, "turn_detection": null}}}));
        let speech: Vec<i16> = speech().into_iter().cycle().take(24_000 * 28).collect();
        for commit in 1..=12 {
            for chunk in speech.chunks(CHUNK_SAMPLES * 10) {
                client.append(chunk);
                assert!(!client.harness.report().needs_backpressure, "{profile}: commit {commit}");
            }
            client.send(&json!({"type": "input_audio_buffer.commit"}));
            assert_eq!(client.of_type("input_audio_buffer.committed").len(), commit, "{profile}");
            client.pass(100 * MS);
        }
        let failed = client.of_type("conversation.item.input_audio_transcription.failed");
        assert!((2..=4).contains(&failed.len()), "{profile}: {}", failed.len());
        let committed = client.of_type("input_audio_buffer.committed");
        for (failed, committed) in failed.iter().zip(committed) {
            assert_eq!(failed["item_id"], committed["item_id"], "{profile}: the oldest fail first");
            assert_ne!(failed["error"]["code"], "", "{profile}");
        }
        client.pass(250 * S);
        let failed = client.of_type("conversation.item.input_audio_transcription.failed");
        assert_eq!(failed.len(), 12, "{profile}: each request has an end");
    }
}

#[test]
fn answer_in_a_stuck_queue_is_announced_and_fails_with_a_code() {
    let mut client = connect_behind_others("assistant");
    client.send(&json!({"type": "response.create"}));
    client.pass(20 * S);
    assert_eq!(client.of_type("error").len(), 1, "{:?}", client.types());
    assert!(client.of_type("response.done").is_empty());
    client.pass(102 * S);
    let done = client.of_type("response.done")[0];
    assert_eq!(done["response"]["status"], "failed");
    let codes =
        [&client.of_type("error")[0]["error"]["code"], &done["response"]["status_details"]["error"]["code"]];
    assert!(codes.iter().all(|code| code.as_str().is_some_and(|code| !code.is_empty())), "{codes:?}");
}

#[test]
fn transcription_client_gets_no_error_while_its_request_still_waits() {
    let base = config("intent=transcription");
    let mut client = Realtime::with_config(HarnessConfig { taken_workers: 1, ..base });
    client.say_question();
    client.pass(60 * S);
    assert!(client.of_type("error").is_empty(), "LiveKit's transcription ends at any error");
    client.pass(70 * S);
    let failed = client.of_type("conversation.item.input_audio_transcription.failed");
    assert_eq!(failed.len(), 1);
    assert_ne!(failed[0]["error"]["code"], "");
}

#[test]
fn prepared_worker_is_given_back_when_no_answer_is_expected_any_more() {
    for detection in [
        json!(null),
        json!({"type": "server_vad", "create_response": false}),
        json!({"type": "semantic_vad", "create_response": false}),
    ] {
        let mut client = Realtime::connect("model=gpt-realtime");
        client.say(&speech());
        assert_eq!(client.harness.connections(), 1, "a lane is prepared while the user speaks");
        client.update(&json!({"type": "realtime", "audio": {"input": {"turn_detection": detection}}}));
        client.pass(5 * S);
        assert_eq!(client.harness.connections(), 0, "{detection}: {:?}", client.types());
    }
}

#[test]
fn prepared_worker_is_kept_until_the_answer() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.say(&speech());
    client.update(&json!({"type": "realtime", "instructions": "Be brief."}));
    client.say_silence(900);
    client.wait_for("response.done");
    assert_eq!(client.harness.dial_count(), 1);
}

#[test]
fn utterance_is_answered_although_sixteen_requests_of_the_client_wait() {
    let mut client = connect_behind_others("assistant");
    client
        .update(&json!({"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad"}}}}));
    for _ in 0..20 {
        client.send(&json!({"type": "response.create", "response": {"conversation": "none"}}));
    }
    client.say_question();
    client.harness.release_workers();
    client.pass(300 * S);
    let refused =
        client.of_type("error").iter().filter(|it| it["error"]["type"] == "invalid_request_error").count();
    let answered = client.of_type("response.done").len();
    assert_eq!(answered, 20 - refused + 1, "each accepted request, and the utterance: {:?}", client.types());
}

#[test]
fn question_whose_session_dies_without_an_answer_is_asked_again_and_then_fails() {
    let mut client = Realtime::with_config(config("model=gpt-realtime").faults(&["never-answers"]));
    client.send(&json!({"type": "response.create"}));
    let died = json!({"type": "session.closed", "reason": "backend_error",
        "diagnostic": {"message": "torch.cat(): expected a non-empty list of Tensors"}});
    for _ in 0..2 {
        client.pass(500 * MS);
        assert!(client.of_type("response.done").is_empty(), "{:?}", client.types());
        let lane = *client.harness.lanes().last().unwrap();
        client.harness.inject_upstream_text(lane, &died.to_string());
        client.pass(6 * S);
    }
    assert_eq!(client.of_type("response.done")[0]["response"]["status"], "failed");
}
