//! Every row of the table in field notes §1.5, and what C++ says instead (§1.7).

use super::*;

/// Sends the text as the first message.
fn first(backend: Backend, text: &str) -> (Lab, ConnId) {
    let mut lab = Lab::on(backend);
    let conn = lab.connect();
    lab.input(SimInput::Text(conn, text));
    lab.pass(Duration::from_secs(1));
    (lab, conn)
}

/// Sends the text after `session.created`.
fn later(backend: Backend, text: &str) -> (Lab, ConnId) {
    let mut lab = Lab::on(backend);
    let conn = lab.session();
    lab.input(SimInput::Text(conn, text));
    lab.pass(Duration::from_secs(1));
    (lab, conn)
}

fn input(backend: Backend, input: &Value) -> Value {
    let (lab, conn) = later(backend, &json!({"type": "input.append", "input": input}).to_string());
    assert_eq!(lab.ended(conn), polite(), "{input}");
    lab.last(conn)
}

#[test]
fn form_is_judged_by_the_worker() {
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
            let (lab, conn) = later(backend, text);
            let id = lab.events(conn)[1]["session_id"].clone();
            let expected = json!({"type": "session.closed", "session_id": id, "reason": "backend_error"});
            assert_eq!((lab.last(conn), lab.ended(conn)), (expected, polite()), "{text}");
        }
    }
}

#[test]
fn a_bad_beginning_has_no_session() {
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
            let (lab, conn) = first(backend, text);
            let expected = json!({"type": "session.closed", "session_id": null, "reason": "backend_error"});
            assert_eq!((lab.last(conn), lab.ended(conn)), (expected, polite()), "{text}");
        }
    }
}

#[test]
fn content_is_judged_by_pytorch_with_a_diagnostic() {
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
        let event = input(Backend::Pytorch, &request);
        let ts = event["server_send_ts"].clone();
        assert!(ts.is_f64());
        let expected = json!({"type": "session.closed", "session_id": event["session_id"], "reason": "backend_error",
            "diagnostic": {"message": message}, "server_send_ts": ts});
        assert_eq!(event, expected, "{request}");
        assert!(event["session_id"].is_string());
    }
    let mut voice = tts("Hi", true);
    voice["tts"]["ref_audio_data"] = "AAAA".into();
    let event = input(Backend::Pytorch, &voice);
    assert_eq!(event["diagnostic"]["message"], "buffer size must be a multiple of element size");
}

#[test]
fn cpp_has_reasons_of_its_own() {
    let cases = [
        (json!({}), "mode_mismatch"),
        (json!({"messages": "x"}), "mode_mismatch"),
        (json!({"messages": []}), "empty_messages"),
        (json!({"messages": [{"role": "system", "content": "x"}]}), "prefill_failed"),
    ];
    for (request, reason) in cases {
        let event = input(Backend::Cpp, &request);
        assert_eq!((&event["reason"], event.get("diagnostic")), (&json!(reason), None), "{request}");
    }
    let bad = json!({"messages": [{"role": "user", "content": [{"type": "audio", "data": "####"}]}]});
    assert_eq!(input(Backend::Cpp, &bad)["reason"], "backend_error");
}

#[test]
fn what_is_forgiven() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    let data = speech(16_000);
    // Python skips illegal characters, unknown items, and messages without items that it knows.
    let content =
        json!([{"type": "smell"}, {"type": "audio", "data": format!("\n{}!{}", &data[..7], &data[7..])}]);
    let messages =
        json!([{"role": "user", "content": [{"type": "smell"}]}, {"role": "user", "content": content}]);
    lab.ask(conn, json!({"messages": messages}));
    assert_eq!(lab.last(conn)["text"], "simulated transcript: 1.00 s of speech");
    let mut lab = Lab::on(Backend::Cpp);
    let conn = lab.session();
    let content = json!([{"type": "audio", "data": format!("data:audio/pcm;base64,{data}")}]);
    lab.ask(conn, json!({"messages": [{"role": "user", "content": content}]}));
    assert_eq!(lab.last(conn)["text"], "simulated transcript: 1.00 s of speech");
}

#[test]
fn several_audios_are_joined_by_pytorch_and_the_first_counts_for_cpp() {
    let item = json!({"type": "audio", "data": speech(16_000)});
    for (backend, seconds) in [(Backend::Pytorch, "2.00"), (Backend::Cpp, "1.00")] {
        let mut lab = Lab::on(backend);
        let conn = lab.session();
        lab.ask(conn, json!({"messages": [{"role": "user", "content": [item, item]}]}));
        assert_eq!(lab.last(conn)["text"], format!("simulated transcript: {seconds} s of speech"));
    }
}

#[test]
fn a_binary_frame_fails_the_session() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.input(SimInput::Binary(conn));
    let error = json!({"code": "session_failed", "message": "'text'", "type": "server_error"});
    assert_eq!((lab.last(conn), lab.ended(conn)), (json!({"type": "error", "error": error}), polite()));
}

#[test]
fn an_append_may_come_first() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.connect();
    lab.ask(conn, asr(8_000));
    assert_eq!(names(&lab.events(conn))[..2], ["session.queue_done", "session.created"]);
    assert_eq!(lab.last(conn)["text"], "simulated transcript: 0.50 s of speech");
}
