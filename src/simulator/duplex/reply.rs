//! What one step says, in the order and the shape of its back-end (field notes §1.3, §1.7, §6.1).

use std::time::Duration;

use serde_json::Value;

use super::{
    super::{Backend, Dialect, script},
    turn::{Spoken, Turn},
};
use crate::simulator::{
    hum_voice::SAMPLE_RATE_HZ,
    messages::{self, Event, Metrics, StepMetrics},
    session_context::Bench,
};

/// Codec tokens of a second of speech (field notes §2).
const TTS_TOKENS_PER_SECOND: usize = 25;

/// The text of a unit comes out of C++ in parts of about this many characters.
const CPP_TEXT_CHARS: usize = 5;

/// How much audio C++ hands out at once: whatever its vocoder's thread has.
const CPP_AUDIO_SAMPLES: std::ops::Range<usize> = 1_920..11_520;

/// One event of a step.
#[derive(Debug, Clone)]
pub(super) struct Say {
    response_id: Option<String>,
    pub(super) what: What,
}

/// What an event says.
#[derive(Debug, Clone)]
pub(super) enum What {
    Listen,
    Text(String),
    Audio(Vec<f32>),
    Done(String),
}

/// The events of a step, collected.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) says: Vec<Say>,
    backend: Backend,
    /// A unit without a waveform has none, instead of silence (field notes §4).
    says_null: bool,
    /// The ids that C++ gives the answer to this input and gave to the one before.
    own: String,
    previous: String,
    tokens: usize,
    samples: usize,
}

impl Reply {
    pub(super) fn new(session_id: &str, input: u64, bench: &Bench<'_>) -> Self {
        Self {
            says: Vec::new(),
            backend: bench.cfg.backend,
            says_null: bench.cfg.dialect != Dialect::Current,
            own: format!("{session_id}_resp_{input}"),
            previous: format!("{session_id}_resp_{}", input.saturating_sub(1)),
            tokens: 0,
            samples: 0,
        }
    }

    /// Whether it says that the model listens.
    pub(super) fn listens(&self) -> bool {
        self.says.iter().any(|say| matches!(say.what, What::Listen))
    }

    /// C++ names its listening by the input, PyTorch by the turn that it ends.
    pub(super) fn listen(&mut self, ended: Option<&str>) {
        let response_id = match self.backend {
            Backend::Pytorch => ended.map(str::to_owned),
            Backend::Cpp => Some(self.own.clone()),
        };
        self.says.push(Say { response_id, what: What::Listen });
    }

    /// One unit of speech.
    pub(super) fn speak(&mut self, turn: &Turn, unit: Spoken, bench: &mut Bench<'_>) {
        self.tokens += script::tokens(&unit.text);
        match self.backend {
            Backend::Pytorch => self.pytorch(&turn.response_id, unit),
            Backend::Cpp => self.cpp(unit, turn.repeats.then_some(&turn.said), bench.rng),
        }
        if turn.repeats && self.backend == Backend::Pytorch {
            self.push(&turn.response_id, What::Done(turn.said.clone()));
        }
    }

    /// Text first, each at most once; without a waveform a second of silence (field notes §1.6).
    fn pytorch(&mut self, response_id: &str, unit: Spoken) {
        self.samples += unit.audio.len();
        let fills = unit.audio.is_empty() && !self.says_null;
        let audio = if fills { vec![0.0; SAMPLE_RATE_HZ] } else { unit.audio };
        if !unit.text.is_empty() {
            self.push(response_id, What::Text(unit.text));
        }
        self.push(response_id, What::Audio(audio));
    }

