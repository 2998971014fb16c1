//! Every row of the table in mappings/notes/minicpm-o.md#rejections, and the C++ answers
//! (mappings/notes/llama-cpp-omni.md#rejections).

use super::*;

/// Sends the text as the first message.
fn after_first_message(backend: Backend, text: &str) -> (TestGateway, ConnId) {
    let mut sim = TestGateway::with_backend(backend);
    let conn = sim.connect();
    sim.input(SimInput::Text(conn, text));
    sim.advance(Duration::from_secs(1));
    (sim, conn)
}

/// Sends the text after `session.created`.
fn after_second_message(backend: Backend, text: &str) -> (TestGateway, ConnId) {
    let mut sim = TestGateway::with_backend(backend);
    let conn = sim.open_chat_session();
    sim.input(SimInput::Text(conn, text));
    sim.advance(Duration::from_secs(1));
    (sim, conn)
}

fn after_append(backend: Backend, input: &Value) -> Value {
    let (sim, conn) =
        after_second_message(backend, &json!({"type": "input.append", "input": input}).to_string());
    assert_eq!(sim.end_of(conn), normal_close(), "{input}");
    sim.last_event(conn)
}

#[test]
fn malformed_message_is_closed_by_worker() {
    let unknown = [
        "{not json",
        "[]",
        r#""text""#,
        "{}",
        r#"{"type":"response.cancel"}"#,
        r#"{"type":"session.init","payload":{}}"#,
        r#"{"type":"input.append"}"#,
        r#"{"type":"input.append","input":[]}"#,
    ];
    for backend in [Backend::Pytorch, Backend::Cpp] {
        for text in unknown {
            let (sim, conn) = after_second_message(backend, text);
            let id = sim.events_of(conn)[1]["session_id"].clone();
            let expected = json!({"type": "session.closed", "session_id": id, "reason": "backend_error"});
            assert_eq!((sim.last_event(conn), sim.end_of(conn)), (expected, normal_close()), "{text}");
        }
    }
}

#[test]
fn invalid_first_message_creates_no_session() {
    let texts = [
        "[]",
        r#"{"type":"session.update","session":{}}"#,
        r#"{"type":"session.init"}"#,
        r#"{"type":"session.init","payload":[]}"#,
        r#"{"type":"session.close"}"#,
        r#"{"type":"input.append"}"#,
        r#"{"type":"session.init","payload":{"voice":{"ref_audio_base64":"AAAA"}}}"#,
    ];
    for text in texts {
        for backend in [Backend::Pytorch, Backend::Cpp] {
            let (sim, conn) = after_first_message(backend, text);
            let expected = json!({"type": "session.closed", "session_id": null, "reason": "backend_error"});
            assert_eq!((sim.last_event(conn), sim.end_of(conn)), (expected, normal_close()), "{text}");
        }
    }
}

#[test]
fn invalid_content_gets_pytorch_diagnostic() {
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let audio = |data: &str| user(json!([{"type": "audio", "data": data}]));
    let cases = [
        (json!({}), "list index out of range"),
        (json!({"messages": []}), "list index out of range"),
        (user(json!([{"type": "smell", "data": "x"}])), "list index out of range"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "'tool' is not a valid Role"),
        (json!({"messages": [{"content": "x"}]}), "'role'"),
        (
            json!({"messages": [{"role": "assistant", "content": "x"}]}),
            "The role of first msg should be user",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "tts": [1]}),
            "chat.request tts must be an object",
        ),
        (
            audio("AAAAA"),
            "Invalid base64-encoded string: number of data characters (5) cannot be 1 more than a multiple of 4",
        ),
        (audio("AAAAAA"), "Incorrect padding"),
        (audio("AAAA"), "buffer size must be a multiple of element size"),
    ];
    for (request, message) in cases {
        let event = after_append(Backend::Pytorch, &request);
        let ts = event["server_send_ts"].clone();
        assert!(ts.is_f64());
        let expected = json!({"type": "session.closed", "session_id": event["session_id"], "reason": "backend_error",
            "diagnostic": {"message": message}, "server_send_ts": ts});
        assert_eq!(event, expected, "{request}");
        assert!(event["session_id"].is_string());
    }
    let mut voice = tts_request("Hi", true);
    voice["tts"]["ref_audio_data"] = "AAAA".into();
    let event = after_append(Backend::Pytorch, &voice);
    assert_eq!(event["diagnostic"]["message"], "buffer size must be a multiple of element size");
}

