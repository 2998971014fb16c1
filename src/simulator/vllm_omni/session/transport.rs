//! The session's transports: one at a time, replaced by a client that resumes; and the journal of what that client can get again.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{Refusal, VllmSession};
use crate::simulator::{
    ConnId, SimOutput,
    vllm_omni::{VllmContext, events},
};

/// Time for which sent events can be repeated (`resume_replay_ttl_s`).
const REPLAY_TTL: Duration = Duration::from_secs(60);

/// An event that was sent, and may be repeated.
#[derive(Debug)]
pub(super) struct Sent {
    sequence: u64,
    at: Instant,
    text: String,
}

impl VllmSession {
    /// The connection that the session is attached to.
    pub(in crate::simulator::vllm_omni) fn attached(&self) -> Option<ConnId> {
        self.detached_at.is_none().then_some(self.conn)
    }

    pub(in crate::simulator::vllm_omni) fn detach(&mut self, conn: ConnId, now: Instant) {
        if self.attached() == Some(conn) {
            self.detached_at = Some(now);
        }
    }

    /// Attaches the session to another connection; returns the one that it replaces. `Err(None)`: the reason was sent.
    pub(in crate::simulator::vllm_omni) fn resume(
        &mut self,
        conn: ConnId,
        token: &str,
        last: u64,
        ctx: &mut VllmContext<'_>,
    ) -> Result<Option<ConnId>, Option<Refusal>> {
        if token != self.token {
            return Err(Some(("invalid_resume_token", "Invalid duplex session resume token".to_owned())));
        }
        while self.journal.front().is_some_and(|sent| sent.at + REPLAY_TTL <= ctx.now) {
            self.acknowledged = self.journal.pop_front().map_or(self.acknowledged, |sent| sent.sequence);
        }
        if last < self.acknowledged {
            let event = [("session_id", self.id.as_str().into()), ("reason", "journal_gap".into())];
            ctx.send_event(conn, "session.resync_required", event);
            return Err(None);
        }
        if last > self.sequence {
            let words = format!("requested sequence {last} is newer than journal head {}", self.sequence);
            return Err(Some(("session_resume_conflict", words)));
        }
        let replaced = self.attached();
        (self.conn, self.detached_at, self.token) = (conn, None, events::resume_token(ctx.rng));
        self.note_frame(ctx.now);
        let members = [
            ("session_id", self.id.as_str().into()),
            ("session", self.public_session()),
            ("attachment_generation", (self.generation + 1).into()),
            ("resume_token", self.token.as_str().into()),
        ];
        ctx.send_event(conn, "session.resumed", members);
        for sent in self.journal.iter().filter(|sent| sent.sequence > last) {
            ctx.send(conn, sent.text.clone());
        }
        if let Some(replaced) = replaced {
            let members =
                [("session_id", self.id.as_str().into()), ("attachment_generation", self.generation.into())];
            ctx.send_event(replaced, "session.replaced", members);
            ctx.outputs.push_back(SimOutput::Close(replaced, 1000, "session_replaced".to_owned()));
        }
        self.generation += 1;
        Ok(replaced)
    }

    /// Sends an event, and keeps it for a client that resumes.
    pub(super) fn emit<'n>(
        &mut self,
        kind: &str,
        members: impl IntoIterator<Item = (&'n str, Value)>,
        ctx: &mut VllmContext<'_>,
    ) {
        self.sequence += 1;
        let text = events::event(kind, &events::event_id(ctx.rng), members, Some(self.sequence));
        if let Some(conn) = self.attached() {
            ctx.send(conn, text.clone());
        }
        self.journal.push_back(Sent { sequence: self.sequence, at: ctx.now, text });
    }

    pub(super) fn emit_error(
        &mut self,
        code: &str,
        message: &str,
        event_id: Option<&str>,
        ctx: &mut VllmContext<'_>,
    ) {
        let error = events::error_members(code, message, event_id);
        self.emit("error", [("error", error)], ctx);
    }

    pub(super) fn acknowledge(
        &mut self,
        conn: ConnId,
        message: &Map<String, Value>,
        ctx: &mut VllmContext<'_>,
    ) {
        let event_id = message.get("event_id").and_then(Value::as_str);
        let Some(sequence) = message.get("server_event_seq").and_then(Value::as_u64) else {
            let words = "session.event_ack requires a non-negative server_event_seq";
            return ctx.send_error(conn, "invalid_event_ack", words, event_id);
        };
        if sequence > self.sequence {
            let words =
                format!("acknowledged sequence {sequence} is newer than journal head {}", self.sequence);
            return ctx.send_error(conn, "invalid_event_ack", &words, event_id);
        }
        self.acknowledged = self.acknowledged.max(sequence);
        self.journal.retain(|sent| sent.sequence > sequence);
    }
}
