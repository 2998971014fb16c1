//! Properties for arbitrary inputs.

use proptest::prelude::*;

use super::*;

/// One action of a client, an engine or the clock.
#[derive(Debug, Clone)]
enum Action {
    Connect(SimMode),
    Text(u64, String),
    Binary(u64),
    Gone(u64),
    Engine(u64, bool),
    Pass(u64),
}

fn any_message() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just(json!({"type": "session.init", "payload": {}}).to_string()),
        3 => Just(json!({"type": "input.append", "input": asr_request(800)}).to_string()),
        2 => Just(json!({"type": "input.append", "input": tts_request("Some words to be read.", true)}).to_string()),
        1 => Just(json!({"type": "input.append", "input": tts_request("", false)}).to_string()),
        1 => Just(json!({"type": "input.append", "input": {"messages": [{"role": "user"}]}}).to_string()),
        2 => Just(json!({"type": "session.close", "reason": "x"}).to_string()),
        6 => (0..40_000usize, prop::bool::weighted(0.3), duplex_extras()).prop_map(|(samples, silent, extras)| {
            let level = if silent { 0.0 } else { 0.1 };
            let mut input = json!({"audio": base64_f32(&vec![level; samples])});
            input.as_object_mut().unwrap().extend(extras.as_object().unwrap().clone());
            json!({"type": "input.append", "input": input}).to_string()
        }),
        1 => (any_type_name(), any_json()).prop_map(|(key, value)| {
            json!({"type": "input.append", "input": {"audio": "AAAAAA==", key: value}}).to_string()
        }),
        1 => (any_type_name(), any_json()).prop_map(|(key, value)| {
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
        1 => Just(json!({"video_frames": [PICTURE], "response_id": "mine"})),
    ]
}

/// Every event type that the gateway knows.
fn any_type_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(listed(
        "audio audio_base64 video_frames frames force_listen hints input_id response_id messages \
        system_prompt config voice ref_audio_base64 mode",
    ))
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
        let key = prop_oneof![
            any_type_name().prop_map(str::to_owned),
            Just("temperature".to_owned()),
            any::<String>()
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => prop::sample::select(vec![SimMode::Chat, SimMode::Audio, SimMode::Video]).prop_map(Action::Connect),
        8 => (0..8u64, any_message()).prop_map(|(conn, text)| Action::Text(conn, text)),
        1 => (0..8u64).prop_map(Action::Binary),
        2 => (0..8u64).prop_map(Action::Gone),
        2 => (0..8u64, any::<bool>()).prop_map(|(job, speech)| Action::Engine(job, speech)),
        4 => (0..5_000u64).prop_map(Action::Pass),
    ]
}

fn any_config() -> impl Strategy<Value = SimulatorConfig> {
    let fault = prop::sample::select(listed(
        "queue-full,times=1 403-after-queue=1 stuck-queue,times=1 notices-leavers \
        die-mid-answer=1,times=1 drop-mid-answer,times=1 empty-transcript never-answers,times=1 \
        no-audio slow-init=1 slow-steps=1,times=1 burst=3 never-listens ignores-force yields \
        resumes late-audio die-mid-turn=1 drop-mid-turn=1 double-terminal repeats-text think \
        timeout=9 kv=8000 context-full=200",
    ));
    (any::<bool>(), 0..3usize, 0..3usize, any::<bool>(), prop::collection::vec(fault, 0..3)).prop_map(
        |(cpp, workers, queue_limit, use_engines, faults)| SimulatorConfig {
            backend: if cpp { Backend::Cpp } else { Backend::Pytorch },
            workers,
            queue_limit,
            use_engines,
            force_listen_count: 1,
            record: true,
            faults: faults.into_iter().map(|text| text.parse().unwrap()).collect(),
            ..SimulatorConfig::default()
        },
    )
}

fn run_actions(cfg: &SimulatorConfig, actions: &[Action]) -> TestGateway {
    let mut sim = TestGateway::new(cfg.clone());
    for action in actions {
        match action {
            Action::Connect(mode) => {
                sim.connect_with_mode(*mode);
            }
            Action::Text(conn, text) => sim.input(SimInput::Text(ConnId(*conn), text)),
            Action::Binary(conn) => sim.input(SimInput::Binary(ConnId(*conn))),
            Action::Gone(conn) => sim.input(SimInput::Closed(ConnId(*conn))),
            Action::Engine(job, true) => {
                sim.answer_job(JobId(*job), EngineAnswer::Speech(Ok(vec![0.1; 30_000])));
            }
            Action::Engine(job, false) => {
                sim.answer_job(JobId(*job), EngineAnswer::Transcript(Ok("words".to_owned())));
            }
            Action::Pass(milliseconds) => sim.advance(Duration::from_millis(*milliseconds)),
        }
    }
    sim
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// `TestGateway::input` fails on endless outputs. No output may follow an end.
    #[test]
    fn arbitrary_inputs_never_panic_and_end_is_final(cfg in any_config(), actions in prop::collection::vec(action(), 0..60)) {
        let sim = run_actions(&cfg, &actions);
        for conn in 1..=sim.connection_count {
            let outputs = sim.outputs_of(ConnId(conn));
            let end = outputs.iter().position(|output| !matches!(output, ServerOutput::Event(_)));
            prop_assert!(end.is_none_or(|at| at + 1 == outputs.len()), "{:?}", outputs);
            let names = event_names(&sim.events_of(ConnId(conn)));
            let closed = names.iter().position(|name| name == "session.closed");
            prop_assert!(closed.is_none_or(|at| at + 1 == names.len() && end.is_some()), "{:?}", outputs);
        }
    }

    /// On PyTorch a turn has one id, its units are text and audio, and only a `listen` ends it.
    #[test]
    fn duplex_turns_are_well_formed(levels in prop::collection::vec((prop::bool::ANY, prop::bool::weighted(0.1)), 0..30)) {
        let mut sim = TestGateway::with_backend(Backend::Pytorch);
        let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
        for (speaks, force) in levels {
            let level = if speaks { 0.1 } else { 0.0 };
            let answer = sim.send_second_with(conn, level, json!({"force_listen": force}));
            let known: [&[&str]; 3] = [&["listen"], &["text", "audio"], &["text", "audio", "listen"]];
            prop_assert!(known.iter().any(|known| answer == *known), "{:?}", answer);
        }
        let mut open = None;
        for event in &sim.events_of(conn)[2..] {
            let turn = event["response_id"].as_str();
            prop_assert!(open.is_none() || turn == open.as_deref(), "{} in {:?}", event, open);
            prop_assert!(event["kind"] == "listen" || turn.is_some());
            open = turn.filter(|_| event["kind"] != "listen").map(str::to_owned);
        }
    }

    #[test]
    fn same_inputs_give_same_outputs(cfg in any_config(), actions in prop::collection::vec(action(), 0..40)) {
        prop_assert_eq!(run_actions(&cfg, &actions).outputs, run_actions(&cfg, &actions).outputs);
    }

    /// A driver that wakes late gets the same events, only later.
    #[test]
    fn late_polling_loses_nothing(late in 0..20_000u64) {
        let run = |steps: &[u64]| {
            let mut sim = TestGateway::with_backend(Backend::Pytorch);
            let conn = sim.open_chat_session();
            sim.send_append(conn, tts_request("Some words to be read, rather slowly, and more of them.", true));
            for step in steps {
                sim.now += Duration::from_millis(*step);
                sim.input(SimInput::Timeout);
            }
            sim.events_of(conn)
        };
        prop_assert_eq!(run(&[late, 20_000 - late]), run(&[20_000]));
    }
}
