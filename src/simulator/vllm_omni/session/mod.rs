//! One session: its beginning, its input, what it does in time, and its end.
//!
//! `transport` is the session's connection with the journal of its events; `input` is what the client sends for the model, and
//! `answers` are the model's answers; `config` is the client's configuration, and `checks` checks it and each append.

mod answers;
mod checks;
mod config;
mod input;
mod transport;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};

use self::{checks::check_config, config::read_config, transport::Sent};
use super::{
    MAX_EVENT_BYTES, Refusal,
    events::{self, Answer},
};
use crate::{
    ConnId, EngineAnswer, JobId, SimOutput,
    dialect_session::{DialectSession, ResumeRequest},
    duplex::{DuplexSession, DuplexUnit},
    legacy::decode_wav_to_base64_f32,
    session_context::{SimContext, SimSessionEnd},
};

/// Time for which a session without a transport is kept (`disconnect_grace_s`).
const DISCONNECT_GRACE: Duration = Duration::from_secs(30);

/// Time without activity after which the session ends (`idle_ttl_s`), and default of `idle_timeout_s`.
const IDLE: Duration = Duration::from_secs(300);

/// One session.
#[derive(Debug)]
pub(crate) struct VllmSession {
    id: String,
    config: Map<String, Value>,
    conn: ConnId,
    /// Since when the session has no transport.
    detached_at: Option<Instant>,
    token: String,
    generation: u64,
    epoch: u64,
    opens_at: Option<Instant>,
    journal: VecDeque<Sent>,
    sequence: u64,
    acknowledged: u64,
    idle_timeout: Duration,
    last_frame_at: Instant,
    last_activity_at: Instant,
    model: DuplexSession,
    /// Audio that is no whole unit yet, and the pictures of the appends.
    buffer: Vec<f32>,
    pictures: VecDeque<usize>,
    waiting: VecDeque<DuplexUnit>,
    submitted_at: Instant,
    has_heard_speech: bool,
    answer: Option<Answer>,
    /// The last answer that is over, and the length of its audio.
    last_answer: Option<(String, u64)>,
    last_item: Option<String>,
    /// The session is over, and ends like this.
    ending: Option<SimSessionEnd>,
}

impl VllmSession {
    /// Opens a session. Its first events follow after the time of an initialisation.
    pub(crate) fn open(asked: &Map<String, Value>, ctx: &mut SimContext<'_>) -> Result<Self, Refusal> {
        let bad_voice = || Refusal::new("invalid_duplex_runtime_config", "bad ref_audio");
        let mut config = read_config(asked)?;
        check_config(&config, ctx.cfg.vllm_version)?;
        let voice = config.get("ref_audio").and_then(Value::as_str).map(|url| {
            let (_, base64) = url.split_once(";base64,").unwrap_or_default();
            decode_wav_to_base64_f32(base64).ok_or_else(bad_voice)
        });
        let mut payload = json!({"system_prompt": config.get("instructions")});
        if let Some(voice) = voice.transpose()? {
            payload["ref_audio"] = voice.into();
        }
        let payload = payload.as_object().cloned().unwrap_or_default();
        let mut model = DuplexSession::prepare(true, &payload, ctx).map_err(|_| bad_voice())?;
        let forced = config.get("extra_body").and_then(|extra| extra["force_listen_count"].as_u64());
        model.force_listen_for(u32::try_from(forced.unwrap_or(0)).unwrap_or(u32::MAX));
        let opens_at = ctx.init_end();
        if !asked.contains_key("ref_audio") {
            // A voice of `extra_body` is not shown.
            config.remove("ref_audio");
        }
        let idle_s = config.get("idle_timeout_s").and_then(Value::as_f64).filter(|seconds| *seconds > 0.0);
        Ok(Self {
            id: format!("duplex-{:032x}", ctx.rng.u128(..)),
            config,
            conn: ctx.conn,
            detached_at: None,
            token: events::resume_token(ctx.rng),
            generation: 1,
            epoch: 0,
            opens_at: Some(opens_at),
            journal: VecDeque::new(),
            sequence: 0,
            acknowledged: 0,
            idle_timeout: idle_s.map_or(IDLE, Duration::from_secs_f64),
            last_frame_at: ctx.now,
            last_activity_at: ctx.now,
            model,
            buffer: Vec::new(),
            pictures: VecDeque::new(),
            waiting: VecDeque::new(),
            submitted_at: ctx.now,
            has_heard_speech: false,
            answer: None,
            last_answer: None,
            last_item: None,
            ending: None,
        })
    }

