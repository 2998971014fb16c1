//! Servers that speak OpenAI's Realtime protocol: OpenAI's own order of events, and that of vLLM-Omni's turn deployments.
//!
//! Sources: OpenAI's reference and the types of the Python package openai 3.57; `entrypoints/openai/realtime` of vllm-omni
//! 0.32.0rc1. The answers are those of the other dialects (`generate`).
//!
//! - [`request`] checks a client's events by the forms of [`schema`], [`config`] is what a session asks for
//! - [`input`] is the audio that waits, and [`turn_detector`] finds the speech in it
//! - [`conversation`] has the items, which [`items`] changes for clients
//! - [`creation`] begins a [`response`], [`deltas`] and [`ending`] write its events, [`transcription`] those of the user's words
//! - [`prompt`] asks the model, [`wire`] writes events as JSON, and [`pages`] is the server before a session
//!
//! Absent: G.711, MCP, idle timeouts, stored prompts, tracing, log probabilities, and a choice of tools that forces a call.

mod config;
mod conversation;
mod creation;
mod deltas;
mod ending;
mod input;
mod items;
mod pages;
mod prompt;
mod request;
mod response;
mod schema;
mod transcription;
mod turn_detector;
mod wire;

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::{
    config::SessionConfig, conversation::Conversation, input::InputBuffer, request::Request,
    response::Response, transcription::Transcription, turn_detector::TurnDetector, wire::Rejected,
};
use super::{
    EngineAnswer, FaultKind, JobId, RealtimeServer, SimMode,
    backlog::Backlog,
    dialect_session::DialectSession,
    session_context::{SimContext, SimSessionEnd},
};

/// Longest session of OpenAI. The package names 30 min, and enforces nothing.
const SESSION_MAX: Duration = Duration::from_secs(3600);

/// One session.
#[derive(Debug)]
pub(super) struct OpenaiSession {
    server: RealtimeServer,
    id: String,
    conversation_id: String,
    config: SessionConfig,
    conversation: Conversation,
    input: InputBuffer,
    detector: TurnDetector,
    responses: Vec<Response>,
    transcriptions: Vec<Transcription>,
    /// The assistant has spoken, so that its voice stays.
    has_spoken: bool,
    /// Instant of `session.created`.
    ready_at: Option<Instant>,
    /// The server never says anything.
    is_stuck: bool,
    /// Frames that came before; `None` is a binary one.
    unread: Backlog<Option<String>>,
    expires_at: Option<Instant>,
    /// Seconds since 1970 that the session names as its end.
    expires_unix: u64,
}

impl OpenaiSession {
    pub(super) fn new(server: RealtimeServer, mode: SimMode, rng: &mut fastrand::Rng) -> Self {
        Self {
            server,
            id: server.new_id("sess", rng),
            conversation_id: server.new_id("conv", rng),
            config: SessionConfig::new(server, mode == SimMode::Transcription),
            conversation: Conversation::default(),
            input: InputBuffer::default(),
            detector: TurnDetector::default(),
            responses: Vec::new(),
            transcriptions: Vec::new(),
            has_spoken: false,
            ready_at: None,
            is_stuck: false,
            unread: Backlog::default(),
            expires_at: None,
            expires_unix: 0,
        }
    }

    fn session(&self) -> Value {
        self.config.to_json(&self.id, self.expires_unix)
    }

    fn finish_opening(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        self.ready_at = None;
        if ctx.faults.trigger(FaultKind::DieBeforeCreated) {
            return Err(SimSessionEnd::Aborted);
        }
        self.server.send(ctx, "session.created", json!({"session": self.session()}));
        while let Some(frame) = self.unread.pop() {
            self.read(frame.as_deref(), ctx)?;
        }
        Ok(())
    }

    /// Reads one frame; `None` is a binary one.
    fn read(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let (event_id, request) = match (frame, self.server) {
            (Some(text), server) => request::parse(text, server),
            (None, RealtimeServer::Openai) => request::parse("", self.server),
            (None, RealtimeServer::VllmOmni) => {
                let rejected = Rejected::server("Internal server error");
                self.server.send_error(ctx, &rejected, None);
                return Err(SimSessionEnd::Aborted);
            }
        };
        if let Err(rejected) = request.and_then(|request| self.handle(&request, ctx)) {
            self.server.send_error(ctx, &rejected, event_id.as_deref());
        }
        Ok(())
    }

