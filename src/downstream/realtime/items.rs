//! Items of the conversation, as the client knows them. The session has the words and pictures; here are ids and order.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{format::AudioFormat, given, missing, wrong_type, wrong_value};
use crate::{
    audio::input_converter::InputConverter,
    error::{Error, ErrorKind},
    event::{EntryId, EntryPart, Role, heard_words},
};

/// Most items. Beyond it, the oldest are forgotten; the session's history is shorter.
const ITEMS_MAX: usize = 1000;
/// Longest item without its audio and pictures, bytes: many times the model's context.
const ITEM_MAX_BYTES: usize = 256 * 1024;
/// All items together, bytes. Beyond it, the oldest are forgotten.
const STORE_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Longest audio of an item, samples at 16 kHz: MiniCPM-o takes 30 s at a time.
const AUDIO_MAX_SAMPLES: usize = 30 * 16_000;
/// First bytes of the picture formats that MiniCPM-o's back-ends read.
const PICTURE_MAGIC: [&[u8]; 2] = [&[0xff, 0xd8, 0xff], &[0x89, b'P', b'N', b'G']];

/// An item.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) number: EntryId,
    fields: Map<String, Value>,
    /// Length of an answer's audio, ms.
    pub(super) audio_ms: u64,
    /// Length of its JSON when it was added.
    bytes: usize,
}

/// Items, oldest first.
#[derive(Debug)]
pub(super) struct ItemStore {
    list: Vec<Item>,
    next_added: EntryId,
}

impl Default for ItemStore {
    fn default() -> Self {
        Self { list: Vec::new(), next_added: EntryId::FIRST_ADDED }
    }
}

impl Item {
    /// An utterance. Its transcript is null until it is known: one client ends without the key.
    pub(super) fn utterance(id: String, number: EntryId) -> Self {
        Self::message(id, number, "completed", "user", json!([{ "type": "input_audio", "transcript": null }]))
    }

    pub(super) fn message(id: String, number: EntryId, status: &str, role: &str, content: Value) -> Self {
        let fields = json!({
            "id": id, "object": "realtime.item", "type": "message", "status": status, "role": role,
            "content": content,
        });
        Self { id, number, fields: fields.as_object().cloned().unwrap_or_default(), audio_ms: 0, bytes: 0 }
    }

    pub(super) fn json(&self) -> Value {
        Value::Object(self.fields.clone())
    }

    /// The pictures in it, as URLs.
    fn pictures_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let content = self.fields.get_mut("content").and_then(Value::as_array_mut);
        content.into_iter().flatten().filter_map(|part| part.get_mut("image_url"))
    }

    /// Forgets its pictures, which the session has.
    pub(super) fn forget_pictures(&mut self) {
        self.pictures_mut().for_each(|url| *url = Value::Null);
    }

    fn transcript_mut(&mut self) -> Option<&mut Value> {
        let part = self.fields.get_mut("content")?.get_mut(0)?.as_object_mut()?;
        if part.contains_key("transcript") { part.get_mut("transcript") } else { part.get_mut("text") }
    }

    /// Cuts the words to what was heard of the audio.
    pub(super) fn truncate(&mut self, heard_ms: u64) {
        let total_ms = self.audio_ms;
        if let Some(Value::String(text)) = self.transcript_mut() {
            *text = heard_words(text, heard_ms, total_ms).to_owned();
        }
        self.audio_ms = total_ms.min(heard_ms);
    }
}

impl ItemStore {
    /// Number for an item that the client adds.
    pub(super) const fn allocate(&mut self) -> EntryId {
        let number = self.next_added;
        self.next_added.0 = number.0.wrapping_add(1);
        number
    }

    pub(super) fn last_id(&self) -> Option<String> {
        self.list.last().map(|item| item.id.clone())
    }

    pub(super) fn add(&mut self, item: Item) {
        self.insert(self.list.len(), item);
    }

    /// Adds an item in front of the one at this index.
    pub(super) fn insert(&mut self, at: usize, item: Item) {
        self.list.insert(at, item);
        let mut bytes = 0;
        let newest = self.list.iter().rev();
        let kept = newest.take_while(|item| {
            bytes += item.bytes;
            bytes <= STORE_MAX_BYTES
        });
        let excess = self.list.len() - kept.count().min(ITEMS_MAX);
        self.list.drain(..excess);
    }

