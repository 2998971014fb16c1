//! Texts inside a conversation: they take the floor, the model hears silence meanwhile, and the talk goes on after them.

use std::time::Duration;

use serde_json::{Value, json};
use voxbridge::{event::RolloverReason, session::Observation};

use super::{
    flavour::Flavour,
    mic::{Mic, Spoken, ask, spoken, turns_heard, voices},
    ms,
    pair::{Pair, PairConfig, Traffic},
    troubled::{answered, ends_well, rolled_over, whole},
};

/// About five seconds of speech.
const LONG: &str = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.";

fn talk(backend: Flavour, workers: usize) -> (Pair, Mic) {
    let mut config = PairConfig { profile: "conversation", latency: ms(10), ..PairConfig::default() };
    backend.serves(&mut config);
    config.simulator.workers = workers;
    config.simulator.turn_units = 5;
    config.simulator.force_listen_count = 1;
    (Pair::new(config), Mic::of_ms(20))
}

fn each(check: impl Fn(Pair, Mic, usize)) {
    for (backend, workers) in Flavour::WITH_CHAT.into_iter().flat_map(|backend| [(backend, 1), (backend, 2)])
    {
        let (pair, mic) = talk(backend, workers);
        check(pair, mic, workers);
    }
}

fn say(pair: &mut Pair, request_id: &str) {
    pair.client(&json!({"type": "tts.speak", "text": LONG, "request_id": request_id}));
}

fn audible(pair: &Pair) -> bool {
    pair.events("tts.speaking_start").len() > pair.events("tts.speaking_end").len()
}

/// A question is asked and answered to the end.
fn is_answered(pair: &mut Pair, mic: &mut Mic, turn: u64) {
    let heard = turns_heard(pair);
    answered(pair, mic);
    assert!(mic.until(pair, |pair| turns_heard(pair) > heard, 20_000), "{:?}", pair.names());
    whole(spoken(pair).last().unwrap(), turn, 5);
}

/// A hum the model can hear and nobody takes for speech.
fn hum(ms: usize) -> Vec<i16> {
    (0..16 * ms).map(|at| ((at as f64 * 0.02).sin() * 500.0) as i16).collect()
}

/// What the model was sent from this unit on, in a row.
fn heard_from(pair: &Pair, unit: usize) -> Vec<i16> {
    let samples = pair.units[unit..].iter().flat_map(|(_, unit)| &unit.samples);
    samples.map(|sample| (sample * 32_768.0) as i16).collect()
}

fn has(all: &[i16], piece: &[i16]) -> bool {
    all.windows(piece.len()).any(|window| window == piece)
}

#[test]
fn a_lent_worker_is_back_before_the_text_was_heard() {
    for backend in Flavour::WITH_CHAT {
        let (mut pair, mut mic) = talk(backend, 1);
        mic.silence(&mut pair, 2500);
        say(&mut pair, "one");
        assert!(mic.until(&mut pair, |pair| pair.openings.len() == 2, 5000), "it is not back");
        assert!(audible(&pair), "only when the text was heard to its end");
        assert!(mic.until(&mut pair, |pair| !audible(pair), 10_000));
        is_answered(&mut pair, &mut mic, 1);
        assert_eq!(rolled_over(&pair), [RolloverReason::Lent]);
        assert_eq!(pair.received_count("session_failed"), 0);
        ends_well(pair);
    }
}

fn ends(pair: &Pair) -> Vec<(Value, Value)> {
    let end = |end: &&Value| (end["request_id"].clone(), end["cancelled"].clone());
    pair.events("tts.speaking_end").iter().map(end).collect()
}

