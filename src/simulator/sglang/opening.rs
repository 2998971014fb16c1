//! The opening of a session, and the change of what may change later.

use std::time::Instant;

use serde_json::{Map, Value};

use super::{
    SglangSession, State, error_members,
    negotiation::{self, Negotiated},
    request::Rejected,
    send,
};
use crate::{
    FaultKind,
    session_context::{SimContext, SimSessionEnd},
};

/// A configuration that the model prepares. The server reads no message meanwhile.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) ready_at: Instant,
    event_id: String,
    session: Map<String, Value>,
    negotiated: Negotiated,
}

impl SglangSession {
    /// Opens the session, or changes what may change later: the output modalities.
    pub(super) fn update(
        &mut self,
        patch: &Map<String, Value>,
        event_id: &str,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let is_open = self.state == State::Open;
        let (session, negotiated) = negotiation::negotiate(&self.session, is_open, patch)?;
        if is_open {
            self.adopt(session, negotiated, event_id, ctx);
            return Ok(());
        }
        let ready_at = ctx.init_end();
        self.opening = Some(Opening { ready_at, event_id: event_id.to_owned(), session, negotiated });
        Ok(())
    }

    pub(super) fn finish_opening(&mut self, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let Some(Opening { event_id, session, negotiated, .. }) = self.opening.take() else { return Ok(()) };
        if ctx.faults.trigger(FaultKind::DieBeforeCreated) {
            let rejected = Rejected {
                code: "admission_rejected",
                message: "no capacity for another session".to_owned(),
                param: None,
            };
            let members = error_members(false, "invalid_request_error", &rejected, Some(&event_id));
            send(ctx, "error", members);
        } else {
            self.begin_model(&session, ctx);
            self.adopt(session, negotiated, &event_id, ctx);
            self.state = State::Open;
        }
        while self.opening.is_none()
            && self.closes.is_none()
            && let Some(frame) = self.unread.pop()
        {
            self.read(frame.as_deref(), ctx)?;
        }
        Ok(())
    }

    fn adopt(
        &mut self,
        session: Map<String, Value>,
        negotiated: Negotiated,
        event_id: &str,
        ctx: &mut SimContext<'_>,
    ) {
        let shown = negotiation::wire_session(&session, &negotiated, &self.id);
        send(ctx, "session.updated", [("client_event_id", event_id.into()), ("session", shown)]);
        (self.session, self.negotiated) = (session, negotiated);
    }
}
