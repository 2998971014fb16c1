//! Reads the items that a client adds: what the model gets of them, and the JSON that the client gets back.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    fields::{missing, read_array, read_object, read_text, wrong_type, wrong_value},
    format::AudioFormat,
    items::Item,
};
use crate::{
    audio::{input_converter::InputConverter, pcm},
    client::json_text::{Fields, quote, read_str, write_field},
    error::{Error, ErrorKind},
    picture::is_picture,
    vocabulary::{EntryId, EntryPart, Role, ToolCall, ToolResult},
};

/// Longest item without its audio and pictures, bytes: many times the model's context.
pub(super) const ITEM_MAX_BYTES: usize = 256 * 1024;
/// Most parts of an item: clients send one or two.
const PARTS_MAX: usize = 64;
/// Longest name of an item's type, bytes.
const TYPE_MAX_BYTES: usize = 64;
/// Longest id of a call, bytes.
const CALL_ID_MAX_BYTES: usize = 256;
/// Longest name of a tool, bytes.
const TOOL_NAME_MAX_BYTES: usize = 256;
/// Longest audio of an item, samples at 16 kHz: MiniCPM-o takes 30 s at a time.
const AUDIO_MAX_S: usize = 30;
/// Largest picture, bytes: more than a photo of a phone's camera.
const PICTURE_MAX_BYTES: usize = 8 * 1024 * 1024;

/// An item that the client adds, and its contents for the model.
#[derive(Debug)]
pub(super) struct AddedItem {
    /// The item without its pictures, which the session has.
    pub(super) item: Item,
    /// The item as JSON, with its pictures.
    pub(super) json: String,
    pub(super) role: Role,
    /// Empty for items that the model cannot use.
    pub(super) parts: Vec<EntryPart>,
}

impl AddedItem {
    /// An item without contents for the model.
    pub(super) fn empty(number: EntryId) -> Self {
        let item = Item::added(String::new(), number, String::new());
        Self { item, json: String::new(), role: Role::User, parts: Vec::new() }
    }
}

/// Reads the item at this path of a message. Audio is kept for the model only.
pub(super) fn read_item(
    fields: &Fields<'_>,
    path: &str,
    id: String,
    number: EntryId,
    format: AudioFormat,
) -> Result<AddedItem, Error> {
    let kind = match fields.get("type") {
        None => "message".to_owned(),
        Some(kind) => read_text(kind, &format!("{path}.type"), TYPE_MAX_BYTES)?,
    };
    let mut json = String::new();
    let own = [("id", id.as_str()), ("object", "realtime.item"), ("status", "completed"), ("type", &kind)];
    own.iter().for_each(|(key, words)| write_field(&mut json, key, &quote(words)));
    let is_message = kind == "message";
    for (key, value) in fields.iter() {
        if own.iter().all(|(name, _)| *name != key) && !(is_message && key == "content") {
            write_field(&mut json, key, value.get());
        }
    }
    let tool_part = read_tool_part(fields, &kind, path, number)?;
    if let (Some(EntryPart::Call(call)), None) = (&tool_part, fields.given("call_id")) {
        write_field(&mut json, "call_id", &quote(&call.call_id));
    }
    let mut content = Content { format, ..Content::default() };
    let mut role = Role::User;
    let mut kept = json.clone();
    if is_message {
        role = read_role(fields, path)?;
        content.read(fields, path)?;
        write_field(&mut json, "content", &format!("[{}]", content.json));
        write_field(&mut kept, "content", &format!("[{}]", content.kept_json));
    }
    json.push('}');
    kept.push('}');
    if kept.len() > ITEM_MAX_BYTES {
        return Err(wrong_value(path, &format!("at most {ITEM_MAX_BYTES} bytes beside audio and pictures")));
    }
    let mut item = Item::added(id, number, kept);
    if let Some(EntryPart::Call(call)) = &tool_part {
        (role, item.call_id) = (Role::Assistant, Some(call.call_id.clone()));
    }
    content.parts.extend(tool_part);
    Ok(AddedItem { item, json, role, parts: content.parts })
}

/// Reads a call of a tool or its result; `None` for another kind of item.
fn read_tool_part(
    fields: &Fields<'_>,
    kind: &str,
    path: &str,
    number: EntryId,
) -> Result<Option<EntryPart>, Error> {
    let text = |key: &str, max_bytes: usize| {
        let path = format!("{path}.{key}");
        read_text(fields.given(key).ok_or_else(|| missing(&path))?, &path, max_bytes)
    };
    Ok(Some(match kind {
        "function_call" => EntryPart::Call(ToolCall {
            call_id: match fields.given("call_id") {
                Some(_) => text("call_id", CALL_ID_MAX_BYTES)?,
                None => format!("call_{:x}", number.0),
            },
            name: text("name", TOOL_NAME_MAX_BYTES)?,
            arguments: text("arguments", ITEM_MAX_BYTES)?,
        }),
        "function_call_output" => EntryPart::Result(ToolResult {
            call_id: text("call_id", CALL_ID_MAX_BYTES)?,
            output: text("output", ITEM_MAX_BYTES)?,
        }),
        _ => return Ok(None),
    }))
}

fn read_role(fields: &Fields<'_>, path: &str) -> Result<Role, Error> {
    match fields.get("role").and_then(read_str).as_deref() {
        Some("user") => Ok(Role::User),
        Some("assistant") => Ok(Role::Assistant),
        Some("system" | "developer") => Ok(Role::System),
        _ => Err(wrong_value(&format!("{path}.role"), "'user', 'assistant' or 'system'")),
    }
}

