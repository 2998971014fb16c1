//! The input buffer: audio that is appended, committed or cleared, and the user's speech in it.

use serde_json::{Map, Value, json};

use super::{
    OpenaiSession,
    conversation::{Item, WIRE_RATE_HZ, decode_pcm16},
    turn_detector::{DetectorConfig, SpeechEdge},
    wire::Rejected,
};
use crate::{FaultKind, RealtimeServer, session_context::SimContext};

/// Largest audio of an append, in characters of base64: 15 MiB.
const APPEND_MAX_CHARS: usize = (15 << 20) / 3 * 4;

/// Shortest audio that OpenAI commits, 100 ms.
const COMMIT_MIN_SAMPLES: usize = WIRE_RATE_HZ as usize / 10;

const SAMPLES_PER_MS: u64 = WIRE_RATE_HZ as u64 / 1000;

/// Audio that waits for its commit.
#[derive(Debug, Default)]
pub(super) struct InputBuffer {
    samples: Vec<i16>,
    /// Samples of the session before these.
    start: u64,
    /// Item of the speech that goes on.
    speech_item: Option<String>,
}

impl InputBuffer {
    /// Removes this many samples at the front.
    fn take(&mut self, count: usize) -> Vec<i16> {
        let count = count.min(self.samples.len());
        self.start += count as u64;
        self.samples.drain(..count).collect()
    }
}

impl OpenaiSession {
    pub(super) fn append(
        &mut self,
        members: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let base64 = members["audio"].as_str().unwrap_or_default();
        if base64.len() > APPEND_MAX_CHARS {
            let words = "Audio payload is too large";
            return Err(Rejected::new("invalid_request_error", words).at("audio"));
        }
        if ctx.faults.trigger(FaultKind::InputBackpressure) {
            let words = "Input audio buffer exceeds the 64 MiB limit";
            return Err(Rejected::new("invalid_request_error", words));
        }
        let samples = decode_pcm16(base64, self.server)?;
        let before = self.input.samples.len();
        self.input.samples.extend_from_slice(&samples);
        let Some(config) = self.config.detector() else { return Ok(()) };
        let mut taken = 0;
        for (at, edge) in self.detector.push(&samples, config) {
            // Samples up to the edge that still wait.
            let until = (before + at).saturating_sub(taken);
            taken += self.handle_edge(edge, until, config, ctx)?;
        }
        Ok(())
    }

    /// Handles an edge of the user's speech; returns the samples that left the buffer.
    fn handle_edge(
        &mut self,
        edge: SpeechEdge,
        until: usize,
        config: DetectorConfig,
        ctx: &mut SimContext<'_>,
    ) -> Result<usize, Rejected> {
        match edge {
            SpeechEdge::Started(ms) => {
                let id = self.server.new_id("item", ctx.rng);
                self.input.speech_item = Some(id.clone());
                let members = json!({"audio_start_ms": ms, "item_id": id});
                self.server.send(ctx, "input_audio_buffer.speech_started", members);
                if config.interrupts_response {
                    self.cancel_conversation("turn_detected", ctx);
                }
                if self.server == RealtimeServer::VllmOmni {
                    return Ok(0);
                }
                let silent = (ms * SAMPLES_PER_MS).saturating_sub(self.input.start) as usize;
                Ok(self.input.take(silent).len())
            }
            SpeechEdge::Stopped(ms) => {
                let id = self.input.speech_item.take();
                let id = id.unwrap_or_else(|| self.server.new_id("item", ctx.rng));
                let members = json!({"audio_end_ms": ms, "item_id": id});
                self.server.send(ctx, "input_audio_buffer.speech_stopped", members);
                let is_openai = self.server == RealtimeServer::Openai;
                let count = if is_openai { until } else { self.input.samples.len() };
                self.commit_samples(count, Some(id), ctx);
                if config.creates_response {
                    self.answer_speech(config, ctx)?;
                }
                Ok(count)
            }
        }
    }

    fn answer_speech(&mut self, config: DetectorConfig, ctx: &mut SimContext<'_>) -> Result<(), Rejected> {
        let is_busy = self.responses.iter().any(|response| response.is_in_conversation);
        if is_busy && !config.interrupts_response && self.server == RealtimeServer::VllmOmni {
            let words = "Cannot create an automatic response while another response is still in progress";
            return Err(Rejected::new("invalid_request_error", words).anonymous());
        }
        self.create_response(&Map::new(), ctx).map_err(Rejected::anonymous)
    }

    pub(super) fn commit(&mut self, ctx: &mut SimContext<'_>) -> Result<(), Rejected> {
        let count = self.input.samples.len();
        if self.server == RealtimeServer::Openai && count < COMMIT_MIN_SAMPLES {
            let words = format!(
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only \
                 has {:.2}ms of audio.",
                count as f64 * 1000.0 / f64::from(WIRE_RATE_HZ)
            );
            return Err(Rejected::new("input_audio_buffer_commit_empty", words));
        } else if count == 0 {
            return Err(Rejected::new("invalid_request_error", "Input audio buffer is empty"));
        }
        let id = self.input.speech_item.take();
        self.commit_samples(count, id, ctx);
        self.detector.reset();
        Ok(())
    }

    /// Makes an item of the first samples of the buffer.
    fn commit_samples(&mut self, count: usize, id: Option<String>, ctx: &mut SimContext<'_>) {
        let samples = self.input.take(count);
        let id = id.unwrap_or_else(|| self.server.new_id("item", ctx.rng));
        let item = Item::heard(id.clone(), &samples);
        let (mut wire, audio) = (item.wire.clone(), item.audio.clone());
        let previous = self.conversation.last_id();
        self.conversation.push(item);
        let mut members = json!({"item_id": id, "previous_item_id": previous});
        if self.server == RealtimeServer::VllmOmni {
            self.detector.reset();
            wire["content"] = json!([]);
            if previous.is_none() {
                members = json!({"item_id": id});
            }
        }
        self.server.send(ctx, "input_audio_buffer.committed", members);
        self.announce_item(&wire, previous.as_deref(), ctx);
        if self.config.transcribes() {
            self.transcribe(&id, audio, ctx);
        }
    }

    pub(super) fn clear(&mut self, ctx: &mut SimContext<'_>) {
        self.input.take(usize::MAX);
        self.input.speech_item = None;
        self.detector.reset();
        self.server.send(ctx, "input_audio_buffer.cleared", json!({}));
    }
}
