//! The wire of a relay's client: its frames to neutral messages, and what it is told to its events.
//!
//! Nothing is copied on the way in: what is read borrows from the frame. It knows nothing of sessions, and nothing of the
//! dialect on the other side.

use std::sync::Arc;

use super::encode::shortened;
use crate::{
    error::{Error, ErrorKind},
    event::relay::{About, EndName, ErrorTold, Input, Opening, QueuePlace, ToModel, Told},
    mapping::{
        ClientMapping,
        extract::{ExtractError, Found, Node},
        field::shown,
        relay::{Part, RelayClient, RelayCommand, RelayEvent, RelayField, RelayType, RelayVerb},
        template::Fill,
        upstream::Mode,
    },
};

/// One relayed connection's codec.
#[derive(Debug)]
pub struct RelayCodec {
    client: Arc<ClientMapping>,
    mode: Mode,
    /// Wall clock when the session was opened, seconds since 1970; events tell times on it.
    opened_unix_s: f64,
}

/// A message that was read.
#[derive(Debug)]
pub struct Read<'a> {
    /// None for one that the protocol does not have.
    command: Option<&'a RelayCommand>,
    name: String,
    found: Found<'a>,
}

impl RelayCodec {
    /// A codec for one connection with this query string, opened at `opened_unix_s` seconds since 1970; `None` for a client
    /// that is not relayed, and for a mode that it does not have.
    #[must_use]
    pub fn new(client: Arc<ClientMapping>, query: &str, opened_unix_s: f64) -> Option<Self> {
        let mode = client.relay.as_ref()?.mode(query).ok()?;
        Some(Self { client, mode, opened_unix_s })
    }

