//! A user whose every sample is identifiable, and checks of where each sample went.
//!
//! The bridge passes 16 kHz audio bit by bit, so the check is an equation: the audio of all upstreams without
//! zeros equals the audio sent. The user never sends a zero and adds faint noise that does not repeat, so any
//! lost, doubled or swapped sample shows. In the other direction, the simulator's watermark numbers the
//! model's samples.

use voxbridge::simulator::watermark_sample;
use voxbridge_test_support::hot::with_noise;

use super::{
    harness::{ClientFrame, Harness, HarnessConfig, Traffic, recording},
    *,
};

pub(crate) use super::harness::{ms, secs};

/// RMS 37 of 32768: below the speech threshold of bridge and simulator.
const NOISE: i16 = 64;

/// Length of the client's frames.
const FRAME_MS: u64 = 100;

/// Samples of one simulated turn: 2.6 s.
pub(crate) const TURN_SAMPLES: usize = 62_400;

/// A conversation with all checks.
pub(crate) struct Conversation {
    pub(crate) harness: Harness,
    rng: fastrand::Rng,
    question: Vec<i16>,
    /// Samples sent and not yet received by a model.
    sent: VecDeque<i16>,
    /// Samples received once and in their place.
    pub(crate) matched_samples: u64,
    /// Samples sent to a second upstream session because the first never answered them.
    pub(crate) resent_samples: u64,
    /// How many of the samples the bridge dropped are no longer expected.
    abandoned: u64,
    /// The lane that last received audio, the audio that may be sent again, and the replay still expected.
    lane: Option<Lane>,
    tail: VecDeque<i16>,
    replay: VecDeque<i16>,
    log_position: usize,
    /// Model turns that the client played to the end or cancelled.
    pub(crate) turns_ended: usize,
    ended_at: Duration,
    /// For each question, from its last word to the end of its answer.
    pub(crate) questions: Vec<(Duration, Duration)>,
    /// Upstream sessions that received user audio.
    hearing_lanes: BTreeSet<Lane>,
    /// Times at which the bridge closed one of them.
    pub(crate) goodbyes: Vec<Duration>,
    pub(crate) frames_heard: usize,
    /// Appends of all upstream sessions.
    pub(crate) heard_units: usize,
}

pub(crate) fn config(backend: ServerKind, faults: &[&str]) -> HarnessConfig {
    let mut config = HarnessConfig { profile: "conversation", ..HarnessConfig::with_faults(faults) };
    backend.configure(&mut config);
    config
}

pub(crate) const BACKENDS: [ServerKind; 4] = ServerKind::OF_DEMO;

/// A short, measurable initialisation.
pub(crate) fn with_init(mut config: HarnessConfig, init_ms: u64) -> HarnessConfig {
    config.simulator.timing.init = ms(init_ms);
    config
}

/// Speech without a pause.
pub(crate) fn endless_speech(seconds: u64) -> Vec<i16> {
    let spoken = &recording("librivox_0870_16k.wav")[16 * 200..16 * 6700];
    spoken.iter().copied().cycle().take((16_000 * seconds) as usize).collect()
}

/// The library with these texts of its profiles replaced.
pub(crate) fn with_profile_changes(mut library: Library, replaced: &[(&str, &str)]) -> Library {
    for name in ["conversation", "video"] {
        let files = Library::embedded().unwrap();
        let (_, _, file, source) = files.files().find(|(_, known, ..)| *known == name).unwrap();
        let rules = replaced.iter().fold(source.to_owned(), |rules, (old, new)| rules.replace(old, new));
        library.add(file, &rules).unwrap();
    }
    library
}

/// A second worker holds a standby session.
pub(crate) const STANDBY: (&str, &str) = ("standby = false", "standby = true");

/// Longest audio that is sent again: a question of 20 s.
const TAIL_SAMPLES: usize = 320_000;

impl Conversation {
    /// A conversation whose client asks for rollover events.
    pub(crate) fn new(config: HarnessConfig) -> Self {
        let mut conversation = Self::without_rollover_events(config);
        conversation.harness.send_json(&json!({"type": "session.configure", "rollover_events": true}));
        conversation
    }

