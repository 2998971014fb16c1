//! The guarantees hold for random clients and random failures.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum ClientAction {
    Speech(u64),
    Silence(u64),
    Wait(u64),
    Send(&'static str),
    Binary(usize),
    BreakLanes,
}

const COMMANDS: [&str; 12] = [
    r#"{"type":"tts.speak","text":"One two three four five six seven eight nine ten.","request_id":"r"}"#,
    r#"{"type":"tts.speak","text":"Yes."}"#,
    r#"{"type":"tts.cancel"}"#,
    r#"{"type":"input_audio_buffer.commit"}"#,
    r#"{"type":"session.configure","input_sample_rate":8000}"#,
    r#"{"type":"session.configure","input_sample_rate":16000,"channels":1}"#,
    r#"{"type":"session.configure","channels":2,"output_sample_rate":8000}"#,
    r#"{"type":"session.configure","silence_timeout_ms":100,"max_segment_duration_ms":1000}"#,
    r#"{"type":"session.configure","vad_sensitivity":"high","enable_partial_transcripts":false}"#,
    r#"{"type":"nonsense"}"#,
    "{",
    r#"{"type":"tts.speak","text":"   "}"#,
];

const FAULTS: &str = "queue-full,times=3 busy,times=1 403-after-queue=2 stuck-queue,times=1 slow-init=7,times=1 \
    die-before-created,times=1 never-answers,times=1 die-mid-answer=1,times=2 \
    drop-mid-answer=0,times=1 empty-transcript,times=1 no-audio,times=1";

fn any_action() -> impl Strategy<Value = ClientAction> {
    prop_oneof![
        4 => (100u64..2500).prop_map(ClientAction::Speech),
        4 => (100u64..1500).prop_map(ClientAction::Silence),
        2 => (0u64..3000).prop_map(ClientAction::Wait),
        1 => (10_000u64..40_000).prop_map(ClientAction::Wait),
        8 => select(&COMMANDS[..]).prop_map(ClientAction::Send),
        1 => (0usize..5000).prop_map(ClientAction::Binary),
        1 => Just(ClientAction::BreakLanes),
    ]
}

fn play_session(
    actions: &[ClientAction],
    faults: &[&str],
    workers: usize,
    latency_ms: u64,
    seed: u64,
    is_chained: bool,
) -> Harness {
    let config = HarnessConfig { latency: ms(latency_ms), seed, ..HarnessConfig::with_faults(faults) };
    let mut harness = Harness::new(config.chained(is_chained).workers(workers));
    for action in actions {
        if harness.is_closed() {
            break;
        }
        match action {
            ClientAction::Speech(length_ms) => harness.stream(&voice(*length_ms), 40),
            ClientAction::Silence(length_ms) => harness.stream(&zeros(*length_ms), 40),
            ClientAction::Wait(wait_ms) => harness.advance(ms(*wait_ms)),
            ClientAction::Send(text) => harness.send_text(text),
            ClientAction::Binary(count) => harness.send_binary(&vec![7; *count]),
            ClientAction::BreakLanes => harness.break_lanes(),
        }
    }
    harness
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_session_closes_its_pairs_and_accounts_for_samples(
        actions in vec(any_action(), 1..24),
        faults in prop::sample::subsequence(listed(FAULTS), 0..3),
        workers in 1usize..3,
        latency_ms in 0u64..60,
        leaves in any::<bool>(),
        is_chained in prop::bool::weighted(0.3),
    ) {
        let mut harness = play_session(&actions, &faults, workers, latency_ms, 1, is_chained);
        let sent_bytes = harness.sent_bytes;
        prop_assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
        if leaves {
            harness.close_client();
        } else {
            harness.send_text(r#"{"type":"session.close"}"#);
            // Pending speech is still answered for as long as the real server would wait.
            harness.advance(secs(5));
            prop_assert!(harness.is_closed(), "still open: {:?}", harness.names());
        }
        prop_assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
        harness.advance(secs(120));
        prop_assert!(harness.is_over(), "the bridge never finishes");
        let refused = harness.received_count("server rejected WebSocket");
        let faulty = actions.iter().any(|action| matches!(action, ClientAction::BreakLanes)) || !faults.is_empty();
        // A lane that is given up during its dial may already have a worker. No goodbye is possible before
        // `init`, so the next session is rejected once and retried.
        prop_assert!(refused == 0 || faulty || latency_ms > 0, "{} sessions refused", refused);
        let corrupted = harness.received_count(CORRUPTED_PREFIX.trim());
        prop_assert!(corrupted == 0 || faulty, "{} answers corrupted", corrupted);
        let reformatted = actions.iter().any(|action| matches!(action, ClientAction::Send(text) if text.contains("channels") || text.contains("_rate")));
        if !reformatted {
            let (account, dropped) = harness.bridge().sample_counts();
            let placed = account.recorded + account.silent + account.pending;
            prop_assert_eq!(account.received, placed, "{:?}", account);
            // A dropped frame of odd length leaves half a sample.
            let accounted = account.received + account.muted + dropped;
            prop_assert!(accounted.abs_diff(sent_bytes / 2) <= 1, "{:?}, {} bytes", account, sent_bytes);
        }
    }

    #[test]
    fn partials_of_an_utterance_never_shrink(
        speech_ms in 1000u64..3500,
        faults in prop::sample::subsequence(listed(FAULTS), 0..3),
        latency_ms in 0u64..300,
    ) {
        let latency = ms(latency_ms);
        let config = HarnessConfig { profile: "live", latency, ..HarnessConfig::with_faults(&faults) };
        let mut harness = Harness::new(config);
        harness.stream(&[voice(speech_ms), zeros(800)].concat(), 40);
        harness.advance(secs(60));
        let mut lengths: BTreeMap<u64, usize> = BTreeMap::new();
        for partial in harness.events("transcript.partial") {
            let length = partial["text"].as_str().unwrap().len();
            let before = lengths.insert(partial["segment_id"].as_u64().unwrap(), length);
            prop_assert!(before <= Some(length), "{:?}", harness.events("transcript.partial"));
        }
    }

    #[test]
    fn same_inputs_give_same_outputs(
        actions in vec(any_action(), 1..12),
        faults in prop::sample::subsequence(listed(FAULTS), 0..3),
        seed in any::<u64>(),
        is_chained in any::<bool>(),
    ) {
        let [one, other] = [(); 2].map(|()| play_session(&actions, &faults, 1, 3, seed, is_chained));
        prop_assert!(one.log == other.log && one.traffic == other.traffic);
    }
}
