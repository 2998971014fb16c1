//! Interruptions: silence at once, nothing of what was interrupted ever again, and the conversation goes on.

use std::time::Duration;

use serde_json::json;
use voxbridge::{
    audio::{
        input_converter::Intake,
        vad::{Edge, Segmenter, VadConfig, VoiceActivity},
    },
    event::Lane,
};

use super::{
    flavour::Flavour,
    mic::{Mic, ask, spoken, turns_heard, voices},
    ms,
    pair::{Pair, PairConfig, Traffic},
    sanity,
};

/// The profile's `start_ms`.
const START_MS: u32 = 100;

/// One voice-activity decision: so much speech, in hops of 16 ms.
const DECISION: Duration = ms(START_MS as u64 + 16);

/// How long after the first loud sound of a recording its speech may be too soft to be certain of.
const SOFTNESS: Duration = ms(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Voice,
    Cancel,
    Text,
}

/// How long silence took.
#[derive(Debug)]
struct Took {
    /// From the frame with the first loud sound of the voice to `speaking_end`.
    loud: Duration,
    /// From the frame in which the detector first found a hop of speech.
    voiced: Duration,
    /// From the first loud sound to the last audio of the turn.
    audio: Duration,
}

/// One case, all of it chance.
#[derive(Debug)]
struct Case {
    seed: u64,
    backend: Flavour,
    cause: Cause,
    rate_hz: u32,
    frame_bytes: usize,
    latency_ms: u64,
    listen_ms: u64,
    speak_ms: u64,
    units: usize,
    workers: usize,
    question: usize,
    interrupter: usize,
    /// Since the turn began to be heard, ms.
    after_ms: u64,
}

