//! Codecs of protocols that their files describe: what a client's messages lead to, and what becomes of the session's events.

mod commands;
mod fields;
mod live_audio;

use super::*;
use crate::{
    error::{Error, ErrorKind},
    spelling::Library,
    vocabulary::{ClientEvent, ClientRequest, EntryPart, Frame, Setting, Speaker, TokenUsage, ToolCall},
};

fn gemini() -> Codec {
    Codec::new(Library::embedded().unwrap().client("gemini-live").unwrap(), 0.0)
}

/// The events of a message, in short.
fn decode(codec: &mut Codec, frame: Frame<'_>) -> Result<Vec<String>, Error> {
    let mut events = Vec::new();
    codec.decode(frame, |event| {
        events.push(match event {
            ClientRequest::Audio(bytes) => format!("audio {}", bytes.len()),
            ClientRequest::VideoFrame(picture) => format!("picture {}", picture.0.len()),
            ClientRequest::AddEntry(entry, _) => {
                let part = |part: &EntryPart| match part {
                    EntryPart::Text(text) => text.clone(),
                    EntryPart::Result(result) => format!("{}={}", result.call_id, result.output),
                    other => format!("{other:?}"),
                };
                let parts: Vec<_> = entry.parts.iter().map(part).collect();
                format!("{}: {}", entry.role.name(), parts.join(" + "))
            }
            ClientRequest::Answer(_) => "answer".to_owned(),
            ClientRequest::Adjust(settings) => format!("adjust {settings:?}"),
            ClientRequest::Configure(settings) => format!("configure {}", settings.len()),
            other => format!("{other:?}"),
        });
    })?;
    Ok(events)
}

fn decode_text(codec: &mut Codec, text: &str) -> Vec<String> {
    decode(codec, Frame::Text(text)).unwrap_or_else(|error| vec![format!("{:?}", error.kind)])
}

fn encode(codec: &mut Codec, event: &ClientEvent) -> Vec<serde_json::Value> {
    let mut messages = Vec::new();
    codec.encode(event, 1.0, |message, _| match message {
        Message::Text(json) => messages.push(serde_json::from_str(&json).unwrap()),
        other => panic!("{other:?}"),
    });
    messages
}

fn partial(text: &str) -> ClientEvent {
    let text = text.to_owned();
    ClientEvent::TranscriptPartial {
        speaker: Speaker::Assistant,
        text,
        segment_id: 1,
        audio_ms: 0,
        start_ms: 0,
    }
}

fn ended(segment_id: u32, cancelled: bool) -> ClientEvent {
    let usage = TokenUsage { input_text: 5, output_audio: 7, ..TokenUsage::default() };
    ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms: 1000, usage, hit_limit: false }
}

#[test]
fn both_spellings_and_kinds_of_frames_lead_to_the_same() {
    for (python, npm, expected) in [
        (
            r#"{"realtime_input": {"audio": {"data": "-__-AAE=", "mime_type": "audio/pcm;rate=16000"}}}"#,
            r#"{"realtimeInput":{"audio":{"data":"+//+AAE=","mimeType":"audio/pcm;rate=16000"}}}"#,
            vec!["adjust [InputRateHz(16000), InputChannels(1)]", "audio 5"],
        ),
        (
            r#"{"realtime_input": {"media_chunks": [{"data": "-__-", "mime_type": "audio/pcm"}]}}"#,
            r#"{"realtimeInput":{"mediaChunks":[{"data":"+//+","mimeType":"audio/pcm"}]}}"#,
            vec!["adjust [InputRateHz(16000), InputChannels(1)]", "audio 3"],
        ),
        (
            r#"{"realtime_input": {"video": {"data": "_9j_4A==", "mime_type": "image/jpeg"}}}"#,
            r#"{"realtimeInput":{"mediaChunks":[{"data":"/9j/4A==","mimeType":"image/jpeg"}]}}"#,
            vec!["picture 4"],
        ),
        (
            r#"{"realtime_input": {"audioStreamEnd": true}}"#,
            r#"{"realtimeInput":{"audio_stream_end":true}}"#,
            vec!["Finalize"],
        ),
        (
            r#"{"realtime_input": {"activityStart": {}}}"#,
            r#"{"realtimeInput":{"activityStart":{}}}"#,
            vec!["CancelSpeech", "ClearAudio"],
        ),
        (
            r#"{"client_content": {"turns": [{"parts": [{"text": "Hi."}], "role": "user"}, {"parts": [{"text": "a"}, {"text": "b"}], "role": "model"}], "turn_complete": true}}"#,
            r#"{"clientContent":{"turns":[{"parts":[{"text":"Hi."}],"role":"user"},{"parts":[{"text":"a"},{"text":"b"}],"role":"model"}],"turnComplete":true}}"#,
            vec!["CancelSpeech", "user: Hi.", "assistant: a + b", "answer"],
        ),
        (
            r#"{"client_content": {"turnComplete": true}}"#,
            r#"{"clientContent":{"turnComplete":true}}"#,
            vec!["CancelSpeech", "answer"],
        ),
    ] {
        for text in [python, npm] {
            assert_eq!(decode_text(&mut gemini(), text), expected, "{text}");
            assert_eq!(decode(&mut gemini(), Frame::Binary(text.as_bytes())).unwrap(), expected, "{text}");
        }
    }
}

