//! Fields, conditions and replies of commands, which several protocols share.

use serde_json::{Value, json};

use super::*;
use crate::{
    spelling::Library,
    vocabulary::{ClientRequest, Frame},
};

fn codec(client: &str) -> Codec {
    Codec::new(Library::embedded().unwrap().client(client).unwrap(), 0.0)
}

/// The events of a message, as text.
fn events(codec: &mut Codec, message: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let decoded = codec.decode(Frame::Text(&message.to_string()), |event| {
        found.push(match event {
            ClientRequest::Answer(request) => format!("Answer speaks={:?}", request.speaks),
            ClientRequest::Speak(request) => format!("Speak {}", request.text),
            other => format!("{other:?}").split('(').next().unwrap_or_default().to_owned(),
        });
    });
    assert_eq!(decoded, Ok(()), "{message}");
    found
}

#[test]
fn verb_depends_on_an_earlier_message() {
    let mut codec = codec("wyoming");
    let whole = json!({"type": "synthesize", "data": {"text": "Hello."}});
    assert_eq!(events(&mut codec, &whole), ["Speak Hello."]);
    events(&mut codec, &json!({"type": "synthesize-start"}));
    assert_eq!(events(&mut codec, &whole), [""; 0], "it repeats the pieces");
    assert_eq!(events(&mut codec, &json!({"type": "synthesize-stop"})), ["Flush"]);
    assert_eq!(events(&mut codec, &whole), ["Speak Hello."]);
}

#[test]
fn present_field_without_effect_leaves_the_message_to_another_command() {
    let mut message = json!({"context_id": "a", "transcript": "Hi.", "model_id": "m", "voice": {"id": "v"}});
    for (cancel, expected) in [
        (json!(null), vec!["Adjust", "AppendText", "Flush"]),
        (json!(false), vec!["Adjust", "AppendText", "Flush"]),
        (json!(true), vec!["Clear"]),
    ] {
        message["cancel"] = cancel;
        assert_eq!(events(&mut codec("cartesia-speak"), &message), expected, "{message}");
    }
}

#[test]
fn chunk_of_media_is_a_picture_by_its_type() {
    let chunk =
        |kind: &str| json!({"realtimeInput": {"mediaChunks": [{"mimeType": kind, "data": "iVBORw0KGgo="}]}});
    for (kind, expected) in [
        ("image/png", vec!["VideoFrame"]),
        ("image/jpeg", vec!["VideoFrame"]),
        ("audio/pcm;rate=16000", vec!["Adjust", "Audio"]),
    ] {
        assert_eq!(events(&mut codec("gemini-live"), &chunk(kind)), expected, "{kind}");
    }
}

#[test]
fn default_stands_for_a_field_that_is_missing() {
    let message = |data: Value| json!({"type": "transcript", "data": data});
    for (data, speaks) in [
        (json!({"text": "Hi"}), "Answer speaks=Some(false)"),
        (json!({"text": "Hi", "spoken": null}), "Answer speaks=Some(false)"),
        (json!({"text": "Hi", "spoken": true}), "Answer speaks=Some(true)"),
    ] {
        assert_eq!(events(&mut codec("wyoming-handle"), &message(data)), ["AddEntry", speaks]);
    }
}

#[test]
fn reply_is_filled_with_voices_and_remembered_values() {
    let mut codec = codec("wyoming");
    codec.set_voices(["ada", "default"].into_iter());
    let mut reply = |message: Value| {
        events(&mut codec, &message);
        let replies = codec.take_replies();
        let [Message::Text(text)] = replies.as_slice() else { panic!("{replies:?}") };
        serde_json::from_str::<Value>(text).unwrap()
    };
    assert_eq!(reply(json!({"type": "ping"})), json!({"type": "pong", "data": {}}));
    let pong = json!({"type": "pong", "data": {"text": "a \"b\""}});
    assert_eq!(reply(json!({"type": "ping", "data": {"text": "a \"b\""}})), pong);
    let info = reply(json!({"type": "describe"}));
    let voices = info["data"]["tts"][0]["voices"].as_array().unwrap();
    let names: Vec<_> = voices.iter().map(|voice| &voice["name"]).collect();
    assert_eq!(names, ["default", "ada"]);
}
