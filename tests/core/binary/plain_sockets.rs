//! The sockets of FunASR, WhisperLive and sherpa-onnx, and DashScope's tasks: exact messages, headers, tasks, repeated segments.

use proptest::prelude::*;

use super::*;

/// All messages of the client so far, with plain text as JSON strings.
pub(super) fn messages(harness: &Harness) -> Vec<Value> {
    let events = harness.log.iter().filter_map(|(_, frame)| match frame {
        ClientFrame::Event(event) => Some(event.clone()),
        _ => None,
    });
    events.collect()
}

fn floats(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| (f32::from(*sample) / 32768.0).to_le_bytes()).collect()
}

fn stream_floats(harness: &mut Harness, samples: &[i16]) {
    for frame in samples.chunks(1600) {
        harness.send_binary(&floats(frame));
        harness.advance(ms(100));
    }
}

fn funasr(mode: &str) -> Harness {
    let mut harness = open_client("funasr", "", &[]);
    harness.send_json(&json!({
        "mode": mode, "chunk_size": [5, 10, 5], "chunk_interval": 10, "wav_name": "a.wav", "is_speaking": true,
        "hotwords": "{\"voxbridge\": 20}", "itn": true, "audio_fs": 16000
    }));
    harness
}

fn is_last(message: &Value) -> bool {
    message["is_end"] == true
}

#[test]
fn funasr_client_gets_its_results_and_a_last_message_for_each_utterance() {
    let mut harness = funasr("2pass");
    for round in 1..=2 {
        harness.stream(&[utterance(), voice(1200)].concat(), 60);
        harness.send_json(&json!({"is_speaking": false, "is_end": true}));
        let is_done = |harness: &Harness| messages(harness).iter().filter(|it| is_last(it)).count() == round;
        assert!(harness.run_until(is_done, secs(20)).is_some(), "{:?}", messages(&harness));
        harness.send_json(&json!({"is_speaking": true}));
    }
    let all = messages(&harness);
    assert!(all.iter().all(|it| it["wav_name"] == "a.wav"), "{all:?}");
    let finals: Vec<_> = all.iter().filter(|it| it["mode"] == "2pass-offline").collect();
    assert_eq!(finals.iter().map(|it| &it["is_final"]).collect::<Vec<_>>(), [false, true, false, true]);
    let mut so_far = String::new();
    for message in &all {
        match message["mode"].as_str() {
            Some("2pass-online") => so_far += message["text"].as_str().unwrap(),
            Some("2pass-offline") => {
                assert!(message["text"].as_str().unwrap().starts_with(&so_far), "{so_far}: {message}");
                so_far.clear();
            }
            _ => assert!(is_last(message) && message["is_final"] == true, "{message}"),
        }
    }
}

#[test]
fn offline_funasr_client_gets_all_words_at_once() {
    let mut harness = funasr("offline");
    upload(&mut harness, &[utterance(), utterance()].concat(), 960);
    harness.send_json(&json!({"is_speaking": false}));
    harness.run_until(|harness| !messages(harness).is_empty(), secs(20));
    harness.advance(secs(5));
    let all = messages(&harness);
    let [only] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(only["text"].as_str().unwrap().matches("simulated transcript").count(), 2, "{only}");
    assert_has(only, json!({"/mode": "offline", "/is_final": true, "/is_end": null}));
}

#[test]
fn end_is_told_although_the_user_goes_on() {
    let mut harness = funasr("offline");
    upload(&mut harness, &utterance(), 960);
    harness.send_json(&json!({"is_speaking": false, "is_end": true}));
    harness.send_json(&json!({"is_speaking": true}));
    upload(&mut harness, &utterance(), 960);
    harness.advance(secs(30));
    assert_eq!(messages(&harness).iter().filter(|it| is_last(it)).count(), 1, "{:?}", messages(&harness));
    harness.send_json(&json!({"is_speaking": false}));
    harness.advance(secs(30));
    let all = messages(&harness);
    let words: String = all.iter().filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(words.matches("simulated transcript").count(), 2, "{all:?}");
}

#[test]
fn flood_of_requests_to_complete_is_refused_and_the_next_one_is_answered() {
    let mut harness = open_client("sherpa-onnx", "", &[]);
    stream_floats(&mut harness, &voice(1200));
    let done = |harness: &Harness| messages(harness).iter().filter(|it| **it == json!("Done!")).count();
    for _ in 0..100 {
        harness.send_text("Done");
    }
    harness.advance(secs(20));
    let answered = done(&harness);
    assert!((32..100).contains(&answered), "{answered}");
    harness.send_text("Done");
    harness.advance(secs(5));
    assert_eq!(done(&harness), answered + 1);
}

