//! Barge-in with models that react wrongly and users who only seem to speak.

use super::{
    harness::{Harness, HarnessConfig},
    *,
};

pub(crate) const BACKENDS: [ServerKind; 5] = ServerKind::ALL;

/// A conversation on a gateway with these faults.
fn open_conversation(backend: ServerKind, faults: &[&str]) -> (Harness, Microphone) {
    let mut config =
        HarnessConfig { profile: "conversation", latency: ms(10), ..HarnessConfig::with_faults(faults) };
    backend.configure(&mut config);
    config.simulator.turn_units = 5;
    config.simulator.force_listen_count = 1;
    (Harness::new(config), Microphone::of_ms(20))
}

/// Asks a question and waits for the beginning of its answer.
pub(crate) fn ask_and_await_answer(harness: &mut Harness, microphone: &mut Microphone) {
    let started = harness.events("tts.speaking_start").len();
    microphone.silence(harness, 1200);
    ask(harness, microphone, 2);
    let has_begun = microphone.stream_until(
        harness,
        |harness| harness.events("tts.speaking_start").len() > started,
        15_000,
    );
    assert!(has_begun, "no answer: {:?}", harness.names());
}

/// The user speaks until the current turn has ended.
fn barge_in(harness: &mut Harness, microphone: &mut Microphone) {
    let ended = harness.events("tts.speaking_end").len();
    let voice = &voices()[2];
    microphone.record(harness, &voice.samples[voice.onset..voice.onset + 14_000]);
    assert_eq!(harness.events("tts.speaking_end").len(), ended + 1, "{:?}", harness.names());
    assert!(spoken_texts(harness).pop().unwrap().is_cancelled());
}

/// Checks that a model's turn was played completely, from first to last sample.
pub(crate) fn assert_complete_turn(spoken: &SpokenText, turn: u64, units: usize) {
    assert_eq!((spoken.model_turn(), spoken.is_cancelled()), (turn, false));
    assert_eq!(spoken.samples.len(), (units - 1) * 24_000 + 14_400);
}

pub(crate) fn rollover_reasons(harness: &Harness) -> Vec<RolloverReason> {
    let reason = |observations: &Observation| match observations {
        Observation::RolledOver { reason, .. } => Some(*reason),
        _ => None,
    };
    harness.observations.iter().filter_map(reason).collect()
}

pub(crate) fn close_and_check(mut harness: Harness) {
    assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
    harness.send_json(&json!({"type": "session.close"}));
    harness.advance(Duration::from_secs(60));
    assert!(harness.finished && harness.connections() == 0, "the session does not finish");
    assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
    let streamed = harness.bridge().uplink_counts().unwrap();
    let placed = streamed.appended + streamed.silenced + streamed.dropped + streamed.waiting;
    assert_eq!(harness.bridge().sample_counts().0.streamed, placed, "{streamed:?}");
}

#[test]
fn late_yielding_model_is_silenced() {
    for backend in BACKENDS {
        for times in 1..=3 {
            let (mut harness, mut microphone) =
                open_conversation(backend, &[&format!("ignores-force={times},times=1")]);
            ask_and_await_answer(&mut harness, &mut microphone);
            microphone.silence(&mut harness, 700);
            barge_in(&mut harness, &mut microphone);
            microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
            let all = spoken_texts(&harness);
            assert_eq!((all.len(), all[0].model_turn()), (2, 1));
            assert_complete_turn(&all[1], 2, 5);
            assert_eq!(rollover_reasons(&harness), []);
            close_and_check(harness);
        }
    }
}

#[test]
fn never_yielding_model_is_replaced_and_question_kept() {
    for backend in BACKENDS {
        let (mut harness, mut microphone) = open_conversation(backend, &["never-listens,times=1"]);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 1500);
        barge_in(&mut harness, &mut microphone);
        let interrupted = spoken_texts(&harness)[0].ended.unwrap();
        let replaced = |harness: &Harness| !rollover_reasons(harness).is_empty();
        assert!(microphone.stream_until(&mut harness, replaced, 20_000), "the upstream is not replaced");
        assert_eq!(rollover_reasons(&harness), [RolloverReason::NotYielding]);
        assert!(harness.now() - interrupted < ms(5000 + 1000), "{:?} after {interrupted:?}", harness.now());
        microphone.silence(&mut harness, 500);
        assert_eq!(spoken_texts(&harness).len(), 1, "the replaced model is still played");
        // Without a new question, the next session gets the audio that the last one ignored.
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
        assert_complete_turn(&spoken_texts(&harness)[1], 2, 5);
        close_and_check(harness);
    }
}