impl Case {
    fn new(seed: u64, backend: Flavour) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cause = match [Cause::Voice, Cause::Voice, Cause::Cancel, Cause::Text][rng.usize(..4)] {
            Cause::Text if Flavour::LEGACY.contains(&backend) => Cause::Cancel,
            cause => cause,
        };
        let rate_hz = if rng.u8(..4) == 0 { 48_000 } else { 16_000 };
        let frame_bytes = match rng.u8(..8) {
            0 => 333,
            _ => 2 * rng.usize(10..=256) * rate_hz as usize / 1000,
        };
        let units = rng.usize(4..7);
        Self {
            seed,
            backend,
            cause,
            rate_hz,
            frame_bytes,
            latency_ms: rng.u64(0..=150),
            listen_ms: rng.u64(20..400),
            speak_ms: rng.u64(50..700),
            units,
            workers: rng.usize(1..=2),
            question: rng.usize(..voices().len()),
            interrupter: rng.usize(..voices().len()),
            after_ms: rng.u64(0..(units as u64 - 2) * 1000 - 300),
        }
    }

    fn pair(&self) -> Pair {
        let mut config = PairConfig {
            profile: "conversation",
            query: format!("model=any&sample_rate={}", self.rate_hz),
            latency: ms(self.latency_ms),
            seed: self.seed,
            ..PairConfig::default()
        };
        self.backend.serves(&mut config);
        config.simulator.workers = self.workers;
        config.simulator.seed = self.seed;
        config.simulator.turn_units = self.units;
        config.simulator.force_listen_count = 1;
        config.simulator.timing.init = ms(0);
        config.simulator.timing.listen_step = ms(self.listen_ms);
        config.simulator.timing.speak_step = ms(self.speak_ms);
        Pair::new(config)
    }

    /// Plays it; for a voice, how long silence took.
    fn play(&self) -> Option<Took> {
        let (mut pair, mut mic) = (self.pair(), Mic::new(self.rate_hz, self.frame_bytes));
        mic.silence(&mut pair, 1200);
        ask(&mut pair, &mut mic, self.question);
        assert!(
            mic.until(&mut pair, |pair| !pair.events("tts.speaking_start").is_empty(), 15_000),
            "no answer to interrupt"
        );
        mic.silence(&mut pair, self.after_ms);
        let took = match self.cause {
            Cause::Voice => Some(self.speak_into(&mut pair, &mut mic)),
            Cause::Cancel => {
                self.command(&mut pair, &json!({"type": "tts.cancel"}));
                None
            }
            Cause::Text => {
                let text = json!({"type": "tts.speak", "text": "Excuse me.", "request_id": "text"});
                self.command(&mut pair, &text);
                None
            }
        };
        self.goes_on(&mut pair, &mut mic);
        let all = spoken(&pair);
        let (first, later) = all.split_first().unwrap();
        assert_eq!((first.turn(), first.cancelled()), (1, true));
        assert!(
            later.iter().all(|spoken| !spoken.has(1)),
            "something of the interrupted turn is heard later"
        );
        let next = later.iter().find(|spoken| spoken.is_turn()).unwrap();
        assert_eq!((next.turn(), next.cancelled()), (2, false));
        assert_eq!(next.samples.len(), (self.units - 1) * 24_000 + 14_400, "the answer is complete");
        assert_eq!(sanity::problems(&pair), [""; 0]);
        let forced = forced_at_once(&pair, first.ended.unwrap());
        assert!(forced || (self.cause, self.workers) == (Cause::Text, 1), "no unit follows");
        took
    }

    /// A voice interrupts: at the very frame that decides it.
    fn speak_into(&self, pair: &mut Pair, mic: &mut Mic) -> Took {
        let voice = &voices()[self.interrupter];
        let from = voice.onset.saturating_sub(1600);
        let began = mic.recorded() + voice.onset - from;
        let watched = pair.now();
        mic.record(pair, &voice.samples[from..(voice.onset + 20_800).min(voice.samples.len())]);
        mic.until(pair, |pair| !pair.events("tts.speaking_end").is_empty(), 300);
        let first = spoken(pair).swap_remove(0);
        assert!(first.cancelled(), "the voice was not heard");
        let ended = first.ended.unwrap();
        let (voiced, decided) = decided(mic, self.rate_hz, watched);
        assert_eq!(ended, decided, "not with the frame that decides");
        let onset = mic.arrival(began);
        let took = Took {
            loud: ended.saturating_sub(onset),
            voiced: ended - voiced,
            audio: first.frames.last().unwrap().0.saturating_sub(onset),
        };
        assert!(took.audio <= took.loud && took.loud <= mic.frame_length() + DECISION + SOFTNESS, "{took:?}");
        took
    }

    /// The client commands: it is silent before anything else happens.
    fn command(&self, pair: &mut Pair, command: &serde_json::Value) {
        pair.advance(ms(self.seed % 10));
        let ended = pair.now();
        pair.client(command);
        let end = spoken(pair).swap_remove(0);
        assert_eq!((end.ended, end.cancelled()), (Some(ended), true));
    }

    /// Until another turn of the model was heard to its end.
    fn goes_on(&self, pair: &mut Pair, mic: &mut Mic) {
        if self.cause != Cause::Voice {
            if self.cause == Cause::Text {
                let said = |pair: &Pair| pair.events("tts.speaking_end").len() == 2;
                assert!(mic.until(pair, said, 20_000), "the text is not spoken: {:?}", pair.names());
            }
            mic.silence(pair, self.seed % 1500);
            ask(pair, mic, self.interrupter);
        }
        let limit_ms = 20_000 + 1000 * self.units as u64;
        let heard = mic.until(pair, |pair| turns_heard(pair) == 2, limit_ms);
        assert!(heard, "no other turn is heard: {:?}", pair.names());
    }
}

/// When the frame came with the first speech, and when the one with which there were [`START_MS`] of it, watched from
/// then on.
fn decided(mic: &Mic, rate_hz: u32, watched: Duration) -> (Duration, Duration) {
    let (mut intake, mut activity) =
        (Intake::new(rate_hz, 1).unwrap(), VoiceActivity::new(VadConfig::default()));
    let config = VadConfig { start_ms: START_MS, end_ms: START_MS, ..VadConfig::default() };
    let hop_samples = activity.hop_samples();
    let mut segmenter = Segmenter::new(config, hop_samples);
    let (mut samples, mut voiced) = (Vec::new(), None);
    for (at, frame) in &mic.sent {
        intake.push(frame, &mut samples);
        let whole = samples.len() / hop_samples * hop_samples;
        for hop in samples[..whole].chunks_exact(hop_samples) {
            let speech = activity.hop(hop).speech;
            voiced = voiced.or(Some(*at).filter(|at| speech && *at > watched));
            if *at > watched && segmenter.push(speech) == Some(Edge::Start) {
                return (voiced.unwrap(), *at);
            }
        }
        samples.drain(..whole);
    }
    panic!("nobody speaks");
}

