//! `response.create`: which responses begin, and with which prompt.

use serde_json::{Map, Value, json};

use super::{
    OpenaiSession, prompt,
    response::{Ending, Response},
    wire::Rejected,
};
use crate::{FaultKind, RealtimeServer, session_context::SimContext};

impl OpenaiSession {
    /// `response.create`: of a client, or after the user's speech. `own` has the settings of this response.
    pub(super) fn create_response(
        &mut self,
        own: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let is_in_conversation = own.get("conversation").is_none_or(|name| name != "none");
        self.check_new_response(is_in_conversation)?;
        let config = self.config.response(own)?;
        let given = own.get("input").and_then(Value::as_array);
        let items = given.map(|items| self.resolve_items(items, ctx)).transpose()?;
        if ctx.faults.trigger(FaultKind::InferenceFails) {
            return Err(Rejected::server("The server had an error while processing your request."));
        }
        if self.server == RealtimeServer::VllmOmni {
            self.cancel_conversation("client_cancelled", ctx);
        }
        if ctx.faults.trigger(FaultKind::NeverAnswers) {
            return Ok(());
        }
        let request = prompt::answer_request(&config, items.as_deref().unwrap_or(self.conversation.items()));
        let id = self.server.new_id("resp", ctx.rng);
        self.begin_response(Response::new(id, is_in_conversation, config, request, ctx), ctx);
        Ok(())
    }

    fn begin_response(&mut self, mut response: Response, ctx: &mut SimContext<'_>) {
        let created = self.response_object(&response, "in_progress", Value::Null, Vec::new(), Value::Null);
        self.server.send(ctx, "response.created", json!({"response": created}));
        self.send_rate_limits(ctx);
        if ctx.faults.trigger(FaultKind::RefusedAfterQueue) {
            let ending = if self.server == RealtimeServer::Openai { Ending::NoQuota } else { Ending::Failed };
            return self.finish_response(response, ending, ctx);
        }
        if self.server == RealtimeServer::VllmOmni {
            self.begin_message(&mut response, ctx);
        }
        self.responses.push(response);
    }

    fn check_new_response(&self, is_in_conversation: bool) -> Result<(), Rejected> {
        if self.config.is_transcription() {
            let words = "Cannot create a response in a transcription session.";
            return Err(Rejected::new("invalid_parameter", words));
        }
        let active = self.responses.iter().find(|response| response.is_in_conversation);
        match (self.server, active) {
            (RealtimeServer::VllmOmni, _) if !is_in_conversation => {
                Err(Rejected::new("invalid_request_error", "Out-of-band responses are not supported"))
            }
            (RealtimeServer::Openai, Some(active)) if is_in_conversation => {
                let words = format!(
                    "Conversation already has an active response in progress: {}. Wait until the response is finished \
                     before creating a new one.",
                    active.id
                );
                Err(Rejected::new("conversation_already_has_active_response", words))
            }
            _ => Ok(()),
        }
    }
}
