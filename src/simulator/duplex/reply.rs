//! Events of one step, in the order and shape of its back-end (mappings/notes/minicpm-o.md#exchanges,
//! mappings/notes/llama-cpp-omni.md#events).

use std::time::Duration;

use serde_json::Value;

use super::{
    super::{Backend, script},
    turn::{ModelTurn, SpokenUnit},
};
use crate::{
    hum_voice::SAMPLE_RATE_HZ,
    messages::{self, EventMetrics, ServerEvent, StepMetrics, TokenUsage},
    session_context::SimContext,
};

/// Codec tokens per second of speech (mappings/notes/minicpm-o.md#chat).
const TTS_TOKENS_PER_SECOND: usize = 25;

/// C++ sends the text of a unit in chunks of about this length.
const CPP_TEXT_CHUNK_CHARS: usize = 5;

/// Range of audio chunk sizes in C++, which sends whatever its vocoder thread has finished.
const CPP_AUDIO_CHUNK_SAMPLES: std::ops::Range<usize> = 1_920..11_520;

/// Tokens that the first event of a step reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountedUnit {
    /// Number of the unit in its session, from 0.
    index: u64,
    usage: TokenUsage,
    total: TokenUsage,
}

impl CountedUnit {
    /// Counts a step in the totals of its session.
    pub(super) fn count(total: &mut TokenUsage, metrics: &StepMetrics) -> Self {
        let (index, mut usage) = (total.units, TokenUsage::default());
        usage.add(metrics);
        total.add(metrics);
        Self { index, usage, total: *total }
    }
}

/// One event of a step.
#[derive(Debug, Clone)]
pub(super) struct StepEvent {
    pub(super) response_id: Option<String>,
    pub(super) kind: StepEventKind,
}

/// Kind and content of an event.
#[derive(Debug, Clone)]
pub(super) enum StepEventKind {
    Listen,
    Text(String),
    Audio(Vec<f32>),
    Done(String),
}

/// Builder for the events of a step.
#[derive(Debug)]
pub(super) struct ReplyBuilder {
    pub(super) events: Vec<StepEvent>,
    backend: Backend,
    /// Sends null audio for a unit without a waveform, instead of silence
    /// (mappings/notes/minicpm-o-legacy.md#messages).
    has_null_audio: bool,
    /// Response ids that C++ assigns to this append and to the previous one.
    own_id: String,
    previous_id: String,
    tokens: usize,
    samples: usize,
}

impl ReplyBuilder {
    pub(super) fn new(session_id: &str, append_number: u64, ctx: &SimContext<'_>) -> Self {
        Self {
            events: Vec::new(),
            backend: ctx.cfg.backend,
            has_null_audio: ctx.cfg.dialect.is_legacy(),
            own_id: format!("{session_id}_resp_{append_number}"),
            previous_id: format!("{session_id}_resp_{}", append_number.saturating_sub(1)),
            tokens: 0,
            samples: 0,
        }
    }

    /// True if the step contains a `listen` event.
    pub(super) fn is_listening(&self) -> bool {
        self.events.iter().any(|event| matches!(event.kind, StepEventKind::Listen))
    }

    /// Adds a `listen` event. Its response id is the append's own in C++ and the ended turn's in PyTorch.
    pub(super) fn push_listen(&mut self, ended_turn: Option<&str>) {
        let response_id = match self.backend {
            Backend::Pytorch => ended_turn.map(str::to_owned),
            Backend::Cpp => Some(self.own_id.clone()),
        };
        self.events.push(StepEvent { response_id, kind: StepEventKind::Listen });
    }

    /// Adds one unit of speech.
    pub(super) fn push_unit(&mut self, turn: &ModelTurn, unit: SpokenUnit, ctx: &mut SimContext<'_>) {
        self.tokens += script::estimate_tokens(&unit.text);
        match self.backend {
            Backend::Pytorch => self.push_pytorch_unit(&turn.response_id, unit),
            Backend::Cpp => self.push_cpp_unit(unit, turn.repeats_text.then_some(&turn.spoken_text), ctx.rng),
        }
        if turn.repeats_text && self.backend == Backend::Pytorch {
            self.push(&turn.response_id, StepEventKind::Done(turn.spoken_text.clone()));
        }
    }

    /// Sends text, then audio, at most one event each. A unit without a waveform becomes a second of silence
    /// (mappings/notes/minicpm-o-duplex.md#units).
    fn push_pytorch_unit(&mut self, response_id: &str, unit: SpokenUnit) {
        self.samples += unit.audio.len();
        let fills_silence = unit.audio.is_empty() && !self.has_null_audio;
        let audio = if fills_silence { vec![0.0; SAMPLE_RATE_HZ] } else { unit.audio };
        if !unit.text.is_empty() {
            self.push(response_id, StepEventKind::Text(unit.text));
        }
        self.push(response_id, StepEventKind::Audio(audio));
    }