    const fn note_frame(&mut self, now: Instant) {
        (self.last_frame_at, self.last_activity_at) = (now, now);
    }

    fn public_session(&self) -> Value {
        events::public_session(&self.id, self.epoch, &self.config)
    }

    /// Reads a frame of the client.
    fn read(&mut self, text: &str, ctx: &mut SimContext<'_>) {
        self.note_frame(ctx.now);
        if text.len() > MAX_EVENT_BYTES {
            return events::send_error(ctx, "event_too_large", "Duplex event too large", None);
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(message)) if message.get("type").is_some_and(Value::is_string) => {
                self.handle_message(&message, ctx);
            }
            Ok(_) => {
                let words = "Duplex event must be a JSON object with a type";
                events::send_error(ctx, "bad_event", words, None);
            }
            Err(_) => events::send_error(ctx, "invalid_json", "Invalid JSON event", None),
        }
    }

    fn handle_message(&mut self, message: &Map<String, Value>, ctx: &mut SimContext<'_>) {
        let text = |key: &str| message.get(key).and_then(Value::as_str);
        let event_id = text("event_id");
        match text("type").unwrap_or_default() {
            "session.event_ack" => self.acknowledge(message, ctx),
            "session.resume" => {
                let words = "session.resume must be the first message of a new connection";
                events::send_error(ctx, "unsupported_session_resume", words, event_id);
            }
            "session.update" => self.update(message, ctx),
            "session.heartbeat" => {
                self.emit("session.heartbeat_ack", [("session_id", self.id.clone().into())], ctx);
            }
            "session.close" => self.close(text("reason").unwrap_or("client_close"), ctx),
            "input_audio_buffer.append" => self.append(message, ctx),
            "input_audio_buffer.clear" | "input.cancel" | "barge_in" => {
                self.buffer.clear();
                self.waiting.clear();
                self.emit("input_audio_buffer.cleared", [], ctx);
            }
            "response.cancel" => self.cancel(text("response_id"), event_id, ctx),
            "playback.ack" => self.acknowledge_playback(message, ctx),
            "input.text.append" => {
                let words = "The selected native duplex runtime accepts audio append only";
                self.emit_error("native_text_append_unsupported", words, event_id, ctx);
            }
            "input_audio_buffer.commit" if !self.has_heard_speech => {
                let words = "input_audio_buffer.commit requires a non-empty input audio buffer";
                self.emit_error("input_audio_buffer_empty", words, event_id, ctx);
            }
            "response.create" => {
                let words = "Duplex response.create requires committed audio to answer.";
                self.emit_error("response_create_without_input", words, None, ctx);
            }
            other => {
                let words = format!("Unknown duplex event type: {other}");
                events::send_error(ctx, "unknown_event", &words, event_id);
            }
        }
    }

    /// Nothing that the model was initialised with can change.
    fn update(&mut self, message: &Map<String, Value>, ctx: &mut SimContext<'_>) {
        let patch = message.get("session").and_then(Value::as_object).unwrap_or(message);
        let event_id = message.get("event_id").and_then(Value::as_str);
        if patch.get("ref_audio").is_some_and(Value::is_string) {
            let words = "session.update cannot change ref_audio after the session is open";
            return self.emit_error("ref_audio_update_unsupported", words, event_id, ctx);
        }
        if patch.get("instructions").is_some_and(|given| Some(given) != self.config.get("instructions")) {
            let words = "instructions cannot be changed after the session is created";
            return self.emit_error("instructions_update_unsupported", words, event_id, ctx);
        }
        self.emit("session.updated", [("session", self.public_session())], ctx);
    }

    /// Ends the session at the client's wish, or for this reason.
    fn close(&mut self, reason: &str, ctx: &mut SimContext<'_>) {
        let members =
            [("session_id", self.id.clone().into()), ("reason", reason.into()), ("event", json!({}))];
        self.emit("session.closed", members, ctx);
        self.end(reason);
    }

    fn expire(&mut self, reason: &str, ctx: &mut SimContext<'_>) {
        self.emit(
            "session.expired",
            [("session_id", self.id.clone().into()), ("reason", reason.into())],
            ctx,
        );
        self.end(reason);
    }

    fn end(&mut self, reason: &str) {
        self.ending = Some(match self.detached_at {
            None => SimSessionEnd::ClosedFor(reason.to_owned()),
            Some(_) => SimSessionEnd::Detached,
        });
    }

    /// The end of the session, if it is over.
    fn outcome(&mut self) -> Result<(), SimSessionEnd> {
        self.ending.take().map_or(Ok(()), Err)
    }

    /// Leaves the connection without a close frame.
    fn drop_connection(&mut self, ctx: &mut SimContext<'_>) {
        if self.detached_at.is_none() {
            self.detached_at = Some(ctx.now);
            ctx.outputs.push_back(SimOutput::Abort(ctx.conn));
        }
    }

    /// Instant at which a connection without input is dropped, or a session without a connection given up.
    fn transport_deadline(&self) -> Instant {
        match self.detached_at {
            Some(at) => at + DISCONNECT_GRACE,
            None => self.last_frame_at + self.idle_timeout,
        }
    }

    fn announce(&mut self, ctx: &mut SimContext<'_>) {
        let session = self.public_session();
        let members = [
            ("session", session.clone()),
            ("attachment_generation", self.generation.into()),
            ("resume_token", self.token.as_str().into()),
        ];
        if self.detached_at.is_none() {
            events::send(ctx, "session.created", members);
        }
        self.emit("session.updated", [("session", session)], ctx);
    }
}