#[test]
fn a_text_in_silence_is_spoken_and_the_model_hears_none_of_the_microphone() {
    each(|mut pair, mut mic, workers| {
        mic.silence(&mut pair, 2500);
        say(&mut pair, "one");
        assert!(mic.until(&mut pair, audible, 5000));
        // The unit under way when it began.
        mic.silence(&mut pair, 1000);
        let (unit, hushed) = (pair.units.len(), pair.bridge().streamed().unwrap().hushed);
        mic.record(&mut pair, &hum(2500));
        assert!(audible(&pair), "it was too short for this test");
        assert!(heard_from(&pair, unit).iter().all(|sample| *sample == 0), "the model hears the hum");
        // With one worker it is back only when the text is made.
        let least = if workers == 2 { 2 } else { 1 };
        assert!(
            pair.units.len() >= unit + least,
            "{} units: the model stands still",
            pair.units.len() - unit
        );
        assert!(mic.until(&mut pair, |pair| !audible(pair), 10_000));
        mic.silence(&mut pair, 40);
        let now_hushed = pair.bridge().streamed().unwrap().hushed - hushed;
        let since_ms = (spoken(&pair)[0].ended.unwrap() - spoken(&pair)[0].started).as_millis() as u64;
        assert!(now_hushed / 16 <= since_ms && now_hushed / 16 + 200 >= 2500, "{now_hushed}");
        is_answered(&mut pair, &mut mic, 1);
        assert_eq!(ends(&pair)[0], (json!("one"), json!(false)));
        let lent = if workers == 1 { vec![RolloverReason::Lent] } else { vec![] };
        assert_eq!(rolled_over(&pair), lent);
        ends_well(pair);
    });
}

#[test]
fn a_text_takes_the_floor_from_the_model() {
    each(|mut pair, mut mic, _| {
        answered(&mut pair, &mut mic);
        mic.silence(&mut pair, 1200);
        say(&mut pair, "one");
        assert!(spoken(&pair)[0].cancelled(), "the turn ends before anything else");
        assert!(mic.until(&mut pair, |pair| pair.events("tts.speaking_end").len() == 2, 15_000));
        assert_eq!(ends(&pair)[1], (json!("one"), json!(false)));
        mic.silence(&mut pair, 4000);
        assert_eq!(spoken(&pair).len(), 2, "the model goes on with what was interrupted");
        is_answered(&mut pair, &mut mic, 2);
        ends_well(pair);
    });
}

#[test]
fn the_model_does_not_answer_into_a_text() {
    each(|mut pair, mut mic, _| {
        mic.silence(&mut pair, 2500);
        ask(&mut pair, &mut mic, 2);
        say(&mut pair, "one");
        assert!(mic.until(&mut pair, |pair| pair.events("tts.speaking_end").len() == 1, 15_000));
        let all = spoken(&pair);
        assert!(all.len() == 1 && !all[0].is_turn(), "{:?}", pair.names());
        mic.silence(&mut pair, 12_000);
        assert!(spoken(&pair).iter().skip(1).all(|spoken| !spoken.cancelled()), "{:?}", pair.names());
        answered(&mut pair, &mut mic);
        ends_well(pair);
    });
}

/// A model that answers into a text is told to listen as often as it takes, while the microphone goes on.
#[test]
fn who_speaks_into_a_text_is_told_to_listen_until_it_does() {
    for backend in Flavour::WITH_CHAT {
        let mut config =
            PairConfig { profile: "conversation", ..PairConfig::with_faults(&["ignores-force=2"]) };
        backend.serves(&mut config);
        config.simulator.workers = 2;
        config.simulator.turn_units = 9;
        let (mut pair, mut mic) = (Pair::new(config), Mic::of_ms(20));
        mic.silence(&mut pair, 3500);
        ask(&mut pair, &mut mic, 2);
        mic.silence(&mut pair, 700);
        say(&mut pair, "one");
        assert!(mic.until(&mut pair, |pair| !ends(pair).is_empty(), 15_000));
        assert_eq!(spoken(&pair).len(), 1, "{:?}", pair.names());
        let forced = pair.units.iter().filter(|(_, unit)| unit.forced).count();
        assert!(forced >= 3, "{backend:?}: told {forced} times");
        assert_eq!(rolled_over(&pair), []);
        ends_well(pair);
    }
}

