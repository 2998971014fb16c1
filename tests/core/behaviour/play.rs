//! A session of a case: what the client does, what it received, and what the model made.

use std::cell::{RefCell, RefMut};

use voxbridge::{upstream::lane::LaneCodec, vocabulary::MessageMeta};
use voxbridge_test_support::world::{
    client::FRAME_MS,
    received::{Content, Reading, Texts},
};

use super::*;

pub(super) use crate::harness::secs;

/// Time between looks at what has come.
const STEP: Duration = Duration::from_millis(500);
/// Silence that ends an utterance.
const PAUSE: Duration = Duration::from_millis(900);

/// A session of a case.
pub(super) struct Play {
    pub(super) harness: Harness,
    pub(super) client: MappedClient,
    pub(super) case: Case,
    /// Place of the session's messages and traffic before the current request.
    mark: Mark,
    log: RefCell<Log>,
    /// Until then, the client need not say that it is there.
    alive_until: Duration,
    /// The silence between utterances is sent, as by a microphone.
    is_microphone_open: bool,
}

/// A place in what a session has received, exchanged and observed.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    received: usize,
    traffic: usize,
    observed: usize,
}

/// The output of the model on one lane.
#[derive(Debug, Default, Clone)]
pub(super) struct Made {
    pub(super) text: String,
    /// Length of its audio, samples.
    pub(super) samples: usize,
}

/// Messages that have been read, so that each is read once.
#[derive(Default)]
struct Log {
    contents: Vec<(Duration, Content)>,
    /// Length of the traffic that has been read.
    traffic: usize,
    codecs: BTreeMap<Lane, LaneCodec>,
    /// Place in the traffic, lane, and what the model made.
    made: Vec<(usize, Lane, Part)>,
}

/// A part of what the model made.
enum Part {
    Text(String),
    /// Samples.
    Audio(usize),
}

impl Log {
    #[expect(clippy::disallowed_methods, reason = "an instant has no other source; only differences count")]
    fn decode(&mut self, play: &Play) {
        let (upstream, now) = (play.case.upstream(), Instant::now());
        let traffic = &play.harness.traffic;
        for (at, (_, traffic)) in traffic.iter().enumerate().skip(self.traffic) {
            let (lane, frame) = match traffic {
                Traffic::Received(lane, text) => (*lane, Frame::Text(text)),
                Traffic::Body(lane, bytes) => {
                    self.made.push((at, *lane, Part::Audio(bytes.len() / 2)));
                    continue;
                }
                _ => continue,
            };
            let (mode, purpose) = play.harness.purposes[&lane];
            let made = &mut self.made;
            let note = |event: LaneEvent<'_>, _: MessageMeta<'_>| match event {
                LaneEvent::Text(text) => made.push((at, lane, Part::Text(text.to_owned()))),
                LaneEvent::Audio(samples) => made.push((at, lane, Part::Audio(samples.len()))),
                _ => {}
            };
            if upstream.is_http() {
                Dialect::new(upstream.clone()).decode(frame, note);
            } else {
                let new = || LaneCodec::new(upstream.clone(), mode, purpose);
                self.codecs.entry(lane).or_insert_with(new).decode(now, frame, note);
            }
        }
        self.traffic = traffic.len();
    }
}

impl Play {
    /// Opens a session of this case.
    pub(super) fn open(case: &Case) -> Self {
        Self::with(case, |_| ())
    }

    /// Opens a session with other settings.
    pub(super) fn with(case: &Case, change: impl FnOnce(&mut HarnessConfig)) -> Self {
        let mut config = case.config();
        change(&mut config);
        let client = case.mapped_client();
        let answers_frames = case.client.lock_step == LockStep::EveryFrame;
        let is_microphone_open = client.sends_audio() && (case.converses() || answers_frames);
        let harness = Harness::new(config);
        let opening = client.opening();
        let mut play = Self {
            harness,
            client,
            case: case.clone(),
            mark: Mark::default(),
            log: RefCell::default(),
            alive_until: Duration::ZERO,
            is_microphone_open,
        };
        play.send_all(&opening);
        play.wait(secs(1));
        play
    }

    pub(super) fn mapping(&self) -> &ClientMapping {
        self.case.client
    }

