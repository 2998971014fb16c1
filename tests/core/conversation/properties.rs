//! The guarantees hold for random clients and failures in conversations.

use proptest::prelude::*;

use super::{
    harness::{Harness, HarnessConfig, Traffic, zeros},
    *,
};

#[derive(Debug, Clone)]
enum ClientAction {
    Speech(usize, u64),
    Silence(u64),
    /// Time passes without audio.
    Wait(u64),
    Send(&'static str),
    Binary(usize),
    BreakLanes,
    Drain,
    /// An operator closes the session.
    Close,
    RollOver,
}

const COMMANDS: [&str; 16] = [
    r#"{"type":"tts.speak","text":"One two three four five six seven eight nine ten.","request_id":"r"}"#,
    r#"{"type":"tts.speak","text":"Yes."}"#,
    r#"{"type":"tts.cancel"}"#,
    r#"{"type":"tts.cancel"}"#,
    r#"{"type":"input_audio_buffer.commit"}"#,
    r#"{"type":"session.configure","microphone":"muted"}"#,
    r#"{"type":"session.configure","microphone":"open","rollover_events":true}"#,
    r#"{"type":"session.configure","output_sample_rate":8000}"#,
    r#"{"type":"session.configure","output_sample_rate":48000}"#,
    r#"{"type":"session.configure","silence_timeout_ms":100,"max_segment_duration_ms":1000}"#,
    r#"{"type":"session.configure","vad_sensitivity":"high","enable_partial_transcripts":false}"#,
    r#"{"type":"video.frame","image":"/9j/2wBDAAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQH/wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z"}"#,
    r#"{"type":"session.configure","input_sample_rate":48000}"#,
    r#"{"type":"nonsense"}"#,
    "{",
    r#"{"type":"tts.speak","text":"   "}"#,
];

const FAULTS: &str = "queue-full,times=3 busy,times=1 403-after-queue=2 stuck-queue,times=1 slow-init=7,times=1 \
    die-before-created,times=1 never-answers,times=1 no-audio,times=1 slow-steps=1.3,times=5 \
    burst=34,times=1 never-listens,times=1 ignores-force,times=2 yields resumes late-audio \
    die-mid-turn=1,times=1 drop-mid-turn=2,times=1 double-terminal repeats-text think \
    timeout=9,times=2 kv=7990,times=2 context-full=300,times=1 drop-mid-answer=0,times=1";

fn any_action() -> impl Strategy<Value = ClientAction> {
    prop_oneof![
        6 => (0usize..7, 200u64..2000).prop_map(|(voice, length_ms)| ClientAction::Speech(voice, length_ms)),
        8 => (300u64..4000).prop_map(ClientAction::Silence),
        2 => (0u64..3000).prop_map(ClientAction::Wait),
        1 => (10_000u64..40_000).prop_map(ClientAction::Wait),
        6 => select(&COMMANDS[..]).prop_map(ClientAction::Send),
        1 => (0usize..5000).prop_map(ClientAction::Binary),
        1 => Just(ClientAction::BreakLanes),
        1 => prop_oneof![12 => Just(ClientAction::Wait(1)), 1 => Just(ClientAction::Drain), 1 => Just(ClientAction::Close), 2 => Just(ClientAction::RollOver)],
    ]
}

/// A planned session.
#[derive(Debug, Clone)]
struct Scenario {
    actions: Vec<ClientAction>,
    faults: Vec<&'static str>,
    profile: &'static str,
    backend: ServerKind,
    workers: usize,
    latency_ms: u64,
    frame_ms: u64,
    seed: u64,
    /// Through two bridges.
    is_chained: bool,
}

fn any_scenario(actions: usize) -> impl Strategy<Value = Scenario> {
    let setup = (
        prop::sample::subsequence(listed(FAULTS), 0..4),
        select(vec!["conversation", "video", "everything"]),
        select(ServerKind::ALL.to_vec()),
    );
    let environment = (1usize..4, 0u64..120, 10u64..120, any::<u64>(), prop::bool::weighted(0.2));
    (vec(any_action(), 1..actions), setup, environment).prop_map(
        |(actions, (faults, profile, backend), (workers, latency_ms, frame_ms, seed, is_chained))| Scenario {
            actions,
            faults,
            profile,
            backend,
            workers,
            latency_ms,
            frame_ms,
            seed,
            is_chained,
        },
    )
}

/// A profile with every optional feature enabled.
fn everything_profile() -> String {
    let conversation = include_str!("../../../mappings/profile/conversation.toml");
    let changes = [
        ("name = \"conversation\"", "name = \"everything\""),
        ("extends = \"speech\"", "extends = \"conversation\""),
        ("transcribe_user = false", "transcribe_user = true"),
        ("standby = false", "standby = true"),
        ("soft_before_ms = 50000", "soft_before_ms = 590000"),
        ("hard_before_ms = 20000", "hard_before_ms = 560000"),
    ];
    changes.into_iter().fold(conversation.to_owned(), |profile, (from, to)| {
        assert!(profile.contains(from), "{from}");
        profile.replace(from, to)
    })
}

impl Scenario {
    fn play(&self) -> Harness {
        let mut config = HarnessConfig {
            profile: self.profile,
            latency: ms(self.latency_ms),
            seed: self.seed,
            ..HarnessConfig::with_faults(&self.faults)
        };
        config.library.add("everything.toml", &everything_profile()).unwrap();
        if self.is_chained {
            config = config.chained(true);
        } else {
            self.backend.configure(&mut config);
        }
        config.simulator.workers = self.workers;
        config.simulator.force_listen_count = 1;
        let mut harness = Harness::new(config);
        for action in &self.actions {
            if harness.is_closed() {
                break;
            }
            match action {
                ClientAction::Speech(voice, length_ms) => {
                    let voice = &voices()[*voice];
                    let samples = &voice.samples[voice.onset..][..16 * *length_ms as usize];
                    harness.stream(samples, self.frame_ms);
                }
                ClientAction::Silence(length_ms) => harness.stream(&zeros(*length_ms), self.frame_ms),
                ClientAction::Wait(wait_ms) => harness.advance(ms(*wait_ms)),
                ClientAction::Send(text) => harness.send_text(text),
                ClientAction::Binary(count) => harness.send_binary(&vec![7; *count]),
                ClientAction::BreakLanes => harness.break_lanes(),
                ClientAction::Drain => harness.drain(),
                ClientAction::Close => harness.order_close(),
                ClientAction::RollOver => harness.order_rollover(),
            }
        }
        harness
    }

