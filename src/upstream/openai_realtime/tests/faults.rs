//! Servers that deviate from OpenAI's documents: what each does to a question, to a text and to a conversation.

use super::*;

fn delta(response: &str, audio: &str) -> Value {
    json!({"type": "response.output_audio.delta", "response_id": response, "delta": audio})
}

fn words(response: &str, words: &str) -> Value {
    json!({"type": "response.output_audio_transcript.delta", "response_id": response, "delta": words})
}

fn created(response: &str) -> Value {
    json!({"type": "response.created", "response": {"id": response, "status": "in_progress"}})
}

fn ended(response: &str, status: &str) -> Value {
    json!({"type": "response.done", "response": {"id": response, "status": status}})
}

fn error(code: &str) -> Value {
    json!({"type": "error", "error": {"type": "t", "code": code, "message": "words", "event_id": null}})
}

/// base64 of these bytes.
fn bytes(bytes: &[u8]) -> String {
    let mut base64 = String::new();
    pcm::encode_base64(bytes, &mut base64);
    base64
}

#[test]
fn each_deviation_costs_a_question_no_output_and_adds_none() {
    let unknown = json!({"type": "response.thinking.delta", "response_id": "r", "delta": "hm"});
    let call = json!({"type": "response.output_item.done", "response_id": "r", "item": {
        "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"}});
    let item = |kind: &str, id: &str| json!({"type": kind, "item": {"id": id, "type": "message"}});
    let usual = [created("r"), words("r", "Hi"), delta("r", &pcm16(240)), ended("r", "completed")];
    let heard = ["text Hi", "audio 240", "done "];
    let with = |at: usize, message: Value| [&usual[..at], &[message], &usual[at..]].concat();
    for (what, messages, expected) in [
        ("the end comes twice", with(4, ended("r", "completed")), &heard[..]),
        ("output after the end", [&usual[..], &usual[1..3]].concat(), &heard),
        (
            "another response that nobody asked for",
            {
                [
                    &usual[..],
                    &[created("s"), words("s", "And"), delta("s", &pcm16(240)), ended("s", "completed")],
                ]
                .concat()
            },
            &["text Hi", "audio 240", "done ", "text And", "audio 240", "done "],
        ),
        (
            "an unknown event",
            with(2, unknown),
            &["text Hi", "Unknown(\"a message of type response.thinking.delta\")", "audio 240", "done "],
        ),
        ("empty output", with(1, delta("r", "")), &heard),
        ("empty words", with(2, words("r", "")), &heard),
        (
            "items in another order",
            {
                [&[item("conversation.item.done", "b"), item("conversation.item.added", "a")][..], &usual]
                    .concat()
            },
            &heard,
        ),
        ("a call before the words", with(1, call), &["call c f {}", "text Hi", "audio 240", "done "]),
        (
            "units of 80 ms",
            { [&usual[..2], &vec![delta("r", &pcm16(1920)); 3], &usual[3..]].concat() },
            &["text Hi", "audio 1920", "audio 1920", "audio 1920", "done "],
        ),
        (
            "the turn is ended already",
            with(0, error("input_audio_buffer_commit_empty")),
            &["Unknown(\"input_audio_buffer_commit_empty: words\")", "text Hi", "audio 240", "done "],
        ),
        (
            "the turn is answered already",
            with(2, error("conversation_already_has_active_response")),
            &[
                "text Hi",
                "Unknown(\"conversation_already_has_active_response: words\")",
                "audio 240",
                "done ",
            ],
        ),
    ] {
        let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
        bench.ask(turn(Vec::new()));
        assert_eq!(bench.receive_all(&messages), expected, "{what}");
        assert_eq!(bench.actions(), [Value::Null; 0], "{what}: the session goes on");
    }
}

#[test]
fn binary_frame_is_noted_and_is_not_taken_for_audio() {
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    bench.ask(turn(Vec::new()));
    let mut events = Vec::new();
    bench.codec.decode(bench.now, Frame::Binary(&[0; 480]), |event, _| events.push(format!("{event:?}")));
    assert_eq!(events, ["Unknown(\"a binary frame\")"]);
    assert_eq!(bench.receive(&ended("r", "completed")), ["done "]);
}