/// `content` of a message while it is read.
#[derive(Debug, Default)]
struct Content {
    format: AudioFormat,
    parts: Vec<EntryPart>,
    /// Its elements as JSON, without audio; in the second, without pictures too.
    json: String,
    kept_json: String,
    audio_samples: usize,
}

impl Content {
    fn read(&mut self, fields: &Fields<'_>, path: &str) -> Result<(), Error> {
        let path = format!("{path}.content");
        let content = fields.get("content").ok_or_else(|| missing(&path))?;
        for (at, part) in read_array(content, &path, PARTS_MAX)?.into_iter().enumerate() {
            self.read_part(part, &format!("{path}[{at}]"))?;
        }
        Ok(())
    }

    fn read_part(&mut self, part: &RawValue, path: &str) -> Result<(), Error> {
        let fields = read_object(part, path)?;
        let text = |key: &str| -> Result<Option<EntryPart>, Error> {
            let value = fields.given(key);
            let read = value.map(|value| read_text(value, &format!("{path}.{key}"), ITEM_MAX_BYTES));
            Ok(read.transpose()?.map(EntryPart::Text))
        };
        let (mut json, mut kept) = (Cow::Borrowed(part.get()), None);
        let contents = match fields.get("type").and_then(read_str).as_deref() {
            Some("input_text" | "output_text" | "text") => text("text")?,
            Some("output_audio" | "audio") => text("transcript")?,
            Some("input_audio") => {
                json = replaced(&fields, "audio", None).into();
                match (text("transcript")?, fields.given("audio")) {
                    (None, Some(audio)) => self.decode_audio(audio, &format!("{path}.audio"))?,
                    (words, _) => words,
                }
            }
            Some("input_image") => {
                kept = Some(replaced(&fields, "image_url", Some("null")));
                Some(decode_picture(&fields, &format!("{path}.image_url"))?)
            }
            _ => {
                let known = "'input_text', 'input_audio', 'input_image', 'output_text' or 'output_audio'";
                return Err(wrong_value(&format!("{path}.type"), known));
            }
        };
        self.parts.extend(contents);
        for (list, text) in
            [(&mut self.json, json.as_ref()), (&mut self.kept_json, kept.as_deref().unwrap_or(&json))]
        {
            list.push_str(if list.is_empty() { "" } else { "," });
            list.push_str(text);
        }
        Ok(())
    }

    fn decode_audio(&mut self, audio: &RawValue, path: &str) -> Result<Option<EntryPart>, Error> {
        let AudioFormat { encoding, rate_hz } = self.format;
        let base64 = read_str(audio).ok_or_else(|| wrong_type(path, "a string", audio))?;
        // The rest is not heard. Four characters are three bytes.
        let max_chars = (AUDIO_MAX_S * rate_hz as usize * encoding.bytes_per_sample()).div_ceil(3) * 4;
        let heard = base64.get(..max_chars.min(base64.len())).unwrap_or(&base64);
        let bytes = decode_base64(heard, path)?;
        let converter = InputConverter::with_encoding(encoding, rate_hz, 1);
        let mut converter =
            converter.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()).of_field(path))?;
        let mut samples = Vec::new();
        converter.push(&bytes, &mut samples);
        converter.flush(&mut samples);
        samples.truncate((AUDIO_MAX_S * 16_000).saturating_sub(self.audio_samples));
        self.audio_samples += samples.len();
        Ok((!samples.is_empty()).then(|| EntryPart::Audio(samples.into())))
    }
}

/// JSON of a part with another value of a field, or without it. Audio always has a transcript: one client fails without the key.
fn replaced(fields: &Fields<'_>, key: &str, value: Option<&str>) -> String {
    let mut json = String::new();
    for (name, given) in fields.iter() {
        match value {
            _ if name != key => write_field(&mut json, name, given.get()),
            Some(value) => write_field(&mut json, name, value),
            None => {}
        }
    }
    if key == "audio" && fields.get("transcript").is_none() {
        write_field(&mut json, "transcript", "null");
    }
    json.push('}');
    json
}

/// Decodes `image_url`, which holds the picture itself: voxbridge fetches nothing.
fn decode_picture(fields: &Fields<'_>, path: &str) -> Result<EntryPart, Error> {
    let url = fields.get("image_url").and_then(read_str).unwrap_or_default();
    let data = url.split_once(";base64,").filter(|_| url.starts_with("data:image/"));
    let (_, base64) =
        data.ok_or_else(|| wrong_value(path, "a data URL with base64 (data:image/jpeg;base64,…)"))?;
    if base64.len() / 4 * 3 > PICTURE_MAX_BYTES {
        return Err(wrong_value(path, &format!("a picture of at most {PICTURE_MAX_BYTES} bytes")));
    }
    let bytes = decode_base64(base64, path)?;
    if !is_picture(&bytes) {
        return Err(wrong_value(path, "a JPEG or PNG file"));
    }
    Ok(EntryPart::Picture(bytes.into()))
}

fn decode_base64(text: &str, path: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    pcm::decode_base64(text, &mut bytes).map_err(|error| wrong_value(path, &format!("base64 ({error})")))?;
    Ok(bytes)
}
