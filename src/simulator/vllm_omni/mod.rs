//! vLLM-Omni's duplex endpoint (`/v1/realtime`): sessions that outlast their transport, and a limit of sessions instead of a
//! queue. Source: the packages vllm-omni 0.30.0 and 0.32.0rc1; the rules of `tests/sockets/vllm_omni/rules.rs` run against both.
//!
//! `session` is one session, and `events` its messages. Absent: committed input, conversation items, server VAD, and what
//! depends on them, since the model decides by itself when it speaks.

mod events;
mod session;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use serde_json::{Map, Value};

use self::session::VllmSession;
use super::{
    ConnId, EngineAnswer, FaultKind, JobId, SimMode, SimOutput, SimulatorConfig, VllmVersion,
    fault::Faults,
    messages::{self, UnixClock},
    model::WorkerModel,
    session_context::SimContext,
};

/// Time for which a session without a transport is kept (`disconnect_grace_s`).
const DISCONNECT_GRACE: Duration = Duration::from_secs(30);

/// Time within which the first message must come.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest message (`MAX_EVENT_BYTES`).
const MAX_EVENT_BYTES: usize = 15 << 20;

/// Parts that all sessions of the server use.
pub(super) struct VllmContext<'a> {
    pub(super) now: Instant,
    pub(super) cfg: &'a SimulatorConfig,
    pub(super) clock: &'a UnixClock,
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) faults: &'a mut Faults,
    pub(super) job_count: &'a mut u64,
    pub(super) turn_count: &'a mut u64,
    pub(super) answer_count: &'a mut u64,
    pub(super) outputs: &'a mut VecDeque<SimOutput>,
}

impl VllmContext<'_> {
    fn send(&mut self, conn: ConnId, text: String) {
        self.outputs.push_back(SimOutput::Text(conn, text));
    }

    /// Sends an event of the transport, which has no number and is not repeated.
    fn send_event<'n>(
        &mut self,
        conn: ConnId,
        kind: &str,
        members: impl IntoIterator<Item = (&'n str, Value)>,
    ) {
        let text = events::event(kind, &events::event_id(self.rng), members, None);
        self.send(conn, text);
    }

    fn send_error(&mut self, conn: ConnId, code: &str, message: &str, event_id: Option<&str>) {
        self.send_event(conn, "error", [("error", events::error_members(code, message, event_id))]);
    }

    /// Sends an error and ends the connection. The server's handler returns without a close frame.
    fn refuse(&mut self, conn: ConnId, code: &str, message: &str) {
        self.refuse_with(conn, events::error_members(code, message, None));
    }

    /// Refuses a session that the engine does not open; since 0.31 it says whether that may change.
    fn refuse_session(&mut self, conn: ConnId, code: &str, message: &str) {
        let mut error = events::error_members(code, message, None);
        // The server checks these before it asks its engine.
        let is_engines = code != "invalid_session_config";
        if is_engines && self.cfg.vllm_version >= VllmVersion::V0_32 {
            error["retryable"] = (code == "resource_exhausted").into();
        }
        self.refuse_with(conn, error);
    }

    fn refuse_with(&mut self, conn: ConnId, error: Value) {
        self.send_event(conn, "error", [("error", error)]);
        self.outputs.push_back(SimOutput::Abort(conn));
    }

    fn for_model<'s>(&'s mut self, conn: ConnId, model: &'s mut WorkerModel) -> SimContext<'s> {
        SimContext {
            now: self.now,
            conn,
            cfg: self.cfg,
            clock: self.clock,
            rng: self.rng,
            faults: self.faults,
            model,
            job_count: self.job_count,
            turn_count: self.turn_count,
            answer_count: self.answer_count,
            outputs: self.outputs,
        }
    }
}

/// State of a connection.
#[derive(Debug)]
enum Connection {
    /// Before the first message.
    New { expires_at: Instant },
    /// Attached to the session with this id.
    Attached(String),
}

