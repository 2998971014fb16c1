//! Whatever a client does in a conversation and whatever breaks: the guarantees hold (design §4).

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use voxbridge::{event::Lane, simulator::read_marker};

use super::{
    flavour::Flavour,
    mic::{spoken, voices},
    ms,
    pair::{Pair, PairConfig, Traffic, zeros},
    sanity,
};

#[derive(Debug, Clone)]
enum Act {
    Speech(usize, u64),
    Silence(u64),
    /// Without audio.
    Wait(u64),
    Send(&'static str),
    Bytes(usize),
    Break,
    Drain,
    /// An operator's orders.
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
    r#"{"type":"video.frame","image":"/9j/4AAQ"}"#,
    r#"{"type":"session.configure","input_sample_rate":48000}"#,
    r#"{"type":"nonsense"}"#,
    "{",
    r#"{"type":"tts.speak","text":"   "}"#,
];

const FAULTS: [&str; 24] = [
    "queue-full,times=3",
    "busy,times=1",
    "403-after-queue=2",
    "stuck-queue,times=1",
    "slow-init=7,times=1",
    "die-before-created,times=1",
    "never-answers,times=1",
    "no-audio,times=1",
    "slow-steps=1.3,times=5",
    "burst=34,times=1",
    "never-listens,times=1",
    "ignores-force,times=2",
    "yields",
    "resumes",
    "late-audio",
    "die-mid-turn=1,times=1",
    "drop-mid-turn=2,times=1",
    "double-terminal",
    "repeats-text",
    "think",
    "timeout=9,times=2",
    "kv=7990,times=2",
    "context-full=300,times=1",
    "drop-mid-answer=0,times=1",
];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..7, 200u64..2000).prop_map(|(voice, length_ms)| Act::Speech(voice, length_ms)),
        8 => (300u64..4000).prop_map(Act::Silence),
        2 => (0u64..3000).prop_map(Act::Wait),
        1 => (10_000u64..40_000).prop_map(Act::Wait),
        6 => prop::sample::select(&COMMANDS[..]).prop_map(Act::Send),
        1 => (0usize..5000).prop_map(Act::Bytes),
        1 => Just(Act::Break),
        1 => prop_oneof![12 => Just(Act::Wait(1)), 1 => Just(Act::Drain), 1 => Just(Act::Close), 2 => Just(Act::RollOver)],
    ]
}

/// A session to be.
#[derive(Debug, Clone)]
struct Life {
    acts: Vec<Act>,
    faults: Vec<&'static str>,
    profile: &'static str,
    backend: Flavour,
    workers: usize,
    latency_ms: u64,
    frame_ms: u64,
    seed: u64,
}

fn life(acts: usize) -> impl Strategy<Value = Life> {
    let with = (
        prop::sample::subsequence(&FAULTS[..], 0..4),
        prop::sample::select(vec!["conversation", "video", "everything"]),
        prop::sample::select(Flavour::ALL.to_vec()),
    );
    let where_ = (1usize..4, 0u64..120, 10u64..120, any::<u64>());
    (prop::collection::vec(act(), 1..acts), with, where_).prop_map(
        |(acts, (faults, profile, backend), (workers, latency_ms, frame_ms, seed))| Life {
            acts,
            faults,
            profile,
            backend,
            workers,
            latency_ms,
            frame_ms,
            seed,
        },
    )
}

/// Everything that is off by default is on.
fn everything() -> String {
    let conversation = include_str!("../../mappings/profile/conversation.toml");
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

impl Life {
    fn lived(&self) -> Pair {
        let mut config = PairConfig {
            profile: self.profile,
            latency: ms(self.latency_ms),
            seed: self.seed,
            ..PairConfig::with_faults(&self.faults)
        };
        config.library.add("everything.toml", &everything()).unwrap();
        self.backend.serves(&mut config);
        config.simulator.workers = self.workers;
        config.simulator.force_listen_count = 1;
        let mut pair = Pair::new(config);
        for act in &self.acts {
            if pair.closed() {
                break;
            }
            match act {
                Act::Speech(voice, length_ms) => {
                    let voice = &voices()[*voice];
                    let samples = &voice.samples[voice.onset..][..16 * *length_ms as usize];
                    pair.stream(samples, self.frame_ms);
                }
                Act::Silence(length_ms) => pair.stream(&zeros(*length_ms), self.frame_ms),
                Act::Wait(wait_ms) => pair.advance(ms(*wait_ms)),
                Act::Send(text) => pair.client_text(text),
                Act::Bytes(count) => pair.client_binary(&vec![7; *count]),
                Act::Break => pair.break_lanes(),
                Act::Drain => pair.drain(),
                Act::Close => pair.operator_closes(),
                Act::RollOver => pair.operator_rolls_over(),
            }
        }
        pair
    }

    fn breaks(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Break))
    }
}