    /// A conversation whose client asks for no extra events.
    pub(crate) fn without_rollover_events(config: HarnessConfig) -> Self {
        Self {
            harness: Harness::new(config),
            rng: fastrand::Rng::with_seed(7),
            question: recording("goforward_16k.wav"),
            sent: VecDeque::new(),
            matched_samples: 0,
            resent_samples: 0,
            abandoned: 0,
            lane: None,
            tail: VecDeque::new(),
            replay: VecDeque::new(),
            log_position: 0,
            turns_ended: 0,
            ended_at: Duration::ZERO,
            questions: Vec::new(),
            hearing_lanes: BTreeSet::new(),
            goodbyes: Vec::new(),
            frames_heard: 0,
            heard_units: 0,
        }
    }

    /// The user says these samples, in real time.
    pub(crate) fn stream_speech(&mut self, samples: &[i16]) {
        let marked = with_noise(samples, NOISE, &mut self.rng);
        self.sent.extend(&marked);
        for frame in marked.chunks(16 * FRAME_MS as usize) {
            self.harness.stream(frame, FRAME_MS);
            self.check_recorded();
        }
    }

    /// The microphone is on and the user is silent.
    pub(crate) fn stream_silence(&mut self, ms: u64) {
        self.stream_speech(&vec![0; (16 * ms) as usize]);
    }

    /// The microphone is off.
    pub(crate) fn wait_without_audio(&mut self, time: Duration) {
        self.harness.advance(time);
        self.check_recorded();
    }

    /// The user asks a question without waiting for the answer.
    pub(crate) fn send_question(&mut self) {
        let question = std::mem::take(&mut self.question);
        self.stream_speech(&question);
        self.question = question;
    }

    /// The user asks a question and listens to the answer.
    pub(crate) fn ask(&mut self) {
        let before = self.turns_ended;
        self.send_question();
        self.stream_until_answered(before);
    }

    /// The user listens until another answer has been played to its end.
    pub(crate) fn stream_until_answered(&mut self, before: usize) {
        let asked_at = self.harness.now();
        while self.turns_ended == before {
            self.stream_silence(500);
            let waited = self.harness.now() - asked_at;
            assert!(waited < secs(60), "no answer at {:?}: {:?}", self.harness.now(), self.harness.names());
        }
        self.questions.push((asked_at, self.ended_at));
    }

    /// Consumes the recorded units and checks the user's audio.
    pub(crate) fn check_recorded(&mut self) {
        for (lane, unit) in std::mem::take(&mut self.harness.units) {
            self.frames_heard += unit.frame_count;
            self.heard_units += 1;
            self.check_heard_samples(lane, &unit.samples);
        }
        for (at, traffic) in std::mem::take(&mut self.harness.traffic) {
            match traffic {
                Traffic::Sent(lane, text) if contains(&text, "\"session.close\"") => {
                    self.goodbyes.extend(Some(at).filter(|_| self.hearing_lanes.contains(&lane)));
                }
                _ => {}
            }
        }
        let news = &self.harness.log[self.log_position..];
        for (at, _) in news.iter().filter(|(_, frame)| frame.name() == "tts.speaking_end") {
            self.turns_ended += 1;
            self.ended_at = *at;
        }
        self.log_position = self.harness.log.len();
    }

    fn check_heard_samples(&mut self, lane: Lane, samples: &[f32]) {
        assert_eq!(samples.len(), 16_000, "units of one second");
        let whole = |sample: &f32| (sample * 32_768.0) as i16;
        let heard: Vec<i16> = samples.iter().map(whole).filter(|sample| *sample != 0).collect();
        if heard.is_empty() {
            return;
        }
        self.hearing_lanes.insert(lane);
        if self.lane.replace(lane) != Some(lane) {
            self.replay = self.expected_replay(&heard);
        }
        let resent_samples = heard.len().min(self.replay.len());
        assert!(
            self.replay.drain(..resent_samples).eq(heard[..resent_samples].iter().copied()),
            "replayed audio differs"
        );
        self.resent_samples += resent_samples as u64;
        self.match_samples(&heard[resent_samples..]);
        self.tail.extend(&heard[resent_samples..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_SAMPLES));
    }

