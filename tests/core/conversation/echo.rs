//! Devices that hear themselves: a loudspeaker and a microphone in one simulated room.

use super::{
    harness::{ClientFrame, Harness, HarnessConfig, recording},
    *,
};

const FRAME_MS: usize = 20;
const FRAME: usize = 16 * FRAME_MS;

/// Reflections of the room: delay in samples and share of the direct sound.
const REFLECTIONS: [(usize, f32); 7] =
    [(0, 1.0), (53, -0.31), (117, 0.24), (211, -0.2), (340, 0.15), (505, 0.1), (760, -0.06)];

/// The model answers with recordings.
fn engines(request: EngineRequest) -> EngineAnswer {
    match request {
        EngineRequest::Recognise(audio) => EngineAnswer::Transcript(Ok(format!("{} words", audio.len()))),
        EngineRequest::Speak(text) => {
            let names = ["jfk_16k.wav", "librivox_0870_16k.wav"];
            let spoken = recording(names[text.bytes().map(usize::from).sum::<usize>() % names.len()]);
            // Three samples for two.
            let sample = |at: usize| {
                let (index, part) = (at * 2 / 3, (at * 2 % 3) as f32 / 3.0);
                let [one, two] = [0, 1].map(|next| f32::from(spoken[(index + next).min(spoken.len() - 1)]));
                (one + (two - one) * part) / 32_768.0
            };
            EngineAnswer::Speech(Ok((0..spoken.len() * 3 / 2).map(sample).collect()))
        }
    }
}

/// Loudspeaker, room, user and microphone of a client that plays audio as soon as it arrives.
struct Device {
    harness: Harness,
    delay: usize,
    gain: f32,
    /// All that was played, by the microphone's samples.
    played: Vec<i16>,
    converter: InputConverter,
    log_position: usize,
    /// Speech that the user has yet to say.
    speech: VecDeque<i16>,
    /// The microphone's samples so far.
    recorded: usize,
    noise: fastrand::Rng,
    /// Since when the user has been silent.
    silent_since: usize,
    /// Starts of speech, and cancelled answers.
    starts: usize,
    cuts: usize,
    report: Report,
}

/// Counts of a session.
#[derive(Debug, Default, Clone, PartialEq)]
struct Report {
    /// The echo alone was taken for the user's speech.
    false_starts: usize,
    /// Answers that were cut by their echo.
    false_barge_ins: usize,
    /// From the user's word to the end of playback, ms; `None` if it did not end.
    barge_ins: Vec<Option<u64>>,
    questions: usize,
    answers: usize,
    /// Samples during which only the echo was in the microphone.
    echo_samples: usize,
}

impl Device {
    fn new(profile: &'static str, cancels: bool, delay_ms: usize, level_db: f32) -> Self {
        let mut config = HarnessConfig { profile, engines: Some(engines), ..HarnessConfig::default() };
        config.simulator.use_engines = true;
        config.simulator.record = true;
        if cancels {
            let asks = ("\n[audio_out]", "echo = \"cancel\"\n\n[audio_out]");
            config.change_file(MappingKind::Client, "macaw", &[asks]);
        }
        Self {
            harness: Harness::new(config),
            delay: 16 * delay_ms,
            gain: 10f32.powf(level_db / 20.0),
            played: Vec::new(),
            converter: InputConverter::live(Encoding::S16le, 24_000, 1).unwrap(),
            log_position: 0,
            speech: VecDeque::new(),
            recorded: 0,
            noise: fastrand::Rng::with_seed(delay_ms as u64),
            silent_since: 0,
            starts: 0,
            cuts: 0,
            report: Report::default(),
        }
    }

    /// The microphone records and sends one frame.
    fn run_frame(&mut self) {
        self.harness.advance(Duration::from_millis(FRAME_MS as u64));
        let mut is_echo = false;
        let mut frame = Vec::with_capacity(2 * FRAME);
        for at in self.recorded..self.recorded + FRAME {
            let echo: f32 = REFLECTIONS.iter().map(|(later, share)| share * self.echo_at(at, *later)).sum();
            is_echo |= self.echo_at(at, 0) != 0.0;
            let voice = self.speech.pop_front().unwrap_or_default();
            let sample = f32::from(voice) + self.gain * echo + f32::from(self.noise.i16(-30..=30));
            frame.extend((sample as i16).to_le_bytes());
        }
        self.recorded += FRAME;
        if !self.speech.is_empty() {
            self.silent_since = self.recorded;
        }
        let is_user_silent = self.recorded - self.silent_since > 16 * 600;
        let (starts, cuts) = (self.starts, self.cuts);
        self.harness.send_binary(&frame);
        self.receive();
        if is_user_silent {
            self.report.echo_samples += if is_echo { FRAME } else { 0 };
            self.report.false_starts += self.starts - starts;
            self.report.false_barge_ins += self.cuts - cuts;
        }
    }

