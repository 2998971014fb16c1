//! Client codec for relays: client frames to requests, the upstream's events to client messages.
//!
//! Decoded messages borrow from the frame. The codec knows neither sessions nor the upstream's dialect.

use std::sync::Arc;

use super::mapped::error_close_frame;
use crate::{
    error::{Error, ErrorKind},
    spelling::{
        ClientMapping,
        extract::{ExtractError, ExtractedValues},
        field::display_node,
        relay::{
            RelayCommand, RelayEvent, RelayField, RelayFieldRole, RelayFieldType, RelayProtocol, RelayVerb,
        },
    },
    vocabulary::{
        LaneEvent, Mode, Node, SlotValue,
        relay::{
            RelayEnd, RelayEndReason, RelayErrorMessages, RelayEventMeta, RelayInput, RelayOpening,
            RelayRequest,
        },
    },
};

/// Codec of one relayed connection.
#[derive(Debug, Clone)]
pub struct RelayCodec {
    client: Arc<ClientMapping>,
    mode: Mode,
    /// Wall clock when the session opened, seconds since 1970. Events report times on this clock.
    opened_unix_s: f64,
}

/// Decoded client message.
#[derive(Debug)]
pub struct RelayMessage<'a> {
    /// `None` for a message that the protocol does not have.
    command: Option<&'a RelayCommand>,
    name: String,
    found: ExtractedValues<'a>,
}

impl RelayCodec {
    /// Creates the codec of a connection with this query string, opened at `opened_unix_s` seconds since 1970.
    ///
    /// `None` if the client protocol does not relay or does not have the requested mode.
    #[must_use]
    pub fn new(client: Arc<ClientMapping>, query: &str, opened_unix_s: f64) -> Option<Self> {
        let mode = client.relay.as_ref()?.mode(query).ok()?;
        Some(Self { client, mode, opened_unix_s })
    }

