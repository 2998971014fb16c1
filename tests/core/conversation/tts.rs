//! Texts inside a conversation: they are played at once, the model hears silence meanwhile, and the
//! conversation continues.

use super::{
    barge_in_faults::ask_and_await_answer,
    harness::{Harness, HarnessConfig, Traffic},
    *,
};

/// About five seconds of speech.
const LONG: &str = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.";

fn open_conversation(backend: ServerKind, workers: usize) -> (Harness, Microphone) {
    let mut config = HarnessConfig { profile: "conversation", latency: ms(10), ..HarnessConfig::default() };
    backend.configure(&mut config);
    config.simulator.workers = workers;
    config.simulator.turn_units = 5;
    config.simulator.force_listen_count = 1;
    (Harness::new(config), Microphone::of_ms(20))
}

fn for_each_server(check: impl Fn(Harness, Microphone, usize)) {
    for (backend, workers) in
        ServerKind::WITH_CHAT.into_iter().flat_map(|backend| [(backend, 1), (backend, 2)])
    {
        let (harness, microphone) = open_conversation(backend, workers);
        check(harness, microphone, workers);
    }
}

fn send_speak(harness: &mut Harness, request_id: &str) {
    harness.send_json(&json!({"type": "tts.speak", "text": LONG, "request_id": request_id}));
}

fn is_audible(harness: &Harness) -> bool {
    harness.events("tts.speaking_start").len() > harness.events("tts.speaking_end").len()
}

/// Asks a question and checks that the answer is played to its end.
fn assert_answered(harness: &mut Harness, microphone: &mut Microphone, turn: u64) {
    let turns_before = turns_heard(harness);
    ask_and_await_answer(harness, microphone);
    microphone.wait_until(harness, |harness| turns_heard(harness) > turns_before, 20_000);
    assert_complete_turn(spoken_texts(harness).last().unwrap(), turn, 5);
}

/// A hum that the model can hear and the detector ignores.
fn quiet_hum(ms: usize) -> Vec<i16> {
    (0..16 * ms).map(|at| ((at as f64 * 0.02).sin() * 500.0) as i16).collect()
}

/// All samples of the model's units from this unit on.
fn samples_from_unit(harness: &Harness, unit: usize) -> Vec<i16> {
    let samples = harness.units[unit..].iter().flat_map(|(_, unit)| &unit.samples);
    samples.map(|sample| (sample * 32_768.0) as i16).collect()
}

fn contains_samples(all: &[i16], piece: &[i16]) -> bool {
    all.windows(piece.len()).any(|window| window == piece)
}

#[test]
fn lent_worker_returns_before_playback_ends() {
    for backend in ServerKind::WITH_CHAT {
        let (mut harness, mut microphone) = open_conversation(backend, 1);
        microphone.silence(&mut harness, 2500);
        send_speak(&mut harness, "one");
        assert!(
            microphone.stream_until(&mut harness, |harness| harness.openings.len() == 2, 5000),
            "the conversation lane is not back"
        );
        assert!(is_audible(&harness), "not before the text was played to its end");
        microphone.wait_until(&mut harness, |harness| !is_audible(harness), 10_000);
        assert_answered(&mut harness, &mut microphone, 1);
        assert_eq!(rollover_reasons(&harness), [RolloverReason::WorkerLent]);
        assert_eq!(harness.received_count("session_failed"), 0);
        close_and_check(harness);
    }
}

fn speaking_ends(harness: &Harness) -> Vec<(Value, Value)> {
    let end = |end: &&Value| (end["request_id"].clone(), end["cancelled"].clone());
    harness.events("tts.speaking_end").iter().map(end).collect()
}