    /// The replay a next lane starts with: the end of the last lane's audio, if `heard` begins with it.
    fn expected_replay(&self, heard: &[i16]) -> VecDeque<i16> {
        let tail = Vec::from(self.tail.clone());
        let start = &heard[..heard.len().min(100)];
        let at = tail.windows(start.len()).position(|window| window == start);
        at.map_or_else(VecDeque::new, |at| tail[at..].to_vec().into())
    }

    fn match_samples(&mut self, heard: &[i16]) {
        // Gives up dropped audio second by second until the rest fits, since more may have been dropped. A
        // single sample matches by chance once in a hundred times.
        let dropped = self.harness.bridge().uplink_counts().unwrap().dropped;
        while self.abandoned < dropped
            && self.sent.iter().zip(heard).take(100).any(|(sent, heard)| sent != heard)
        {
            self.abandon_oldest((dropped - self.abandoned).min(16_000));
        }
        for sample in heard {
            let sent = self.sent.pop_front();
            assert_eq!(sent, Some(*sample), "sample {} at {:?}", self.matched_samples, self.harness.now());
            self.matched_samples += 1;
        }
    }

    /// Stops expecting the oldest unreceived samples, which the bridge has dropped.
    fn abandon_oldest(&mut self, samples: u64) {
        self.sent.drain(..samples as usize);
        self.abandoned += samples;
    }

    /// Samples the bridge has dropped and reported to the client.
    pub(crate) fn dropped(&self) -> u64 {
        let reports = self.harness.events("session.frames_dropped").into_iter();
        let told_ms: u64 = reports.map(|event| event["dropped_ms"].as_u64().unwrap()).sum();
        let dropped = self.harness.bridge().uplink_counts().unwrap().dropped;
        assert_eq!(told_ms * 16, dropped);
        dropped
    }

    /// Turns of a new gateway start at one again, so the played turns are forgotten.
    pub(crate) fn forget_turns(&mut self) {
        self.harness.log.retain(|(_, frame)| !matches!(frame, ClientFrame::Binary(_)));
        self.log_position = self.harness.log.len();
    }

    /// Checks that every sample was received once or still waits, and that the bridge's account agrees.
    pub(crate) fn assert_all_heard(&mut self) {
        let dropped = self.harness.bridge().uplink_counts().unwrap().dropped;
        self.abandon_oldest(dropped - self.abandoned);
        let (account, too_fast) = self.harness.bridge().sample_counts();
        let streamed = self.harness.bridge().uplink_counts().unwrap();
        let kept = streamed.appended + streamed.silenced + streamed.dropped + streamed.waiting;
        assert_eq!((account.streamed, too_fast), (kept, 0), "{streamed:?}");
        assert_eq!(account.received, account.streamed + account.muted);
        assert_eq!(streamed.waiting, self.sent.len() as u64, "{streamed:?}");
        assert_eq!(streamed.appended, self.matched_samples, "{streamed:?}");
    }

    /// The model's turns as the client played them: the number and length of each.
    ///
    /// # Panics
    /// At the first sample out of place.
    pub(crate) fn turns(&self) -> Vec<(u64, usize)> {
        let mut turns: Vec<(u64, usize)> = Vec::new();
        for (at, sample) in self.harness.audio().into_iter().enumerate() {
            let (turn, _) =
                read_watermark(sample).unwrap_or_else(|| panic!("{sample} at {at} is not model audio"));
            if turns.last().is_none_or(|(last, _)| *last % 8 != turn) {
                let last = turns.last().map_or(0, |(last, _)| *last);
                let number = (last + 1..).find(|number| number % 8 == turn).unwrap();
                turns.push((number, 0));
            }
            let (number, samples) = turns.last_mut().unwrap();
            let expected = (watermark_sample(*number, *samples) * 32_768.0) as i16;
            assert_eq!(sample, expected, "sample {samples} of turn {number}, {at} in all");
            *samples += 1;
        }
        turns
    }