    fn echo_at(&self, at: usize, later: usize) -> f32 {
        let source = at.checked_sub(self.delay + later);
        source.and_then(|source| self.played.get(source)).copied().map_or(0.0, f32::from)
    }

    /// Plays the audio that has arrived. Stops when the model is cut.
    fn receive(&mut self) {
        for (_, frame) in &self.harness.log[self.log_position..] {
            match frame {
                ClientFrame::Binary(bytes) => {
                    self.played.resize(self.played.len().max(self.recorded), 0);
                    self.converter.push(bytes, &mut self.played);
                }
                ClientFrame::Event(event) => match event["type"].as_str() {
                    Some("vad.speech_start") => self.starts += 1,
                    Some("tts.speaking_start") => self.report.answers += 1,
                    Some("tts.speaking_end") if event["cancelled"] == true => {
                        self.cuts += 1;
                        self.played.truncate(self.recorded);
                    }
                    _ => {}
                },
                ClientFrame::Close(..) => panic!("the session ends"),
            }
        }
        self.log_position = self.harness.log.len();
    }

    fn run(&mut self, ms: usize) {
        for _ in 0..ms / FRAME_MS {
            self.run_frame();
        }
    }

    /// The user asks and listens to the whole answer, or says something after this time of it.
    fn ask(&mut self, interrupts_after_ms: Option<usize>) {
        self.report.questions += 1;
        let before = self.report.answers;
        self.speech.extend(recording("goforward_16k.wav"));
        let limit = self.recorded + 16 * 12_000;
        while self.report.answers == before && self.recorded < limit {
            self.run_frame();
        }
        if let Some(after_ms) = interrupts_after_ms {
            self.run(after_ms);
            // The recording begins 210 ms before its first word.
            self.interrupt(&recording("cards_005_16k.wav"));
        }
        self.run(13_000);
    }

    /// The user says this while the model speaks, up to the end of playback.
    fn interrupt(&mut self, words: &[i16]) {
        let (began, cuts) = (self.recorded, self.cuts);
        self.report.questions += 1;
        self.speech.extend(words);
        while !self.speech.is_empty() && self.cuts == cuts {
            self.run_frame();
        }
        let after = ((self.recorded - began) / 16) as u64;
        self.report.barge_ins.push((self.cuts > cuts).then_some(after));
    }
}

impl Report {
    fn per_minute(&self, count: usize) -> f64 {
        count as f64 * 60.0 * 16_000.0 / self.echo_samples as f64
    }
}

/// A conversation of a minute: an answer heard to its end, an interrupted one, and one more.
fn converse(profile: &'static str, cancels: bool, delay_ms: usize, level_db: f32) -> Report {
    let mut device = Device::new(profile, cancels, delay_ms, level_db);
    device.run(1_000);
    device.ask(None);
    device.ask(Some(4_000));
    device.ask(None);
    device.report
}

#[test]
fn device_that_hears_itself_answers_itself() {
    let report = converse("conversation", false, 120, -14.0);
    assert!(report.per_minute(report.false_barge_ins) > 10.0, "{report:?}");
    assert!(report.answers > report.questions, "{report:?}");
}

#[test]
fn cancelled_echo_interrupts_nothing_and_the_user_does() {
    for (profile, delay_ms, level_db) in [
        ("conversation", 40, -20.0),
        ("conversation", 200, -10.0),
        ("assistant", 120, -14.0),
        ("assistant", 200, -6.0),
    ] {
        let report = converse(profile, true, delay_ms, level_db);
        let room = format!("{profile}, {delay_ms} ms, {level_db} dB: {report:?}");
        assert_eq!((report.false_starts, report.false_barge_ins), (0, 0), "{room}");
        // A unit of the full-duplex model may hold a remainder of the echo at -46 dBFS, which the simulator answers.
        let self_answers_max = usize::from(profile == "conversation");
        assert!(report.answers - report.questions <= self_answers_max, "{room}");
        assert!(report.barge_ins.iter().flatten().all(|after_ms| *after_ms < 2_500), "{room}");
        assert!(report.barge_ins.iter().all(Option::is_some), "{room}");
    }
}

