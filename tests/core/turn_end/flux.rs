//! Deepgram Flux: turns with their likely ends, in the order that its state machine prescribes.

use super::*;

/// A client with these parameters. The judge takes 80 ms; without one, the fixed silence ends turns.
fn open(query: &str, judge: Option<ScriptedJudge>) -> Harness {
    let config = HarnessConfig::of("deepgram-flux", "speech", &format!("model=flux-general-en&{query}"));
    Harness::new(HarnessConfig { judge, ..config.workers(2) })
}

/// A judge that always gives this probability.
fn always(probability: f32) -> Option<ScriptedJudge> {
    Some(judge(80, move |_| Some(probability)))
}

fn turns(harness: &Harness) -> Vec<&Value> {
    harness.events("TurnInfo")
}

fn turn_names(harness: &Harness) -> Vec<&str> {
    turns(harness).into_iter().filter_map(|turn| turn["event"].as_str()).collect()
}

/// Names of the events without `Update`.
fn changes(harness: &Harness) -> Vec<&str> {
    turn_names(harness).into_iter().filter(|name| *name != "Update").collect()
}

fn turn<'h>(harness: &'h Harness, event: &str) -> &'h Value {
    turns(harness).into_iter().find(|turn| turn["event"] == event).unwrap_or_else(|| panic!("no {event}"))
}

/// Checks that the events are those of Flux's state machine, and that the numbers fit.
fn assert_state_machine(harness: &Harness) {
    let (mut state, mut turn, mut eager) = ("idle", 0, String::new());
    for event in turns(harness) {
        let name = event["event"].as_str().unwrap();
        let text = event["transcript"].as_str().unwrap();
        state = match (state, name) {
            ("idle", "StartOfTurn") => "speaking",
            ("speaking", "Update") => "speaking",
            ("speaking", "EagerEndOfTurn") if !text.is_empty() => {
                eager = text.to_owned();
                "awaiting"
            }
            ("awaiting", "TurnResumed") => "speaking",
            ("awaiting", "EndOfTurn") if text == eager => "idle",
            ("speaking", "EndOfTurn") => "idle",
            _ => panic!("{name} while {state}: {:?}", turn_names(harness)),
        };
        assert_eq!(event["turn_index"], turn, "{event}");
        turn += i32::from(name == "EndOfTurn");
        assert_eq!(event.get("trigger").is_some(), name == "EndOfTurn");
        let words: Vec<_> = event["words"].as_array().unwrap().iter().map(|it| &it["word"]).collect();
        assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
        assert!(event["audio_window_start"].as_f64() < event["audio_window_end"].as_f64(), "{event}");
    }
    for (number, (_, frame)) in harness.log.iter().enumerate() {
        if let ClientFrame::Event(event) = frame {
            assert_eq!(event["sequence_id"], number);
        }
    }
}

#[test]
fn finished_turn_is_one_start_updates_and_one_end_with_the_words() {
    let mut harness = open("", always(0.9));
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(2000), 20);
    assert_eq!(harness.events("Connected").len(), 1);
    assert_eq!(changes(&harness), ["StartOfTurn", "EndOfTurn"]);
    assert!(turn_names(&harness).contains(&"Update"));
    let end = turn(&harness, "EndOfTurn");
    assert!(end["transcript"].as_str().unwrap().starts_with("simulated transcript"), "{end}");
    assert_eq!((&end["trigger"], &end["end_of_turn_confidence"]), (&json!("model"), &json!(0.9)));
    assert_eq!(end["words"][0], json!({"word": "simulated", "confidence": 1.0}));
    assert_state_machine(&harness);
}

/// On a busy machine, a verdict takes longer than the fixed silence.
#[test]
fn sentence_with_a_pause_is_one_turn_although_the_verdict_is_slow() {
    let unfinished = |audio: &[i16]| Some(if audio.len() < 48_000 { 0.2 } else { 0.9 });
    for takes_ms in [150, 350, 600, 1_000] {
        let mut harness = open("eot_timeout_ms=2000", Some(judge(takes_ms, unfinished)));
        harness.stream(&voice(1500), 20);
        harness.stream(&zeros(1_300), 20);
        harness.stream(&voice(1500), 20);
        harness.stream(&zeros(3_000), 20);
        assert_eq!(changes(&harness), ["StartOfTurn", "EndOfTurn"], "{takes_ms} ms");
        assert_eq!(turn(&harness, "EndOfTurn")["trigger"], "model");
        assert_state_machine(&harness);
    }
}

