//! Clients of Gemini Live in virtual time: turns, interruptions, tools, the client's own detection of activity, and ends.

use base64::engine::general_purpose::URL_SAFE;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const LONG: &str =
    "This is an answer of many words, so that it is heard for some seconds and can be interrupted.";

struct Gemini {
    harness: Harness,
}

impl Gemini {
    fn connect(answers: &[&str], setup: Value) -> Self {
        let config = HarnessConfig::of("gemini-live", "assistant", "").answers(answers).workers(2);
        let mut client = Self { harness: Harness::new(config) };
        assert!(client.all().is_empty(), "the client speaks first");
        let mut message = json!({"setup": {
            "model": "models/any", "generation_config": {"response_modalities": ["AUDIO"]},
            "inputAudioTranscription": {}, "outputAudioTranscription": {},
        }});
        message["setup"].as_object_mut().unwrap().extend(setup.as_object().unwrap().clone());
        client.harness.send_binary(message.to_string().as_bytes());
        assert!(client.all()[0]["setupComplete"].is_object(), "{:?}", client.harness.log);
        client
    }

    fn all(&self) -> Vec<&Value> {
        let events = self.harness.all_events();
        events.collect()
    }

    fn send(&mut self, message: &Value) {
        self.harness.send_json(message);
    }

    fn say(&mut self, samples: &[i16]) {
        for frame in samples.chunks(1600) {
            let data = URL_SAFE.encode(bytes_of(frame));
            self.send(
                &json!({"realtime_input": {"audio": {"data": data, "mime_type": "audio/pcm;rate=16000"}}}),
            );
            self.harness.advance(Duration::from_millis(100));
        }
    }

    fn ask(&mut self, text: &str) {
        let turns = json!([{"role": "user", "parts": [{"text": text}]}]);
        self.send(&json!({"client_content": {"turns": turns, "turn_complete": true}}));
    }

    /// Names of the messages that the client got after the first `from`; audio that follows audio counts once.
    fn names(&self, from: usize) -> Vec<String> {
        let name = |event: &&Value| {
            let content = event["serverContent"].as_object();
            let name = content.and_then(|content| content.keys().next());
            name.or_else(|| event.as_object()?.keys().next()).cloned().unwrap_or_default()
        };
        let mut names: Vec<_> = self.all()[from..].iter().map(name).collect();
        names.dedup_by(|next, last| next == last && (next == "modelTurn" || next == "outputTranscription"));
        names
    }

    fn wait_for(&mut self, pointer: &str, count: usize) {
        let found = |harness: &Harness| {
            let events = harness.log.iter().filter_map(|(_, frame)| match frame {
                ClientFrame::Event(event) => event.pointer(pointer),
                _ => None,
            });
            events.count() >= count
        };
        assert!(self.harness.run_until(found, MINUTE).is_some(), "no {pointer}: {:?}", self.names(0));
    }

    /// The user's transcripts.
    fn transcripts(&self) -> Vec<String> {
        let all = self.all().into_iter();
        let texts = all.filter_map(|it| it.pointer("/serverContent/inputTranscription/text")?.as_str());
        texts.map(str::to_owned).collect()
    }

    /// Length of the utterance that the simulator heard, which its transcript names, s.
    fn heard_s(&self) -> f64 {
        let transcripts = self.transcripts();
        let [words] = transcripts.as_slice() else { panic!("not one transcript: {transcripts:?}") };
        words.split(' ').find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{words}"))
    }

    fn close(&self) -> Option<(u16, String)> {
        self.harness.log.iter().find_map(|(_, frame)| match frame {
            ClientFrame::Close(code, reason) => Some((*code, reason.clone())),
            _ => None,
        })
    }
}

/// Length of the recording as the simulator hears it in the plain spelling, s.
fn spoken_s() -> f64 {
    let mut client = Gemini::connect(&["Good morning."], json!({}));
    client.say(&recording("goforward_16k.wav"));
    client.say(&zeros(1500));
    client.wait_for("/serverContent/inputTranscription", 1);
    client.heard_s()
}

#[test]
fn utterance_is_answered_by_a_complete_turn() {
    let mut client = Gemini::connect(&["Good morning."], json!({}));
    client.say(&recording("goforward_16k.wav"));
    client.say(&zeros(1500));
    client.wait_for("/serverContent/turnComplete", 1);
    let names = client.names(1);
    let at = |name: &str| names.iter().position(|found| found == name).unwrap_or(usize::MAX);
    assert!(at("inputTranscription") < names.len(), "{names:?}");
    assert!(at("modelTurn") < at("generationComplete"), "{names:?}");
    assert_eq!(names.iter().filter(|name| *name == "generationComplete").count(), 1, "{names:?}");
    assert_eq!(names.last().map(String::as_str), Some("turnComplete"), "{names:?}");
    let words: String = client
        .all()
        .iter()
        .filter_map(|it| it["serverContent"]["outputTranscription"]["text"].as_str())
        .collect();
    assert_eq!(words, "Good morning.");
    let last = client.all().pop().unwrap().clone();
    assert!(last["usageMetadata"]["totalTokenCount"].as_u64().unwrap() > 0, "{last}");
}

