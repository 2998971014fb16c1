//! Measurements of a session, in virtual time: the reported figures match the events.

use voxbridge::session::{AudioOrigin, BargeInStage, EndReason};

use super::{
    harness::{Harness, HarnessConfig, recording, zeros},
    *,
};

fn collect_measurements<T>(harness: &Harness, wanted: impl Fn(Measurement) -> Option<T>) -> Vec<T> {
    harness.measurements().into_iter().filter_map(wanted).collect()
}

/// One-way latency.
const LATENCY: Duration = ms(20);
const ROUND_TRIP: Duration = ms(40);

fn config(profile: &'static str) -> HarnessConfig {
    let mut config = HarnessConfig { profile, latency: LATENCY, seed: 7, ..HarnessConfig::default() };
    ServerKind::Pytorch.configure(&mut config);
    config.simulator.timing.init = ms(2000);
    config.simulator.timing.listen_step = ms(200);
    config.simulator.timing.speak_step = ms(600);
    config
}

#[test]
fn interrupted_conversation_reports_measurements() {
    let (mut harness, mut microphone) = (Harness::new(config("conversation")), Microphone::of_ms(20));
    assert_eq!(harness.report().state, SessionState::Opening);
    microphone.silence(&mut harness, 4200);
    assert_eq!(harness.report().state, SessionState::Idle);
    ask(&mut harness, &mut microphone, 0);
    microphone.wait_until(&mut harness, |harness| !harness.events("tts.speaking_start").is_empty(), 15_000);
    assert_eq!(harness.report().state, SessionState::Speaking);
    microphone.silence(&mut harness, 300);
    microphone.record(&mut harness, &voices()[1].samples);
    microphone.silence(&mut harness, 3000);
    assert!(spoken_texts(&harness)[0].is_cancelled());
    let steps = collect_measurements(&harness, |figure| match figure {
        Measurement::UnitProcessed { took, unit, .. } => Some((took, unit)),
        _ => None,
    });
    let answered = harness.received_count("\"response.listen\"") + spoken_texts(&harness).len();
    assert!(steps.len() >= answered.min(8), "{} steps", steps.len());
    for (took, unit) in &steps {
        assert_eq!(*unit, Duration::from_secs(1));
        let step = if *took < ms(500) { ms(200) } else { ms(600) };
        assert!(*took >= step + ROUND_TRIP && *took <= step + ROUND_TRIP + ms(550), "{took:?}");
    }
    harness.send_json(&json!({"type": "session.close"}));
    let opened = collect_measurements(&harness, |figure| match figure {
        Measurement::LaneDialled { purpose, .. } => Some(purpose),
        _ => None,
    });
    assert_eq!(opened, [LanePurpose::Converse]);
    let init = collect_measurements(&harness, |figure| match figure {
        Measurement::LaneInitialised { after, .. } => Some(after),
        _ => None,
    });
    assert_eq!(init, [ms(2000) + ROUND_TRIP]);
    let audio = collect_measurements(&harness, |figure| match figure {
        Measurement::FirstAudio { origin, after } => Some((origin, after)),
        _ => None,
    });
    assert!(audio.iter().all(|(origin, _)| *origin == AudioOrigin::Utterance), "{audio:?}");
    assert!(audio[0].1 > ms(600) + ROUND_TRIP && audio[0].1 < ms(5000), "{audio:?}");
    let stage = |wanted: BargeInStage| {
        collect_measurements(&harness, |figure| match figure {
            Measurement::BargeIn { stage, after } if stage == wanted => Some(after),
            _ => None,
        })
    };
    // The detector needs 250 ms of speech and a complete frame; a silent hop in between restarts the measurement.
    assert!(stage(BargeInStage::Noticed)[0] >= ms(200) && stage(BargeInStage::Noticed)[0] <= ms(300));
    assert_eq!(stage(BargeInStage::ClientNotified)[0], Duration::ZERO, "with the deciding frame");
    let yield_delay = stage(BargeInStage::ModelYielded)[0];
    assert!(yield_delay >= ms(200) + ROUND_TRIP && yield_delay < ms(2000), "{yield_delay:?}");
    assert_eq!(collect_measurements(&harness, end_reason), [EndReason::ClientClose]);
    assert_eq!(harness.report().state, SessionState::Ending);
    let tally = harness.bridge().audio_totals().unwrap();
    assert!(tally.received > Duration::from_secs(9) && tally.appended > ms(4000), "{tally:?}");
    let played_s = harness.audio().len() as f64 / 24_000.0;
    assert!(tally.sent.as_secs_f64() >= played_s - 0.001 && played_s > 0.5, "{tally:?} {played_s}");
}

fn end_reason(figure: Measurement) -> Option<EndReason> {
    match figure {
        Measurement::SessionEnding(reason) => Some(reason),
        _ => None,
    }
}

#[test]
fn utterance_and_text_report_measurements() {
    let mut harness = Harness::new(config("speech"));
    let question = [recording("goforward_16k.wav"), zeros(2000)].concat();
    harness.stream(&question, 20);
    assert_eq!(harness.events("transcript.final").len(), 1);
    assert_eq!(harness.report().state, SessionState::Idle);
    harness.send_json(&json!({"type": "tts.speak", "text": "Hello there.", "request_id": "a"}));
    assert_eq!(harness.report().state, SessionState::Answering);
    let asked_at = harness.now();
    harness.next_event("tts.speaking_start");
    let took = harness.now() - asked_at;
    harness.advance(ms(2000));
    assert_eq!(harness.events("tts.speaking_end").len(), 1);
    harness.close_client();
    let audio = collect_measurements(&harness, |figure| match figure {
        Measurement::FirstAudio { origin, after } => Some((origin, after)),
        _ => None,
    });
    assert_eq!(audio, [(AudioOrigin::Text, took)]);
    let words = collect_measurements(&harness, |figure| match figure {
        Measurement::FirstTranscript { after } => Some(after),
        _ => None,
    });
    assert_eq!(words.len(), 1);
    assert!(words[0] < Duration::from_secs(10), "{words:?}");
    let lanes = collect_measurements(&harness, |figure| match figure {
        Measurement::LaneDialled { purpose, .. } => Some(purpose),
        _ => None,
    });
    assert_eq!(lanes, [LanePurpose::Transcribe, LanePurpose::Speak]);
    assert_eq!(
        collect_measurements(&harness, |figure| matches!(figure, Measurement::LaneGranted { .. })
            .then_some(()))
        .len(),
        2
    );
    assert_eq!(collect_measurements(&harness, end_reason), [EndReason::ClientGone]);
    let tally = harness.bridge().audio_totals().unwrap();
    assert_eq!(tally.received.as_millis(), question.len() as u128 / 16);
    assert_eq!(tally.sent.as_millis(), harness.audio().len() as u128 / 24);
}

#[test]
fn relayed_session_reports_lane_measurements() {
    let mut config = config("relay");
    config.query = "mode=chat".into();
    let mut harness = Harness::new_relay(config, &["minicpm-o"]);
    harness.advance(Duration::from_secs(1));
    assert_eq!(
        collect_measurements(&harness, |figure| matches!(figure, Measurement::LaneGranted { .. })
            .then_some(()))
        .len(),
        1
    );
    harness.close_client();
    assert_eq!(collect_measurements(&harness, end_reason), [EndReason::ClientGone]);
    assert_eq!(harness.bridge().audio_totals(), None);
}