#[test]
fn verdict_is_awaited_no_longer_than_the_clients_limit() {
    for limit_ms in [500, 1_500] {
        let mut harness = open(&format!("eot_timeout_ms={limit_ms}"), Some(judge(60_000, |_| Some(0.9))));
        harness.stream(&voice(1500), 20);
        let from = harness.now();
        harness.stream(&zeros(3_000), 20);
        let is_end =
            |frame: &ClientFrame| matches!(frame, ClientFrame::Event(it) if it["event"] == "EndOfTurn");
        let at = harness.log.iter().find(|(_, frame)| is_end(frame)).expect("the turn ends").0;
        let silence_ms = (at - from).as_millis() as u64;
        // The transcript of the turn takes some time.
        assert!((limit_ms - 100..limit_ms + 450).contains(&silence_ms), "{silence_ms} ms of {limit_ms} ms");
        assert_eq!(turn(&harness, "EndOfTurn")["trigger"], "timeout");
    }
}

#[test]
fn likely_end_is_reported_before_the_end_and_its_words_are_final_without_a_second_question() {
    let mut harness = open("eager_eot_threshold=0.5&eot_timeout_ms=1500", always(0.6));
    harness.stream(&voice(1500), 20);
    let from = harness.now();
    harness.stream(&zeros(2500), 20);
    assert_eq!(turn_names(&harness), ["StartOfTurn", "EagerEndOfTurn", "EndOfTurn"]);
    let at = |name: &str| {
        let is_it = |frame: &ClientFrame| matches!(frame, ClientFrame::Event(it) if it["event"] == name);
        (harness.log.iter().find(|(_, frame)| is_it(frame)).unwrap().0 - from).as_millis()
    };
    assert!(at("EagerEndOfTurn") < 700, "{} ms", at("EagerEndOfTurn"));
    assert!((1400..1700).contains(&at("EndOfTurn")), "{} ms", at("EndOfTurn"));
    assert_eq!(turn(&harness, "EagerEndOfTurn")["end_of_turn_confidence"], 0.6);
    assert_eq!(turn(&harness, "EndOfTurn")["trigger"], "timeout");
    assert_eq!(harness.question_audio.len(), 1);
    assert_state_machine(&harness);
}

#[test]
fn speech_after_a_likely_end_resumes_the_turn_and_is_part_of_its_words() {
    let mut harness = open(
        "eager_eot_threshold=0.4",
        Some(judge(80, |audio| Some(if audio.len() < 48_000 { 0.5 } else { 0.9 }))),
    );
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(1200), 20);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(2500), 20);
    assert_eq!(changes(&harness)[..3], ["StartOfTurn", "EagerEndOfTurn", "TurnResumed"]);
    assert_eq!(changes(&harness).last(), Some(&"EndOfTurn"));
    assert_eq!(turns(&harness).iter().filter(|turn| turn["event"] == "StartOfTurn").count(), 1);
    let whole = harness.question_audio.last().unwrap().len();
    assert!(whole > 16 * 4000, "the last question has the whole turn: {whole} samples");
    assert_state_machine(&harness);
}

#[test]
fn end_between_the_question_and_its_answer_takes_the_answer() {
    // The verdict comes at about 190 ms and ends the turn at 200 ms: the question is on its way.
    let mut harness = open("eager_eot_threshold=0.5", always(0.9));
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(2000), 20);
    assert_eq!(changes(&harness).last(), Some(&"EndOfTurn"));
    assert_eq!(harness.question_audio.len(), 1);
    assert_state_machine(&harness);
}

