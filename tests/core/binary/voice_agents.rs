//! Protocols that voice agents dial: turns that only the client ends, texts to speak in turns, and whole agents.

use super::*;

const LONG: &str =
    "This is an answer of many words, so that it is heard for some seconds and can be interrupted.";

/// Connects a client that asks in turns, to a model with these answers.
fn open_agent(protocol: &'static str, answers: &[&str]) -> Harness {
    Harness::new(HarnessConfig::of(protocol, "assistant", "").answers(answers).workers(2))
}

/// The value at `key` of all events, without repetitions; `audio` for binary frames.
fn steps(harness: &Harness, key: &str) -> Vec<String> {
    let step = |frame: &ClientFrame| match frame {
        ClientFrame::Event(event) => event[key].as_str().unwrap_or("-").to_owned(),
        ClientFrame::Close(..) => "close".to_owned(),
        _ => "audio".to_owned(),
    };
    let mut steps: Vec<_> = harness.log.iter().map(|(_, frame)| step(frame)).collect();
    steps.dedup();
    steps
}

/// The other steps, without repetitions.
fn without(left_out: &[&str], mut steps: Vec<String>) -> Vec<String> {
    steps.retain(|step| !left_out.contains(&step.as_str()));
    steps.dedup();
    steps
}

fn wait_for(harness: &mut Harness, key: &str, value: &str, count: usize) {
    let found = |harness: &Harness| steps(harness, key).iter().filter(|it| *it == value).count() >= count;
    assert!(harness.run_until(found, secs(60)).is_some(), "no {value}: {:?}", steps(harness, key));
}

fn start_recognition(harness: &mut Harness, mode: &str) {
    harness.send_json(&json!({
        "message": "StartRecognition",
        "audio_format": {"type": "raw", "encoding": "pcm_s16le", "sample_rate": 16000},
        "transcription_config": {"language": "en", "model": "linden-1"},
        "turn_config": {"turn_detection_mode": mode},
    }));
}

fn say(harness: &mut Harness, samples: &[i16]) {
    for frame in samples.chunks(320) {
        harness.send_binary(&bytes_of(frame));
        harness.advance(ms(20));
    }
}

#[test]
fn external_turn_detection_leaves_the_end_of_a_turn_to_the_client() {
    let turn = ["StartOfTurn", "AddSegment", "EndOfTurn"];
    let mut harness = open_client("speechmatics-agent", "", &[]);
    start_recognition(&mut harness, "external");
    let heard = |harness: &Harness| without(&["AudioAdded", "AddPartialSegment"], steps(harness, "message"));
    for turns in 1..=2 {
        say(&mut harness, &[zeros(1000), utterance(), zeros(2000)].concat());
        assert_eq!(heard(&harness).len(), 3 * turns - 2, "the pause ended a turn: {:?}", heard(&harness));
        harness.send_json(&json!({"message": "ForceEndOfUtterance", "timestamp": 5.0}));
        // Nothing was said since.
        harness.send_json(&json!({"message": "ForceEndOfUtterance"}));
        harness.advance(secs(10));
        assert_eq!(heard(&harness)[3 * turns - 2..], turn, "{:?}", heard(&harness));
    }
    harness.send_json(&json!({"message": "GetSpeakers"}));
    harness.send_json(&json!({"message": "EndOfStream", "last_seq_no": 1}));
    harness.run_until(Harness::is_closed, secs(30));
    assert_eq!(heard(&harness)[7..], ["SpeakersResult", "EndOfTranscript", "close"]);
    assert_session_ends(&mut harness);
}

#[test]
fn turn_that_silence_ends_has_speech_events_and_ends_last() {
    let mut harness = open_client("speechmatics-agent", "", &[]);
    start_recognition(&mut harness, "vad");
    say(&mut harness, &[utterance(), zeros(500)].concat());
    harness.advance(secs(10));
    let steps = without(&["AudioAdded", "AddPartialSegment"], steps(&harness, "message"));
    let turn = ["SpeechStarted", "StartOfTurn", "AddSegment", "SpeechEnded", "EndOfTurn"];
    assert_eq!(steps[1..], turn);
    assert_session_ends(&mut harness);
}