    /// Requested mode.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Client protocol.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<ClientMapping> {
        &self.client
    }

    /// Relay part of the client protocol.
    pub(crate) fn protocol(&self) -> Option<&RelayProtocol> {
        self.client.relay.as_ref()
    }

    /// True if this message can be the first of a connection in this protocol.
    #[must_use]
    pub fn can_begin_with(&self, text: &str) -> bool {
        self.client.has_command(text)
    }

    /// Decodes one text frame. When messages pass unchanged (`native`), only the fields that the protocol marks as
    /// checked are validated.
    ///
    /// # Errors
    /// If the message is malformed. An unknown type is not an error.
    pub fn decode<'a>(&'a self, text: &'a str, native: bool) -> Result<RelayMessage<'a>, Error> {
        let relay = self
            .protocol()
            .ok_or_else(|| Error::new(ErrorKind::UnknownCommand, "message without a relay protocol"))?;
        let extracted =
            if native { relay.extractor.extract(text) } else { relay.extractor.extract_with_unknown(text) };
        let found = extracted.map_err(|error| match error {
            ExtractError::Json(detail) => Error::new(ErrorKind::MalformedJson, detail),
            ExtractError::NotAnObject(found) => Error::new(ErrorKind::NotAnObject, found),
        })?;
        let name = found.get(0).map_or_else(|| "message without a type".to_owned(), display_node);
        let known = found.get(0).and_then(Node::as_str);
        let command = relay.commands.iter().find(|command| Some(command.name.as_str()) == known);
        if let Some(command) = command {
            validate(command, &found, native)?;
        }
        Ok(RelayMessage { command, name, found })
    }

    /// Encodes an event of the upstream; `None` if the protocol has no such event.
    #[must_use]
    pub fn encode(&self, event: &LaneEvent<'_>, meta: &RelayEventMeta<'_>) -> Option<String> {
        let (text, sound) = match event {
            LaneEvent::Text(text) => (*text, None),
            LaneEvent::Audio(sound) => ("", Some(sound.to_base64().unwrap_or_default())),
            LaneEvent::Step { text, audio, .. } => (*text, audio.to_base64()),
            LaneEvent::Done { text, audio } => (text.unwrap_or_default(), audio.to_base64()),
            _ => ("", None),
        };
        let audio = sound.as_deref();
        let payload_len = text.len() + audio.map_or(0, str::len);
        self.render(event_name(event, meta)?, payload_len, |slot| match slot {
            "text" => SlotValue::Str(text),
            "audio" => audio.into(),
            "end_of_turn" => SlotValue::Bool(matches!(
                event,
                LaneEvent::Listen | LaneEvent::Step { end_of_turn: true, .. }
            )),
            "mode" => self.reported_mode(),
            "prompt_chars" => self.reported_prompt_chars(meta),
            _ => queue_value(event, slot).unwrap_or_else(|| self.meta_value(meta, slot)),
        })
    }

    /// Encodes the end of the session; `None` if the protocol has no such event.
    #[must_use]
    pub fn encode_end(&self, end: &RelayEnd<'_>, meta: &RelayEventMeta<'_>) -> Option<String> {
        let name = if end.detail.is_some() { RelayEvent::EndedWithDetail } else { RelayEvent::Ended };
        self.render(name, 0, |slot| match slot {
            "reason" => match (self.protocol().and_then(|relay| relay.end(end.reason)), end.client_reason) {
                (Some(spelling), Some(own)) if spelling.use_client_reason => SlotValue::Str(own),
                (Some(spelling), _) => SlotValue::Str(&spelling.reason),
                (None, _) => SlotValue::Null,
            },
            "detail" => end.detail.into(),
            _ => self.meta_value(meta, slot),
        })
    }

    /// Renders an event, or the one in its place.
    fn render<'v>(
        &self,
        name: RelayEvent,
        payload_len: usize,
        value: impl Fn(&str) -> SlotValue<'v>,
    ) -> Option<String> {
        let relay = self.protocol()?;
        let name = if relay.event(name).is_some() { name } else { name.fallback()? };
        let (template, slots) = (relay.event(name)?, name.slots());
        let mut json = String::with_capacity(256 + payload_len);
        template.render(&mut json, |slot| value(slots[slot]));
        Some(json)
    }

    /// Encodes an error.
    #[must_use]
    pub fn encode_error(&self, error: &Error, meta: &RelayEventMeta<'_>) -> RelayErrorMessages {
        let Some(spelling) = self.protocol().and_then(|relay| relay.error(error.kind)) else {
            return RelayErrorMessages::default();
        };
        let message = spelling.message(&error.detail);
        let event = || {
            self.render(RelayEvent::Error, message.len(), |slot| match slot {
                "code" => SlotValue::Str(&spelling.code),
                "message" => SlotValue::Str(&message),
                "class" => SlotValue::Str(&spelling.class),
                _ => SlotValue::Null,
            })
        };
        let session_end = spelling.ended.as_ref().and_then(|reason| {
            self.render(RelayEvent::EndedWithDetail, message.len(), |slot| match slot {
                "reason" => SlotValue::Str(reason),
                "detail" => SlotValue::Str(&message),
                slot => self.meta_value(meta, slot),
            })
        });
        let event = if spelling.code.is_empty() { None } else { event() };
        let close = spelling.close.as_ref().map(|close| error_close_frame(close, &error.detail));
        RelayErrorMessages { event, session_end, close }
    }

    /// Close frame after the last event.
    #[must_use]
    pub fn close_frame(&self, why: RelayEndReason) -> (u16, String) {
        let spelling = self.protocol().and_then(|relay| relay.end(why));
        spelling.map_or((1000, String::new()), |spelling| (spelling.code, spelling.text.clone()))
    }

    fn reported_mode(&self) -> SlotValue<'_> {
        let relay = self.protocol();
        relay.and_then(|relay| relay.mode.reported_as.get(&self.mode)).map(String::as_str).into()
    }

    fn reported_prompt_chars(&self, meta: &RelayEventMeta<'_>) -> SlotValue<'static> {
        let extra = self.protocol().map_or(0, |relay| relay.prompt_extra_chars);
        integer(meta.prompt_chars.saturating_add(extra))
    }

    fn meta_value<'v>(&self, meta: &RelayEventMeta<'v>, slot: &str) -> SlotValue<'v> {
        match slot {
            "session_id" => meta.session_id.into(),
            "response_id" => meta.response_id.into(),
            "input_id" => meta.input_id.into(),
            "context_tokens" => meta.context_tokens.map_or(SlotValue::Null, |tokens| integer(tokens.into())),
            "unix_s" => SlotValue::Float(self.opened_unix_s + meta.elapsed_s),
            _ => SlotValue::Null,
        }
    }
}