#[test]
fn interrupted_turn_ends_without_generation_complete() {
    let mut client = Gemini::connect(&[LONG, "Yes?"], json!({}));
    client.ask("Tell me.");
    client.wait_for("/serverContent/modelTurn", 3);
    client.say(&recording("goforward_16k.wav"));
    let names = client.names(1);
    let at = |name: &str| names.iter().position(|found| found == name);
    let (interrupted, complete) = (at("interrupted").unwrap(), at("turnComplete").unwrap());
    assert_eq!(complete, interrupted + 1, "{names:?}");
    assert!(at("generationComplete").is_none_or(|at| at > complete), "{names:?}");
    client.say(&zeros(1500));
    client.wait_for("/serverContent/turnComplete", 2);
    assert_eq!(client.names(1).iter().filter(|name| *name == "interrupted").count(), 1);
}

#[test]
fn answer_that_no_one_heard_is_interrupted_too() {
    let mut client = Gemini::connect(&[LONG, "Yes?"], json!({}));
    client.ask("Tell me.");
    client.ask("No, something else.");
    client.wait_for("/serverContent/turnComplete", 2);
    let names = client.names(1);
    assert_eq!(names[..2], ["interrupted", "turnComplete"], "{names:?}");
    assert_eq!(names.last().map(String::as_str), Some("turnComplete"), "{names:?}");
}

#[test]
fn turn_with_calls_is_complete_after_their_results() {
    let tools = json!([{"google_search": {}}, {"function_declarations": [
        {"name": "light", "description": "Switches it.", "parameters": {"type": "OBJECT", "properties": {"on": {"type": "BOOLEAN"}}, "required": ["on"]}}]}]);
    let calls = "<tool_call>\n{\"name\": \"light\", \"arguments\": {\"on\": true}}\n</tool_call>\n<tool_call>\n{\"name\": \"light\", \"arguments\": {\"on\": false}}\n</tool_call>";
    let mut client = Gemini::connect(&[calls, "It is off."], json!({"tools": tools}));
    client.ask("Blink.");
    client.wait_for("/usageMetadata", 1);
    assert_eq!(client.names(1), ["toolCall", "toolCall", "usageMetadata"]);
    let ids: Vec<_> =
        client.all()[1..3].iter().map(|it| it["toolCall"]["functionCalls"][0]["id"].clone()).collect();
    assert_ne!(ids[0], ids[1]);
    let result = |id: &Value| json!({"tool_response": {"functionResponses": [{"id": id, "name": "light", "response": {"ok": true}}]}});
    client.send(&result(&ids[1]));
    client.harness.advance(Duration::from_secs(5));
    assert_eq!(client.names(4).len(), 0, "a result is missing");
    client.send(&result(&ids[0]));
    client.wait_for("/serverContent/turnComplete", 1);
    assert!(client.harness.received_count("It is off.") > 0);
    client.send(&result(&ids[0]));
    assert_eq!(client.close(), None, "a second result does no harm");
}

#[test]
fn calls_without_results_are_cancelled_by_the_next_turn() {
    let tools = json!([{"functionDeclarations": [{"name": "light"}]}]);
    let call = "<tool_call>\n{\"name\": \"light\", \"arguments\": {}}\n</tool_call>";
    let mut client = Gemini::connect(&[call, "All right."], json!({"tools": tools}));
    client.ask("Switch it on.");
    client.wait_for("/toolCall", 1);
    client.wait_for("/usageMetadata", 1);
    client.ask("Never mind.");
    client.wait_for("/serverContent/turnComplete", 1);
    let names = client.names(1);
    assert_eq!(names[..3], ["toolCall", "usageMetadata", "toolCallCancellation"], "{names:?}");
}

#[test]
fn clients_own_detection_of_activity_decides() {
    let off = json!({"realtimeInputConfig": {"automatic_activity_detection": {"disabled": true}}});
    let mut client = Gemini::connect(&["Good morning."], off);
    client.say(&zeros(500));
    client.send(&json!({"realtime_input": {"activityStart": {}}}));
    client.say(&recording("goforward_16k.wav"));
    client.say(&zeros(3000));
    assert_eq!(client.names(1).len(), 0, "silence ends nothing");
    client.send(&json!({"realtimeInput": {"activityEnd": {}}}));
    client.wait_for("/serverContent/turnComplete", 1);
}