/// The server: its connections and sessions.
#[derive(Debug, Default)]
pub(super) struct VllmServer {
    connections: BTreeMap<ConnId, Connection>,
    sessions: BTreeMap<String, VllmSession>,
}

impl VllmServer {
    pub(super) fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// A connection; `?model=` opens a session before any message.
    pub(super) fn handle_connected(&mut self, conn: ConnId, mode: SimMode, ctx: &mut VllmContext<'_>) {
        if mode == SimMode::Chat {
            // `?duplex=0` asks for the handler of turns, which this deployment lacks.
            let members = [("error", "Realtime API is not available".into()), ("code", "unsupported".into())];
            let error = [("type", "error".into())].into_iter().chain(members);
            ctx.send(conn, messages::to_json(error));
            return ctx.outputs.push_back(SimOutput::Close(conn, 1000, String::new()));
        }
        self.connections.insert(conn, Connection::New { expires_at: ctx.now + CONFIG_TIMEOUT });
        if mode == SimMode::Autostart {
            self.open(conn, &Map::new(), ctx);
        }
    }

    pub(super) fn handle_text(&mut self, conn: ConnId, text: &str, ctx: &mut VllmContext<'_>) {
        match self.connections.get(&conn) {
            Some(Connection::New { .. }) => self.handle_first(conn, text, ctx),
            Some(Connection::Attached(id)) => {
                let id = id.clone();
                self.handle_message(&id, conn, text, ctx);
            }
            None => {}
        }
    }

    /// The server reads only text frames, and fails on others. A session that was open is closed.
    pub(super) fn handle_binary(&mut self, conn: ConnId, ctx: &mut VllmContext<'_>) {
        if let Some(Connection::Attached(id)) = self.connections.remove(&conn) {
            self.sessions.remove(&id);
        }
        ctx.refuse(conn, "realtime_input_failed", "'text'");
    }

    /// The transport is gone. The session waits for another.
    pub(super) fn handle_closed(&mut self, conn: ConnId, ctx: &VllmContext<'_>) {
        if let Some(Connection::Attached(id)) = self.connections.remove(&conn)
            && let Some(session) = self.sessions.get_mut(&id)
        {
            session.detach(conn, ctx.now);
        }
    }

    pub(super) fn handle_engine_done(
        &mut self,
        job: JobId,
        answer: &EngineAnswer,
        ctx: &mut VllmContext<'_>,
    ) {
        self.sessions.values_mut().for_each(|session| session.handle_engine_answer(job, answer, ctx));
    }

