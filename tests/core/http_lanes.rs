//! Lanes of HTTP requests in virtual time: their traces replay, and a full server is named.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use voxbridge::{
    bridge::{Bridge, Input, Output},
    downstream::{Codec, ConnectQuery},
    event::{AnswerPart, Frame, HttpBody, Lane, Message},
    mapping::Library,
    session::SessionSetup,
    trace::{AudioRetention, Trace, TraceBuffer, TraceHeader, header::SessionParts, replay::replay},
};

use crate::harness::{bytes_of, recording, zeros};

#[expect(clippy::disallowed_methods, reason = "an instant has no other source; only differences count")]
fn epoch() -> Instant {
    Instant::now()
}

/// A session, and a server that answers each request with these messages.
struct Session {
    bridge: Bridge,
    now: Instant,
    trace: TraceBuffer,
    /// Answers to come: status and messages.
    answers: VecDeque<(u16, Vec<Value>)>,
    /// Another upstream may serve each lane's requests.
    has_others: bool,
    /// Lanes that are dialled, and lanes with a request.
    dialled: Vec<Lane>,
    asked: Vec<Lane>,
    /// Paths of the requests, and their bodies.
    requests: Vec<String>,
    bodies: Vec<Value>,
    events: Vec<Value>,
}

impl Session {
    fn open(dialect: &str, answers: Vec<(u16, Vec<Value>)>) -> Self {
        Self::of("macaw", "speech", dialect, answers)
    }

    fn of(client: &str, profile: &str, dialect: &str, answers: Vec<(u16, Vec<Value>)>) -> Self {
        let library = Library::embedded().unwrap();
        let (client, dialect) = (library.client(client).unwrap(), library.upstream(dialect).unwrap());
        let setup = SessionSetup::new(&client, library.profile(profile).unwrap(), &dialect.clone().into(), 1);
        let (now, opened_unix) = (epoch(), Duration::ZERO);
        let parts = SessionParts {
            library: &library,
            client: &client,
            dialects: &dialect.clone().into(),
            query: "",
            opened_unix,
        };
        let trace = TraceBuffer::new(now, TraceHeader::new(parts, &setup), AudioRetention::Client);
        let bridge = Bridge::open(now, Codec::new(client, 0.0), ConnectQuery::default(), dialect, setup);
        Self {
            bridge,
            now,
            trace,
            answers: answers.into(),
            has_others: false,
            dialled: Vec::new(),
            asked: Vec::new(),
            requests: Vec::new(),
            bodies: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Handles an input, and then what the server answers.
    fn input(&mut self, input: Input<'_>) {
        self.handle(input);
        while let Some(lane) = self.dialled.pop() {
            if self.has_others {
                self.handle(Input::LaneReplaceable(lane));
            }
            self.handle(Input::LaneOpened(lane));
        }
        while let Some(lane) = self.asked.pop() {
            let (status, messages) = self.answers.pop_front().unwrap();
            let head = AnswerPart::Head { status, content_type: "text/event-stream".to_owned() };
            self.handle(Input::Answer(lane, head));
            for message in messages {
                self.handle(Input::Lane(lane, Frame::Text(&message.to_string())));
            }
            self.handle(Input::Answer(lane, AnswerPart::End));
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.trace.record_input(self.now, &input);
        self.bridge.handle_input(self.now, input);
        loop {
            let output = self.bridge.poll_output(self.now);
            self.trace.record_output(self.now, &output);
            match output {
                Output::Wait(_) | Output::Finished => return,
                Output::ToClient(Message::Text(text), _) => {
                    self.events.push(serde_json::from_str(&text).unwrap());
                }
                Output::OpenLane(lane, ..) => self.dialled.push(lane),
                Output::Request(lane, request) => {
                    let HttpBody::Json(body) = &request.body else { panic!("a form") };
                    self.bodies.push(serde_json::from_str(body).unwrap());
                    self.requests.push(request.path);
                    self.asked.push(lane);
                }
                Output::ToLane(lane, message) => panic!("{lane:?} has no WebSocket: {message:?}"),
                _ => {}
            }
        }
    }

    fn speak(&mut self) {
        let samples = [&recording("goforward_16k.wav")[..], &zeros(600)].concat();
        for frame in samples.chunks(1600) {
            self.input(Input::Client(Frame::Binary(&bytes_of(frame))));
            self.now += Duration::from_millis(100);
            self.input(Input::Timeout);
        }
    }

    fn wait(&mut self, seconds: u32) {
        for _ in 0..10 * seconds {
            self.now += Duration::from_millis(100);
            self.input(Input::Timeout);
        }
    }

    fn events(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }
}

fn delta(text: &str) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})
}

