//! Items of a conversation, in order.

use serde_json::{Value, json};

use super::{schema::wrong_word, wire::Rejected};
use crate::{
    RealtimeServer,
    audio::{pcm, wav},
    picture::check_picture,
    python,
};

/// Rates of the wire and of the model's input.
pub(super) const WIRE_RATE_HZ: u32 = 24_000;
const MODEL_RATE_HZ: u32 = 16_000;

/// An item, as the server shows it, and its audio.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) id: String,
    /// Without the user's audio.
    pub(super) wire: Value,
    /// The user's audio, float32 at 16 kHz.
    pub(super) audio: Vec<f32>,
    /// Length of the assistant's audio; `None` while the assistant speaks.
    pub(super) spoken_ms: Option<u64>,
}

impl Item {
    /// A message of the user made of audio at 24 kHz.
    pub(super) fn heard(id: String, samples: &[i16]) -> Self {
        let content = json!([{"type": "input_audio", "transcript": null}]);
        let wire = message(&id, "user", "completed", &content);
        Self { id, wire, audio: to_model_rate(samples), spoken_ms: None }
    }

    /// An item that a client gave, which was checked.
    pub(super) fn given(
        mut wire: Value,
        id: String,
        server: RealtimeServer,
        path: &str,
    ) -> Result<Self, Rejected> {
        let mut audio = Vec::new();
        if let Some(Value::Array(parts)) = wire.get_mut("content") {
            for (at, part) in parts.iter_mut().enumerate() {
                let path = format!("{path}.content[{at}]");
                check_speaker(part, server, &path)?;
                if let Some(base64) = part.get("audio").and_then(Value::as_str) {
                    let samples = decode_pcm16(base64, server)
                        .map_err(|rejected| rejected.at(format!("{path}.audio")))?;
                    audio.append(&mut to_model_rate(&samples));
                    // The audio is kept, but not shown.
                    part["transcript"] = part.get("transcript").cloned().unwrap_or_default();
                    part.as_object_mut().map(|part| part.remove("audio"));
                }
                if let Some(url) = part.get("image_url").and_then(Value::as_str) {
                    check_image(url).map_err(|rejected| rejected.at(format!("{path}.image_url")))?;
                }
            }
        }
        wire["id"] = id.as_str().into();
        wire["object"] = "realtime.item".into();
        wire["status"] = wire.get("status").cloned().unwrap_or_else(|| "completed".into());
        Ok(Self { id, wire, audio, spoken_ms: Some(0) })
    }

    /// A message of the assistant.
    pub(super) fn spoken(id: String, status: &str, content: &Value, spoken_ms: Option<u64>) -> Self {
        let wire = message(&id, "assistant", status, content);
        Self { id, wire, audio: Vec::new(), spoken_ms }
    }

    /// A call of a function.
    pub(super) fn call(id: String, status: &str, call_id: &str, name: &str, arguments: &str) -> Self {
        let wire = json!({
            "id": id, "object": "realtime.item", "type": "function_call", "status": status,
            "call_id": call_id, "name": name, "arguments": arguments,
        });
        Self { id, wire, audio: Vec::new(), spoken_ms: None }
    }

    pub(super) fn is_of(&self, kind: &str) -> bool {
        self.wire["type"] == kind
    }

    pub(super) fn has_role(&self, role: &str) -> bool {
        self.wire["role"] == role
    }

    /// Text of the item's parts.
    pub(super) fn text(&self) -> String {
        let parts = self.wire["content"].as_array().into_iter().flatten();
        let texts = parts.filter_map(|part| part["text"].as_str()).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// The conversation of a session.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    items: Vec<Item>,
}

impl Conversation {
    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(super) fn find(&self, id: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    pub(super) fn find_mut(&mut self, id: &str) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| item.id == id)
    }

    /// Id of the last item.
    pub(super) fn last_id(&self) -> Option<String> {
        self.items.last().map(|item| item.id.clone())
    }

