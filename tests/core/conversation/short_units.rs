//! Models with shorter units than MiniCPM-o's, which send audio all the time: how soon they hear the user, and how often a session wakes
//! up for them.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Seconds of a conversation.
const SECONDS: u32 = 20;

/// Samples of the user's frame, and its length.
const FRAME_SAMPLES: usize = 320;
const FRAME: Duration = Duration::from_millis(20);

/// Silence before the first unit, samples.
const LEAD_SAMPLES: usize = 320;

/// A conversation with a model on vLLM-Omni's duplex endpoint, and what it cost.
struct Talk {
    session: VirtualSession,
    lane: Option<Lane>,
    /// Length of the model's units, and the time from one of its messages to the next, ms.
    unit_ms: u32,
    answers_every_ms: u32,
    /// When the model sends its next unit of audio; `None` for a model that answers appends.
    speaks_at: Option<Instant>,
    /// Steps of the session for a timer alone.
    timer_steps: usize,
    appends: usize,
    appended_samples: usize,
    longest_append: usize,
    /// Longest time from a frame of the user to its append.
    longest_wait: Duration,
    begun_at: Instant,
}

impl Talk {
    fn new(unit_ms: u32, answers_every_ms: u32) -> Self {
        let library = Library::embedded().unwrap();
        let opening = Opening {
            query: "model=any&sample_rate=16000",
            ..Opening::new(&library, "macaw", "vllm-omni", "conversation")
        };
        let session = opening.open(|_| ());
        let mut talk = Self {
            begun_at: session.now,
            session,
            lane: None,
            unit_ms,
            answers_every_ms,
            speaks_at: None,
            timer_steps: 0,
            appends: 0,
            appended_samples: 0,
            longest_append: 0,
            longest_wait: Duration::ZERO,
        };
        let outputs = talk.session.opened();
        talk.carry_out(outputs);
        talk
    }

    /// The user listens, or makes a noise, for [`SECONDS`].
    fn run(&mut self) {
        let frame = bytes_of(&[3; FRAME_SAMPLES]);
        for _ in 0..50 * SECONDS {
            self.input(Input::Client(Frame::Binary(&frame)));
            self.pass(FRAME);
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.session.now + time;
        while let Some(next) =
            self.session.wait.into_iter().chain(self.speaks_at).min().filter(|at| *at <= end)
        {
            self.session.now = self.session.now.max(next);
            match self.lane.filter(|_| self.speaks_at == Some(next)) {
                Some(lane) => {
                    self.speaks_at = Some(next + self.answers_every_ms * MS);
                    let samples = vec![0; 24 * self.answers_every_ms as usize];
                    let delta = json!({"type": "response.output_audio.delta", "response_id": "r",
                        "delta": STANDARD.encode(bytes_of(&samples)), "sample_rate_hz": 24_000});
                    self.say(lane, &delta);
                    let words = json!({"type": "response.output_audio_transcript.delta", "response_id": "r", "delta": ""});
                    self.say(lane, &words);
                }
                None => {
                    self.timer_steps += 1;
                    self.input(Input::Timeout);
                }
            }
        }
        self.session.now = end;
    }

    fn input(&mut self, input: Input<'_>) {
        let outputs = self.session.input(input);
        self.carry_out(outputs);
    }

    fn say(&mut self, lane: Lane, message: &Value) {
        self.input(Input::Lane(lane, Frame::Text(&message.to_string())));
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::OpenLane(lane, ..) => {
                    self.lane = Some(lane);
                    self.input(Input::LaneOpened(lane));
                }
                Output::ToLane(lane, Message::Text(text)) => {
                    self.receive(lane, &serde_json::from_str(&text).unwrap());
                }
                _ => {}
            }
        }
    }

    fn receive(&mut self, lane: Lane, message: &Value) {
        match message["type"].as_str().unwrap() {
            "session.update" => {
                let capabilities = json!({"implementation_level": "model_native_duplex",
                    "required_input_modalities": ["audio"], "chunk_period_ms": self.unit_ms});
                let session = json!({"id": "s", "capabilities": capabilities});
                self.say(lane, &json!({"type": "session.created", "session": session}));
                self.say(lane, &json!({"type": "session.updated"}));
                self.speaks_at = (self.unit_ms < 1000).then(|| self.session.now + self.answers_every_ms * MS);
            }
            "input_audio_buffer.append" => {
                let samples = STANDARD.decode(message["audio"].as_str().unwrap()).unwrap().len() / 2;
                let frames = self.appended_samples.saturating_sub(LEAD_SAMPLES) / FRAME_SAMPLES;
                let wait = self.session.now - (self.begun_at + FRAME * u32::try_from(frames).unwrap());
                self.longest_wait = self.longest_wait.max(wait);
                self.longest_append = self.longest_append.max(samples);
                self.appends += 1;
                self.appended_samples += samples;
                if self.speaks_at.is_none() {
                    self.say(lane, &json!({"type": "response.listen", "response": {"status": "listening"}}));
                }
            }
            _ => {}
        }
    }
}

/// A conversation with units of this length, and a model that sends a message at this interval.
fn talk(unit_ms: u32, answers_every_ms: u32) -> Talk {
    let mut talk = Talk::new(unit_ms, answers_every_ms);
    talk.run();
    talk
}

#[test]
fn units_of_80_ms_are_heard_at_once_and_wake_the_session_no_more_often_than_those_of_a_second() {
    let (long, short) = (talk(1000, 1000), talk(80, 80));
    let seconds = SECONDS as usize;
    assert!(long.timer_steps <= 2 * seconds, "{} steps in {seconds} s", long.timer_steps);
    assert!(
        short.timer_steps <= long.timer_steps + 2,
        "{} steps, and {} with units of a second",
        short.timer_steps,
        long.timer_steps
    );
    assert!((seconds - 1..=seconds).contains(&long.appends), "{} appends", long.appends);
    let units = 1000 * seconds / 80;
    assert!((units..=units + 2).contains(&short.appends), "{} appends for {units} units", short.appends);
    assert!(short.longest_append <= 1280, "{} samples in an append", short.longest_append);
    assert!(short.longest_wait <= 80 * MS, "{:?} until audio is sent", short.longest_wait);
    assert!(long.longest_wait <= 1000 * MS, "{:?} until audio is sent", long.longest_wait);
}

#[test]
fn units_that_wait_for_a_slow_or_distant_model_go_together_and_none_is_lost() {
    for answers_every_ms in [100, 240, 800] {
        let far = talk(80, answers_every_ms);
        let said = FRAME_SAMPLES * 50 * SECONDS as usize + LEAD_SAMPLES;
        let missing = said - far.appended_samples;
        let bound = (answers_every_ms + 160) * MS;
        assert!(
            missing <= 16 * bound.as_millis() as usize,
            "{answers_every_ms}: {missing} samples are missing"
        );
        assert!(far.longest_append <= 1280, "{answers_every_ms}: {} samples", far.longest_append);
        assert!(far.longest_wait <= bound, "{answers_every_ms}: {:?}", far.longest_wait);
        assert!(far.timer_steps <= 2 * SECONDS as usize, "{answers_every_ms}: {} steps", far.timer_steps);
    }
}
