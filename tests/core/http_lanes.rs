//! Lanes of HTTP requests in virtual time: their traces replay, and a full server is named.

use voxbridge::vocabulary::HttpBody;

use super::*;

/// Status and messages of an answer.
type Answer = (u16, Vec<Value>);

/// A server of this dialect that answers each request of a Macaw client with these messages.
fn config(dialect: &'static str, answers: Vec<Answer>) -> HarnessConfig {
    let http = HttpScript { answers: Some(answers.into()), ..HttpScript::default() };
    HarnessConfig {
        upstream: dialect,
        http,
        record: Some(AudioRetention::Client),
        ..HarnessConfig::default()
    }
}

fn open(dialect: &'static str, answers: Vec<Answer>) -> Harness {
    Harness::new(config(dialect, answers))
}

fn speak(session: &mut Harness) {
    session.stream(&[&recording("goforward_16k.wav")[..], &zeros(600)].concat(), 100);
}

fn body(session: &Harness) -> Value {
    let HttpBody::Json(body) = &session.requests[0].body else { panic!("a form") };
    serde_json::from_str(body).unwrap()
}

fn delta(text: &str) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})
}

#[test]
fn utterance_is_a_request_and_its_record_is_held_back() {
    let answer = vec![delta("go forward"), delta(" ten\n|"), delta("|{\"wer\""), delta(": 0}")];
    let mut session = open("vllm-omni-http", vec![(200, answer)]);
    speak(&mut session);
    let paths: Vec<_> = session.requests.iter().map(|request| &request.path).collect();
    assert_eq!(paths, ["/chat/completions"]);
    let finals = session.events("transcript.final");
    assert_eq!(finals[0]["text"], "go forward ten");
    let partials = session.events("transcript.partial");
    assert!(partials.iter().all(|partial| !partial["text"].as_str().unwrap().contains('|')), "{partials:?}");
    assert_eq!(session.events("error").len(), 0);
}

#[test]
fn trace_of_requests_replays_identically() {
    let full = (503, vec![json!({"error": {"message": "Queue is full", "code": 503}})]);
    let mut session = open("vllm-omni-http", vec![full, (200, vec![delta("go forward")])]);
    speak(&mut session);
    assert_eq!(session.events("transcript.final")[0]["text"], "go forward");
    let text = session.trace();
    assert!(
        text.contains("\"out\":\"request\"") && text.contains("\"in\":\"answer\"") && !text.contains("UklGR")
    );
    let outcome = replay(&Trace::parse(text).unwrap(), Library::embedded().unwrap(), epoch()).unwrap();
    assert!(outcome.is_same(), "{outcome:?}");
}

/// A session that records this audio, of a server whose speech has this rate.
fn recorded(dialect: &'static str, record: AudioRetention, wav_rate_hz: Option<u32>) -> HarnessConfig {
    let http = HttpScript { wav_rate_hz, ..HttpScript::default() };
    HarnessConfig { upstream: dialect, http, record: Some(record), ..HarnessConfig::default() }
}

fn assert_replays(session: &Harness, what: &str) {
    let trace = Trace::parse(session.trace()).unwrap();
    let outcome = replay(&trace, Library::embedded().unwrap(), epoch()).unwrap();
    assert!(outcome.is_same(), "{what}: {outcome:#?}");
}

#[test]
fn traces_without_the_servers_audio_replay_identically() {
    for dialect in ["vllm-omni-http", "sglang-omni-http", "openai-audio"] {
        for wav_rate_hz in [None, Some(24_000), Some(48_000), Some(16_000)] {
            for record in [AudioRetention::None, AudioRetention::Client, AudioRetention::All] {
                let what = format!("{dialect}, {wav_rate_hz:?} Hz, {record:?}");
                let config = recorded(dialect, record, wav_rate_hz);
                let mut session = Harness::new(config);
                session
                    .send_json(&json!({"type": "tts.speak", "text": "Good morning.", "request_id": "one"}));
                session.advance(Duration::from_secs(5));
                assert!(!session.events("tts.speaking_end").is_empty(), "{what}");
                assert_replays(&session, &what);
                if dialect == "openai-audio" {
                    continue;
                }
                let config = recorded(dialect, record, wav_rate_hz);
                let config = HarnessConfig { client: "openai-realtime", profile: "assistant", ..config };
                let mut session = Harness::new(config);
                session.send_json(&json!({"type": "response.create"}));
                session.advance(Duration::from_secs(5));
                assert!(!session.events("response.output_audio.delta").is_empty(), "{what}");
                assert_replays(&session, &what);
            }
        }
    }
}