#[test]
fn chat_picture_that_cannot_be_decoded_ends_the_session() {
    let request = |picture: &str| {
        let question = json!({"type": "text", "text": "What do you see?"});
        let picture = json!({"type": "image", "data": picture});
        json!({"messages": [{"role": "user", "content": [question, picture]}]})
    };
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, request(PICTURE));
    assert_eq!(sim.last_event(conn)["type"], "response.done");
    for (picture, message) in [
        ("/9j/4AAQSkZJRg==", "cannot identify image file <_io.BytesIO object>"),
        (&PICTURE[..184], "image file is truncated"),
        (
            "AAAAA",
            "Invalid base64-encoded string: number of data characters (5) cannot be 1 more than a multiple of 4",
        ),
    ] {
        let event = after_append(Backend::Pytorch, &request(picture));
        assert_has(&event, json!({"/reason": "backend_error", "/diagnostic/message": message}));
    }
}

#[test]
fn invalid_content_gets_cpp_reason() {
    let cases = [
        (json!({}), "mode_mismatch"),
        (json!({"messages": "x"}), "mode_mismatch"),
        (json!({"messages": []}), "empty_messages"),
        (json!({"messages": [{"role": "system", "content": "x"}]}), "prefill_failed"),
    ];
    for (request, reason) in cases {
        let event = after_append(Backend::Cpp, &request);
        assert_eq!((&event["reason"], event.get("diagnostic")), (&json!(reason), None), "{request}");
    }
    let bad = json!({"messages": [{"role": "user", "content": [{"type": "audio", "data": "####"}]}]});
    assert_eq!(after_append(Backend::Cpp, &bad)["reason"], "backend_error");
}

#[test]
fn lenient_inputs_are_answered() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    let data = speech_base64(16_000);
    // Python skips illegal characters, unknown items, and messages without known items.
    let content =
        json!([{"type": "smell"}, {"type": "audio", "data": format!("\n{}!{}", &data[..7], &data[7..])}]);
    let messages =
        json!([{"role": "user", "content": [{"type": "smell"}]}, {"role": "user", "content": content}]);
    sim.append_and_wait(conn, json!({"messages": messages}));
    assert_eq!(sim.last_event(conn)["text"], "simulated transcript: 1.00 s of speech");
    let mut sim = TestGateway::with_backend(Backend::Cpp);
    let conn = sim.open_chat_session();
    let content = json!([{"type": "audio", "data": format!("data:audio/pcm;base64,{data}")}]);
    sim.append_and_wait(conn, json!({"messages": [{"role": "user", "content": content}]}));
    assert_eq!(sim.last_event(conn)["text"], "simulated transcript: 1.00 s of speech");
}

#[test]
fn pytorch_joins_audio_items_and_cpp_takes_first() {
    let item = json!({"type": "audio", "data": speech_base64(16_000)});
    for (backend, seconds) in [(Backend::Pytorch, "2.00"), (Backend::Cpp, "1.00")] {
        let mut sim = TestGateway::with_backend(backend);
        let conn = sim.open_chat_session();
        sim.append_and_wait(conn, json!({"messages": [{"role": "user", "content": [item, item]}]}));
        assert_eq!(sim.last_event(conn)["text"], format!("simulated transcript: {seconds} s of speech"));
    }
}

#[test]
fn binary_frame_fails_session() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.input(SimInput::Binary(conn));
    let error = json!({"code": "session_failed", "message": "'text'", "type": "server_error"});
    assert_eq!(
        (sim.last_event(conn), sim.end_of(conn)),
        (json!({"type": "error", "error": error}), normal_close())
    );
}

#[test]
fn append_without_init_creates_session() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.connect();
    sim.append_and_wait(conn, asr_request(8_000));
    assert_eq!(event_names(&sim.events_of(conn))[..2], ["session.queue_done", "session.created"]);
    assert_eq!(sim.last_event(conn)["text"], "simulated transcript: 0.50 s of speech");
}
