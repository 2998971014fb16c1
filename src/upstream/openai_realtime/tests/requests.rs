//! Requests for transcripts, translations and texts, and the voices of answers.

use super::*;

#[test]
fn transcript_is_asked_for_with_its_language_and_comes_in_parts() {
    let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
    let prompt = TranscribePrompt {
        instruction: "Transcribe.".to_owned(),
        language: "de".to_owned(),
        ..TranscribePrompt::default()
    };
    let sent = bench.encode(LaneRequest::Transcribe { prompt, audio: vec![1; 16_000].into() });
    assert_eq!(kinds(&sent), ["session.update", "input_audio_buffer.append", "input_audio_buffer.commit"]);
    assert_eq!(sent[0]["session"]["type"], "transcription");
    let transcription = json!({"model": "gpt-4o-transcribe", "language": "de"});
    assert_eq!(sent[0]["session"]["audio"]["input"]["transcription"], transcription);
    let prefix = "conversation.item.input_audio_transcription";
    let mut updated = session("session.updated", 24_000);
    updated["session"]["audio"]["input"]["transcription"] = transcription;
    let events = bench.receive_all(&[
        updated,
        json!({"type": format!("{prefix}.delta"), "item_id": "i", "delta": "Guten "}),
        json!({"type": format!("{prefix}.completed"), "item_id": "i", "transcript": "Guten Tag."}),
    ]);
    assert_eq!(events, ["text Guten ", "done Guten Tag."]);
    let failed =
        json!({"type": format!("{prefix}.failed"), "error": {"code": "server_error", "message": "no"}});
    assert_eq!(bench.receive(&failed), ["Other: server_error: no"]);
}

/// A request for a transcript, or for a translation, of this many milliseconds.
fn transcribe(ms: usize, translates: bool) -> LaneRequest {
    let prompt = TranscribePrompt { translates, .."Write down what you hear.".into() };
    LaneRequest::Transcribe { prompt, audio: vec![1; 16 * ms].into() }
}

fn read_aloud() -> LaneRequest {
    LaneRequest::Speak {
        before_voice: String::new(),
        after_voice: "Read aloud.".to_owned(),
        request: "Read: Hello".to_owned(),
        text: "Hello".to_owned(),
        voice: None,
        voice_name: None,
    }
}

/// An error about the request for a transcript or a text.
fn refusal(code: &str) -> Value {
    json!({"type": "error", "error": {"code": code, "message": "no", "event_id": "request"}})
}

/// The message that asks for the words of audio by an answer.
#[track_caller]
fn assert_asks_by_answer(sent: &Value, samples: usize) {
    let response = &sent["response"];
    assert_eq!(
        (&sent["type"], &response["output_modalities"]),
        (&json!("response.create"), &json!(["text"]))
    );
    assert_eq!(response["instructions"], "Write down what you hear.");
    assert_eq!(decoded(&response["input"][0]["content"][0]["audio"]).len(), samples);
    assert_eq!(response.get("conversation"), None, "vLLM-Omni has no responses outside the conversation");
}

#[test]
fn server_without_transcripts_transcribes_by_answers() {
    let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
    bench.encode(transcribe(100, false));
    let updated = session("session.updated", 24_000);
    assert_eq!(bench.receive(&updated), [""; 0]);
    assert_asks_by_answer(&bench.actions()[0], 2400);
    assert_eq!((bench.receive(&updated).len(), bench.actions().len()), (0, 0), "it is asked once");
    let words = json!({"type": "response.output_text.delta", "response_id": "r", "delta": "Hello."});
    assert_eq!(bench.receive_all(&[words, done("completed", Value::Null)]), ["text Hello.", "done "]);
    let next = bench.encode(transcribe(200, false));
    assert_eq!(next.len(), 1, "the lane has learnt it");
    assert_asks_by_answer(&next[0], 4800);
}

