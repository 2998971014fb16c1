//! Where the time until the first audio of an answer goes: sessions whose every stage is known.

use voxbridge::trace::first_audio::{SessionLatencies, Stage, measure};

use super::*;

/// A session of Macaw's client in this profile, whose trace has the user's audio. A model that judges ends of turns takes 150 ms.
fn config(profile: &'static str) -> HarnessConfig {
    let mut config = HarnessConfig {
        profile,
        record: Some(AudioRetention::Client),
        judge: Some(ScriptedJudge { takes: ms(150), verdict: Box::new(|_| Some(0.99)) }),
        ..HarnessConfig::default().workers(2)
    };
    config.add_profile("judged", "assistant", "[listen]\nturn_end = \"semantic\"");
    config.add_profile("eager", "judged", "[answer]\neager = true");
    config
}

fn latencies(harness: &Harness) -> SessionLatencies {
    let trace = Trace::parse(harness.trace()).unwrap();
    measure(&trace, Library::embedded().unwrap(), epoch()).unwrap()
}

/// The only answer or text of a session. Its audio begins when the client is told.
fn only_answer(harness: &Harness) -> FirstAudio {
    let SessionLatencies { answers, notes, .. } = latencies(harness);
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(notes, [""; 0]);
    let told = harness.log.iter().find(|(_, frame)| frame.name() == "tts.speaking_start");
    assert_eq!(Some(answer.at), told.map(|(at, _)| *at));
    answer.clone()
}

/// A session in which the user has asked a question of 3 s.
fn after_question(config: HarnessConfig) -> Harness {
    let mut harness = Harness::new(config);
    harness.stream(&voice(3000), 20);
    harness
}

/// The answer to such a question, with silence until it begins.
fn answer(mut harness: Harness) -> FirstAudio {
    while harness.events("tts.speaking_start").is_empty() {
        assert!(harness.now() < secs(30), "{:?}", harness.names());
        harness.stream(&zeros(20), 20);
    }
    only_answer(&harness)
}

/// The stages that took time, ms.
fn lengths(answer: &FirstAudio) -> Vec<(Stage, u128)> {
    let lengths = Stage::ALL.map(|stage| (stage, answer.stage(stage).as_millis()));
    lengths.into_iter().filter(|(_, ms)| *ms > 0).collect()
}

#[test]
fn stages_of_an_answer_are_the_waits_for_verdict_worker_and_model() {
    let far = HarnessConfig { latency: ms(30), ..config("judged") };
    let mut slow = config("judged");
    slow.simulator.timing.init = Duration::from_secs(5);
    for (config, expected) in [
        (config("judged"), vec![(Stage::Verdict, 250), (Stage::Model, 170)]),
        (config("assistant"), vec![(Stage::Verdict, 500), (Stage::Model, 170)]),
        (far, vec![(Stage::Verdict, 250), (Stage::Model, 230)]),
        (slow, vec![(Stage::Verdict, 250), (Stage::Init, 2210), (Stage::Model, 170)]),
        // The pause began shortly after a second of audio was sent.
        (config("conversation"), vec![(Stage::Upload, 980), (Stage::Model, 250)]),
    ] {
        let answer = answer(after_question(config));
        assert_eq!((answer.trigger, answer.server.as_str()), (Trigger::Speech, "minicpm-o"));
        assert_eq!((lengths(&answer), answer.frame), (expected, ms(20)));
    }
}

#[test]
fn question_waits_in_the_queue_until_another_client_leaves() {
    let mut harness = after_question(HarnessConfig { taken_workers: 2, ..config("judged") });
    harness.stream(&zeros(2000), 20);
    harness.release_workers();
    let answer = answer(harness);
    let expected = [(Stage::Verdict, 250), (Stage::Queue, 1750), (Stage::Init, 40), (Stage::Model, 170)];
    assert_eq!(lengths(&answer), expected);
    assert_eq!((answer.total().as_millis(), answer.beyond_model().as_millis()), (2210, 1790));
}

#[test]
fn model_that_was_asked_early_works_during_the_verdict() {
    let answer = answer(after_question(config("eager")));
    let (verdict, model) = (answer.stage(Stage::Verdict), answer.stage(Stage::Model));
    // It was asked 110 ms into the pause, and takes 170 ms.
    assert_eq!((verdict, answer.beyond_model()), (ms(250), Duration::ZERO));
    assert!((ms(10)..=ms(50)).contains(&model), "{model:?}");
}

#[test]
fn text_waits_for_its_session_and_the_model_and_needs_no_audio_in_the_trace() {
    let mut harness = Harness::new(HarnessConfig { record: Some(AudioRetention::None), ..config("speech") });
    harness.send_json(&json!({"type": "tts.speak", "text": "Good morning & welcome.", "request_id": "a"}));
    harness.next_event("tts.speaking_start");
    let SessionLatencies { answers, notes, profile } = latencies(&harness);
    assert_eq!((answers[0].trigger, profile.as_str()), (Trigger::Text, "speech"));
    assert_eq!(lengths(&answers[0]), [(Stage::Init, 40), (Stage::Model, 170)]);
    assert!(notes[0].contains("the user's audio is not in the trace"), "{notes:?}");
}

#[test]
fn relayed_session_has_no_stages_and_a_note() {
    let relay = HarnessConfig { profile: "relay", record: Some(AudioRetention::All), ..config("relay") };
    let mut harness = Harness::new_relay(relay, &["minicpm-o"]);
    harness.advance(secs(1));
    let SessionLatencies { answers, notes, .. } = latencies(&harness);
    assert!(answers.is_empty() && notes[0].contains("a relayed session"), "{notes:?}");
}