impl DialectSession for VllmSession {
    fn id(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn handle_frame(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let Some(text) = frame else {
            let error = Refusal::binary_frame().to_event(ctx.rng);
            ctx.send_text(error);
            return Err(SimSessionEnd::Aborted);
        };
        if self.detached_at.is_none() {
            self.read(text, ctx);
        }
        self.outcome()
    }

    fn handle_engine_answer(&mut self, job: JobId, answer: &EngineAnswer, ctx: &mut SimContext<'_>) {
        self.model.handle_engine_answer(job, answer, ctx);
    }

    fn next_deadline(&self) -> Option<Instant> {
        if let Some(opens_at) = self.opens_at {
            return Some(opens_at);
        }
        let given_up = [self.transport_deadline(), self.last_activity_at + IDLE];
        [self.model.step_deadline(), self.silence_due_at()].into_iter().flatten().chain(given_up).min()
    }

    fn handle_deadline(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= ctx.now);
        if is_due(self.opens_at) {
            self.opens_at = None;
            self.announce(ctx);
        } else if is_due(self.model.step_deadline()) {
            self.finish_step(ctx);
        } else if is_due(self.silence_due_at()) {
            self.begin_silence(ctx);
        } else if self.detached_at.is_some_and(|at| at + DISCONNECT_GRACE <= ctx.now) {
            self.expire("disconnect_grace_expired", ctx);
        } else if self.last_activity_at + IDLE <= ctx.now {
            self.expire("idle_ttl_expired", ctx);
        } else if self.transport_deadline() <= ctx.now {
            self.drop_connection(ctx);
            return Ok(());
        }
        self.outcome()?;
        self.start_steps(ctx);
        Ok(())
    }

    fn detach(&mut self, now: Instant) -> bool {
        self.detached_at.get_or_insert(now);
        true
    }

    fn is_detached(&self) -> bool {
        self.detached_at.is_some()
    }

    fn resume(&mut self, request: &ResumeRequest, ctx: &mut SimContext<'_>) -> bool {
        let attached = self.attach(request, ctx);
        if let Err(refusal) = &attached {
            if let Some(refusal) = refusal {
                let error = refusal.to_event(ctx.rng);
                ctx.send_text(error);
            }
            ctx.outputs.push_back(SimOutput::Abort(ctx.conn));
        }
        attached.is_ok()
    }
}
