//! What holds for any inputs at all.

use proptest::prelude::*;

use super::*;

/// One thing that clients, engines or time may do.
#[derive(Debug, Clone)]
enum Act {
    Connect(Mode),
    Text(u64, String),
    Binary(u64),
    Gone(u64),
    Engine(u64, bool),
    Pass(u64),
}

fn message() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just(json!({"type": "session.init", "payload": {}}).to_string()),
        3 => Just(json!({"type": "input.append", "input": asr(800)}).to_string()),
        2 => Just(json!({"type": "input.append", "input": tts("Some words to be read.", true)}).to_string()),
        1 => Just(json!({"type": "input.append", "input": tts("", false)}).to_string()),
        1 => Just(json!({"type": "input.append", "input": {"messages": [{"role": "user"}]}}).to_string()),
        2 => Just(json!({"type": "session.close", "reason": "x"}).to_string()),
        6 => (0..40_000usize, prop::bool::weighted(0.3), duplex_extras()).prop_map(|(samples, silent, extras)| {
            let level = if silent { 0.0 } else { 0.1 };
            let mut input = json!({"audio": base64_f32(&vec![level; samples])});
            input.as_object_mut().unwrap().extend(extras.as_object().unwrap().clone());
            json!({"type": "input.append", "input": input}).to_string()
        }),
        1 => (name(), any_json()).prop_map(|(key, value)| {
            json!({"type": "input.append", "input": {"audio": "AAAAAA==", key: value}}).to_string()
        }),
        1 => (name(), any_json()).prop_map(|(key, value)| {
            json!({"type": "session.init", "payload": {key: value}}).to_string()
        }),
        1 => any_json().prop_map(|value| json!({"type": "input.append", "input": value}).to_string()),
        1 => any::<String>(),
    ]
}

fn duplex_extras() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => Just(json!({})),
        1 => Just(json!({"force_listen": true, "input_id": "in"})),
        1 => Just(json!({"video_frames": ["/9j/4AAQSkZJRg=="], "response_id": "mine"})),
    ]
}

/// Every name that is looked at.
fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "audio",
        "audio_base64",
        "video_frames",
        "frames",
        "force_listen",
        "hints",
        "input_id",
        "response_id",
        "messages",
        "system_prompt",
        "config",
        "voice",
        "ref_audio_base64",
        "mode",
    ])
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[A-Za-z0-9+/=]{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key =
            prop_oneof![name().prop_map(str::to_owned), Just("temperature".to_owned()), any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => prop::sample::select(vec![Mode::Chat, Mode::Audio, Mode::Video]).prop_map(Act::Connect),
        8 => (0..8u64, message()).prop_map(|(conn, text)| Act::Text(conn, text)),
        1 => (0..8u64).prop_map(Act::Binary),
        2 => (0..8u64).prop_map(Act::Gone),
        2 => (0..8u64, any::<bool>()).prop_map(|(job, speech)| Act::Engine(job, speech)),
        4 => (0..5_000u64).prop_map(Act::Pass),
    ]
}

fn config() -> impl Strategy<Value = SimulatorConfig> {
    let fault = prop::sample::select(vec![
        "queue-full,times=1",
        "403-after-queue=1",
        "stuck-queue,times=1",
        "die-mid-answer=1,times=1",
        "drop-mid-answer,times=1",
        "empty-transcript",
        "never-answers,times=1",
        "no-audio",
        "slow-init=1",
        "slow-steps=1,times=1",
        "burst=3",
        "never-listens",
        "ignores-force",
        "yields",
        "resumes",
        "late-audio",
        "die-mid-turn=1",
        "drop-mid-turn=1",
        "double-terminal",
        "repeats-text",
        "think",
        "timeout=9",
        "kv=8000",
        "context-full=200",
    ]);
    (any::<bool>(), 0..3usize, 0..3usize, any::<bool>(), prop::collection::vec(fault, 0..3)).prop_map(
        |(cpp, workers, queue_limit, engines, faults)| SimulatorConfig {
            backend: if cpp { Backend::Cpp } else { Backend::Pytorch },
            workers,
            queue_limit,
            engines,
            force_listen_count: 1,
            record: true,
            faults: faults.into_iter().map(|text| text.parse().unwrap()).collect(),
            ..SimulatorConfig::default()
        },
    )
}