    pub(super) fn reading(&self) -> Reading<'static> {
        Reading::new(self.case.client, self.client.formats)
    }

    /// Everything since the session opened belongs to the current request.
    pub(super) fn mark_from_start(&mut self) {
        self.mark = Mark::default();
    }

    /// Begins the next request: later messages belong to it.
    pub(super) fn set_mark(&mut self) {
        self.mark = self.here();
    }

    fn here(&self) -> Mark {
        let harness = &self.harness;
        Mark {
            received: harness.received.len(),
            traffic: harness.traffic.len(),
            observed: harness.observations.len(),
        }
    }

    /// The client sends a message, if its connection is open.
    pub(super) fn send(&mut self, message: &Message) {
        if self.is_over() {
            return;
        }
        match message {
            Message::Text(text) => self.harness.send_text(text),
            Message::Binary(bytes) => self.harness.send_binary(bytes),
            Message::Close(..) => unreachable!("a client has no close message"),
        }
    }

    pub(super) fn send_all(&mut self, messages: &[Message]) {
        messages.iter().for_each(|message| self.send(message));
    }

    /// True if the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        self.harness.is_closed() || self.harness.finished
    }

    /// The client speaks in real time.
    pub(super) fn say(&mut self, samples: &[i16]) {
        for frame in self.client.speech(samples) {
            self.send_all(&frame);
            self.harness.advance(Duration::from_millis(FRAME_MS));
        }
    }

    /// Time passes, and the client shows that it is there, if its protocol can. An open microphone sends a little silence, as
    /// with discontinuous transmission: voice activity detection is what costs most here.
    pub(super) fn wait(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            left -= step;
            if self.is_over() {
                self.harness.advance(step);
            } else if self.is_microphone_open {
                self.say(&[0; 16 * FRAME_MS as usize]);
                self.harness.advance(step.saturating_sub(Duration::from_millis(FRAME_MS)));
            } else {
                self.keep_alive();
                self.harness.advance(step);
            }
        }
    }

    /// Says every few seconds that the client is there.
    fn keep_alive(&mut self) {
        let is_due = self.harness.now() >= self.alive_until;
        if let Some(message) = self.client.keep_alive().filter(|_| is_due) {
            self.send(&message);
            self.alive_until = self.harness.now() + secs(5);
        }
    }

    /// Time passes until the condition holds; false if it does not in this time.
    pub(super) fn wait_for(&mut self, limit: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let mut waited = Duration::ZERO;
        while !condition(self) {
            if waited >= limit || self.harness.finished {
                return false;
            }
            // Long waits are looked at less often.
            let steps = if waited < secs(20) { 1 } else { 8 };
            self.wait(steps * STEP);
            waited += steps * STEP;
        }
        true
    }

    /// An utterance that ends by silence, or by the client's commit.
    pub(super) fn utter(&mut self, samples: &[i16]) {
        self.say(samples);
        self.say(&vec![0; 16 * PAUSE.as_millis() as usize]);
        if self.client.formats.commits
            && let Some(end) = self.client.end_of_words()
        {
            self.send(&end);
        }
    }

    /// Reads what has come since the last call.
    fn catch_up(&self) -> RefMut<'_, Log> {
        let mut log = self.log.borrow_mut();
        let reading = self.reading();
        for (at, message) in &self.harness.received[log.contents.len()..] {
            log.contents.push((*at, reading.read(message)));
        }
        log
    }

    /// Messages to the client for the current request, with their times.
    fn contents<T>(&self, keep: impl Fn(Duration, &Content) -> Option<T>) -> Vec<T> {
        let log = self.catch_up();
        log.contents[self.mark.received..].iter().filter_map(|(at, content)| keep(*at, content)).collect()
    }

    /// JSON that the client received for the current request.
    pub(super) fn json(&self) -> Vec<Value> {
        self.contents(|_, content| match content {
            Content::Json(json) => Some(json.clone()),
            _ => None,
        })
    }

    /// Audio that the client received for the current request: times and lengths in s.
    pub(super) fn audio(&self) -> Vec<(Duration, f64)> {
        self.contents(|at, content| match content {
            Content::Audio(seconds) => Some((at, *seconds)),
            _ => None,
        })
    }

    /// Length of that audio, s.
    pub(super) fn heard_s(&self) -> f64 {
        self.audio().iter().map(|(_, seconds)| seconds).sum()
    }

    /// True if the client has received audio for the current request.
    pub(super) fn hears(&self) -> bool {
        !self.audio().is_empty()
    }

    /// The end of the connection: its close frame.
    pub(super) fn close(&self) -> Option<(u16, String)> {
        match self.harness.received.last() {
            Some((_, Message::Close(code, reason))) => Some((*code, reason.clone())),
            _ => None,
        }
    }

    /// Texts that the client received for the current request.
    pub(super) fn texts(&self) -> Texts {
        let mut texts = Texts::default();
        self.json().iter().for_each(|json| texts.add(json));
        texts
    }

    /// Errors of the current request.
    pub(super) fn errors(&self) -> Vec<Error> {
        let errors = self.harness.observations[self.mark.observed..].iter().filter_map(|it| match it {
            Observation::ErrorTold(error) => Some(error.clone()),
            _ => None,
        });
        errors.collect()
    }

    /// Output of the model for the current request, by lane, on lanes of this purpose.
    pub(super) fn made(&self, purpose: LanePurpose) -> Vec<Made> {
        let mut log = self.log.borrow_mut();
        log.decode(self);
        let mut made: BTreeMap<Lane, Made> = BTreeMap::new();
        for (at, lane, part) in &log.made {
            if *at >= self.mark.traffic && self.harness.purposes[lane].1 == purpose {
                let made = made.entry(*lane).or_default();
                match part {
                    Part::Text(text) => made.text.push_str(text),
                    Part::Audio(samples) => made.samples += samples,
                }
            }
        }
        made.into_values().collect()
    }

    /// What the client received for the current request, for people.
    pub(super) fn story(&self) -> String {
        let mut story = String::new();
        for (at, content) in &self.catch_up().contents[self.mark.received..] {
            let brief: String = match content {
                Content::Json(json) => json.to_string().chars().take(160).collect(),
                Content::Audio(_) if story.ends_with("audio; ") => continue,
                Content::Audio(_) => "audio".to_owned(),
                Content::Close(code, reason) => format!("close {code} {reason:?}"),
                Content::Nothing => continue,
            };
            write!(story, "{:.1} s {brief}; ", at.as_secs_f64()).unwrap();
        }
        format!("{:?} at {:.1} s: {story}", self.errors(), self.harness.now().as_secs_f64())
    }
}

/// The first utterance: 2.8 s.
pub(super) fn first_words() -> &'static [i16] {
    static WORDS: OnceLock<Vec<i16>> = OnceLock::new();
    WORDS.get_or_init(|| recording("goforward_16k.wav"))
}

/// The second utterance: 3 s.
pub(super) fn second_words() -> &'static [i16] {
    static WORDS: OnceLock<Vec<i16>> = OnceLock::new();
    WORDS.get_or_init(|| recording("librivox_0880_16k.wav"))
}