#[test]
fn refused_transcript_is_asked_for_as_an_answer_if_the_session_has_a_model() {
    for code in ["server_error", "invalid_request_error"] {
        let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
        bench.encode(transcribe(100, false));
        assert_eq!(bench.receive(&refusal(code)), [""; 0], "{code}");
        assert_asks_by_answer(&bench.actions()[0], 2400);
        let events = bench.receive(&refusal("invalid_request_error"));
        assert!(events[0].starts_with("Misconfigured: ") && events[0].contains("serves"), "{events:?}");
    }
    let mut bench = Bench::dialled(LanePurpose::Transcribe, Mode::Chat);
    bench.encode(LaneRequest::Init(None));
    let created = json!({"type": "session.created", "session": {"id": "s", "type": "transcription"}});
    assert_eq!(bench.receive(&created), ["Ready s"]);
    bench.encode(transcribe(100, false));
    assert_eq!(bench.receive(&refusal("invalid_value")), ["Refused: invalid_value: no"]);
}

#[test]
fn translation_is_asked_for_as_an_answer() {
    let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
    let sent = bench.encode(transcribe(100, true));
    assert_eq!(sent.len(), 1);
    assert_asks_by_answer(&sent[0], 2400);
    let events = bench.receive(&refusal("invalid_parameter"));
    assert!(events[0].starts_with("Misconfigured: ") && events[0].contains("serves"), "{events:?}");
}

#[test]
fn text_is_spoken_outside_the_conversation_unless_the_server_refuses_that() {
    let mut bench = Bench::ready(LanePurpose::Speak, 24_000);
    let sent = bench.encode(read_aloud());
    assert_eq!(kinds(&sent), ["response.create"]);
    assert_eq!(sent[0]["response"]["conversation"], "none");
    assert_eq!(sent[0]["response"]["instructions"], "Read aloud.");
    assert_eq!(sent[0]["response"]["input"][0]["content"][0]["text"], "Read: Hello");
    assert_eq!(bench.receive(&refusal("invalid_request_error")), [""; 0]);
    let again = bench.actions();
    assert_eq!((again.len(), again[0]["response"].get("conversation")), (1, None));
    assert_eq!(again[0]["response"]["input"], sent[0]["response"]["input"]);
    assert_eq!(bench.receive(&done("completed", Value::Null)), ["done "]);
    assert_eq!(bench.encode(read_aloud())[0]["response"].get("conversation"), None, "it has learnt it");
    let events = bench.receive(&refusal("invalid_request_error"));
    assert!(events[0].starts_with("Misconfigured: ") && events[0].contains("serves"), "{events:?}");
}

#[test]
fn voice_that_the_client_names_is_asked_for_and_may_be_refused() {
    let refused = json!({"type": "error", "error": {
        "code": "invalid_value", "message": "no such voice", "event_id": "voice"}});
    let named = |sent: &Value| {
        assert_eq!(sent["event_id"], "voice", "{sent}");
        sent["session"]["audio"]["output"]["voice"].clone()
    };
    let voice_name = Some("ash".to_owned());
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    let spoken = bench.ask(ChatTurn { voice_name: voice_name.clone(), ..turn(Vec::new()) });
    assert_eq!((kinds(&spoken).len(), named(&spoken[0])), (3, json!("ash")));
    let events = bench.receive(&refused);
    assert!(events[0].starts_with("Unknown(") && events[0].contains("no such voice"), "{events:?}");
    assert_eq!(bench.receive(&done("completed", Value::Null)), ["done "], "the answer goes on");
    let written = bench.ask(ChatTurn { voice_name: voice_name.clone(), speaks: false, ..turn(Vec::new()) });
    assert_eq!(kinds(&written), ["session.update", "response.create"]);
    let mut bench = Bench::ready(LanePurpose::Speak, 24_000);
    let mut request = read_aloud();
    if let LaneRequest::Speak { voice_name: name, .. } = &mut request {
        name.clone_from(&voice_name);
    }
    let sent = bench.encode(request);
    assert_eq!((kinds(&sent).len(), named(&sent[0])), (2, json!("ash")));
    let mut bench = Bench::dialled(LanePurpose::Converse, Mode::Audio);
    let init = ConversationInit { prompt: String::new(), config: "{}".into(), voice: None, voice_name };
    let sent = bench.encode(LaneRequest::InitConversation(Box::new(init)));
    assert_eq!((kinds(&sent).len(), named(&sent[1])), (2, json!("ash")));
    let [created, updated] = ["session.created", "session.updated"].map(|kind| session(kind, 24_000));
    assert_eq!(bench.receive_all(&[created, updated.clone(), refused, updated])[0], "Ready s");
}