#[test]
fn full_server_is_asked_again_for_as_long_as_a_queue_may_last_and_named_as_full() {
    let full = || (503, vec![json!({"error": {"message": "Queue is full", "code": 503}})]);
    let mut session = open("vllm-omni-http", std::iter::repeat_with(full).take(200).collect());
    speak(&mut session);
    session.advance(Duration::from_secs(100));
    assert_eq!(session.events("error").len(), 0);
    session.advance(Duration::from_secs(140));
    let errors = session.events("error");
    let requests = session.requests.len();
    assert!(errors.len() == 1 && (10..100).contains(&requests), "{errors:?}, {requests} requests");
    let message = errors[0]["message"].as_str().unwrap();
    assert!(message.contains("HTTP 503 for /chat/completions: Queue is full"), "{message}");
    assert_eq!(errors[0]["code"], "service_unavailable");
}

/// A session of OpenAI's protocol that answers in turns, and asks for one answer in words.
fn ask(dialect: &'static str, session: &Value, answer: Vec<Value>) -> Harness {
    let config = config(dialect, vec![(200, answer)]);
    let mut client =
        Harness::new(HarnessConfig { client: "openai-realtime", profile: "assistant", ..config });
    for message in [
        json!({"type": "session.update", "session": session}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "How far is the moon?"}]}}),
        json!({"type": "response.create", "response": {"output_modalities": ["text"]}}),
    ] {
        client.send_json(&message);
    }
    client.advance(Duration::from_secs(1));
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
            assert_eq!(body(&client)["max_tokens"], 7);
            assert_eq!(body(&client)["temperature"], 0.25);
        }
        let client = ask(dialect, &json!({}), vec![delta("Very far")]);
        assert!(body(&client).get("temperature").is_none(), "{}", body(&client));
        assert!(client.events("response.done")[0]["response"]["usage"]["output_tokens"].as_u64() > Some(0));
    }
}

/// One utterance of a Macaw client that the server answers like this, and a second one that it transcribes.
fn transcribe_twice(answers: Vec<Answer>) -> Harness {
    let good = [(); 2].map(|()| (200, vec![delta("go forward")]));
    let mut session = open("vllm-omni-http", answers.into_iter().chain(good).collect());
    speak(&mut session);
    speak(&mut session);
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
        assert_has(errors[0], json!({"/code": "invalid_request", "/recoverable": true}));
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
        assert_eq!((client.requests.len(), client.events("error")), (1, Vec::new()));
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
fn with_others(answers: Vec<Answer>) -> Harness {
    let mut config = config("vllm-omni-http", answers);
    config.http.has_others = true;
    Harness::new(config)
}

#[test]
fn request_refused_for_the_configuration_moves_only_to_another_upstream() {
    for (others, requests) in [(1, 3), (2, 4), (5, 7)] {
        let refusal = (401, vec![json!({"detail": "no"})]);
        let good = [(); 2].map(|()| (200, vec![delta("go forward")]));
        let answers = vec![refusal; others].into_iter().chain(good).collect();
        let mut session = with_others(answers);
        speak(&mut session);
        speak(&mut session);
        assert_eq!((session.requests.len(), session.events("error").len()), (requests, 0));
        assert_eq!(session.events("transcript.final").len(), 2);
    }
    // The attempts are bounded even if another upstream is always there.
    let refusals = vec![(404, vec![json!({"detail": "no"})]); 100];
    let mut session = with_others(refusals);
    speak(&mut session);
    assert!(session.requests.len() < 20, "{}", session.requests.len());
    let message = session.events("error")[0]["message"].as_str().unwrap();
    assert!(message.contains("`token`, `model` and URL"), "{message}");
}
