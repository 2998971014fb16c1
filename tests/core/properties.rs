//! The bridge's guarantees over random sessions in virtual time: client actions, upstream
//! behaviour and clock changes are random. `properties/checks.rs` states the rules for every session.
//! Every run has the same cases; `.cargo/config.toml` tells how to explore further.

mod checks;
mod driver;
mod hearing;
mod regressions;
mod script;
mod test_audio;
mod upstream;

use driver::Driver;
use proptest::prelude::*;
use script::{Script, Step, UnitReply, Upstream};
use test_audio::Sound;
use upstream::{LEVELS, UpstreamEvent, lane_sample};

use super::*;

/// Sessions for each property unless `PROPTEST_CASES` says otherwise: a few seconds of run time in all.
const CASES: u32 = 16;

pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { max_shrink_iters: 2_000, ..ProptestConfig::with_cases(CASES) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn session_invariants_hold(script in script::any_script(false)) {
        Driver::play(&script);
    }

    #[test]
    fn conversation_invariants_hold(script in script::any_conversation_script()) {
        let driver = Driver::play(&script);
        let (account, streamed) = (driver.session.bridge.sample_counts().0, driver.session.bridge.uplink_counts().unwrap());
        let placed = streamed.appended + streamed.silenced + streamed.dropped + streamed.waiting;
        prop_assert_eq!(account.streamed, placed, "{:?}", streamed);
        prop_assert_eq!(account.streamed, account.received);
    }

    #[test]
    fn same_conversation_has_same_outputs(script in script::any_conversation_script()) {
        prop_assert!(Driver::play(&script).log == Driver::play(&script).log);
    }

    #[test]
    fn recorded_trace_replays_identically(
        script in prop_oneof![script::any_script(true), script::any_conversation_script()],
    ) {
        let driver = Driver::play_unchecked(&script);
        let now = driver.session.now;
        // Its recording has no end yet.
        let waits_in_queue = driver.session.bridge.report(now).only_waits_in_queue;
        let trace = Trace::parse(&driver.session.recorder.unwrap().text).unwrap();
        let outcome = replay(&trace, Library::embedded().unwrap(), now).unwrap();
        prop_assert!(outcome.is_same() && (outcome.not_judged.is_empty() || waits_in_queue), "{:#?}", outcome);
        prop_assert!(outcome.outputs >= 1 && outcome.inputs >= 1);
    }

    #[test]
    fn conversation_left_alone_ends(script in script::any_conversation_script()) {
        let mut driver = Driver::for_script(&script);
        script.steps.iter().for_each(|step| driver.step(step));
        // A model that speaks on to a client that reads slowly may do so for an hour.
        driver.step(&Step::Read(script::READS_ALL));
        driver.advance_to(driver.session.now + Duration::from_secs(2_000));
        prop_assert!(driver.is_finished(), "the session waits for an event that never comes");
        driver.finish();
    }

    #[test]
    fn session_invariants_hold_with_format_changes(script in script::any_script(true)) {
        let profile = driver::profile_source(script.interim, script.noise_is_speech);
        let mut driver = Driver::new(&profile, script.upstreams.clone(), "model=m&channels=2&sample_rate=48000");
        driver.checks.formats_change = true;
        script.steps.iter().for_each(|step| driver.step(step));
        driver.finish();
    }

    #[test]
    fn same_inputs_have_same_outputs(script in script::any_script(true)) {
        let play = || {
            let profile = driver::profile_source(script.interim, script.noise_is_speech);
            let mut driver = Driver::new(&profile, script.upstreams.clone(), "model=m");
            driver.checks.formats_change = true;
            script.steps.iter().for_each(|step| driver.step(step));
            driver.finish();
            driver.log
        };
        prop_assert!(play() == play());
    }

    #[test]
    fn session_left_alone_ends(script in script::any_script(false)) {
        let profile = driver::profile_source(script.interim, script.noise_is_speech);
        let mut driver = Driver::new(&profile, script.upstreams.clone(), "model=m");
        script.steps.iter().for_each(|step| driver.step(step));
        // Longer than the client's idle time and a text whose many parts all time out.
        driver.advance_to(driver.session.now + Duration::from_secs(2_000));
        prop_assert!(driver.is_finished(), "the session waits for an event that never comes");
        prop_assert!(driver.checks.requested_texts.is_empty(), "no end of {:?}", driver.checks.requested_texts);
        driver.finish();
    }

    #[test]
    fn audio_framing_does_not_change_questions(
        rate_hz in select(vec![8_000u32, 16_000, 24_000, 44_100, 48_000]),
        channels in 1u16..=2,
        cuts in vec(prop_oneof![700usize..5_000, Just(1), Just(640)], 1..20),
    ) {
        // Cut at single bytes now and then, but not the whole clip.
        let cuts: Vec<usize> = cuts.into_iter().chain([2_001]).collect();
        let whole = regressions::questions_for_clip(rate_hz, channels, 3_000, &[100_000]);
        prop_assert!(!whole.is_empty());
        let cut = regressions::questions_for_clip(rate_hz, channels, 3_000, &cuts);
        prop_assert_eq!(whole.len(), cut.len());
        for (whole, cut) in whole.iter().zip(&cut) {
            let ((whole, words), (cut, same_words)) = (regressions::split_audio(whole), regressions::split_audio(cut));
            prop_assert!(words == same_words && whole.len() == cut.len());
            // Rounding to int16 may go either way.
            let differ = whole.iter().zip(&cut).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            prop_assert!(differ <= 1.0 / 32_768.0, "{}", differ);
        }
    }
}

