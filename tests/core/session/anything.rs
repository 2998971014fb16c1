//! Whatever a client does and whatever breaks: the guarantees hold.

use proptest::prelude::*;
use voxbridge::simulator::CORRUPTED;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Speech(u64),
    Silence(u64),
    Wait(u64),
    Send(&'static str),
    Bytes(usize),
    Break,
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

const FAULTS: [&str; 11] = [
    "queue-full,times=3",
    "busy,times=1",
    "403-after-queue=2",
    "stuck-queue,times=1",
    "slow-init=7,times=1",
    "die-before-created,times=1",
    "never-answers,times=1",
    "die-mid-answer=1,times=2",
    "drop-mid-answer=0,times=1",
    "empty-transcript,times=1",
    "no-audio,times=1",
];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (100u64..2500).prop_map(Act::Speech),
        4 => (100u64..1500).prop_map(Act::Silence),
        2 => (0u64..3000).prop_map(Act::Wait),
        1 => (10_000u64..40_000).prop_map(Act::Wait),
        8 => prop::sample::select(&COMMANDS[..]).prop_map(Act::Send),
        1 => (0usize..5000).prop_map(Act::Bytes),
        1 => Just(Act::Break),
    ]
}

fn lived(acts: &[Act], faults: &[&str], workers: usize, latency_ms: u64, seed: u64) -> Pair {
    let mut config = PairConfig { latency: ms(latency_ms), seed, ..PairConfig::with_faults(faults) };
    config.simulator.workers = workers;
    let mut pair = Pair::new(config);
    for act in acts {
        if pair.closed() {
            break;
        }
        match act {
            Act::Speech(length_ms) => pair.stream(&voice(*length_ms), 40),
            Act::Silence(length_ms) => pair.stream(&zeros(*length_ms), 40),
            Act::Wait(wait_ms) => pair.advance(ms(*wait_ms)),
            Act::Send(text) => pair.client_text(text),
            Act::Bytes(count) => pair.client_binary(&vec![7; *count]),
            Act::Break => pair.break_lanes(),
        }
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pairs_close_sessions_end_and_samples_are_accounted_for(
        acts in prop::collection::vec(act(), 1..24),
        faults in prop::sample::subsequence(&FAULTS[..], 0..3),
        workers in 1usize..3,
        latency_ms in 0u64..60,
        leaves in any::<bool>(),
    ) {
        let mut pair = lived(&acts, &faults, workers, latency_ms, 1);
        let sent_bytes = pair.sent_bytes;
        prop_assert_eq!(sanity::problems(&pair), [""; 0]);
        if leaves {
            pair.close_client();
        } else {
            pair.client_text(r#"{"type":"session.close"}"#);
            // What was said is still answered, for the time the real server would wait.
            pair.advance(secs(5));
            prop_assert!(pair.closed(), "still open: {:?}", pair.names());
        }
        prop_assert_eq!(sanity::problems(&pair), [""; 0]);
        pair.advance(secs(120));
        prop_assert!(pair.finished, "it never finishes");
        prop_assert_eq!(pair.connections(), 0);
        let refused = pair.received_count("server rejected WebSocket");
        let rude = acts.iter().any(|act| matches!(act, Act::Break)) || !faults.is_empty();
        // A lane given up while it is dialled may have a worker already, which nobody can tell goodbye before `init`;
        // whoever comes next is refused once and tries again.
        prop_assert!(refused == 0 || rude || latency_ms > 0, "{} sessions refused", refused);
        let corrupted = pair.received_count(CORRUPTED.trim());
        prop_assert!(corrupted == 0 || rude, "{} answers corrupted", corrupted);
        let reformatted = acts.iter().any(|act| matches!(act, Act::Send(text) if text.contains("channels") || text.contains("_rate")));
        if !reformatted {
            let (account, dropped) = pair.bridge().account();
            let placed = account.recorded + account.silent + account.pending;
            prop_assert_eq!(account.taken, placed, "{:?}", account);
            // A frame of odd length that is dropped leaves half a sample.
            let accounted = account.taken + account.muted + dropped;
            prop_assert!(accounted.abs_diff(sent_bytes / 2) <= 1, "{:?}, {} bytes", account, sent_bytes);
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(
        acts in prop::collection::vec(act(), 1..12),
        faults in prop::sample::subsequence(&FAULTS[..], 0..3),
        seed in any::<u64>(),
    ) {
        let [one, other] = [(); 2].map(|()| lived(&acts, &faults, 1, 3, seed));
        prop_assert!(one.log == other.log && one.traffic == other.traffic);
    }
}