#[test]
fn setup_has_settings_and_tools() {
    let setup = r#"{"setup": {"model": "models/x", "generationConfig": {"responseModalities": ["AUDIO"], "temperature": 0.5,
        "maxOutputTokens": 100, "speechConfig": {"voice_config": {"prebuilt_voice_config": {"voice_name": "Puck"}}, "language_code": "en-US"}},
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}], "role": "user"},
        "tools": [{"googleSearch": {}}, {"functionDeclarations": [{"name": "light", "parameters": {"type": "OBJECT"}}]}],
        "inputAudioTranscription": {},
        "realtimeInputConfig": {"automatic_activity_detection": {"disabled": true, "silence_duration_ms": 500}, "activity_handling": "NO_INTERRUPTION"}}}"#;
    let mut found = Vec::new();
    let mut codec = gemini();
    codec
        .decode(Frame::Text(setup), |event| {
            let ClientRequest::Configure(settings) = event else { panic!("{event:?}") };
            found = settings;
        })
        .unwrap();
    let has = |setting: Setting| assert!(found.contains(&setting), "{setting:?} is not in {found:?}");
    has(Setting::Instructions("Be brief.\nBe kind.".into()));
    has(Setting::SpokenAnswers(true));
    has(Setting::TranscribeUser(true));
    has(Setting::MaxTokens(Some(100)));
    let detection = found.iter().find_map(|setting| match setting {
        Setting::TurnDetection(detection) => Some((detection.is_automatic, detection.interrupts)),
        _ => None,
    });
    assert_eq!(detection, Some((false, false)));
    let tools = found.iter().find_map(|setting| match setting {
        Setting::Tools(offer) => Some(offer.tools.iter().map(|tool| &*tool.parameters).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(tools, Some(vec![r#"{"type":"object"}"#]));
    assert!(encode(&mut codec, &partial("Hello")).is_empty(), "the client wants no words");
}

#[test]
fn odd_messages_are_errors_and_never_more() {
    for (text, kind) in [
        ("", ErrorKind::MalformedJson),
        ("[]", ErrorKind::NotAnObject),
        ("{}", ErrorKind::MissingCommand),
        (r#"{"realtimeInput": 5}"#, ErrorKind::MissingCommand),
        (r#"{"realtimeInput": {"audio": {"data": "!"}}}"#, ErrorKind::Invalid),
        (r#"{"realtimeInput": {"audio": {}}}"#, ErrorKind::Invalid),
        (r#"{"realtimeInput": {"audio": {"data": "AAAA", "mimeType": "audio/ogg"}}}"#, ErrorKind::Invalid),
        (
            r#"{"realtimeInput": {"audio": {"data": "AAAA", "mimeType": "audio/pcm;rate=1"}}}"#,
            ErrorKind::Invalid,
        ),
        (
            r#"{"realtimeInput": {"audio": {"data": "AAAA", "mimeType": "audio/pcm;rate=99999999999999"}}}"#,
            ErrorKind::Invalid,
        ),
        (r#"{"realtimeInput": {"video": {"data": "AAAA"}}}"#, ErrorKind::Invalid),
        (
            r#"{"clientContent": {"turns": [{"role": "ghost", "parts": [{"text": "x"}]}]}}"#,
            ErrorKind::Invalid,
        ),
        (r#"{"clientContent": {"turns": [5]}}"#, ErrorKind::Invalid),
        (r#"{"setup": {"tools": [{"functionDeclarations": [{"name": "a b"}]}]}}"#, ErrorKind::Invalid),
        (r#"{"setup": {"generationConfig": {"temperature": 9}}}"#, ErrorKind::Invalid),
        (
            r#"{"toolResponse": {"functionResponses": [{"id": "no", "response": {}}]}}"#,
            ErrorKind::UnknownToolCall,
        ),
    ] {
        let mut events = 0;
        let error = gemini().decode(Frame::Text(text), |event| {
            events += usize::from(!matches!(event, ClientRequest::CancelSpeech));
        });
        assert_eq!((error.map_err(|error| error.kind), events), (Err(kind), 0), "{text}");
    }
    assert_eq!(decode(&mut gemini(), Frame::Binary(&[0xff])).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(decode_text(&mut gemini(), r#"{"clientContent": {"turns": null}}"#), ["CancelSpeech"]);
    assert_eq!(decode_text(&mut gemini(), r#"{"realtimeInput": {"text": " "}}"#), [""; 0]);
}

#[test]
fn rate_of_a_message_of_audio_changes_the_format_once() {
    let mut codec = gemini();
    let message = |rate: u32| {
        format!(
            r#"{{"realtimeInput": {{"audio": {{"data": "AAAA", "mimeType": "audio/pcm;rate={rate}"}}}}}}"#
        )
    };
    let change = decode_text(&mut codec, &message(24_000));
    assert!(change.len() == 2 && change[0].contains("InputRateHz(24000)"), "{change:?}");
    assert_eq!(decode_text(&mut codec, &message(24_000)), ["audio 3"]);
    assert_eq!(decode_text(&mut codec, &message(16_000)).len(), 2);
}

#[test]
fn turn_ends_after_the_results_of_its_calls() {
    let mut codec = gemini();
    let call = |id: &str| {
        let text = |text: &str| text.to_owned();
        let call = ToolCall { call_id: text(id), name: text("light"), arguments: text(r#"{"on":true}"#) };
        ClientEvent::ToolCalled { segment_id: 3, entry_id: 4, call }
    };
    assert!(encode(&mut codec, &ClientEvent::AnswerStarted { segment_id: 3, by_client: false }).is_empty());
    let sent = encode(&mut codec, &call("a"));
    assert_eq!(sent[0]["toolCall"]["functionCalls"][0]["args"]["on"], true);
    encode(&mut codec, &call("b"));
    let sent = encode(&mut codec, &ended(3, false));
    assert!(sent.len() == 1 && sent[0]["serverContent"].is_null(), "{sent:?}");
    let result = |id: &str| {
        format!(
            r#"{{"tool_response": {{"functionResponses": [{{"id": "{id}", "name": "light", "response": {{"ok": true}}}}]}}}}"#
        )
    };
    assert_eq!(decode_text(&mut codec, &result("a")), [r#"user: a={"ok": true}"#]);
    assert_eq!(decode_text(&mut codec, &result("a")), ["UnknownToolCall"]);
    assert_eq!(decode_text(&mut codec, &result("b")), [r#"user: b={"ok": true}"#, "answer"]);
    assert!(encode(&mut codec, &ClientEvent::AnswerStarted { segment_id: 5, by_client: true }).is_empty());
    assert_eq!(encode(&mut codec, &ended(5, false))[0]["serverContent"]["turnComplete"], true);
    encode(&mut codec, &call("c"));
    let sent = encode(&mut codec, &ClientEvent::AnswerStarted { segment_id: 6, by_client: false });
    assert_eq!(sent, [serde_json::json!({"toolCallCancellation": {"ids": ["c"]}})]);
    assert_eq!(decode_text(&mut codec, &result("c")), ["UnknownToolCall"]);
}

#[test]
fn interrupted_turn_is_complete_after_the_interruption() {
    let sent = encode(&mut gemini(), &ended(1, true));
    assert_eq!(sent[0], serde_json::json!({"serverContent": {"interrupted": true}}));
    assert_eq!(
        (&sent[1]["serverContent"]["turnComplete"], &sent[1]["usageMetadata"]["totalTokenCount"]),
        (&true.into(), &12.into())
    );
}

#[test]
fn written_answers_have_parts_of_text() {
    let mut codec = gemini();
    let setup = r#"{"setup": {"generationConfig": {"responseModalities": ["TEXT"]}}}"#;
    assert_eq!(decode_text(&mut codec, setup).len(), 1);
    let sent = encode(&mut codec, &partial("Hello"));
    assert_eq!(sent[0]["serverContent"]["modelTurn"]["parts"][0]["text"], "Hello");
    let setup = r#"{"setup": {"outputAudioTranscription": {}, "generationConfig": {"responseModalities": ["AUDIO"]}}}"#;
    decode_text(&mut codec, setup);
    let sent = encode(&mut codec, &partial("Hello again"));
    assert_eq!(sent[0]["serverContent"]["outputTranscription"]["text"], " again");
}

#[test]
fn transcripts_of_one_turn_are_joined_by_a_space() {
    let mut codec = gemini();
    let heard = |codec: &mut Codec, text: &str| {
        let command = ClientEvent::TranscriptFinal {
            speaker: Speaker::User,
            text: text.to_owned(),
            segment_id: 1,
            duration_ms: 1,
            start_ms: 1,
            speech_ms: (1, 1),
            utterance_ended: true,
            finalized: false,
            language: None,
            words: Vec::new(),
        };
        let sent = encode(codec, &command);
        sent.iter().map(|it| it["serverContent"]["inputTranscription"]["text"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(heard(&mut codec, "Hello."), ["Hello."]);
    assert_eq!(heard(&mut codec, ""), [""; 0]);
    assert_eq!(heard(&mut codec, "Are you there?"), [" Are you there?"]);
    encode(&mut codec, &ended(1, false));
    assert_eq!(heard(&mut codec, "Good."), ["Good."]);
}
