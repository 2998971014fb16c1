//! Reads the client's messages, beside audio, which needs no knowledge of the conversation.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Realtime,
    added_item::read_item,
    events::EventLabels,
    fields::{missing, read_object, read_text, shortened, wrong_type, wrong_value},
    items::Item,
};
use crate::{
    client::{
        json_text::{Fields, read_str},
        mapped::{ClientCodec as _, NO_TEXT, RequestHandler},
    },
    error::{Error, ErrorKind},
    spelling::client::{ProtocolCommand, RealtimeEvent, Verb},
    vocabulary::{ClientRequest, Entry, EntryId, EntryPart, EntryPlace, Frame},
};

/// Longest id of an item, bytes.
const ID_MAX_BYTES: usize = 256;

/// What the decoder gave for a frame. An error about a text message gets the client's name for the message.
pub(in crate::client) fn name_message(frame: Frame<'_>, decoded: Result<(), Error>) -> Result<(), Error> {
    match frame {
        Frame::Binary(_) => decoded,
        Frame::Text(text) => decoded.map_err(|error| with_message(error, text)),
    }
}

fn with_message(error: Error, text: &str) -> Error {
    let is_of_type = matches!(error.kind, ErrorKind::MissingCommand | ErrorKind::UnknownCommand);
    let param = if is_of_type { Some("type".to_owned()) } else { error.param };
    Error { request_id: event_id_of(text), param, ..error }
}

/// The client's name for a message.
fn event_id_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        event_id: Option<String>,
    }
    /// Ids are short; what is longer is not worth an echo.
    const ID_MAX_BYTES: usize = 512;
    serde_json::from_str::<Named>(text).ok()?.event_id.filter(|id| id.len() <= ID_MAX_BYTES)
}