    fn has_lane_break(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, ClientAction::BreakLanes))
    }
}

/// Checks the rules for messages to an upstream.
fn assert_units_valid(harness: &Harness) {
    for (_, unit) in &harness.units {
        assert_eq!(unit.samples.len(), 16_000, "a unit is a second");
    }
    let mut lanes: BTreeMap<Lane, LaneChecker> = BTreeMap::new();
    for (at, traffic) in &harness.traffic {
        match traffic {
            Traffic::Sent(lane, text) => lanes.entry(*lane).or_default().sent(*at, text),
            Traffic::Received(lane, text) => lanes.entry(*lane).or_default().received(text),
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct LaneChecker {
    ready: bool,
    closing: bool,
    in_flight: bool,
    last: Option<(Duration, bool)>,
}

impl LaneChecker {
    fn sent(&mut self, at: Duration, text: &str) {
        assert!(!self.closing, "after session.close: {text:.80}");
        self.closing = contains(text, "session.close");
        if !contains(text, "\"force_listen\"") {
            return;
        }
        assert!(self.ready, "a unit before the lane is ready");
        assert!(!std::mem::replace(&mut self.in_flight, true), "two units in flight at {at:?}");
        let forced = contains(text, "\"force_listen\":true") || contains(text, "\"force_listen\": true");
        if let Some((before, was_forced)) = self.last.replace((at, forced)) {
            let urgent = forced && !was_forced;
            assert!(urgent || at - before >= ms(500), "{:?} after the last unit", at - before);
        }
    }

    fn received(&mut self, text: &str) {
        self.ready |= contains(text, "session.created");
        self.in_flight &= !contains(text, "\"response.");
    }
}

/// Checks that the model's audio is played in order and that no cancelled audio is played later.
fn assert_turns_valid(harness: &Harness) {
    let mut cancelled: Option<u64> = None;
    for spoken in spoken_texts(harness).iter().filter(|spoken| spoken.is_model_turn()) {
        let mut last: Option<(u64, usize)> = None;
        for (place, sample) in spoken.samples.iter().enumerate() {
            // Audio without a waveform is silence.
            let Some(now) = read_watermark(*sample) else { continue };
            let begins = now.1 == 0 && last.is_none_or(|last| last.0 != now.0);
            let follows = last.is_some_and(|(turn, at)| now == (turn, (at + 1) % 8190));
            assert!(begins || follows, "sample {place} of {}: {now:?} after {last:?}", spoken.request_id);
            assert!(Some(now.0) != cancelled, "audio of turn {} is played again", now.0);
            last = Some(now);
        }
        if spoken.is_cancelled() {
            cancelled = last.map(|last| last.0);
        }
    }
}

fn assert_accounts_balance(harness: &Harness) {
    let ((account, _), streamed) =
        (harness.bridge().sample_counts(), harness.bridge().uplink_counts().unwrap());
    let placed = streamed.appended + streamed.silenced + streamed.dropped + streamed.waiting;
    assert_eq!(account.streamed, placed, "{streamed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn conversation_invariants_hold(scenario in any_scenario(20), leaves in any::<bool>()) {
        let mut harness = scenario.play();
        prop_assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
        assert_accounts_balance(&harness);
        if leaves {
            harness.close_client();
        } else if !harness.is_closed() {
            harness.send_text(r#"{"type":"session.close"}"#);
            harness.advance(Duration::from_secs(6));
            prop_assert!(harness.is_closed(), "still open: {:?}", harness.names());
        }
        prop_assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
        harness.advance(Duration::from_secs(120));
        prop_assert!(harness.is_over(), "the bridge never finishes");
        assert_units_valid(&harness);
        // A resumed turn looks like a new one, so scenarios with such models skip the order check.
        let sends = |text: &str| scenario.actions.iter().any(|action| matches!(action, ClientAction::Send(sent) if sent.contains(text)));
        let can_resume = ["resumes", "yields"].iter().any(|fault| scenario.faults.contains(fault));
        // The second bridge answers by chat, whose audio has no waveform that tells its place.
        if !can_resume && !scenario.is_chained && !sends("output_sample_rate") {
            assert_turns_valid(&harness);
        }
        assert_accounts_balance(&harness);
        let refused = harness.received_count("server rejected WebSocket");
        let faulty = scenario.has_lane_break() || !scenario.faults.is_empty() || scenario.latency_ms > 0;
        prop_assert!(refused == 0 || faulty, "{} sessions refused", refused);
        if !sends("input_sample_rate") {
            let (account, dropped) = harness.bridge().sample_counts();
            prop_assert_eq!(account.received, account.recorded + account.silent + account.pending, "{:?}", account);
            prop_assert_eq!(account.received, account.streamed, "the model gets all received audio");
            let accounted = account.received + account.muted + dropped;
            // Counted until the session closed. A dropped frame of odd length leaves half a sample.
            prop_assert!(accounted <= harness.sent_bytes / 2 + 1, "{:?}, {} bytes", account, harness.sent_bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn same_conversation_is_identical_to_the_byte(scenario in any_scenario(8)) {
        let [one, other] = [(); 2].map(|()| scenario.play());
        prop_assert!(one.log == other.log && one.traffic == other.traffic);
    }
}
