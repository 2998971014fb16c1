//! Fuzz target for a session of any client protocol, profile and dialect that fit, with messages of the fuzzer's own.
//!
//! The driver breaks its contract as well: events of closed or unknown lanes, answers to no question, early and late timeouts. Only
//! lanes that are not up send nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use super::{assert_json, conversation::NOISE_IS_SPEECH, lanes::CONTENT_TYPES};
use crate::world::session::{Opening, VirtualSession};
use voxbridge::{
    audio::pcm,
    bridge::{Input, Output},
    spelling::{
        ClientMapping, Profile, UpstreamMapping,
        compatibility::{check_client_with_profile, check_profile_with_dialects},
    },
    trace::{AudioRetention, Trace, replay::replay},
    vocabulary::{
        AnswerPart, DisconnectReason, FlowControl, Frame, Lane, LanePurpose, Message, Mode, PauseId,
    },
};

/// Bound on closing every lane after the client has gone: the longest `init_max` and `close_max` with a margin.
const LANES_GONE_WITHIN: Duration = Duration::from_secs(200);
/// Without input, every request over HTTP ends within this time.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(1_500);
/// Drain time: how long a session may take to finish.
const DRAIN_TIME: Duration = Duration::from_secs(25);
/// In a text, stands for a quarter of a second of noise at 16 kHz in base64.
const NOISE: &str = "%A";
/// In a text, stands for as much silence.
const SILENCE: &str = "%Z";

/// Combinations that work together.
struct Fitting {
    client: Arc<ClientMapping>,
    profile: Arc<Profile>,
    upstream: Arc<UpstreamMapping>,
}

static FITTING: LazyLock<Vec<Fitting>> = LazyLock::new(|| {
    let library = &NOISE_IS_SPEECH[0];
    let mut fitting = Vec::new();
    for client in library.clients().filter(|client| !client.is_relayed()) {
        for profile in library.profiles().filter(|profile| check_client_with_profile(client, profile).is_ok())
        {
            for upstream in library.upstreams() {
                if check_profile_with_dialects(profile, &upstream.clone().into()).is_ok() {
                    let (client, profile, upstream) = (client.clone(), profile.clone(), upstream.clone());
                    fitting.push(Fitting { client, profile, upstream });
                }
            }
        }
    }
    fitting
});

static AUDIO: LazyLock<[(Vec<u8>, String); 2]> = LazyLock::new(|| {
    let (silence, mut noise) = (vec![0; 8_000], vec![0; 8_000]);
    fastrand::Rng::with_seed(7).fill(&mut noise);
    [silence, noise].map(|bytes| {
        let mut base64 = String::new();
        pcm::encode_base64(&bytes, &mut base64);
        (bytes, base64)
    })
});

/// Runs a session. The first two bytes choose client, profile and dialect; steps follow, each with its arguments. A part of the
/// sessions is recorded, and replays with the same outputs.
pub fn any_session(data: &[u8]) {
    let mut bytes = SessionBytes(data);
    let parts = &FITTING[bytes.length() % FITTING.len()];
    let query = bytes.text();
    let mut driver = SessionDriver::open(parts, &query, data.len() % 16 == 3);
    while !bytes.0.is_empty() && !driver.session.is_finished {
        driver.run_step(&mut bytes);
    }
    driver.leave_alone();
    driver.end();
}

/// A recorded session replays with the same outputs.
fn check_replay(text: &str, epoch: Instant) {
    let trace = Trace::parse(text).expect("the recorder writes traces");
    let outcome = replay(&trace, NOISE_IS_SPEECH[0].clone(), epoch).expect("a recorded session replays");
    // A masked secret may have been more than a secret.
    assert!(outcome.is_same() || !outcome.not_judged.is_empty(), "{outcome:#?}");
}

struct SessionBytes<'d>(&'d [u8]);

impl<'d> SessionBytes<'d> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn length(&mut self) -> usize {
        usize::from(u16::from_be_bytes([self.next(), self.next()]))
    }

    /// Bytes after their length in two bytes.
    fn bytes(&mut self) -> &'d [u8] {
        let length = self.length();
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A text with audio in the places that name it.
    fn text(&mut self) -> String {
        let text = String::from_utf8_lossy(self.bytes());
        // Few places, so that a text has a bounded length.
        text.replacen(NOISE, &AUDIO[1].1, 4).replacen(SILENCE, &AUDIO[0].1, 4)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// The upstream cannot serve such a lane.
    Unfit,
    Dialled,
    Up,
    Gone,
}

struct SessionDriver {
    session: VirtualSession,
    upstream: Arc<UpstreamMapping>,
    lanes: BTreeMap<Lane, Transport>,
    pause: PauseId,
    closed: bool,
}

