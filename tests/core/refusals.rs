//! Refusals in virtual time: a refused request is sent once, and the server's words reach the client. A server
//! that fails is asked again.

use proptest::prelude::*;

use super::*;

/// The server's reaction to a question.
#[derive(Debug, Clone)]
enum Reply {
    /// Sends this message and continues.
    Message(Value),
    /// Sends this message, if any, and ends the transport.
    End(Option<Value>, DisconnectReason),
}

/// A session, and a server that replies to questions and units as scripted.
struct Session {
    session: VirtualSession,
    replies: VecDeque<Reply>,
    /// The reply after the scripted ones.
    usual: Reply,
    has_queue: bool,
    /// The reply to every opening, if the server refuses them.
    refuses_opening: Option<Value>,
    to_do: VecDeque<(Lane, Step)>,
    /// Questions and units of all lanes.
    asked: Vec<Value>,
    openings: usize,
    events: Vec<Value>,
    /// Failures and refusals of lanes that the upstream pool hears of.
    failures: Vec<String>,
    refusals: Vec<(String, bool)>,
}

#[derive(Debug)]
enum Step {
    Opened,
    Received(Message),
}

fn gone() -> DisconnectReason {
    DisconnectReason::Closed(1000, String::new())
}

impl Session {
    fn open((client, profile, dialect): (&str, &str, &str), replies: Vec<Reply>, usual: Reply) -> Self {
        let library = Library::embedded().unwrap();
        let opening = Opening { query: "model=any", ..Opening::new(&library, client, dialect, profile) };
        let has_queue = opening.upstream().has_queue();
        Self {
            session: opening.open(|_| ()),
            replies: replies.into(),
            usual,
            has_queue,
            refuses_opening: None,
            to_do: VecDeque::new(),
            asked: Vec::new(),
            openings: 0,
            events: Vec::new(),
            failures: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Handles an input, and then what the server does.
    fn input(&mut self, input: Input<'_>) {
        self.handle(input);
        while let Some((lane, step)) = self.to_do.pop_front() {
            match step {
                Step::Opened => {
                    self.handle(Input::LaneOpened(lane));
                    if self.has_queue {
                        self.say(lane, &json!({"type": "session.queue_done"}));
                    }
                }
                Step::Received(Message::Text(text)) => {
                    self.receive(lane, serde_json::from_str(&text).unwrap());
                }
                Step::Received(_) => self.handle(Input::LaneClosed(lane, gone())),
            }
        }
    }

    fn receive(&mut self, lane: Lane, message: Value) {
        match message["type"].as_str().unwrap() {
            "session.init" | "session.update" => {
                self.openings += 1;
                if let Some(refusal) = self.refuses_opening.clone() {
                    return self.say(lane, &refusal);
                }
                let capabilities = json!({"implementation_level": "model_native_duplex",
                    "required_input_modalities": ["audio"], "chunk_period_ms": 1000});
                let session = json!({"id": "s", "capabilities": capabilities});
                self.say(lane, &json!({"type": "session.created", "session_id": "s", "session": session}));
                self.say(lane, &json!({"type": "session.updated"}));
            }
            "input.append" | "input_audio_buffer.append" => {
                self.asked.push(message.clone());
                match self.replies.pop_front().unwrap_or_else(|| self.usual.clone()) {
                    Reply::Message(reply) => self.say(lane, &with_ids(reply, &message)),
                    Reply::End(last, reason) => {
                        last.into_iter().for_each(|last| self.say(lane, &last));
                        self.handle(Input::LaneClosed(lane, reason));
                    }
                }
            }
            "session.close" => {
                self.say(lane, &json!({"type": "session.closed", "reason": "user_stop"}));
                self.handle(Input::LaneClosed(lane, gone()));
            }
            "playback.ack" | "session.event_ack" => {}
            other => panic!("{other}"),
        }
    }

    fn say(&mut self, lane: Lane, message: &Value) {
        self.handle(Input::Lane(lane, Frame::Text(&message.to_string())));
    }

    fn handle(&mut self, input: Input<'_>) {
        for output in self.session.input(input) {
            match output {
                Output::ToClient(Message::Text(text), _) => {
                    self.events.push(serde_json::from_str(&text).unwrap());
                }
                Output::OpenLane(lane, ..) => self.to_do.push_back((lane, Step::Opened)),
                Output::ToLane(lane, message) => self.to_do.push_back((lane, Step::Received(message))),
                Output::Observe(Observation::LaneFailed { words, .. }) => self.failures.push(words),
                Output::Observe(Observation::LaneRefused { words, by_configuration, .. }) => {
                    self.refusals.push((words, by_configuration));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, message: &Value) {
        self.input(Input::Client(Frame::Text(&message.to_string())));
    }

    fn say_utterance(&mut self) {
        self.stream(&[&recording("goforward_16k.wav")[..], &zeros(600)].concat());
    }

    fn stream(&mut self, samples: &[i16]) {
        for frame in samples.chunks(1600) {
            self.input(Input::Client(Frame::Binary(&bytes_of(frame))));
            self.pass_a_tenth();
        }
    }

    fn wait(&mut self, seconds: u32) {
        (0..10 * seconds).for_each(|_| self.pass_a_tenth());
    }

    fn pass_a_tenth(&mut self) {
        self.session.now += Duration::from_millis(100);
        self.input(Input::Timeout);
    }

    fn events(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }
}

/// A reply that names the append which it answers.
fn with_ids(mut reply: Value, append: &Value) -> Value {
    if let Some(id) = append.pointer("/input/input_id") {
        reply["input_id"] = id.clone();
    }
    if let (Some(error), Some(id)) = (reply.get_mut("error"), append.get("event_id")) {
        error["event_id"] = id.clone();
    }
    reply
}

fn closed(reason: &str, diagnostic: Option<&str>) -> Reply {
    let mut end = json!({"type": "session.closed", "reason": reason});
    if let Some(words) = diagnostic {
        end["diagnostic"] = json!({"message": words});
    }
    Reply::End(Some(end), gone())
}

fn answered() -> Reply {
    Reply::Message(json!({"type": "response.done", "text": "Fine.", "audio": STANDARD.encode([0_u8; 9600])}))
}

/// Servers with questions, which end a session by its reason and a diagnostic.
const SERVERS: [&str; 2] = ["minicpm-o", "llama-cpp-omni"];

/// Words of a server about a picture, and about a text.
const WORDS: &str = "cannot identify image file <_io.BytesIO>";

fn refusals() -> Vec<(&'static str, Reply)> {
    let close = |code, words: &str| Reply::End(None, DisconnectReason::Closed(code, words.to_owned()));
    vec![
        (WORDS, closed("backend_error", Some(WORDS))),
        ("list index out of range", closed("backend_error", Some("list index out of range"))),
        ("message too big", close(1009, "message too big")),
        ("code 1007", close(1007, "")),
        ("unsupported", close(1003, "unsupported")),
    ]
}

fn failures() -> Vec<Reply> {
    vec![
        closed("backend_error", None),
        closed("backend_error", Some("CUDA error: device-side assert triggered")),
        closed("backend_error", Some("CUDA out of memory. Tried to allocate 20.00 MiB")),
        Reply::End(None, DisconnectReason::Lost("reset by peer".to_owned())),
        Reply::End(None, DisconnectReason::Closed(1006, String::new())),
        Reply::End(None, DisconnectReason::Closed(1011, "keepalive ping timeout".to_owned())),
    ]
}

fn ask_for_transcript(session: &mut Session) {
    session.say_utterance();
    session.wait(5);
}

fn ask_for_speech(session: &mut Session) {
    session.send(&json!({"type": "tts.speak", "text": "Good morning.", "request_id": "r"}));
    session.wait(5);
}

/// Requests of a Macaw client.
type Question = fn(&mut Session);

const QUESTIONS: [Question; 2] = [ask_for_transcript, ask_for_speech];

#[test]
fn refused_question_is_sent_once_and_reported_with_the_servers_words() {
    for dialect in SERVERS {
        for question in QUESTIONS {
            for (words, refusal) in refusals() {
                let mut session =
                    Session::open(("macaw", "speech", dialect), vec![refusal.clone()], answered());
                question(&mut session);
                let context = format!("{dialect} {refusal:?}: {:#?}", session.events);
                assert_eq!(session.asked.len(), 1, "{context}");
                let errors = session.events("error");
                assert_eq!(errors.len(), 1, "{context}");
                assert_has(errors[0], json!({"/code": "invalid_request", "/recoverable": true}));
                assert!(errors[0]["message"].as_str().unwrap().contains(words), "{context}");
                assert!(session.failures.is_empty() && session.refusals.len() == 1, "{context}");
                // The session goes on.
                question(&mut session);
                assert_eq!((session.asked.len(), session.events("error").len()), (2, 1), "{context}");
            }
        }
    }
}

#[test]
fn failed_question_is_asked_again_and_counts_against_the_server() {
    for dialect in SERVERS {
        for question in QUESTIONS {
            for failure in failures() {
                let replies = vec![failure.clone(), failure.clone()];
                let mut session = Session::open(("macaw", "speech", dialect), replies, answered());
                question(&mut session);
                let context = format!("{dialect} {failure:?}: {:#?}", session.events);
                assert_eq!(session.asked.len(), 2, "{context}");
                assert_eq!(session.failures.len(), 2, "{context}");
                assert!(session.refusals.is_empty(), "{context}");
                assert_ne!(session.events("error")[0]["code"], "invalid_request");
            }
        }
    }
}

#[test]
fn turn_with_a_damaged_picture_is_asked_once() {
    for dialect in SERVERS {
        for (words, refusal) in refusals() {
            let case = ("openai-realtime", "assistant", dialect);
            let mut session = Session::open(case, vec![refusal.clone()], answered());
            let picture = format!("data:image/jpeg;base64,{PICTURE}");
            let content = json!([{"type": "input_image", "image_url": picture}]);
            let item = json!({"type": "message", "role": "user", "content": content});
            session.send(&json!({"type": "conversation.item.create", "item": item}));
            session.send(&json!({"type": "response.create"}));
            session.wait(5);
            let context = format!("{dialect} {refusal:?}: {:#?}", session.events);
            assert_eq!(session.asked.len(), 1, "{context}");
            let done = &session.events("response.done")[0]["response"];
            assert_eq!(done["status"], "failed", "{context}");
            let error = &done["status_details"]["error"];
            assert_has(error, json!({"/type": "invalid_request_error", "/code": "invalid_value"}));
            assert!(done.to_string().contains(words), "{context}");
            assert!(session.failures.is_empty() && session.refusals.len() == 1, "{context}");
            session.send(&json!({"type": "response.create"}));
            session.wait(5);
            let last = session.events("response.done").last().unwrap()["response"]["status"].clone();
            assert_eq!(last, "completed", "{context}");
        }
    }
}

/// A conversation never repeats a picture that ended its session, for any reason of the end.
#[test]
fn conversation_leaves_a_picture_out_that_ended_its_session() {
    for dialect in SERVERS {
        for (end, is_refusal) in
            [(closed("backend_error", Some(WORDS)), true), (closed("backend_error", None), false)]
        {
            let usual = Reply::Message(json!({"type": "response.output.delta", "kind": "listen"}));
            let mut session = Session::open(("macaw", "video", dialect), Vec::new(), usual);
            session.stream(&vec![0; 40_000]);
            session.replies.push_back(end.clone());
            session.send(&json!({"type": "video.frame", "image": PICTURE}));
            session.stream(&vec![0; 80_000]);
            let context = format!("{dialect} {end:?}: {:#?} {:?}", session.events, session.failures);
            let shown = |unit: &&Value| unit["input"].get("video_frames").is_some();
            // The reply may have met a unit before the picture's.
            let pictures = session.asked.iter().filter(shown).count();
            assert_eq!(pictures, 1, "{context}");
            assert_eq!(session.openings, 2, "{context}");
            let errors = session.events("error");
            assert_eq!(errors.len(), 1, "{context}");
            assert_eq!(session.failures.is_empty(), is_refusal, "{context}");
            assert_eq!(errors[0]["message"].as_str().unwrap().contains(WORDS), is_refusal, "{context}");
        }
    }
}

fn unit_error(code: &str) -> Reply {
    Reply::Message(json!({"type": "error", "error": {"code": code, "message": "Plex: prefill missing"}}))
}

/// vLLM-Omni with a plug-in that refuses every append (mappings/notes/vllm-omni.md#from-031-on).
#[test]
fn server_that_refuses_every_append_is_reported_and_left() {
    for code in
        ["bad_audio", "bad_event", "invalid_input_modality", "runtime_append_failed", "event_too_large"]
    {
        let mut session = Session::open(("macaw", "conversation", "vllm-omni"), Vec::new(), unit_error(code));
        session.stream(&vec![0; 16 * 3_500]);
        let errors = session.events("error");
        let words = errors.first().map_or("", |error| error["message"].as_str().unwrap());
        assert!(words.contains("3 seconds of audio") && words.contains("prefill missing"), "{errors:?}");
        assert!(session.failures[0].contains("prefill missing"), "{code}: {:?}", session.failures);
        session.stream(&vec![0; 16 * 120_000]);
        let last = session.events("error").last().unwrap()["code"].clone();
        assert_eq!(last, "worker_unavailable", "{code}: it ends, {:?}", session.events("error"));
    }
}

#[test]
fn unit_whose_picture_is_refused_is_sent_again_without_it() {
    let usual = Reply::Message(json!({"type": "response.listen"}));
    let mut session = Session::open(("macaw", "video", "vllm-omni"), Vec::new(), usual);
    session.stream(&vec![0; 16 * 1_500]);
    for _ in 0..10 {
        session.replies = vec![unit_error("invalid_video_frames"); 1].into();
        session.send(&json!({"type": "video.frame", "image": PICTURE}));
        session.stream(&vec![0; 16 * 1_000]);
    }
    session.replies.clear();
    session.stream(&vec![0; 16 * 3_000]);
    assert_eq!((session.openings, session.failures.len()), (1, 0), "{:?}", session.events);
    assert!(session.events("error").iter().all(|error| error["code"] == "invalid_request"));
}

/// Whether the code is known or not, and ends the session or not.
#[test]
fn refused_opening_is_reported_at_once() {
    for dialect in ["vllm-omni", "sglang-omni", "minicpm-o-legacy"] {
        for code in ["some_new_code", "bad_event", "unknown_event", "invalid_request", "invalid_payload"] {
            let mut session = Session::open(("macaw", "conversation", dialect), Vec::new(), unit_error(code));
            session.refuses_opening =
                Some(json!({"type": "error", "error": {"code": code, "message": WORDS}}));
            // The legacy gateway assigns a worker first.
            session.stream(&vec![0; 16 * 1_000]);
            let told = session.events("error").first().map_or("", |error| error["message"].as_str().unwrap());
            assert!(told.contains(WORDS), "{dialect} {code}: {:?}", session.events("error"));
        }
    }
}

/// Failures of the server, and errors that concern another message, say nothing about the picture.
#[test]
fn only_a_refusal_of_its_unit_blames_a_picture() {
    for (code, is_blamed) in [
        ("invalid_video_frames", true),
        ("bad_audio", true),
        ("runtime_append_failed", false),
        ("runtime_signal_failed", false),
        ("internal_error", false),
    ] {
        let usual = Reply::Message(json!({"type": "response.listen"}));
        let mut session = Session::open(("macaw", "video", "vllm-omni"), Vec::new(), usual.clone());
        session.stream(&vec![0; 16 * 1_500]);
        session.send(&json!({"type": "video.frame", "image": PICTURE}));
        let shown = |unit: &Value| unit.get("video_frames").is_some();
        let error = json!({"code": code, "message": "words"});
        // The reply to the unit with the picture, which may not be the next one.
        while !session.asked.iter().any(shown) {
            session.replies = vec![Reply::Message(json!({"type": "error", "error": error}))].into();
            session.stream(&[0; 1600]);
        }
        session.replies.clear();
        let asked = session.asked.len();
        session.stream(&vec![0; 16 * 3_000]);
        let context = format!("{code}: {:?}", session.events("error"));
        let blamed = session
            .events("error")
            .iter()
            .any(|error| error["message"].as_str().unwrap().contains("refused a picture"));
        assert_eq!(blamed, is_blamed, "{context}");
        // Audio that a server took, or lost by its own failure, is not sent again.
        let audio_of = |unit: &Value| unit["audio"].as_str().unwrap().len();
        let later: usize = session.asked[asked..].iter().map(audio_of).sum();
        let a_second = 16_000 * 2 * 4 / 3;
        assert_eq!(later / a_second, if is_blamed { 4 } else { 3 }, "{context}");
        assert!(!session.asked[asked..].iter().any(shown), "{context}");
    }
}

fn speech(seconds: usize) -> String {
    STANDARD.encode(vec![1; 2 * 24_000 * seconds])
}

/// vLLM-Omni breaks answers off whose output waits (mappings/notes/vllm-omni.md#from-031-on), in either order of its
/// messages.
#[test]
fn answer_that_its_server_broke_off_ends_as_incomplete() {
    let done = |status: &str| {
        let response = json!({"id": "r", "status": status});
        json!({"type": "response.done", "response_id": "r", "response": response})
    };
    let error =
        json!({"type": "error", "error": {"code": "output_backpressure", "message": "pending output"}});
    let closed = json!({"type": "session.closed", "reason": "output_backpressure"});
    for (ending, is_cut) in [
        (vec![done("completed")], false),
        (vec![done("failed")], true),
        (vec![done("incomplete")], true),
        (vec![error.clone(), done("failed"), closed.clone()], true),
        (vec![done("failed"), error.clone(), closed.clone()], true),
        (vec![done("failed"), closed.clone()], true),
        (vec![closed.clone()], true),
    ] {
        let usual = Reply::Message(json!({"type": "response.listen"}));
        let mut session = Session::open(("macaw", "conversation", "vllm-omni"), Vec::new(), usual);
        session.stream(&vec![0; 16 * 1_500]);
        let words = ["One two three four, ", "five six seven eight."];
        for words in words {
            let lane = Lane(0);
            let (audio, text) = ("response.output_audio.delta", "response.output_audio_transcript.delta");
            session.say(lane, &json!({"type": audio, "response_id": "r", "delta": speech(1)}));
            session.say(lane, &json!({"type": text, "response_id": "r", "delta": words}));
        }
        ending.iter().for_each(|message| session.say(Lane(0), message));
        session.wait(4);
        let context = format!("{ending:?}: {:#?}", session.events);
        let ends = session.events("tts.speaking_end");
        assert_eq!(ends.len(), 1, "{context}");
        assert_has(ends[0], json!({"/cancelled": is_cut, "/audio_ms": 2000}));
        let finals = session.events("transcript.final");
        assert_eq!(finals[0]["text"], words.concat(), "{context}");
    }
}

/// Replies of a server, and whether each is its own fault.
fn any_reply() -> impl Strategy<Value = (Reply, bool)> {
    let refused = select(refusals()).prop_map(|(_, refusal)| (refusal, false));
    let failed = select(failures()).prop_map(|failure| (failure, true));
    prop_oneof![3 => Just((answered(), false)), 3 => refused, 1 => failed]
}

proptest! {
    #![proptest_config(properties::config())]

    /// Whatever a server refuses, the pool hears of its own failures only, and each request has an end.
    #[test]
    fn only_failures_of_a_server_count_against_it(
        dialect in select(&SERVERS[..]),
        replies in vec(any_reply(), 0..8),
        questions in vec(select(&QUESTIONS[..]), 1..6),
    ) {
        let scripted = replies.iter().map(|(reply, _)| reply.clone()).collect();
        let mut session = Session::open(("macaw", "speech", dialect), scripted, answered());
        for question in &questions {
            question(&mut session);
        }
        let asked = replies.iter().take(session.asked.len());
        let failed = asked.clone().filter(|(_, is_failure)| *is_failure).count();
        let refused = asked.filter(|(reply, is_failure)| !is_failure && matches!(reply, Reply::End(..))).count();
        prop_assert_eq!(session.failures.len(), failed, "{:#?}", session.failures);
        prop_assert_eq!(session.refusals.len(), refused, "{:#?}", session.refusals);
        let told = session.events("error").len();
        let ends = session.events("transcript.final").len() + session.events("tts.speaking_end").len() + told;
        prop_assert!(ends >= questions.len() && told >= refused, "{:#?}", session.events);
    }
}