#[test]
fn text_in_silence_is_spoken_with_microphone_silenced() {
    for_each_server(|mut harness, mut microphone, workers| {
        microphone.silence(&mut harness, 2500);
        send_speak(&mut harness, "one");
        microphone.wait_until(&mut harness, is_audible, 5000);
        // The unit that was in progress when the text began.
        microphone.silence(&mut harness, 1000);
        let (unit, hushed) = (harness.units.len(), harness.bridge().uplink_counts().unwrap().silenced);
        microphone.record(&mut harness, &quiet_hum(2500));
        assert!(is_audible(&harness), "the text was too short for this test");
        assert!(samples_from_unit(&harness, unit).iter().all(|sample| *sample == 0), "a hum is heard");
        // With one worker the model returns only after synthesis.
        let min_units = if workers == 2 { 2 } else { 1 };
        assert!(harness.units.len() >= unit + min_units, "{}", harness.units.len());
        microphone.wait_until(&mut harness, |harness| !is_audible(harness), 10_000);
        microphone.silence(&mut harness, 40);
        let now_hushed = harness.bridge().uplink_counts().unwrap().silenced - hushed;
        let since_ms =
            (spoken_texts(&harness)[0].ended.unwrap() - spoken_texts(&harness)[0].started).as_millis() as u64;
        assert!(now_hushed / 16 <= since_ms && now_hushed / 16 + 200 >= 2500, "{now_hushed}");
        assert_answered(&mut harness, &mut microphone, 1);
        assert_eq!(speaking_ends(&harness)[0], (json!("one"), json!(false)));
        let lent = if workers == 1 { vec![RolloverReason::WorkerLent] } else { vec![] };
        assert_eq!(rollover_reasons(&harness), lent);
        close_and_check(harness);
    });
}

#[test]
fn text_interrupts_model_turn() {
    for_each_server(|mut harness, mut microphone, _| {
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 1200);
        send_speak(&mut harness, "one");
        assert!(spoken_texts(&harness)[0].is_cancelled(), "the turn ends first");
        microphone.wait_until(&mut harness, |harness| harness.events("tts.speaking_end").len() == 2, 15_000);
        assert_eq!(speaking_ends(&harness)[1], (json!("one"), json!(false)));
        microphone.silence(&mut harness, 4000);
        assert_eq!(spoken_texts(&harness).len(), 2, "the model resumes the interrupted turn");
        assert_answered(&mut harness, &mut microphone, 2);
        close_and_check(harness);
    });
}

#[test]
fn model_turn_during_text_is_suppressed() {
    for_each_server(|mut harness, mut microphone, _| {
        microphone.silence(&mut harness, 2500);
        ask(&mut harness, &mut microphone, 2);
        send_speak(&mut harness, "one");
        microphone.wait_until(&mut harness, |harness| harness.events("tts.speaking_end").len() == 1, 15_000);
        let all = spoken_texts(&harness);
        assert!(all.len() == 1 && !all[0].is_model_turn(), "{:?}", harness.names());
        microphone.silence(&mut harness, 12_000);
        assert!(spoken_texts(&harness).iter().skip(1).all(|spoken| !spoken.is_cancelled()));
        ask_and_await_answer(&mut harness, &mut microphone);
        close_and_check(harness);
    });
}

/// A model that answers during a text gets `force_listen` until it listens, while the microphone stays open.
#[test]
fn forced_listen_repeats_until_model_listens_during_text() {
    for backend in ServerKind::WITH_CHAT {
        let mut config =
            HarnessConfig { profile: "conversation", ..HarnessConfig::with_faults(&["ignores-force=2"]) };
        backend.configure(&mut config);
        config.simulator.workers = 2;
        config.simulator.turn_units = 9;
        let (mut harness, mut microphone) = (Harness::new(config), Microphone::of_ms(20));
        microphone.silence(&mut harness, 3500);
        ask(&mut harness, &mut microphone, 2);
        microphone.silence(&mut harness, 700);
        send_speak(&mut harness, "one");
        microphone.wait_until(&mut harness, |harness| !speaking_ends(harness).is_empty(), 15_000);
        assert_eq!(spoken_texts(&harness).len(), 1, "{:?}", harness.names());
        let forced = harness.units.iter().filter(|(_, unit)| unit.force_listen).count();
        assert!(forced >= 3, "{backend:?}: forced {forced} times");
        assert_eq!(rollover_reasons(&harness), []);
        close_and_check(harness);
    }
}

#[test]
fn second_text_replaces_first() {
    for_each_server(|mut harness, mut microphone, _| {
        microphone.silence(&mut harness, 1000);
        send_speak(&mut harness, "one");
        microphone.wait_until(&mut harness, is_audible, 5000);
        microphone.silence(&mut harness, 500);
        send_speak(&mut harness, "two");
        assert_eq!(speaking_ends(&harness), [(json!("one"), json!(true))]);
        microphone.wait_until(&mut harness, |harness| harness.events("tts.speaking_end").len() == 2, 20_000);
        assert_eq!(speaking_ends(&harness)[1], (json!("two"), json!(false)));
        assert_answered(&mut harness, &mut microphone, 1);
        close_and_check(harness);
    });
}