#[test]
fn written_answers_have_no_audio() {
    let mut client =
        Gemini::connect(&["Good morning."], json!({"generation_config": {"response_modalities": ["TEXT"]}}));
    client.ask("Hello.");
    client.wait_for("/serverContent/turnComplete", 1);
    assert_eq!(client.names(1), ["modelTurn", "generationComplete", "turnComplete"]);
    assert!(
        client.all().iter().all(|it| it["serverContent"]["modelTurn"]["parts"][0]["inlineData"].is_null())
    );
}

#[test]
fn blank_text_interrupts_and_asks_nothing() {
    for blank in ["", " ", "\n\t"] {
        let mut client = Gemini::connect(&["Good morning."], json!({}));
        client.ask("Hello.");
        client.send(&json!({"realtime_input": {"text": blank}}));
        client.wait_for("/serverContent/turnComplete", 1);
        client.harness.advance(MINUTE);
        let names = client.names(1);
        assert!(names.contains(&"modelTurn".to_owned()), "{blank:?}: {names:?}");
        assert!(!names.contains(&"interrupted".to_owned()), "{blank:?}: {names:?}");
        assert_eq!(names.iter().filter(|name| *name == "turnComplete").count(), 1, "{blank:?}: {names:?}");
    }
}

#[test]
fn media_type_may_have_spaces_any_case_and_further_parameters() {
    let speech: Vec<i16> = recording("goforward_16k.wav").iter().flat_map(|sample| [*sample; 3]).collect();
    let speech = [speech, zeros(4500)].concat();
    for mime_type in ["audio/pcm; rate=48000", "Audio/PCM;rate=48000", "audio/pcm;rate=48000;channels=1"] {
        for key in ["audio", "mediaChunks"] {
            let mut client = Gemini::connect(&["Good morning."], json!({}));
            for frame in speech.chunks(4800) {
                let blob = json!({"data": URL_SAFE.encode(bytes_of(frame)), "mimeType": mime_type});
                let blob = if key == "audio" { blob } else { json!([blob]) };
                client.send(&json!({"realtimeInput": {key: blob}}));
                client.harness.advance(Duration::from_millis(100));
            }
            client.wait_for("/serverContent/inputTranscription", 1);
            assert_eq!(client.close(), None, "{mime_type} {key}");
            let (heard, spoken) = (client.heard_s(), spoken_s());
            assert!((heard - spoken).abs() < 0.2, "{mime_type} {key}: {heard} of {spoken} s");
        }
    }
}

#[test]
fn every_one_of_several_media_chunks_counts() {
    let mut client = Gemini::connect(&["Good morning."], json!({}));
    let speech = [recording("goforward_16k.wav"), zeros(1500)].concat();
    for (at, frames) in speech.chunks(4800).enumerate() {
        let chunk =
            |frame: &[i16]| json!({"data": URL_SAFE.encode(bytes_of(frame)), "mimeType": "audio/pcm"});
        let chunks: Vec<Value> = frames.chunks(1600).map(chunk).collect();
        let message = match at % 2 {
            0 => json!({"realtimeInput": {"mediaChunks": chunks}}),
            _ => json!({"realtime_input": {"media_chunks": chunks}}),
        };
        client.send(&message);
        client.harness.advance(Duration::from_millis(300));
    }
    client.wait_for("/serverContent/inputTranscription", 1);
    let (heard, spoken) = (client.heard_s(), spoken_s());
    assert!((heard - spoken).abs() < 0.2, "{heard} of {spoken} s");
}

#[test]
fn bad_input_closes_with_a_reason_and_a_drain_is_announced() {
    let mut client = Gemini::connect(&[], json!({}));
    client.send(&json!({"realtimeInput": {"audio": {"data": "AAAA", "mimeType": "audio/ogg"}}}));
    let (code, reason) = client.close().unwrap();
    assert!(
        code == 1007 && reason.contains("mime_type: Input should be 'audio/pcm'") && reason.len() <= 123,
        "{code} {reason}"
    );
    let mut client = Gemini::connect(&[LONG], json!({}));
    client.ask("Tell me.");
    client.wait_for("/serverContent/modelTurn", 1);
    client.harness.drain();
    client.wait_for("/goAway", 1);
    client.wait_for("/serverContent/turnComplete", 1);
    client.harness.wait_until(Harness::is_closed, MINUTE);
    assert_eq!(client.close().unwrap().0, 1001);
}
