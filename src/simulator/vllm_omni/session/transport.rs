//! The session's transports: one at a time, replaced by a client that resumes; and the journal of what that client can get again.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{Refusal, VllmSession};
use crate::{SimOutput, dialect_session::ResumeRequest, session_context::SimContext, vllm_omni::events};

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
    /// Attaches the session to the context's connection, and ends the one that it replaces. `Err(None)`: the reason was sent.
    pub(super) fn attach(
        &mut self,
        request: &ResumeRequest,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Option<Refusal>> {
        if request.token != self.token {
            let refusal = Refusal::new("invalid_resume_token", "Invalid duplex session resume token");
            return Err(Some(refusal));
        }
        let last = request.last_sequence;
        while self.journal.front().is_some_and(|sent| sent.at + REPLAY_TTL <= ctx.now) {
            self.acknowledged = self.journal.pop_front().map_or(self.acknowledged, |sent| sent.sequence);
        }
        if last < self.acknowledged {
            let event = [("session_id", self.id.as_str().into()), ("reason", "journal_gap".into())];
            events::send(ctx, "session.resync_required", event);
            return Err(None);
        }
        if last > self.sequence {
            let words = format!("requested sequence {last} is newer than journal head {}", self.sequence);
            return Err(Some(Refusal::new("session_resume_conflict", words)));
        }
        let replaced = self.detached_at.is_none().then_some(self.conn);
        (self.conn, self.detached_at, self.token) = (ctx.conn, None, events::resume_token(ctx.rng));
        self.note_frame(ctx.now);
        let members = [
            ("session_id", self.id.as_str().into()),
            ("session", self.public_session()),
            ("attachment_generation", (self.generation + 1).into()),
            ("resume_token", self.token.as_str().into()),
        ];
        events::send(ctx, "session.resumed", members);
        for sent in self.journal.iter().filter(|sent| sent.sequence > last) {
            ctx.send_text(sent.text.clone());
        }
        if let Some(replaced) = replaced {
            let members =
                [("session_id", self.id.as_str().into()), ("attachment_generation", self.generation.into())];
            let text = events::event("session.replaced", &events::event_id(ctx.rng), members, None);
            ctx.outputs.push_back(SimOutput::Text(replaced, text));
            ctx.outputs.push_back(SimOutput::Close(replaced, 1000, "session_replaced".to_owned()));
        }
        self.generation += 1;
        Ok(())
    }

    /// Sends an event, and keeps it for a client that resumes.
    pub(super) fn emit<'n>(
        &mut self,
        kind: &str,
        members: impl IntoIterator<Item = (&'n str, Value)>,
        ctx: &mut SimContext<'_>,
    ) {
        self.sequence += 1;
        let text = events::event(kind, &events::event_id(ctx.rng), members, Some(self.sequence));
        if self.detached_at.is_none() {
            ctx.send_text(text.clone());
        }
        self.journal.push_back(Sent { sequence: self.sequence, at: ctx.now, text });
    }

    pub(super) fn emit_error(
        &mut self,
        code: &str,
        message: &str,
        event_id: Option<&str>,
        ctx: &mut SimContext<'_>,
    ) {
        let error = events::error_members(code, message, event_id);
        self.emit("error", [("error", error)], ctx);
    }

    pub(super) fn acknowledge(&mut self, message: &Map<String, Value>, ctx: &mut SimContext<'_>) {
        let event_id = message.get("event_id").and_then(Value::as_str);
        let Some(sequence) = message.get("server_event_seq").and_then(Value::as_u64) else {
            let words = "session.event_ack requires a non-negative server_event_seq";
            return events::send_error(ctx, "invalid_event_ack", words, event_id);
        };
        if sequence > self.sequence {
            let words =
                format!("acknowledged sequence {sequence} is newer than journal head {}", self.sequence);
            return events::send_error(ctx, "invalid_event_ack", &words, event_id);
        }
        self.acknowledged = self.acknowledged.max(sequence);
        self.journal.retain(|sent| sent.sequence > sequence);
    }
}