#[test]
fn late_audio_after_interruption_is_discarded() {
    for backend in BACKENDS {
        for after_ms in some_of((0..2000).step_by(290), 4) {
            let (mut harness, mut microphone) = open_conversation(backend, &["late-audio"]);
            ask_and_await_answer(&mut harness, &mut microphone);
            microphone.silence(&mut harness, after_ms);
            harness.send_json(&json!({"type": "tts.cancel"}));
            microphone.silence(&mut harness, 3000);
            let all = spoken_texts(&harness);
            assert_eq!(
                (all.len(), all[0].model_turn(), all[0].is_cancelled()),
                (1, 1, true),
                "{backend:?} {after_ms}"
            );
            ask_and_await_answer(&mut harness, &mut microphone);
            microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
            assert_complete_turn(&spoken_texts(&harness)[1], 2, 5);
            close_and_check(harness);
        }
    }
}

/// A resumed turn looks like a new one on the wire. It stays silent while the user speaks. Later it counts as
/// a new turn, which the user can interrupt.
#[test]
fn resumed_turn_is_silenced_while_user_speaks() {
    for backend in ServerKind::OF_DEMO {
        let (mut harness, mut microphone) = open_conversation(backend, &["resumes,times=1"]);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 500);
        let spoke_from = harness.now();
        microphone.record(&mut harness, &voices()[4].samples[16 * 200..16 * 6700]);
        let all = spoken_texts(&harness);
        assert_eq!((all.len(), all[0].is_cancelled()), (1, true), "{:?}", harness.names());
        assert!(all[0].ended.unwrap() < spoke_from + ms(650));
        microphone.stream_until(
            &mut harness,
            |harness| harness.events("tts.speaking_start").len() == 2,
            10_000,
        );
        barge_in(&mut harness, &mut microphone);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 3, 30_000);
        assert_complete_turn(&spoken_texts(&harness)[2], 2, 5);
        close_and_check(harness);
    }
}

#[test]
fn interrupted_burst_is_recalled() {
    for backend in BACKENDS {
        let (mut harness, mut microphone) = open_conversation(backend, &["burst=34,times=1"]);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 2000);
        let heard_ms = spoken_texts(&harness)[0].samples.len() / 24;
        assert!((2000..=2400).contains(&heard_ms), "{heard_ms} ms of 34 s were sent after 2 s");
        barge_in(&mut harness, &mut microphone);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
        let all = spoken_texts(&harness);
        assert_eq!((all.len(), all[0].model_turn()), (2, 1));
        assert_complete_turn(&all[1], 2, 5);
        close_and_check(harness);
    }
}

#[test]
fn completed_burst_is_recalled_on_interruption() {
    for backend in BACKENDS {
        let (mut harness, mut microphone) = open_conversation(backend, &["burst=4,times=1"]);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 3000);
        assert!(harness.events("tts.speaking_end").is_empty());
        barge_in(&mut harness, &mut microphone);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
        assert_complete_turn(&spoken_texts(&harness)[1], 2, 5);
        close_and_check(harness);
    }
}

/// The model has made the whole turn, and the user has heard a part of it.
#[test]
fn history_has_the_words_of_a_complete_turn_that_were_heard() {
    for backend in BACKENDS {
        let (mut harness, mut microphone) = open_conversation(backend, &["burst=4,times=1"]);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 3000);
        barge_in(&mut harness, &mut microphone);
        let finals = harness.events("transcript.final");
        let heard = finals.iter().rfind(|told| told["speaker"] == "assistant").unwrap()["text"].clone();
        let heard = heard.as_str().unwrap();
        assert!(heard.starts_with("I heard") && !heard.ends_with("speech."), "{heard}");
        let openings = harness.openings.len();
        harness.break_lanes();
        let is_reopened = |harness: &Harness| harness.openings.len() > openings;
        microphone.wait_until(&mut harness, is_reopened, 20_000);
        let prompt = harness.openings.last().unwrap().1.prompt.as_deref().unwrap();
        assert!(prompt.lines().any(|line| line.ends_with(&format!("Assistant: {heard}"))), "{prompt}");
    }
}