#[test]
fn text_cancelled_before_first_audio_is_invisible() {
    for wait_ms in [0, 30, 100, 200] {
        for_each_server(|mut harness, mut microphone, _| {
            microphone.silence(&mut harness, 1000);
            send_speak(&mut harness, "never");
            harness.advance(ms(wait_ms));
            harness.send_json(&json!({"type": "tts.cancel"}));
            microphone.silence(&mut harness, 4000);
            assert_eq!(harness.names(), ["session.created"], "cancelled after {wait_ms} ms");
            assert_answered(&mut harness, &mut microphone, 1);
            close_and_check(harness);
        });
    }
}

#[test]
fn cancelled_text_is_silent_at_once() {
    for_each_server(|mut harness, mut microphone, _| {
        microphone.silence(&mut harness, 1000);
        send_speak(&mut harness, "cut");
        microphone.wait_until(&mut harness, is_audible, 5000);
        microphone.silence(&mut harness, 700);
        let before = harness.log.len();
        harness.send_json(&json!({"type": "tts.cancel"}));
        assert_eq!(harness.log[before].1.name(), "tts.speaking_end");
        assert_eq!(speaking_ends(&harness), [(json!("cut"), json!(true))]);
        microphone.silence(&mut harness, 3000);
        assert_eq!(harness.log.len(), before + 1, "{:?}", harness.names());
        assert_answered(&mut harness, &mut microphone, 1);
        close_and_check(harness);
    });
}

#[test]
fn barge_in_on_text_is_heard_from_onset() {
    for_each_server(|mut harness, mut microphone, _| {
        microphone.silence(&mut harness, 2500);
        send_speak(&mut harness, "cut");
        microphone.wait_until(&mut harness, is_audible, 5000);
        microphone.silence(&mut harness, 1500);
        let (unit, voice) = (harness.units.len(), &voices()[2]);
        let words = &voice.samples[voice.onset - 800..voice.onset + 20_000];
        microphone.record(&mut harness, words);
        assert_eq!(speaking_ends(&harness), [(json!("cut"), json!(true))]);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 1, 20_000);
        assert!(contains_samples(&samples_from_unit(&harness, unit), words), "words are missing");
        assert_complete_turn(&spoken_texts(&harness)[1], 1, 5);
        close_and_check(harness);
    });
}

#[test]
fn audio_is_paced_and_end_follows_playout() {
    for_each_server(|mut harness, mut microphone, _| {
        microphone.silence(&mut harness, 1000);
        send_speak(&mut harness, "one");
        microphone.wait_until(&mut harness, |harness| !speaking_ends(harness).is_empty(), 20_000);
        assert_answered(&mut harness, &mut microphone, 1);
        for spoken in spoken_texts(&harness) {
            assert_paced(&spoken, 24_000);
        }
        close_and_check(harness);
    });
}

/// The profile's lead.
const LEAD: Duration = ms(300);
const FRAME_MS: usize = 100;

fn assert_paced(spoken: &SpokenText, rate_hz: usize) {
    let mut sent = 0;
    for (place, (at, bytes)) in spoken.frames.iter().enumerate() {
        sent += bytes / 2;
        let ahead = playback_time(sent, rate_hz).saturating_sub(*at - spoken.started);
        assert!(ahead <= LEAD + ms(1), "{ahead:?} ahead with frame {place}");
        assert!(*bytes <= rate_hz * FRAME_MS / 1000 * 2, "a frame of {bytes} bytes");
    }
    let (played, took) = (playback_time(sent, rate_hz), spoken.ended.unwrap() - spoken.started);
    // Between rates, part of the first second stays behind until the next. C++ reports the end of a turn with
    // the next unit.
    let later = if spoken.is_model_turn() { ms(1300) } else { ms(1) };
    assert!(took + ms(1) >= played && took <= played + later, "{took:?} for {played:?}");
    assert_eq!(spoken.end["audio_ms"], sent * 1000 / rate_hz);
}

fn playback_time(samples: usize, rate_hz: usize) -> Duration {
    Duration::from_nanos(samples as u64 * 1_000_000_000 / rate_hz as u64)
}