#[test]
fn turns_of_texts_have_their_own_id_and_amounts() {
    let mut harness = open_client("deepgram-flux-speak", "model=flux-alexis-en", &[]);
    let speak =
        |harness: &mut Harness, text: &str| harness.send_json(&json!({"type": "Speak", "text": text}));
    speak(&mut harness, "The first sentence. The second");
    harness.advance(secs(20));
    speak(&mut harness, " one.");
    harness.send_json(&json!({"type": "Flush"}));
    harness.advance(secs(20));
    let turn = ["SpeechStarted", "audio", "SpeechMetadata", "Flushed"];
    assert_eq!(steps(&harness, "type")[1..], turn, "a turn starts once");
    speak(&mut harness, &"This is not spoken to its end. ".repeat(10));
    wait_for(&mut harness, "type", "SpeechStarted", 2);
    harness.advance(ms(500));
    for _ in 0..2 {
        harness
            .send_json(&json!({"type": "Interrupt", "playback_offset": {"type": "time_ms", "value": 500}}));
    }
    harness.send_json(&json!({"type": "Close"}));
    harness.run_until(Harness::is_closed, secs(60));
    let all = |kind: &str| events(&harness, kind).into_iter().cloned().collect::<Vec<_>>();
    let (metadata, interrupted) = (all("SpeechMetadata"), all("SpeechInterrupted"));
    assert_eq!(metadata[0]["input_character_count"], "The first sentence. The second one.".len());
    let audio_ms = |of: &Value| of["audio_duration_ms"].as_u64().unwrap();
    let ids: Vec<_> = all("SpeechStarted").iter().map(|it| it["speech_id"].clone()).collect();
    assert_eq!([&metadata[0]["speech_id"], &interrupted[0]["metadata"]["speech_id"]], [&ids[0], &ids[1]]);
    assert!(ids[0] != ids[1] && audio_ms(&metadata[0]) > 500);
    let total_ms = audio_ms(&metadata[0]) + audio_ms(&interrupted[0]["metadata"]);
    assert_eq!(interrupted[0]["audio_played_ms"], total_ms);
    assert_eq!(all("Warning").len(), 1, "the second Interrupt found nothing to stop");
    assert_eq!(all("SessionMetadata")[0]["total_audio_duration_ms"], total_ms);
    assert_eq!(close_frame(&harness), Some((1000, "")));
    assert_session_ends(&mut harness);
}

#[test]
fn lines_of_a_message_are_spoken_one_behind_the_other() {
    let mut harness = open_client("elevenlabs-dialogue", "model_id=eleven_v3", &[]);
    let line = |text: &str| json!({"text": text, "voice_id": "v"});
    harness.send_json(&json!({"context_id": "keepalive", "voices": ["v"]}));
    harness.send_json(
        &json!({"context_id": "a", "voices": ["v"], "inputs": [line("Who is "), line("there? ")]}),
    );
    harness.send_json(&json!({"context_id": "b", "voices": ["v"]}));
    harness.send_json(&json!({"context_id": "a", "inputs": [line("It is me")], "close_context": true}));
    harness.send_json(&json!({"context_id": "b", "inputs": [line("I see")], "flush": true}));
    harness.send_json(&json!({"context_id": "keepalive", "keep_alive": true}));
    harness.advance(secs(30));
    let final_ones: Vec<_> = events(&harness, "is_final").iter().map(|it| it["context_id"].clone()).collect();
    assert_eq!(final_ones, ["a"]);
    assert_eq!(harness.sent_containing("Who is there?").len(), 1);
    harness.send_json(&json!({"close_socket": true}));
    harness.run_until(Harness::is_closed, secs(30));
    assert!(!harness.sent_containing("I see").is_empty());
    assert_eq!(close_frame(&harness), Some((1000, "")));
    assert_session_ends(&mut harness);
}

fn deepgram_settings(agent: Value) -> Value {
    let mut settings = json!({
        "type": "Settings",
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16000},
            "output": {"encoding": "linear16", "sample_rate": 24000, "container": "none"},
        },
        "agent": {"think": {"prompt": "Answer briefly."}},
    });
    settings["agent"].as_object_mut().unwrap().extend(agent.as_object().unwrap().clone());
    settings
}

