//! Conversations whose server ends the user's turns.

use super::*;

/// A conversation whose server sends at the model's rate, and the numbers of its units.
struct Talk {
    bench: Bench,
    units: u64,
}

impl Talk {
    fn new() -> Self {
        let mut bench = Bench::dialled(LanePurpose::Converse, Mode::Video);
        let init = ConversationInit {
            prompt: "Be brief.".to_owned(),
            config: "{}".into(),
            voice: None,
            voice_name: None,
        };
        let settings = bench.encode(LaneRequest::InitConversation(Box::new(init)));
        assert_eq!(settings[0]["session"]["audio"]["input"]["turn_detection"]["type"], "server_vad");
        assert_eq!(settings[0]["session"]["instructions"], "Be brief.");
        assert_eq!(bench.receive(&session("session.created", 24_000)), [""; 0]);
        assert_eq!(bench.receive(&session("session.updated", 24_000)), ["Ready s"]);
        Self { bench, units: 0 }
    }

    fn send(&mut self, force_listen: bool, picture: Option<&[u8]>) -> Vec<Value> {
        self.units += 1;
        self.bench.encode(LaneRequest::Append(UnitInput {
            audio: Arc::new(vec![1000; 16_000]),
            input_id: self.units.to_string().into(),
            force_listen,
            frame: picture.map(|file| VideoFrame(file.to_vec().into())),
        }))
    }

    /// The model says a word in so many milliseconds.
    fn speak(&mut self, response: &str, ms: usize) -> Vec<String> {
        self.bench.receive_all(&[
            json!({"type": "response.output_audio_transcript.delta", "response_id": response, "delta": "Hi"}),
            json!({
                "type": "response.output_audio.delta", "response_id": response, "item_id": format!("item_{response}"),
                "delta": pcm16(24 * ms),
            }),
        ])
    }

    fn pass(&mut self, ms: u64) -> Vec<Value> {
        self.bench.now += Duration::from_millis(ms);
        self.bench.codec.handle_timeout(self.bench.now);
        self.bench.actions()
    }
}

const UNIT_END: &str = "Event(Done { text: None, audio: Samples([]) })";

const LISTEN: &str = "Event(Listen)";

#[test]
fn units_end_at_once_and_a_turn_when_it_was_heard() {
    let mut talk = Talk::new();
    let sent = talk.send(false, Some(&[0xff, 0xd8]));
    assert_eq!(kinds(&sent), ["message user", "input_audio_buffer.append"]);
    assert!(
        (23_800..24_000).contains(&appended(&sent)[0]),
        "the converter keeps some: {:?}",
        appended(&sent)
    );
    assert_eq!(talk.bench.actions(), [UNIT_END]);
    assert_eq!(talk.speak("r", 3000), ["text Hi", "audio 72000"]);
    assert_eq!(talk.bench.receive(&done("completed", Value::Null)), ["done "]);
    assert_eq!(talk.pass(2999), [Value::Null; 0]);
    assert_eq!(talk.pass(1), [LISTEN]);
    assert_eq!(talk.pass(5000), [Value::Null; 0]);
}

#[test]
fn answer_that_follows_another_ends_its_turn() {
    let mut talk = Talk::new();
    let ended = |response: &str, status: &str| json!({"type": "response.done", "response": {"id": response, "status": status}});
    talk.speak("a", 3000);
    assert_eq!(talk.bench.receive(&ended("a", "completed")), ["done "]);
    assert_eq!(talk.speak("b", 500), ["Listen", "text Hi", "audio 12000"]);
    assert_eq!(
        talk.bench.receive(&ended("b", "incomplete")),
        ["Listen"],
        "the session hears that it was cut"
    );
}

#[test]
fn forced_unit_stops_the_response_and_cuts_it_to_what_was_heard() {
    let mut talk = Talk::new();
    talk.speak("r", 3000);
    talk.pass(1200);
    let sent = talk.send(true, None);
    assert_eq!(kinds(&sent), ["response.cancel", "conversation.item.truncate", "input_audio_buffer.append"]);
    assert_eq!((&sent[1]["item_id"], &sent[1]["audio_end_ms"]), (&json!("item_r"), &json!(1200)));
    assert_eq!(talk.bench.actions(), [Value::Null; 0], "the unit ends with the response");
    assert_eq!(talk.speak("r", 100), [""; 0]);
    assert_eq!(talk.bench.receive(&done("cancelled", Value::Null)), ["Listen"]);
    // The next response answers the words of the interruption.
    talk.speak("s", 500);
    assert_eq!(kinds(&talk.send(true, None)), ["input_audio_buffer.append"]);
    assert_eq!(talk.bench.actions(), [LISTEN]);
}

#[test]
fn server_that_owes_output_for_too_long_is_stuck() {
    let committed = json!({"type": "input_audio_buffer.committed", "item_id": "i"});
    let speech = json!({"type": "input_audio_buffer.speech_started", "item_id": "j"});
    let created = json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}});
    let words = json!({"type": "response.output_audio_transcript.delta", "response_id": "r", "delta": "Hi"});
    let [completed, cancelled] = ["completed", "cancelled"].map(|status| done(status, Value::Null));
    // The messages come 2 s apart.
    for (messages, stuck_after_s) in [
        (vec![], None),
        (vec![&committed], Some(15)),
        (vec![&committed, &created], Some(13)),
        (vec![&committed, &speech], None),
        (vec![&committed, &speech, &committed], Some(13)),
        (vec![&committed, &speech, &committed, &speech, &committed], Some(11)),
        (vec![&committed, &created, &speech, &cancelled, &committed], Some(15)),
        (vec![&committed, &created, &words], Some(30)),
        (vec![&committed, &created, &words, &completed], None),
        (vec![&committed, &created, &words, &completed, &committed], Some(15)),
    ] {
        let mut talk = Talk::new();
        for message in &messages {
            talk.pass(2000);
            talk.bench.receive(message);
        }
        talk.bench.actions();
        assert_eq!(talk.pass(stuck_after_s.unwrap_or(100) * 1000 - 1), [Value::Null; 0], "{messages:?}");
        let ended = talk.pass(1);
        if stuck_after_s.is_none() {
            assert_eq!((ended, talk.bench.codec.deadline()), (Vec::new(), None), "{messages:?}");
            continue;
        }
        let told = ended[0].as_str().unwrap();
        assert!(told.contains("Closed") && told.contains("no output for"), "{messages:?}: {ended:?}");
        assert_eq!(ended[1], json!("Close(1000, \"\")"), "{ended:?}");
    }
    let mut question = Bench::ready(LanePurpose::Answer, 24_000);
    question.ask(turn(Vec::new()));
    assert_eq!(question.receive_all(&[committed, speech]), [""; 0]);
    assert_eq!(question.codec.deadline(), None, "the session waits itself");
}

#[test]
fn answer_that_was_made_but_not_heard_is_cut() {
    let mut talk = Talk::new();
    talk.speak("r", 3000);
    talk.bench.receive(&done("completed", Value::Null));
    talk.pass(500);
    assert_eq!(kinds(&talk.send(true, None)), ["conversation.item.truncate", "input_audio_buffer.append"]);
    assert_eq!(talk.bench.actions(), [LISTEN]);
    assert_eq!(kinds(&talk.send(false, None)), ["input_audio_buffer.append"]);
    let error = json!({"code": "response_cancel_not_active", "message": "no"});
    talk.bench.actions();
    let events = talk.bench.receive(&json!({"type": "error", "error": error}));
    assert!(events[0].starts_with("Unknown("), "{events:?}");
}
