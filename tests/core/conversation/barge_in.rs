//! Barge-in: immediate silence, no later audio of the interrupted turn, and a conversation that continues.

use super::{
    harness::{Harness, HarnessConfig, Traffic},
    *,
};

/// Time until the detector is certain of an utterance, in hops of 16 ms.
const DECISION_TIME: Duration = ms(250 + 16);

/// Longest time after a recording's first loud sound in which its speech may be too soft to detect.
const SOFT_ONSET_MAX: Duration = ms(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterruptionCause {
    Voice,
    Cancel,
    Text,
}

/// Delays until silence.
#[derive(Debug)]
struct SilenceDelays {
    /// From the frame with the first loud sound of the voice to `speaking_end`.
    from_loud: Duration,
    /// From the frame with the first voiced hop to `speaking_end`.
    from_voiced: Duration,
    /// From the first loud sound to the last audio of the turn.
    audio: Duration,
}

/// One random case.
#[derive(Debug)]
struct InterruptionCase {
    seed: u64,
    backend: ServerKind,
    cause: InterruptionCause,
    rate_hz: u32,
    frame_bytes: usize,
    latency_ms: u64,
    listen_ms: u64,
    speak_ms: u64,
    units: usize,
    workers: usize,
    question: usize,
    interrupting_voice: usize,
    /// Time since the turn became audible, ms.
    after_ms: u64,
}

impl InterruptionCase {
    fn new(seed: u64, backend: ServerKind) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cause = match [
            InterruptionCause::Voice,
            InterruptionCause::Voice,
            InterruptionCause::Cancel,
            InterruptionCause::Text,
        ][rng.usize(..4)]
        {
            InterruptionCause::Text if !ServerKind::WITH_CHAT.contains(&backend) => InterruptionCause::Cancel,
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
            interrupting_voice: rng.usize(..voices().len()),
            after_ms: rng.u64(0..(units as u64 - 2) * 1000 - 300),
        }
    }

    fn open_harness(&self) -> Harness {
        let mut config = HarnessConfig {
            profile: "conversation",
            query: format!("model=any&sample_rate={}", self.rate_hz),
            latency: ms(self.latency_ms),
            seed: self.seed,
            ..HarnessConfig::default()
        };
        self.backend.configure(&mut config);
        config.simulator.workers = self.workers;
        config.simulator.seed = self.seed;
        config.simulator.turn_units = self.units;
        config.simulator.force_listen_count = 1;
        config.simulator.timing.init = ms(0);
        config.simulator.timing.listen_step = ms(self.listen_ms);
        config.simulator.timing.speak_step = ms(self.speak_ms);
        Harness::new(config)
    }

    /// Plays the case. For a voice, returns the delays until silence.
    fn play(&self) -> Option<SilenceDelays> {
        let (mut harness, mut microphone) =
            (self.open_harness(), Microphone::new(self.rate_hz, self.frame_bytes));
        microphone.silence(&mut harness, 1200);
        ask(&mut harness, &mut microphone, self.question);
        assert!(
            microphone.stream_until(
                &mut harness,
                |harness| !harness.events("tts.speaking_start").is_empty(),
                15_000
            ),
            "no answer to interrupt"
        );
        microphone.silence(&mut harness, self.after_ms);
        let delays = match self.cause {
            InterruptionCause::Voice => Some(self.barge_in(&mut harness, &mut microphone)),
            InterruptionCause::Cancel => {
                self.send_and_check(&mut harness, &json!({"type": "tts.cancel"}));
                None
            }
            InterruptionCause::Text => {
                let text = json!({"type": "tts.speak", "text": "Excuse me.", "request_id": "text"});
                self.send_and_check(&mut harness, &text);
                None
            }
        };
        self.assert_continues(&mut harness, &mut microphone);
        let all = spoken_texts(&harness);
        let (first, later) = all.split_first().unwrap();
        assert_eq!((first.model_turn(), first.is_cancelled()), (1, true));
        assert!(
            later.iter().all(|spoken| !spoken.contains_turn(1)),
            "a turn is played after its interruption"
        );
        let next = later.iter().find(|spoken| spoken.is_model_turn()).unwrap();
        assert_eq!((next.model_turn(), next.is_cancelled()), (2, false));
        assert_eq!(next.samples.len(), (self.units - 1) * 24_000 + 14_400, "the answer is complete");
        assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
        // No message of SGLang-Omni forces the model to listen.
        let forced = self.backend == ServerKind::SglangOmni || forced_at_once(&harness, first.ended.unwrap());
        assert!(forced || (self.cause, self.workers) == (InterruptionCause::Text, 1), "no unit follows");
        delays
    }

    /// A voice interrupts the turn with exactly the frame that decides.
    fn barge_in(&self, harness: &mut Harness, microphone: &mut Microphone) -> SilenceDelays {
        let voice = &voices()[self.interrupting_voice];
        let from = voice.onset.saturating_sub(1600);
        let began = microphone.recorded() + voice.onset - from;
        let watched_from = harness.now();
        microphone.record(harness, &voice.samples[from..(voice.onset + 20_800).min(voice.samples.len())]);
        microphone.stream_until(harness, |harness| !harness.events("tts.speaking_end").is_empty(), 300);
        let first = spoken_texts(harness).swap_remove(0);
        assert!(first.is_cancelled(), "the voice did not interrupt the turn");
        let ended = first.ended.unwrap();
        let detection = Detection::of(microphone, watched_from);
        assert_eq!(Some(ended), detection.decided, "not with the deciding frame");
        assert_speech_start_precedes_cancel(harness);
        let onset = microphone.arrival_time(began);
        let delays = SilenceDelays {
            from_loud: ended.saturating_sub(onset),
            from_voiced: ended - detection.voiced.unwrap(),
            audio: first.frames.last().unwrap().0.saturating_sub(onset),
        };
        assert!(
            delays.audio <= delays.from_loud
                && delays.from_loud <= microphone.frame_length() + DECISION_TIME + SOFT_ONSET_MAX,
            "{delays:?}"
        );
        delays
    }

    /// The client sends a command, and the audio stops before anything else happens.
    fn send_and_check(&self, harness: &mut Harness, command: &Value) {
        harness.advance(ms(self.seed % 10));
        let ended = harness.now();
        harness.send_json(command);
        let end = spoken_texts(harness).swap_remove(0);
        assert_eq!((end.ended, end.is_cancelled()), (Some(ended), true));
    }

    /// Waits until another turn of the model was played to its end.
    fn assert_continues(&self, harness: &mut Harness, microphone: &mut Microphone) {
        if self.cause != InterruptionCause::Voice {
            if self.cause == InterruptionCause::Text {
                let is_spoken = |harness: &Harness| harness.events("tts.speaking_end").len() == 2;
                assert!(
                    microphone.stream_until(harness, is_spoken, 20_000),
                    "the text was not spoken: {:?}",
                    harness.names()
                );
            }
            microphone.silence(harness, self.seed % 1500);
            ask(harness, microphone, self.interrupting_voice);
        }
        let limit_ms = 20_000 + 1000 * self.units as u64;
        let played = microphone.stream_until(harness, |harness| turns_heard(harness) == 2, limit_ms);
        assert!(played, "no other turn was played: {:?}", harness.names());
    }
}