impl<L: EventLabels> Realtime<L> {
    /// Reads a message, and passes on what the session must do. Answers of the codec's own go to the replies.
    pub(in crate::client) fn decode_verb(
        &mut self,
        verb: Verb,
        text: &str,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let message = read_message(text)?;
        match verb {
            Verb::SessionUpdate => {
                self.update_session(&message)?;
                self.follow_declared_servers();
                handle(ClientRequest::Configure(self.settings()));
                Ok(())
            }
            Verb::ItemCreate => self.create_item(&message, handle),
            Verb::ItemRetrieve => self.retrieve_item(&message),
            Verb::ItemTruncate => self.truncate_item(&message, handle),
            Verb::ItemDelete => self.delete_item(&message, handle),
            Verb::ResponseCreate => self.create_response(&message, handle),
            Verb::ResponseCancel => self.cancel_response(&message, handle),
            Verb::Commit => {
                self.commit_event_id = event_id_of(text);
                handle(ClientRequest::Commit { may_be_empty: false });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Answers the client's message.
    pub(in crate::client) fn reply(&mut self, event: RealtimeEvent, fields: Value) {
        let message = self.events.message(event, fields);
        self.notes.replies.extend(message);
    }

    /// Replies with an item, given as JSON.
    pub(super) fn reply_item(&mut self, event: RealtimeEvent, fields: Value, item: &str) {
        let message = self.events.message_with(event, fields, "item", item);
        self.notes.replies.extend(message);
    }

    /// Changes the settings as `session.update` says.
    pub(in crate::client) fn update_session(&mut self, message: &Fields<'_>) -> Result<(), Error> {
        let update = object_field(message, "session")?;
        let has = |key: &str| update.get(key).is_some();
        if message.get("type").and_then(read_str).as_deref() == Some("transcription_session.update") {
            self.use_beta();
            self.session.is_transcription = true;
        }
        self.update_settings("session.update", &update)?;
        if !has("audio") && (has("modalities") || has("input_audio_format")) {
            self.use_beta();
        }
        Ok(())
    }

    fn create_item(&mut self, message: &Fields<'_>, handle: &mut RequestHandler<'_>) -> Result<(), Error> {
        let fields = object_field(message, "item")?;
        let number = self.items.allocate();
        let id = match fields.given("id") {
            None => self.events.item_id(number),
            Some(id) => read_text(id, "item.id", ID_MAX_BYTES)?,
        };
        if self.items.position(&id).is_some() {
            let detail = format!("Error adding item: an item with id '{id}' already exists.");
            return Err(Error::new(ErrorKind::DuplicateEntry, detail).of_field("item.id"));
        }
        let previous = message.given("previous_item_id");
        let previous =
            previous.map(|id| read_str(id).ok_or_else(|| wrong_type("previous_item_id", "a string", id)));
        let (at, place) = match previous.transpose()?.as_deref() {
            None => (self.items.len(), EntryPlace::End),
            Some("root") => (0, EntryPlace::Front),
            Some(previous) => {
                let at = self.items.position(previous);
                let at = at.ok_or_else(|| unknown_previous_item(previous))?;
                let number = self.items.at(at).map_or(number, |item| item.number);
                (at + 1, EntryPlace::After(number))
            }
        };
        let added = read_item(&fields, "item", id, number, self.session.input)?;
        self.check_result(&added.parts)?;
        let decision = self.read_decision(&fields)?;
        let is_text = |part: &EntryPart| matches!(part, EntryPart::Text(_));
        if self.hears_only && added.parts.iter().any(is_text) {
            self.ignore("conversation.item.create", "item", NO_TEXT);
        }
        if decision.is_some() {
            // Its call is begun or ended below.
        } else if added.parts.is_empty() {
            self.ignore("conversation.item.create", "item", "MiniCPM-o has no use for it");
        } else {
            let entry = Entry { id: number, role: added.role, parts: added.parts };
            handle(ClientRequest::AddEntry(Box::new(entry), place));
        }
        let previous = at.checked_sub(1).and_then(|at| self.items.at(at)).map(|item| item.id.clone());
        // The data channel of a call carries no pictures.
        let json = if self.is_call { added.item.json().into_owned() } else { added.json };
        self.items.insert(at, added.item);
        for event in [RealtimeEvent::ItemAdded, RealtimeEvent::ItemDone] {
            self.reply_item(event, json!({ "previous_item_id": previous }), &json);
        }
        if let Some(decision) = decision {
            self.follow_decision(decision, handle);
        }
        Ok(())
    }

    /// Rejects the result of a call that is not in the conversation, as OpenAI does.
    fn check_result(&self, parts: &[EntryPart]) -> Result<(), Error> {
        match parts {
            [EntryPart::Result(result)]
                if !self.session.refuses_tools && !self.items.has_call(&result.call_id) =>
            {
                Err(Error::new(ErrorKind::UnknownToolCall, shortened(&result.call_id)))
            }
            _ => Ok(()),
        }
    }

    fn retrieve_item(&mut self, message: &Fields<'_>) -> Result<(), Error> {
        let at = self.find_item(message, ErrorKind::UnknownEntryRead)?;
        if let Some(item) = self.items.at(at).map(Item::json) {
            let message = self.events.message_with(RealtimeEvent::ItemRetrieved, json!({}), "item", &item);
            self.notes.replies.extend(message);
        }
        Ok(())
    }

    fn delete_item(&mut self, message: &Fields<'_>, handle: &mut RequestHandler<'_>) -> Result<(), Error> {
        let at = self.find_item(message, ErrorKind::UnknownEntryRemoved)?;
        let item = self.items.remove(at);
        handle(ClientRequest::RemoveEntry(item.number));
        self.reply(RealtimeEvent::ItemDeleted, json!({ "item_id": item.id }));
        Ok(())
    }

    fn truncate_item(&mut self, message: &Fields<'_>, handle: &mut RequestHandler<'_>) -> Result<(), Error> {
        let at = self.find_item(message, ErrorKind::UnknownEntryCut)?;
        let played = message.get("audio_end_ms").ok_or_else(|| missing("audio_end_ms"))?;
        let played_ms = serde_json::from_str::<f64>(played.get())
            .map_err(|_| wrong_type("audio_end_ms", "an integer", played))?;
        let Some(item) = self.items.at(at) else { return Ok(()) };
        if !item.is_spoken {
            let detail = "Only model output audio messages can be truncated.";
            return Err(Error::new(ErrorKind::Invalid, detail).of_field("item_id"));
        }
        // Answers have one part.
        if message.given("content_index").is_some_and(|index| index.get() != "0") {
            return Err(wrong_value("content_index", "0, the index of the audio"));
        }
        if played_ms < 0.0 {
            return Err(wrong_value("audio_end_ms", "0 or more"));
        }
        let (item_id, number) = (item.id.clone(), item.number);
        // The client may have rounded up.
        let heard_ms = played_ms as u64;
        if let Some(audio_ms) = self.audio_ms_of(at).filter(|audio_ms| heard_ms > audio_ms + 1) {
            let detail = format!("Audio content of {audio_ms}ms is already shorter than {heard_ms}ms.");
            return Err(Error::new(ErrorKind::Invalid, detail).of_field("audio_end_ms"));
        }
        match self.responses.iter_mut().find(|response| EntryId(response.segment_id) == number) {
            // The answer's words are not complete yet.
            Some(response) => response.played_max_ms = Some(heard_ms),
            None => self.items.at_mut(at).into_iter().for_each(|item| item.truncate(heard_ms)),
        }
        handle(ClientRequest::TruncateEntry(number, heard_ms));
        let fields = json!({ "item_id": item_id, "content_index": 0, "audio_end_ms": heard_ms });
        self.reply(RealtimeEvent::ItemTruncated, fields);
        Ok(())
    }

    /// Length of the audio that the client has of the answer at this index of the items, ms; `None` for an answer in a call,
    /// whose audio is not in the messages.
    fn audio_ms_of(&self, at: usize) -> Option<u64> {
        let item = self.items.at(at)?;
        let Some(response) = self.responses.iter().find(|it| EntryId(it.segment_id) == item.number) else {
            return Some(item.audio_ms);
        };
        let sent_ms = self.session.output.length_ms(response.sent_audio_bytes);
        Some(response.played_max_ms.map_or(sent_ms, |played| played.min(sent_ms))).filter(|_| !self.is_call)
    }

    /// Index of the item that the message names. `unknown` is the error if there is none.
    fn find_item(&self, message: &Fields<'_>, unknown: ErrorKind) -> Result<usize, Error> {
        let id = message.get("item_id").ok_or_else(|| missing("item_id"))?;
        let id = read_str(id).ok_or_else(|| wrong_type("item_id", "a string", id))?;
        self.items.position(&id).ok_or_else(|| Error::new(unknown, shortened(&id)).of_field("item_id"))
    }

    fn cancel_response(
        &mut self,
        message: &Fields<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let wanted = message.get("response_id").and_then(read_str);
        let active =
            self.responses.front().filter(|active| wanted.as_ref().is_none_or(|id| id == active.id()));
        if active.is_none() {
            return match wanted.is_none() && self.cancel_held_request() {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::NoAnswer, "")),
            };
        }
        self.cancel_requested = true;
        handle(ClientRequest::CancelSpeech);
        Ok(())
    }
}

/// The verb of a command that is read here.
pub(in crate::client) fn own_verb(command: &ProtocolCommand) -> Option<Verb> {
    let mut verbs = command.verbs.iter().map(|spelled| spelled.verb);
    verbs.find(|verb| verb.is_realtime() || *verb == Verb::Commit)
}

/// Reads the fields of a message.
pub(in crate::client) fn read_message(text: &str) -> Result<Fields<'_>, Error> {
    serde_json::from_str(text).map_err(|error| Error::new(ErrorKind::MalformedJson, error.to_string()))
}

fn object_field<'m>(message: &Fields<'m>, key: &str) -> Result<Fields<'m>, Error> {
    read_object(message.get(key).ok_or_else(|| missing(key))?, key)
}

fn unknown_previous_item(id: &str) -> Error {
    let detail = format!("Item with previous_item_id '{}' not found.", shortened(id));
    Error::new(ErrorKind::UnknownEntry, detail).of_field("previous_item_id")
}
