//! One session of the current dialect on a worker: initialise, answer appends in order, close
//! (mappings/notes/minicpm-o.md#events, mappings/notes/minicpm-o.md#commands).
//!
//! The worker validates the form of each message on arrival. The back-end validates the content of an append when it is
//! processed (`session_mode`). Every violation ends the session.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{
    EngineAnswer, FaultKind, JobId, SimDialect, SimMode,
    backlog::{BACKLOG_FULL, Backlog},
    dialect_session::DialectSession,
    messages::{self, EventMetrics, ServerEvent, TokenUsage},
    model::OrphanedGeneration,
    python,
    session_context::{InitRejected, SimContext, SimSessionEnd, random_hex12},
    session_mode::ModeSession,
};

/// Exception of the real gateway when it reads a binary frame as text (mappings/notes/minicpm-o.md#connect).
const BINARY_FRAME_EXCEPTION: &str = "'text'";

/// Longest audio item of llama.cpp-omni: 30 s of float32 at 16 kHz, characters of base64.
const AUDIO_ITEM_MAX_CHARS: usize = 30 * 16_000 * 4 / 3 * 4;

#[derive(Debug)]
enum CurrentStage {
    /// Before the first message.
    AwaitingInit,
    /// Before `session.created`; messages wait, because the worker does not read meanwhile.
    Initialising { ready_at: Instant, payload: Map<String, Value>, first_append: Option<Map<String, Value>> },
    /// Created; has an id.
    Live { id: String, mode_session: ModeSession },
}

/// One session of the current dialect.
#[derive(Debug)]
pub(super) struct CurrentSession {
    mode: SimMode,
    /// Instant at which the gateway's watchdog ends the session.
    expires_at: Option<Instant>,
    stage: CurrentStage,
    unread_messages: Backlog<String>,
    pending_appends: Backlog<Map<String, Value>>,
    pending_close: Option<(Instant, String)>,
}

impl CurrentSession {
    pub(super) fn new(mode: SimMode, expires_at: Option<Instant>) -> Self {
        Self {
            mode,
            expires_at,
            stage: CurrentStage::AwaitingInit,
            unread_messages: Backlog::default(),
            pending_appends: Backlog::default(),
            pending_close: None,
        }
    }

    fn handle_first_message(&mut self, text: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        if is_llama_cpp_omni(ctx) && !is_llama_cpp_init(text) {
            return Err(SimSessionEnd::Unanswered);
        }
        let Some(mut message) = parse_object(text) else { return self.close_as_worker(ctx) };
        let (payload, first_append) =
            match (message_type(&message), message.remove("payload"), message.remove("input")) {
                ("session.init", Some(Value::Object(payload)), _) => (payload, None),
                // An append may come first; the worker then assumes an empty init
                // (mappings/notes/minicpm-o.md#commands).
                ("input.append", _, Some(Value::Object(input))) => (Map::new(), Some(input)),
                _ => return self.close_as_worker(ctx),
            };
        let ready_at = ctx.init_end();
        self.stage = CurrentStage::Initialising { ready_at, payload, first_append };
        Ok(())
    }

    fn handle_message(&mut self, text: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        if is_llama_cpp_omni(ctx)
            && let Err(reason) = check_llama_cpp_append(text)
        {
            return self.fail_fast(reason, ctx);
        }
        let Some(mut message) = parse_object(text) else { return self.close_as_worker(ctx) };
        match (message_type(&message), message.remove("input")) {
            ("input.append", Some(Value::Object(input))) => {
                if !self.pending_appends.try_push(input, text.len()) {
                    return Err(SimSessionEnd::GatewayFailed(BACKLOG_FULL));
                }
                self.process_appends(ctx)
            }
            ("session.close", _) => {
                let given_reason = message.get("reason").filter(|reason| python::is_truthy(reason));
                let reason = given_reason.map_or("client_closed".to_owned(), python::to_str);
                let closes_at = ctx.now + ctx.cfg.timing.close;
                let closes_at = self.step_end_time().map_or(closes_at, |end| end.max(closes_at));
                self.pending_close = Some((closes_at, ctx.cfg.backend.close_reason(reason)));
                Ok(())
            }
            _ => self.close_as_worker(ctx),
        }
    }

