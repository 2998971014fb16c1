//! Fuzz target for a whole bridge: each byte selects the next event, its receiver and the elapsed time.
//!
//! Every noise counts as speech and zeros are silence, so utterances begin and end often. The driver also
//! breaks the contract: events of closed or unknown lanes, early and late timeouts, inputs after the end.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use super::{
    LIBRARY,
    lines::{
        COMMANDS, OLDER_REPLIES, OPENAI_COMMANDS, OPENAI_TURNS, RELAY_COMMANDS, RELAY_OLDER_COMMANDS,
        REPLIES, TALK_COMMANDS, TALK_REPLIES,
    },
};
use crate::world::session::{Opening, VirtualSession};
use voxbridge::{
    audio::pcm,
    bridge::{Input, Output},
    spelling::{Library, MappingKind},
    vocabulary::{DisconnectReason, Frame, Lane, Message, Mode},
};

/// Outputs after one input above which they count as endless. A second of audio makes two client frames.
const OUTPUTS_MAX: usize = 10_000;
/// Bound on closing every lane, whatever the upstreams do: the profile's `init_max` and `close_max` with a
/// margin.
const LANES_GONE_WITHIN: Duration = Duration::from_secs(100);

/// Drain time: how long a session may take to finish.
const DRAIN_TIME: Duration = Duration::from_secs(25);

const PROFILES: [&str; 3] = ["speech", "conversation", "video"];
const OPENAI_PROFILES: [&str; 3] = ["assistant", "conversation", "speech"];

/// Runs a session of any profile on any dialect, or a relay, with any inputs in any order.
pub fn bridge_inputs(data: &[u8]) {
    let mut bytes = FuzzBytes(data);
    let first = usize::from(bytes.next());
    let library = &NOISE_IS_SPEECH[first % 2];
    let mut driver = match first / 64 {
        0 => FuzzDriver::open(library, "macaw", "minicpm-o", PROFILES[first / 2 % 3]),
        1 => FuzzDriver::open(library, "macaw", "minicpm-o-legacy", PROFILES[1 + first / 2 % 2]),
        2 => FuzzDriver::relay(
            [&["minicpm-o"][..], &["minicpm-o-legacy"], &["minicpm-o", "minicpm-o-legacy"]][first / 4 % 3],
            ["minicpm-o", "minicpm-o-legacy"][first % 2],
            ["mode=audio", "mode=chat"][first / 2 % 2],
        ),
        _ => FuzzDriver::open(library, "openai-realtime", "minicpm-o", OPENAI_PROFILES[first / 2 % 3]),
    };
    while !bytes.0.is_empty() {
        driver.run_step(&mut bytes);
    }
    driver.end();
}

/// Runs a short conversation with an accepted mapping file.
pub(super) fn run_one_utterance(library: &Library, kind: MappingKind, name: &str) {
    let name_or = |wanted: MappingKind, embedded: &'static str| {
        if kind == wanted { name.to_owned() } else { embedded.to_owned() }
    };
    let (client, upstream) =
        (name_or(MappingKind::Client, "macaw"), name_or(MappingKind::Upstream, "minicpm-o"));
    let Some(profile) = servable_profile(library, &upstream) else { return };
    let mut driver = FuzzDriver::open(library, &client, &upstream, &name_or(MappingKind::Profile, profile));
    for step in [2, 2, 0, 4, 8, 8, 7, 8, 3, 3, 8, 11, 8] {
        driver.run_step(&mut FuzzBytes(&[step, 0, 200, 1]));
    }
}

/// A profile that the upstream's modes support.
fn servable_profile(library: &Library, upstream: &str) -> Option<&'static str> {
    let modes = library.upstream(upstream).expect("the upstream is in the library");
    let servable = [(Mode::Chat, "speech"), (Mode::Audio, "conversation"), (Mode::Video, "video")];
    servable.into_iter().find(|(mode, _)| modes.modes.contains_key(mode)).map(|(_, profile)| profile)
}