/// Checks that the client learns of the user's speech before it learns of the interruption.
pub(crate) fn assert_speech_start_precedes_cancel(harness: &Harness) {
    let edges = |name: &str| name.starts_with("vad.speech_") || name == "tts.speaking_end";
    let names: Vec<String> = harness.names().into_iter().filter(|name| edges(name)).collect();
    let end = names.iter().position(|name| name == "tts.speaking_end").expect("an end of the turn");
    assert_eq!(names[..end].last().map(String::as_str), Some("vad.speech_start"), "{names:?}");
}

/// Checks the unit after an interruption: sent at once, or as soon as the previous one is answered. It and
/// all later units force the model to listen until it does. False if there was no unit, because the worker is
/// lent.
fn forced_at_once(harness: &Harness, interrupted: Duration) -> bool {
    let units = units_sent(harness);
    // A unit may have gone out at the same instant before the interruption.
    let earlier = |unit: &&SentUnit| unit.at < interrupted || (unit.at == interrupted && !unit.forced);
    let (lane, before) = units.iter().rfind(earlier).map(|unit| (unit.lane, unit.place)).unwrap();
    let on_lane = |traffic: &Traffic, what: &str| matches!(traffic, Traffic::Received(of, text) if *of == lane && text.contains(what));
    let Some(first) = units.iter().find(|unit| unit.lane == lane && unit.place > before) else {
        return false;
    };
    let answer =
        harness.traffic[before..first.place].iter().find(|(_, traffic)| on_lane(traffic, "\"response."));
    assert_eq!(first.at, answer.expect("one in flight at a time").0.max(interrupted), "the unit is late");
    let listen_step =
        harness.traffic.iter().skip(first.place).position(|(_, traffic)| on_lane(traffic, "listen\""));
    let until = listen_step.map_or(usize::MAX, |after| first.place + after);
    let meanwhile =
        units.iter().filter(|unit| unit.lane == lane && (first.place..until).contains(&unit.place));
    assert!(meanwhile.clone().all(|unit| unit.forced), "a unit before the acknowledgement does not force");
    meanwhile.count() > 0
}