    /// Checks that every turn from the first one on was played completely.
    pub(crate) fn assert_turns_complete(&self, turns: usize) -> usize {
        let expected: Vec<(u64, usize)> = (1..=turns as u64).map(|turn| (turn, TURN_SAMPLES)).collect();
        assert_eq!(self.turns(), expected);
        turns * TURN_SAMPLES
    }

    /// The rollovers: reason, gap in ms, and whether a standby was ready.
    pub(crate) fn rollovers(&self) -> Vec<(RolloverReason, u64, bool)> {
        let rolled = self.harness.observations.iter().filter_map(|observations| match observations {
            Observation::RolledOver { reason, gap_ms, standby, .. } => Some((*reason, *gap_ms, *standby)),
            _ => None,
        });
        rolled.collect()
    }

    /// Checks that the prompt of the session that hears the user contains everything the model said before it.
    pub(crate) fn assert_prompt_contains(&self, said: &[String]) {
        assert_eq!(self.unknown_to_model(said), 0, "of {said:?} in {:?}", self.harness.openings.last());
    }

    /// How many of these texts are not in the prompt of the session that hears the user.
    pub(crate) fn unknown_to_model(&self, said: &[String]) -> usize {
        let mut openings = self.harness.openings.iter();
        let (_, opening) = openings.find(|(lane, _)| Some(*lane) == self.lane).unwrap();
        let prompt = opening.prompt.as_deref().unwrap();
        said.iter().filter(|text| !prompt.contains(*text)).count()
    }

    /// The model's final transcripts before the first rollover.
    pub(crate) fn said_before_rollover(&self) -> Vec<String> {
        let events = self.harness.all_events();
        let before = events.take_while(|event| event["type"] != "session.rollover");
        let finals = before.filter(|event| event["type"] == "transcript.final");
        finals.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    }

    /// The model's final transcripts so far.
    pub(crate) fn said(&self) -> Vec<String> {
        let finals = self.harness.events("transcript.final");
        finals.into_iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    }

    /// The rollovers as the client was notified of them.
    pub(crate) fn reported_rollovers(&self) -> Vec<(String, u64, bool)> {
        let reports = self.harness.events("session.rollover").into_iter().map(|event| {
            let reason = event["reason"].as_str().unwrap().to_owned();
            (reason, event["gap_ms"].as_u64().unwrap(), event["standby"].as_bool().unwrap())
        });
        reports.collect()
    }

    /// Codes of the reported errors, and whether each is recoverable.
    pub(crate) fn errors(&self) -> Vec<(String, bool)> {
        let code = |event: &Value| event["code"].as_str().unwrap().to_owned();
        let errors = self.harness.events("error");
        errors.into_iter().map(|event| (code(event), event["recoverable"] == true)).collect()
    }

    /// Checks that no session was closed between a question's last word and its answer.
    pub(crate) fn assert_no_goodbye_during_answer(&self) {
        for at in &self.goodbyes {
            let asked = self.questions.iter().find(|(asked, answered)| asked < at && at < answered);
            assert_eq!(asked, None, "goodbye at {at:?}");
        }
    }

    /// Checks that the conversation still works: one more question is answered.
    pub(crate) fn assert_continues(self) {
        self.assert_continues_with(|_| {});
    }

    /// Like `assert_continues`, with one more check after the answer.
    pub(crate) fn assert_continues_with(mut self, check: impl FnOnce(&mut Self)) {
        self.stream_silence(4_000);
        self.ask();
        check(&mut self);
        self.assert_all_heard();
        self.turns();
        self.close_and_check();
    }

    /// Ends the session, checks that everything closed politely, and returns the client's log.
    pub(crate) fn close_and_check(mut self) -> Vec<(Duration, ClientFrame)> {
        self.harness.send_json(&json!({"type": "session.close"}));
        self.harness.advance(secs(60));
        assert!(self.harness.is_over(), "the session does not finish");
        assert_eq!(self.harness.names().last().unwrap(), "close 1000");
        assert_eq!(protocol_checks::find_violations(&self.harness), [""; 0]);
        self.harness.log
    }
}