#[test]
fn the_second_text_replaces_the_first() {
    each(|mut pair, mut mic, _| {
        mic.silence(&mut pair, 1000);
        say(&mut pair, "one");
        assert!(mic.until(&mut pair, audible, 5000));
        mic.silence(&mut pair, 500);
        say(&mut pair, "two");
        assert_eq!(ends(&pair), [(json!("one"), json!(true))]);
        assert!(mic.until(&mut pair, |pair| pair.events("tts.speaking_end").len() == 2, 20_000));
        assert_eq!(ends(&pair)[1], (json!("two"), json!(false)));
        is_answered(&mut pair, &mut mic, 1);
        ends_well(pair);
    });
}

#[test]
fn a_text_cancelled_before_its_first_sound_never_was() {
    for wait_ms in [0, 30, 100, 200] {
        each(|mut pair, mut mic, _| {
            mic.silence(&mut pair, 1000);
            say(&mut pair, "never");
            pair.advance(ms(wait_ms));
            pair.client(&json!({"type": "tts.cancel"}));
            mic.silence(&mut pair, 4000);
            assert_eq!(pair.names(), ["session.created"], "cancelled after {wait_ms} ms");
            is_answered(&mut pair, &mut mic, 1);
            ends_well(pair);
        });
    }
}

#[test]
fn a_text_cancelled_midway_is_silent_at_once() {
    each(|mut pair, mut mic, _| {
        mic.silence(&mut pair, 1000);
        say(&mut pair, "cut");
        assert!(mic.until(&mut pair, audible, 5000));
        mic.silence(&mut pair, 700);
        let seen = pair.log.len();
        pair.client(&json!({"type": "tts.cancel"}));
        assert_eq!(pair.log[seen].1.name(), "tts.speaking_end");
        assert_eq!(ends(&pair), [(json!("cut"), json!(true))]);
        mic.silence(&mut pair, 3000);
        assert_eq!(pair.log.len(), seen + 1, "{:?}", pair.names());
        is_answered(&mut pair, &mut mic, 1);
        ends_well(pair);
    });
}

#[test]
fn who_interrupts_a_text_is_heard_from_the_first_sound_on() {
    each(|mut pair, mut mic, _| {
        mic.silence(&mut pair, 2500);
        say(&mut pair, "cut");
        assert!(mic.until(&mut pair, audible, 5000));
        mic.silence(&mut pair, 1500);
        let (unit, voice) = (pair.units.len(), &voices()[2]);
        let words = &voice.samples[voice.onset - 800..voice.onset + 20_000];
        mic.record(&mut pair, words);
        assert_eq!(ends(&pair), [(json!("cut"), json!(true))]);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 1, 20_000), "{:?}", pair.names());
        assert!(has(&heard_from(&pair, unit), words), "words are missing");
        whole(&spoken(&pair)[1], 1, 5);
        ends_well(pair);
    });
}

#[test]
fn audio_leaves_in_real_time_and_ends_when_it_was_played() {
    each(|mut pair, mut mic, _| {
        mic.silence(&mut pair, 1000);
        say(&mut pair, "one");
        assert!(mic.until(&mut pair, |pair| !ends(pair).is_empty(), 20_000));
        is_answered(&mut pair, &mut mic, 1);
        for spoken in spoken(&pair) {
            paced(&spoken, 24_000);
        }
        ends_well(pair);
    });
}

/// The profile's lead and frame.
const LEAD: Duration = ms(300);
const FRAME_MS: usize = 100;

fn paced(spoken: &Spoken, rate_hz: usize) {
    let mut sent = 0;
    for (place, (at, bytes)) in spoken.frames.iter().enumerate() {
        sent += bytes / 2;
        let ahead = length(sent, rate_hz).saturating_sub(*at - spoken.started);
        assert!(ahead <= LEAD + ms(1), "{ahead:?} ahead with frame {place}");
        assert!(*bytes <= rate_hz * FRAME_MS / 1000 * 2, "a frame of {bytes} bytes");
    }
    let (played, took) = (length(sent, rate_hz), spoken.ended.unwrap() - spoken.started);
    // Between rates a little of the first second stays behind until the next; C++ says with the next unit that a turn
    // is over.
    let later = if spoken.is_turn() { ms(1300) } else { ms(1) };
    assert!(took + ms(1) >= played && took <= played + later, "{took:?} for {played:?}");
    assert_eq!(spoken.end["audio_ms"], sent * 1000 / rate_hz);
}