#[test]
fn samples_that_are_split_between_messages_are_whole() {
    let samples: Vec<u8> = (0..1000_i16).flat_map(i16::to_le_bytes).collect();
    for sizes in [[1, 999, 1000], [3, 5, 1992], [1999, 1, 0], [667, 667, 666]] {
        let mut bench = Bench::ready(LanePurpose::Speak, 24_000);
        bench.encode(LaneRequest::Speak {
            before_voice: String::new(),
            after_voice: String::new(),
            request: "Read: Hello".to_owned(),
            text: "Hello".to_owned(),
            voice: None,
            voice_name: None,
        });
        let (mut heard, mut rest) = (Vec::new(), &samples[..]);
        for size in sizes {
            let (piece, later) = rest.split_at(size);
            rest = later;
            let message = delta("r", &bytes(piece)).to_string();
            bench.codec.decode(bench.now, Frame::Text(&message), |event, _| match event {
                LaneEvent::Audio(samples) => heard.extend(samples.iter().map(|sample| pcm::to_i16(*sample))),
                other => panic!("{sizes:?}: {other:?}"),
            });
        }
        assert!(heard.iter().copied().eq(0..1000), "{sizes:?}: {} samples", heard.len());
    }
    // The rest of one response is no part of the next.
    let mut bench = Bench::ready(LanePurpose::Speak, 24_000);
    assert_eq!(
        bench.receive_all(&[delta("r", &bytes(&[0; 3])), ended("r", "completed")]),
        ["audio 1", "done "]
    );
    assert_eq!(bench.receive_all(&[created("s"), delta("s", &bytes(&[0; 2]))]), ["audio 1"]);
}

#[test]
fn late_end_of_a_text_does_not_end_the_next_one() {
    let mut bench = Bench::ready(LanePurpose::Speak, 24_000);
    let first = [created("r"), delta("r", &pcm16(240)), ended("r", "completed")];
    assert_eq!(bench.receive_all(&first), ["audio 240", "done "]);
    let late = [ended("r", "completed"), delta("r", &pcm16(240))];
    assert_eq!(bench.receive_all(&late), [""; 0]);
    // A server that uses its ids again.
    assert_eq!(bench.receive_all(&first), ["audio 240", "done "]);
}

#[test]
fn server_that_keeps_its_own_detector_gets_a_question_as_an_item() {
    let mut bench = Bench::dialled(LanePurpose::Answer, Mode::Chat);
    bench.encode(LaneRequest::Init(None));
    let mut updated = session("session.updated", 24_000);
    updated["session"]["audio"]["input"]["turn_detection"] = json!({"type": "server_vad"});
    let events = bench.receive_all(&[session("session.created", 24_000), updated]);
    assert_eq!(events, ["Ready s"]);
    let sent = bench.ask(turn(vec![message(Role::User, vec![audio(500)])]));
    assert_eq!(kinds(&sent), ["session.update", "message user", "response.create"]);
    assert_eq!(sent[1]["item"]["content"][0]["type"], "input_audio");
}

#[test]
fn session_that_the_url_opens_is_ready_once_its_settings_are_answered() {
    let mut bench = Bench::dialled(LanePurpose::Answer, Mode::Chat);
    bench.encode(LaneRequest::Init(None));
    let mut created = session("session.created", 16_000);
    created["resume_token"] = "t".into();
    assert_eq!(bench.receive_all(&[created, session("session.updated", 16_000)]), [""; 0], "unasked");
    assert_eq!(bench.receive(&session("session.updated", 24_000)), ["Ready s"]);
    let sent = bench.ask(turn(vec![message(Role::User, vec![audio(500)])]));
    assert_eq!(appended(&sent), [12_000]);
}

#[test]
fn rates_that_differ_from_those_asked_for_are_converted() {
    for rate_hz in [8_000, 16_000, 24_000, 44_100, 48_000] {
        let mut bench = Bench::ready(LanePurpose::Answer, rate_hz);
        let sent = bench.ask(turn(vec![message(Role::User, vec![audio(500)])]));
        assert_eq!(appended(&sent).iter().sum::<usize>(), rate_hz as usize / 2, "{rate_hz} Hz up");
        let second = delta("r", &pcm16(rate_hz as usize));
        let events = bench.receive_all(&[second, ended("r", "completed")]);
        let samples = |event: &String| event.strip_prefix("audio ")?.parse::<usize>().ok();
        assert_eq!(events.iter().filter_map(samples).sum::<usize>(), 24_000, "{rate_hz} Hz down");
    }
}

