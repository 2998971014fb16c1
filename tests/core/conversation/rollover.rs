//! A conversation moves to another upstream session before the old one ends: when, at which moment, with which memory,
//! and with a session in readiness.

use serde_json::json;
use voxbridge::{
    event::RolloverReason::{Context, Lost, Time},
    mapping::{Kind, Library},
};

use super::{flavour::Flavour, pair::PairConfig, support::*};

/// The upstream does not say how full the context is.
fn without_metrics(mut config: PairConfig) -> PairConfig {
    let embedded = Library::embedded().unwrap();
    let is_it = |kind: Kind, name: &str| kind == Kind::Upstream && name == config.upstream;
    let (_, _, file, source) = embedded.files().find(|(kind, name, ..)| is_it(*kind, name)).unwrap();
    config.library.add(file, &source.replace("/kv_cache_length", "/nothing")).unwrap();
    config
}

/// When each upstream session was left.
fn left_at(talk: &Talk) -> Vec<u64> {
    talk.goodbyes.iter().map(|at| at.as_secs()).collect()
}

#[test]
fn before_the_time_limit() {
    for (profile, from, to) in [("conversation", 550, 580), ("video", 270, 290)] {
        let mut talk = Talk::new(PairConfig { profile, ..with_init(config(Flavour::Pytorch, &[]), 2_000) });
        while talk.rollovers().len() < 2 {
            talk.ask();
            talk.wait(secs(30));
        }
        assert_eq!(talk.rollovers(), [(Time, 2_020, false); 2], "{profile}");
        assert_eq!(talk.told_rollovers(), vec![("time_limit".to_owned(), 2_020, false); 2]);
        let first = talk.goodbyes[0].as_secs();
        assert!((from..=to).contains(&first), "{profile}: left at {first} s");
        talk.never_left_waiting();
        talk.heard_all(talk.questions.len());
        talk.proves();
        talk.ends_well();
    }
}

#[test]
fn who_does_not_ask_sees_nothing_of_it() {
    let mut talk = Talk::quietly(with_init(config(Flavour::Pytorch, &["kv=7150,times=1"]), 2_000));
    talk.quiet(12_000);
    talk.ask();
    assert_eq!(talk.rollovers(), [(Context, 2_020, false)]);
    assert_eq!(talk.told_rollovers(), []);
    talk.ends_well();
}

#[test]
fn sessions_that_are_full_from_the_start_are_no_storm() {
    let mut talk = Talk::new(with_init(config(Flavour::Pytorch, &["kv=8100"]), 500));
    talk.quiet(120_000);
    let ends = talk.pair.events("error");
    assert_eq!(ends.last().map(|error| &error["recoverable"]), Some(&json!(false)), "it ends loudly");
    assert!(talk.pair.openings.len() < 30, "{} sessions in a minute", talk.pair.openings.len());
}

#[test]
fn before_the_context_is_full_and_never_between_question_and_answer() {
    for backend in BACKENDS {
        for kv in (7_040..7_200).step_by(13) {
            let mut talk = Talk::new(with_init(config(backend, &[&format!("kv={kv},times=1")]), 2_000));
            for _ in 0..3 {
                talk.ask();
                talk.quiet(2_000);
            }
            assert_eq!(talk.rollovers(), [(Context, 2_020, false)], "{backend:?} {kv}");
            talk.never_left_waiting();
            talk.heard_all(3);
            talk.proves();
            talk.ends_well();
        }
    }
}

