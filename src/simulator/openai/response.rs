//! A response and how it is shown: its content, its end and its usage.

use std::time::Instant;

use serde_json::{Value, json};

use super::{OpenaiSession, config::ResponseConfig, conversation::WIRE_RATE_HZ};
use crate::{RealtimeServer, chat::ChatRequest, generate::Generation, script, session_context::SimContext};

/// Tokens per second of the model's speech.
const SPEECH_TOKENS_PER_SECOND: usize = 20;

/// A response in progress.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) id: String,
    /// False out of band.
    pub(super) is_in_conversation: bool,
    pub(super) config: ResponseConfig,
    pub(super) generation: Generation,
    prompt_tokens: usize,
    /// Its message, once it has begun, and the item before it.
    pub(super) item_id: Option<String>,
    pub(super) previous_id: Option<String>,
    pub(super) text: String,
    pub(super) samples: usize,
    /// Deltas come no earlier than this.
    pub(super) not_before: Option<Instant>,
}

/// How a response ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    Completed,
    /// Cancelled, for this reason.
    Cancelled(&'static str),
    /// The generator failed.
    Failed,
    /// The account has no quota.
    NoQuota,
}

impl Ending {
    pub(super) const fn status(self, is_cut: bool) -> &'static str {
        match self {
            Self::Completed if is_cut => "incomplete",
            Self::Completed => "completed",
            Self::Cancelled(_) => "cancelled",
            Self::Failed | Self::NoQuota => "failed",
        }
    }

    fn details(self, is_cut: bool) -> Value {
        match self {
            Self::Completed if is_cut => json!({"type": "incomplete", "reason": "max_output_tokens"}),
            Self::Completed => Value::Null,
            Self::Cancelled(reason) => json!({"type": "cancelled", "reason": reason}),
            Self::Failed => json!({"type": "failed", "error": {"type": "server_error", "code": null}}),
            Self::NoQuota => json!({"type": "failed", "error": {
                "type": "insufficient_quota", "code": "insufficient_quota",
                "message": "You exceeded your current quota, please check your plan and billing details.",
            }}),
        }
    }
}

impl Response {
    /// Asks the model.
    pub(super) fn new(
        id: String,
        is_in_conversation: bool,
        config: ResponseConfig,
        request: ChatRequest,
        ctx: &mut SimContext<'_>,
    ) -> Self {
        Self {
            prompt_tokens: request.prompt_tokens,
            generation: Generation::start(request, id.clone(), None, ctx),
            id,
            is_in_conversation,
            config,
            item_id: None,
            previous_id: None,
            text: String::new(),
            samples: 0,
            not_before: None,
        }
    }

    /// Instant of the next piece.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let step = self.generation.step_deadline()?;
        Some(self.not_before.map_or(step, |earliest| earliest.max(step)))
    }

    pub(super) const fn audio_ms(&self) -> u64 {
        self.samples as u64 * 1000 / WIRE_RATE_HZ as u64
    }

    /// The message's content.
    pub(super) fn content(&self) -> Value {
        if self.config.speaks() {
            json!([{"type": "output_audio", "transcript": self.text}])
        } else {
            json!([{"type": "output_text", "text": self.text}])
        }
    }

    /// Members of an event about the message's content.
    pub(super) fn part(&self, more: Value) -> Value {
        let mut members = json!({
            "response_id": self.id, "item_id": self.item_id, "output_index": 0, "content_index": 0,
        });
        if let (Value::Object(members), Value::Object(more)) = (&mut members, more) {
            members.extend(more);
        }
        members
    }

    fn usage(&self, server: RealtimeServer) -> Value {
        let call = self.generation.call();
        let call_tokens = call.map_or(0, |call| script::estimate_tokens(&(call.name + &call.arguments)));
        let text = script::estimate_tokens(&self.text) + call_tokens;
        let audio = self.samples * SPEECH_TOKENS_PER_SECOND / WIRE_RATE_HZ as usize;
        let (input, output) = (self.prompt_tokens, text + audio);
        let mut usage =
            json!({"total_tokens": input + output, "input_tokens": input, "output_tokens": output});
        if server == RealtimeServer::Openai {
            usage["input_token_details"] =
                json!({"text_tokens": input, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 0});
            usage["output_token_details"] = json!({"text_tokens": text, "audio_tokens": audio});
        }
        usage
    }
}

impl OpenaiSession {
    /// The response as `response.created` and `response.done` have it.
    pub(super) fn response_object(
        &self,
        response: &Response,
        status: &str,
        details: Value,
        output: Vec<Value>,
        usage: Value,
    ) -> Value {
        let config = &response.config;
        let mut object = json!({
            "id": response.id, "object": "realtime.response", "status": status, "status_details": details,
            "output": output, "conversation_id": response.is_in_conversation.then_some(&self.conversation_id),
            "output_modalities": config.modalities, "max_output_tokens": config.max_output_tokens,
            "metadata": config.metadata, "usage": usage,
        });
        if self.server == RealtimeServer::Openai {
            object["audio"] = json!({"output": {
                "format": config.output["format"], "voice": config.output["voice"],
            }});
        }
        object
    }

    /// Sends `response.done`.
    pub(super) fn send_done(
        &self,
        response: &Response,
        ending: Ending,
        output: Vec<Value>,
        ctx: &mut SimContext<'_>,
    ) {
        let is_cut = response.generation.is_cut();
        let usage = match (ending, self.server) {
            (Ending::Failed | Ending::NoQuota, RealtimeServer::VllmOmni) => Value::Null,
            _ => response.usage(self.server),
        };
        let (status, details) = (ending.status(is_cut), ending.details(is_cut));
        let object = self.response_object(response, status, details, output, usage);
        self.server.send(ctx, "response.done", json!({"response": object}));
        self.send_rate_limits(ctx);
    }

    /// OpenAI reports the limits when tokens of a response are reserved, and when they are counted.
    pub(super) fn send_rate_limits(&self, ctx: &mut SimContext<'_>) {
        if self.server == RealtimeServer::Openai {
            let limits = json!([
                {"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 60.0},
                {"name": "tokens", "limit": 50_000, "remaining": 49_950, "reset_seconds": 60.0},
            ]);
            self.server.send(ctx, "rate_limits.updated", json!({"rate_limits": limits}));
        }
    }
}