    fn handle_first(&mut self, conn: ConnId, text: &str, ctx: &mut VllmContext<'_>) {
        self.connections.remove(&conn);
        let message = match serde_json::from_str(text) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return ctx.refuse(conn, "bad_event", "Realtime event must be a JSON object"),
            Err(_) => return ctx.refuse(conn, "invalid_json", "Invalid JSON in session.update"),
        };
        match message.get("type").and_then(Value::as_str) {
            Some("session.resume") => self.resume(conn, &message, ctx),
            Some("session.update") => {
                let session = message.get("session").and_then(Value::as_object);
                self.open(conn, session.unwrap_or(&message), ctx);
            }
            // Any other message opens a session with the defaults, and is then handled.
            _ => {
                if self.open(conn, &Map::new(), ctx) {
                    self.handle_text(conn, text, ctx);
                }
            }
        }
    }

    /// Opens a session; false if it is refused.
    fn open(&mut self, conn: ConnId, config: &Map<String, Value>, ctx: &mut VllmContext<'_>) -> bool {
        self.connections.remove(&conn);
        let is_full = self.sessions.len() >= ctx.cfg.workers;
        if is_full || ctx.faults.trigger(FaultKind::Busy) || ctx.faults.trigger(FaultKind::QueueFull) {
            let limit = ctx.cfg.workers;
            ctx.refuse_session(
                conn,
                "resource_exhausted",
                &format!("duplex_session_capacity_exhausted: limit={limit}"),
            );
            return false;
        }
        match VllmSession::open(conn, config, ctx) {
            Ok(session) => {
                self.connections.insert(conn, Connection::Attached(session.id().to_owned()));
                self.sessions.insert(session.id().to_owned(), session);
                true
            }
            Err((code, message)) => {
                ctx.refuse_session(conn, code, &message);
                false
            }
        }
    }

    fn resume(&mut self, conn: ConnId, message: &Map<String, Value>, ctx: &mut VllmContext<'_>) {
        let text = |key: &str| message.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let last = message.get("last_received_server_event_seq").map_or(Some(0), Value::as_u64);
        let (Some(id), Some(token), Some(last)) = (text("session_id"), text("resume_token"), last) else {
            let needs = "session.resume requires session_id, resume_token, and a non-negative event sequence";
            return ctx.refuse(conn, "invalid_session_resume", needs);
        };
        let Some(session) = self.sessions.get_mut(id) else {
            let words = format!("Unknown or expired duplex session: {id}");
            return ctx.refuse(conn, "session_resume_expired", &words);
        };
        match session.resume(conn, token, last, ctx) {
            Ok(replaced) => {
                self.connections.insert(conn, Connection::Attached(id.to_owned()));
                if let Some(replaced) = replaced {
                    self.connections.remove(&replaced);
                }
            }
            Err(Some((code, message))) => ctx.refuse(conn, code, &message),
            // The reason was sent.
            Err(None) => ctx.outputs.push_back(SimOutput::Abort(conn)),
        }
    }

    fn handle_message(&mut self, id: &str, conn: ConnId, text: &str, ctx: &mut VllmContext<'_>) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.note_frame(ctx.now);
        if text.len() > MAX_EVENT_BYTES {
            return ctx.send_error(conn, "event_too_large", "Duplex event too large", None);
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(message)) if message.get("type").is_some_and(Value::is_string) => {
                session.handle_message(conn, &message, ctx);
            }
            Ok(_) => {
                let words = "Duplex event must be a JSON object with a type";
                ctx.send_error(conn, "bad_event", words, None);
            }
            Err(_) => ctx.send_error(conn, "invalid_json", "Invalid JSON event", None),
        }
        self.remove_if_over(id);
    }

    fn remove_if_over(&mut self, id: &str) {
        if let Some(session) = self.sessions.get(id).filter(|session| session.is_over()) {
            if let Some(conn) = session.attached() {
                self.connections.remove(&conn);
            }
            self.sessions.remove(id);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let new = self.connections.values().filter_map(|connection| match connection {
            Connection::New { expires_at } => Some(*expires_at),
            Connection::Attached(_) => None,
        });
        new.chain(self.sessions.values().filter_map(VllmSession::deadline)).min()
    }

    /// Does the work of the session or connection that is due at `ctx.now`.
    pub(super) fn handle_deadline(&mut self, ctx: &mut VllmContext<'_>) {
        let is_late = |connection: &Connection| matches!(connection, Connection::New { expires_at } if *expires_at <= ctx.now);
        let late: Vec<ConnId> =
            self.connections.iter().filter(|(_, it)| is_late(it)).map(|(conn, _)| *conn).collect();
        for conn in late {
            self.connections.remove(&conn);
            ctx.refuse(conn, "config_timeout", "Timeout waiting for session.update");
        }
        let is_due = |session: &VllmSession| session.deadline().is_some_and(|at| at <= ctx.now);
        let due: Vec<String> =
            self.sessions.iter().filter(|(_, it)| is_due(it)).map(|(id, _)| id.clone()).collect();
        for id in due {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if let Some(left) = session.handle_deadline(ctx) {
                self.connections.remove(&left);
            }
            self.remove_if_over(&id);
        }
    }
}