#[test]
fn without_a_judge_the_fixed_silence_ends_turns_and_each_pause_is_a_likely_end() {
    let mut harness = open("eager_eot_threshold=0.5", None);
    let is_note =
        |it: &&Observation| matches!(it, Observation::NoEffect(note) if note.contains("--turn-model"));
    assert_eq!(harness.observations.iter().filter(is_note).count(), 1);
    harness.stream(&voice(1500), 20);
    let from = harness.now();
    harness.stream(&zeros(1500), 20);
    let end = turn(&harness, "EndOfTurn");
    assert_eq!((&end["trigger"], &end["end_of_turn_confidence"]), (&json!("timeout"), &json!(1.0)));
    assert_eq!(harness.question_audio.len(), 1, "asked in the pause, and not again");
    let at = harness
        .log
        .iter()
        .find(|(_, frame)| matches!(frame, ClientFrame::Event(it) if it["event"] == "EndOfTurn"))
        .unwrap()
        .0;
    assert!(at - from < Duration::from_millis(900), "{:?}", at - from);
    assert_state_machine(&harness);
}

#[test]
fn threshold_of_1_leaves_the_end_to_the_client_and_to_the_timeout() {
    for judge in [always(0.99), None] {
        let mut harness = open("eot_threshold=1.0&eot_timeout_ms=3000", judge);
        harness.stream(&voice(1500), 20);
        harness.stream(&zeros(2500), 20);
        assert_eq!(turn_names(&harness), ["StartOfTurn"]);
        harness.send_json(&json!({"type": "ForceEndTurn"}));
        harness.run_until(|harness| changes(harness).len() == 2, Duration::from_secs(5)).unwrap();
        assert_eq!(turn(&harness, "EndOfTurn")["trigger"], "manual");
        harness.stream(&voice(1500), 20);
        harness.stream(&zeros(5000), 20);
        assert_eq!(turns(&harness).last().unwrap()["trigger"], "timeout");
        assert_state_machine(&harness);
    }
}

#[test]
fn force_end_turn_after_a_likely_end_has_its_words_and_without_a_turn_does_nothing() {
    let mut harness = open("eager_eot_threshold=0.4&eot_timeout_ms=10000", always(0.5));
    harness.send_json(&json!({"type": "ForceEndTurn"}));
    harness.stream(&zeros(500), 20);
    assert_eq!(harness.names(), ["Connected"]);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(1000), 20);
    assert_eq!(turn_names(&harness), ["StartOfTurn", "EagerEndOfTurn"]);
    harness.send_json(&json!({"type": "ForceEndTurn"}));
    assert_eq!(turn(&harness, "EndOfTurn")["trigger"], "manual");
    assert_state_machine(&harness);
}

#[test]
fn configure_changes_thresholds_and_keyterms_and_returns_those_in_force() {
    let mut harness = open("keyterm=Macaw&keyterm=Flux", always(0.75));
    harness.send_json(
        &json!({"type": "Configure", "thresholds": {"eot_threshold": 0.8, "eot_timeout_ms": 700}}),
    );
    let success = harness.events("ConfigureSuccess").pop().unwrap().clone();
    assert_eq!(success["thresholds"], json!({"eot_threshold": 0.8, "eot_timeout_ms": 700}));
    assert_eq!(success["keyterms"], json!(["Macaw", "Flux"]));
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(1500), 20);
    assert_eq!(turn(&harness, "EndOfTurn")["trigger"], "timeout");
    harness.send_json(&json!({"type": "Configure", "thresholds": {"eot_threshold": 0.7, "eager_eot_threshold": 0.3}, "keyterms": []}));
    let success = harness.events("ConfigureSuccess").pop().unwrap().clone();
    let thresholds = json!({"eot_threshold": 0.7, "eager_eot_threshold": 0.3, "eot_timeout_ms": 700});
    assert_eq!((&success["thresholds"], &success["keyterms"]), (&thresholds, &json!([])));
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(1500), 20);
    assert_eq!(turns(&harness).last().unwrap()["trigger"], "model");
    assert_state_machine(&harness);
}

