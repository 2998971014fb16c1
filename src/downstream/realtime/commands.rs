//! Reads the client's messages, beside audio, which needs no knowledge of the conversation.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    REQUESTS_MAX, Realtime, given, items::read_item, missing, response::RequestedResponse, session::read_modalities,
    wrong_type, wrong_value,
};
use crate::{
    error::{Error, ErrorKind},
    event::{AnswerRequest, ClientEvent, Entry, EntryId, EntryPlace},
    mapping::client::{RealtimeEvent, Verb},
};

/// The client's name for a message, which an error about it carries.
pub(in crate::downstream) fn event_id_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        event_id: Option<String>,
    }
    /// Ids are short; what is longer is not worth an echo.
    const ID_MAX_BYTES: usize = 512;
    serde_json::from_str::<Named>(text).ok()?.event_id.filter(|id| id.len() <= ID_MAX_BYTES)
}

impl Realtime {
    /// Reads a message, and passes on what the session must do. Answers of the codec's own go to the replies.
    pub(in crate::downstream) fn decode(
        &mut self,
        verb: Verb,
        text: &str,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let malformed = |error: serde_json::Error| Error::new(ErrorKind::MalformedJson, error.to_string());
        let message: Map<String, Value> = serde_json::from_str(text).map_err(malformed)?;
        match verb {
            Verb::SessionUpdate => self.update_session(&message, handle),
            Verb::ItemCreate => self.create_item(&message, handle),
            Verb::ItemRetrieve => self.retrieve_item(&message),
            Verb::ItemTruncate => self.truncate_item(&message, handle),
            Verb::ItemDelete => self.delete_item(&message, handle),
            Verb::ResponseCreate => self.create_response(&message, handle),
            Verb::ResponseCancel => self.cancel_response(&message, handle),
            Verb::Commit => {
                self.commit_event_id = event_id_of(text);
                handle(ClientEvent::Commit { may_be_empty: false });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reply(&mut self, event: RealtimeEvent, fields: Value) {
        let message = self.events.message(event, fields);
        self.replies.extend(message);
    }

    fn update_session(
        &mut self,
        message: &Map<String, Value>,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let update = match message.get("session") {
            Some(Value::Object(update)) => update,
            Some(other) => return Err(wrong_type("session", "an object", other)),
            None => return Err(missing("session")),
        };
        let is_flat = |key: &str| update.contains_key(key);
        if !update.contains_key("audio") && (is_flat("modalities") || is_flat("input_audio_format")) {
            self.use_beta();
        }
        if message.get("type").and_then(Value::as_str) == Some("transcription_session.update") {
            self.use_beta();
            self.session.is_transcription = true;
        }
        self.update_settings("session.update", update)?;
        handle(ClientEvent::Configure(self.session.settings()));
        Ok(())
    }

    fn create_item(
        &mut self,
        message: &Map<String, Value>,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let fields = object_field(message, "item")?;
        let number = self.items.allocate();
        let id = match given(fields, "id") {
            None => self.events.item_id(number),
            Some(Value::String(id)) if id.len() <= 256 => id.clone(),
            Some(_) => return Err(wrong_value("item.id", "a string of at most 256 bytes")),
        };
        if self.items.position(&id).is_some() {
            let detail = format!("Error adding item: an item with id '{id}' already exists.");
            return Err(Error::new(ErrorKind::DuplicateEntry, detail).of_field("item.id"));
        }
        let (at, place) = match given(message, "previous_item_id") {
            None => (self.items.len(), EntryPlace::End),
            Some(Value::String(previous)) if previous == "root" => (0, EntryPlace::Front),
            Some(Value::String(previous)) => {
                let at = self.items.position(previous);
                let at = at.ok_or_else(|| unknown_previous_item(previous))?;
                let number = self.items.at(at).map_or(number, |item| item.number);
                (at + 1, EntryPlace::After(number))
            }
            Some(other) => return Err(wrong_type("previous_item_id", "a string", other)),
        };
        let added = read_item(fields, id, number, self.session.input)?;
        if added.parts.is_empty() {
            self.ignore("conversation.item.create", "item", "MiniCPM-o has no use for it");
        } else {
            let entry = Entry { id: number, role: added.role, parts: added.parts };
            handle(ClientEvent::AddEntry(Box::new(entry), place));
        }
        let previous = at.checked_sub(1).and_then(|at| self.items.at(at)).map(|item| item.id.clone());
        let item = added.item.json();
        let mut stored = added.item;
        stored.forget_pictures();
        self.items.insert(at, stored);
        self.reply(RealtimeEvent::ItemAdded, json!({ "previous_item_id": previous, "item": item }));
        self.reply(RealtimeEvent::ItemDone, json!({ "previous_item_id": previous, "item": item }));
        Ok(())
    }

    fn retrieve_item(&mut self, message: &Map<String, Value>) -> Result<(), Error> {
        let at = self.find_item(message, ErrorKind::UnknownEntryRead)?;
        if let Some(item) = self.items.at(at).map(super::Item::json) {
            self.reply(RealtimeEvent::ItemRetrieved, json!({ "item": item }));
        }
        Ok(())
    }

    fn delete_item(
        &mut self,
        message: &Map<String, Value>,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let at = self.find_item(message, ErrorKind::UnknownEntryRemoved)?;
        let item = self.items.remove(at);
        handle(ClientEvent::RemoveEntry(item.number));
        self.reply(RealtimeEvent::ItemDeleted, json!({ "item_id": item.id }));
        Ok(())
    }

    fn truncate_item(
        &mut self,
        message: &Map<String, Value>,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let at = self.find_item(message, ErrorKind::UnknownEntryCut)?;
        let heard_ms = match message.get("audio_end_ms") {
            Some(Value::Number(ms)) => ms.as_f64().unwrap_or(0.0).max(0.0) as u64,
            Some(other) => return Err(wrong_type("audio_end_ms", "a number", other)),
            None => return Err(missing("audio_end_ms")),
        };
        let Some(item) = self.items.at_mut(at) else { return Ok(()) };
        item.truncate(heard_ms);
        handle(ClientEvent::TruncateEntry(item.number, heard_ms));
        let fields = json!({ "item_id": item.id, "content_index": 0, "audio_end_ms": heard_ms });
        self.reply(RealtimeEvent::ItemTruncated, fields);
        Ok(())
    }

    /// Index of the item that the message names. `unknown` is the error if there is none.
    fn find_item(&self, message: &Map<String, Value>, unknown: ErrorKind) -> Result<usize, Error> {
        match message.get("item_id") {
            Some(Value::String(id)) => {
                self.items.position(id).ok_or_else(|| Error::new(unknown, id).of_field("item_id"))
            }
            Some(other) => Err(wrong_type("item_id", "a string", other)),
            None => Err(missing("item_id")),
        }
    }

    fn create_response(
        &mut self,
        message: &Map<String, Value>,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let none = Map::new();
        let fields = match given(message, "response") {
            None => &none,
            Some(Value::Object(fields)) => fields,
            Some(other) => return Err(wrong_type("response", "an object", other)),
        };
        let is_out_of_band = fields.get("conversation").and_then(Value::as_str) == Some("none");
        let active = self.responses.front().filter(|_| !is_out_of_band);
        if let Some(active) = active {
            return Err(Error::new(ErrorKind::AnswerInProgress, active.id()));
        }
        // A profile in which nobody asks the model to speak answers none of them.
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        let (request, told) = self.read_request(fields, is_out_of_band)?;
        self.requests.push_back(told);
        handle(ClientEvent::Answer(Box::new(request)));
        Ok(())
    }

    /// Reads `response`: what the session must know, and what the client is told again.
    fn read_request(
        &mut self,
        fields: &Map<String, Value>,
        is_out_of_band: bool,
    ) -> Result<(AnswerRequest, RequestedResponse), Error> {
        let instructions = match given(fields, "instructions") {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => return Err(wrong_type("response.instructions", "a string", other)),
        };
        let modalities =
            ["output_modalities", "modalities"].into_iter().find(|key| given(fields, key).is_some());
        let speaks = modalities.map(|key| read_modalities(&fields[key], &format!("response.{key}"))).transpose()?;
        let max = ["max_output_tokens", "max_response_output_tokens"];
        let max_output_tokens = max.iter().find_map(|key| given(fields, key)).cloned();
        let max_tokens = max_output_tokens.as_ref().and_then(Value::as_u64);
        let metadata = match fields.get("metadata") {
            None => Value::Null,
            Some(value @ (Value::Null | Value::Object(_))) => value.clone(),
            Some(other) => return Err(wrong_type("response.metadata", "an object", other)),
        };
        let entries = match given(fields, "input") {
            None => None,
            Some(Value::Array(list)) => Some(self.read_input(list)?),
            Some(other) => return Err(wrong_type("response.input", "an array", other)),
        };
        let request = AnswerRequest {
            instructions,
            speaks,
            max_tokens: max_tokens.map(|max| u32::try_from(max).unwrap_or(u32::MAX).max(1)),
            entries,
            is_remembered: !is_out_of_band,
            by_client: true,
        };
        Ok((request, RequestedResponse { metadata, speaks, is_out_of_band, max_output_tokens }))
    }

    /// Reads the items of a response's own input.
    fn read_input(&mut self, list: &[Value]) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for (at, item) in list.iter().enumerate() {
            let path = format!("response.input[{at}]");
            let fields = item.as_object().ok_or_else(|| wrong_type(&path, "an object", item))?;
            if fields.get("type").and_then(Value::as_str) == Some("item_reference") {
                self.ignore("response.create", "input", "references to items have no effect");
                continue;
            }
            let number: EntryId = self.items.allocate();
            let added = read_item(fields, String::new(), number, self.session.input)?;
            if !added.parts.is_empty() {
                entries.push(Entry { id: number, role: added.role, parts: added.parts });
            }
        }
        Ok(entries)
    }

    fn cancel_response(
        &mut self,
        message: &Map<String, Value>,
        handle: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), Error> {
        let wanted = message.get("response_id").and_then(Value::as_str);
        let active = self.responses.front().filter(|active| wanted.is_none_or(|id| id == active.id()));
        if active.is_none() {
            return Err(Error::new(ErrorKind::NoAnswer, ""));
        }
        self.cancel_requested = true;
        handle(ClientEvent::CancelSpeech);
        Ok(())
    }
}

fn object_field<'m>(message: &'m Map<String, Value>, key: &str) -> Result<&'m Map<String, Value>, Error> {
    match message.get(key) {
        Some(Value::Object(fields)) => Ok(fields),
        Some(other) => Err(wrong_type(key, "an object", other)),
        None => Err(missing(key)),
    }
}

fn unknown_previous_item(id: &str) -> Error {
    Error::new(ErrorKind::UnknownEntry, format!("Item with previous_item_id '{id}' not found."))
        .of_field("previous_item_id")
}