    /// The mode it asked for.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The protocol it speaks.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<ClientMapping> {
        &self.client
    }

    /// What is special about the protocol.
    pub(crate) fn relay(&self) -> Option<&RelayClient> {
        self.client.relay.as_ref()
    }

    /// Whether the protocol's first message may be this one.
    #[must_use]
    pub fn begins_with(&self, text: &str) -> bool {
        self.client.has_command(text)
    }

    /// Reads one text frame. Where messages pass untouched (`native`) only those fields are judged that the protocol
    /// wants judged.
    ///
    /// # Errors
    /// Whatever is wrong with it; a type that is not known is none.
    pub fn decode<'a>(&'a self, text: &'a str, native: bool) -> Result<Read<'a>, Error> {
        let relay = self.relay().ok_or_else(|| Error::new(ErrorKind::UnknownCommand, "anything"))?;
        let extracted = if native { relay.shape.extract(text) } else { relay.shape.extract_noting(text) };
        let found = extracted.map_err(|error| match error {
            ExtractError::Json(detail) => Error::new(ErrorKind::MalformedJson, detail),
            ExtractError::NotAnObject(found) => Error::new(ErrorKind::NotAnObject, found),
        })?;
        let name = found.get(0).map_or_else(|| "message without a type".to_owned(), shown);
        let known = found.get(0).and_then(Node::as_str);
        let command = relay.commands.iter().find(|command| Some(command.name.as_str()) == known);
        if let Some(command) = command {
            judge(command, &found, native)?;
        }
        Ok(Read { command, name, found })
    }

    /// The frame for what the client is told; `None` for what this protocol does not tell.
    #[must_use]
    pub fn tell(&self, told: &Told<'_>, about: &About<'_>) -> Option<String> {
        let relay = self.relay()?;
        let name = match event_name(told) {
            RelayEvent::EndedBecause if relay.event(RelayEvent::EndedBecause).is_none() => RelayEvent::Ended,
            RelayEvent::QueueMoved if relay.event(RelayEvent::QueueMoved).is_none() => RelayEvent::Queued,
            name => name,
        };
        let template = relay.event(name)?;
        let slots = name.slots();
        let mut json = String::with_capacity(256 + weight(told));
        template.render(&mut json, |slot| self.fill(relay, told, about, slots[slot]));
        Some(json)
    }

    /// How an error is told.
    #[must_use]
    pub fn error(&self, error: &Error, about: &About<'_>) -> ErrorTold {
        let Some((relay, words)) = self.relay().and_then(|relay| Some((relay, relay.error(error.kind)?)))
        else {
            return ErrorTold::default();
        };
        let mut message = String::new();
        match &words.message {
            Some(template) => template.render_plain(&mut message, |_| Fill::Str(&error.detail)),
            None => message.push_str(&error.detail),
        }
        let event = words.code.as_ref().zip(relay.event(RelayEvent::Error)).map(|(code, template)| {
            let mut json = String::with_capacity(256);
            template.render(&mut json, |slot| match RelayEvent::Error.slots()[slot] {
                "code" => Fill::Str(code),
                "message" => Fill::Str(&message),
                "class" => Fill::Str(&words.class),
                _ => Fill::Null,
            });
            json
        });
        let ended = words.ended.as_ref().and_then(|reason| self.ended_with(reason, &message, about));
        let close = words.close.as_ref().map(|(code, text)| {
            let mut reason = String::new();
            text.render_plain(&mut reason, |_| Fill::Str(&error.detail));
            (*code, shortened(reason))
        });
        ErrorTold { event, ended, close }
    }

    /// The last event, in words of the caller's.
    fn ended_with(&self, reason: &str, detail: &str, about: &About<'_>) -> Option<String> {
        let relay = self.relay()?;
        let because =
            relay.event(RelayEvent::EndedBecause).map(|template| (RelayEvent::EndedBecause, template));
        let (name, template) =
            because.or_else(|| Some((RelayEvent::Ended, relay.event(RelayEvent::Ended)?)))?;
        let mut json = String::with_capacity(256);
        template.render(&mut json, |slot| match name.slots()[slot] {
            "reason" => Fill::Str(reason),
            "detail" => Fill::Str(detail),
            slot => self.about(about, slot),
        });
        Some(json)
    }

    /// The close frame behind the last event.
    #[must_use]
    pub fn close_frame(&self, why: EndName) -> (u16, String) {
        let words = self.relay().and_then(|relay| relay.end(why));
        words.map_or((1000, String::new()), |words| (words.code, words.text.clone()))
    }

    /// A slot's value; the names are those of [`RelayEvent::slots`].
    fn fill<'v>(
        &'v self,
        relay: &'v RelayClient,
        told: &Told<'v>,
        about: &About<'v>,
        slot: &str,
    ) -> Fill<'v> {
        match (told, slot) {
            (Told::Queued { place, .. }, "position" | "length" | "wait_s" | "ticket") => queue(place, slot),
            (Told::Opened { .. }, "mode") => relay.mode.told.get(&self.mode).map(String::as_str).into(),
            (Told::Opened { prompt_chars }, "prompt_chars") => {
                whole(prompt_chars.saturating_add(relay.prompt_extra_chars))
            }
            (Told::Text(text), "text") => Fill::Str(text),
            (Told::Speech(audio), "audio") => Fill::Str(audio),
            (Told::Output(output), "text") => Fill::Str(output.text),
            (Told::Output(output), "audio") => output.audio.into(),
            (Told::Output(output), "end_of_turn") => Fill::Bool(output.end_of_turn),
            (Told::Answered(text, _), "text") => Fill::Str(text.unwrap_or_default()),
            (Told::Answered(_, audio), "audio") => (*audio).into(),
            (Told::Ended { why, own, .. }, "reason") => match (relay.end(*why), own) {
                (Some(words), Some(own)) if words.own => Fill::Str(own),
                (Some(words), _) => Fill::Str(&words.reason),
                (None, _) => Fill::Null,
            },
            (Told::Ended { detail, .. }, "detail") => (*detail).into(),
            _ => self.about(about, slot),
        }
    }

    fn about<'v>(&self, about: &About<'v>, slot: &str) -> Fill<'v> {
        match slot {
            "session_id" => about.session_id.into(),
            "response_id" => about.response_id.into(),
            "input_id" => about.input_id.into(),
            "context_tokens" => about.context_tokens.map_or(Fill::Null, |tokens| whole(tokens.into())),
            "unix_s" => Fill::Float(self.opened_unix_s + about.at_s),
            _ => Fill::Null,
        }
    }
}