impl SessionDriver {
    fn open(parts: &Fitting, query: &str, is_recorded: bool) -> Self {
        let Fitting { client, profile, upstream } = parts;
        let opening = Opening::new(&NOISE_IS_SPEECH[0], &client.name, &upstream.name, &profile.name);
        let record = is_recorded.then_some(AudioRetention::All);
        let session = Opening { query, seed: 7, record, ..opening }.open(|setup| setup.has_turn_judge = true);
        let (upstream, lanes) = (upstream.clone(), BTreeMap::new());
        let mut driver = Self { session, upstream, lanes, pause: PauseId(0), closed: false };
        let outputs = driver.session.opened();
        driver.check(outputs);
        driver
    }

    fn run_step(&mut self, bytes: &mut SessionBytes<'_>) {
        match bytes.next() % 16 {
            0 | 1 => self.input(Input::Client(Frame::Text(&bytes.text()))),
            2 => self.input(Input::Client(Frame::Binary(bytes.bytes()))),
            kind @ (3 | 4) => {
                let audio = &AUDIO[usize::from(kind == 3)].0;
                let length = (usize::from(bytes.next()) * 64).min(audio.len());
                self.input(Input::Client(Frame::Binary(&audio[..length])));
            }
            5 => {
                let lane = self.lane(bytes);
                let at = self.lanes.get_mut(&lane).filter(|at| **at == Transport::Dialled);
                if let Some(at) = at {
                    *at = Transport::Up;
                    self.input(Input::LaneOpened(lane));
                }
            }
            6 => {
                let lane = self.lane(bytes);
                self.input(Input::Lane(lane, Frame::Text(&bytes.text())));
            }
            7 => {
                let lane = self.lane(bytes);
                self.input(Input::Lane(lane, Frame::Binary(bytes.bytes())));
            }
            8 => {
                let (lane, status, kind) = (self.lane(bytes), bytes.next(), bytes.next());
                let status = [200, 200, 200, 400, 429, 500, 0, 206][usize::from(status) / 32];
                let content_type = CONTENT_TYPES[usize::from(kind) % CONTENT_TYPES.len()].to_owned();
                self.input(Input::Answer(lane, AnswerPart::Head { status, content_type }));
            }
            9 => {
                let lane = self.lane(bytes);
                self.input(Input::Answer(lane, AnswerPart::End));
            }
            10 => self.lose_lane(bytes),
            11 => {
                self.session.now = self.session.wait.unwrap_or(self.session.now).max(self.session.now);
                self.input(Input::Timeout);
            }
            12 => {
                self.session.now += Duration::from_millis(u64::from(bytes.next()).pow(2));
                self.input(Input::Timeout);
            }
            13 => self.operate(bytes),
            14 => match bytes.next() {
                255 => self.input(Input::WorkerFound(self.pause)),
                254 => self.input(Input::TurnJudged(self.pause, None)),
                percent => self.input(Input::TurnJudged(self.pause, Some(f32::from(percent) / 100.0))),
            },
            15 if bytes.next() == 0 => self.input(Input::ClientClosed),
            _ => self.input(Input::Timeout),
        }
    }

    fn lose_lane(&mut self, bytes: &mut SessionBytes<'_>) {
        let lane = self.lane(bytes);
        self.lanes.entry(lane).and_modify(|at| *at = Transport::Gone);
        let reason = match bytes.next() % 5 {
            0 => DisconnectReason::Unreachable("dns".into()),
            1 => DisconnectReason::HttpRejected(403),
            2 => DisconnectReason::Closed(1000, String::new()),
            3 => DisconnectReason::Closed(1013, "full".to_owned()),
            _ => DisconnectReason::Lost("reset".into()),
        };
        self.input(Input::LaneClosed(lane, reason));
    }

    /// Actions of operators and of the pool.
    fn operate(&mut self, bytes: &mut SessionBytes<'_>) {
        match bytes.next() % 10 {
            0 => self.input(Input::Drain(DRAIN_TIME)),
            1 => self.input(Input::Close(DRAIN_TIME)),
            2 => self.input(Input::Rollover),
            3 => {
                let lane = self.lane(bytes);
                self.input(Input::LaneQueued(lane, u32::from(bytes.next())));
            }
            4 => {
                let lane = self.lane(bytes);
                self.input(Input::PlaceFound(lane));
            }
            5 => {
                let (lane, name) = (self.lane(bytes), self.upstream.name.clone());
                self.input(Input::LaneDialect(lane, &name));
            }
            flow => {
                let (is_client_behind, are_lanes_held) = (flow & 1 == 1, flow > 7);
                self.input(Input::Flow(FlowControl { is_client_behind, are_lanes_held }));
            }
        }
    }