#[test]
fn utterance_is_a_request_and_its_record_is_held_back() {
    let answer = vec![delta("go forward"), delta(" ten\n|"), delta("|{\"wer\""), delta(": 0}")];
    let mut session = Session::open("vllm-omni-http", vec![(200, answer)]);
    session.speak();
    assert_eq!(session.requests, ["/chat/completions"]);
    let finals = session.events("transcript.final");
    assert_eq!(finals[0]["text"], "go forward ten");
    let partials = session.events("transcript.partial");
    assert!(partials.iter().all(|partial| !partial["text"].as_str().unwrap().contains('|')), "{partials:?}");
    assert_eq!(session.events("error").len(), 0);
}

#[test]
fn trace_of_requests_replays_identically() {
    let full = (503, vec![json!({"error": {"message": "Queue is full", "code": 503}})]);
    let mut session = Session::open("vllm-omni-http", vec![full, (200, vec![delta("go forward")])]);
    session.speak();
    assert_eq!(session.events("transcript.final")[0]["text"], "go forward");
    let text = &session.trace.text;
    assert!(
        text.contains("\"out\":\"request\"") && text.contains("\"in\":\"answer\"") && !text.contains("UklGR")
    );
    let outcome = replay(&Trace::parse(text).unwrap(), Library::embedded().unwrap(), epoch()).unwrap();
    assert!(outcome.is_same(), "{outcome:?}");
}

#[test]
fn full_server_is_asked_again_for_as_long_as_a_queue_may_last_and_named_as_full() {
    let full = || (503, vec![json!({"error": {"message": "Queue is full", "code": 503}})]);
    let mut session = Session::open("vllm-omni-http", std::iter::repeat_with(full).take(200).collect());
    session.speak();
    session.wait(100);
    assert_eq!(session.events("error").len(), 0);
    session.wait(140);
    let errors = session.events("error");
    let requests = session.requests.len();
    assert!(errors.len() == 1 && (10..100).contains(&requests), "{errors:?}, {requests} requests");
    let message = errors[0]["message"].as_str().unwrap();
    assert!(message.contains("HTTP 503 for /chat/completions: Queue is full"), "{message}");
    assert_eq!(errors[0]["code"], "service_unavailable");
}

/// A session of OpenAI's protocol that answers in turns, and asks for one answer in words.
fn ask(dialect: &str, session: &Value, answer: Vec<Value>) -> Session {
    let mut client = Session::of("openai-realtime", "assistant", dialect, vec![(200, answer)]);
    for message in [
        json!({"type": "session.update", "session": session}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "How far is the moon?"}]}}),
        json!({"type": "response.create", "response": {"output_modalities": ["text"]}}),
    ] {
        client.input(Input::Client(Frame::Text(&message.to_string())));
    }
    client.wait(1);
    client
}

#[test]
fn server_counts_tokens_and_says_that_an_answer_reached_its_bound() {
    for dialect in ["vllm-omni-http", "sglang-omni-http"] {
        for (reason, status) in [("length", "incomplete"), ("stop", "completed")] {
            let mut end = delta("");
            end["choices"][0]["finish_reason"] = reason.into();
            let usage = json!({"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 34,
                "completion_tokens": 7, "total_tokens": 41, "prompt_tokens_details": {"cached_tokens": 16}}});
            let session = json!({"max_output_tokens": 7, "temperature": 0.25});
            let client = ask(dialect, &session, vec![delta("Very far"), end, usage]);
            let done = &client.events("response.done")[0]["response"];
            assert_eq!(done["status"], status, "{done}");
            let details = json!({"type": "incomplete", "reason": "max_output_tokens"});
            assert_eq!(done["status_details"], if reason == "length" { details } else { Value::Null });
            let usage = &done["usage"];
            assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(34), &json!(7)), "{usage}");
            assert_eq!(usage["input_token_details"]["cached_tokens"], 16);
            assert_eq!(client.bodies[0]["max_tokens"], 7);
            assert_eq!(client.bodies[0]["temperature"], 0.25);
        }
        let client = ask(dialect, &json!({}), vec![delta("Very far")]);
        assert!(client.bodies[0].get("temperature").is_none(), "{}", client.bodies[0]);
        assert!(
            client.events("response.done")[0]["response"]["usage"]["output_tokens"].as_u64().unwrap() > 0
        );
    }
}

/// One utterance of a Macaw client that the server answers like this, and a second one that it transcribes.
fn transcribe_twice(answers: Vec<(u16, Vec<Value>)>) -> Session {
    let good = [(); 2].map(|()| (200, vec![delta("go forward")]));
    let mut session = Session::open("vllm-omni-http", answers.into_iter().chain(good).collect());
    session.speak();
    session.speak();
    session
}