fn length(samples: usize, rate_hz: usize) -> Duration {
    Duration::from_nanos(samples as u64 * 1_000_000_000 / rate_hz as u64)
}

#[test]
fn a_burst_leaves_as_it_comes() {
    for backend in Flavour::WITH_CHAT {
        let mut config = PairConfig { profile: "bursts", ..PairConfig::default() };
        let profile = "kind = \"profile\"\nname = \"bursts\"\ntitle = \"-\"\nextends = \"conversation\"\nmode = \"audio\"\n\
            [playout]\npace = \"burst\"\nlead_ms = 0\nframe_ms = 100\nhold_max_ms = 0\n";
        config.library.add("bursts.toml", profile).unwrap();
        backend.serves(&mut config);
        config.simulator.faults = vec!["burst=10,times=1".parse().unwrap()];
        let (mut pair, mut mic) = (Pair::new(config), Mic::of_ms(20));
        mic.silence(&mut pair, 3000);
        answered(&mut pair, &mut mic);
        let first = spoken(&pair).swap_remove(0);
        assert!(first.samples.len() >= 240_000, "{} samples have left", first.samples.len());
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 1, 5_000));
        whole(&spoken(&pair)[0], 1, 11);
        ends_well(pair);
    }
}

#[test]
fn any_rate_leaves_in_real_time_and_a_new_one_counts_from_the_next_turn_on() {
    for (rate_hz, next_hz) in [(8_000, 48_000), (16_000, 22_050), (48_000, 8_000), (44_100, 24_000)] {
        let config = PairConfig {
            profile: "conversation",
            query: format!("model=any&output_sample_rate={rate_hz}"),
            ..PairConfig::default()
        };
        let (mut pair, mut mic) = (Pair::new(config), Mic::of_ms(20));
        mic.silence(&mut pair, 3000);
        answered(&mut pair, &mut mic);
        mic.silence(&mut pair, 600);
        pair.client(&json!({"type": "session.configure", "output_sample_rate": next_hz}));
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 1, 20_000));
        answered(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000));
        for (spoken, rate_hz) in spoken(&pair).iter().zip([rate_hz, next_hz]) {
            paced(spoken, rate_hz);
            assert!(spoken.samples.len().abs_diff(rate_hz * 26 / 10) <= 1, "{}", spoken.samples.len());
        }
        ends_well(pair);
    }
}

#[test]
fn a_model_slower_than_real_time_runs_dry_and_is_held_longer_the_next_time() {
    let mut config = PairConfig { profile: "conversation", ..PairConfig::default() };
    config.simulator.timing.speak_step = ms(1300);
    let (mut pair, mut mic) = (Pair::new(config), Mic::of_ms(20));
    mic.silence(&mut pair, 3000);
    for turn in 1..=2 {
        answered(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == turn, 20_000));
        let spoken = spoken(&pair).pop().unwrap();
        assert_eq!(spoken.turn(), turn as u64);
        // Two gaps of 0.3 s, less what left ahead; the next turn was held for that.
        let gaps = spoken.ended.unwrap() - spoken.started - ms(2600);
        if turn == 1 { assert!(gaps >= ms(400), "{gaps:?}") } else { assert!(gaps <= ms(450), "{gaps:?}") }
    }
    assert!(pair.observed.contains(&Observation::Underrun));
    ends_well(pair);
}

/// Text lanes and conversations never hold more workers than there are, and nobody is refused.
#[test]
fn workers_are_lent_and_given_back() {
    each(|mut pair, mut mic, _| {
        for text in 0..4 {
            mic.silence(&mut pair, 1500);
            say(&mut pair, &text.to_string());
            mic.until(&mut pair, audible, 8000);
            mic.silence(&mut pair, 400 * text);
            pair.client(&json!({"type": "tts.cancel"}));
        }
        is_answered(&mut pair, &mut mic, 1);
        let refused = pair.traffic.iter().any(
            |(_, traffic)| matches!(traffic, Traffic::Received(_, text) if text.contains("session_failed")),
        );
        assert!(!refused);
        ends_well(pair);
    });
}
