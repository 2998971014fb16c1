//! OpenAI's Live protocol in front of a conversation, in virtual time.

use super::*;

fn config() -> HarnessConfig {
    HarnessConfig::of("openai-live", "conversation", "")
}

fn connect() -> Harness {
    Harness::new(config())
}

/// A client whose session has started.
fn started(config: HarnessConfig, session: &Value) -> Harness {
    let mut harness = Harness::new(config);
    harness.send_json(&json!({"type": "session.start", "session": session}));
    last(&mut harness, "session.started");
    harness
}

/// Says something, and hears the model's answer.
fn talk(harness: &mut Harness) {
    say(harness, &speech());
    (0..120).for_each(|_| say(harness, &[0; CHUNK_SAMPLES]));
}

/// Texts and times of all fragments of one kind of transcript.
fn fragments(harness: &Harness, kind: &str) -> Vec<(String, u64, u64)> {
    let of = |event: &&Value| {
        let ms = |key: &str| event[key].as_u64().unwrap();
        (event["delta"].as_str().unwrap().to_owned(), ms("start_ms"), ms("end_ms"))
    };
    harness.events(kind).iter().map(of).collect()
}

/// Codes of the notices so far.
fn notices(harness: &Harness) -> Vec<String> {
    harness.events("info").iter().map(|event| event["code"].as_str().unwrap().to_owned()).collect()
}

fn say(harness: &mut Harness, samples: &[i16]) {
    for chunk in samples.chunks(CHUNK_SAMPLES) {
        let audio = STANDARD.encode(bytes_of(chunk));
        harness.send_json(&json!({"type": "session.input_audio.append", "audio": audio}));
        harness.advance(Duration::from_millis(chunk.len() as u64 / 24));
    }
}

/// The newest event of this type. Answers come within a second.
fn last(harness: &mut Harness, kind: &str) -> Value {
    harness.advance(Duration::from_secs(1));
    (*harness.events(kind).last().expect(kind)).clone()
}

fn audio_s(harness: &Harness) -> f64 {
    let bytes = |event: &&Value| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap().len();
    harness.events("session.output_audio.delta").iter().map(bytes).sum::<usize>() as f64 / 48_000.0
}

