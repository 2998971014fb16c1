//! Transcripts, statuses and histories match the audio that the client received: random answers of 1 s to 8 min, made at any
//! speed, by upstreams that break off, read at any pace, and cancelled or truncated by the client at any time.

use proptest::prelude::*;

use super::*;

/// Longest time from a request to its end beside the audio itself: dial, queue, init, and the deadlines of an upstream that
/// fails.
const LIMIT: Duration = Duration::from_secs(300);

/// Characters that the simulated voice speaks in a second; longer answers only shift the choice of lengths.
const CHARS_PER_S: usize = 16;

/// One question, its answer and what the client does meanwhile.
#[derive(Debug, Clone)]
struct Turn {
    /// Approximate length of the answer.
    answer_s: usize,
    act: Act,
}

/// Event this long after the first audio of the answer.
#[derive(Debug, Clone, Copy)]
enum Act {
    Nothing,
    Cancel {
        after_ms: u64,
        truncates: bool,
    },
    BreakLanes {
        after_ms: u64,
    },
    /// The client reads nothing for this long.
    Pause {
        after_ms: u64,
        for_s: u64,
    },
}

/// A random session.
#[derive(Debug, Clone)]
struct Session {
    turns: Vec<Turn>,
    /// Time that a second of speech takes to make, ms.
    speech_second_ms: u64,
    /// Bytes a second that the client reads; `None` for one that reads at once.
    reading_rate: Option<u64>,
    faults: Vec<&'static str>,
}

/// Bytes of a second of audio in events.
const PLAYBACK_BYTES: u64 = 66_000;

const FAULTS: [&str; 4] =
    ["die-mid-answer=2,times=1", "drop-mid-answer=3,times=1", "never-answers,times=1", "queue-full,times=1"];

fn any_turn() -> impl Strategy<Value = Turn> {
    let after_ms = || prop_oneof![3 => 0u64..8_000, 1 => 0u64..200_000];
    let act = prop_oneof![
        4 => Just(Act::Nothing),
        2 => (after_ms(), any::<bool>()).prop_map(|(after_ms, truncates)| Act::Cancel { after_ms, truncates }),
        1 => after_ms().prop_map(|after_ms| Act::BreakLanes { after_ms }),
        1 => (after_ms(), 1u64..90).prop_map(|(after_ms, for_s)| Act::Pause { after_ms, for_s }),
    ];
    let answer_s = prop_oneof![8 => 1usize..20, 4 => 20usize..160, 1 => 160usize..500];
    (answer_s, act).prop_map(|(answer_s, act)| Turn { answer_s, act })
}

fn any_session() -> impl Strategy<Value = Session> {
    let faults = prop_oneof![3 => Just(vec![]), 1 => select(&FAULTS[..]).prop_map(|fault| vec![fault])];
    // At 0.5, 1 and 1.05 times playback, and faster.
    let rates = [50, 100, 105, 400].map(|percent| PLAYBACK_BYTES * percent / 100);
    let reading_rate = prop::option::of(select(rates.to_vec()));
    (vec(any_turn(), 1..4), select(vec![10u64, 100, 333, 900, 1_000]), reading_rate, faults).prop_map(
        |(turns, speech_second_ms, reading_rate, faults)| Session {
            turns,
            speech_second_ms,
            reading_rate,
            faults,
        },
    )
}

/// Text of about this many seconds, whose words say where they are.
fn story(turn: usize, seconds: usize) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= seconds * CHARS_PER_S {
            break;
        }
        text += &format!("Sentence {number} of story {turn} goes on. ");
    }
    text.trim_end().to_owned()
}

/// A client that asks, and what it knows of each answer.
struct Listener {
    client: Realtime,
    /// Text that may be remembered of each answered question, at most.
    told: Vec<String>,
    reading_rate: Option<u64>,
}