#[test]
fn duplicate_turn_ends_are_reported_once() {
    for backend in BACKENDS {
        let (mut harness, mut microphone) = open_conversation(backend, &["double-terminal", "repeats-text"]);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 800);
        barge_in(&mut harness, &mut microphone);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
        assert_complete_turn(&spoken_texts(&harness)[1], 2, 5);
        let finals = harness.events("transcript.final");
        let texts: Vec<&str> = finals.iter().map(|told| told["text"].as_str().unwrap()).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[1].starts_with("I heard") && texts[1].ends_with("seconds of speech."), "{texts:?}");
        close_and_check(harness);
    }
}

/// Words that the user never heard are neither transcribed nor counted.
#[test]
fn cancelled_turn_is_reported_as_far_as_it_was_heard() {
    for backend in BACKENDS {
        for heard_ms in [0, 700] {
            let (mut harness, mut microphone) = open_conversation(backend, &["burst=34"]);
            ask_and_await_answer(&mut harness, &mut microphone);
            harness.advance(ms(heard_ms));
            let started = spoken_texts(&harness)[0].started;
            let played = harness.now() - started;
            harness.send_json(&json!({"type": "tts.cancel"}));
            let end = spoken_texts(&harness)[0].end.clone();
            let told_ms = end["audio_ms"].as_u64().unwrap();
            assert!(told_ms.abs_diff(played.as_millis() as u64) <= 1, "{backend:?}: {told_ms} of {played:?}");
            let last = harness.events("transcript.final").pop().expect("a final transcript").clone();
            let words = last["text"].as_str().unwrap().split_whitespace().count();
            assert!(words <= 1 + told_ms as usize / 300, "{backend:?}: {last}");
        }
    }
}

#[test]
fn turn_cancelled_before_its_first_sample_was_not_said() {
    let (mut harness, mut microphone) = open_conversation(ServerKind::Documented, &[]);
    microphone.silence(&mut harness, 1200);
    ask(&mut harness, &mut microphone, 2);
    let has_text = |harness: &Harness| !harness.events("transcript.partial").is_empty();
    microphone.wait_until(&mut harness, has_text, 15_000);
    assert!(harness.events("tts.speaking_start").is_empty(), "the short first audio is held");
    harness.send_json(&json!({"type": "tts.cancel"}));
    assert!(harness.events("tts.speaking_end").is_empty());
    let finals = harness.events("transcript.final");
    assert_eq!(finals.iter().map(|told| told["text"].as_str().unwrap()).collect::<Vec<_>>(), [""]);
}

#[test]
fn muted_microphone_does_not_interrupt() {
    for backend in BACKENDS {
        let (mut harness, mut microphone) = open_conversation(backend, &[]);
        harness.send_json(&json!({"type": "session.configure", "microphone": "muted"}));
        ask_and_await_answer(&mut harness, &mut microphone);
        let (muted, units) = (harness.bridge().sample_counts().0.muted, harness.units.len());
        microphone.record(&mut harness, &voices()[0].samples[..16 * 3000]);
        assert_eq!(harness.bridge().sample_counts().0.muted - muted, 48_000, "all of it is muted");
        let later_units = &harness.units[units + 1..];
        assert!(later_units.len() >= 2, "the model still gets units");
        assert!(later_units.iter().all(|(_, unit)| unit.samples.iter().all(|sample| *sample == 0.0)));
        assert!(harness.events("tts.speaking_end").is_empty());
        harness.send_json(&json!({"type": "tts.cancel"}));
        assert!(spoken_texts(&harness)[0].is_cancelled());
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
        assert_complete_turn(&spoken_texts(&harness)[1], 2, 5);
        close_and_check(harness);
    }
}

#[test]
fn microphone_opened_mid_turn_can_interrupt() {
    let config = HarnessConfig {
        profile: "conversation",
        query: "model=any&microphone=muted".to_owned(),
        ..HarnessConfig::default()
    };
    let (mut harness, mut microphone) = (Harness::new(config), Microphone::of_ms(20));
    microphone.silence(&mut harness, 3000);
    ask_and_await_answer(&mut harness, &mut microphone);
    microphone.record(&mut harness, &voices()[2].samples[6400..6400 + 8000]);
    assert!(harness.events("tts.speaking_end").is_empty());
    harness.send_json(&json!({"type": "session.configure", "microphone": "open"}));
    barge_in(&mut harness, &mut microphone);
    close_and_check(harness);
}