proptest! {
    // Each of these sessions lasts up to half an hour.
    #![proptest_config(ProptestConfig { cases: config().cases.div_ceil(4), ..config() })]

    #[test]
    fn good_upstreams_are_not_blamed_and_get_their_workers_back(script in script::any_script_of_good_upstreams()) {
        let mut driver = Driver::for_script(&script);
        driver.session.recorder = None;
        script.steps.iter().for_each(|step| driver.step(step));
        driver.step(&Step::Read(script::READS_ALL));
        driver.step(&Step::StreamAudio { sound: Sound::Zeros, ms: 3_000, frame_bytes: 3_200 });
        let was_open = driver.checks.is_session_open();
        // The client stays until all requests have ended: three dozen utterances of four minutes each, at the slowest.
        for _ in 0..450 {
            let holds_no_worker = driver.checks.open_lanes().into_iter().all(|lane| {
                script.trouble.is_some_and(|trouble| trouble.purpose == driver.purposes[&lane])
            });
            if holds_no_worker && driver.checks.requested_texts.is_empty() {
                break;
            }
            driver.step(&Step::Advance(Duration::from_secs(20)));
            driver.step(&Step::StreamAudio { sound: Sound::Zeros, ms: 20, frame_bytes: 640 });
        }
        let purpose_of = |lane| driver.purposes[&lane];
        let is_troubled = |lane| script.trouble.is_some_and(|trouble| trouble.purpose == purpose_of(lane));
        for (at, output) in &driver.log {
            let blamed = match output {
                Output::Observe(Observation::LaneFailed { lane, .. } | Observation::LaneRetry { lane, .. }) => *lane,
                _ => continue,
            };
            prop_assert!(is_troubled(blamed), "{:?} is blamed at {:?}: {:?}", blamed, at, output);
        }
        if was_open {
            let held: Vec<_> = driver.checks.open_lanes().into_iter().filter(|lane| !is_troubled(*lane)).collect();
            prop_assert!(held.is_empty(), "{:?} have workers, but nothing is asked", held);
            prop_assert!(driver.checks.requested_texts.is_empty(), "no end of {:?}", driver.checks.requested_texts);
        }
        driver.finish();
    }
}

/// Counts each kind of output by name.
fn count_outputs(script: &Script, counts: &mut BTreeMap<String, u32>) -> Driver {
    let driver = Driver::play(script);
    let mut count = |what: &str| *counts.entry(what.to_owned()).or_default() += 1;
    for (_, output) in &driver.log {
        match output {
            Output::ToClient(Message::Text(json), _) => {
                count(json.split('"').nth(3).unwrap_or_default());
                if json.contains(r#""cancelled":true"#) {
                    count("cancelled");
                }
            }
            Output::ToClient(Message::Binary(_), _) => count("audio"),
            Output::ToClient(Message::Close(code, _), _) => count(&format!("close {code}")),
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
    if driver.session.bridge.sample_counts().0.muted > 0 {
        count("muted");
    }
    (0..driver.checks.hearing.whole_texts).for_each(|_| count("whole text"));
    driver
}

/// Guards against vacuous properties: the random sessions must produce every kind of output.
#[test]
fn generated_sessions_cover_all_outputs() {
    let mut runner = TestRunner::deterministic();
    let mut counts = BTreeMap::new();
    for _ in 0..100 {
        count_outputs(&script::any_script(false).new_tree(&mut runner).unwrap().current(), &mut counts);
    }
    println!("{counts:#?}");
    for (name, min_count) in [
        ("vad.speech_start", 50),
        ("vad.speech_end", 50),
        ("transcript.partial", 30),
        ("transcript.final", 30),
        ("tts.speaking_start", 30),
        ("audio", 50),
        ("cancelled", 5),
        ("whole text", 5),
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
        assert!(counts.get(name).is_some_and(|count| *count >= min_count), "{name}: {counts:#?}");
    }
}

#[test]
fn generated_conversations_cover_all_outputs() {
    let mut runner = TestRunner::deterministic();
    let mut counts = BTreeMap::new();
    for _ in 0..100 {
        count_outputs(
            &script::any_conversation_script().new_tree(&mut runner).unwrap().current(),
            &mut counts,
        );
    }
    println!("{counts:#?}");
    for (name, min_count) in [
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
        assert!(counts.get(name).is_some_and(|count| *count >= min_count), "{name}: {counts:#?}");
    }
}
