//! Decodes the client's frames: they become [`ClientRequest`]s or neutral errors.

use serde_json::Value;

use super::{
    super::json_text::mended,
    ClientCodec, CommandMessage, IgnoredField, MappedCodec, NO_TEXT, RequestHandler,
    field_values::{
        find_flag, find_rate, find_segments_max, find_text, to_messages, to_request, to_settings,
    },
    framing::{FrameAudioFormat, FrameContent},
    messages::answer_request,
    tools::to_results,
};
use crate::{
    error::{Error, ErrorKind},
    spelling::{
        client::{Framing, ProtocolCommand, Verb},
        extract::{ExtractError, ExtractedValues, to_snake_case},
        field::{FieldRole, FieldValue, ProtocolField, display_node},
    },
    vocabulary::{ClientRequest, EventName, Frame, Node, Setting},
};

/// Longest id of a message that its error repeats.
const MESSAGE_ID_MAX_CHARS: usize = 256;

impl MappedCodec {
    /// Reads one frame and passes its requests on, in their order. The protocol may read commands in its own way.
    ///
    /// # Errors
    /// The mistake in the frame.
    pub(in crate::client) fn decode(
        &mut self,
        frame: Frame<'_>,
        protocol: &mut (impl ClientCodec + ?Sized),
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let decoded = match frame {
            Frame::Binary(bytes) => self.decode_binary(bytes, protocol, handle),
            Frame::Text(text) => match self.mapping.exact_text(text) {
                Some(at) => self.decode_exact(at, handle),
                None => self.decode_text(text, protocol, handle).or_else(|error| {
                    let mended = mended(text).filter(|_| error.kind == ErrorKind::MalformedJson);
                    mended.map_or(Err(error), |text| self.decode_text(&text, protocol, handle))
                }),
            },
        };
        protocol.take_notes(&mut self.notes);
        decoded
    }