impl RelayMessage<'_> {
    /// Meaning of the message.
    #[must_use]
    pub fn to_request(&self) -> RelayRequest<'_> {
        match self.command.map(|command| command.verb) {
            None => RelayRequest::Unknown(&self.name),
            Some(RelayVerb::Open) => RelayRequest::Open(RelayOpening {
                prompt: self.text(RelayFieldRole::Prompt),
                config: match self.field(RelayFieldRole::Config) {
                    Some(Node::Raw(json)) => Some(json),
                    _ => None,
                },
                voice: self.text(RelayFieldRole::Voice),
                speech_voice: self.text(RelayFieldRole::SpeechVoice),
                slice_max: self.integer(RelayFieldRole::SliceMax),
            }),
            Some(RelayVerb::Append) => RelayRequest::Append(RelayInput {
                audio: self.text(RelayFieldRole::Audio),
                frames: match self.field(RelayFieldRole::Frames) {
                    Some(Node::List(items)) => Some(items),
                    _ => None,
                },
                force_listen: match self.field(RelayFieldRole::ForceListen) {
                    Some(Node::Bool(flag)) => Some(*flag),
                    _ => None,
                },
                slice_max: self.integer(RelayFieldRole::SliceMax),
                input_id: self.text(RelayFieldRole::InputId),
                response_id: self.text(RelayFieldRole::ResponseId),
            }),
            Some(RelayVerb::Close) => RelayRequest::Close(self.text(RelayFieldRole::Reason)),
        }
    }

    /// Describes the fields of the message that have no effect: unknown fields, fields that the mapping file says have
    /// none, and fields that the upstream does not take.
    pub fn ineffective_fields(&self, takes: impl Fn(RelayFieldRole) -> bool) -> Vec<String> {
        let Some(command) = self.command else { return Vec::new() };
        let unknown = self.found.unknown().iter();
        let unknown = unknown.map(|key| format!("{}: `{key}` is unknown to this bridge", command.name));
        let given = command.fields.iter().filter(|field| field_value(field, &self.found).is_some());
        let known = given.filter_map(|field| {
            let because = match (&field.because, field.to) {
                (Some(because), _) => because.as_str(),
                (None, Some(part)) if !takes(part) => "the upstream's dialect has no such field",
                _ => return None,
            };
            Some(format!("{}: `{}` has no effect: {because}", command.name, field.name))
        });
        unknown.chain(known).collect()
    }

    /// First given field with this role.
    fn field(&self, part: RelayFieldRole) -> Option<&Node<'_>> {
        let fields = self.command.map(|command| command.fields.as_slice()).unwrap_or_default();
        fields.iter().filter(|field| field.to == Some(part)).find_map(|field| field_value(field, &self.found))
    }

    fn text(&self, part: RelayFieldRole) -> Option<&str> {
        self.field(part).and_then(Node::as_str)
    }

    fn integer(&self, part: RelayFieldRole) -> Option<i64> {
        match self.field(part) {
            Some(Node::Int(number)) => Some(*number),
            _ => None,
        }
    }
}

/// Value of a field. `null` counts as absent, and an object in place of audio is not the audio.
fn field_value<'f>(field: &RelayField, found: &'f ExtractedValues<'_>) -> Option<&'f Node<'f>> {
    let node = found.get(field.slot).filter(|node| **node != Node::Null)?;
    let is_wrapped = *node == Node::Object && field.field_type != RelayFieldType::Object;
    (!is_wrapped).then_some(node)
}

fn validate(command: &RelayCommand, found: &ExtractedValues<'_>, native: bool) -> Result<(), Error> {
    for field in command.fields.iter().filter(|field| field.checked || !native) {
        let Some(node) = field_value(field, found) else { continue };
        if let Err(problem) = field.check(node) {
            return Err(Error::new(ErrorKind::Invalid, format!("`{}` {problem}", field.name)));
        }
    }
    let given = |wanted: &RelayField| {
        let same =
            |field: &&RelayField| field.name == wanted.name || (field.to.is_some() && field.to == wanted.to);
        command.fields.iter().filter(same).any(|field| is_given(field, found))
    };
    let missing = command.fields.iter().filter(|field| field.checked || !native);
    match missing.filter(|field| field.required).find(|field| !given(field)) {
        Some(field) => Err(Error::new(ErrorKind::MissingField, format!("`{}` is missing", field.name))),
        None => Ok(()),
    }
}

/// True if the field has a value. An empty string counts as absent (mappings/notes/minicpm-o-legacy.md#faults).
fn is_given(field: &RelayField, found: &ExtractedValues<'_>) -> bool {
    field_value(field, found).is_some_and(|node| node.as_str() != Some(""))
}

/// Name of an event; `None` for one that no protocol has.
const fn event_name(event: &LaneEvent<'_>, meta: &RelayEventMeta<'_>) -> Option<RelayEvent> {
    Some(match event {
        LaneEvent::Queued { .. } if meta.is_queue_update => RelayEvent::QueueUpdate,
        LaneEvent::Queued { .. } => RelayEvent::Queued,
        LaneEvent::Granted => RelayEvent::Granted,
        LaneEvent::Ready { .. } => RelayEvent::Opened,
        LaneEvent::Listen => RelayEvent::Listening,
        LaneEvent::Text(_) => RelayEvent::Text,
        LaneEvent::Audio(_) => RelayEvent::Speech,
        LaneEvent::Step { .. } => RelayEvent::Output,
        LaneEvent::Done { .. } => RelayEvent::Answered,
        LaneEvent::AnswerDue
        | LaneEvent::Call { .. }
        | LaneEvent::RecoverableError(_)
        | LaneEvent::Closed(_)
        | LaneEvent::Ignored
        | LaneEvent::Unknown(_) => return None,
    })
}

/// Value of a slot about the queue.
fn queue_value<'v>(event: &LaneEvent<'v>, slot: &str) -> Option<SlotValue<'v>> {
    let LaneEvent::Queued { position, length, wait_s, ticket } = event else { return None };
    let count = |count: &Option<u32>| count.map_or(SlotValue::Null, |count| SlotValue::Int(count.into()));
    Some(match slot {
        "position" => count(position),
        "length" => count(length),
        "wait_s" => wait_s.map_or(SlotValue::Null, SlotValue::Float),
        "ticket" => (*ticket).into(),
        _ => return None,
    })
}

fn integer(number: u64) -> SlotValue<'static> {
    SlotValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