    /// Inserts an item after another, at the front (`root`), or at the end. Returns the id of the one before it.
    pub(super) fn insert(
        &mut self,
        item: Item,
        previous: Option<&str>,
        server: RealtimeServer,
    ) -> Result<Option<String>, Rejected> {
        if self.find(&item.id).is_some() {
            return Err(match server {
                RealtimeServer::Openai => {
                    let words = format!("Error adding item: the item with id '{}' already exists.", item.id);
                    Rejected::new("item_create_duplicate_item_id", words).at("item.id")
                }
                RealtimeServer::VllmOmni => {
                    Rejected::new("invalid_request_error", format!("Item '{}' already exists", item.id))
                }
            });
        }
        let at = match previous {
            None => self.items.len(),
            Some("root") => 0,
            Some(id) => {
                let found = self.items.iter().position(|known| known.id == id);
                1 + found.ok_or_else(|| match server {
                    RealtimeServer::Openai => {
                        let words =
                            format!("Error adding item: the previous item with id '{id}' does not exist.");
                        Rejected::new("item_create_invalid_previous_item_id", words).at("previous_item_id")
                    }
                    RealtimeServer::VllmOmni => {
                        Rejected::new("invalid_request_error", format!("previous_item_id '{id}' not found"))
                    }
                })?
            }
        };
        self.items.insert(at, item);
        Ok(at.checked_sub(1).map(|before| self.items[before].id.clone()))
    }

    pub(super) fn push(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Removes an item; false if there is none with this id.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let count = self.items.len();
        self.items.retain(|item| item.id != id);
        self.items.len() < count
    }
}

fn message(id: &str, role: &str, status: &str, content: &Value) -> Value {
    json!({
        "id": id, "object": "realtime.item", "type": "message", "status": status, "role": role,
        "content": content,
    })
}

/// Decodes audio of a client.
pub(super) fn decode_pcm16(base64: &str, server: RealtimeServer) -> Result<Vec<i16>, Rejected> {
    let is_strict = base64.len().is_multiple_of(4);
    let bytes = python::decode_base64(base64).ok().filter(|_| is_strict);
    let bytes = match (server, bytes) {
        (_, Some(bytes)) if bytes.len().is_multiple_of(2) => bytes,
        (RealtimeServer::VllmOmni, Some(_)) => {
            let words = "PCM audio data must contain complete 16-bit samples";
            return Err(Rejected::new("invalid_request_error", words));
        }
        (RealtimeServer::VllmOmni, None) => {
            return Err(Rejected::new("invalid_request_error", "Invalid base64 audio data"));
        }
        (RealtimeServer::Openai, _) => {
            let words = "Invalid 'audio'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) but got invalid bytes.";
            return Err(Rejected::new("invalid_value", words).at("audio"));
        }
    };
    Ok(pcm::s16le_samples(&bytes))
}

fn to_model_rate(samples: &[i16]) -> Vec<f32> {
    let samples: Vec<f32> = samples.iter().map(|sample| pcm::to_f32(*sample)).collect();
    // Both rates are supported.
    wav::resample_all(&samples, WIRE_RATE_HZ, MODEL_RATE_HZ).unwrap_or_default()
}

/// Refuses audio of the assistant.
fn check_speaker(part: &Value, server: RealtimeServer, path: &str) -> Result<(), Rejected> {
    if part["type"] != "output_audio" {
        return Ok(());
    }
    match server {
        RealtimeServer::Openai => Err(wrong_word("output_audio", &["output_text"], &format!("{path}.type"))),
        RealtimeServer::VllmOmni if part["audio"].as_str().is_some_and(|audio| !audio.is_empty()) => {
            let words = "Client-provided assistant audio is not supported";
            Err(Rejected::new("invalid_request_error", words))
        }
        RealtimeServer::VllmOmni => Ok(()),
    }
}

/// Checks a picture in a data URL.
fn check_image(url: &str) -> Result<(), Rejected> {
    let base64 = url.strip_prefix("data:image/").and_then(|rest| rest.split_once(";base64,"));
    let bytes = base64.and_then(|(_, base64)| python::decode_base64(base64).ok());
    let picture = bytes
        .ok_or("expected a base64-encoded data URL with an image MIME type")
        .and_then(|bytes| check_picture(&bytes).map_err(|_| "the bytes are no valid image"));
    picture.map_err(|words| Rejected::new("invalid_value", format!("Invalid 'image_url': {words}.")))
}
