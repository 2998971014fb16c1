//! Sessions recorded once and replayed with every build: what the bridge does with them must stay as it is, byte for byte.
//!
//! They come from the simulator in virtual time. `VOXBRIDGE_RECORD=1 cargo test --test core traces` records them anew, which is
//! right only where what differs was meant to.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::pair::{Pair, PairConfig, recording, zeros};
use serde_json::json;
use voxbridge::{
    mapping::Library,
    trace::{
        Kept, Line, Trace,
        record::Came,
        replay::{Outcome, replay, replay_as},
    },
};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

#[expect(clippy::disallowed_methods, reason = "an instant has no other source; only differences count")]
fn epoch() -> Instant {
    Instant::now()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Half the samples: 8 kHz is enough for a voice, and half as large.
fn small(samples: &[i16]) -> Vec<i16> {
    samples.chunks_exact(2).map(|two| i16::midpoint(two[0], two[1])).collect()
}

/// The microphone at 8 kHz, in real time.
fn stream(pair: &mut Pair, samples: &[i16]) {
    for frame in small(samples).chunks(800) {
        pair.client_binary(&crate::pair::bytes_of(frame));
        pair.advance(Duration::from_millis(100));
    }
}

fn spoken(ms: usize) -> Vec<i16> {
    [&recording("goforward_16k.wav")[..16 * ms], &zeros(600)].concat()
}

fn config(profile: &'static str, audio: Kept) -> PairConfig {
    let query = "model=any&sample_rate=8000".to_owned();
    PairConfig { query, profile, record: Some(audio), ..PairConfig::default() }
}

fn until(pair: &mut Pair, name: &str) {
    let before = pair.events(name).len();
    pair.run_until(|pair| pair.events(name).len() > before, secs(30));
}

/// Says goodbye; the session ends and everything that is on its way comes.
fn leave(mut pair: Pair) -> String {
    pair.client(&json!({"type": "session.close"}));
    pair.run_until(|pair| pair.finished, secs(60));
    pair.tape.unwrap().text
}

/// Plays a session; its trace.
type Session = fn() -> String;

/// Every session there is, by name.
fn sessions() -> [(&'static str, Session); 7] {
    [
        ("speech", || {
            let mut pair = Pair::new(config("speech", Kept::All));
            stream(&mut pair, &spoken(1500));
            until(&mut pair, "vad.speech_end");
            leave(pair)
        }),
        ("settings", || {
            let mut pair = Pair::new(config("speech", Kept::Client));
            pair.client(&json!({"type": "session.configure", "hot_words": ["forward"], "hot_word_boost": 2,
                "silence_timeout_ms": 200, "language": "zh"}));
            stream(&mut pair, &spoken(1200));
            until(&mut pair, "vad.speech_end");
            leave(pair)
        }),
        ("text", || {
            let mut pair = Pair::new(config("speech", Kept::None));
            pair.client(&json!({"type": "tts.speak", "text": "Good morning & welcome.", "request_id": "a"}));
            until(&mut pair, "tts.speaking_end");
            leave(pair)
        }),
        ("cancel", || {
            let mut pair = Pair::new(config("speech", Kept::None));
            pair.client(&json!({"type": "tts.speak", "text": "This will not be heard to its end, which is far away."}));
            until(&mut pair, "tts.speaking_start");
            pair.client(&json!({"type": "tts.cancel"}));
            pair.client(&json!({"type": "tts.speak", "text": "This will.", "request_id": "b"}));
            until(&mut pair, "tts.speaking_end");
            leave(pair)
        }),
        ("errors", || {
            let mut pair = Pair::new(config("speech", Kept::None));
            for text in ["{", "[]", "{}", r#"{"type":"nope"}"#, r#"{"type":"tts.speak","text":5}"#] {
                pair.client_text(text);
            }
            leave(pair)
        }),
        ("upstream-dies", || {
            let mut config = config("speech", Kept::None);
            config.simulator.faults = vec!["die-mid-answer=2,times=1".parse().unwrap()];
            let mut pair = Pair::new(config);
            pair.client(&json!({"type": "tts.speak", "text": "It dies in the middle of this text.", "request_id": "a"}));
            until(&mut pair, "tts.speaking_end");
            leave(pair)
        }),
        ("barge-in", || {
            let mut config = config("conversation", Kept::Client);
            config.query.push_str("&rollover_events=true");
            let mut pair = Pair::new(config);
            stream(&mut pair, &spoken(1800));
            let mut waited = 0;
            while pair.events("tts.speaking_start").is_empty() && waited < 100 {
                stream(&mut pair, &zeros(100));
                waited += 1;
            }
            stream(&mut pair, &zeros(500));
            stream(&mut pair, &spoken(800));
            leave(pair)
        }),
    ]
}

fn replayed(text: &str) -> (Trace, Outcome) {
    let trace = Trace::read(text).unwrap();
    let outcome = replay(&trace, Library::embedded().unwrap(), epoch()).unwrap();
    (trace, outcome)
}

#[test]
fn every_recorded_session_comes_out_as_it_did() {
    #[expect(clippy::disallowed_methods, reason = "whether to record is said from outside")]
    let record = std::env::var("VOXBRIDGE_RECORD").is_ok();
    if record {
        for (name, session) in sessions() {
            fs::write(dir().join(format!("{name}.jsonl")), session()).unwrap();
        }
    }
    let mut count = 0;
    for entry in fs::read_dir(dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let (trace, outcome) = replayed(&fs::read_to_string(&path).unwrap());
        assert!(outcome.is_same(), "{}: {outcome:#?}", path.display());
        assert!(!trace.broken_off && trace.lost == 0 && outcome.outputs > 3, "{}", path.display());
        count += 1;
    }
    assert!(count >= sessions().len(), "{count} traces");
}

/// A trace in which nothing happens would be replayed, too.
#[test]
fn a_lot_happens_in_them() {
    let told = |name: &str| fs::read_to_string(dir().join(format!("{name}.jsonl"))).unwrap();
    for (name, words) in [
        ("speech", &["vad.speech_start", "transcript.partial", "transcript.final", "vad.speech_end"][..]),
        ("settings", &["transcript.final", "forward", "NoEffect"]),
        ("text", &["Good morning and welcome.", "tts.speaking_end", "[base64 "]),
        ("cancel", &[r#"\"cancelled\":true"#, r#"\"cancelled\":false"#]),
        ("errors", &["malformed_json", "unknown_command", "validation_error"]),
        ("upstream-dies", &["lane_closed", "tts.speaking_start"]),
        (
            "barge-in",
            &["tts.speaking_start", r#"\"cancelled\":true"#, r#"\"force_listen\":true"#, "drop_audio"],
        ),
    ] {
        let text = told(name);
        for word in words {
            assert!(text.contains(word), "{name}: nothing of {word}");
        }
    }
}

#[test]
fn a_trace_is_the_same_every_time() {
    for (name, session) in sessions().into_iter().filter(|(name, _)| ["text", "errors"].contains(name)) {
        assert!(session() == session(), "{name}");
    }
}

#[test]
fn a_change_is_found_where_it_is() {
    let text = fs::read_to_string(dir().join("text.jsonl")).unwrap();
    let changed = text.replace(r#"\"cancelled\":false"#, r#"\"cancelled\":true"#);
    assert_ne!(text, changed);
    let (_, outcome) = replayed(&changed);
    assert_eq!(outcome.differences.count, 1, "{outcome:#?}");
    let difference = &outcome.differences.first[0];
    assert!(difference.expected.as_ref().unwrap().text.as_ref().unwrap().contains("speaking_end"));
    // A line that is missing, and one that is too many.
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("tts.speaking_start")).unwrap();
    let without = [&lines[..at], &lines[at + 1..]].concat().join("\n") + "\n";
    assert_eq!(replayed(&without).1.differences.count, 1);
    let doubled = [&lines[..=at], &lines[at..]].concat().join("\n") + "\n";
    assert_eq!(replayed(&doubled).1.differences.count, 1);
}

#[test]
fn what_was_cut_off_is_replayed_up_to_there() {
    for name in ["speech", "text", "cancel"] {
        let text = fs::read_to_string(dir().join(format!("{name}.jsonl"))).unwrap();
        let first = text.find('\n').unwrap() + 1;
        let step = (text.len() - first) / 23;
        for cut in (0..23).map(|at| text.floor_char_boundary(first + at * step)) {
            let (trace, outcome) = replayed(&text[..cut]);
            assert!(trace.broken_off && outcome.is_same(), "{name} cut at {cut}: {outcome:#?}");
            assert!(outcome.not_judged.iter().any(|note| note.contains("breaks off")));
        }
    }
}

#[test]
fn what_is_not_in_the_trace_is_said_not_to_be_judged() {
    let mut pair = Pair::new(config("speech", Kept::None));
    stream(&mut pair, &spoken(1500));
    until(&mut pair, "vad.speech_end");
    let (trace, outcome) = replayed(&leave(pair));
    assert!(!trace.lines.iter().any(|line| line.base64.is_some()));
    assert!(!outcome.is_same(), "silence was heard as speech");
    assert!(outcome.not_judged.iter().any(|note| note.contains("client's audio")), "{outcome:#?}");
}

#[test]
fn another_profile_shows_what_it_changes() {
    let text = fs::read_to_string(dir().join("text.jsonl")).unwrap();
    let trace = Trace::read(&text).unwrap();
    let mut library = Library::embedded().unwrap();
    let same = replay_as(&trace, &library, "speech", epoch()).unwrap();
    assert!(same.is_same(), "{same:#?}");
    let source =
        include_str!("../../mappings/profile/speech.toml").replace("\"&\" = \" and \"", "\"&\" = \" plus \"");
    library.add("mine.toml", &source).unwrap();
    let other = replay_as(&trace, &library, "speech", epoch()).unwrap();
    assert!(other.differences.count > 0);
    let got = format!("{other:?}");
    assert!(got.contains("Good morning plus welcome."), "{got}");
}

#[test]
fn the_mappings_of_ones_own_are_in_the_trace() {
    let mut library = Library::embedded().unwrap();
    let source =
        include_str!("../../mappings/profile/speech.toml").replace("\"&\" = \" and \"", "\"&\" = \" plus \"");
    library.add("mine.toml", &source).unwrap();
    let mut pair = Pair::new(PairConfig { library, ..config("speech", Kept::None) });
    pair.client(&json!({"type": "tts.speak", "text": "You & me."}));
    until(&mut pair, "tts.speaking_end");
    let (trace, outcome) = replayed(&leave(pair));
    assert_eq!(trace.start.mappings.len(), 1);
    assert!(outcome.is_same(), "{outcome:#?}");
    assert!(
        trace.lines.iter().any(|line| line.text.as_ref().is_some_and(|text| text.contains("You plus me.")))
    );
}

#[test]
fn secrets_are_not_in_a_trace_nor_what_echoes_them() {
    const SECRETS: [&str; 8] = [
        "s3cr3t-query",
        "s3cr3t-key",
        "s3cr3t-deep",
        "s3cr3t-list",
        "s3cr3t-bearer",
        "s3cr3t-url",
        "s3cr3t-type",
        "s3cr3t-cut",
    ];
    let mut config = config("speech", Kept::None);
    config.query.push_str("&access_token=s3cr3t-query");
    let mut pair = Pair::new(config);
    for text in [
        r#"{"type":"session.configure","api_key":"s3cr3t-key","x":{"Authorization":{"deep":["s3cr3t-deep"]}}}"#,
        r#"{"type":"tts.speak","text":"Hi.","auth":["s3cr3t-list",{"a":"s3cr3t-list"}]}"#,
        r#"{"type":"session.configure","note":"Authorization: Bearer s3cr3t-bearer","url":"wss://x/?a=1&token=s3cr3t-url"}"#,
        // The bridge echoes what it does not know.
        r#"{"pass\u0077ord":"s3cr3t-type","type":"s3cr3t-type"}"#,
        r#"{"type":"session.configure","password":"s3cr3t-cut"#,
    ] {
        pair.client_text(text);
    }
    until(&mut pair, "tts.speaking_end");
    let seen = format!("{:?}", pair.log);
    assert!(seen.contains("s3cr3t-type"), "the echo is not tested");
    let text = leave(pair);
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let (trace, outcome) = replayed(&text);
    assert!(trace.lines.iter().filter(|line| line.came == Some(Came::Client)).count() > 5);
    // Only where a message was cut off is told by its length, which a mask changes.
    let differing = |line: &Line| line.content().contains("EOF while parsing");
    let mut first = outcome.differences.first.iter();
    assert!(first.all(|it| it.expected.as_ref().is_some_and(differing)), "{outcome:#?}");
    assert!(outcome.not_judged.iter().any(|note| note.contains("secret")), "{outcome:#?}");
}

#[test]
fn what_is_no_trace_is_told_by_its_line() {
    let good = fs::read_to_string(dir().join("errors.jsonl")).unwrap();
    for (text, line, words) in [
        ("", 1, "a trace begins with"),
        ("{\"type\":\"x\"}\n", 1, "a trace begins with"),
        (&good.replacen("\"trace\":1", "\"trace\":99", 1), 1, "format 99"),
        (&good.replacen("{\"ns\":", "{\"nanoseconds\":", 1), 2, "nanoseconds"),
    ] {
        let no_trace = Trace::read(text).unwrap_err();
        assert_eq!(no_trace.line, line, "{no_trace}");
        assert!(no_trace.words.contains(words), "{no_trace}");
    }
}