/// The unit after an interruption goes at once, or as soon as the one before it is answered, and it and all that
/// follow force the model to listen until it does. Whether there was one: a worker that is lent hears no more.
fn forced_at_once(pair: &Pair, interrupted: Duration) -> bool {
    let units = units_sent(pair);
    // One may have gone in the same instant, before it.
    let earlier = |unit: &&Sent| unit.at < interrupted || (unit.at == interrupted && !unit.forced);
    let (lane, before) = units.iter().rfind(earlier).map(|unit| (unit.lane, unit.place)).unwrap();
    let on_lane = |traffic: &Traffic, what: &str| matches!(traffic, Traffic::Received(of, text) if *of == lane && text.contains(what));
    let Some(first) = units.iter().find(|unit| unit.lane == lane && unit.place > before) else {
        return false;
    };
    let answer =
        pair.traffic[before..first.place].iter().find(|(_, traffic)| on_lane(traffic, "\"response."));
    assert_eq!(
        first.at,
        answer.expect("one in flight at a time").0.max(interrupted),
        "it does not go at once"
    );
    let listens = pair.traffic.iter().skip(first.place).position(|(_, traffic)| on_lane(traffic, "listen\""));
    let until = listens.map_or(usize::MAX, |after| first.place + after);
    let meanwhile =
        units.iter().filter(|unit| unit.lane == lane && (first.place..until).contains(&unit.place));
    assert!(meanwhile.clone().all(|unit| unit.forced), "a unit before the acknowledgement does not force");
    meanwhile.count() > 0
}

/// A unit the bridge sent.
struct Sent {
    place: usize,
    at: Duration,
    lane: Lane,
    forced: bool,
}

fn units_sent(pair: &Pair) -> Vec<Sent> {
    let unit = |(place, (at, traffic)): (usize, &(Duration, Traffic))| match traffic {
        Traffic::Sent(lane, text) if text.contains("\"force_listen\"") => {
            let forced = text.contains(r#""force_listen": true"#) || text.contains(r#""force_listen":true"#);
            Some(Sent { place, at: *at, lane: *lane, forced })
        }
        _ => None,
    };
    pair.traffic.iter().enumerate().filter_map(unit).collect()
}

fn distribution(mut of: Vec<Duration>) -> String {
    of.sort();
    let at = |percent: usize| of[(of.len() - 1) * percent / 100].as_millis();
    format!("min {} p50 {} p90 {} p99 {} max {} ms of {}", at(0), at(50), at(90), at(99), at(100), of.len())
}

fn cases(seeds: std::ops::Range<u64>, backend: Flavour) {
    let (mut took, mut failed) = (Vec::new(), Vec::new());
    for seed in seeds {
        let case = Case::new(seed, backend);
        match std::panic::catch_unwind(|| case.play()) {
            Ok(played) => took.extend(played),
            Err(_) => failed.push(case),
        }
    }
    assert!(failed.is_empty(), "{} cases: {failed:#?}", failed.len());
    let of = |which: fn(&Took) -> Duration| distribution(took.iter().map(which).collect());
    println!("{backend:?}: from the first loud frame to silence: {}", of(|took| took.loud));
    println!("{backend:?}: from the first loud frame to the last audio: {}", of(|took| took.audio));
    println!("{backend:?}: from the first frame with speech to silence: {}", of(|took| took.voiced));
}

#[test]
fn five_hundred_interruptions_on_pytorch() {
    cases(0..500, Flavour::Pytorch);
}

#[test]
fn five_hundred_interruptions_on_cpp() {
    cases(500..1000, Flavour::Cpp);
}

#[test]
fn interrupting_a_legacy_server() {
    cases(1000..1100, Flavour::Legacy);
}

#[test]
fn interrupting_the_documented_legacy_server() {
    cases(1100..1200, Flavour::Documented);
}