/// A conversation whose detector takes every sound for speech.
fn open_with_stuck_detector(backend: ServerKind) -> (Harness, Microphone) {
    let speech = include_str!("../../../mappings/profile/speech.toml");
    let listen = &speech[speech.find("[listen]").unwrap()..speech.find("[hear]").unwrap()];
    let listen = listen.replace("threshold = 0.55, gate_dbfs = -65", "threshold = 0.0, gate_dbfs = -100");
    let toml = format!("mode = \"audio\"\n{listen}");
    let mut config = HarnessConfig::default().with_profile("stuck", "conversation", &toml);
    backend.configure(&mut config);
    config.simulator.turn_units = 5;
    (Harness::new(config), Microphone::of_ms(20))
}

/// Noise too soft for the model, loud enough for a detector that takes it for speech, and too irregular for
/// background.
fn loud_hiss(ms: usize) -> Vec<i16> {
    let level = |at: u32| if (at / 1_600).is_multiple_of(2) { 7 } else { 3 };
    (0..16 * ms as u32)
        .map(|at| ((at.wrapping_mul(2_654_435_761) >> 23) as i16 - 256) * level(at) / 8)
        .collect()
}

/// A stuck detector must not lead to a model that never replies (mappings/notes/minicpm-o-duplex.md#barge-in).
#[test]
fn stuck_detector_interrupts_only_once() {
    for backend in BACKENDS {
        let (mut harness, mut microphone) = open_with_stuck_detector(backend);
        microphone.record(&mut harness, &loud_hiss(3000));
        for question in 1..=4 {
            let quiet_speech: Vec<i16> =
                voices()[2].samples[6560..].iter().take(14_000).map(|sample| sample / 4).collect();
            microphone.record(&mut harness, &quiet_speech);
            microphone.record(&mut harness, &loud_hiss(16_000));
            // On that server the first turn is interrupted while its short beginning is held, so none of it
            // is played.
            let skipped_turns = usize::from(backend == ServerKind::Documented);
            assert!(harness.observations.contains(&Observation::Interrupted), "{backend:?}");
            let all = spoken_texts(&harness);
            assert_eq!(all.len() + skipped_turns, question, "{backend:?}: {:?}", harness.names());
            assert!(question == 1 || !all.last().unwrap().is_cancelled(), "{backend:?}, question {question}");
        }
        harness.send_json(&json!({"type": "session.close"}));
        harness.advance(Duration::from_secs(30));
        assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
    }
}

/// A user who keeps speaking when the model begins interrupts it.
#[test]
fn speech_before_model_turn_interrupts_it() {
    for (backend, head_start_ms) in
        BACKENDS.into_iter().flat_map(|backend| [100, 300, 500].map(|ms| (backend, ms)))
    {
        let (mut harness, mut microphone) = open_conversation(backend, &["slow-steps=0.8"]);
        microphone.silence(&mut harness, 1200);
        ask(&mut harness, &mut microphone, 2);
        // The unit to be answered is in progress.
        let units = harness.units.len();
        let is_in_flight = |harness: &Harness| {
            harness.units.len() > units + 1
                && harness.units.last().unwrap().1.samples.iter().all(|sample| *sample == 0.0)
        };
        microphone.wait_until(&mut harness, is_in_flight, 5000);
        let spoke = &voices()[4].samples[16 * 200..16 * 6700];
        let mut hops = spoke.chunks(160);
        microphone.silence(&mut harness, 1050 - head_start_ms);
        while !harness.observations.contains(&Observation::Interrupted) {
            microphone.record(&mut harness, hops.next().expect("the turn is interrupted"));
        }
        let spoken = spoken_texts(&harness);
        let Some(first) = spoken.first() else {
            // The turn's short beginning was held, so there was no audio to stop.
            assert_eq!((backend, harness.audio().len()), (ServerKind::Documented, 0));
            continue;
        };
        assert!(first.is_cancelled());
        let took = first.ended.unwrap() - first.started;
        assert!(took <= ms(400), "{backend:?}, {head_start_ms} ms before: {took:?}");
    }
}