impl Read<'_> {
    /// What it means.
    #[must_use]
    pub fn message(&self) -> ToModel<'_> {
        match self.command.map(|command| command.verb) {
            None => ToModel::Unknown(&self.name),
            Some(RelayVerb::Open) => ToModel::Open(Opening {
                prompt: self.text(Part::Prompt),
                config: match self.part(Part::Config) {
                    Some(Node::Raw(json)) => Some(json),
                    _ => None,
                },
                voice: self.text(Part::Voice),
                speech_voice: self.text(Part::SpeechVoice),
                slice_max: self.integer(Part::SliceMax),
            }),
            Some(RelayVerb::Append) => ToModel::Append(Input {
                audio: self.text(Part::Audio),
                frames: match self.part(Part::Frames) {
                    Some(Node::List(items)) => Some(items),
                    _ => None,
                },
                force_listen: match self.part(Part::ForceListen) {
                    Some(Node::Bool(flag)) => Some(*flag),
                    _ => None,
                },
                slice_max: self.integer(Part::SliceMax),
                input_id: self.text(Part::InputId),
                response_id: self.text(Part::ResponseId),
            }),
            Some(RelayVerb::Close) => ToModel::Close(self.text(Part::Reason)),
        }
    }

    /// What of it has no effect, in words: what nobody knows, what the protocol's file says so of, and what an upstream
    /// that takes only these parts cannot be told.
    pub fn without_effect(&self, takes: impl Fn(Part) -> bool) -> Vec<String> {
        let Some(command) = self.command else { return Vec::new() };
        let unknown = self.found.unknown().iter();
        let unknown = unknown.map(|key| format!("{}: `{key}` is unknown to this bridge", command.name));
        let given = command.fields.iter().filter(|field| value(field, &self.found).is_some());
        let known = given.filter_map(|field| {
            let because = match (&field.because, field.to) {
                (Some(because), _) => because.as_str(),
                (None, Some(part)) if !takes(part) => "the upstream's dialect has nothing like it",
                _ => return None,
            };
            Some(format!("{}: `{}` has no effect: {because}", command.name, field.name))
        });
        unknown.chain(known).collect()
    }

    /// The first field with this meaning that is there.
    fn part(&self, part: Part) -> Option<&Node<'_>> {
        let fields = self.command.map(|command| command.fields.as_slice()).unwrap_or_default();
        fields.iter().filter(|field| field.to == Some(part)).find_map(|field| value(field, &self.found))
    }

    fn text(&self, part: Part) -> Option<&str> {
        self.part(part).and_then(Node::as_str)
    }

    fn integer(&self, part: Part) -> Option<i64> {
        match self.part(part) {
            Some(Node::Int(number)) => Some(*number),
            _ => None,
        }
    }
}

/// A field's value; `null` is as good as none, and an object around audio is not the audio.
fn value<'f>(field: &RelayField, found: &'f Found<'_>) -> Option<&'f Node<'f>> {
    let node = found.get(field.slot).filter(|node| **node != Node::Null)?;
    let wrapped = *node == Node::Object && field.of != RelayType::Object;
    (!wrapped).then_some(node)
}

fn judge(command: &RelayCommand, found: &Found<'_>, native: bool) -> Result<(), Error> {
    for field in command.fields.iter().filter(|field| field.checked || !native) {
        let Some(node) = value(field, found) else { continue };
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

/// What is empty is as good as absent (field notes §4).
fn is_given(field: &RelayField, found: &Found<'_>) -> bool {
    value(field, found).is_some_and(|node| node.as_str() != Some(""))
}

const fn event_name(told: &Told<'_>) -> RelayEvent {
    match told {
        Told::Queued { moved: false, .. } => RelayEvent::Queued,
        Told::Queued { moved: true, .. } => RelayEvent::QueueMoved,
        Told::Granted => RelayEvent::Granted,
        Told::Opened { .. } => RelayEvent::Opened,
        Told::Listening => RelayEvent::Listening,
        Told::Text(_) => RelayEvent::Text,
        Told::Speech(_) => RelayEvent::Speech,
        Told::Output(_) => RelayEvent::Output,
        Told::Answered(..) => RelayEvent::Answered,
        Told::Ended { detail: None, .. } => RelayEvent::Ended,
        Told::Ended { detail: Some(_), .. } => RelayEvent::EndedBecause,
    }
}

/// Bytes of what may be long.
fn weight(told: &Told<'_>) -> usize {
    match told {
        Told::Text(text) | Told::Speech(text) => text.len(),
        Told::Output(output) => output.text.len() + output.audio.map_or(0, str::len),
        Told::Answered(text, audio) => text.map_or(0, str::len) + audio.map_or(0, str::len),
        _ => 0,
    }
}

fn queue<'v>(place: &QueuePlace<'v>, slot: &str) -> Fill<'v> {
    let count = |count: Option<u32>| count.map_or(Fill::Null, |count| Fill::Int(count.into()));
    match slot {
        "position" => count(place.position),
        "length" => count(place.length),
        "wait_s" => place.wait_s.map_or(Fill::Null, Fill::Float),
        _ => place.ticket.into(),
    }
}

fn whole(number: u64) -> Fill<'static> {
    Fill::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