fn play(cfg: &SimulatorConfig, acts: &[Act]) -> Lab {
    let mut lab = Lab::new(cfg.clone());
    for act in acts {
        match act {
            Act::Connect(mode) => {
                lab.connect_to(*mode);
            }
            Act::Text(conn, text) => lab.input(SimInput::Text(ConnId(*conn), text)),
            Act::Binary(conn) => lab.input(SimInput::Binary(ConnId(*conn))),
            Act::Gone(conn) => lab.input(SimInput::Closed(ConnId(*conn))),
            Act::Engine(job, true) => lab.engine(JobId(*job), EngineAnswer::Speech(Ok(vec![0.1; 30_000]))),
            Act::Engine(job, false) => {
                lab.engine(JobId(*job), EngineAnswer::Transcript(Ok("words".to_owned())));
            }
            Act::Pass(milliseconds) => lab.pass(Duration::from_millis(*milliseconds)),
        }
    }
    lab
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// `Lab::drain` fails when there is no bound, and nothing may be said after an end.
    #[test]
    fn any_inputs_are_survived_and_an_end_is_an_end(cfg in config(), acts in prop::collection::vec(act(), 0..60)) {
        let lab = play(&cfg, &acts);
        for conn in 1..=lab.connections {
            let seen = lab.seen(ConnId(conn));
            let end = seen.iter().position(|seen| !matches!(seen, Seen::Event(_)));
            prop_assert!(end.is_none_or(|at| at + 1 == seen.len()), "{:?}", seen);
            let names = names(&lab.events(ConnId(conn)));
            let closed = names.iter().position(|name| name == "session.closed");
            prop_assert!(closed.is_none_or(|at| at + 1 == names.len() && end.is_some()), "{:?}", seen);
        }
    }

    /// On PyTorch a turn has one name, its units are text and sound, and only a `listen` ends it.
    #[test]
    fn turns_are_well_formed(levels in prop::collection::vec((prop::bool::ANY, prop::bool::weighted(0.1)), 0..30)) {
        let mut lab = Lab::on(Backend::Pytorch);
        let conn = lab.duplex(Mode::Audio, json!({}));
        for (speaks, force) in levels {
            let level = if speaks { 0.1 } else { 0.0 };
            let answer = lab.second_with(conn, level, json!({"force_listen": force}));
            let known: [&[&str]; 3] = [&["listen"], &["text", "audio"], &["text", "audio", "listen"]];
            prop_assert!(known.iter().any(|known| answer == *known), "{:?}", answer);
        }
        let mut open = None;
        for event in &lab.events(conn)[2..] {
            let turn = event["response_id"].as_str();
            prop_assert!(open.is_none() || turn == open.as_deref(), "{} in {:?}", event, open);
            prop_assert!(event["kind"] == "listen" || turn.is_some());
            open = turn.filter(|_| event["kind"] != "listen").map(str::to_owned);
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(cfg in config(), acts in prop::collection::vec(act(), 0..40)) {
        prop_assert_eq!(play(&cfg, &acts).raw, play(&cfg, &acts).raw);
    }

    /// A driver that wakes late gets the same words, only later.
    #[test]
    fn lateness_loses_nothing(late in 0..20_000u64) {
        let run = |steps: &[u64]| {
            let mut lab = Lab::on(Backend::Pytorch);
            let conn = lab.session();
            lab.append(conn, tts("Some words to be read, rather slowly, and more of them.", true));
            for step in steps {
                lab.now += Duration::from_millis(*step);
                lab.input(SimInput::Timeout);
            }
            lab.events(conn)
        };
        prop_assert_eq!(run(&[late, 20_000 - late]), run(&[20_000]));
    }
}