    /// Processes queued appends while no step is in progress.
    fn process_appends(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let CurrentStage::Live { id, mode_session } = &mut self.stage else { return Ok(()) };
        while !mode_session.is_busy() && self.pending_close.is_none() {
            let Some(input) = self.pending_appends.pop() else { return Ok(()) };
            mode_session.handle_append(id, &input, ctx)?;
        }
        Ok(())
    }

    fn finish_init(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let CurrentStage::Initialising { payload, first_append, .. } =
            std::mem::replace(&mut self.stage, CurrentStage::AwaitingInit)
        else {
            return Ok(());
        };
        let Ok(mode_session) = self.prepare_mode(&payload, ctx) else {
            return self.fail_fast("voice_audio_decode_failed", ctx);
        };
        let id = format!("sess_{}", random_hex12(ctx.rng));
        let is_counted = ctx.cfg.counts_tokens && matches!(mode_session, ModeSession::Duplex(_));
        ctx.model.usage = is_counted.then(TokenUsage::default);
        let event = ServerEvent {
            name: "session.created",
            session_id: Some(Some(&id)),
            mode: Some(mode_session.mode_name()),
            metrics: Some(EventMetrics::new(ctx.cfg.backend, ctx.model.kv_cache_length)),
            usage: ctx.model.usage.map(TokenUsage::to_json),
            server_send_ts: Some(ctx.unix_seconds()),
            ..ServerEvent::default()
        };
        ctx.send_text(event.to_json(ctx.cfg.backend));
        self.stage = CurrentStage::Live { id, mode_session };
        if let Some(input) = first_append {
            // The backlog is empty here, so the push succeeds.
            let _fits = self.pending_appends.try_push(input, 0);
            self.process_appends(ctx)?;
        }
        while let Some(text) = self.unread_messages.pop() {
            self.handle_frame(Some(&text), ctx)?;
        }
        Ok(())
    }

    /// Creates the mode session. The payload's mode overrides the connection's (mappings/notes/minicpm-o.md#events).
    fn prepare_mode(
        &self,
        payload: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<ModeSession, InitRejected> {
        let is_duplex = match payload.get("mode").and_then(Value::as_str) {
            Some("turn_based") => false,
            Some("full_duplex") => true,
            _ => self.mode != SimMode::Chat,
        };
        let prepared = ModeSession::prepare(is_duplex, self.mode == SimMode::Video, payload, ctx)?;
        if ctx.faults.trigger(FaultKind::DieBeforeCreated) { Err(InitRejected) } else { Ok(prepared) }
    }

    /// Ends the session with the C++ back-end's reason, which the worker of a gateway does not pass on.
    fn fail_fast(&self, reason: &str, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        if !is_llama_cpp_omni(ctx) {
            return self.close_as_worker(ctx);
        }
        let id = match &self.stage {
            CurrentStage::Live { id, .. } => id.clone(),
            _ => format!("sess_{}", random_hex12(ctx.rng)),
        };
        ctx.send_text(ctx.session_closed(&id, reason, None));
        Err(SimSessionEnd::Closed)
    }

    fn close_as_worker(&self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let id = match &self.stage {
            CurrentStage::Live { id, .. } => Some(id.as_str()),
            _ => None,
        };
        ctx.send_text(messages::worker_closed(id));
        Err(SimSessionEnd::Closed)
    }
}

impl DialectSession for CurrentSession {
    fn id(&self) -> Option<&str> {
        match &self.stage {
            CurrentStage::Live { id, .. } => Some(id),
            _ => None,
        }
    }

    fn handle_frame(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let text = frame.ok_or(SimSessionEnd::GatewayFailed(BINARY_FRAME_EXCEPTION))?;
        if self.pending_close.is_some() {
            return Ok(());
        }
        match &self.stage {
            CurrentStage::AwaitingInit => self.handle_first_message(text, ctx),
            CurrentStage::Initialising { .. } => {
                let has_room = self.unread_messages.try_push(text.to_owned(), text.len());
                if has_room { Ok(()) } else { Err(SimSessionEnd::GatewayFailed(BACKLOG_FULL)) }
            }
            CurrentStage::Live { .. } => self.handle_message(text, ctx),
        }
    }