#[test]
fn whisper_live_client_gets_its_last_segments_repeated() {
    let mut harness = open_client("whisper-live", "", &[]);
    harness.send_json(&json!({
        "uid": "u1", "language": "en", "task": "transcribe", "model": "small", "use_vad": true,
        "send_last_n_segments": 2, "hotwords": null
    }));
    assert_eq!(messages(&harness)[0]["message"], "SERVER_READY");
    for _ in 0..3 {
        stream_floats(&mut harness, &[utterance(), zeros(1500)].concat());
    }
    harness.send_binary(b"END_OF_AUDIO");
    harness.run_until(Harness::is_closed, secs(20));
    let all = messages(&harness);
    assert!(all.iter().all(|it| it["uid"] == "u1"), "{all:?}");
    let last = all.iter().rev().find_map(|it| it["segments"].as_array()).unwrap();
    assert_eq!(last.iter().map(|it| it["completed"] == true).collect::<Vec<_>>(), [true, true]);
    let mut end = 0.0;
    for segment in last {
        let time = |key: &str| segment[key].as_str().unwrap().parse::<f64>().unwrap();
        assert!(time("start") >= end && time("end") > time("start"), "{last:?}");
        end = time("end");
    }
    assert!(harness.names().last().unwrap() == "close 1000");
}

#[test]
fn sherpa_onnx_client_gets_a_last_result_and_done() {
    let mut harness = open_client("sherpa-onnx", "", &[]);
    for audio in [voice(1200), Vec::new()] {
        stream_floats(&mut harness, &audio);
        harness.send_text("Done");
        let is_done = |harness: &Harness| messages(harness).last() == Some(&json!("Done!"));
        harness.wait_until(is_done, secs(20));
        let all = messages(&harness);
        let last = &all[all.len() - 2];
        assert_eq!((&last["is_eof"], last["text"] == ""), (&json!(true), audio.is_empty()), "{last}");
        harness.advance(ms(1));
        harness.send_text("anything else");
        assert_eq!(messages(&harness).len(), all.len(), "wrong messages are skipped");
        harness.send_binary(&[0; 4]);
    }
}

#[test]
fn recordings_with_a_header_get_one_result_each() {
    let mut harness = open_client("sherpa-onnx-offline", "", &[]);
    for (count, length) in [(1, 1), (2, 4093)] {
        let audio = floats(&[utterance(), voice(1200)].concat());
        let header = [16_000_u32.to_le_bytes(), u32::try_from(audio.len()).unwrap().to_le_bytes()].concat();
        harness.send_binary(&header[..length.min(8)]);
        harness.send_binary(&header[length.min(8)..]);
        for piece in audio.chunks(4093) {
            harness.run_until(|harness| !harness.report().needs_backpressure, secs(60));
            harness.send_binary(piece);
        }
        harness.run_until(|harness| messages(harness).len() == count, secs(60));
        let all = messages(&harness);
        assert_eq!(all[count - 1]["text"].as_str().unwrap().matches("simulated transcript").count(), 2);
    }
    harness.send_text("Done");
    harness.run_until(Harness::is_closed, secs(10));
    assert_eq!((messages(&harness).len(), harness.names().last().unwrap().as_str()), (2, "close 1000"));
    for (rate_hz, bytes, code) in [
        (16_000, u32::MAX, "close 1009"),
        (0, 400, "close 1008"),
        (5, 400, "close 1008"),
        (16_000, 401, "close 1008"),
    ] {
        let mut harness = open_client("sherpa-onnx-offline", "", &[]);
        harness.send_binary(&[u32::to_le_bytes(rate_hz), bytes.to_le_bytes()].concat());
        harness.run_until(Harness::is_closed, secs(10));
        assert_eq!(harness.names().last().unwrap(), code, "{rate_hz} {bytes}");
    }
}

pub(super) fn task(action: &str, id: &str, payload: Value) -> Value {
    json!({"header": {"action": action, "task_id": id, "streaming": "duplex"}, "payload": payload})
}

fn task_events(harness: &Harness) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("null").to_owned();
    messages(harness)
        .iter()
        .map(|it| (text(&it["header"]["event"]), text(&it["header"]["task_id"])))
        .collect()
}