/// A unit sent by the bridge.
struct SentUnit {
    place: usize,
    at: Duration,
    lane: Lane,
    forced: bool,
}

fn units_sent(harness: &Harness) -> Vec<SentUnit> {
    let unit = |(place, (at, traffic)): (usize, &(Duration, Traffic))| match traffic {
        Traffic::Sent(lane, text) if text.contains("\"force_listen\"") => {
            let forced = text.contains(r#""force_listen": true"#) || text.contains(r#""force_listen":true"#);
            Some(SentUnit { place, at: *at, lane: *lane, forced })
        }
        _ => None,
    };
    harness.traffic.iter().enumerate().filter_map(unit).collect()
}

fn distribution(mut of: Vec<Duration>) -> String {
    of.sort();
    let at = |percent: usize| of[(of.len() - 1) * percent / 100].as_millis();
    format!("min {} p50 {} p90 {} p99 {} max {} ms of {}", at(0), at(50), at(90), at(99), at(100), of.len())
}

/// Cases on each kind of server.
const CASES: usize = 20;

fn run_cases(seeds: std::ops::Range<u64>, backend: ServerKind) {
    let (mut delays, mut failed) = (Vec::new(), Vec::new());
    for seed in some_of(seeds, CASES) {
        let case = InterruptionCase::new(seed, backend);
        match std::panic::catch_unwind(|| case.play()) {
            Ok(played) => delays.extend(played),
            Err(_) => failed.push(case),
        }
    }
    assert!(failed.is_empty(), "{} cases: {failed:#?}", failed.len());
    let of = |which: fn(&SilenceDelays) -> Duration| distribution(delays.iter().map(which).collect());
    println!("{backend:?}: from the first loud frame to silence: {}", of(|delays| delays.from_loud));
    println!("{backend:?}: from the first loud frame to the last audio: {}", of(|delays| delays.audio));
    println!("{backend:?}: from the first frame with speech to silence: {}", of(|delays| delays.from_voiced));
}

#[test]
fn interruptions_on_pytorch() {
    run_cases(0..150, ServerKind::Pytorch);
}

#[test]
fn interruptions_on_cpp() {
    run_cases(500..650, ServerKind::Cpp);
}

#[test]
fn interruptions_on_legacy_server() {
    run_cases(1000..1060, ServerKind::Legacy);
}

#[test]
fn interruptions_on_documented_legacy_server() {
    run_cases(1100..1160, ServerKind::Documented);
}

#[test]
fn interruptions_on_sglang_omni() {
    run_cases(1200..1260, ServerKind::SglangOmni);
}