    /// Sends several texts, audio chunks of any size between and after them, and a `response.done` per unit.
    fn push_cpp_unit(&mut self, unit: SpokenUnit, spoken_text: Option<&String>, rng: &mut fastrand::Rng) {
        let own_id = self.own_id.clone();
        self.samples += unit.audio.len();
        let characters: Vec<char> = unit.text.chars().collect();
        let mut texts = characters.chunks(CPP_TEXT_CHUNK_CHARS);
        let mut audio = unit.audio.as_slice();
        loop {
            let text = texts.next();
            if let Some(text) = text {
                self.push(&own_id, StepEventKind::Text(text.iter().collect()));
            }
            let (chunk, rest) = audio.split_at(rng.usize(CPP_AUDIO_CHUNK_SAMPLES).min(audio.len()));
            audio = rest;
            match (chunk.is_empty(), text) {
                (true, None) => break,
                (true, Some(_)) => {}
                (false, _) => self.push(&own_id, StepEventKind::Audio(chunk.to_vec())),
            }
        }
        self.push(&own_id, StepEventKind::Done(spoken_text.cloned().unwrap_or(unit.text)));
    }

    /// Ends the turn; C++ sends no event for that.
    pub(super) fn end_turn(&mut self, response_id: &str) {
        if self.backend == Backend::Pytorch {
            self.push_listen(Some(response_id));
        }
    }

    /// Adds audio of a turn that was already interrupted.
    pub(super) fn push_late_audio(&mut self, response_id: &str, audio: Vec<f32>) {
        let response_id = match self.backend {
            Backend::Pytorch => response_id.to_owned(),
            Backend::Cpp => self.previous_id.clone(),
        };
        self.push(&response_id, StepEventKind::Audio(audio));
    }

    /// Doubles every terminal event and adds a `response.done` after each `listen` with a response id
    /// (mappings/notes/minicpm-o-duplex.md#turns).
    pub(super) fn duplicate_terminals(&mut self) {
        let duplicated = self.events.drain(..).flat_map(|event| match event.kind {
            StepEventKind::Listen if event.response_id.is_some() => {
                let done = StepEvent { kind: StepEventKind::Done(String::new()), ..event.clone() };
                vec![event.clone(), event, done]
            }
            StepEventKind::Listen | StepEventKind::Done(_) => vec![event.clone(), event],
            StepEventKind::Text(_) | StepEventKind::Audio(_) => vec![event],
        });
        self.events = duplicated.collect();
    }

    fn push(&mut self, response_id: &str, kind: StepEventKind) {
        self.events.push(StepEvent { response_id: Some(response_id.to_owned()), kind });
    }

    /// Metrics of the step; C++ omits zeros.
    pub(super) fn step_metrics(&self, backend: Backend, duration: Duration, frame_count: u64) -> StepMetrics {
        let milliseconds = duration.as_secs_f64() * 1000.0;
        let speech_share = if self.samples > 0 { 0.6 } else { 0.0 };
        let tts_tokens = self.samples * TTS_TOKENS_PER_SECOND / SAMPLE_RATE_HZ;
        let is_cpp = backend == Backend::Cpp;
        let count = |value: u64| Some(value).filter(|value| !is_cpp || *value > 0);
        let time = |value: f64| Some((value * 10.0).round() / 10.0).filter(|value| !is_cpp || *value > 0.0);
        StepMetrics {
            generate_ms: count(milliseconds as u64),
            cost_llm_ms: time(milliseconds * (1.0 - speech_share)),
            n_tokens: count(self.tokens as u64),
            n_tts_tokens: count(tts_tokens as u64),
            prefill_ms: time(0.1),
            wall_clock_ms: time(milliseconds + 0.8),
            vision_slices: count(frame_count),
            vision_tokens: count(frame_count * super::FRAME_TOKENS),
        }
    }
}

impl StepEvent {
    /// Serialises the event like its back-end.
    pub(super) fn to_json(
        &self,
        session_id: &str,
        input_id: Option<&Value>,
        metrics: &StepMetrics,
        counted: Option<CountedUnit>,
        ctx: &SimContext<'_>,
    ) -> String {
        let backend = ctx.cfg.backend;
        let metrics = EventMetrics::with_step(backend, ctx.model.kv_cache_length, metrics.clone());
        let base = ServerEvent {
            name: "response.output.delta",
            session_id: Some(Some(session_id)),
            response_id: self.response_id.as_deref(),
            input_id,
            metrics: Some(metrics),
            chunk_index: counted.map(|unit| unit.index),
            chunk_usage: counted.map(|unit| unit.usage.to_json()),
            usage: counted.map(|unit| unit.total.to_json()),
            server_send_ts: Some(ctx.unix_seconds()),
            ..ServerEvent::default()
        };
        let event = match &self.kind {
            StepEventKind::Listen => ServerEvent { kind: Some("listen"), ..base },
            StepEventKind::Text(text) => ServerEvent { kind: Some("text"), text: Some(text), ..base },
            StepEventKind::Audio(samples) => {
                ServerEvent { kind: Some("audio"), audio: Some(Some(messages::base64_f32(samples))), ..base }
            }
            StepEventKind::Done(text) => ServerEvent {
                name: "response.done",
                text: Some(text),
                audio: (backend == Backend::Cpp).then_some(None),
                reason: Some("turn_end"),
                ..base
            },
        };
        event.to_json(backend)
    }
}