#[test]
fn refused_request_is_sent_once_and_reported_as_the_clients_error() {
    let words = "Audio file might be corrupted or unsupported";
    let openai =
        json!({"error": {"message": words, "type": "invalid_request_error", "code": "invalid_value"}});
    let vllm = json!({"object": "error", "message": words, "type": "BadRequestError", "code": 400});
    let fastapi = json!({"detail": [{"loc": ["body", "file"], "msg": words, "type": "value_error"}]});
    let coded = json!({"error": {"message": words, "type": "BadRequestError", "param": null, "code": 400}});
    let bodies = [openai.clone(), vllm, fastapi].map(|body| vec![body]);
    let statuses = [400, 406, 409, 410, 411, 413, 414, 415, 416, 422, 424, 431, 451];
    let refusals = statuses.into_iter().flat_map(|status| bodies.clone().map(|body| (status, body)));
    // A stream that has begun.
    let streamed = [(200, vec![coded]), (200, vec![openai.clone()]), (200, vec![delta("go"), openai])];
    for refusal in refusals.chain(streamed) {
        let session = transcribe_twice(vec![refusal.clone()]);
        let errors = session.events("error");
        assert_eq!((session.requests.len(), errors.len()), (2, 1), "{refusal:?}: {errors:?}");
        assert_eq!(
            (&errors[0]["code"], &errors[0]["recoverable"]),
            (&json!("invalid_request"), &json!(true))
        );
        assert!(errors[0]["message"].as_str().unwrap().contains(words), "{refusal:?}: {errors:?}");
        assert_eq!(session.events("transcript.final").len(), 1, "{refusal:?}");
    }
}

#[test]
fn request_refused_for_the_configuration_is_sent_once_and_reported_as_the_servers_error() {
    for status in [301, 307, 401, 402, 403, 404, 405, 407] {
        let words = "The model `x` does not exist.";
        let session = transcribe_twice(vec![(status, vec![json!({"error": {"message": words}})])]);
        let errors = session.events("error");
        assert_eq!((session.requests.len(), errors.len()), (2, 1), "{status}: {errors:?}");
        assert_eq!(errors[0]["code"], "worker_crash", "{status}: it is not the client's mistake");
        let message = errors[0]["message"].as_str().unwrap();
        assert!(message.contains(words) && message.contains("`token`, `model` and URL"), "{message}");
    }
}

#[test]
fn failed_request_is_asked_again() {
    let failed = |status| (status, vec![json!({"error": {"message": "words", "code": null}})]);
    let overflow = json!({"error": {"message": "words", "type": "InternalServerError", "code": 500}});
    for failure in [failed(408), failed(425), failed(500), failed(502), failed(504), (200, vec![overflow])] {
        let session = transcribe_twice(vec![failure.clone()]);
        assert_eq!((session.requests.len(), session.events("error").len()), (3, 0), "{failure:?}");
        let session = transcribe_twice(vec![failure.clone(), failure.clone()]);
        assert_eq!(session.events("error")[0]["code"], "worker_crash", "{failure:?}");
    }
}

#[test]
fn text_without_an_end_is_cut_and_incomplete() {
    let endless = || (0..70).map(|_| delta(&"word ".repeat(200))).collect::<Vec<_>>();
    for dialect in ["vllm-omni-http", "sglang-omni-http"] {
        let client = ask(dialect, &json!({}), endless());
        let done = &client.events("response.done")[0]["response"];
        assert_eq!(done["status"], "incomplete", "{done}");
        let text = done["output"][0]["content"][0]["text"].as_str().unwrap();
        assert!((64_900..66_000).contains(&text.len()), "{} characters", text.len());
        assert_eq!(
            (client.requests.len(), client.events("error").len()),
            (1, 0),
            "{:?}",
            client.events("error")
        );
        // An answer that ends within the bound is whole.
        let client = ask(dialect, &json!({}), endless()[..60].to_vec());
        assert_eq!(client.events("response.done")[0]["response"]["status"], "completed");
    }
    // A transcript has no such length.
    let session = transcribe_twice(vec![(200, endless())]);
    let errors = session.events("error");
    assert!(errors.len() == 1, "{errors:?}");
    assert!(errors[0]["message"].as_str().unwrap().contains("more than 65536 bytes"), "{errors:?}");
    assert_eq!(session.events("transcript.final").len(), 1, "the next utterance is transcribed");
}

/// The driver says that another upstream may serve a lane's requests.
#[test]
fn request_refused_for_the_configuration_moves_only_to_another_upstream() {
    for (others, requests) in [(1, 3), (2, 4), (5, 7)] {
        let refusal = (401, vec![json!({"detail": "no"})]);
        let good = [(); 2].map(|()| (200, vec![delta("go forward")]));
        let answers = vec![refusal; others].into_iter().chain(good).collect();
        let mut session = Session::open("vllm-omni-http", answers);
        session.has_others = true;
        session.speak();
        session.speak();
        assert_eq!((session.requests.len(), session.events("error").len()), (requests, 0));
        assert_eq!(session.events("transcript.final").len(), 2);
    }
    // The attempts are bounded even if another upstream is always there.
    let refusals = vec![(404, vec![json!({"detail": "no"})]); 100];
    let mut session = Session::open("vllm-omni-http", refusals);
    session.has_others = true;
    session.speak();
    assert!(session.requests.len() < 20, "{}", session.requests.len());
    let message = session.events("error")[0]["message"].as_str().unwrap();
    assert!(message.contains("`token`, `model` and URL"), "{message}");
}
