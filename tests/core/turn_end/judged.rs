//! Ends of turns that a model judges.

use super::*;

/// Silence that ends an utterance in this profile, and how it was decided.
fn silence_of(config: HarnessConfig) -> (u64, Vec<TurnDecision>) {
    let mut harness = Harness::new(config);
    harness.send_json(&json!({"type": "session.configure", "enable_partial_transcripts": false}));
    let silence = silence_before(&mut harness, "vad.speech_end", 5000).expect("the utterance ends");
    (silence, decisions(&harness))
}

#[test]
fn finished_turn_ends_after_200_ms_of_silence() {
    let (silence, decisions) = silence_of(config("judged-speech", Some(0.9)));
    assert_eq!(decisions, [TurnDecision::Finished]);
    let (fixed, _) = silence_of(config("speech", Some(0.9)));
    assert!((80..=130).contains(&(fixed - silence)), "{silence} ms instead of {fixed} ms");
}

#[test]
fn unfinished_turn_waits_longer_than_the_fixed_silence_and_ends_at_the_bound() {
    let (silence, decisions) = silence_of(config("judged-speech", Some(0.3)));
    assert_eq!(decisions, [TurnDecision::Unfinished]);
    assert!((1900..2600).contains(&silence), "{silence} ms");
}

#[test]
fn speech_after_an_unfinished_pause_stays_in_the_same_utterance() {
    let mut harness = Harness::new(config("judged-speech", Some(0.1)));
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(1200), 20);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(3500), 20);
    assert_eq!(harness.events("vad.speech_start").len(), 1);
    assert_eq!(harness.events("vad.speech_end").len(), 1);
    assert_eq!(harness.judged.len(), 2, "one question a pause");
    assert_eq!(decisions(&harness), [TurnDecision::Unfinished; 2]);
}

#[test]
fn verdict_is_awaited_up_to_the_longest_pause_and_a_busy_judge_leaves_the_fixed_silence() {
    let (fixed, _) = silence_of(config("speech", None));
    assert_eq!(silence_of(config("judged-speech", None)), (fixed, vec![TurnDecision::Refused]));
    for (takes_ms, probability, decision, silence_ms) in [
        (50, 0.9, TurnDecision::Finished, 200),
        (90, 0.9, TurnDecision::Finished, 200),
        (150, 0.9, TurnDecision::Finished, 150 + 110),
        (250, 0.9, TurnDecision::Finished, 250 + 110),
        (400, 0.9, TurnDecision::Finished, 400 + 110),
        (600, 0.9, TurnDecision::Finished, 600 + 110),
        (1_700, 0.9, TurnDecision::Finished, 1_700 + 110),
        (600, 0.1, TurnDecision::Unfinished, 2_000),
        (2_500, 0.9, TurnDecision::Late, 2_000),
    ] {
        let mut slow = config("judged-speech", None);
        slow.judge = Some(judge(takes_ms, move |_| Some(probability)));
        let (silence, decisions) = silence_of(slow);
        assert_eq!(decisions, [decision], "{takes_ms} ms");
        // Some of the silence belongs to the last word, and the transcript takes some time.
        let late = silence.abs_diff(silence_ms + fixed - 300);
        assert!(late <= 120, "{takes_ms} ms: {silence} ms instead of {silence_ms} ms, fixed {fixed} ms");
    }
}

#[test]
fn slow_refusal_ends_a_pause_that_has_lasted_longer_than_the_fixed_silence() {
    let mut slow = config("judged-speech", None);
    slow.judge = Some(judge(600, |_| None));
    let (silence, decisions) = silence_of(slow);
    assert_eq!(decisions, [TurnDecision::Refused]);
    assert!((700..1_150).contains(&silence), "{silence} ms with the transcript");
}

#[test]
fn verdict_between_200_ms_and_the_fixed_silence_ends_the_turn_at_once() {
    let mut late = config("judged-slow", None);
    late.judge = Some(judge(150, |_| Some(0.9)));
    let (silence, decisions) = silence_of(late);
    assert_eq!(decisions, [TurnDecision::Finished]);
    // The fast verdict is there before 200 ms, and this one after 110 and 150 ms. Both transcripts take equally long.
    let (fast, _) = silence_of(config("judged-slow", Some(0.9)));
    assert!((30..=120).contains(&(silence - fast)), "{silence} ms instead of {fast} ms");
}