    fn decode_binary(
        &mut self,
        bytes: &[u8],
        protocol: &mut (impl ClientCodec + ?Sized),
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        if let Some(at) = self.mapping.exact_binary(bytes) {
            return self.decode_exact(at, handle);
        }
        if !self.mapping.takes_binary_audio && self.events.framing != Framing::Json && !self.is_call {
            let detail = "binary frame: this protocol carries audio in JSON".to_owned();
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        match self.events.framing.read(bytes)? {
            FrameContent::Json(text) => return self.decode_text(text, protocol, handle),
            FrameContent::Audio(audio, format) => return self.audio.pass(audio, format, handle),
            FrameContent::Announced(bytes) => return self.audio.pass_announced(bytes, handle),
            FrameContent::Text(text) if text.trim().is_empty() => {}
            FrameContent::Text(_) if !self.takes_text => return Err(Error::new(ErrorKind::Invalid, NO_TEXT)),
            FrameContent::Text(text) => {
                self.entries.pass_text(text.to_owned(), Some(answer_request(None)), handle);
            }
            FrameContent::Interruption => handle(ClientRequest::CancelSpeech),
            FrameContent::Nothing => {}
        }
        Ok(())
    }

    /// Reads a message that is a command as a whole, by its index. It has no fields.
    fn decode_exact(&mut self, command: usize, handle: &mut RequestHandler<'_>) -> Result<(), Error> {
        let mapping = self.mapping.clone();
        let found = mapping.extractor.extract("{}").map_err(json_error)?;
        let message = CommandMessage { command: &mapping.commands[command], text: "{}", found: &found };
        self.pass_command(&message, handle)
    }

    fn decode_text(
        &mut self,
        text: &str,
        protocol: &mut (impl ClientCodec + ?Sized),
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let mapping = self.mapping.clone();
        let found = mapping.extract(text).map_err(json_error)?;
        self.decode_found(text, &mapping.commands, &found, protocol, handle).map_err(|error| {
            let id = mapping.message_id.and_then(|slot| found.get(slot)).and_then(Node::as_str);
            match id {
                Some(id) => error.for_request(id.chars().take(MESSAGE_ID_MAX_CHARS).collect::<String>()),
                None => error,
            }
        })
    }

    fn decode_found(
        &mut self,
        text: &str,
        commands: &[ProtocolCommand],
        found: &ExtractedValues<'_>,
        protocol: &mut (impl ClientCodec + ?Sized),
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let command = self.find_command(commands, found)?;
        match &command.each {
            Some(each) if found.get(each.second).is_some() => {
                split_list(text, &each.list, |message| self.decode_text(message, protocol, handle))
            }
            _ => protocol.decode_command(self, &CommandMessage { command, text, found }, handle),
        }
    }

    /// Finds the command of a message by its name, or by a present field: the first one with a verb that applies, or else the first.
    fn find_command<'m>(
        &self,
        commands: &'m [ProtocolCommand],
        found: &ExtractedValues<'_>,
    ) -> Result<&'m ProtocolCommand, Error> {
        let values = &self.events.slots.values;
        let Some(name) = found.get(0).filter(|name| **name != Node::Null) else {
            let is_present = |command: &&ProtocolCommand| {
                let value = command.present.and_then(|slot| found.get(slot));
                value.is_some_and(|value| *value != Node::Null)
            };
            let applies = |command: &&ProtocolCommand| {
                command.verbs.iter().any(|verb| verb.applies(found, |at| values.get(at)))
            };
            let mut present = commands.iter().filter(is_present);
            let first = present.next().ok_or_else(|| Error::new(ErrorKind::MissingCommand, ""))?;
            return Ok(std::iter::once(first).chain(present).find(applies).unwrap_or(first));
        };
        let is_it = |command: &&ProtocolCommand| {
            command.present.is_none()
                && command.exactly.is_none()
                && Some(command.name.as_str()) == name.as_str()
        };
        commands.iter().find(is_it).ok_or_else(|| {
            // Quotes a number too, like the real server: Unknown command type: '5'.
            let name = display_node(name);
            let name = if name.starts_with('\'') { name } else { format!("'{name}'") };
            Error::new(ErrorKind::UnknownCommand, name)
        })
    }

    /// Reads a command as its mapping file describes it.
    ///
    /// # Errors
    /// The mistake in the message.
    pub(in crate::client) fn pass_command(
        &mut self,
        message: &CommandMessage<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        self.pass_verbs(message.command, message.found, handle)?;
        self.events.reply_to(message.command, &mut |reply| self.notes.replies.push(reply));
        Ok(())
    }

    /// Reads a command's fields and passes on a request for each verb that applies.
    fn pass_verbs(
        &mut self,
        command: &ProtocolCommand,
        found: &ExtractedValues<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let values = self.read_fields(&command.name, &command.fields, found).map_err(|error| {
            let is_configure = command.verbs.iter().any(|spelled| spelled.verb == Verb::Configure);
            match is_configure && self.mapping.spells_configure_errors() {
                true => Error { kind: ErrorKind::InvalidConfigure, ..error },
                false => error,
            }
        })?;
        self.check_takes_text(command)?;
        if let (Some(segments), Some(max)) = (&mut self.events.segments, find_segments_max(&values)) {
            segments.set_max(max);
        }
        if let [only] = command.verbs.as_slice() {
            return if only.applies(found, |at| self.events.slots.values.get(at)) {
                self.pass_verb(only.verb, command, found, values, handle)
            } else {
                Ok(())
            };
        }
        for spelled in &command.verbs {
            if spelled.applies(found, |at| self.events.slots.values.get(at)) {
                self.pass_verb(spelled.verb, command, found, values.clone(), handle)?;
            }
        }
        Ok(())
    }

    /// Refuses a text of the user that the model does not take, where the protocol can say so.
    fn check_takes_text(&self, command: &ProtocolCommand) -> Result<(), Error> {
        let is_text = || command.verbs.iter().any(|it| matches!(it.verb, Verb::Ask | Verb::Tell));
        if !self.takes_text && !self.mapping.event(EventName::RequestFailed).is_empty() && is_text() {
            return Err(Error::new(ErrorKind::Invalid, format!("'{}': {NO_TEXT}", command.name)));
        }
        Ok(())
    }

    fn pass_verb(
        &mut self,
        verb: Verb,
        command: &ProtocolCommand,
        found: &ExtractedValues<'_>,
        values: Vec<(FieldRole, FieldValue)>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        match verb {
            Verb::Audio => return self.pass_audio(command, found, &values, handle),
            Verb::Configure => handle(ClientRequest::Configure(self.read_settings(values)?)),
            Verb::Adjust => handle(ClientRequest::Adjust(self.read_settings(values)?)),
            Verb::Ask | Verb::Tell => return self.pass_texts(verb, values, handle),
            Verb::ToolResult => {
                return self.entries.pass_results(to_results(values), &mut self.events.calls, handle);
            }
            _ => {
                if let Some(request) = to_request(verb, values)? {
                    handle(request);
                }
            }
        }
        Ok(())
    }

    /// Passes on the audio of a command, behind its format if that is another one.
    fn pass_audio(
        &mut self,
        command: &ProtocolCommand,
        found: &ExtractedValues<'_>,
        values: &[(FieldRole, FieldValue)],
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        if let Some(rate_hz) = find_rate(values).filter(|_| command.has_own_rate) {
            self.audio.note_format(FrameAudioFormat { rate_hz, channels: 0 }, handle)?;
        }
        if self.is_call {
            let detail = "the audio of a call comes by its track".to_owned();
            return Err(Error::new(ErrorKind::Invalid, detail).of_field("type"));
        }
        let base64 = command.audio.and_then(|slot| found.get(slot)).and_then(Node::as_str);
        self.audio.pass_base64(&command.name, base64.unwrap_or_default(), handle)
    }

    /// Passes on texts for the conversation, and the request for an answer to them.
    fn pass_texts(
        &mut self,
        verb: Verb,
        values: Vec<(FieldRole, FieldValue)>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let answer = (verb == Verb::Ask).then(|| answer_request(find_flag(&values, FieldRole::SpokenAnswer)));
        let messages = to_messages(&values)?;
        // The text of a command that has both is for its other verbs.
        let has_list = values.iter().any(|(role, _)| *role == FieldRole::Messages);
        if !messages.is_empty() {
            self.entries.pass_messages(messages, answer, handle);
        } else if let Some(text) = find_text(values).filter(|_| !has_list) {
            self.entries.pass_text(text, answer, handle);
        }
        Ok(())
    }

    /// The settings among the values. Notes those that concern messages to the client.
    fn read_settings(&mut self, values: Vec<(FieldRole, FieldValue)>) -> Result<Vec<Setting>, Error> {
        if let Some(on) = find_flag(&values, FieldRole::AnswerWords) {
            self.events.answers.sends_spoken = on;
        }
        let settings = to_settings(values)?;
        settings.iter().for_each(|setting| self.note_setting(setting));
        Ok(settings)
    }

    /// Reads all fields; the error names every invalid one.
    fn read_fields(
        &mut self,
        command: &str,
        fields: &[ProtocolField],
        found: &ExtractedValues<'_>,
    ) -> Result<Vec<(FieldRole, FieldValue)>, Error> {
        let mut values = Vec::with_capacity(fields.len());
        let mut problems = Vec::new();
        for field in fields {
            match field.read(found.get(field.slot)) {
                Err(problem) => problems.push((field, problem)),
                Ok(read) => {
                    if let (Some(at), Some(value)) = (field.same_as, &read)
                        && let Err(problem) = self.events.slots.values.check_same(at, value)
                    {
                        problems.push((field, problem));
                        continue;
                    }
                    if let (Some(at), Some(value)) = (field.remember, &read) {
                        self.events.slots.values.remember(at, value);
                    }
                    let value = self.keep_effective(field, command, read);
                    values.extend(field.file.to.zip(value));
                }
            }
        }
        if problems.is_empty() { Ok(values) } else { Err(invalid_error(command, problems)) }
    }

    /// Gives a value with an effect, and notes one without.
    pub(super) fn keep_effective(
        &mut self,
        field: &ProtocolField,
        command: &str,
        value: Option<FieldValue>,
    ) -> Option<FieldValue> {
        let value = value?;
        let offers_in_vain = field.file.to == Some(FieldRole::Tools)
            && !self.calls_tools
            && !matches!(&value, FieldValue::Items(tools) if tools.is_empty());
        if offers_in_vain {
            self.notes.ignored.push(IgnoredField {
                command: command.to_owned(),
                field: field.name.clone(),
                because: "only profiles with [answer.tools] call tools".to_owned(),
                is_needed: true,
            });
            return None;
        }
        if field.file.to.is_some() && field.is_effective(&value) {
            return Some(value);
        }
        if field.remember.is_some() || field.same_as.is_some() {
            return None;
        }
        self.notes.ignored.push(IgnoredField {
            command: command.to_owned(),
            field: field.name.clone(),
            because: field.file.because.clone().unwrap_or_default(),
            is_needed: false,
        });
        None
    }
}