#[test]
fn a_context_nobody_reports_is_estimated_with_its_pictures() {
    for backend in BACKENDS {
        // A turn takes a unit more there, and so do its positions.
        let least = if backend == Flavour::Documented { 340 } else { 350 };
        for (frames, from, to) in [(false, least, 500), (true, 80, 100)] {
            let mut config = without_metrics(config(backend, &[]));
            config.profile = if frames { "video" } else { "conversation" };
            let mut talk = Talk::new(config);
            while talk.rollovers().is_empty() {
                talk.say(&speaker(1));
                for _ in 0..9 {
                    if frames {
                        talk.pair.client_text(r#"{"type": "video.frame", "image": "/9j/4AAQ"}"#);
                    }
                    talk.quiet(1_000);
                }
            }
            assert_eq!(talk.rollovers()[0].0, Context, "{backend:?}");
            assert!((from..to).contains(&left_at(&talk)[0]), "{backend:?}: {:?}", left_at(&talk));
            talk.proves();
            talk.ends_well();
        }
    }
}

#[test]
fn nobody_who_never_stops_keeps_it_up() {
    for backend in BACKENDS {
        // The user: no quiet moment from the soft bound on, 28 positions a second until the hard one.
        let mut talk = Talk::new(with_init(config(backend, &["kv=7100,times=1"]), 2_000));
        talk.say(&speaker(60));
        assert_eq!(talk.rollovers(), [(Context, 2_020, false)], "{backend:?}");
        assert!((30..=36).contains(&left_at(&talk)[0]), "{backend:?}: {:?}", left_at(&talk));
        talk.hears_answer(0);
        talk.proves();
        talk.ends_well();

        // The model: what was said is heard to its end, and the conversation goes on.
        let faults = ["kv=7500,times=1", "never-listens,times=1"];
        let mut talk = Talk::new(with_init(config(backend, &faults), 2_000));
        talk.ask();
        let turns = talk.turns();
        // The documented server's turns begin with half a unit.
        let unit = if backend == Flavour::Documented { 12_000 } else { 24_000 };
        assert!(turns.len() == 1 && turns[0].1 > 10 * 24_000 && turns[0].1.is_multiple_of(unit), "{turns:?}");
        talk.ask();
        assert_eq!(talk.turns()[1..], [(2, TURN_SAMPLES)], "{backend:?}");
        assert_eq!(talk.rollovers(), [(Context, 2_020, false)], "{backend:?}");
        talk.proves();
        talk.ends_well();
    }
}

#[test]
fn a_server_may_end_its_session_at_any_second() {
    for backend in BACKENDS {
        for second in 1..=24 {
            let faults = [&*format!("timeout={second},times=1")];
            let mut talk = Talk::new(with_init(config(backend, &faults), 800));
            while talk.pair.now() < secs(second + 2) {
                talk.question();
                talk.quiet(4_000);
            }
            talk.quiet(12_000);
            let told = [("worker_crash".to_owned(), true)];
            assert_eq!(talk.errors(), told, "{backend:?} {second}");
            let [(Lost, gap, false)] = talk.rollovers()[..] else { panic!("{:?}", talk.rollovers()) };
            assert!((900..1_100).contains(&gap), "{backend:?} {second}: {gap} ms");
            assert!(talk.again <= 64_000, "a question at most");
            talk.turns();
            talk.ask();
            talk.proves();
            talk.ends_well();
        }
    }
}

#[test]
fn the_next_session_is_told_what_was_said() {
    let mut config = config(Flavour::Pytorch, &["kv=5900,times=1"]);
    config.library = with_rules(config.library, &[("memory_max_chars = 2000", "memory_max_chars = 120")]);
    let mut talk = Talk::new(config);
    for seconds in 1..=6 {
        let before = talk.ended;
        talk.say(&speaker(seconds));
        talk.hears_answer(before);
    }
    talk.quiet(5_000);
    while talk.pair.openings.len() < 2 {
        talk.quiet(1_000);
    }
    let prompts: Vec<&str> =
        talk.pair.openings.iter().map(|(_, opening)| opening.prompt.as_deref().unwrap()).collect();
    assert_eq!(prompts[0], "You are a helpful assistant.");
    let (_, said) = prompts[1].split_once("mentioning it: ").unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(said.chars().count() <= 122 && lines.len() == 2, "{said}");
    assert!(lines.iter().all(|line| line.starts_with("Assistant: I heard ")), "{said}");
    let finals = talk.pair.events("transcript.final");
    assert_eq!(lines[1], format!("Assistant: {}", finals[5]["text"].as_str().unwrap()), "the newest is last");
    assert_eq!(lines[0], format!("Assistant: {}", finals[4]["text"].as_str().unwrap()));
    talk.ends_well();
}