#[test]
fn errors_without_a_type_and_with_their_code_elsewhere_mean_what_they_say() {
    let error = |code: Value, kind: &str| json!({"code": code, "type": kind, "message": "words"});
    for (message, expected) in [
        (
            json!({"error": error("rate_limit_exceeded".into(), "requests")}),
            "QueueFull: rate_limit_exceeded: words",
        ),
        (json!({"error": error("invalid_api_key".into(), "t")}), "Misconfigured: invalid_api_key: words"),
        (json!({"error": {"message": "words"}}), "Refused: no reason given: words"),
        (json!({"type": "error", "error": {"message": "words"}}), "Refused: no reason given: words"),
        (
            json!({"type": "error", "error": error(Value::Null, "session_limit_reached")}),
            "QueueFull: session_limit_reached: words",
        ),
        (
            json!({"type": "error", "error": error(Value::Null, "conversation_already_has_active_response")}),
            "Unknown(\"conversation_already_has_active_response: words\")",
        ),
        (json!({"note": "words"}), "Unknown(\"a message without a type\")"),
    ] {
        let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
        bench.ask(turn(Vec::new()));
        assert_eq!(bench.receive(&message), [expected], "{message}");
    }
}

#[test]
fn busy_server_names_its_pause_by_a_number_or_in_words() {
    for (retry_after, message, expected_ms) in [
        (json!(2.5), "Slow down.", Some(2500)),
        (json!(3), "Please try again in 20s.", Some(3000)),
        (
            Value::Null,
            "Limit 3, Used 3. Please try again in 20s. Visit https://x to learn more.",
            Some(20_000),
        ),
        (Value::Null, "Please try again in 494ms.", Some(494)),
        (Value::Null, "Please try again in 1.25s.", Some(1250)),
        (Value::Null, "Please try again in 1m5.5s.", Some(65_500)),
        (Value::Null, "Please try again in a while.", None),
        (Value::Null, "Slow down.", None),
        (json!(-1), "Slow down.", None),
        (json!(1e300), "Slow down.", None),
    ] {
        let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
        bench.ask(turn(Vec::new()));
        let error = json!({"code": "rate_limit_exceeded", "message": message, "retry_after": retry_after});
        let error = json!({"type": "error", "error": error}).to_string();
        let mut pauses = Vec::new();
        bench.codec.decode(bench.now, Frame::Text(&error), |_, meta| pauses.push(meta.retry_after));
        assert_eq!(pauses, [expected_ms.map(Duration::from_millis)], "{retry_after} {message}");
    }
}

#[test]
fn server_that_grants_no_pcm_is_told_from_one_that_merely_has_another_format_at_first() {
    let with_format = |kind: &str, direction: &str, format: &str| {
        let mut session = session(kind, 24_000);
        session["session"]["audio"][direction] = json!({"format": {"type": format}});
        session
    };
    for (direction, format) in [("input", "audio/pcmu"), ("output", "audio/pcma"), ("input", "g711_ulaw")] {
        let told = format!(
            "Misconfigured: the server grants audio as {format}, and not as the 16-bit PCM that it was asked for"
        );
        let granted = with_format("session.updated", direction, format);
        let mut bench = Bench::dialled(LanePurpose::Answer, Mode::Chat);
        bench.encode(LaneRequest::Init(None));
        assert_eq!(bench.receive(&with_format("session.created", direction, format)), [""; 0]);
        assert_eq!(bench.receive(&granted), [told.as_str()]);
        assert_eq!(bench.actions().len(), 1, "the session is closed");
        let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
        let prompt = TranscribePrompt::default();
        bench.encode(LaneRequest::Transcribe { prompt, audio: Arc::new(vec![0; 16_000]) });
        assert_eq!(bench.receive(&granted), [told], "of a transcript's session");
    }
}
