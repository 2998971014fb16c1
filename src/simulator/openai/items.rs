//! Items as clients give, read, shorten and delete them.

use serde_json::{Map, Value, json};

use super::{OpenaiSession, conversation::Item, wire::Rejected};
use crate::{RealtimeServer, session_context::SimContext};

impl OpenaiSession {
    pub(super) fn create_item(
        &mut self,
        members: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        if self.config.is_transcription() {
            let words = "Cannot create an item in a transcription session.";
            return Err(Rejected::new("invalid_parameter", words));
        }
        let given = members["item"].clone();
        if given["type"] == "item_reference" {
            let words = "Invalid value: 'item_reference'. Items of a conversation are no references.";
            return Err(Rejected::new("invalid_value", words).at("item.type"));
        }
        let echoed = given.clone();
        let item = self.read_item(given, "item", ctx)?;
        self.check_call_of(&item)?;
        let previous = members.get("previous_item_id").and_then(Value::as_str);
        let mut wire = item.wire.clone();
        let previous = self.conversation.insert(item, previous, self.server)?;
        if self.server == RealtimeServer::VllmOmni && wire.get("content").is_some() {
            // The package returns the audio that it was given.
            wire["content"] = echoed["content"].clone();
        }
        self.announce_item(&wire, previous.as_deref(), ctx);
        Ok(())
    }

    /// Says that an item is in the conversation.
    pub(super) fn announce_item(&self, wire: &Value, previous: Option<&str>, ctx: &mut SimContext<'_>) {
        for name in ["conversation.item.added", "conversation.item.done"] {
            let members = json!({"previous_item_id": previous, "item": wire});
            self.server.send(ctx, name, members);
        }
    }

    fn read_item(&self, given: Value, path: &str, ctx: &mut SimContext<'_>) -> Result<Item, Rejected> {
        let id = given["id"].as_str().map(str::to_owned);
        let id = id.unwrap_or_else(|| self.server.new_id("item", ctx.rng));
        Item::given(given, id, self.server, path)
    }

    /// OpenAI takes a result only for a call that it knows.
    fn check_call_of(&self, item: &Item) -> Result<(), Rejected> {
        if self.server == RealtimeServer::VllmOmni || !item.is_of("function_call_output") {
            return Ok(());
        }
        let call_id = &item.wire["call_id"];
        let mut calls = self.conversation.items().iter().filter(|item| item.is_of("function_call"));
        if calls.any(|call| call.wire["call_id"] == *call_id) {
            return Ok(());
        }
        let words =
            format!("Tool call ID '{}' not found in conversation.", call_id.as_str().unwrap_or_default());
        Err(Rejected::new("invalid_tool_call_id", words))
    }

    /// Items of a response's own input. A reference stands for an item of the conversation.
    pub(super) fn resolve_items(
        &self,
        given: &[Value],
        ctx: &mut SimContext<'_>,
    ) -> Result<Vec<Item>, Rejected> {
        let resolve = |(at, given): (usize, &Value)| {
            if given["type"] != "item_reference" {
                return self.read_item(given.clone(), &format!("response.input[{at}]"), ctx);
            }
            let id = given["id"].as_str().unwrap_or_default();
            self.conversation.find(id).cloned().ok_or_else(|| match self.server {
                RealtimeServer::Openai => {
                    let words = format!("Item with item_id not found: {id}");
                    Rejected::new("invalid_value", words).at(format!("response.input[{at}].id"))
                }
                RealtimeServer::VllmOmni => {
                    Rejected::new("invalid_request_error", format!("Item '{id}' not found"))
                }
            })
        };
        given.iter().enumerate().map(resolve).collect()
    }

    pub(super) fn delete_item(
        &mut self,
        members: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let id = members["item_id"].as_str().unwrap_or_default();
        if !self.conversation.remove(id) {
            return Err(self.no_such_item("delet", "delete", id));
        }
        self.server.send(ctx, "conversation.item.deleted", json!({"item_id": id}));
        Ok(())
    }

    pub(super) fn retrieve_item(
        &self,
        members: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let id = members["item_id"].as_str().unwrap_or_default();
        let Some(item) = self.conversation.find(id) else {
            return Err(self.no_such_item("retriev", "retrieve", id));
        };
        self.server.send(ctx, "conversation.item.retrieved", json!({"item": item.wire}));
        Ok(())
    }

    pub(super) fn truncate_item(
        &mut self,
        members: &Map<String, Value>,
        ctx: &mut SimContext<'_>,
    ) -> Result<(), Rejected> {
        let id = members["item_id"].as_str().unwrap_or_default();
        let end_ms = members["audio_end_ms"].as_u64().unwrap_or_default();
        let index = members["content_index"].as_u64().unwrap_or_default();
        let Some(item) = self.conversation.find(id) else {
            return Err(self.no_such_item("truncat", "truncate", id));
        };
        if !item.has_role("assistant") {
            return Err(self.not_truncated("Only model output audio messages can be truncated."));
        }
        // The package truncates a message that goes on once it has ended; the simulator cuts what is there.
        let in_progress = self.responses.iter().find(|response| response.item_id.as_deref() == Some(id));
        let spoken_ms =
            in_progress.map_or(item.spoken_ms.unwrap_or_default(), |response| response.audio_ms());
        if end_ms > spoken_ms {
            let words = match self.server {
                RealtimeServer::Openai => {
                    format!("Audio content of {spoken_ms}ms is already shorter than {end_ms}ms")
                }
                RealtimeServer::VllmOmni => {
                    format!("audio_end_ms ({end_ms}) is greater than the actual audio duration")
                }
            };
            return Err(self.not_truncated(&words));
        }
        if in_progress.is_none()
            && index >= item.wire["content"].as_array().map_or(0, |parts| parts.len() as u64)
        {
            let words = format!("content_index {index} is out of range for item '{id}'");
            return Err(self.not_truncated(&words));
        }
        let kept = self.server == RealtimeServer::VllmOmni;
        if let Some(item) = self.conversation.find_mut(id).filter(|_| in_progress.is_none()) {
            item.spoken_ms = Some(end_ms);
            let heard = shorten(&item.wire["content"][0]["transcript"], end_ms, spoken_ms).filter(|_| kept);
            item.wire["content"][0]["transcript"] = heard.unwrap_or_default().into();
        }
        let members = json!({"item_id": id, "content_index": index, "audio_end_ms": end_ms});
        self.server.send(ctx, "conversation.item.truncated", members);
        Ok(())
    }

    fn not_truncated(&self, words: &str) -> Rejected {
        let code =
            if self.server == RealtimeServer::Openai { "invalid_value" } else { "invalid_request_error" };
        Rejected::new(code, words)
    }

    fn no_such_item(&self, doing: &str, verb: &str, id: &str) -> Rejected {
        match self.server {
            RealtimeServer::Openai => {
                let words = format!("Error {doing}ing item: the item with id '{id}' does not exist.");
                let code = match verb {
                    "delete" => "item_delete_invalid_item_id",
                    "retrieve" => "item_retrieve_invalid_item_id",
                    _ => "item_truncate_invalid_item_id",
                };
                Rejected::new(code, words).at("item_id")
            }
            RealtimeServer::VllmOmni => {
                Rejected::new("invalid_request_error", format!("Item '{id}' not found"))
            }
        }
    }
}

/// The words of the audio up to an instant, as the package estimates them.
fn shorten(transcript: &Value, end_ms: u64, spoken_ms: u64) -> Option<String> {
    let text = transcript.as_str()?;
    let chars = text.chars().count() as u64 * end_ms / spoken_ms.max(1);
    Some(text.chars().take(chars as usize).collect())
}