/// Reads a message with a list of commands as one message for each of its elements.
fn split_list(
    text: &str,
    list: &str,
    mut decode: impl FnMut(&str) -> Result<(), Error>,
) -> Result<(), Error> {
    let malformed = |error: serde_json::Error| Error::new(ErrorKind::MalformedJson, error.to_string());
    let mut message: Value = serde_json::from_str(text).map_err(malformed)?;
    let in_snake_case = to_snake_case(list);
    let list = if message.pointer(list).is_some() { list } else { &in_snake_case };
    let elements = message.pointer_mut(list).and_then(Value::as_array_mut).map(std::mem::take);
    for element in elements.unwrap_or_default() {
        if let Some(list) = message.pointer_mut(list) {
            *list = Value::Array(vec![element]);
        }
        decode(&message.to_string())?;
    }
    Ok(())
}

fn json_error(error: ExtractError) -> Error {
    match error {
        ExtractError::Json(detail) => Error::new(ErrorKind::MalformedJson, detail),
        ExtractError::NotAnObject(found) => Error::new(ErrorKind::NotAnObject, found),
    }
}

pub(in crate::client) fn invalid_error<'f>(
    command: &str,
    problems: impl IntoIterator<Item = (&'f ProtocolField, String)>,
) -> Error {
    let mut first = None;
    let describe = |(field, problem): (&'f ProtocolField, String)| {
        first.get_or_insert(&field.name);
        format!("{}: {problem}", field.name)
    };
    let problems: Vec<String> = problems.into_iter().map(describe).collect();
    let error = Error::new(ErrorKind::Invalid, format!("'{command}': {}", problems.join("; ")));
    Error { param: first.cloned(), ..error }
}
