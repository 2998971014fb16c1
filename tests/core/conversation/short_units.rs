//! Models with shorter units than MiniCPM-o's, which send audio all the time: how often a session wakes up for them.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Seconds of a conversation.
const SECONDS: u32 = 20;

/// A conversation with a model on vLLM-Omni's duplex endpoint, and what it cost.
struct Talk {
    session: VirtualSession,
    lane: Option<Lane>,
    /// Length of the model's units, ms.
    unit_ms: u32,
    /// When the model sends its next unit of audio; `None` for a model that answers appends.
    speaks_at: Option<Instant>,
    /// Steps of the session for a timer alone.
    timer_steps: usize,
    appends: usize,
    appended_samples: usize,
}

impl Talk {
    fn new(unit_ms: u32) -> Self {
        let library = Library::embedded().unwrap();
        let opening = Opening {
            query: "model=any&sample_rate=16000",
            ..Opening::new(&library, "macaw", "vllm-omni", "conversation")
        };
        let session = opening.open(|_| ());
        let mut talk = Self {
            session,
            lane: None,
            unit_ms,
            speaks_at: None,
            timer_steps: 0,
            appends: 0,
            appended_samples: 0,
        };
        let outputs = talk.session.opened();
        talk.carry_out(outputs);
        talk
    }

    /// The user listens, or makes a noise, for [`SECONDS`]; frames have 20 ms.
    fn run(&mut self) {
        let frame = bytes_of(&[3; 320]);
        for _ in 0..50 * SECONDS {
            self.input(Input::Client(Frame::Binary(&frame)));
            self.pass(20 * MS);
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
                    self.speaks_at = Some(next + self.unit_ms * MS);
                    let samples = vec![0; 24 * self.unit_ms as usize];
                    let delta = json!({"type": "response.output_audio.delta", "response_id": "r",
                        "delta": STANDARD.encode(bytes_of(&samples)), "sample_rate_hz": 24_000});
                    self.say(lane, &delta);
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
                self.speaks_at = (self.unit_ms < 1000).then(|| self.session.now + self.unit_ms * MS);
            }
            "input_audio_buffer.append" => {
                self.appends += 1;
                self.appended_samples +=
                    STANDARD.decode(message["audio"].as_str().unwrap()).unwrap().len() / 2;
                if self.speaks_at.is_none() {
                    self.say(lane, &json!({"type": "response.listen", "response": {"status": "listening"}}));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn units_of_80_ms_wake_the_session_no_more_often_than_those_of_a_second() {
    let [long, short] = [1000, 80].map(|unit_ms| {
        let mut talk = Talk::new(unit_ms);
        talk.run();
        talk
    });
    let seconds = SECONDS as usize;
    assert!(long.timer_steps <= 2 * seconds, "{} steps in {seconds} s", long.timer_steps);
    assert!(
        short.timer_steps <= long.timer_steps + 2,
        "{} steps, and {} with units of a second",
        short.timer_steps,
        long.timer_steps
    );
    assert_eq!(short.appended_samples, long.appended_samples, "both hear all of it");
    let per_second = 1000_usize.div_ceil(80);
    assert!((seconds..=per_second * seconds).contains(&short.appends), "{} appends", short.appends);
    assert!((seconds - 1..=seconds).contains(&long.appends), "{} appends", long.appends);
}
