//! The bridge's guarantees (design §4) over arbitrary sessions, in virtual time: what a client does, what upstreams do
//! and what time does are chance; `properties/checks.rs` says what must hold of all of them.

mod checks;
mod driver;
mod found;
mod script;
mod sound;
mod upstream;

use std::{collections::BTreeMap, time::Duration};

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use voxbridge::{
    bridge::Output,
    event::Message,
    mapping::Library,
    session::Observation,
    trace::{Trace, replay::replay},
};

use driver::Driver;

/// Sessions for each property unless `PROPTEST_CASES` says otherwise: a few seconds in all.
const CASES: u32 = 64;

fn cases() -> ProptestConfig {
    #[expect(
        clippy::disallowed_methods,
        reason = "proptest's own variable, which a number in the code overrides"
    )]
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(CASES), max_shrink_iters: 2_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_session_keeps_its_promises(script in script::script(false)) {
        Driver::play(&script);
    }

    #[test]
    fn every_conversation_keeps_its_promises(script in script::talk_script()) {
        let driver = Driver::play(&script);
        let (account, streamed) = (driver.bridge.account().0, driver.bridge.streamed().unwrap());
        let placed = streamed.appended + streamed.hushed + streamed.dropped + streamed.waiting;
        prop_assert_eq!(account.streamed, placed, "{:?}", streamed);
        prop_assert_eq!(account.streamed, account.taken);
    }

    #[test]
    fn the_same_conversation_has_the_same_outputs(script in script::talk_script()) {
        prop_assert!(Driver::play(&script).log == Driver::play(&script).log);
    }

    #[test]
    fn what_was_recorded_can_be_played_again(
        script in prop_oneof![script::script(true), script::talk_script()],
    ) {
        let driver = Driver::play_unchecked(&script);
        let trace = Trace::read(&driver.tape.text).unwrap();
        let outcome = replay(&trace, Library::embedded().unwrap(), driver.now).unwrap();
        prop_assert!(outcome.is_same() && outcome.not_judged.is_empty(), "{:#?}", outcome);
        prop_assert!(outcome.outputs >= 1 && outcome.inputs >= 1);
    }

    #[test]
    fn a_conversation_left_alone_ends(script in script::talk_script()) {
        let mut driver = Driver::at_start_of(&script);
        script.steps.iter().for_each(|step| driver.step(step));
        driver.pass(driver.now + Duration::from_secs(2_000));
        prop_assert!(driver.is_finished(), "something is waited for that never comes");
        driver.end();
    }

    #[test]
    fn changing_formats_keep_them_too(script in script::script(true)) {
        let profile = driver::profile_source(script.interim, script.noise_is_speech);
        let mut driver = Driver::new(&profile, script.upstreams.clone(), "model=m&channels=2&sample_rate=48000");
        driver.checks.formats = true;
        script.steps.iter().for_each(|step| driver.step(step));
        driver.end();
    }

    #[test]
    fn the_same_inputs_have_the_same_outputs(script in script::script(true)) {
        let play = || {
            let profile = driver::profile_source(script.interim, script.noise_is_speech);
            let mut driver = Driver::new(&profile, script.upstreams.clone(), "model=m");
            driver.checks.formats = true;
            script.steps.iter().for_each(|step| driver.step(step));
            driver.end();
            driver.log
        };
        prop_assert!(play() == play());
    }

    #[test]
    fn a_session_left_alone_ends(script in script::script(false)) {
        let profile = driver::profile_source(script.interim, script.noise_is_speech);
        let mut driver = Driver::new(&profile, script.upstreams.clone(), "model=m");
        script.steps.iter().for_each(|step| driver.step(step));
        // Longer than a text of many parts, each waited for in vain, and the client's idle time.
        driver.pass(driver.now + Duration::from_secs(2_000));
        prop_assert!(driver.is_finished(), "something is waited for that never comes");
        driver.end();
    }

    #[test]
    fn how_audio_is_framed_changes_nothing(
        rate_hz in prop::sample::select(vec![8_000u32, 16_000, 24_000, 44_100, 48_000]),
        channels in 1u16..=2,
        cuts in prop::collection::vec(prop_oneof![700usize..5_000, Just(1), Just(640)], 1..20),
    ) {
        // A single byte now and then, not a clip of them.
        let cuts: Vec<usize> = cuts.into_iter().chain([2_001]).collect();
        let whole = found::asked_of(rate_hz, channels, 3_000, &[100_000]);
        prop_assert!(!whole.is_empty());
        let cut = found::asked_of(rate_hz, channels, 3_000, &cuts);
        prop_assert_eq!(whole.len(), cut.len());
        for (whole, cut) in whole.iter().zip(&cut) {
            let ((whole, words), (cut, same_words)) = (found::audio_in(whole), found::audio_in(cut));
            prop_assert!(words == same_words && whole.len() == cut.len());
            // Rounding to int16 may fall to the other side.
            let differ = whole.iter().zip(&cut).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            prop_assert!(differ <= 1.0 / 32_768.0, "{}", differ);
        }
    }
}