    fn handle(&mut self, request: &Request, ctx: &mut SimContext<'_>) -> Result<(), Rejected> {
        let members = &request.members;
        let object = |key: &str| members.get(key).and_then(Value::as_object);
        match request.kind {
            "session.update" => {
                self.config.update(object("session").unwrap_or(&Map::new()), self.has_spoken)?;
                if self.config.detector().is_none() {
                    self.detector.reset();
                }
                self.server.send(ctx, "session.updated", json!({"session": self.session()}));
                Ok(())
            }
            "input_audio_buffer.append" => self.append(members, ctx),
            "input_audio_buffer.commit" => self.commit(ctx),
            "input_audio_buffer.clear" => {
                self.clear(ctx);
                Ok(())
            }
            "conversation.item.create" => self.create_item(members, ctx),
            "conversation.item.truncate" => self.truncate_item(members, ctx),
            "conversation.item.delete" => self.delete_item(members, ctx),
            "conversation.item.retrieve" => self.retrieve_item(members, ctx),
            "response.create" => self.create_response(object("response").unwrap_or(&Map::new()), ctx),
            _ => self.cancel(members.get("response_id").and_then(Value::as_str), ctx),
        }
    }

    /// `response.cancel`: of this response, or of the one in the conversation.
    fn cancel(&mut self, id: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), Rejected> {
        let is_meant = |response: &Response| id.map_or(response.is_in_conversation, |id| response.id == id);
        let Some(at) = self.responses.iter().position(is_meant) else {
            let words = match (self.server, id) {
                (RealtimeServer::Openai, _) => "Cancellation failed: no active response found".to_owned(),
                (RealtimeServer::VllmOmni, None) => "No response is in progress".to_owned(),
                (RealtimeServer::VllmOmni, Some(id)) => format!("Response '{id}' is not in progress"),
            };
            return Err(Rejected::new("response_cancel_not_active", words));
        };
        self.cancel_response(at, "client_cancelled", ctx);
        Ok(())
    }

    /// Ends a session that lasts too long. The package's server is taken down instead.
    fn expire(&self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        match self.server {
            RealtimeServer::Openai => {
                let reason = "Your session hit the maximum duration of 60 minutes.";
                self.server.send_error(ctx, &Rejected::new("session_expired", reason), None);
                Err(SimSessionEnd::ClosedWith { code: 1001, reason })
            }
            RealtimeServer::VllmOmni => Err(SimSessionEnd::ClosedWith { code: 1012, reason: "" }),
        }
    }
}

impl DialectSession for OpenaiSession {
    fn begin(&mut self, ctx: &mut SimContext<'_>) {
        let ready_at = ctx.init_end();
        let limit = ctx.faults.trigger_time(FaultKind::Timeout);
        self.is_stuck = ctx.faults.trigger(FaultKind::StuckQueue);
        self.ready_at = (!self.is_stuck).then_some(ready_at);
        let own = (self.server == RealtimeServer::Openai).then_some(SESSION_MAX);
        self.expires_at = limit.or(own).map(|limit| ctx.now + limit);
        let shown = if self.server == RealtimeServer::Openai { SESSION_MAX } else { SESSION_MAX / 2 };
        self.expires_unix = ctx.unix_seconds() as u64 + shown.as_secs();
    }

    fn handle_frame(&mut self, frame: Option<&str>, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        if self.ready_at.is_some() || self.is_stuck {
            let bytes = frame.map_or(0, str::len);
            let has_room = self.unread.try_push(frame.map(str::to_owned), bytes);
            return if has_room { Ok(()) } else { Err(SimSessionEnd::Aborted) };
        }
        self.read(frame, ctx)
    }

    fn handle_engine_answer(&mut self, job: JobId, answer: &EngineAnswer, ctx: &mut SimContext<'_>) {
        for response in &mut self.responses {
            response.generation.handle_engine_answer(job, answer, ctx);
        }
        for transcription in &mut self.transcriptions {
            transcription.generation.handle_engine_answer(job, answer, ctx);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let responses = self.responses.iter().filter_map(Response::deadline);
        let transcriptions = self.transcriptions.iter().filter_map(Transcription::deadline);
        responses.chain(transcriptions).chain(self.ready_at).chain(self.expires_at).min()
    }

    fn handle_deadline(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= ctx.now);
        if is_due(self.ready_at) {
            return self.finish_opening(ctx);
        }
        if let Some(at) = self.transcriptions.iter().position(|known| is_due(known.deadline())) {
            return self.run_transcription(at, ctx);
        }
        if let Some(at) = self.responses.iter().position(|known| is_due(known.deadline())) {
            return self.run_response(at, ctx);
        }
        if is_due(self.expires_at) {
            return self.expire(ctx);
        }
        Ok(())
    }
}