    /// Several texts, sound in pieces of any size between and after them, and a `response.done` for each unit.
    fn cpp(&mut self, unit: Spoken, said: Option<&String>, rng: &mut fastrand::Rng) {
        let own = self.own.clone();
        self.samples += unit.audio.len();
        let characters: Vec<char> = unit.text.chars().collect();
        let mut texts = characters.chunks(CPP_TEXT_CHARS);
        let mut audio = unit.audio.as_slice();
        loop {
            let text = texts.next();
            if let Some(text) = text {
                self.push(&own, What::Text(text.iter().collect()));
            }
            let (now, later) = audio.split_at(rng.usize(CPP_AUDIO_SAMPLES).min(audio.len()));
            audio = later;
            match (now.is_empty(), text) {
                (true, None) => break,
                (true, Some(_)) => {}
                (false, _) => self.push(&own, What::Audio(now.to_vec())),
            }
        }
        self.push(&own, What::Done(said.cloned().unwrap_or(unit.text)));
    }

    /// The turn is over; C++ does not say so.
    pub(super) fn ends(&mut self, response_id: &str) {
        if self.backend == Backend::Pytorch {
            self.listen(Some(response_id));
        }
    }

    /// Sound of a turn that has already yielded.
    pub(super) fn late(&mut self, response_id: &str, audio: Vec<f32>) {
        let response_id = match self.backend {
            Backend::Pytorch => response_id.to_owned(),
            Backend::Cpp => self.previous.clone(),
        };
        self.push(&response_id, What::Audio(audio));
    }

    /// Every terminal event twice, and a `response.done` behind each listening that has a name (field notes §7).
    pub(super) fn double_terminals(&mut self) {
        let doubled = self.says.drain(..).flat_map(|say| match say.what {
            What::Listen if say.response_id.is_some() => {
                let done = Say { what: What::Done(String::new()), ..say.clone() };
                vec![say.clone(), say, done]
            }
            What::Listen | What::Done(_) => vec![say.clone(), say],
            What::Text(_) | What::Audio(_) => vec![say],
        });
        self.says = doubled.collect();
    }

    fn push(&mut self, response_id: &str, what: What) {
        self.says.push(Say { response_id: Some(response_id.to_owned()), what });
    }

    /// What the step cost; C++ leaves zeros out.
    pub(super) fn metrics(&self, backend: Backend, took: Duration, frames: u64) -> StepMetrics {
        let milliseconds = took.as_secs_f64() * 1000.0;
        let speech = if self.samples > 0 { 0.6 } else { 0.0 };
        let tts = self.samples * TTS_TOKENS_PER_SECOND / SAMPLE_RATE_HZ;
        let cpp = backend == Backend::Cpp;
        let count = |value: u64| Some(value).filter(|value| !cpp || *value > 0);
        let time = |value: f64| Some((value * 10.0).round() / 10.0).filter(|value| !cpp || *value > 0.0);
        StepMetrics {
            generate_ms: count(milliseconds as u64),
            cost_llm_ms: time(milliseconds * (1.0 - speech)),
            n_tokens: count(self.tokens as u64),
            n_tts_tokens: count(tts as u64),
            prefill_ms: time(0.1),
            wall_clock_ms: time(milliseconds + 0.8),
            vision_slices: count(frames),
            vision_tokens: count(frames * super::FRAME_TOKENS),
        }
    }
}

impl Say {
    /// The event as its back-end writes it.
    pub(super) fn event(
        &self,
        session_id: &str,
        input_id: Option<&Value>,
        metrics: &StepMetrics,
        bench: &Bench<'_>,
    ) -> String {
        let backend = bench.cfg.backend;
        let metrics = Metrics::of_step(backend, bench.model.kv_cache_length, metrics.clone());
        let base = Event {
            name: "response.output.delta",
            session_id: Some(Some(session_id)),
            response_id: self.response_id.as_deref(),
            input_id,
            metrics: Some(metrics),
            server_send_ts: Some(bench.seconds()),
            ..Event::default()
        };
        let event = match &self.what {
            What::Listen => Event { kind: Some("listen"), ..base },
            What::Text(text) => Event { kind: Some("text"), text: Some(text), ..base },
            What::Audio(samples) => {
                Event { kind: Some("audio"), audio: Some(Some(messages::base64_f32(samples))), ..base }
            }
            What::Done(text) => Event {
                name: "response.done",
                text: Some(text),
                audio: (backend == Backend::Cpp).then_some(None),
                reason: Some("turn_end"),
                ..base
            },
        };
        event.write(backend)
    }
}