    pub(super) fn replace(&mut self, item: Item) {
        if let Some(known) = self.list.iter_mut().find(|known| known.number == item.number) {
            *known = item;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Index of the item with this id.
    pub(super) fn position(&self, id: &str) -> Option<usize> {
        self.list.iter().position(|item| item.id == id)
    }

    pub(super) fn at(&self, at: usize) -> Option<&Item> {
        self.list.get(at)
    }

    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut Item> {
        self.list.get_mut(at)
    }

    pub(super) fn remove(&mut self, at: usize) -> Item {
        self.list.remove(at)
    }

    /// The item with this number, and the id of the one before it.
    pub(super) fn find(&self, number: EntryId) -> Option<(Option<&str>, &Item)> {
        let at = self.list.iter().rposition(|item| item.number == number)?;
        let previous = at.checked_sub(1).and_then(|before| self.list.get(before));
        Some((previous.map(|item| item.id.as_str()), &self.list[at]))
    }

    /// Sets the words of an utterance.
    pub(super) fn set_words(&mut self, number: EntryId, text: &str) {
        let item = self.list.iter_mut().rfind(|item| item.number == number);
        if let Some(words) = item.and_then(Item::transcript_mut) {
            *words = text.into();
        }
    }
}

/// An item that the client adds, and its contents for the model.
#[derive(Debug)]
pub(super) struct AddedItem {
    pub(super) item: Item,
    pub(super) role: Role,
    /// Empty for items that the model cannot use, such as the results of tools.
    pub(super) parts: Vec<EntryPart>,
}

/// Reads an item. Audio is kept for the model only.
pub(super) fn read_item(
    fields: &Map<String, Value>,
    id: String,
    number: EntryId,
    format: AudioFormat,
) -> Result<AddedItem, Error> {
    let mut fields = fields.clone();
    fields.insert("id".to_owned(), id.as_str().into());
    fields.insert("object".to_owned(), "realtime.item".into());
    fields.insert("status".to_owned(), "completed".into());
    let kind = match fields.get("type") {
        None => "message".to_owned(),
        Some(Value::String(kind)) => kind.clone(),
        Some(other) => return Err(wrong_type("item.type", "a string", other)),
    };
    fields.insert("type".to_owned(), kind.as_str().into());
    if kind != "message" {
        let item = added_item(fields, id, number)?;
        return Ok(AddedItem { item, role: Role::User, parts: Vec::new() });
    }
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system" | "developer") => Role::System,
        _ => return Err(wrong_value("item.role", "'user', 'assistant' or 'system'")),
    };
    let mut parts = Vec::new();
    match fields.get_mut("content") {
        Some(Value::Array(content)) => {
            for (at, part) in content.iter_mut().enumerate() {
                parts.extend(read_part(part, &format!("item.content[{at}]"), format)?);
            }
        }
        None => return Err(missing("item.content")),
        Some(other) => return Err(wrong_type("item.content", "an array", other)),
    }
    Ok(AddedItem { item: added_item(fields, id, number)?, role, parts })
}

/// An item that the client adds, if it is not too long.
fn added_item(fields: Map<String, Value>, id: String, number: EntryId) -> Result<Item, Error> {
    let mut item = Item { id, number, fields, audio_ms: 0, bytes: 0 };
    let pictures: usize = item.pictures_mut().map(|url| url.as_str().map_or(0, str::len)).sum();
    item.bytes = item.json().to_string().len().saturating_sub(pictures);
    match item.bytes <= ITEM_MAX_BYTES {
        true => Ok(item),
        false => {
            Err(wrong_value("item", &format!("at most {ITEM_MAX_BYTES} bytes beside audio and pictures")))
        }
    }
}

/// Reads a part of an item, and takes its audio out.
fn read_part(part: &mut Value, path: &str, format: AudioFormat) -> Result<Option<EntryPart>, Error> {
    let Some(fields) = part.as_object_mut() else { return Err(wrong_type(path, "an object", part)) };
    let text = |key: &str| -> Result<Option<EntryPart>, Error> {
        match given(fields, key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(EntryPart::Text(text.clone()))),
            Some(other) => Err(wrong_type(&format!("{path}.{key}"), "a string", other)),
        }
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("input_text" | "output_text" | "text") => text("text"),
        Some("output_audio" | "audio") => text("transcript"),
        Some("input_audio") => {
            let words = text("transcript")?;
            let audio = fields.remove("audio");
            fields.entry("transcript").or_insert(Value::Null);
            match (words, audio) {
                (None, Some(audio)) => decode_audio(&audio, &format!("{path}.audio"), format),
                (words, _) => Ok(words),
            }
        }
        Some("input_image") => decode_picture(fields, path).map(Some),
        _ => Err(wrong_value(
            &format!("{path}.type"),
            "'input_text', 'input_audio', 'input_image', 'output_text' or 'output_audio'",
        )),
    }
}

fn decode_audio(audio: &Value, path: &str, format: AudioFormat) -> Result<Option<EntryPart>, Error> {
    let base64 = audio.as_str().ok_or_else(|| wrong_type(path, "a string", audio))?;
    let bytes = STANDARD.decode(base64).map_err(|error| wrong_value(path, &format!("base64 ({error})")))?;
    let converter = InputConverter::with_encoding(format.encoding, format.rate_hz, 1);
    let mut converter = converter.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
    let mut samples = Vec::new();
    converter.push(&bytes, &mut samples);
    converter.flush(&mut samples);
    samples.truncate(AUDIO_MAX_SAMPLES);
    Ok((!samples.is_empty()).then(|| EntryPart::Audio(samples.into())))
}

/// Decodes `image_url`, which holds the picture itself: voxbridge fetches nothing.
fn decode_picture(fields: &Map<String, Value>, path: &str) -> Result<EntryPart, Error> {
    let path = format!("{path}.image_url");
    let url = fields.get("image_url").and_then(Value::as_str).unwrap_or_default();
    let data = url.split_once(";base64,").filter(|_| url.starts_with("data:image/"));
    let (_, base64) =
        data.ok_or_else(|| wrong_value(&path, "a data URL with base64 (data:image/jpeg;base64,…)"))?;
    let bytes = STANDARD.decode(base64).map_err(|error| wrong_value(&path, &format!("base64 ({error})")))?;
    if !PICTURE_MAGIC.iter().any(|magic| bytes.starts_with(magic)) {
        return Err(wrong_value(&path, "a JPEG or PNG file"));
    }
    Ok(EntryPart::Picture(bytes.into()))
}