#[test]
fn wrong_configure_fails_and_changes_nothing_and_the_session_goes_on() {
    let mut harness = open("", always(0.75));
    for wrong in [
        json!({"thresholds": {"eot_threshold": 0.4}}),
        json!({"thresholds": {"eot_threshold": 0.9, "eager_eot_threshold": 0.95}}),
        json!({"thresholds": {"eot_timeout_ms": 100}}),
        json!({"thresholds": {"eot_timeout_ms": "soon"}}),
        json!({"keyterms": 5}),
    ] {
        let mut message = wrong.clone();
        message["type"] = json!("Configure");
        harness.send_json(&message);
        let failure = harness.events("ConfigureFailure").pop().unwrap_or_else(|| panic!("{wrong}"));
        assert_eq!(failure["code"], "INVALID_CONFIGURATION");
    }
    assert_eq!(harness.events("ConfigureFailure").len(), 5);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(1500), 20);
    assert_eq!(turn(&harness, "EndOfTurn")["trigger"], "model");
    assert_state_machine(&harness);
}

#[test]
fn wrong_query_and_unknown_messages_are_fatal_errors() {
    for query in [
        "eot_threshold=0.3",
        "eot_threshold=x",
        "eager_eot_threshold=0.95",
        "eot_timeout_ms=100",
        "encoding=opus",
        "sample_rate=1",
    ] {
        let harness = open(query, None);
        assert_eq!(harness.events("Error")[0]["code"], "INVALID_PARAMETER", "{query}");
        assert_eq!(harness.names().last().map(String::as_str), Some("close 1008"), "{query}");
    }
    for message in ["{", "[]", "{}", r#"{"type": "Finalize"}"#] {
        let mut harness = open("", None);
        harness.send_text(message);
        assert_eq!(harness.events("Error")[0]["code"], "UNPARSABLE_CLIENT_MESSAGE", "{message}");
        assert_eq!(harness.names(), ["Connected", "Error", "close 1008"]);
    }
}

#[test]
fn failed_transcript_is_a_warning_and_the_turn_still_ends() {
    let mut config = HarnessConfig::with_faults(&["drop-mid-answer=0,times=9"]);
    config.client = "deepgram-flux";
    let mut harness = Harness::new(config);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(500), 20);
    harness.run_until(|harness| turn_names(harness).len() == 2, Duration::from_secs(120)).unwrap();
    assert_eq!(harness.events("Warning")[0]["code"], "TRANSCRIPTION_FAILED");
    assert_eq!(turn(&harness, "EndOfTurn")["transcript"], "");
    assert!(!harness.is_closed());
}

#[test]
fn close_stream_ends_the_turn_in_progress_and_then_the_session() {
    let mut harness = open("", always(0.1));
    harness.stream(&voice(1500), 20);
    harness.send_json(&json!({"type": "CloseStream"}));
    harness.run_until(|harness| harness.is_closed(), Duration::from_secs(30)).unwrap();
    assert_eq!(changes(&harness), ["StartOfTurn", "EndOfTurn"]);
    assert_eq!(harness.names().last().map(String::as_str), Some("close 1000"));
    assert_state_machine(&harness);
}

#[test]
fn session_with_likely_ends_is_replayed_identically() {
    use voxbridge::trace::{AudioRetention, Trace, replay::replay};
    let mut harness = Harness::new(HarnessConfig {
        judge: Some(judge(80, |audio| Some(if audio.len() < 48_000 { 0.5 } else { 0.9 }))),
        record: Some(AudioRetention::All),
        ..HarnessConfig::of("deepgram-flux", "speech", "eager_eot_threshold=0.4")
    });
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(900), 20);
    harness.stream(&voice(1500), 20);
    harness.send_json(&json!({"type": "CloseStream"}));
    harness.run_until(|harness| harness.finished, Duration::from_secs(60)).unwrap();
    assert!(turn_names(&harness).contains(&"TurnResumed"));
    let trace = Trace::parse(harness.trace()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "an instant has no other source; only differences count")]
    let outcome = replay(&trace, Library::embedded().unwrap(), Instant::now()).unwrap();
    assert!(outcome.is_same(), "{:?}", outcome.differences);
}