impl Listener {
    fn play(session: &Session) {
        let mut config = config("model=gpt-realtime").workers(2);
        config.simulator.timing.speech_second = Duration::from_millis(session.speech_second_ms);
        config.simulator.faults = session.faults.iter().map(|fault| fault.parse().unwrap()).collect();
        config.simulator.answers =
            session.turns.iter().enumerate().map(|(number, turn)| story(number, turn.answer_s)).collect();
        let (client, reading_rate) = (Realtime::with_config(config), session.reading_rate);
        let mut listener = Self { client, told: Vec::new(), reading_rate };
        listener.set_reading_rate(reading_rate);
        for turn in &session.turns {
            listener.ask(turn);
        }
        listener.client.check();
        listener.check_histories();
        listener.check_blame(session);
    }

    fn set_reading_rate(&mut self, rate: Option<u64>) {
        rate.into_iter().for_each(|rate| self.client.harness.set_reading_rate(rate));
    }

    /// Asks a question, plays its turn and checks its end.
    fn ask(&mut self, turn: &Turn) {
        let number = self.told.len();
        self.client.write(&format!("Question {number}?"));
        let before = self.client.events.len();
        self.client.send(&json!({"type": "response.create"}));
        // A client at half the pace of playback reads for twice as long, with an earlier answer before this one.
        let limit = LIMIT + Duration::from_secs(5 * turn.answer_s as u64);
        match turn.act {
            Act::Nothing => {}
            Act::Cancel { after_ms, truncates } => {
                if self.wait_until(before, limit, "response.output_audio.delta") {
                    self.client.pass(Duration::from_millis(after_ms));
                    let was_done = self.has(before, "response.done");
                    self.client.send(&json!({"type": "response.cancel"}));
                    let has_end = self.has(before, "response.done");
                    assert!(has_end || self.reading_rate.is_some(), "no end after a cancel");
                    if truncates && !was_done {
                        self.truncate(before, after_ms / 2);
                    }
                }
            }
            Act::BreakLanes { after_ms } => {
                self.wait_until(before, limit, "response.output_audio.delta");
                self.client.pass(Duration::from_millis(after_ms));
                self.client.harness.break_lanes();
                self.client.take_events();
            }
            Act::Pause { after_ms, for_s } => {
                self.wait_until(before, limit, "response.output_audio.delta");
                self.client.pass(Duration::from_millis(after_ms));
                self.set_reading_rate(Some(0));
                self.client.pass(Duration::from_secs(for_s));
                // From now on, an event is read some time after it is sent.
                let rate = *self.reading_rate.get_or_insert(100 * PLAYBACK_BYTES);
                self.set_reading_rate(Some(rate));
            }
        }
        let has_ended = self.wait_until(before, limit, "response.done");
        assert!(has_ended || self.client.harness.is_closed(), "{turn:?}: {:?}", self.client.types());
        self.check_answer(before);
        // The client still plays the audio that was sent.
        self.client.pass(Duration::from_secs(turn.answer_s as u64 + 5));
    }

