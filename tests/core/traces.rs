//! Replays recorded sessions: every build must reproduce the bridge's outputs byte for byte.
//!
//! The traces come from the simulator in virtual time. `VOXBRIDGE_RECORD=1 cargo test --test core traces`
//! records them anew. Do so only after an intended change.

use voxbridge::trace::{
    TraceRecord,
    record::{InputKind, OutputKind},
    replay::{ReplayOutcome, replay_with_mapping},
};

use super::*;

fn traces_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

#[expect(clippy::disallowed_methods, reason = "an instant has no other source; only differences count")]
fn epoch() -> Instant {
    Instant::now()
}

/// Keeps every second sample: 8 kHz is enough for a voice and half as large.
fn downsample_to_8_khz(samples: &[i16]) -> Vec<i16> {
    samples.chunks_exact(2).map(|two| i16::midpoint(two[0], two[1])).collect()
}

/// The microphone at 8 kHz, in real time.
fn stream_at_8_khz(harness: &mut Harness, samples: &[i16]) {
    for frame in downsample_to_8_khz(samples).chunks(800) {
        harness.send_binary(&bytes_of(frame));
        harness.advance(Duration::from_millis(100));
    }
}

fn speech_and_silence(ms: usize) -> Vec<i16> {
    [&recording("goforward_16k.wav")[..16 * ms], &zeros(600)].concat()
}

fn trace_config(profile: &'static str, audio: AudioRetention) -> HarnessConfig {
    let query = "model=any&sample_rate=8000".to_owned();
    HarnessConfig { query, profile, record: Some(audio), ..HarnessConfig::default() }
}

fn run_until_event(harness: &mut Harness, name: &str) {
    let before = harness.events(name).len();
    harness.run_until(|harness| harness.events(name).len() > before, secs(30));
}

/// Closes the session, waits for everything under way, and returns the trace.
fn close_and_take_trace(mut harness: Harness) -> String {
    harness.send_json(&json!({"type": "session.close"}));
    harness.run_until(|harness| harness.finished, secs(60));
    harness.trace().to_owned()
}

/// Plays a session and returns its trace.
type RecordSession = fn() -> String;

