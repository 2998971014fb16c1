//! One session of the legacy dialect on its worker: prepare, answer appends in order, end
//! (mappings/notes/minicpm-o-legacy.md#messages).
//!
//! The real server and its document differ; this module implements both. The real server accepts almost everything, has
//! one non-fatal error, and drops the connection where the document sends a reason and a close frame. The model's
//! answers are those of the current dialect (`duplex`).

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use serde_json::{Map, Value};

use super::{
    EngineAnswer, FaultKind, JobId, SimMode,
    backlog::{BACKLOG_FULL, Backlog},
    dialect_session::DialectSession,
    duplex::{DEFAULT_PROMPT, DuplexSession},
    messages, python,
    session_context::{SimContext, SimSessionEnd},
};
use crate::audio::{SPEECH_RATE_HZ, wav};

/// Text around the instructions; `prompt_length` includes it (mappings/notes/minicpm-o-legacy.md#exchange: 94 for 36
/// characters).
const PROMPT_TEMPLATE: &str = "<|im_start|>system\n\n<|audio_start|><|audio_end|><|im_end|>";

/// Minimum audio of an append according to the document: 250 ms.
const MIN_APPEND_SAMPLES: usize = 4_000;

/// Longest voice sample read from a WAV file.
const MAX_VOICE_DURATION: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum LegacyStage {
    /// Before the first `session.update`.
    AwaitingUpdate,
    /// Before `session.created`.
    Preparing { ready_at: Instant, update: Map<String, Value> },
    /// Ready; owns the model session.
    Live(Box<DuplexSession>),
}

/// One legacy session.
#[derive(Debug)]
pub(super) struct LegacySession {
    has_video: bool,
    /// Behaves like the document; otherwise like the real server.
    follows_document: bool,
    /// Instant at which the watchdog ends the session.
    expires_at: Option<Instant>,
    stage: LegacyStage,
    inbox: Backlog<Map<String, Value>>,
    closes_at: Option<Instant>,
}

impl LegacySession {
    pub(super) fn new(mode: SimMode, follows_document: bool, expires_at: Option<Instant>) -> Self {
        Self {
            has_video: mode == SimMode::Video,
            follows_document,
            expires_at,
            stage: LegacyStage::AwaitingUpdate,
            inbox: Backlog::default(),
            closes_at: None,
        }
    }

    /// Ends the session after a frame that is not a JSON object. The real server drops the connection; the document
    /// closes it.
    const fn reject_unreadable(&self) -> Result<(), SimSessionEnd> {
        Err(if self.follows_document { SimSessionEnd::UnsupportedData } else { SimSessionEnd::Aborted })
    }