/// Two libraries: the defaults, and one with interim transcripts, user transcripts and a standby session.
pub(super) static NOISE_IS_SPEECH: LazyLock<[Library; 2]> = LazyLock::new(|| {
    ["interim_ms = 0 ", "interim_ms = 200 "].map(|interim| {
        let profile = include_str!("../../../mappings/profile/speech.toml")
            .replace("threshold = 0.55", "threshold = 0.0")
            .replace("gate_dbfs = -65", "gate_dbfs = -100")
            .replace("interim_ms = 0 ", interim);
        let mut library = LIBRARY.clone();
        library.add("speech.toml", &profile).expect("only numbers differ from the embedded profile");
        let listen =
            profile.find("[listen]").zip(profile.find("[hear]")).map(|(from, to)| &profile[from..to]);
        for (file, profile) in [
            ("assistant.toml", include_str!("../../../mappings/profile/assistant.toml")),
            ("conversation.toml", include_str!("../../../mappings/profile/conversation.toml")),
            ("video.toml", include_str!("../../../mappings/profile/video.toml")),
        ] {
            let mut profile = profile.to_owned();
            if !profile.contains("[listen]") {
                profile = profile + "\n" + listen.expect("the profile has both sections");
            }
            if interim != "interim_ms = 0 " {
                profile = profile.replace("standby = false", "standby = true");
                profile = profile.replace("transcribe_user = false", "transcribe_user = true");
            }
            library.add(file, &profile).expect("only a section differs from the embedded profile");
        }
        library
    })
});

/// Fuzzer bytes, followed by endless zeros.
struct FuzzBytes<'d>(&'d [u8]);