    fn truncate(&mut self, before: usize, audio_end_ms: u64) {
        let item =
            self.events_since(before, "response.output_audio.delta").next().map(|it| it["item_id"].clone());
        if let Some(item) = item {
            self.client
                .send(&json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0,
                "audio_end_ms": audio_end_ms}));
        }
    }

    fn events_since(&self, before: usize, kind: &str) -> impl Iterator<Item = &Value> {
        self.client.events[before..].iter().map(|(_, event)| event).filter(move |event| event["type"] == kind)
    }

    fn has(&self, before: usize, kind: &str) -> bool {
        self.events_since(before, kind).next().is_some()
    }

    fn wait_until(&mut self, before: usize, limit: Duration, kind: &str) -> bool {
        let end = self.client.harness.now() + limit;
        while !self.has(before, kind) && !self.has(before, "response.done") && self.client.harness.now() < end
        {
            self.client.pass(Duration::from_millis(500));
        }
        self.has(before, kind)
    }

    /// Compares the events of the client with its audio, and both with the words of the model.
    fn check_answer(&mut self, before: usize) {
        let heard: Vec<u8> = self
            .events_since(before, "response.output_audio.delta")
            .flat_map(|event| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap())
            .collect();
        let words: String = self
            .events_since(before, "response.output_audio_transcript.delta")
            .map(|event| event["delta"].as_str().unwrap())
            .collect();
        let (said, spoken) = self.model_answer();
        assert!(said.starts_with(words.trim()) || words.is_empty(), "told {words:?} of {said:?}");
        let Some(done) = self.events_since(before, "response.done").last() else { return };
        let status = done["response"]["status"].as_str().unwrap();
        assert!(spoken.starts_with(&heard), "{} bytes do not begin {}", heard.len(), spoken.len());
        if status == "completed" {
            assert_eq!(words.trim(), said, "a completed answer lacks words");
            assert_eq!(heard.len(), spoken.len(), "a completed answer lacks audio");
        } else {
            assert!(["cancelled", "incomplete", "failed"].contains(&status), "{done}");
        }
        self.told.push(words.trim().to_owned());
    }

    /// A client that reads slowly or cancels is no fault of the upstream.
    fn check_blame(&self, session: &Session) {
        let breaks = session.turns.iter().any(|turn| matches!(turn.act, Act::BreakLanes { .. }));
        let is_blame = |seen: &&Observation| {
            matches!(
                seen,
                Observation::LaneFailed { .. } | Observation::LaneRetry { .. } | Observation::AskedAgain(_)
            )
        };
        let blamed = self.client.harness.observations.iter().find(is_blame);
        assert!(breaks || !session.faults.is_empty() || blamed.is_none(), "{blamed:?}");
    }

    /// Text and int16 audio that the model gave to the last question.
    fn model_answer(&self) -> (String, Vec<u8>) {
        let (mut lane, mut answers) = (None, BTreeMap::<_, (String, Vec<u8>)>::new());
        for (_, traffic) in &self.client.harness.traffic {
            match traffic {
                Traffic::Sent(on, text) if text.contains(r#""length_penalty":1.1"#) => {
                    lane = Some(*on);
                    answers.remove(on);
                }
                Traffic::Received(on, text) => {
                    let event: Value = serde_json::from_str(text).unwrap();
                    let (text, audio) = answers.entry(*on).or_default();
                    text.push_str(
                        event["text"].as_str().filter(|_| event["kind"] == "text").unwrap_or_default(),
                    );
                    if let Some(data) = event["audio"].as_str() {
                        let samples = STANDARD.decode(data).unwrap();
                        let samples =
                            samples.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
                        let samples = samples.map(pcm::to_i16).flat_map(i16::to_le_bytes);
                        audio.extend(samples);
                    }
                }
                _ => {}
            }
        }
        let (text, audio) = lane.and_then(|lane| answers.remove(&lane)).unwrap_or_default();
        (text.trim().to_owned(), audio)
    }

    /// Checks that no question's history has words that the client was not told.
    fn check_histories(&self) {
        for request in self.client.harness.answer_requests() {
            let messages =
                request.as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
            for remembered in
                messages.map(|message| message["content"][0]["text"].as_str().unwrap_or_default())
            {
                let known =
                    self.told.iter().any(|told| told.starts_with(remembered.trim().trim_end_matches("...")));
                assert!(known, "the history has {remembered:?}, the client was told {:?}", self.told);
            }
        }
    }
}

proptest! {
    // Each of these sessions lasts up to half an hour.
    #![proptest_config(ProptestConfig { cases: crate::properties::config().cases.div_ceil(4), ..crate::properties::config() })]

    #[test]
    fn answers_are_whole_or_say_where_they_end(session in any_session()) {
        Listener::play(&session);
    }
}
