//! The session's input: appends of audio and pictures, the units made of them, and the silence that the server adds.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{VllmSession, checks::check_frames, config::decode_samples};
use crate::{
    FaultKind, SimOutput,
    duplex::{DuplexUnit, rms},
    python,
    session_context::SimContext,
    vllm_omni::events,
};

/// Samples of a unit.
const UNIT_SAMPLES: usize = 16_000;

/// Length of a unit; the server adds silence by itself that long after the last one.
const UNIT: Duration = Duration::from_secs(1);

/// Loudness from which an append counts as speech (`overlap_silence_rms`).
const SPEECH_RMS: f64 = 0.003;

impl VllmSession {
    pub(super) fn append(&mut self, message: &Map<String, Value>, ctx: &mut SimContext<'_>) {
        let event_id = message.get("event_id").and_then(Value::as_str);
        let frames = message.get("video_frames").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if let Err(words) = check_frames(frames) {
            return events::send_error(ctx, "invalid_video_frames", words, event_id);
        }
        let Some(audio) = message.get("audio").and_then(Value::as_str) else {
            let words = "input_audio_buffer.append requires audio and/or video_frames";
            return events::send_error(ctx, "bad_event", words, event_id);
        };
        if ctx.faults.trigger(FaultKind::InputBackpressure) {
            let words = "Duplex session has too many pending input bytes";
            return self.emit_error("input_backpressure", words, event_id, ctx);
        }
        if ctx.faults.trigger(FaultKind::InferenceFails) {
            // As a model that takes audio at another rate refuses it.
            return self.emit_error("bad_event", "sample_rate_hz must be 24000", event_id, ctx);
        }
        let format = self.config.get("input_audio_format").and_then(Value::as_str).unwrap_or("pcm16");
        let bytes = python::decode_base64(audio).unwrap_or_default();
        let Some(samples) = decode_samples(format, &bytes) else {
            let words = format!("input_audio_buffer.append {format} audio could not be decoded");
            return self.emit_error("bad_audio", &words, None, ctx);
        };
        if !self.has_heard_speech && rms(&samples) >= SPEECH_RMS {
            self.has_heard_speech = true;
            let item = format!("item_{:032x}", ctx.rng.u128(..));
            let members = [("audio_start_ms", 0.into()), ("item_id", item.into())];
            self.emit("input_audio_buffer.speech_started", members, ctx);
        }
        self.buffer.extend(samples);
        self.pictures.extend(Some(frames.len()).filter(|count| *count > 0));
        // At most one unit for each append.
        if self.buffer.len() >= UNIT_SAMPLES {
            let samples = self.buffer.drain(..UNIT_SAMPLES).collect();
            let frame_count = self.pictures.pop_front().unwrap_or(0);
            self.waiting.push_back(DuplexUnit { samples, force_listen: false, frame_count, input_id: None });
        }
        self.start_steps(ctx);
    }

    pub(super) fn start_steps(&mut self, ctx: &mut SimContext<'_>) {
        while !self.model.is_busy()
            && self.opens_at.is_none()
            && let Some(unit) = self.waiting.pop_front()
        {
            ctx.record(|conn| SimOutput::DuplexUnit(conn, unit.clone()));
            self.model.begin_unit(unit, ctx);
            self.submitted_at = ctx.now;
        }
    }

    /// The server adds a unit of silence while the model speaks and no audio waits.
    pub(super) fn silence_due_at(&self) -> Option<Instant> {
        let is_waiting = self.model.is_busy() || !self.buffer.is_empty() || !self.waiting.is_empty();
        (self.answer.is_some() && !is_waiting).then(|| self.submitted_at + UNIT)
    }

    pub(super) fn begin_silence(&mut self, ctx: &mut SimContext<'_>) {
        let samples = vec![0.0; UNIT_SAMPLES];
        let unit = DuplexUnit { samples, force_listen: false, frame_count: 0, input_id: None };
        self.model.begin_unit(unit, ctx);
        self.submitted_at = ctx.now;
    }
}
