//! What the client hears, checked as it comes: pairs that alternate, audio inside its pair, one turn at a time, in order,
//! whole, and not faster than it is heard.

use std::{collections::BTreeMap, collections::VecDeque};

use futures_util::{Stream, StreamExt as _};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tokio_tungstenite::tungstenite::{Error, Message};
use voxbridge::simulator::read_marker;

/// Samples a second of what is heard.
const RATE_HZ: f64 = 24_000.0;
/// Samples of a turn that comes to its end: two seconds and the last unit.
const TURN_SAMPLES: u64 = 2 * 24_000 + 14_400;
/// The marker's period.
const PERIOD: usize = 8190;
/// A paced playout is ahead of what is heard by less than a second; a busy machine delivers late what was sent on time.
const AHEAD_MAX_S: f64 = 2.5;
/// Things that came, for a test that fails.
const STORY: usize = 60;

/// What was heard so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// Turns that began.
    pub(crate) begun: u64,
    /// Turns that ended.
    pub(crate) ended: u64,
    /// Turns that ended as cancelled.
    pub(crate) cancelled: u64,
    /// Turns heard from the first to the last sample, and how much of the user's speech the last one answers, s.
    pub(crate) whole: u64,
    pub(crate) answered_s: f64,
    pub(crate) errors: u64,
    /// By their reason.
    pub(crate) rollovers: BTreeMap<String, u64>,
    /// The session is over.
    pub(crate) over: bool,
    /// The first thing that was wrong.
    pub(crate) wrong: Option<String>,
}

/// One client's ear.
pub(crate) struct Listener {
    heard: watch::Sender<Heard>,
    started: Instant,
    story: VecDeque<String>,
    speech: bool,
    pair: Option<Pair>,
    /// What the turn at hand says it heard, s.
    answers_s: f64,
}

struct Pair {
    at: Instant,
    samples: u64,
    last: Option<(u64, usize)>,
}

impl Listener {
    pub(crate) fn new() -> (Self, watch::Receiver<Heard>) {
        let (heard, seen) = watch::channel(Heard::default());
        let listener = Self {
            heard,
            started: Instant::now(),
            story: VecDeque::new(),
            speech: false,
            pair: None,
            answers_s: 0.0,
        };
        (listener, seen)
    }

    /// Listens until the session is over.
    pub(crate) async fn listen(mut self, mut from: impl Stream<Item = Result<Message, Error>> + Unpin) {
        loop {
            match from.next().await {
                Some(Ok(Message::Text(text))) => self.event(&serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Binary(audio))) => self.audio(&audio),
                Some(Ok(Message::Close(frame))) => self.note(format!("close {frame:?}")),
                Some(Ok(_)) => {}
                end @ (Some(Err(_)) | None) => {
                    self.note(format!("end {end:?}"));
                    self.require(!self.speech && self.pair.is_none(), "a pair is open at the end");
                    return self.heard.send_modify(|heard| heard.over = true);
                }
            }
        }
    }

    fn event(&mut self, event: &Value) {
        self.note(event.to_string());
        match event["type"].as_str().unwrap_or_default() {
            "vad.speech_start" => {
                let open = std::mem::replace(&mut self.speech, true);
                self.require(!open, "speech starts twice");
            }
            "vad.speech_end" => {
                let open = std::mem::replace(&mut self.speech, false);
                self.require(open, "speech ends that has not started");
            }
            "tts.speaking_start" => {
                let open = self.pair.replace(Pair { at: Instant::now(), samples: 0, last: None });
                self.require(open.is_none(), "the model starts to speak twice");
                self.heard.send_modify(|heard| heard.begun += 1);
            }
            "tts.speaking_end" => self.speaking_ended(event),
            "transcript.partial" | "transcript.final" => {
                self.require(event["speaker"] == "assistant", "a transcript is not the assistant's");
                let text = event["text"].as_str().unwrap_or_default();
                let seconds = text.strip_prefix("I heard ").and_then(|rest| rest.split(' ').next());
                self.answers_s = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0);
            }
            "session.rollover" => {
                let reason = event["reason"].as_str().unwrap_or("?").to_owned();
                self.heard.send_modify(|heard| *heard.rollovers.entry(reason).or_default() += 1);
            }
            "error" => {
                self.require(event["recoverable"] == true, "an error is not recoverable");
                self.heard.send_modify(|heard| heard.errors += 1);
            }
            _ => {}
        }
    }

    fn speaking_ended(&mut self, event: &Value) {
        let Some(pair) = self.pair.take() else {
            return self.require(false, "the model ends without a start");
        };
        let cancelled = event["cancelled"] == true;
        let heard_ms = pair.samples * 1000 / 24_000;
        self.require(
            cancelled || event["audio_ms"] == heard_ms,
            "a turn's length is not what was heard of it",
        );
        let whole = !cancelled && pair.samples == TURN_SAMPLES;
        let answers_s = std::mem::take(&mut self.answers_s);
        self.heard.send_modify(|heard| {
            heard.ended += 1;
            heard.cancelled += u64::from(cancelled);
            if whole {
                heard.whole += 1;
                heard.answered_s = answers_s;
            }
        });
    }

    fn audio(&mut self, audio: &[u8]) {
        let Some(pair) = &mut self.pair else { return self.require(false, "audio outside its pair") };
        let mut in_order = audio.len().is_multiple_of(2);
        for sample in audio.chunks_exact(2) {
            let mark = read_marker(i16::from_le_bytes([sample[0], sample[1]]));
            in_order &= match (pair.last, mark) {
                (None, Some((_, index))) => index == 0,
                (Some((turn, index)), Some(mark)) => mark == (turn, (index + 1) % PERIOD),
                (_, None) => false,
            };
            pair.last = mark;
        }
        pair.samples += audio.len() as u64 / 2;
        let ahead_s = pair.samples as f64 / RATE_HZ - pair.at.elapsed().as_secs_f64();
        self.require(in_order, "audio is lost, repeated or another turn's");
        self.require(ahead_s < AHEAD_MAX_S, "audio comes faster than it is heard");
    }

    fn note(&mut self, what: String) {
        if self.story.len() == STORY {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:8.3} {what}", self.started.elapsed().as_secs_f64()));
    }

    fn require(&self, holds: bool, otherwise: &str) {
        if !holds {
            let story = self.story.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
            self.heard.send_if_modified(|heard| {
                let first = heard.wrong.is_none();
                if first {
                    heard.wrong = Some(format!("{otherwise} after\n{story}"));
                }
                first
            });
        }
    }
}
