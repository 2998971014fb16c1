//! Decodes the client's frames: they become [`ClientRequest`]s or neutral errors.

use serde_json::Value;

use super::{
    Codec, CodecKind, IgnoredField,
    field_values::{
        find_flag, find_rate, find_segments_max, find_text, find_turn, to_messages, to_settings,
        to_speak_request, to_video_frame,
    },
    framing::{AudioFormat, FrameContent},
    messages::NO_TEXT,
    realtime,
};
use crate::{
    audio::{input_converter::InputConverter, pcm},
    error::{Error, ErrorKind},
    spelling::{
        ClientMapping,
        client::{Framing, ProtocolCommand, Verb},
        extract::{ExtractError, ExtractedValues, to_snake_case},
        field::{FieldRole, FieldValue, ProtocolField, display_node},
    },
    vocabulary::{AnswerRequest, ClientRequest, CloseReason, Frame, Node, Setting},
};

/// Longest id of a message that its error repeats.
const MESSAGE_ID_MAX_CHARS: usize = 256;

impl Codec {
    /// Reads one frame and passes its events on, in their order. A frame may have several, or none.
    ///
    /// # Errors
    /// The mistake in the frame. The session continues unless the protocol ends it.
    pub fn decode(
        &mut self,
        frame: Frame<'_>,
        mut handle: impl FnMut(ClientRequest<'_>),
    ) -> Result<(), Error> {
        match frame {
            Frame::Binary(bytes) if let Some(at) = self.mapping.exact_binary(bytes) => {
                self.decode_exact(at, handle)
            }
            Frame::Binary(_)
                if !self.mapping.takes_binary_audio && self.framing != Framing::Json && !self.is_call() =>
            {
                let detail = "binary frame: this protocol carries audio in JSON".to_owned();
                Err(Error::new(ErrorKind::Invalid, detail))
            }
            Frame::Binary(bytes) => match self.framing.read(bytes)? {
                FrameContent::Json(text) => self.decode_command(text, handle),
                FrameContent::Audio(bytes, format) => {
                    self.check_audio_size(bytes.len())?;
                    if let Some(change) = format.map(|format| self.note_format(format)).transpose()?.flatten()
                    {
                        handle(change);
                    }
                    if let CodecKind::Live(live) = &self.kind
                        && live.is_muted()
                    {
                        self.audio_bytes.clear();
                        self.audio_bytes.extend_from_slice(bytes);
                        live.mute(&mut self.audio_bytes);
                        handle(ClientRequest::Audio(&self.audio_bytes));
                    } else {
                        handle(ClientRequest::Audio(bytes));
                    }
                    Ok(())
                }
                FrameContent::Announced(bytes) => self.decode_announced(bytes, handle),
                FrameContent::Text(text) if text.trim().is_empty() => Ok(()),
                FrameContent::Text(text) if self.takes_text => {
                    self.pass_message(text.to_owned(), Some(None), &mut handle);
                    Ok(())
                }
                FrameContent::Text(_) => Err(Error::new(ErrorKind::Invalid, NO_TEXT)),
                FrameContent::Interruption => {
                    handle(ClientRequest::CancelSpeech);
                    Ok(())
                }
                FrameContent::Nothing => Ok(()),
            },
            Frame::Text(text) if let Some(at) = self.mapping.exact_text(text) => {
                self.decode_exact(at, handle)
            }
            Frame::Text(text) => match (self.decode_command(text, handle), &self.kind) {
                (Err(error), CodecKind::Realtime(_) | CodecKind::Live(_)) => {
                    Err(realtime::name_message(error, text))
                }
                (decoded, _) => decoded,
            },
        }
    }

    /// True for a session whose audio is a call's.
    fn is_call(&self) -> bool {
        match &self.kind {
            CodecKind::Mapped => false,
            CodecKind::Realtime(realtime) => realtime.is_call,
            CodecKind::Live(live) => live.is_call,
        }
    }

    pub(super) fn check_audio_size(&self, bytes: usize) -> Result<(), Error> {
        let max = self.mapping.audio_in.frame_max_bytes;
        if bytes > max {
            let error = Error::new(ErrorKind::FrameTooLarge, format!("{bytes} bytes (max {max})"));
            return Err(if self.mapping.has_audio_in_json { error.of_field("audio") } else { error });
        }
        Ok(())
    }

    /// Notes the format of a message's audio; gives the change of settings, if it is another one.
    pub(super) fn note_format(
        &mut self,
        format: AudioFormat,
    ) -> Result<Option<ClientRequest<'static>>, Error> {
        if format == self.frame_format {
            return Ok(None);
        }
        let own = &self.mapping.audio_in;
        let rate_hz = if format.rate_hz == 0 { own.rate_hz } else { format.rate_hz };
        let channels = match format.channels {
            0 => own.channels,
            channels => u16::try_from(channels).unwrap_or(u16::MAX),
        };
        InputConverter::with_encoding(own.encoding, rate_hz, channels)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("audio frame: {error}")))?;
        self.frame_format = format;
        Ok(Some(ClientRequest::Adjust(vec![Setting::InputRate(rate_hz), Setting::InputChannels(channels)])))
    }

    /// Reads a message that is a command as a whole, by its index. It has no fields.
    fn decode_exact(&mut self, command: usize, handle: impl FnMut(ClientRequest<'_>)) -> Result<(), Error> {
        let mapping = self.mapping.clone();
        let found = mapping.extractor.extract("{}").map_err(json_error)?;
        self.pass_verbs(&mapping.commands[command], &found, handle)?;
        self.reply_to(&mapping.commands[command]);
        Ok(())
    }

    fn decode_command(&mut self, text: &str, handle: impl FnMut(ClientRequest<'_>)) -> Result<(), Error> {
        let mapping = self.mapping.clone();
        let found = mapping.extract(text).map_err(json_error)?;
        self.decode_found(text, &mapping, &found, handle).map_err(|error| {
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
        mapping: &ClientMapping,
        found: &ExtractedValues<'_>,
        mut handle: impl FnMut(ClientRequest<'_>),
    ) -> Result<(), Error> {
        let command = self.find_command(&mapping.commands, found)?;
        if let Some(each) = &command.each
            && found.get(each.second).is_some()
        {
            return self.decode_each(text, &each.list, &mut handle);
        }
        let mut verbs = command.verbs.iter().map(|it| it.verb);
        match &mut self.kind {
            CodecKind::Mapped => {}
            CodecKind::Realtime(realtime) => {
                realtime.check_numbered(&command.name, command.verbs.first().map(|it| it.verb), text)?;
                if let Some(verb) = verbs.find(|verb| verb.is_realtime() || *verb == Verb::Commit) {
                    return realtime.decode(verb, text, &mut handle);
                }
            }
            CodecKind::Live(live) => match verbs.next() {
                Some(verb) if verb.is_live() => {
                    return live.decode(verb, &command.name, text, &mut handle);
                }
                _ => {}
            },
        }
        self.pass_verbs(command, found, handle)?;
        self.reply_to(command);
        if let (CodecKind::Realtime(realtime), Some(verb)) = (&mut self.kind, command.verbs.first()) {
            realtime.acknowledge(verb.verb, self.audio_bytes.len());
        }
        Ok(())
    }

    /// Reads a message with a list of commands as one message for each of its elements.
    fn decode_each(
        &mut self,
        text: &str,
        list: &str,
        handle: &mut dyn FnMut(ClientRequest<'_>),
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
            self.decode_command(&message.to_string(), &mut *handle)?;
        }
        Ok(())
    }

    /// Finds the command of a message by its name, or by a present field: the first one with a verb that applies, or else the first.
    fn find_command<'m>(
        &self,
        commands: &'m [ProtocolCommand],
        found: &ExtractedValues<'_>,
    ) -> Result<&'m ProtocolCommand, Error> {
        let Some(name) = found.get(0).filter(|name| **name != Node::Null) else {
            let is_present = |command: &&ProtocolCommand| {
                let value = command.present.and_then(|slot| found.get(slot));
                value.is_some_and(|value| *value != Node::Null)
            };
            let applies = |command: &&ProtocolCommand| {
                command.verbs.iter().any(|it| it.applies(found, |at| self.values.get(at)))
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

    /// Reads a command's fields and passes on an event for each verb that applies.
    fn pass_verbs(
        &mut self,
        command: &ProtocolCommand,
        found: &ExtractedValues<'_>,
        mut handle: impl FnMut(ClientRequest<'_>),
    ) -> Result<(), Error> {
        let values = self.read_fields(&command.name, &command.fields, found).map_err(|error| {
            let is_configure = command.verbs.iter().any(|it| it.verb == Verb::Configure);
            match is_configure && self.mapping.spells_configure_errors() {
                true => Error { kind: ErrorKind::InvalidConfigure, ..error },
                false => error,
            }
        })?;
        self.check_takes_text(command)?;
        if let (Some(segments), Some(max)) = (&mut self.segments, find_segments_max(&values)) {
            segments.set_max(max);
        }
        if let [only] = command.verbs.as_slice() {
            return if only.applies(found, |at| self.values.get(at)) {
                self.pass_verb(only.verb, command, found, values, &mut handle)
            } else {
                Ok(())
            };
        }
        for it in &command.verbs {
            if it.applies(found, |at| self.values.get(at)) {
                self.pass_verb(it.verb, command, found, values.clone(), &mut handle)?;
            }
        }
        Ok(())
    }

    fn pass_verb(
        &mut self,
        verb: Verb,
        command: &ProtocolCommand,
        found: &ExtractedValues<'_>,
        values: Vec<(FieldRole, FieldValue)>,
        handle: &mut impl FnMut(ClientRequest<'_>),
    ) -> Result<(), Error> {
        if command.has_own_rate
            && let Some(rate_hz) = find_rate(&values).filter(|_| verb == Verb::Audio)
            && let Some(change) = self.note_format(AudioFormat { rate_hz, channels: 0 })?
        {
            handle(change);
        }
        handle(match verb {
            Verb::Audio if self.is_call() => {
                let detail = "the audio of a call comes by its track".to_owned();
                return Err(Error::new(ErrorKind::Invalid, detail).of_field("type"));
            }
            Verb::Audio => match self.decode_audio(command, found)? {
                Some(bytes) => ClientRequest::Audio(bytes),
                None => return Ok(()),
            },
            Verb::Played => match find_turn(&values) {
                Some(turn) => ClientRequest::Played(turn),
                None => return Ok(()),
            },
            Verb::PauseAudio => ClientRequest::PauseAudio,
            Verb::ResumeAudio => ClientRequest::ResumeAudio,
            Verb::Configure => ClientRequest::Configure(self.read_settings(values)?),
            Verb::Adjust => ClientRequest::Adjust(self.read_settings(values)?),
            Verb::Ask | Verb::Tell => {
                let answer = (verb == Verb::Ask).then_some(find_flag(&values, FieldRole::SpokenAnswer));
                let messages = to_messages(&values)?;
                // The text of a command that has both is for its other verbs.
                let has_list = values.iter().any(|(role, _)| *role == FieldRole::Messages);
                if !messages.is_empty() {
                    self.pass_messages(messages, answer, handle);
                } else if let Some(text) = find_text(values).filter(|_| !has_list) {
                    self.pass_message(text, answer, handle);
                }
                return Ok(());
            }
            Verb::Answer => {
                let request = AnswerRequest { by_client: true, ..AnswerRequest::default() };
                ClientRequest::Answer(Box::new(request))
            }
            Verb::ToolResult => return self.pass_results(values, handle),
            Verb::Speak => ClientRequest::Speak(Box::new(to_speak_request(values)?)),
            Verb::CancelSpeech => ClientRequest::CancelSpeech,
            Verb::AppendText => {
                let request = to_speak_request(values)?;
                ClientRequest::AppendText(request.text, request.request_id)
            }
            Verb::Flush => ClientRequest::Flush(to_speak_request(values)?.request_id),
            Verb::SpeakAppended => ClientRequest::SpeakAppended(to_speak_request(values)?.request_id),
            Verb::Clear => ClientRequest::Clear(to_speak_request(values)?.request_id),
            Verb::Commit => ClientRequest::Commit { may_be_empty: true },
            Verb::Finalize => ClientRequest::Finalize,
            Verb::Complete => ClientRequest::Complete,
            Verb::Finish => ClientRequest::Finish,
            Verb::KeepAlive => ClientRequest::KeepAlive,
            Verb::Frame => ClientRequest::VideoFrame(to_video_frame(values)?),
            Verb::ClearAudio => ClientRequest::ClearAudio,
            Verb::Close => ClientRequest::Close(CloseReason::ClientClose),
            Verb::CancelSession => ClientRequest::Close(CloseReason::ClientCancel),
            // Read by `decode_realtime` and `decode_live`; other protocols have none of them.
            Verb::SessionUpdate
            | Verb::ItemCreate
            | Verb::ItemRetrieve
            | Verb::ItemTruncate
            | Verb::ItemDelete
            | Verb::ResponseCreate
            | Verb::ResponseCancel
            | Verb::EndInput
            | Verb::LiveStart
            | Verb::LiveMute
            | Verb::LiveUnmute
            | Verb::LiveAppend
            | Verb::LiveUpdate
            | Verb::LiveDelegate => return Ok(()),
        });
        Ok(())
    }

    /// The settings among the values. Notes those that concern messages to the client.
    fn read_settings(&mut self, values: Vec<(FieldRole, FieldValue)>) -> Result<Vec<Setting>, Error> {
        if let Some(on) = find_flag(&values, FieldRole::AnswerWords) {
            self.sends_answer_words = on;
        }
        let settings = to_settings(values)?;
        settings.iter().for_each(|setting| self.note_setting(setting));
        Ok(settings)
    }

    /// Decodes the base64 audio of a command; `None` for a command without audio, or with none.
    fn decode_audio(
        &mut self,
        command: &ProtocolCommand,
        found: &ExtractedValues<'_>,
    ) -> Result<Option<&[u8]>, Error> {
        let base64 =
            command.audio.and_then(|slot| found.get(slot)).and_then(Node::as_str).unwrap_or_default();
        // Checked before decoding too, so that a long text costs nothing. Padding makes a text up to 2 bytes too long.
        self.check_audio_size((base64.len() / 4 * 3).saturating_sub(2))?;
        self.audio_bytes.clear();
        pcm::decode_base64(base64, &mut self.audio_bytes).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("'{}': the audio is not base64: {error}", command.name))
                .of_field("audio")
        })?;
        self.check_audio_size(self.audio_bytes.len())?;
        if let CodecKind::Live(live) = &self.kind {
            live.mute(&mut self.audio_bytes);
        }
        Ok(Some(self.audio_bytes.as_slice()).filter(|bytes| !bytes.is_empty()))
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
                        && let Err(problem) = self.values.check_same(at, value)
                    {
                        problems.push((field, problem));
                        continue;
                    }
                    if let (Some(at), Some(value)) = (field.remember, &read) {
                        self.values.remember(at, value);
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
            self.ignored.push(IgnoredField {
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
        self.ignored.push(IgnoredField {
            command: command.to_owned(),
            field: field.name.clone(),
            because: field.file.because.clone().unwrap_or_default(),
            is_needed: false,
        });
        None
    }
}

fn json_error(error: ExtractError) -> Error {
    match error {
        ExtractError::Json(detail) => Error::new(ErrorKind::MalformedJson, detail),
        ExtractError::NotAnObject(found) => Error::new(ErrorKind::NotAnObject, found),
    }
}

pub(super) fn invalid_error<'f>(
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