/// A pause of 140 ms is long enough to ask, and over before the verdict.
#[test]
fn speech_that_goes_on_makes_the_verdict_void() {
    let mut config = config("judged-speech", None);
    config.judge = Some(judge(150, |_| Some(0.99)));
    let mut harness = Harness::new(config);
    let tone = voice(6000);
    harness.stream(&tone[..16 * 1500], 20);
    for _ in 0..12 {
        if !harness.judged.is_empty() {
            break;
        }
        harness.stream(&zeros(20), 20);
    }
    harness.stream(&tone[16 * 1500..16 * 4000], 20);
    assert_eq!(harness.events("vad.speech_end").len(), 0);
    assert_eq!(decisions(&harness)[0], TurnDecision::Void);
}

#[test]
fn judge_hears_at_most_8_s() {
    let mut harness = Harness::new(config("judged-speech", Some(0.9)));
    harness.stream(&voice(12_000), 20);
    harness.stream(&zeros(400), 20);
    assert_eq!(harness.judged.iter().max(), Some(&128_000), "{:?}", harness.judged);
}

/// A session of OpenAI's client; `None` for no judge.
fn openai_session(judge: Option<ScriptedJudge>) -> Harness {
    Harness::new(HarnessConfig {
        client: "openai-realtime",
        query: "model=gpt-realtime".to_owned(),
        judge,
        ..config("assistant", None)
    })
}

fn set_detection(harness: &mut Harness, detection: &Value) {
    harness.send_json(&json!({"type": "session.update", "session": {
        "type": "realtime",
        "output_modalities": ["text"],
        "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}, "turn_detection": detection}},
    }}));
}

/// When the end of speech was reported to the client, ms.
fn stopped_at(harness: &Harness) -> Option<u64> {
    let is_stop = |(_, frame): &&(Duration, ClientFrame)| frame.name() == "input_audio_buffer.speech_stopped";
    harness.log.iter().find(is_stop).map(|(at, _)| at.as_millis() as u64)
}

/// Sets the turn detection of OpenAI's client, then sends speech. Returns the silence before the end of the utterance.
fn openai(judge_probability: Option<Option<f32>>, detection: &Value) -> (u64, Harness) {
    let mut harness = openai_session(judge_probability.map(|it| judge(80, move |_| it)));
    set_detection(&mut harness, detection);
    say(&mut harness, &voice(1500));
    let from = harness.now().as_millis() as u64;
    say(&mut harness, &zeros(6000));
    (stopped_at(&harness).expect("the utterance ends") - from, harness)
}

#[test]
fn turn_detection_that_changes_in_a_pause_ends_that_pause() {
    let mut harness = openai_session(Some(judge(80, |_| Some(0.1))));
    set_detection(&mut harness, &json!({"type": "semantic_vad", "eagerness": "low"}));
    say(&mut harness, &voice(1500));
    say(&mut harness, &zeros(1000));
    assert_eq!((decisions(&harness), stopped_at(&harness)), (vec![TurnDecision::Unfinished], None));
    set_detection(&mut harness, &json!({"type": "server_vad", "silence_duration_ms": 300}));
    let from = harness.now().as_millis() as u64;
    say(&mut harness, &zeros(100));
    assert!(stopped_at(&harness).is_some_and(|at| at <= from + 60), "{:?}", stopped_at(&harness));
}

#[test]
fn verdict_on_a_pause_is_void_once_the_utterance_or_its_detection_is_gone() {
    let clear = json!({"type": "input_audio_buffer.clear"});
    let manual = json!({"type": "session.update", "session": {
        "type": "realtime", "audio": {"input": {"turn_detection": null}},
    }});
    let fixed = json!({"type": "session.update", "session": {
        "type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad"}}},
    }});
    for command in [clear, manual, fixed] {
        let mut harness = openai_session(Some(judge(900, |_| Some(0.99))));
        set_detection(&mut harness, &json!({"type": "semantic_vad"}));
        say(&mut harness, &voice(1500));
        say(&mut harness, &zeros(200));
        assert_eq!((harness.judged.len(), decisions(&harness)), (1, vec![]));
        harness.send_json(&command);
        assert_eq!(decisions(&harness), [TurnDecision::Void], "{command}");
        say(&mut harness, &zeros(2000));
        assert_eq!(decisions(&harness), [TurnDecision::Void], "{command}");
    }
}

