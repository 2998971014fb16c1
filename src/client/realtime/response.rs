//! A response: what the client asked for, and what it has got so far.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    events::ExtraField,
    items::{Item, MessageContents, call_json},
    session::SessionConfig,
    tool_servers::{ServerCallItem, ServerTool},
};
use crate::{
    audio::pcm,
    client::json_text::write_field,
    vocabulary::{EntryId, TokenUsage, ToolCall},
};

/// Request of the client: `response.create`.
#[derive(Debug, Default)]
pub(super) struct RequestedResponse {
    /// Returned in the response: some clients find their own request by it.
    pub(super) metadata: Value,
    /// Whether it is spoken, in place of the session's setting.
    pub(super) speaks: Option<bool>,
    /// The answer does not become part of the conversation.
    pub(super) is_out_of_band: bool,
    pub(super) max_output_tokens: Option<Value>,
    /// Tools of servers that it offers, in place of the session's.
    pub(super) server_tools: Option<Arc<[ServerTool]>>,
    /// Memory of the request, bytes.
    pub(super) bytes: usize,
}

/// Call of a tool in a response.
#[derive(Debug, Clone)]
pub(super) struct ResponseCall {
    pub(super) item_id: String,
    pub(super) number: EntryId,
    pub(super) call: ToolCall,
    /// The tool, if it is of a server that the client names.
    pub(super) server_tool: Option<ServerTool>,
}

impl ResponseCall {
    /// The item of the call in a response that is over.
    fn json(&self) -> Value {
        match &self.server_tool {
            Some(tool) => ServerCallItem::new(&self.item_id, tool, &self.call.arguments).json(),
            None => call_json(&self.item_id, &self.call, "completed", &self.call.arguments),
        }
    }
}

/// A response.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) segment_id: u32,
    id: String,
    item_id: String,
    pub(super) speaks: bool,
    pub(super) is_remembered: bool,
    metadata: Value,
    max_output_tokens: Value,
    /// Tools of servers that it offers, in place of the session's.
    pub(super) server_tools: Option<Arc<[ServerTool]>>,
    /// The client knows its item.
    pub(super) has_item: bool,
    /// Words so far.
    pub(super) text: String,
    /// Bytes of the words that were sent.
    sent_bytes: usize,
    /// Words at its end, once they are known.
    pub(super) final_text: Option<String>,
    pub(super) has_audio: bool,
    /// Bytes of its audio that were sent.
    pub(super) sent_audio_bytes: u64,
    /// The client reports that it has played at most this much audio, ms.
    pub(super) played_max_ms: Option<u64>,
    /// Length of its audio at its end, ms: all that belongs to its words, heard or not.
    pub(super) audio_ms: u64,
    /// Calls of tools.
    pub(super) calls: Vec<ResponseCall>,
    /// Type, code and message of the error that ended it.
    pub(super) failure: Option<(&'static str, String, String)>,
    /// Tokens that it took.
    pub(super) usage: TokenUsage,
    /// The end of the answer is missing: the model stopped at the bound on the answer's length, or the rest was lost.
    pub(super) hit_limit: bool,
    status: &'static str,
    status_details: Value,
}