/// Share of the sounds in `words` that `heard` has, at the place where it is most like them. A sound is 32 ms; pauses do not count.
fn kept_share(words: &[i16], heard: &[f32]) -> f64 {
    const SOUND: usize = 512;
    let dot = |one: &[f32], other: &[f32]| -> f64 {
        one.iter().zip(other).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum()
    };
    let words: Vec<f32> = words.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
    let loudest = words.chunks(SOUND).map(|sound| dot(sound, sound)).fold(0.0, f64::max);
    let sounds: Vec<usize> = (0..words.len() - SOUND)
        .step_by(SOUND)
        .filter(|at| dot(&words[*at..at + SOUND], &words[*at..at + SOUND]) > loudest / 300.0)
        .collect();
    // The loudest sound says where the words are.
    let power = |at: &usize| dot(&words[*at..at + SOUND], &words[*at..at + SOUND]);
    let loud = *sounds.iter().max_by(|one, other| power(one).total_cmp(&power(other))).unwrap();
    let padded = [vec![0.0; words.len()], heard.to_vec(), vec![0.0; words.len()]].concat();
    let likeness = |place: &usize| -> f64 {
        let pairs = words[loud..loud + SOUND].iter().zip(&padded[place + loud..]).step_by(4);
        pairs.map(|(word, heard)| f64::from(word * heard)).sum()
    };
    let places = 0..padded.len() - words.len();
    let place = places.max_by(|one, other| likeness(one).total_cmp(&likeness(other))).unwrap();
    // Where playback begins and ends, the canceller shifts the microphone by a block.
    let is_kept = |at: &&usize| {
        let sound = &words[**at..*at + SOUND];
        [0, 64, 128].iter().any(|shift| {
            let from = (place + *at + shift).saturating_sub(64);
            dot(sound, &padded[from..]) > 0.5 * dot(sound, sound)
        })
    };
    sounds.iter().filter(is_kept).count() as f64 / sounds.len() as f64
}

#[test]
fn user_interrupts_through_an_echo_as_fast_and_as_whole_as_without() {
    let interruptions = [
        // The first answer, while AEC3 learns the room, and a later one; at once, and after a while.
        (-20.0, 40, 1, 600),
        (-20.0, 200, 2, 1_100),
        (-14.0, 120, 1, 1_100),
        (-14.0, 40, 2, 4_000),
        (-14.0, 250, 2, 600),
    ];
    for (level_db, delay_ms, answer, after_ms) in interruptions {
        let words = recording("librivox_0880_16k.wav");
        let mut device = Device::new("assistant", true, delay_ms, level_db);
        device.run(1_000);
        (1..answer).for_each(|_| device.ask(None));
        device.speech.extend(recording("goforward_16k.wav"));
        while device.report.answers < answer {
            device.run_frame();
        }
        device.run(after_ms);
        device.harness.question_audio.clear();
        device.interrupt(&words);
        device.run(4_000);
        let room = format!("after {after_ms} ms of answer {answer}, {delay_ms} ms, {level_db} dB");
        let Some(ms) = device.report.barge_ins[0] else { panic!("{room}: never interrupted") };
        let heard = device.harness.question_audio.concat();
        let kept = kept_share(&words, &heard);
        println!("{room}: {ms} ms, {kept:.2} of the words");
        assert!(ms <= 700, "{room}: {ms} ms");
        assert!(kept >= 0.9, "{room}: {kept:.2} of the words");
        assert_eq!((device.report.false_starts, device.report.false_barge_ins), (0, 0), "{room}");
    }
}

/// Prints the table of mappings/reference.md for more rooms; takes minutes.
#[test]
#[ignore = "a measurement"]
fn measure_rooms() {
    for profile in ["conversation", "assistant"] {
        for (cancels, level_db) in
            [(false, -120.0), (false, -20.0), (false, -14.0), (false, -10.0), (false, -6.0)]
                .into_iter()
                .chain([-20.0, -14.0, -10.0, -6.0].map(|level_db| (true, level_db)))
        {
            for delay_ms in [40, 120, 200] {
                let report = converse(profile, cancels, delay_ms, level_db);
                let cuts = report.per_minute(report.false_barge_ins);
                println!(
                    "{profile} cancels={cancels} {level_db} dB {delay_ms} ms: {cuts:.1} cuts/min {report:?}"
                );
            }
        }
    }
}