#[test]
fn live_session_converses() {
    let mut harness = connect();
    assert!(harness.names().is_empty(), "nothing before session.start");
    harness.send_json(&json!({"type": "session.start", "event_id": "mine", "session": {
        "model": "gpt-live-1", "instructions": "Be brief.",
        "audio": {"format": {"type": "audio/pcm", "rate": 24000}, "output": {"voice": "marin"}}}}));
    let started = last(&mut harness, "session.started");
    assert_eq!(started["client_event_id"], "mine");
    assert_has(&started, json!({"/session/status": "active", "/session/model": "gpt-live-1"}));
    assert!(started["session"]["id"].is_string() && started["session"]["expires_at"].is_u64());
    say(&mut harness, &speech());
    for _ in 0..150 {
        say(&mut harness, &[0; CHUNK_SAMPLES]);
    }
    assert!(audio_s(&harness) > 0.5, "{} s", audio_s(&harness));
    let words = harness.events("session.output_transcript.delta");
    assert!(!words.is_empty() && words.iter().all(|it| it["start_ms"].is_u64() && it["end_ms"].is_u64()));
    harness.send_json(&json!({"type": "session.close"}));
    let closed = last(&mut harness, "session.closed");
    assert_has(&closed, json!({"/reason": "close_requested", "/session/id": started["session"]["id"]}));
    assert!(closed["usage"]["seconds"].as_f64().unwrap() > 15.0);
    let ids: Vec<String> = harness
        .log
        .iter()
        .filter_map(|(_, frame)| match frame {
            ClientFrame::Event(event) => event["event_id"].as_str().map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "ids are unique");
}

#[test]
fn muted_microphone_is_not_heard_and_bad_messages_are_errors() {
    let mut harness = Harness::new(config().workers(2));
    harness.send_json(&json!({"type": "session.input_audio.mute", "event_id": "early"}));
    let error = last(&mut harness, "error")["error"].clone();
    assert_eq!((&error["code"], &error["client_event_id"]), (&json!("invalid_value"), &json!("early")));
    harness.send_json(&json!({"type": "session.start", "session": {"audio": {"format": {"type": "opus"}}}}));
    assert_eq!(last(&mut harness, "error")["error"]["code"], "invalid_value");
    harness.send_json(&json!({"type": "session.start", "session": {}}));
    last(&mut harness, "session.started");
    harness.send_json(&json!({"type": "session.input_audio.mute"}));
    last(&mut harness, "session.input_audio.muted");
    talk(&mut harness);
    assert_eq!(audio_s(&harness), 0.0, "the model heard a muted microphone");
    assert!(harness.events("session.input_transcript.delta").is_empty());
    harness.send_json(&json!({"type": "session.input_audio.unmute"}));
    last(&mut harness, "session.input_audio.unmuted");
    talk(&mut harness);
    assert!(audio_s(&harness) > 0.5, "{} s", audio_s(&harness));
    // The muted audio has its time.
    let (_, start_ms, _) = fragments(&harness, "session.input_transcript.delta")[0];
    assert!(start_ms > 12_000, "{start_ms}");
}

#[test]
fn both_sides_of_two_turns_are_transcribed_at_their_times() {
    let config = config().workers(2);
    let mut harness = started(config, &json!({}));
    (0..2).for_each(|_| talk(&mut harness));
    assert!(harness.events("error").is_empty() && notices(&harness).is_empty());
    for kind in ["session.input_transcript.delta", "session.output_transcript.delta"] {
        let all = fragments(&harness, kind);
        assert!(all.iter().all(|(_, start, end)| start <= end), "{all:?}");
        // LiveKit begins another message after 800 ms without words, and needs the time of the second turn for that.
        let later = all.windows(2).position(|pair| pair[1].1 > pair[0].2 + 800).expect("a pause") + 1;
        let (first, second) = all.split_at(later);
        let text = |part: &[(String, u64, u64)]| part.iter().map(|it| it.0.as_str()).collect::<String>();
        assert!(!text(first).starts_with(' ') && text(second).starts_with(' '), "clients append: {all:?}");
        assert!(second.windows(2).all(|pair| pair[1].1 <= pair[0].2 + 800), "two turns: {all:?}");
        let span_ms = |part: &[(String, u64, u64)]| part.last().unwrap().2 - part[0].1;
        assert!([first, second].iter().all(|part| (400..8000).contains(&span_ms(part))), "{all:?}");
        if kind.contains("input") {
            assert!(text(first).starts_with("simulated transcript"), "{all:?}");
        }
    }
    let ids = harness.events("session.input_transcript.delta");
    assert!(ids.iter().all(|event| event["event_id"].is_string()));
}

#[test]
fn client_is_told_that_no_upstream_transcribes_and_what_has_no_effect() {
    let mut config = config();
    config.upstream = "sglang-omni";
    config.simulator.dialect = SimDialect::SglangOmni;
    let delegation = json!({"type": "responses", "responses": {"model": "gpt-5.6-luna"}});
    let session = json!({"instructions": "Be brief.", "delegation": delegation});
    let mut harness = started(config, &session);
    assert_eq!(notices(&harness), ["settings_without_effect", "input_transcripts_unavailable"]);
    let words = harness.events("info")[0]["message"].as_str().unwrap().to_owned();
    assert!(words.ends_with(": delegation, instructions."), "{words}");
    talk(&mut harness);
    assert!(harness.events("session.input_transcript.delta").is_empty());
    assert!(harness.events("error").is_empty());
}

#[test]
fn delegation_is_answered_although_the_model_delegates_nothing() {
    let mut harness = started(config(), &json!({}));
    let error = |harness: &mut Harness, command: Value| -> Value {
        harness.send_json(&command);
        last(harness, "error")["error"].clone()
    };
    let answer = error(&mut harness, json!({"type": "response.create", "event_id": "mine"}));
    assert_eq!(answer["message"], "response.create requires Responses delegation.");
    assert_has(&answer, json!({"/type": "invalid_request_error", "/client_event_id": "mine"}));
    let of_no_task = json!({"type": "session.thinking.append", "content": "done", "delegation_id": "item_1"});
    assert_eq!(error(&mut harness, of_no_task)["param"], "delegation_id");
    let without_text = json!({"type": "session.commentary.append", "delegation_id": null});
    assert_eq!(error(&mut harness, without_text)["param"], "content");
    let other = json!({"type": "session.update", "session": {"delegation": {"type": "responses"}}});
    assert_eq!(error(&mut harness, other)["param"], "session.delegation.type");
    let immutable = json!({"type": "session.update", "session": {"model": "other"}});
    assert_eq!(error(&mut harness, immutable)["code"], "unknown_parameter");
    harness.send_json(&json!({"type": "session.update", "event_id": "u",
        "session": {"delegation": {"type": "client", "acknowledgement_delay_ms": 50}}}));
    let updated = last(&mut harness, "session.updated");
    assert_eq!(updated["client_event_id"], "u");
    assert_eq!(updated["session"]["delegation"], json!({"type": "client", "acknowledgement_delay_ms": 50}));
    for _ in 0..2 {
        harness
            .send_json(&json!({"type": "session.commentary.append", "content": "go", "delegation_id": null}));
        let appended = last(&mut harness, "session.commentary.appended");
        assert_eq!(appended["start_ms"], appended["end_ms"]);
    }
    assert_eq!(notices(&harness), ["context_without_effect"]);
}

/// A session by WebRTC, whose audio is binary at 16 kHz.
fn call(session: &Value) -> Harness {
    let mut config = config().workers(2);
    let mut query = form_urlencoded::Serializer::new(String::new());
    let rates = [("call_rate_in", "16000"), ("call_rate_out", "16000")];
    query.append_pair("transport", "webrtc").extend_pairs(rates).append_pair("session", &session.to_string());
    config.query = query.finish();
    let mut harness = Harness::new(config);
    last(&mut harness, "session.started");
    harness
}

#[test]
fn idle_session_by_webrtc_is_paused_and_resumed_by_speech() {
    let silence = |harness: &mut Harness, seconds: u64| harness.stream(&zeros(1000 * seconds), 100);
    let question = recording("goforward_16k.wav");
    let mut harness = call(&json!({"idle_timeout_s": 5, "wake_policy": {"type": "speech"}}));
    assert!(notices(&harness).is_empty());
    harness.stream(&question, 100);
    silence(&mut harness, 8);
    let answered = harness.audio().len();
    assert!(answered > 8000, "{answered} samples");
    assert!(harness.events("session.paused").is_empty(), "the model spoke less than 5 s ago");
    silence(&mut harness, 12);
    assert_eq!(harness.events("session.paused").len(), 1);
    assert!(harness.lanes().is_empty(), "the worker is free: {:?}", harness.lanes());
    let heard = |harness: &Harness| harness.bridge().uplink_counts().unwrap().appended;
    let (dials, appended) = (harness.dial_count(), heard(&harness));
    silence(&mut harness, 20);
    assert_eq!((harness.dial_count(), heard(&harness)), (dials, appended), "no model hears the silence");
    assert!(harness.events("session.resumed").is_empty());
    harness.stream(&question, 100);
    silence(&mut harness, 8);
    assert_eq!(harness.events("session.resumed").len(), 1);
    assert!(harness.audio().len() > answered + 8000, "the model answers again");
    let words = fragments(&harness, "session.input_transcript.delta");
    let words: String = words.iter().map(|(text, ..)| text.as_str()).collect();
    assert_eq!(words.matches("simulated transcript").count(), 2, "{words}");
    silence(&mut harness, 12);
    assert_eq!(harness.events("session.paused").len(), 2);
    harness.send_json(&json!({"type": "session.close"}));
    assert_eq!(last(&mut harness, "session.closed")["reason"], "close_requested");
    assert!(harness.events("error").is_empty());
}

#[test]
fn call_discards_audio_that_was_not_played_when_the_user_interrupts() {
    let question = recording("goforward_16k.wav");
    let mut harness = call(&json!({}));
    harness.stream(&question, 100);
    let mut waited = 0;
    while harness.audio().is_empty() && waited < 100 {
        harness.stream(&zeros(100), 100);
        waited += 1;
    }
    let is_discard = |frame: &ClientFrame| matches!(frame, ClientFrame::Binary(bytes) if bytes.is_empty());
    let discards = |harness: &Harness| harness.log.iter().filter(|(_, frame)| is_discard(frame)).count();
    assert_eq!(discards(&harness), 0);
    harness.stream(&question, 100);
    assert_eq!(discards(&harness), 1);
}

#[test]
fn usage_is_reported_each_minute_and_at_the_end() {
    let mut harness = started(config(), &json!({}));
    (0..1250).for_each(|_| say(&mut harness, &[0; CHUNK_SAMPLES]));
    let seconds: Vec<u64> = harness
        .events("session.usage.updated")
        .iter()
        .map(|event| event["usage"]["seconds"].as_u64().unwrap())
        .collect();
    assert!(matches!(seconds[..], [60..=62, 120..=122]), "{seconds:?}");
    harness.send_json(&json!({"type": "session.close"}));
    let closed = last(&mut harness, "session.closed");
    assert!((125..=127).contains(&closed["usage"]["seconds"].as_u64().unwrap()), "{closed}");
}

#[test]
fn long_session_is_refused_before_it_becomes_a_tree() {
    let mut harness = connect();
    let elements = vec![r#"{"":0}"#; 100_000].join(",");
    harness.send_text(&format!(r#"{{"type":"session.start","session":{{"input":[{elements}]}}}}"#));
    let step = *harness.steps.last().unwrap();
    let peak = step.cost.bytes_max as usize;
    assert!(peak < 2 * elements.len(), "{peak} bytes to read {} bytes", elements.len());
    assert!(last(&mut harness, "error")["error"]["message"].as_str().unwrap().contains("65536"));
    harness.send_json(&json!({"type": "session.start", "session": {}}));
    last(&mut harness, "session.started");
}