impl Response {
    pub(super) fn new(
        segment_id: u32,
        id: String,
        item_id: String,
        requested: RequestedResponse,
        session: &SessionConfig,
    ) -> Self {
        Self {
            segment_id,
            id,
            item_id,
            speaks: requested.speaks.unwrap_or_else(|| session.speaks()),
            is_remembered: !requested.is_out_of_band,
            metadata: requested.metadata,
            max_output_tokens: requested.max_output_tokens.unwrap_or_else(|| session.max_output_tokens()),
            server_tools: requested.server_tools,
            status: "in_progress",
            ..Self::default()
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Where its output belongs.
    pub(super) fn position(&self) -> Value {
        json!({ "response_id": self.id, "item_id": self.item_id, "output_index": 0, "content_index": 0 })
    }

    /// Where the output of one of its calls belongs.
    pub(super) fn call_position(&self, at: usize) -> Value {
        let ResponseCall { item_id, call, .. } = &self.calls[at];
        let index = self.call_index(at);
        json!({ "response_id": self.id, "item_id": item_id, "output_index": index, "call_id": call.call_id })
    }

    /// Index of the item of one of its calls.
    pub(super) fn call_index(&self, at: usize) -> usize {
        usize::from(self.has_item) + at
    }

    /// Cuts the words where the audio was lost, behind those that the client has: the end of an item has the words of its deltas.
    /// An interrupted answer keeps its words, because the client reports how much it played.
    pub(super) fn cut_lost_words(&mut self) {
        if let Some(words) = self.final_text.take().filter(|words| self.text.starts_with(words.as_str())) {
            self.text.truncate(words.len().max(self.sent_bytes));
        }
    }

    pub(super) fn has_new_words(&self) -> bool {
        self.text.len() > self.sent_bytes
    }

    pub(super) fn take_new_words(&mut self) -> &str {
        let sent = std::mem::replace(&mut self.sent_bytes, self.text.len());
        &self.text[sent..]
    }

    /// A message with audio, and perhaps with another field. Written by hand, because it is most of what a client gets.
    pub(super) fn audio_delta(
        &self,
        name: &str,
        event_id: &str,
        bytes: &[u8],
        label: Option<ExtraField>,
    ) -> String {
        let mut json = String::with_capacity(256 + bytes.len().div_ceil(3) * 4);
        for piece in [
            r#"{"type":""#,
            name,
            r#"","event_id":""#,
            event_id,
            r#"","response_id":""#,
            &self.id,
            r#"","item_id":""#,
            &self.item_id,
            r#"","output_index":0,"content_index":0,"delta":""#,
        ] {
            json.push_str(piece);
        }
        pcm::encode_base64(bytes, &mut json);
        json.push('"');
        if let Some(label) = label {
            write_field(&mut json, label.key, &label.json);
        }
        json.push('}');
        json
    }

    /// The part of its item with all words so far.
    pub(super) fn part(&self) -> Value {
        self.part_with(&self.text)
    }

    /// The part of its item with these words: parts have other types than the content of items.
    pub(super) fn part_with(&self, words: &str) -> Value {
        match self.speaks {
            true => json!({ "type": "audio", "transcript": words }),
            false => json!({ "type": "text", "text": words }),
        }
    }

    /// Its item before its first word.
    pub(super) fn empty_item(&self) -> Item {
        let contents = MessageContents { status: "in_progress", role: "assistant", part: None };
        let mut item = Item::message(self.item_id.clone(), EntryId(self.segment_id), contents);
        item.is_spoken = self.speaks;
        item
    }

    /// Its item at its end.
    pub(super) fn item(&self, is_beta: bool) -> Item {
        let number = EntryId(self.segment_id);
        let mut item = Item::message(self.item_id.clone(), number, self.item_contents(is_beta));
        (item.audio_ms, item.is_spoken) = (self.audio_ms, self.speaks);
        item
    }

    fn item_contents(&self, is_beta: bool) -> MessageContents {
        let (kind, field) = match (self.speaks, is_beta) {
            (true, false) => ("output_audio", "transcript"),
            (true, true) => ("audio", "transcript"),
            (false, false) => ("output_text", "text"),
            (false, true) => ("text", "text"),
        };
        let has_part = !self.text.is_empty() || self.has_audio;
        MessageContents {
            status: if self.status == "completed" { "completed" } else { "incomplete" },
            role: "assistant",
            part: has_part.then(|| (kind, field, Some(self.text.clone()))),
        }
    }

    /// Sets how it ended.
    pub(super) fn set_status(&mut self, cancelled: bool, by_client: bool) {
        (self.status, self.status_details) = match &self.failure {
            Some((kind, code, message)) => {
                let error = json!({ "type": kind, "code": code, "message": message });
                ("failed", json!({ "type": "failed", "error": error }))
            }
            None if self.hit_limit => {
                ("incomplete", json!({ "type": "incomplete", "reason": "max_output_tokens" }))
            }
            None if cancelled => {
                let reason = if by_client { "client_cancelled" } else { "turn_detected" };
                ("cancelled", json!({ "type": "cancelled", "reason": reason }))
            }
            None => ("completed", Value::Null),
        };
    }

    /// The response, as the client gets it.
    pub(super) fn to_json(&self, session: &SessionConfig, is_beta: bool) -> Value {
        let is_over = self.status != "in_progress";
        let mut output = Vec::new();
        if is_over {
            output.extend(self.has_item.then(|| self.item_contents(is_beta).json(&self.item_id)));
            output.extend(self.calls.iter().map(ResponseCall::json));
        }
        let conversation = if self.is_remembered { json!("conv_voxbridge") } else { Value::Null };
        let modalities = if self.speaks { json!(["audio"]) } else { json!(["text"]) };
        let mut response = json!({
            "object": "realtime.response", "id": self.id, "status": self.status,
            "status_details": self.status_details, "output": output, "conversation_id": conversation,
            "usage": if is_over { usage_json(&self.usage) } else { Value::Null }, "metadata": self.metadata,
        });
        if is_beta {
            let modalities = if self.speaks { json!(["text", "audio"]) } else { modalities };
            response["modalities"] = modalities;
            response["voice"] = session.voice_name();
            response["output_audio_format"] = session.output.to_json(true);
            response["max_output_tokens"] = self.max_output_tokens.clone();
        } else {
            response["output_modalities"] = modalities;
            response["audio"] = json!({ "output": { "format": session.output.to_json(false), "voice": session.voice_name() } });
            response["max_output_tokens"] = self.max_output_tokens.clone();
        }
        response
    }
}

/// Tokens of a response. No server tells which part of the input was cached: it begins with the instructions, which are text.
fn usage_json(usage: &TokenUsage) -> Value {
    let (input, output) = (usage.input(), usage.output());
    json!({
        "total_tokens": input.saturating_add(output), "input_tokens": input, "output_tokens": output,
        "input_token_details": {
            "text_tokens": usage.input_text, "audio_tokens": usage.input_audio,
            "image_tokens": usage.input_images, "cached_tokens": usage.cached,
            "cached_tokens_details": { "text_tokens": usage.cached, "audio_tokens": 0, "image_tokens": 0 },
        },
        "output_token_details": { "text_tokens": usage.output_text, "audio_tokens": usage.output_audio },
    })
}
