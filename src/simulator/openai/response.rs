//! A response: how it begins, its deltas, and how it ends.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::{
    OpenaiSession,
    config::ResponseConfig,
    conversation::{Item, WIRE_RATE_HZ},
    prompt,
    wire::Rejected,
};
use crate::{
    audio::pcm,
    simulator::{
        FaultKind, RealtimeServer,
        generate::{AnswerPiece, Generation},
        script,
        session_context::{SimContext, SimSessionEnd},
    },
};

/// Samples of one delta of OpenAI, 200 ms. The package sends what its model gives.
const DELTA_SAMPLES: usize = 4_800;

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
    pub(super) prompt_tokens: usize,
    /// Its message, once it has begun, and the item before it.
    pub(super) item_id: Option<String>,
    pub(super) previous_id: Option<String>,
    pub(super) text: String,
    pub(super) samples: usize,
    /// Deltas come no earlier than this.
    not_before: Option<Instant>,
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
        let text = script::estimate_tokens(&self.text);
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
        let mut response = Response {
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
        };
        let created = self.response_object(&response, "in_progress", Value::Null, Vec::new(), Value::Null);
        self.server.send(ctx, "response.created", json!({"response": created}));
        self.send_rate_limits(ctx);
        if ctx.faults.trigger(FaultKind::RefusedAfterQueue) {
            let ending = if self.server == RealtimeServer::Openai { Ending::NoQuota } else { Ending::Failed };
            self.finish_response(response, ending, ctx);
            return Ok(());
        }
        if self.server == RealtimeServer::VllmOmni {
            self.begin_message(&mut response, ctx);
        }
        self.responses.push(response);
        Ok(())
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

    /// Sends the next piece of a response.
    pub(super) fn run_response(&mut self, at: usize, ctx: &mut SimContext<'_>) -> Result<(), SimSessionEnd> {
        let mut response = self.responses.remove(at);
        match response.generation.next_piece() {
            Some(AnswerPiece::Text(text)) => self.push_text(&mut response, &text, ctx),
            Some(AnswerPiece::Audio(samples)) => self.push_audio(&mut response, &samples, ctx),
            Some(AnswerPiece::Done) | None => {
                self.finish_response(response, Ending::Completed, ctx);
                return Ok(());
            }
            Some(AnswerPiece::Crash(_)) => {
                self.finish_response(response, Ending::Failed, ctx);
                return Ok(());
            }
            Some(AnswerPiece::Abort) => return Err(SimSessionEnd::Aborted),
        }
        let slower: Option<Duration> = ctx.faults.trigger_with(|kind| match kind {
            FaultKind::SlowSteps(by) => Some(by),
            _ => None,
        });
        response.not_before = slower.map(|by| ctx.now + by);
        self.responses.insert(at, response);
        Ok(())
    }

    fn push_text(&mut self, response: &mut Response, text: &str, ctx: &mut SimContext<'_>) {
        // A call is sent as such at the end.
        if response.generation.call().is_some() {
            return;
        }
        self.begin_message(response, ctx);
        response.text.push_str(text);
        let name = if response.config.speaks() { "output_audio_transcript" } else { "output_text" };
        let members = response.part(json!({"delta": text}));
        self.server.send(ctx, &format!("response.{name}.delta"), members);
    }

    fn push_audio(&mut self, response: &mut Response, samples: &[f32], ctx: &mut SimContext<'_>) {
        self.begin_message(response, ctx);
        response.samples += samples.len();
        let length = if self.server == RealtimeServer::Openai { DELTA_SAMPLES } else { samples.len().max(1) };
        for samples in samples.chunks(length) {
            let (mut bytes, mut base64) = (Vec::new(), String::new());
            pcm::encode_s16le(samples, &mut bytes);
            pcm::encode_base64(&bytes, &mut base64);
            let members = response.part(json!({"delta": base64}));
            self.server.send(ctx, "response.output_audio.delta", members);
        }
    }

    /// Begins the message of a response, which has none yet.
    fn begin_message(&mut self, response: &mut Response, ctx: &mut SimContext<'_>) {
        if response.item_id.is_some() {
            return;
        }
        let id = self.server.new_id("item", ctx.rng);
        let item = Item::spoken(id.clone(), "in_progress", &json!([]), None);
        response.previous_id = self.conversation.last_id();
        response.item_id = Some(id);
        let (wire, previous) = (item.wire.clone(), response.previous_id.clone());
        if response.is_in_conversation {
            self.conversation.push(item);
        }
        let members = json!({"response_id": response.id, "output_index": 0, "item": wire});
        self.server.send(ctx, "response.output_item.added", members);
        let kind = if response.config.speaks() { "audio" } else { "text" };
        let part = match self.server {
            RealtimeServer::Openai => {
                if response.is_in_conversation {
                    let members = json!({"previous_item_id": previous, "item": wire});
                    self.server.send(ctx, "conversation.item.added", members);
                }
                json!({"type": kind, if kind == "audio" { "transcript" } else { "text" }: ""})
            }
            RealtimeServer::VllmOmni => json!({"type": kind, "text": "", "audio": "", "transcript": ""}),
        };
        let members = response.part(json!({"part": part}));
        self.server.send(ctx, "response.content_part.added", members);
    }

    /// Cancels the response in the conversation, if there is one.
    pub(super) fn cancel_conversation(&mut self, reason: &'static str, ctx: &mut SimContext<'_>) {
        if let Some(at) = self.responses.iter().position(|response| response.is_in_conversation) {
            self.cancel_response(at, reason, ctx);
        }
    }

    pub(super) fn cancel_response(&mut self, at: usize, reason: &'static str, ctx: &mut SimContext<'_>) {
        let mut response = self.responses.remove(at);
        let is_late = ctx.faults.trigger(FaultKind::LateAudio);
        let late = std::iter::from_fn(|| response.generation.next_piece().filter(|_| is_late))
            .find_map(|piece| if let AnswerPiece::Audio(samples) = piece { Some(samples) } else { None });
        let reason = if self.server == RealtimeServer::Openai { reason } else { "client_cancelled" };
        let of_late = late.as_ref().map(|_| response.part(json!({})));
        self.finish_response(response, Ending::Cancelled(reason), ctx);
        if let (Some(samples), Some(mut members)) = (late, of_late) {
            let (mut bytes, mut base64) = (Vec::new(), String::new());
            pcm::encode_s16le(&samples, &mut bytes);
            pcm::encode_base64(&bytes, &mut base64);
            members["delta"] = base64.into();
            self.server.send(ctx, "response.output_audio.delta", members);
        }
    }

    /// The response as `response.created` and `response.done` have it.
    fn response_object(
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
        &mut self,
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
    fn send_rate_limits(&self, ctx: &mut SimContext<'_>) {
        if self.server == RealtimeServer::Openai {
            let limits = json!([
                {"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 60.0},
                {"name": "tokens", "limit": 50_000, "remaining": 49_950, "reset_seconds": 60.0},
            ]);
            self.server.send(ctx, "rate_limits.updated", json!({"rate_limits": limits}));
        }
    }
}