/// How often which of the outputs came, by name.
fn counted(script: &script::Script, seen: &mut BTreeMap<String, u32>) -> Driver {
    let driver = Driver::play(script);
    let mut count = |what: &str| *seen.entry(what.to_owned()).or_default() += 1;
    for (_, output) in &driver.log {
        match output {
            Output::ToClient(Message::Text(json)) => {
                count(json.split('"').nth(3).unwrap_or_default());
                if json.contains(r#""cancelled":true"#) {
                    count("cancelled");
                }
            }
            Output::ToClient(Message::Binary(_)) => count("audio"),
            Output::ToClient(Message::Close(code, _)) => count(&format!("close {code}")),
            Output::Observe(Observation::LaneRetry { .. }) => count("retry"),
            Output::Observe(Observation::RolledOver { reason, .. }) => count(reason.name()),
            Output::Observe(Observation::Interrupted) => count("interrupted"),
            Output::ToLane(_, Message::Text(json)) if json.contains(r#""force_listen":true"#) => {
                count("forced");
            }
            Output::ToLane(_, Message::Text(json)) if json.contains("video_frames") => count("picture"),
            Output::ToLane(_, Message::Text(json)) if json.contains("append") => count("question"),
            Output::CloseLane(_) => count("given up"),
            _ => {}
        }
    }
    if driver.bridge.account().0.muted > 0 {
        count("muted");
    }
    driver
}

/// The properties would hold of sessions in which nothing happens, too.
#[test]
fn a_lot_happens_in_these_sessions() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for _ in 0..100 {
        counted(&script::script(false).new_tree(&mut runner).unwrap().current(), &mut seen);
    }
    println!("{seen:#?}");
    for (what, least) in [
        ("vad.speech_start", 50),
        ("vad.speech_end", 50),
        ("transcript.partial", 30),
        ("transcript.final", 30),
        ("tts.speaking_start", 30),
        ("audio", 50),
        ("cancelled", 5),
        ("muted", 10),
        ("session.frames_dropped", 3),
        ("session.rate_limit", 3),
        ("error", 30),
        ("session.closed", 20),
        ("close 1000", 10),
        ("close 1001", 1),
        ("close 1012", 1),
        ("retry", 30),
        ("question", 60),
        ("given up", 30),
    ] {
        assert!(seen.get(what).is_some_and(|count| *count >= least), "{what}: {seen:#?}");
    }
}

#[test]
fn a_lot_happens_in_these_conversations() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for _ in 0..100 {
        counted(&script::talk_script().new_tree(&mut runner).unwrap().current(), &mut seen);
    }
    println!("{seen:#?}");
    for (what, least) in [
        ("vad.speech_start", 50),
        ("transcript.partial", 50),
        ("transcript.final", 50),
        ("tts.speaking_start", 50),
        ("audio", 300),
        ("cancelled", 20),
        ("interrupted", 20),
        ("forced", 30),
        ("picture", 1),
        ("muted", 3),
        ("session.frames_dropped", 3),
        ("upstream_lost", 30),
        ("not_yielding", 1),
        ("worker_lent", 1),
        ("session.rollover", 1),
        ("error", 30),
        ("question", 300),
    ] {
        assert!(seen.get(what).is_some_and(|count| *count >= least), "{what}: {seen:#?}");
    }
}
