//! Server events as JSON, field for field as captured (mappings/notes/minicpm-o.md#queue,
//! mappings/notes/minicpm-o.md#events, mappings/notes/minicpm-o.md#exchanges).
//!
//! PyTorch events keep the captured field order and omit absent values. C++ events are sorted by name, as its JSON
//! library writes them, and contain `"audio":null` for absent audio.

use std::time::{Duration, Instant};

use serde::{Serialize, Serializer as _};
use serde_json::{Map, Value, json};

use super::Backend;
use crate::audio::pcm;

/// Tokens of the audio of one unit.
const UNIT_AUDIO_TOKENS: u64 = 10;

/// Converts instants to Unix time.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnixClock {
    pub(super) started_at: Instant,
    pub(super) unix_at_start: Duration,
}

impl UnixClock {
    /// Returns seconds with millisecond resolution, as in `server_send_ts`.
    pub(super) fn unix_seconds(&self, now: Instant) -> f64 {
        let elapsed = self.unix_at_start + now.saturating_duration_since(self.started_at);
        elapsed.as_millis() as f64 / 1000.0
    }
}

/// Any session event; `None` fields are omitted.
#[derive(Debug, Default, Serialize)]
pub(super) struct ServerEvent<'a> {
    #[serde(rename = "type")]
    pub(super) name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input_id: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) audio: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) diagnostic: Option<Diagnostic<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<EventMetrics>,
    /// Number of the unit, with its first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chunk_index: Option<u64>,
    /// Tokens of one unit, with its first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chunk_usage: Option<Value>,
    /// Tokens of the session so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_send_ts: Option<f64>,
}

/// Cause of a session's failure, as given by the back-end.
#[derive(Debug, Serialize)]
pub(super) struct Diagnostic<'a> {
    pub(super) message: &'a str,
}

/// Metrics of an event; a full-duplex step adds its own.
#[derive(Debug, Serialize)]
pub(super) struct EventMetrics {
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_cache_length: Option<u64>,
    #[serde(flatten)]
    step: Option<StepMetrics>,
}

/// Metrics of one full-duplex step (mappings/notes/minicpm-o.md#exchanges); C++ omits zeros.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct StepMetrics {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generate_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_llm_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n_tts_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prefill_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wall_clock_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vision_slices: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vision_tokens: Option<u64>,
}

impl EventMetrics {
    /// Creates metrics without a step. C++ omits zeros (mappings/notes/llama-cpp-omni.md#events).
    pub(super) fn new(backend: Backend, kv_cache_length: u64) -> Self {
        let is_shown = backend == Backend::Pytorch || kv_cache_length > 0;
        Self { backend: backend.name(), kv_cache_length: is_shown.then_some(kv_cache_length), step: None }
    }

    /// Creates metrics that include a step.
    pub(super) fn with_step(backend: Backend, kv_cache_length: u64, step: StepMetrics) -> Self {
        Self { step: Some(step), ..Self::new(backend, kv_cache_length) }
    }
}

/// Tokens of a step, or of the units of a session (the server's document realtime-api/usage.md).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TokenUsage {
    pub(super) units: u64,
    vision: u64,
    text: u64,
    audio: u64,
}

impl TokenUsage {
    /// Adds the tokens that a step read and made.
    pub(super) fn add(&mut self, step: &StepMetrics) {
        self.units += 1;
        self.vision += step.vision_tokens.unwrap_or_default();
        self.text += step.n_tokens.unwrap_or_default();
        self.audio += step.n_tts_tokens.unwrap_or_default();
    }

    pub(super) fn to_json(self) -> Value {
        let Self { units, vision, text, audio } = self;
        let (heard, output) = (units * UNIT_AUDIO_TOKENS, text + audio);
        let input = units + heard + vision;
        json!({
            "total_tokens": input + output, "input_tokens": input, "output_tokens": output,
            "input_token_details": {"text_tokens": units, "audio_tokens": heard, "vision_tokens": vision},
            "output_token_details": {"text_tokens": text, "audio_tokens": audio},
        })
    }
}

impl ServerEvent<'_> {
    /// Serialises the event like this back-end.
    pub(super) fn to_json(&self, backend: Backend) -> String {
        // Serialising to memory cannot fail: map keys are text, and the writer never errors.
        match backend {
            Backend::Pytorch => serde_json::to_string(self).unwrap_or_default(),
            Backend::Cpp => serde_json::to_value(self).unwrap_or_default().to_string(),
        }
    }
}

/// The worker's own `session.closed`, without diagnostic or timestamp (mappings/notes/minicpm-o.md#rejections).
pub(super) fn worker_closed(session_id: Option<&str>) -> String {
    let event = ServerEvent {
        name: "session.closed",
        session_id: Some(session_id),
        reason: Some("backend_error"),
        ..ServerEvent::default()
    };
    event.to_json(Backend::Pytorch)
}

pub(super) fn queue_done() -> String {
    to_json([("type", "session.queue_done".into())])
}

/// Queue position message; only the first one has a `ticket` (mappings/notes/minicpm-o.md#queue).
pub(super) fn queued(ticket: Option<&str>, position: usize, queue_length: usize, wait_s: f64) -> String {
    let name = if ticket.is_some() { "session.queued" } else { "session.queue_update" };
    let place = [("type", name.into()), ("position", position.into()), ("estimated_wait_s", wait_s.into())];
    let ticket = ticket.map(|ticket| ("ticket_id", ticket.into()));
    to_json(place.into_iter().chain(ticket).chain([("queue_length", queue_length.into())]))
}

pub(super) fn error(code: &str, message: &str) -> String {
    typed_error(code, message, "server_error")
}

/// Error caused by the client, according to the legacy document.
pub(super) fn client_error(code: &str, message: &str) -> String {
    typed_error(code, message, "client_error")
}

fn typed_error(code: &str, message: &str, name: &str) -> String {
    // Sorted by name, as `Value` keeps them; the real servers write this order, too.
    let error = json!({"code": code, "message": message, "type": name});
    to_json([("type", "error".into()), ("error", error)])
}

/// `session.closed` without session id or timestamp: of the gateway's watchdog, and of the legacy dialect.
pub(super) fn session_closed(reason: &str) -> String {
    to_json([("type", "session.closed".into()), ("reason", reason.into())])
}

/// An object with its members in this order, which a [`Value`] would sort.
pub(super) fn to_json<'n>(members: impl IntoIterator<Item = (&'n str, Value)>) -> String {
    let mut json = Vec::new();
    // Serialising to memory cannot fail: map keys are text, and the writer never errors.
    let _written = serde_json::Serializer::new(&mut json).collect_map(members);
    String::from_utf8(json).unwrap_or_default()
}

/// The members of an object; none of any other value.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Encodes samples as base64 of little-endian int16.
pub(super) fn base64_s16le(samples: &[f32]) -> String {
    let (mut bytes, mut base64) = (Vec::new(), String::new());
    pcm::encode_s16le(samples, &mut bytes);
    pcm::encode_base64(&bytes, &mut base64);
    base64
}

/// Encodes samples as base64 of little-endian float32.
pub(super) fn base64_f32(samples: &[f32]) -> String {
    let mut base64 = String::new();
    pcm::encode_base64_samples(samples, &mut base64);
    base64
}