#[test]
fn burst_is_sent_unpaced_when_pacing_is_off() {
    for backend in ServerKind::WITH_CHAT {
        let toml =
            "mode = \"audio\"\n[playout]\npace = \"burst\"\nlead_ms = 0\nframe_ms = 100\nhold_max_ms = 0\n";
        let mut config = HarnessConfig::default().with_profile("bursts", "conversation", toml);
        backend.configure(&mut config);
        config.simulator.faults = vec!["burst=10,times=1".parse().unwrap()];
        let (mut harness, mut microphone) = (Harness::new(config), Microphone::of_ms(20));
        microphone.silence(&mut harness, 3000);
        ask_and_await_answer(&mut harness, &mut microphone);
        let first = spoken_texts(&harness).swap_remove(0);
        assert!(first.samples.len() >= 240_000, "{} samples were sent", first.samples.len());
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 1, 5_000);
        assert_complete_turn(&spoken_texts(&harness)[0], 1, 11);
        close_and_check(harness);
    }
}

#[test]
fn audio_leaves_when_the_microphone_wakes_the_session() {
    let config =
        HarnessConfig { profile: "conversation", ..HarnessConfig::default() }.faults(&["burst=10,times=1"]);
    let (mut harness, mut microphone) = (Harness::new(config), Microphone::of_ms(20));
    microphone.silence(&mut harness, 3000);
    ask_and_await_answer(&mut harness, &mut microphone);
    let before = harness.steps.len();
    microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 1, 20_000);
    let spoken = spoken_texts(&harness).swap_remove(0);
    assert_paced(&spoken, 24_000);
    let by_timer = harness.steps[before..].iter().filter(|step| step.frame_bytes == 0 && step.outputs > 0);
    let (by_timer, frames) = (by_timer.count(), spoken.frames.len());
    assert!(frames >= 100 && by_timer < 10, "{by_timer} timers for {frames} frames");
    close_and_check(harness);
}

#[test]
fn output_rates_are_paced_and_change_with_next_turn() {
    for (rate_hz, next_hz) in [(8_000, 48_000), (16_000, 22_050), (48_000, 8_000), (44_100, 24_000)] {
        let config = HarnessConfig {
            profile: "conversation",
            query: format!("model=any&output_sample_rate={rate_hz}"),
            ..HarnessConfig::default()
        };
        let (mut harness, mut microphone) = (Harness::new(config), Microphone::of_ms(20));
        microphone.silence(&mut harness, 3000);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.silence(&mut harness, 600);
        harness.send_json(&json!({"type": "session.configure", "output_sample_rate": next_hz}));
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 1, 20_000);
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == 2, 20_000);
        for (spoken, rate_hz) in spoken_texts(&harness).iter().zip([rate_hz, next_hz]) {
            assert_paced(spoken, rate_hz);
            assert!(spoken.samples.len().abs_diff(rate_hz * 26 / 10) <= 1, "{}", spoken.samples.len());
        }
        close_and_check(harness);
    }
}

#[test]
fn underrun_increases_initial_hold() {
    let mut config = HarnessConfig { profile: "conversation", ..HarnessConfig::default() };
    config.simulator.timing.speak_step = ms(1300);
    let (mut harness, mut microphone) = (Harness::new(config), Microphone::of_ms(20));
    microphone.silence(&mut harness, 3000);
    for turn in 1..=2 {
        ask_and_await_answer(&mut harness, &mut microphone);
        microphone.wait_until(&mut harness, |harness| turns_heard(harness) == turn, 20_000);
        let spoken = spoken_texts(&harness).pop().unwrap();
        assert_eq!(spoken.model_turn(), turn as u64);
        // Two gaps of 0.3 s, less the audio sent ahead. The next turn is held back for that time.
        let gaps = spoken.ended.unwrap() - spoken.started - ms(2600);
        if turn == 1 { assert!(gaps >= ms(400), "{gaps:?}") } else { assert!(gaps <= ms(450), "{gaps:?}") }
    }
    assert!(harness.observations.contains(&Observation::Underrun));
    close_and_check(harness);
}

/// Text lanes and conversations never hold more workers than exist, and no session is rejected.
#[test]
fn worker_is_lent_for_text_and_returned() {
    for_each_server(|mut harness, mut microphone, _| {
        for text in 0..4 {
            microphone.silence(&mut harness, 1500);
            send_speak(&mut harness, &text.to_string());
            microphone.stream_until(&mut harness, is_audible, 8000);
            microphone.silence(&mut harness, 400 * text);
            harness.send_json(&json!({"type": "tts.cancel"}));
        }
        assert_answered(&mut harness, &mut microphone, 1);
        let refused = harness.traffic.iter().any(
            |(_, traffic)| matches!(traffic, Traffic::Received(_, text) if text.contains("session_failed")),
        );
        assert!(!refused);
        close_and_check(harness);
    });
}