impl FuzzBytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A text whose length is the next byte.
    fn text(&mut self) -> String {
        let len = usize::from(self.next()).min(self.0.len());
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

type LineLists = [&'static [&'static str]; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneTransport {
    Dialled,
    Up,
    Gone,
}

struct FuzzDriver {
    session: VirtualSession,
    lanes: BTreeMap<Lane, LaneTransport>,
    noise: fastrand::Rng,
    /// The client messages to choose from.
    commands: LineLists,
    replies: LineLists,
    /// The upstream session takes audio in units.
    units: bool,
    /// The client sends its audio in JSON.
    sends_json: bool,
    closed: bool,
    speaking: bool,
}

impl FuzzDriver {
    fn open(library: &Library, client: &str, upstream: &str, profile: &str) -> Self {
        let (commands, replies): (LineLists, LineLists) = match (profile, upstream) {
            _ if client == "openai-realtime" => {
                ([&OPENAI_COMMANDS, &OPENAI_TURNS], [&REPLIES, &TALK_REPLIES])
            }
            ("speech", _) => ([&COMMANDS, &COMMANDS], [&REPLIES, &REPLIES]),
            (_, "minicpm-o-legacy") => ([&COMMANDS, &TALK_COMMANDS], [&REPLIES, &OLDER_REPLIES]),
            _ => ([&COMMANDS, &TALK_COMMANDS], [&REPLIES, &TALK_REPLIES]),
        };
        let opening = Opening::new(library, client, upstream, profile);
        let session = Opening { query: "model=m", seed: 7, ..opening }.open(|_| ());
        let sends_json = client == "openai-realtime";
        Self { sends_json, ..Self::with_session(session, commands, replies, true) }
    }

    /// A relay session for a client of one of these protocols to an upstream of this dialect.
    fn relay(clients: &[&str], upstream: &str, query: &str) -> Self {
        let replies: LineLists = match upstream {
            "minicpm-o-legacy" => [&REPLIES, &OLDER_REPLIES],
            _ => [&REPLIES, &TALK_REPLIES],
        };
        let opening = Opening::new(&LIBRARY, clients[0], upstream, "relay");
        let session = Opening { query, seed: 7, ..opening }.open_relay(clients, 0);
        Self::with_session(session, [&RELAY_COMMANDS, &RELAY_OLDER_COMMANDS], replies, false)
    }

    fn with_session(session: VirtualSession, commands: LineLists, replies: LineLists, units: bool) -> Self {
        let mut driver = Self {
            session,
            lanes: BTreeMap::new(),
            noise: fastrand::Rng::with_seed(7),
            commands,
            replies,
            units,
            sends_json: false,
            closed: false,
            speaking: false,
        };
        let outputs = driver.session.opened();
        driver.check(outputs);
        driver
    }

    fn run_step(&mut self, bytes: &mut FuzzBytes<'_>) {
        match bytes.next() % 12 {
            0 => {
                let command = pick_line(bytes, self.commands);
                self.input(Input::Client(Frame::Text(command)));
            }
            1 => self.input(Input::Client(Frame::Text(&bytes.text()))),
            // Up to half a second at a time, of any length.
            kind @ (2 | 3) => {
                let len = usize::from(bytes.next()) * 64 + usize::from(bytes.next() % 64);
                let mut audio = vec![0; len];
                if kind == 2 {
                    self.noise.fill(&mut audio);
                }
                if self.sends_json {
                    let mut base64 = String::new();
                    pcm::encode_base64(&audio, &mut base64);
                    let append = format!(r#"{{"type":"input_audio_buffer.append","audio":"{base64}"}}"#);
                    self.input(Input::Client(Frame::Text(&append)));
                } else {
                    self.input(Input::Client(Frame::Binary(&audio)));
                }
            }
            4 => {
                let lane = self.lane(bytes);
                self.lanes.entry(lane).and_modify(|at| {
                    if *at == LaneTransport::Dialled {
                        *at = LaneTransport::Up;
                    }
                });
                self.input(Input::LaneOpened(lane));
            }
            5 => {
                let (lane, reply) = (self.lane(bytes), pick_line(bytes, self.replies));
                self.input(Input::Lane(lane, Frame::Text(reply)));
            }
            6 => {
                let (lane, reply) = (self.lane(bytes), bytes.text());
                self.input(Input::Lane(lane, Frame::Text(&reply)));
            }
            7 => {
                let lane = self.lane(bytes);
                self.lanes.entry(lane).and_modify(|at| *at = LaneTransport::Gone);
                let reason = match bytes.next() % 4 {
                    0 => DisconnectReason::Unreachable("dns".into()),
                    1 => DisconnectReason::HttpRejected(403),
                    2 => DisconnectReason::Closed(1000, String::new()),
                    _ => DisconnectReason::Lost("reset".into()),
                };
                self.input(Input::LaneClosed(lane, reason));
            }
            8 => {
                self.session.now = self.session.wait.unwrap_or(self.session.now).max(self.session.now);
                self.input(Input::Timeout);
            }
            9 => {
                let time = Duration::from_millis(u64::from(bytes.next()).pow(2));
                self.session.now += time;
                self.input(Input::Timeout);
            }
            10 => match bytes.next() {
                0 => self.input(Input::Drain(DRAIN_TIME)),
                1 => self.input(Input::Close(DRAIN_TIME)),
                2 => self.input(Input::Rollover),
                _ => self.input(Input::Timeout),
            },
            11 if bytes.next() == 0 => self.input(Input::ClientClosed),
            _ => self.input(Input::Timeout),
        }
    }

    /// Picks a lane: usually one of the newest, sometimes an unknown one.
    fn lane(&self, bytes: &mut FuzzBytes<'_>) -> Lane {
        let back = usize::from(bytes.next());
        let last = self.lanes.keys().rev().nth(back % 8);
        *last.filter(|_| back < 250).unwrap_or(&Lane(back as u32))
    }

    /// Disconnects the client and checks that every lane closes within a bound.
    fn end(mut self) {
        self.input(Input::ClientClosed);
        let gone_at = self.session.now;
        while !self.session.is_finished && !self.session.bridge.report(self.session.now).only_waits_in_queue {
            let wait = self.session.wait.expect("lanes are open without a deadline");
            assert!(wait > self.session.now, "the deadline has already passed");
            self.session.now = wait;
            assert!(self.session.now <= gone_at + LANES_GONE_WITHIN, "a lane is never closed");
            self.input(Input::Timeout);
        }
        assert!(
            !self.session.is_finished || self.lanes.values().all(|at| *at == LaneTransport::Gone),
            "a lane is still open: {:?}",
            self.lanes
        );
        let (account, streamed) =
            (self.session.bridge.sample_counts().0, self.session.bridge.uplink_counts().unwrap_or_default());
        let accounted = streamed.appended + streamed.silenced + streamed.dropped + streamed.waiting;
        assert_eq!(account.streamed, accounted, "{streamed:?}");
    }

    fn input(&mut self, input: Input<'_>) {
        self.closed |= matches!(input, Input::ClientClosed);
        let outputs = self.session.input(input);
        self.check(outputs);
    }

    fn check(&mut self, outputs: Vec<Output>) {
        assert!(outputs.len() < OUTPUTS_MAX, "{} outputs after one input", outputs.len());
        for output in outputs {
            match output {
                Output::Wait(_) | Output::Finished => unreachable!("the session keeps these"),
                Output::Event(_) => unreachable!("the client takes messages"),
                Output::ToClient(message, _) => self.check_client(&message),
                Output::DropTurn { .. } => {}
                // No profile here has pauses that matter.
                Output::JudgeTurn(..) | Output::WithdrawJudgement | Output::FindWorker(..) => {
                    panic!("a question about a pause")
                }
                Output::OpenLane(lane, ..) => {
                    assert_eq!(self.lanes.insert(lane, LaneTransport::Dialled), None, "{lane:?} again");
                }
                Output::ReopenLane(lane, ..) => panic!("{lane:?} has a dialect that resumes nothing"),
                Output::Request(lane, _) => panic!("{lane:?} has a WebSocket"),
                Output::ToLane(lane, message) => {
                    assert_eq!(self.lanes.get(&lane), Some(&LaneTransport::Up), "{lane:?}");
                    if let Message::Text(json) = message
                        && self.units
                    {
                        assert_unit_length(&json);
                    }
                }
                Output::CloseLane(lane) => {
                    let at = self.lanes.insert(lane, LaneTransport::Gone);
                    assert!(matches!(at, Some(LaneTransport::Up | LaneTransport::Dialled)), "{at:?}");
                }
                Output::Observe(_) => {}
                Output::Record(_) => unreachable!("nothing is recorded"),
                Output::CallTool(_) => unreachable!("there are no tool servers"),
                // A server that never answers.
                Output::ConnectTools(..) | Output::LeaveTools(_) => {}
            }
        }
    }

    fn check_client(&mut self, message: &Message) {
        assert!(!self.closed, "after the close: {message:?}");
        match message {
            Message::Binary(_) => assert!(self.speaking, "audio outside speaking_start … speaking_end"),
            Message::Close(..) => self.closed = true,
            Message::Text(json) => {
                let is = |kind: &str| json.contains(&format!(r#""type":"{kind}""#));
                // A relayed client gets the upstream's events; some have the names of OpenAI's.
                let (start, end) = match self.sends_json {
                    true => ("response.created", "response.done"),
                    false => ("tts.speaking_start", "tts.speaking_end"),
                };
                let speaking = is(start);
                if speaking || is(end) {
                    assert_ne!(self.speaking, speaking, "{json}");
                    self.speaking = speaking;
                }
                let is_delta = is("response.output_audio.delta") || is("response.output_text.delta");
                assert!(self.speaking || !is_delta || !self.sends_json, "outside of a response: {json}");
            }
        }
    }
}

/// Picks one line of either list.
fn pick_line(bytes: &mut FuzzBytes<'_>, lists: LineLists) -> &'static str {
    let byte = usize::from(bytes.next());
    let lines = lists[byte / 128];
    lines[byte % lines.len()]
}

/// Checks that a unit is one second long.
fn assert_unit_length(json: &str) {
    /// 16 000 float32 samples in base64.
    const LENGTH: usize = (16_000usize * 4).div_ceil(3) * 4;
    if !json.contains("\"force_listen\"") {
        return;
    }
    let audio = json.split('"').find(|part| part.len() > 1_000);
    assert_eq!(audio.map(str::len), Some(LENGTH));
}