#[test]
fn dashscope_tasks_are_checked_by_their_id_and_may_follow_each_other() {
    let mut harness = open_client("dashscope-asr", "", &[]);
    harness.send_json(&task("finish-task", "t0", json!({"input": {}})));
    assert_eq!(task_events(&harness).pop().unwrap().0, "task-failed", "no task runs");
    for id in ["t1", "t2"] {
        let run = json!({"task_group": "audio", "task": "asr", "function": "recognition", "model": "paraformer",
            "parameters": {"format": "pcm", "sample_rate": 16000, "language_hints": ["en", "zh"]}, "input": {}});
        harness.send_json(&task("run-task", id, run));
        assert_eq!(task_events(&harness).pop().unwrap(), ("task-started".to_owned(), id.to_owned()));
        harness.stream(&voice(1500), 100);
        harness.send_json(&task("finish-task", "other", json!({"input": {}})));
        let failed = messages(&harness).pop().unwrap();
        assert_eq!(failed["header"]["error_code"], "InvalidParameter");
        assert!(failed["header"]["error_message"].as_str().unwrap().contains("should repeat"), "{failed}");
        harness.send_json(&task("finish-task", id, json!({"input": {}})));
        harness.run_until(|harness| task_events(harness).last().unwrap().0 == "task-finished", secs(20));
        let events = task_events(&harness);
        assert_eq!(events.last().unwrap(), &("task-finished".to_owned(), id.to_owned()));
        let sentence = &messages(&harness)[events.len() - 2]["payload"]["output"]["sentence"];
        assert!(sentence["begin_time"].as_u64() < sentence["end_time"].as_u64(), "{sentence}");
    }
}

#[test]
fn dashscope_speech_is_finished_after_its_audio_or_cancelled() {
    let mut harness = open_client("dashscope-tts", "", &[]);
    let run = |format: &str| {
        json!({"task_group": "audio", "task": "tts", "function": "SpeechSynthesizer", "model": "cosyvoice",
            "parameters": {"format": format, "sample_rate": 24000, "voice": "any"}, "input": {}})
    };
    harness.send_json(&task("run-task", "t0", run("amr")));
    assert_eq!(task_events(&harness), [("task-failed".to_owned(), "t0".to_owned())]);
    harness.send_json(&task("run-task", "t1", run("pcm")));
    for text in ["Hel", "lo there."] {
        harness.send_json(&task("continue-task", "t1", json!({"input": {"text": text}})));
    }
    harness.send_json(&task("continue-task", "t1", json!({"input": {"flush": true}})));
    harness.send_json(&task("finish-task", "t1", json!({"input": {}})));
    let is_finished = |harness: &Harness| task_events(harness).last().unwrap().0 == "task-finished";
    harness.wait_until(is_finished, secs(30));
    let spoken = harness.audio().len();
    assert!(spoken > 10_000 && harness.names().last().unwrap() != "binary", "{spoken}");
    harness.send_json(&task("run-task", "t2", run("pcm")));
    harness.send_json(&task("continue-task", "t2", json!({"input": {"text": "Never heard. ".repeat(50)}})));
    harness.send_json(&task("continue-task", "t2", json!({"input": {"flush": true}})));
    harness.send_json(&task("finish-task", "t2", json!({"input": {"directive": "cancel"}})));
    assert!(harness.run_until(is_finished, secs(1)).is_some(), "at once");
    assert_eq!(task_events(&harness).last().unwrap().1, "t2");
    harness.advance(secs(20));
    assert_eq!(harness.audio().len(), spoken);
}

#[test]
fn dashscope_speaks_a_complete_sentence_before_the_text_ends() {
    let mut harness = open_client("dashscope-tts", "", &[]);
    let run = json!({"task_group": "audio", "task": "tts", "function": "SpeechSynthesizer", "model": "cosyvoice",
        "parameters": {"format": "pcm", "sample_rate": 24000, "voice": "any"}, "input": {}});
    harness.send_json(&task("run-task", "t1", run));
    for text in ["This sentence is com", "plete. This one is", " not"] {
        harness.send_json(&task("continue-task", "t1", json!({"input": {"text": text}})));
    }
    harness.advance(secs(20));
    let first = harness.audio().len();
    assert!(first > 10_000, "{first}");
    harness.send_json(&task("finish-task", "t1", json!({"input": {}})));
    harness.advance(secs(20));
    assert!(harness.audio().len() > first);
}

proptest! {
    #![proptest_config(properties::config())]

    /// A message that repeats or lacks parts ends no session badly: the last message still comes.
    #[test]
    fn odd_messages_do_not_stop_a_funasr_session(odd in vec("[ -~]{0,40}|\\{\"is_speaking\": (true|1|null|\"no\"|[0-9]{20}), \"mode\": (\"online\"|7)\\}", 0..5)) {
        let mut harness = funasr("2pass");
        for message in &odd {
            harness.send_text(message);
            harness.send_binary(&[1]);
        }
        harness.send_json(&json!({"is_speaking": false, "is_end": true}));
        harness.run_until(|harness| messages(harness).last().is_some_and(|it| is_last(it) && it["is_final"] == true), secs(30));
        let all = messages(&harness);
        prop_assert!(all.last().is_some_and(is_last), "{all:?}");
    }
}
