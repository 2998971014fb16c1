//! Connects a bridge to a script's client and its upstreams, in virtual time: no socket, no sleep, no task.

use voxbridge::vocabulary::SpeechId;
use voxbridge_test_support::world::{bytes_of, reader::Reader};

use super::{
    checks::{Checks, LaneMessage},
    script::{CANCELS, SPEAKS_NOTHING, Trouble},
    test_audio::Microphone,
    upstream::UpstreamEvents,
    *,
};

/// Outputs after one input above which the bridge is in an endless loop. The longest burst makes far fewer.
const MAX_OUTPUTS: usize = 10_000;
/// Bound on closing every lane after the client is gone: the profile's `init_max` and `close_max` with a
/// margin.
const LANE_CLOSE_LIMIT: Duration = Duration::from_secs(100);

/// A running session.
pub(crate) struct Driver {
    pub(crate) session: VirtualSession,
    pub(crate) checks: Checks,
    /// All outputs with their times.
    pub(crate) log: Vec<(Duration, Output)>,
    start: Instant,
    latest: Instant,
    upstreams: Vec<Upstream>,
    trouble: Option<Trouble>,
    pub(crate) purposes: BTreeMap<Lane, LanePurpose>,
    /// Questions for speech on each lane.
    asked: BTreeMap<Lane, u32>,
    reader: Reader,
    /// Events on their way to the bridge, by arrival time.
    scheduled: BTreeMap<(Instant, u64), (Lane, UpstreamEvent)>,
    sent: u64,
    microphone: Microphone,
    texts: u32,
}

/// The profile's source; with `noise_is_speech`, everything above the hiss counts as speech.
pub(crate) fn profile_source(interim: bool, noise_is_speech: bool) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("mappings/profile/speech.toml");
    let mut source = fs::read_to_string(path).unwrap();
    let mut change = |from: &str, to: &str| {
        assert!(source.contains(from), "{from}");
        source = source.replace(from, to);
    };
    if interim {
        change("interim_ms = 0 ", "interim_ms = 300 ");
    }
    if noise_is_speech {
        change("threshold = 0.55, gate_dbfs = -65", "threshold = 0.0, gate_dbfs = -65");
    }
    source
}

/// A conversation profile with the listening settings of the speech profile.
fn conversation_profile_source(name: &str, speech: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("mappings/profile/{name}.toml"));
    let listen = speech.find("[listen]").zip(speech.find("[hear]")).map(|(from, to)| &speech[from..to]);
    fs::read_to_string(path).unwrap() + "\n" + listen.unwrap()
}

impl Driver {
    pub(crate) fn new(profile: &str, upstreams: Vec<Upstream>, query: &str) -> Self {
        Self::with_profile("speech", profile, upstreams, query)
    }

    /// A session of this profile, whose source is given.
    fn with_profile(name: &str, profile: &str, upstreams: Vec<Upstream>, query: &str) -> Self {
        let mut library = Library::embedded().unwrap();
        library.add(&format!("{name}.toml"), profile).unwrap();
        // Early enough that the clock can be set back, late enough that no time precedes its start.
        let start = epoch() + Duration::from_secs(1_000);
        let opening = Opening {
            query,
            seed: 5,
            unix: Duration::from_secs(1_000_000_000),
            at: start,
            record: Some(AudioRetention::All),
            ..Opening::new(&library, "macaw", "minicpm-o", name)
        };
        let mut driver = Self {
            session: opening.open(|_| ()),
            checks: Checks::new(start),
            log: Vec::new(),
            start,
            latest: start,
            upstreams,
            trouble: None,
            purposes: BTreeMap::new(),
            asked: BTreeMap::new(),
            reader: Reader::new(),
            scheduled: BTreeMap::new(),
            sent: 0,
            microphone: Microphone::new(9),
            texts: 0,
        };
        let outputs = driver.session.opened();
        driver.handle_outputs(outputs);
        driver
    }

    /// True once no reply is pending and every lane is gone, or only waits in a queue to be closed.
    pub(crate) fn is_finished(&self) -> bool {
        self.session.is_finished || self.session.bridge.report(self.session.now).only_waits_in_queue
    }