/// All recorded sessions by name.
fn sessions() -> [(&'static str, RecordSession); 7] {
    [
        ("speech", || {
            let mut harness = Harness::new(trace_config("speech", AudioRetention::All));
            stream_at_8_khz(&mut harness, &speech_and_silence(1500));
            run_until_event(&mut harness, "vad.speech_end");
            close_and_take_trace(harness)
        }),
        ("settings", || {
            let mut harness = Harness::new(trace_config("speech", AudioRetention::Client));
            harness.send_json(
                &json!({"type": "session.configure", "hot_words": ["forward"], "hot_word_boost": 2,
                "silence_timeout_ms": 200, "language": "zh"}),
            );
            stream_at_8_khz(&mut harness, &speech_and_silence(1200));
            run_until_event(&mut harness, "vad.speech_end");
            close_and_take_trace(harness)
        }),
        ("text", || {
            let mut harness = Harness::new(trace_config("speech", AudioRetention::None));
            harness.send_json(
                &json!({"type": "tts.speak", "text": "Good morning & welcome.", "request_id": "a"}),
            );
            run_until_event(&mut harness, "tts.speaking_end");
            close_and_take_trace(harness)
        }),
        ("cancel", || {
            let mut harness = Harness::new(trace_config("speech", AudioRetention::None));
            harness.send_json(&json!({"type": "tts.speak", "text": "This will not be heard to its end, which is far away."}));
            run_until_event(&mut harness, "tts.speaking_start");
            harness.send_json(&json!({"type": "tts.cancel"}));
            harness.send_json(&json!({"type": "tts.speak", "text": "This will.", "request_id": "b"}));
            run_until_event(&mut harness, "tts.speaking_end");
            close_and_take_trace(harness)
        }),
        ("errors", || {
            let mut harness = Harness::new(trace_config("speech", AudioRetention::None));
            for text in ["{", "[]", "{}", r#"{"type":"nope"}"#, r#"{"type":"tts.speak","text":5}"#] {
                harness.send_text(text);
            }
            close_and_take_trace(harness)
        }),
        ("upstream-dies", || {
            let config = trace_config("speech", AudioRetention::None);
            let mut harness = Harness::new(config.faults(&["die-mid-answer=2,times=1"]));
            harness.send_json(&json!({"type": "tts.speak", "text": "It dies in the middle of this text.", "request_id": "a"}));
            run_until_event(&mut harness, "tts.speaking_end");
            close_and_take_trace(harness)
        }),
        ("barge-in", || {
            let mut config = trace_config("conversation", AudioRetention::Client);
            config.query.push_str("&rollover_events=true");
            let mut harness = Harness::new(config);
            stream_at_8_khz(&mut harness, &speech_and_silence(1800));
            let mut waited = 0;
            while harness.events("tts.speaking_start").is_empty() && waited < 100 {
                stream_at_8_khz(&mut harness, &zeros(100));
                waited += 1;
            }
            stream_at_8_khz(&mut harness, &zeros(500));
            stream_at_8_khz(&mut harness, &speech_and_silence(1800));
            // Long enough for the next unit, which makes the model listen.
            stream_at_8_khz(&mut harness, &zeros(1_000));
            close_and_take_trace(harness)
        }),
    ]
}

fn read_and_replay(text: &str) -> (Trace, ReplayOutcome) {
    let trace = Trace::parse(text).unwrap();
    let outcome = replay(&trace, Library::embedded().unwrap(), epoch()).unwrap();
    (trace, outcome)
}

#[test]
fn recorded_sessions_replay_identically() {
    #[expect(clippy::disallowed_methods, reason = "whether to record is said from outside")]
    let record = std::env::var("VOXBRIDGE_RECORD").is_ok();
    if record {
        for (name, session) in sessions() {
            fs::write(traces_dir().join(format!("{name}.jsonl")), session()).unwrap();
        }
    }
    let mut count = 0;
    for entry in fs::read_dir(traces_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let (trace, outcome) = read_and_replay(&fs::read_to_string(&path).unwrap());
        assert!(outcome.is_same(), "{}: {outcome:#?}", path.display());
        assert!(!trace.is_truncated && trace.lost_records == 0 && outcome.outputs > 3, "{}", path.display());
        count += 1;
    }
    assert!(count >= sessions().len(), "{count} traces");
}

/// Guards against empty traces: each session must contain its feature.
#[test]
fn recorded_sessions_cover_their_features() {
    let trace_text = |name: &str| fs::read_to_string(traces_dir().join(format!("{name}.jsonl"))).unwrap();
    for (name, words) in [
        ("speech", &["vad.speech_start", "transcript.partial", "transcript.final", "vad.speech_end"][..]),
        ("settings", &["transcript.final", "forward", "setting without effect"]),
        ("text", &["Good morning and welcome.", "tts.speaking_end", "[base64 "]),
        ("cancel", &[r#"\"cancelled\":true"#, r#"\"cancelled\":false"#]),
        ("errors", &["malformed_json", "unknown_command", "validation_error"]),
        ("upstream-dies", &["lane_closed", "tts.speaking_start"]),
        (
            "barge-in",
            &["tts.speaking_start", r#"\"cancelled\":true"#, r#"\"force_listen\":true"#, "drop_audio"],
        ),
    ] {
        let text = trace_text(name);
        for word in words {
            assert!(text.contains(word), "{name}: no {word}");
        }
    }
}

#[test]
fn observations_are_plain_words() {
    let mut lines = Vec::new();
    for (name, _) in sessions() {
        let text = fs::read_to_string(traces_dir().join(format!("{name}.jsonl"))).unwrap();
        let trace = Trace::parse(&text).unwrap();
        let observed = trace.records.iter().filter(|record| record.output == Some(OutputKind::Observe));
        lines.extend(observed.map(TraceRecord::content));
    }
    for words in ["lane 0: ready after", "ignored a setting without effect"] {
        assert!(lines.iter().any(|line| line.contains(words)), "no {words:?} in {lines:#?}");
    }
    let is_debug = |line: &&String| ["Some(", "Lane(", "([", " { "].iter().any(|sign| line.contains(sign));
    assert_eq!(lines.iter().filter(is_debug).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn trace_of_an_older_version_is_replayed_without_its_observations() {
    let text = fs::read_to_string(traces_dir().join("version-1.jsonl")).unwrap();
    let (trace, outcome) = read_and_replay(&text);
    assert!(trace.records.iter().any(|record| record.content().contains("LaneReady {")));
    assert!(outcome.is_same() && outcome.not_judged.iter().any(|note| note.contains("older")));
    let without =
        text.lines().filter(|line| !line.contains("LaneReady {")).collect::<Vec<_>>().join("\n") + "\n";
    assert!(!read_and_replay(&without).1.is_same(), "a missing observation is a difference");
}

#[test]
fn recording_is_deterministic() {
    for (name, session) in sessions().into_iter().filter(|(name, _)| ["text", "errors"].contains(name)) {
        assert!(session() == session(), "{name}");
    }
}

#[test]
fn replay_finds_change_at_its_place() {
    let text = fs::read_to_string(traces_dir().join("text.jsonl")).unwrap();
    let changed = text.replace(r#"\"cancelled\":false"#, r#"\"cancelled\":true"#);
    assert_ne!(text, changed);
    let (_, outcome) = read_and_replay(&changed);
    assert_eq!(outcome.differences.count, 1, "{outcome:#?}");
    let difference = &outcome.differences.first[0];
    assert!(difference.expected.as_ref().unwrap().text.as_ref().unwrap().contains("speaking_end"));
    // One line is missing, and one is added.
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("tts.speaking_start")).unwrap();
    let without = [&lines[..at], &lines[at + 1..]].concat().join("\n") + "\n";
    assert_eq!(read_and_replay(&without).1.differences.count, 1);
    let doubled = [&lines[..=at], &lines[at..]].concat().join("\n") + "\n";
    assert_eq!(read_and_replay(&doubled).1.differences.count, 1);
}

#[test]
fn truncated_trace_is_replayed_to_the_cut() {
    for name in ["speech", "text", "cancel"] {
        let text = fs::read_to_string(traces_dir().join(format!("{name}.jsonl"))).unwrap();
        let first = text.find('\n').unwrap() + 1;
        let step = (text.len() - first) / 23;
        for cut in (0..23).map(|at| text.floor_char_boundary(first + at * step)) {
            let (trace, outcome) = read_and_replay(&text[..cut]);
            assert!(trace.is_truncated && outcome.is_same(), "{name} cut at {cut}: {outcome:#?}");
            assert!(outcome.not_judged.iter().any(|note| note.contains("trace ends before")));
        }
    }
}

#[test]
fn replay_without_audio_reports_it_as_not_judged() {
    let mut harness = Harness::new(trace_config("speech", AudioRetention::None));
    stream_at_8_khz(&mut harness, &speech_and_silence(1500));
    run_until_event(&mut harness, "vad.speech_end");
    let (trace, outcome) = read_and_replay(&close_and_take_trace(harness));
    assert!(!trace.records.iter().any(|line| line.base64.is_some()));
    assert!(!outcome.is_same(), "silence was heard as speech");
    assert!(outcome.not_judged.iter().any(|note| note.contains("client's audio")), "{outcome:#?}");
}

#[test]
fn replay_with_other_profile_shows_differences() {
    let text = fs::read_to_string(traces_dir().join("text.jsonl")).unwrap();
    let trace = Trace::parse(&text).unwrap();
    let mut library = Library::embedded().unwrap();
    let same = replay_with_mapping(&trace, &library, MappingKind::Profile, "speech", epoch()).unwrap();
    assert!(same.is_same(), "{same:#?}");
    let source =
        include_str!("../../mappings/profile/speech.toml").replace("\"&\" = \" and \"", "\"&\" = \" plus \"");
    library.add("mine.toml", &source).unwrap();
    let other = replay_with_mapping(&trace, &library, MappingKind::Profile, "speech", epoch()).unwrap();
    assert!(other.differences.count > 0);
    let debug_text = format!("{other:?}");
    assert!(debug_text.contains("Good morning plus welcome."), "{debug_text}");
}

#[test]
fn custom_mappings_are_recorded_in_trace() {
    let mut library = Library::embedded().unwrap();
    let source =
        include_str!("../../mappings/profile/speech.toml").replace("\"&\" = \" and \"", "\"&\" = \" plus \"");
    library.add("mine.toml", &source).unwrap();
    let mut harness = Harness::new(HarnessConfig { library, ..trace_config("speech", AudioRetention::None) });
    harness.send_json(&json!({"type": "tts.speak", "text": "You & me."}));
    run_until_event(&mut harness, "tts.speaking_end");
    let (trace, outcome) = read_and_replay(&close_and_take_trace(harness));
    assert_eq!(trace.header.mappings.len(), 1);
    assert!(outcome.is_same(), "{outcome:#?}");
    assert!(trace.records.iter().any(|line| line.content().contains("You plus me.")));
}

#[test]
fn secrets_and_their_echoes_are_not_in_trace() {
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
    let mut config = trace_config("speech", AudioRetention::None);
    config.query.push_str("&access_token=s3cr3t-query");
    let mut harness = Harness::new(config);
    for text in [
        r#"{"type":"session.configure","api_key":"s3cr3t-key","x":{"Authorization":{"deep":["s3cr3t-deep"]}}}"#,
        r#"{"type":"tts.speak","text":"Hi.","auth":["s3cr3t-list",{"a":"s3cr3t-list"}]}"#,
        r#"{"type":"session.configure","note":"Authorization: Bearer s3cr3t-bearer","url":"wss://x/?a=1&token=s3cr3t-url"}"#,
        // The bridge echoes unknown values.
        r#"{"pass\u0077ord":"s3cr3t-type","type":"s3cr3t-type"}"#,
        r#"{"type":"session.configure","password":"s3cr3t-cut"#,
    ] {
        harness.send_text(text);
    }
    run_until_event(&mut harness, "tts.speaking_end");
    let client_log = format!("{:?}", harness.log);
    assert!(client_log.contains("s3cr3t-type"), "the client never saw the echo");
    let text = close_and_take_trace(harness);
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let (trace, outcome) = read_and_replay(&text);
    assert!(trace.records.iter().filter(|line| line.input == Some(InputKind::Client)).count() > 5);
    // Masking changes lengths, so only the reported position of a truncation may differ.
    let differing = |line: &TraceRecord| line.content().contains("EOF while parsing");
    let mut first = outcome.differences.first.iter();
    assert!(first.all(|it| it.expected.as_ref().is_some_and(differing)), "{outcome:#?}");
    assert!(outcome.not_judged.iter().any(|note| note.contains("secret")), "{outcome:#?}");
}

#[test]
fn invalid_trace_is_rejected_with_line() {
    let good = fs::read_to_string(traces_dir().join("errors.jsonl")).unwrap();
    for (text, line, words) in [
        ("", 1, "begins with its format version"),
        ("{\"type\":\"x\"}\n", 1, "begins with its format version"),
        (&good.replacen("\"trace\":2", "\"trace\":99", 1), 1, "format version 99"),
        (&good.replacen("{\"ns\":", "{\"nanoseconds\":", 1), 2, "nanoseconds"),
    ] {
        let no_trace = Trace::parse(text).unwrap_err();
        assert_eq!(no_trace.line_number, line, "{no_trace}");
        assert!(no_trace.message.contains(words), "{no_trace}");
    }
}
