//! Checks the client's events as they arrive: pairs alternate; audio lies inside its pair; turns come one at
//! a time, complete, in order, and no faster than real time.

use futures_util::Stream;

use super::*;

/// Sample rate of the played audio.
const RATE_HZ: f64 = 24_000.0;
/// Samples of a complete turn: 2 s and the last unit.
const TURN_SAMPLES: u64 = 2 * 24_000 + 14_400;
/// Period of the watermark.
const WATERMARK_PERIOD_SAMPLES: usize = 8190;
/// Paced playout leads by less than a second. A busy machine delivers late, which looks like a longer lead.
const MAX_AHEAD_S: f64 = 2.5;
/// Number of logged events for a failing test.
const EVENT_LOG_LENGTH: usize = 60;

/// Observations so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observations {
    /// Turns started.
    pub(crate) turns_started: u64,
    /// Turns ended.
    pub(crate) turns_ended: u64,
    /// Turns ended as cancelled.
    pub(crate) turns_cancelled: u64,
    /// Turns played from first to last sample, and the length of user speech the last one answers, s.
    pub(crate) turns_complete: u64,
    pub(crate) last_answered_speech_s: f64,
    pub(crate) errors: u64,
    /// Rollovers by reason.
    pub(crate) rollovers: BTreeMap<String, u64>,
    /// The session is over.
    pub(crate) is_session_over: bool,
    /// The first violation.
    pub(crate) first_violation: Option<String>,
}

/// Observer of one client.
pub(crate) struct ClientObserver {
    observations: watch::Sender<Observations>,
    started: Instant,
    event_log: VecDeque<String>,
    is_user_speaking: bool,
    open_turn: Option<OpenTurn>,
    /// Length of user speech the current turn answers, s.
    answered_speech_s: f64,
}

struct OpenTurn {
    started_at: Instant,
    samples: u64,
    last_watermark: Option<(u64, usize)>,
}

impl ClientObserver {
    pub(crate) fn new() -> (Self, watch::Receiver<Observations>) {
        let (observations, receiver) = watch::channel(Observations::default());
        let observer = Self {
            observations,
            started: Instant::now(),
            event_log: VecDeque::new(),
            is_user_speaking: false,
            open_turn: None,
            answered_speech_s: 0.0,
        };
        (observer, receiver)
    }

    /// Observes until the session is over.
    pub(crate) async fn run(mut self, mut from: impl Stream<Item = Result<Message, Error>> + Unpin) {
        loop {
            match from.next().await {
                Some(Ok(Message::Text(text))) => self.handle_event(&serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Binary(audio))) => self.handle_audio(&audio),
                Some(Ok(Message::Close(frame))) => self.log_event(format!("close {frame:?}")),
                Some(Ok(_)) => {}
                end @ (Some(Err(_)) | None) => {
                    self.log_event(format!("end {end:?}"));
                    self.require(
                        !self.is_user_speaking && self.open_turn.is_none(),
                        "a pair is open at the end",
                    );
                    return self.observations.send_modify(|observations| observations.is_session_over = true);
                }
            }
        }
    }

    fn handle_event(&mut self, event: &Value) {
        self.log_event(event.to_string());
        match event["type"].as_str().unwrap_or_default() {
            "vad.speech_start" => {
                let was_open = std::mem::replace(&mut self.is_user_speaking, true);
                self.require(!was_open, "speech starts twice");
            }
            "vad.speech_end" => {
                let was_open = std::mem::replace(&mut self.is_user_speaking, false);
                self.require(was_open, "speech ends that has not started");
            }
            "tts.speaking_start" => {
                let was_open = self.open_turn.replace(OpenTurn {
                    started_at: Instant::now(),
                    samples: 0,
                    last_watermark: None,
                });
                self.require(was_open.is_none(), "the model starts to speak twice");
                self.observations.send_modify(|observations| observations.turns_started += 1);
            }
            "tts.speaking_end" => self.handle_speaking_end(event),
            "transcript.partial" | "transcript.final" => {
                self.require(event["speaker"] == "assistant", "a transcript is not the assistant's");
                let text = event["text"].as_str().unwrap_or_default();
                let seconds = text.strip_prefix("I heard ").and_then(|rest| rest.split(' ').next());
                self.answered_speech_s = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0);
            }
            "session.rollover" => {
                let reason = event["reason"].as_str().unwrap_or("?").to_owned();
                self.observations
                    .send_modify(|observations| *observations.rollovers.entry(reason).or_default() += 1);
            }
            "error" => {
                self.require(event["recoverable"] == true, "an error is not recoverable");
                self.observations.send_modify(|observations| observations.errors += 1);
            }
            _ => {}
        }
    }

    fn handle_speaking_end(&mut self, event: &Value) {
        let Some(turn) = self.open_turn.take() else {
            return self.require(false, "the model ends without a start");
        };
        let cancelled = event["cancelled"] == true;
        let heard_ms = turn.samples * 1000 / 24_000;
        self.require(cancelled || event["audio_ms"] == heard_ms, "a turn's length differs from its audio");
        let is_complete = !cancelled && turn.samples == TURN_SAMPLES;
        let answers_s = std::mem::take(&mut self.answered_speech_s);
        self.observations.send_modify(|observations| {
            observations.turns_ended += 1;
            observations.turns_cancelled += u64::from(cancelled);
            if is_complete {
                observations.turns_complete += 1;
                observations.last_answered_speech_s = answers_s;
            }
        });
    }

    fn handle_audio(&mut self, audio: &[u8]) {
        let Some(turn) = &mut self.open_turn else { return self.require(false, "audio outside its pair") };
        let mut in_order = audio.len().is_multiple_of(2);
        for sample in audio.chunks_exact(2) {
            let watermark = read_watermark(i16::from_le_bytes([sample[0], sample[1]]));
            in_order &= match (turn.last_watermark, watermark) {
                (None, Some((_, index))) => index == 0,
                (Some((turn, index)), Some(watermark)) => {
                    watermark == (turn, (index + 1) % WATERMARK_PERIOD_SAMPLES)
                }
                (_, None) => false,
            };
            turn.last_watermark = watermark;
        }
        turn.samples += audio.len() as u64 / 2;
        let ahead_s = turn.samples as f64 / RATE_HZ - turn.started_at.elapsed().as_secs_f64();
        self.require(in_order, "audio is lost, repeated or another turn's");
        self.require(ahead_s < MAX_AHEAD_S, "audio comes faster than it is heard");
    }

    fn log_event(&mut self, what: String) {
        if self.event_log.len() == EVENT_LOG_LENGTH {
            self.event_log.pop_front();
        }
        self.event_log.push_back(format!("{:8.3} {what}", self.started.elapsed().as_secs_f64()));
    }

    fn require(&self, is_met: bool, violation: &str) {
        if !is_met {
            let log = self.event_log.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
            self.observations.send_if_modified(|observations| {
                let is_first = observations.first_violation.is_none();
                if is_first {
                    observations.first_violation = Some(format!("{violation} after\n{log}"));
                }
                is_first
            });
        }
    }
}