    /// Picks a lane: usually one of the newest, sometimes an unknown one.
    fn lane(&self, bytes: &mut SessionBytes<'_>) -> Lane {
        let back = usize::from(bytes.next());
        let last = self.lanes.keys().rev().nth(back % 8);
        *last.filter(|_| back < 250).unwrap_or(&Lane(back as u32))
    }

    /// Leaves the session alone: every request to an upstream ends. Lanes of other dialects may wait in a queue.
    fn leave_alone(&mut self) {
        self.input(Input::Flow(FlowControl::default()));
        let until = self.session.now + REQUESTS_END_WITHIN;
        while let Some(wait) = self.session.wait.filter(|wait| *wait <= until && !self.session.is_finished) {
            self.session.now = wait.max(self.session.now);
            self.input(Input::Timeout);
        }
        let is_over = |at: &Transport| matches!(at, Transport::Gone);
        assert!(
            !self.upstream.is_http() || self.lanes.values().all(is_over),
            "it never ends: {:?}",
            self.lanes
        );
    }

    /// Disconnects the client and checks that every lane closes within a bound.
    fn end(mut self) {
        self.input(Input::ClientClosed);
        let gone_at = self.session.now;
        while !self.session.is_finished && !self.session.bridge.report(self.session.now).only_waits_in_queue {
            let wait = self.session.wait.expect("lanes are open without a deadline");
            assert!(wait > self.session.now, "the deadline has already passed");
            self.session.now = wait;
            assert!(
                self.session.now <= gone_at + LANES_GONE_WITHIN,
                "a lane is never closed: {:?}",
                self.lanes
            );
            self.input(Input::Timeout);
        }
        let are_gone = self.lanes.values().all(|at| *at == Transport::Gone);
        assert!(!self.session.is_finished || are_gone, "a lane is still open: {:?}", self.lanes);
        if let Some(recorder) = &self.session.recorder {
            check_replay(&recorder.text, self.session.now);
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.closed |= matches!(input, Input::ClientClosed);
        if let Input::Lane(lane, _) | Input::Answer(lane, _) = input
            && matches!(self.lanes.get(&lane), Some(Transport::Dialled | Transport::Unfit))
        {
            return;
        }
        let is_timeout = matches!(input, Input::Timeout);
        let outputs = self.session.input(input);
        self.check(outputs);
        let spins = is_timeout
            && !self.session.is_finished
            && self.session.wait.is_some_and(|wait| wait <= self.session.now);
        assert!(!spins, "the deadline has passed and nothing happens");
    }

    fn check(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::ToClient(message, _) => self.check_client(&message),
                Output::JudgeTurn(pause, _) | Output::FindWorker(pause, _) => self.pause = pause,
                Output::OpenLane(lane, mode, purpose) => {
                    let old = self.lanes.insert(lane, self.dialled(purpose, mode));
                    assert_eq!(old, None, "{lane:?} is used twice");
                }
                Output::ReopenLane(lane, mode, purpose) => {
                    let old = self.lanes.insert(lane, self.dialled(purpose, mode));
                    assert_eq!(old, Some(Transport::Gone), "{lane:?}");
                }
                Output::ToLane(lane, Message::Text(json)) => {
                    assert_eq!(self.lanes.get(&lane), Some(&Transport::Up), "{lane:?}");
                    assert_json(&json);
                }
                Output::ToLane(lane, _) | Output::Request(lane, _) => {
                    assert_eq!(self.lanes.get(&lane), Some(&Transport::Up), "{lane:?}");
                }
                Output::CloseLane(lane) => {
                    let old = self.lanes.insert(lane, Transport::Gone);
                    assert!(old.is_some(), "{lane:?} is unknown");
                }
                Output::DropTurn { .. } | Output::WithdrawJudgement | Output::Observe(_) => {}
                Output::Record(_) => unreachable!("nothing is recorded"),
                Output::CallTool(_) => unreachable!("there are no tool servers"),
                // A server that never answers.
                Output::ConnectTools(..) | Output::LeaveTools(_) => {}
                Output::Wait(_) | Output::Finished => unreachable!("the session keeps these"),
                Output::Event(_) => unreachable!("the client takes messages"),
            }
        }
    }

    fn dialled(&self, purpose: LanePurpose, mode: Mode) -> Transport {
        if self.upstream.can(purpose, mode) { Transport::Dialled } else { Transport::Unfit }
    }

    fn check_client(&mut self, message: &Message) {
        assert!(!self.closed, "after the close: {message:?}");
        match message {
            Message::Binary(_) => {}
            Message::Close(..) => self.closed = true,
            Message::Text(text) if text.starts_with('{') => assert_json(text),
            Message::Text(_) => {}
        }
    }
}