#[test]
fn agent_greets_answers_and_reports_each_sentence_once() {
    let mut harness = open_agent("deepgram-agent", &["Good morning. How are you?", "Fine."]);
    harness.send_json(&deepgram_settings(json!({
        "greeting": "Hello.", "context": {"messages": [{"type": "History", "role": "user", "content": "I am Ada."}]},
    })));
    wait_for(&mut harness, "type", "AgentAudioDone", 1);
    say(&mut harness, &[recording("goforward_16k.wav"), zeros(800)].concat());
    wait_for(&mut harness, "type", "AgentAudioDone", 2);
    let greeting =
        ["Welcome", "SettingsApplied", "ConversationText", "AgentStartedSpeaking", "audio", "AgentAudioDone"];
    assert_eq!(steps(&harness, "type")[..6], greeting);
    harness.send_json(&json!({"type": "InjectAgentMessage", "message": "One more thing."}));
    wait_for(&mut harness, "type", "AgentAudioDone", 3);
    let of = |role: &str| {
        let texts = events(&harness, "ConversationText").into_iter().filter(|it| it["role"] == role);
        texts.map(|it| it["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("assistant"), ["Hello.", "Good morning.", "How are you?", "One more thing."]);
    assert_eq!(of("user").len(), 1);
    let questions = harness.sent_containing("Answer briefly.");
    assert!(questions[0].contains("I am Ada."), "the history is not in the question");
    assert_session_ends(&mut harness);
}

#[test]
fn agent_calls_a_function_and_says_its_result() {
    let mut harness = open_agent("deepgram-agent", &[]);
    let function = json!({
        "name": "get_weather", "description": "The weather of a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    });
    harness.send_json(&deepgram_settings(json!({"think": {"functions": [function]}})));
    harness.send_json(&json!({"type": "InjectUserMessage", "content": "What is the weather in Rome?"}));
    wait_for(&mut harness, "type", "FunctionCallRequest", 1);
    let call = events(&harness, "FunctionCallRequest")[0]["functions"][0].clone();
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&arguments, &call["client_side"]), (&json!({"city": "Rome"}), &json!(true)));
    let response =
        json!({"type": "FunctionCallResponse", "id": call["id"], "name": "x", "content": "sunny in Rome"});
    harness.send_json(&response);
    wait_for(&mut harness, "type", "AgentAudioDone", 1);
    let texts = events(&harness, "ConversationText");
    assert!(texts.len() == 1 && texts[0]["content"].as_str().unwrap().contains("sunny in Rome"), "{texts:?}");
    harness.send_json(&response);
    harness.advance(secs(1));
    assert_eq!(events(&harness, "Warning").len(), 1, "the call was answered already");
    assert_session_ends(&mut harness);
}

#[test]
fn interruption_names_the_audio_that_it_stops() {
    let mut harness = open_agent("elevenlabs-agents", &[LONG, "Yes?"]);
    harness.send_json(&json!({
        "type": "conversation_initiation_client_data",
        "conversation_config_override": {"agent": {"prompt": {"prompt": "Answer briefly."}}},
    }));
    harness.send_json(&json!({"type": "user_message", "text": "Tell me."}));
    wait_for(&mut harness, "type", "audio", 1);
    harness.advance(secs(2));
    for frame in [recording("goforward_16k.wav"), zeros(1500)].concat().chunks(1600) {
        harness.send_json(&json!({"user_audio_chunk": STANDARD.encode(bytes_of(frame))}));
        harness.advance(ms(100));
    }
    wait_for(&mut harness, "type", "agent_response", 2);
    let steps = without(&["agent_chat_response_part", "ping"], steps(&harness, "type"));
    let first = ["conversation_initiation_metadata", "audio", "agent_response", "interruption"];
    assert_eq!(steps[..4], first, "{steps:?}");
    let ids = |kind: &str, member: &str| {
        let ids = events(&harness, kind).into_iter().filter(|it| it["type"] == kind);
        let mut ids: Vec<_> = ids.map(|it| it[member]["event_id"].as_u64().unwrap()).collect();
        ids.dedup();
        ids
    };
    assert_eq!(
        (ids("audio", "audio_event"), ids("interruption", "interruption_event")),
        (vec![1, 2], vec![1])
    );
    let texts: Vec<_> = events(&harness, "agent_response_event")
        .iter()
        .map(|it| it["agent_response_event"]["agent_response"].as_str().unwrap().to_owned())
        .collect();
    assert!(LONG.starts_with(&texts[0]) && texts[0].len() < LONG.len(), "{texts:?}");
    assert_eq!(texts[1], "Yes?");
    assert_session_ends(&mut harness);
}