#[test]
fn verdict_on_an_utterance_whose_audio_stops_arriving_is_void() {
    let mut config = config("judged-speech", None);
    config.judge = Some(judge(60_000, |_| Some(0.99)));
    let mut harness = Harness::new(config);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(200), 20);
    assert_eq!((harness.judged.len(), decisions(&harness)), (1, vec![]));
    harness.next_event("vad.speech_end");
    assert_eq!(decisions(&harness), [TurnDecision::Void]);
}

#[test]
fn openais_semantic_vad_is_judged_and_eagerness_sets_threshold_and_bound() {
    for (eagerness, threshold, waits_ms) in [
        ("low", 0.95, [2000, 4000]),
        ("medium", 0.9, [1100, 2000]),
        ("auto", 0.9, [1100, 2000]),
        ("high", 0.8, [700, 1000]),
    ] {
        let detection = json!({"type": "semantic_vad", "eagerness": eagerness});
        let (silence, harness) = openai(Some(Some(threshold)), &detection);
        assert!(silence < 350, "{eagerness}: {silence} ms: {:?}", decisions(&harness));
        for (probability, wait_ms) in [threshold - 0.01, 0.49].into_iter().zip(waits_ms) {
            let (silence, harness) = openai(Some(Some(probability)), &detection);
            assert!((wait_ms - 100..wait_ms + 150).contains(&silence), "{eagerness}: {silence} ms");
            assert_eq!(decisions(&harness), [TurnDecision::Unfinished]);
        }
    }
}

#[test]
fn semantic_vad_without_a_judge_is_a_fixed_silence_and_the_log_says_so() {
    let (silence, harness) = openai(None, &json!({"type": "semantic_vad"}));
    assert!((650..850).contains(&silence), "{silence} ms");
    let is_note = |observation: &&Observation| matches!(observation, Observation::NoEffect(note) if note.contains("--turn-model"));
    assert_eq!(harness.observations.iter().filter(is_note).count(), 1);
}

#[test]
fn full_duplex_is_not_judged_and_the_log_says_so() {
    let mut harness = Harness::new(config("judged-conversation", Some(0.1)));
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(900), 20);
    assert_eq!((harness.judged.len(), decisions(&harness)), (0, vec![]));
    let is_note = |observation: &&Observation| matches!(observation, Observation::NoEffect(note) if note.contains("turn detection by meaning does nothing"));
    assert_eq!(harness.observations.iter().filter(is_note).count(), 1);
}

#[test]
fn server_vad_is_a_fixed_silence_although_there_is_a_judge() {
    let (silence, harness) = openai(Some(Some(0.99)), &json!({"type": "server_vad"}));
    assert!((450..650).contains(&silence), "{silence} ms");
    assert_eq!((decisions(&harness), harness.judged.len()), (vec![], 0));
}

#[test]
fn session_with_verdicts_is_replayed_identically() {
    let mut config = config("judged-eager", Some(0.1));
    config.record = Some(AudioRetention::All);
    config.judge = Some(judge(80, |audio| Some(if audio.len() < 40_000 { 0.1 } else { 0.9 })));
    let mut harness = Harness::new(config);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(700), 20);
    harness.stream(&voice(1500), 20);
    harness.stream(&zeros(700), 20);
    harness.next_event("tts.speaking_end");
    harness.send_json(&json!({"type": "session.close"}));
    harness.run_until(|harness| harness.finished, Duration::from_secs(60));
    assert_eq!(decisions(&harness), [TurnDecision::Unfinished, TurnDecision::Finished]);
    let trace = Trace::parse(harness.trace()).unwrap();
    let outcome = replay(&trace, Library::embedded().unwrap(), epoch()).unwrap();
    assert!(outcome.is_same(), "{:?}", outcome.differences);
}

#[expect(clippy::disallowed_methods, reason = "an instant has no other source; only differences count")]
fn epoch() -> Instant {
    Instant::now()
}