    /// Plays a script to its end with all checks.
    pub(crate) fn play(script: &Script) -> Self {
        let mut driver = Self::for_script(script);
        driver.session.recorder = None;
        for step in &script.steps {
            driver.step(step);
        }
        driver.finish();
        driver
    }

    /// Like `play`, for scripts that change formats and cannot be checked completely.
    pub(crate) fn play_unchecked(script: &Script) -> Self {
        let mut driver = Self::for_script(script);
        driver.checks.formats_change = true;
        script.steps.iter().for_each(|step| driver.step(step));
        driver.finish();
        driver
    }

    /// The session of a script before its first step.
    pub(crate) fn for_script(script: &Script) -> Self {
        let speech = profile_source(script.interim, script.noise_is_speech);
        let profile = if script.profile == "speech" {
            speech
        } else {
            conversation_profile_source(script.profile, &speech)
        };
        let mut driver = Self::with_profile(script.profile, &profile, script.upstreams.clone(), "model=m");
        driver.trouble = script.trouble;
        driver
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::SendText(text) => {
                if text == SPEAKS_NOTHING || text == CANCELS {
                    self.checks.cancel_texts();
                }
                self.send_text(text);
            }
            Step::Speak { long, voice } => self.speak(*long, *voice),
            Step::StreamAudio { sound, ms, frame_bytes } => self.stream_audio(*sound, *ms, *frame_bytes),
            Step::Burst { sound, bytes: len } => {
                let mut audio = bytes_of(&self.microphone.record(*sound, len.div_ceil(2)));
                audio.truncate(*len);
                self.send_frame(&audio);
            }
            Step::Read(rate) => {
                self.reader.set_rate(self.session.now, *rate);
                self.advance_to(self.session.now);
            }
            Step::Advance(time) => self.advance_to(self.session.now + *time),
            Step::SkipTime(time) => {
                self.session.now += *time;
                self.input(Input::Timeout);
            }
            Step::SetClockBack(time) => {
                let earlier = (self.session.now - *time).max(self.start);
                self.checks.on_clock_set_back(self.session.now - earlier);
                self.session.now = earlier;
                self.input(Input::Timeout);
            }
            Step::Timeout => self.input(Input::Timeout),
            Step::UpstreamText(back, line) => {
                self.checks.hearing.has_strays = true;
                if let Some(lane) = self.checks.newest_lane(*back) {
                    self.deliver(lane, UpstreamEvent::Text(line.clone()));
                }
            }
            Step::LoseLane(back) => {
                if let Some(lane) = self.checks.newest_lane(*back) {
                    self.deliver(lane, UpstreamEvent::Closed(DisconnectReason::Lost("reset".into())));
                }
            }
            Step::StrayLane(lane) => {
                let lane = Lane(1_000_000 + lane);
                self.input(Input::LaneOpened(lane));
                self.input(Input::Lane(lane, Frame::Text(r#"{"type":"session.queue_done"}"#)));
                self.input(Input::Lane(lane, Frame::Binary(b"x")));
                self.input(Input::LaneClosed(lane, DisconnectReason::HttpRejected(403)));
            }
            Step::Drain => self.input(Input::Drain(Duration::from_secs(25))),
            Step::Close => self.input(Input::Close(Duration::from_secs(25))),
            Step::Rollover => self.input(Input::Rollover),
            Step::Leave => self.disconnect(),
        }
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.input(Input::Client(Frame::Text(text)));
    }

    fn speak(&mut self, long: bool, voice: Option<u8>) {
        self.texts += 1;
        let sentence = format!("This is text number {}. ", self.texts);
        let text = if long { sentence.repeat(30) } else { sentence };
        let voice = voice.map_or(String::new(), |voice| format!(r#","ref_audio":"AAA{voice}""#));
        let id = self.checks.request_text(self.texts);
        self.send_text(&format!(r#"{{"type":"tts.speak","text":"{text}","request_id":"{id}"{voice}}}"#));
    }

    pub(crate) fn stream_audio(&mut self, sound: Sound, ms: u64, frame_bytes: usize) {
        let audio = bytes_of(&self.microphone.record(sound, 16 * ms as usize));
        let mut sent = 0;
        for frame in audio.chunks(frame_bytes) {
            self.send_frame(frame);
            sent += frame.len() as u64;
            // 32 bytes are a millisecond.
            self.advance_to(self.session.now + Duration::from_micros(frame.len() as u64 * 1_000 / 32));
        }
        debug_assert_eq!(sent, 32 * ms);
    }

    pub(crate) fn send_frame(&mut self, bytes: &[u8]) {
        let before = self.session.bridge.sample_counts();
        self.checks.before_frame(bytes);
        self.input(Input::Client(Frame::Binary(bytes)));
        self.checks.after_frame(bytes, before, self.session.bridge.sample_counts());
    }

    pub(crate) fn disconnect(&mut self) {
        self.checks.on_client_left();
        self.reader.leave();
        self.input(Input::ClientClosed);
    }

    /// Lets time pass and runs what is due on the way.
    pub(crate) fn advance_to(&mut self, until: Instant) {
        let is_due = |at: &Instant| *at <= until;
        loop {
            let arrival = self.next_arrival().filter(|(at, _)| is_due(at));
            let wait = self.session.wait.filter(|wait| is_due(wait) && !self.session.is_finished);
            let read = self.reader.next_read().filter(is_due);
            let gone = self.reader.gone_at().filter(is_due);
            let Some(next) = [arrival.map(|(at, _)| at), read, wait, gone].into_iter().flatten().min() else {
                break;
            };
            self.session.now = self.session.now.max(next);
            if gone == Some(next) {
                self.disconnect();
            } else if let Some(message) =
                read.filter(|at| *at == next).and_then(|_| self.reader.read(self.session.now))
            {
                self.checks.on_client_read(&message);
                self.update_flow();
            } else if let Some(key) = arrival.filter(|(at, _)| *at == next) {
                if let Some((lane, reply)) = self.scheduled.remove(&key) {
                    self.deliver(lane, reply);
                }
            } else {
                self.input(Input::Timeout);
            }
        }
        self.session.now = self.session.now.max(until);
    }

    /// The next event of a lane that is read.
    fn next_arrival(&self) -> Option<(Instant, u64)> {
        let is_held = |lane: Lane, event: &UpstreamEvent| {
            self.reader.are_lanes_held()
                && !matches!(event, UpstreamEvent::Opened)
                && self.session.bridge.is_lane_held(lane)
        };
        self.scheduled.iter().find(|(_, (lane, event))| !is_held(*lane, event)).map(|(key, _)| *key)
    }

    /// Reports the flow control to the bridge, as the driver of a session does.
    fn update_flow(&mut self) {
        let flow = self.reader.changed_flow(&self.session.bridge.report(self.session.now));
        if let Some(flow) = flow.filter(|_| !self.session.is_finished && self.checks.is_client_there()) {
            self.input(Input::Flow(flow));
        }
    }

    fn send_to_client(&mut self, message: &Message, turn: Option<SpeechId>) {
        self.checks.on_client_message(message);
        self.checks.hearing.on_sent(message);
        if let Some(message) = self.reader.send(self.session.now, message.clone(), turn) {
            self.checks.on_client_read(&message);
        }
    }

    /// Disconnects the client if it is still connected, and checks that every lane closes and the bridge
    /// finishes.
    pub(crate) fn finish(&mut self) {
        self.disconnect();
        let bound = self.latest + LANE_CLOSE_LIMIT;
        while !self.is_finished() {
            let wait = self.session.wait.expect("lanes are open without a deadline");
            assert!(wait <= bound, "a lane is never closed");
            self.advance_to(wait.max(self.session.now));
        }
        self.checks.assert_ended(self.session.bridge.sample_counts());
        // Later events must have no effect.
        self.advance_to(self.session.now + LANE_CLOSE_LIMIT);
    }

    fn deliver(&mut self, lane: Lane, reply: UpstreamEvent) {
        if !self.checks.on_upstream_event(self.session.now, lane, &reply) {
            return;
        }
        match reply {
            UpstreamEvent::Opened => self.input(Input::LaneOpened(lane)),
            UpstreamEvent::Text(text) => self.input(Input::Lane(lane, Frame::Text(&text))),
            UpstreamEvent::Closed(why) => self.input(Input::LaneClosed(lane, why)),
        }
    }

    fn input(&mut self, input: Input<'_>) {
        let timeout = matches!(input, Input::Timeout);
        self.latest = self.latest.max(self.session.now);
        let outputs = self.session.input(input);
        self.handle_outputs(outputs);
        if let Some(wait) = self.session.wait.filter(|_| timeout) {
            assert!(wait > self.session.now, "the deadline has already passed");
        }
        self.update_flow();
    }

    fn handle_outputs(&mut self, outputs: Vec<Output>) {
        assert!(outputs.len() < MAX_OUTPUTS, "{} outputs after one input", outputs.len());
        for output in outputs {
            match &output {
                Output::Wait(_) | Output::Finished => unreachable!("the session keeps these"),
                Output::Event(_) => unreachable!("the client takes messages"),
                Output::ToClient(message, turn) => self.send_to_client(message, *turn),
                Output::DropTurn { turn, .. } => {
                    let dropped_bytes = self.reader.drop_turn(*turn);
                    self.checks.hearing.drop_unread(dropped_bytes);
                }
                // No profile here has pauses that matter.
                Output::JudgeTurn(..) | Output::WithdrawJudgement | Output::FindWorker(..) => {
                    panic!("a question about a pause")
                }
                Output::OpenLane(lane, _, purpose) => {
                    self.purposes.insert(*lane, *purpose);
                    self.checks.on_dial(*lane);
                    let Upstream { deltas, delta_samples, .. } = self.upstream(*lane);
                    self.checks.hearing.expect_deltas(lane_sample(lane.0), (deltas, delta_samples));
                    let replies = self.upstream(*lane).replies_to_dial();
                    self.schedule(*lane, replies);
                }
                Output::ReopenLane(lane, ..) => panic!("{lane:?} has a dialect that resumes nothing"),
                Output::Request(lane, _) => panic!("{lane:?} has a WebSocket"),
                Output::ToLane(lane, message) => {
                    let Message::Text(json) = message else { panic!("not text: {message:?}") };
                    let replies = match self.checks.on_lane_message(self.session.now, *lane, json) {
                        LaneMessage::Unit(number) => self.upstream(*lane).replies_to_unit(lane.0, number),
                        LaneMessage::Other { kind, wants_audio } => {
                            let earlier = *self.asked.get(lane).unwrap_or(&0);
                            *self.asked.entry(*lane).or_default() += u32::from(wants_audio);
                            self.upstream(*lane).replies_to(lane.0, &kind, wants_audio, earlier)
                        }
                    };
                    self.schedule(*lane, replies);
                }
                Output::CloseLane(lane) => self.checks.on_lane_dropped(self.session.now, *lane),
                Output::Observe(_) => {}
                Output::Record(_) => unreachable!("nothing is recorded"),
                Output::CallTool(_) => unreachable!("there are no tool servers"),
                // A server that never answers.
                Output::ConnectTools(..) | Output::LeaveTools(_) => {}
            }
            self.log.push((self.session.now - self.start, output));
        }
    }

    fn upstream(&self, lane: Lane) -> Upstream {
        let usual = &self.upstreams[lane.0 as usize % self.upstreams.len()];
        let trouble = self.trouble.filter(|trouble| self.purposes.get(&lane) == Some(&trouble.purpose));
        trouble.map_or_else(|| usual.clone(), |trouble| usual.in_trouble(trouble.stage, trouble.reaction))
    }

    fn schedule(&mut self, lane: Lane, replies: UpstreamEvents) {
        for (after_ms, reply) in replies {
            self.sent += 1;
            let at = self.session.now + Duration::from_millis(after_ms);
            self.scheduled.insert((at, self.sent), (lane, reply));
        }
    }
}