/// What no upstream may ever see.
fn units_are_sound(pair: &Pair) {
    for (_, unit) in &pair.units {
        assert_eq!(unit.samples.len(), 16_000, "a unit is a second");
    }
    let mut lanes: BTreeMap<Lane, Upstream> = BTreeMap::new();
    for (at, traffic) in &pair.traffic {
        match traffic {
            Traffic::Sent(lane, text) => lanes.entry(*lane).or_default().sent(*at, text),
            Traffic::Received(lane, text) => lanes.entry(*lane).or_default().received(text),
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct Upstream {
    ready: bool,
    closing: bool,
    in_flight: bool,
    last: Option<(Duration, bool)>,
}

impl Upstream {
    fn sent(&mut self, at: Duration, text: &str) {
        assert!(!self.closing, "after the goodbye: {text:.80}");
        self.closing = text.contains("session.close");
        if !text.contains("\"force_listen\"") {
            return;
        }
        assert!(self.ready, "a unit before the lane is ready");
        assert!(!std::mem::replace(&mut self.in_flight, true), "two units in flight at {at:?}");
        let forced = text.contains("\"force_listen\":true") || text.contains("\"force_listen\": true");
        if let Some((before, was_forced)) = self.last.replace((at, forced)) {
            let urgent = forced && !was_forced;
            assert!(urgent || at - before >= ms(500), "{:?} after the last unit", at - before);
        }
    }

    fn received(&mut self, text: &str) {
        self.ready |= text.contains("session.created");
        self.in_flight &= !text.contains("\"response.");
    }
}

/// Everything the model said is heard in its order, and nothing of what was cancelled is heard again.
fn turns_are_sound(pair: &Pair) {
    let mut cancelled: Option<u64> = None;
    for spoken in spoken(pair).iter().filter(|spoken| spoken.is_turn()) {
        let mut last: Option<(u64, usize)> = None;
        for (place, sample) in spoken.samples.iter().enumerate() {
            // Without a waveform there is silence.
            let Some(now) = read_marker(*sample) else { continue };
            let begins = now.1 == 0 && last.is_none_or(|last| last.0 != now.0);
            let follows = last.is_some_and(|(turn, at)| now == (turn, (at + 1) % 8190));
            assert!(begins || follows, "sample {place} of {}: {now:?} after {last:?}", spoken.request_id);
            assert!(Some(now.0) != cancelled, "something of turn {} is heard again", now.0);
            last = Some(now);
        }
        if spoken.cancelled() {
            cancelled = last.map(|last| last.0);
        }
    }
}

fn accounts_add_up(pair: &Pair) {
    let ((account, _), streamed) = (pair.bridge().account(), pair.bridge().streamed().unwrap());
    let placed = streamed.appended + streamed.hushed + streamed.dropped + streamed.waiting;
    assert_eq!(account.streamed, placed, "{streamed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn talk_keeps_its_promises(life in life(20), leaves in any::<bool>()) {
        let mut pair = life.lived();
        prop_assert_eq!(sanity::problems(&pair), [""; 0]);
        accounts_add_up(&pair);
        if leaves {
            pair.close_client();
        } else if !pair.closed() {
            pair.client_text(r#"{"type":"session.close"}"#);
            pair.advance(Duration::from_secs(6));
            prop_assert!(pair.closed(), "still open: {:?}", pair.names());
        }
        prop_assert_eq!(sanity::problems(&pair), [""; 0]);
        pair.advance(Duration::from_secs(120));
        prop_assert!(pair.finished && pair.connections() == 0, "it never finishes");
        units_are_sound(&pair);
        // An old story that begins again cannot be told from a new one, nor can its last second from a first.
        let tells = |text: &str| life.acts.iter().any(|act| matches!(act, Act::Send(sent) if sent.contains(text)));
        let again = ["resumes", "yields"].iter().any(|fault| life.faults.contains(fault));
        if !again && !tells("output_sample_rate") {
            turns_are_sound(&pair);
        }
        accounts_add_up(&pair);
        let refused = pair.received_count("server rejected WebSocket");
        let rude = life.breaks() || !life.faults.is_empty() || life.latency_ms > 0;
        prop_assert!(refused == 0 || rude, "{} sessions refused", refused);
        if !tells("input_sample_rate") {
            let (account, dropped) = pair.bridge().account();
            prop_assert_eq!(account.taken, account.recorded + account.silent + account.pending, "{:?}", account);
            prop_assert_eq!(account.taken, account.streamed, "all that is heard goes to the model too");
            let accounted = account.taken + account.muted + dropped;
            // Until the session closed; and a dropped frame of odd length leaves half a sample.
            prop_assert!(accounted <= pair.sent_bytes / 2 + 1, "{:?}, {} bytes", account, pair.sent_bytes);
        }
    }

    #[test]
    fn the_same_talk_is_the_same_to_the_byte(life in life(8)) {
        let [one, other] = [(); 2].map(|()| life.lived());
        prop_assert!(one.log == other.log && one.traffic == other.traffic);
    }
}