    fn handle_engine_answer(&mut self, job: JobId, answer: &EngineAnswer, ctx: &mut SimContext<'_>) {
        if let CurrentStage::Live { mode_session, .. } = &mut self.stage {
            mode_session.handle_engine_answer(job, answer, ctx);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let work = match &self.stage {
            CurrentStage::Initialising { ready_at, .. } => Some(*ready_at),
            CurrentStage::Live { mode_session, .. } => mode_session.step_deadline(),
            CurrentStage::AwaitingInit => None,
        };
        let closing = self.pending_close.as_ref().map(|(at, _)| *at);
        [work, closing, self.expires_at].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= ctx.now);
        match &mut self.stage {
            CurrentStage::Initialising { ready_at, .. } if is_due(Some(*ready_at)) => {
                return self.finish_init(ctx);
            }
            CurrentStage::Live { id, mode_session } if is_due(mode_session.step_deadline()) => {
                mode_session.run_step(id, ctx)?;
                return self.process_appends(ctx);
            }
            _ => {}
        }
        match (&self.stage, &self.pending_close) {
            (CurrentStage::Live { id, .. }, Some((at, reason))) if is_due(Some(*at)) => {
                ctx.send_text(ctx.session_closed(id, reason, None));
            }
            _ if is_due(self.expires_at) => ctx.send_text(messages::session_closed("timeout")),
            _ => return Ok(()),
        }
        Err(SimSessionEnd::Closed)
    }

    fn step_end_time(&self) -> Option<Instant> {
        match &self.stage {
            CurrentStage::Live { mode_session, .. } => mode_session.step_end_time(),
            _ => None,
        }
    }

    fn into_orphaned_generation(self: Box<Self>) -> Option<OrphanedGeneration> {
        match self.stage {
            CurrentStage::Live { mode_session, .. } => mode_session.into_orphaned_generation(),
            _ => None,
        }
    }
}

fn is_llama_cpp_omni(ctx: &SimContext<'_>) -> bool {
    ctx.cfg.dialect == SimDialect::LlamaCppOmni
}

/// True for a message that opens a session of llama.cpp-omni (`parse_session_init` in its protocol.cpp).
fn is_llama_cpp_init(text: &str) -> bool {
    let message = parse_object(text).unwrap_or_default();
    let mode = message.get("payload").and_then(|payload| payload.get("mode"));
    let has_mode =
        mode.and_then(Value::as_str).is_none_or(|mode| ["full_duplex", "turn_based"].contains(&mode));
    message_type(&message) == "session.init"
        && message.get("payload").is_some_and(Value::is_object)
        && has_mode
}

/// Checks a message of an open session of llama.cpp-omni. Returns the reason for which it ends the session.
fn check_llama_cpp_append(text: &str) -> Result<(), &'static str> {
    let message = parse_object(text).ok_or("invalid_json")?;
    if message_type(&message) != "input.append" {
        return Err("unexpected_message_type");
    }
    let input = message.get("input").and_then(Value::as_object).ok_or("invalid_input")?;
    let contents = input.get("messages").and_then(Value::as_array).into_iter().flatten();
    let parts = contents.filter_map(|message| message.get("content")?.as_array()).flatten();
    let items = parts.filter(|part| part["type"] == "audio").filter_map(|part| part.get("data"));
    let is_too_long = |item: &Value| item.as_str().is_some_and(|item| item.len() > AUDIO_ITEM_MAX_CHARS);
    if items.chain(input.get("audio")).any(is_too_long) { Err("invalid_input") } else { Ok(()) }
}

fn parse_object(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok()
}

fn message_type(message: &Map<String, Value>) -> &'static str {
    match message.get("type").and_then(Value::as_str) {
        Some("session.init") => "session.init",
        Some("input.append") => "input.append",
        Some("session.close") => "session.close",
        _ => "",
    }
}