    /// Processes queued messages while no step is in progress.
    fn process_inbox(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        while self.is_idle() && self.closes_at.is_none() {
            let Some(message) = self.inbox.pop() else { return Ok(()) };
            match message.get("type").and_then(Value::as_str) {
                Some("session.update") => self.handle_update(message, ctx),
                Some("input_audio_buffer.append") => self.handle_append(&message, ctx)?,
                Some(name) if self.follows_document => {
                    send_client_error(ctx, "unknown_event", &format!("unknown event '{name}'"));
                }
                None if self.follows_document => {
                    send_client_error(ctx, "missing_field", "missing field 'type'");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        match &self.stage {
            LegacyStage::AwaitingUpdate => true,
            LegacyStage::Preparing { .. } => false,
            LegacyStage::Live(duplex) => !duplex.is_busy(),
        }
    }

    /// Starts to prepare the session. The real server requires no field and prepares again for every update.
    fn handle_update(&mut self, mut message: Map<String, Value>, ctx: &mut SimContext<'_>) {
        let update = message.remove("session").map(messages::object).unwrap_or_default();
        if self.follows_document {
            if matches!(self.stage, LegacyStage::Live(_)) {
                return send_client_error(ctx, "unknown_event", "session.update is taken once");
            }
            if !update.get("instructions").is_some_and(Value::is_string) {
                return send_client_error(ctx, "missing_field", "missing field 'instructions'");
            }
        }
        let ready_at = ctx.init_end();
        self.stage = LegacyStage::Preparing { ready_at, update };
    }

    fn finish_preparing(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let LegacyStage::Preparing { update, .. } =
            std::mem::replace(&mut self.stage, LegacyStage::AwaitingUpdate)
        else {
            return Ok(());
        };
        if ctx.faults.trigger(FaultKind::DieBeforeCreated) {
            return self.fail(ctx);
        }
        let duplex = match to_current_payload(&update, self.follows_document) {
            Some(payload) => DuplexSession::prepare(self.has_video, &payload, ctx).ok(),
            None => None,
        };
        match duplex {
            Some(duplex) => {
                let prompt = update.get("instructions").and_then(Value::as_str).unwrap_or(DEFAULT_PROMPT);
                let length = prompt.chars().count() + PROMPT_TEMPLATE.chars().count();
                let id = format!("rt_{:.0}", ctx.unix_seconds() * 1000.0);
                ctx.send_text(messages::to_json([
                    ("type", "session.created".into()),
                    ("session_id", id.into()),
                    ("prompt_length", length.into()),
                ]));
                self.stage = LegacyStage::Live(Box::new(duplex));
            }
            None if self.follows_document => send_client_error(ctx, "invalid_payload", "invalid session"),
            None => return Err(SimSessionEnd::Aborted),
        }
        self.process_inbox(ctx)
    }

    fn handle_append(
        &mut self,
        message: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), SimSessionEnd> {
        let LegacyStage::Live(duplex) = &mut self.stage else {
            match self.follows_document {
                true => send_client_error(ctx, "not_ready", "the session is not ready"),
                false => ctx.send_inference_error(false, "Streaming processor not initialized"),
            }
            return Ok(());
        };
        let audio = message.get("audio").and_then(Value::as_str).filter(|text| !text.is_empty());
        match (audio.map(python::decode_float32), self.follows_document) {
            (None, true) => send_client_error(ctx, "missing_field", "missing field 'audio'"),
            (None, false) => ctx.send_inference_error(false, "Missing audio_base64"),
            (Some(Err(_)), true) => send_client_error(ctx, "invalid_payload", "audio base64 decode failed"),
            (Some(Err(_)), false) => return Err(SimSessionEnd::Aborted),
            (Some(Ok(samples)), true) if samples.len() < MIN_APPEND_SAMPLES => {
                send_client_error(ctx, "invalid_payload", "audio is shorter than 250 ms");
            }
            (Some(Ok(_)), _) => {
                let known_fields = ["audio", "force_listen", "video_frames", "max_slice_nums"];
                let known_fields = known_fields
                    .iter()
                    .filter_map(|key| Some(((*key).to_owned(), message.get(*key)?.clone())));
                duplex.handle_append("", &known_fields.collect(), ctx)?;
            }
        }
        Ok(())
    }

    fn close(&self, reason: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        ctx.send_text(messages::session_closed(reason));
        Err(if self.follows_document { SimSessionEnd::Closed } else { SimSessionEnd::Aborted })
    }

    fn fail(&self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        if self.follows_document { self.close("error", ctx) } else { Err(SimSessionEnd::Aborted) }
    }
}

impl DialectSession for LegacySession {
    fn handle_frame(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let Some(text) = frame else { return self.reject_unreadable() };
        if self.closes_at.is_some() {
            return Ok(());
        }
        let Ok(Value::Object(message)) = serde_json::from_str(text) else { return self.reject_unreadable() };
        if message.get("type").and_then(Value::as_str) == Some("session.close") {
            let closes_at = ctx.now + ctx.cfg.timing.close;
            self.closes_at = Some(self.step_end_time().map_or(closes_at, |end| end.max(closes_at)));
            return Ok(());
        }
        if !self.inbox.try_push(message, text.len()) {
            return Err(SimSessionEnd::GatewayFailed(BACKLOG_FULL));
        }
        self.process_inbox(ctx)
    }

    fn handle_engine_answer(&mut self, job: JobId, answer: &EngineAnswer, ctx: &mut SimContext<'_>) {
        if let LegacyStage::Live(duplex) = &mut self.stage {
            duplex.handle_engine_answer(job, answer, ctx);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let work = match &self.stage {
            LegacyStage::AwaitingUpdate => None,
            LegacyStage::Preparing { ready_at, .. } => Some(*ready_at),
            LegacyStage::Live(duplex) => duplex.step_deadline(),
        };
        [work, self.closes_at, self.expires_at].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= ctx.now);
        match &mut self.stage {
            LegacyStage::Preparing { ready_at, .. } if is_due(Some(*ready_at)) => {
                return self.finish_preparing(ctx);
            }
            LegacyStage::Live(duplex) if is_due(duplex.step_deadline()) => {
                duplex.finish_step("", ctx)?;
                return self.process_inbox(ctx);
            }
            _ => {}
        }
        if is_due(self.closes_at) {
            return self.close("stopped", ctx);
        }
        if !is_due(self.expires_at) {
            return Ok(());
        }
        match &self.stage {
            // After `context_full` the server sends no second `session.closed`.
            LegacyStage::Live(duplex) if duplex.has_sent_context_full() => Err(SimSessionEnd::Aborted),
            _ => self.close("timeout", ctx),
        }
    }

    fn step_end_time(&self) -> Option<Instant> {
        match &self.stage {
            LegacyStage::Live(duplex) => duplex.step_deadline(),
            _ => None,
        }
    }
}

/// Converts a `session.update` to a payload of the current dialect; `None` if its voice is malformed.
fn to_current_payload(update: &Map<String, Value>, follows_document: bool) -> Option<Map<String, Value>> {
    let mut payload = Map::new();
    for (ours, theirs) in [("instructions", "instructions"), ("voice_config", "config")] {
        payload.extend(update.get(ours).map(|value| (theirs.to_owned(), value.clone())));
    }
    for key in ["ref_audio", "tts_ref_audio"] {
        let Some(text) = update.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()) else {
            continue;
        };
        let voice =
            if follows_document { Cow::Owned(decode_wav_to_base64_f32(text)?) } else { Cow::Borrowed(text) };
        payload.insert(key.to_owned(), voice.into());
    }
    Some(payload)
}

/// Converts a 16 kHz WAV file to raw float32, both in base64; `None` for any other input.
pub(super) fn decode_wav_to_base64_f32(text: &str) -> Option<String> {
    let bytes = python::decode_base64(text).ok().filter(|bytes| bytes.starts_with(b"RIFF"))?;
    let (samples, rate_hz) = wav::read(&bytes, MAX_VOICE_DURATION).ok()?;
    (rate_hz == SPEECH_RATE_HZ).then(|| messages::base64_f32(&samples))
}

fn send_client_error(ctx: &mut SimContext<'_>, code: &str, message: &str) {
    ctx.send_text(messages::client_error(code, message));
}
