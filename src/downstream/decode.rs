//! What came from the client: frames and the query string become [`ClientEvent`]s, or an error in neutral words.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use super::{Codec, Ignored, picture, reference};
use crate::{
    audio::{encoding::Encoding, vad::Sensitivity},
    error::{Error, ErrorKind},
    event::{ClientEvent, CloseName, Frame, Microphone, Setting, SpeakRequest, VideoFrame},
    mapping::{
        client::{Command, Verb},
        extract::{ExtractError, Found, Node},
        field::{Field, Target, TypeName, Value, shown},
    },
};

/// What a connection asks for by its query string.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Connect {
    /// The model; `None` when the query names none.
    pub model: Option<String>,
    /// Settings named in the query.
    pub settings: Vec<Setting>,
    /// Parameters that are wrong; the session goes on without them.
    pub problems: Vec<Error>,
}

impl Codec {
    /// Reads the query string (percent-encoded, without `?`); unknown parameters are ignored, as clients expect.
    #[must_use]
    pub fn connect(&mut self, query: &str) -> Connect {
        let mut connect = Connect::default();
        let mapping = self.mapping.clone();
        let given: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        for field in &mapping.query {
            let absent = given.iter().all(|(name, _)| *name != *field.name);
            if let Some(text) = field.file.default.as_ref().filter(|_| absent) {
                self.parameter(field, vec![text.as_str().into()], &mut connect);
            }
        }
        for (at, (name, value)) in given.iter().enumerate() {
            let Some(field) = mapping.query.iter().find(|field| field.name == *name) else { continue };
            if field.file.of != TypeName::TextList {
                self.parameter(field, vec![value.clone()], &mut connect);
            } else if given[..at].iter().all(|(before, _)| before != name) {
                // A list is spelled by repeating the parameter.
                let all = given.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone());
                self.parameter(field, all.collect(), &mut connect);
            }
        }
        complete_rates(&mapping.audio_in.rates_hz, &mapping.audio_out.rates_hz, &mut connect.settings);
        connect
    }

    /// Reads a query parameter; only a list has several values.
    fn parameter(&mut self, field: &Field, mut values: Vec<Cow<'_, str>>, connect: &mut Connect) {
        // A model's name is only matched and echoed: a long one is cut, not taken for a missing one.
        let names_model = matches!(field.file.to, Some(Target::Model | Target::ModelAndVoice));
        if let Some(max) = field.file.max.filter(|_| names_model) {
            values.iter_mut().for_each(|value| *value = value.chars().take(max as usize).collect());
        }
        let mut nodes = values.into_iter().map(Node::Str);
        let node = match field.file.of {
            TypeName::TextList => Some(Node::List(nodes.collect())),
            _ => nodes.next(),
        };
        let read = match field.read(node.as_ref()) {
            Ok(read) => read,
            Err(problem) => return connect.problems.push(invalid("connect", [(field, problem)])),
        };
        let Some(value) = self.effective(field, "connect", read) else { return };
        match (field.file.to, value) {
            (Some(Target::Model), Value::Text(model)) => connect.model = Some(model),
            (Some(Target::ModelAndVoice), Value::Text(model)) => {
                connect.settings.push(Setting::SpeakModelIfKnown(model.clone()));
                connect.model = Some(model);
            }
            (Some(target), value) => connect.settings.extend(setting(target, value)),
            (None, _) => {}
        }
    }

    /// Reads one frame.
    ///
    /// # Errors
    /// Whatever is wrong with it; the session goes on unless the protocol says otherwise.
    pub fn decode<'a>(&mut self, frame: Frame<'a>) -> Result<ClientEvent<'a>, Error> {
        match frame {
            Frame::Binary(bytes) => self.audio(bytes),
            Frame::Text(text) => self.command(text),
        }
    }

    /// No frame of audio may be longer.
    pub(crate) fn frame_max_bytes(&self) -> usize {
        self.mapping.audio_in.frame_max_bytes
    }

    fn audio<'a>(&self, bytes: &'a [u8]) -> Result<ClientEvent<'a>, Error> {
        let max = self.mapping.audio_in.frame_max_bytes;
        if bytes.len() > max {
            let detail = format!("{} bytes (max {max})", bytes.len());
            return Err(Error::new(ErrorKind::FrameTooLarge, detail));
        }
        Ok(ClientEvent::Audio(bytes))
    }

    fn command(&mut self, text: &str) -> Result<ClientEvent<'static>, Error> {
        let mapping = self.mapping.clone();
        let found = mapping.shape.extract(text).map_err(|error| match error {
            ExtractError::Json(detail) => Error::new(ErrorKind::MalformedJson, detail),
            ExtractError::NotAnObject(found) => Error::new(ErrorKind::NotAnObject, found),
        })?;
        let command = named(&mapping.commands, &found)?;
        let values = self.fields(&command.name, &command.fields, &found)?;
        match command.verb {
            Verb::Configure => Ok(ClientEvent::Configure(settings(values))),
            Verb::Speak => speak_request(values).map(|request| ClientEvent::Speak(Box::new(request))),
            Verb::CancelSpeech => Ok(ClientEvent::CancelSpeech),
            Verb::AppendText => speak_request(values).map(|request| ClientEvent::AppendText(request.text)),
            Verb::Flush => Ok(ClientEvent::Flush),
            Verb::Clear => Ok(ClientEvent::Clear),
            Verb::Commit => Ok(ClientEvent::Commit),
            Verb::Finalize => Ok(ClientEvent::Finalize),
            Verb::Finish => Ok(ClientEvent::Finish),
            Verb::KeepAlive => Ok(ClientEvent::KeepAlive),
            Verb::Frame => video_frame(values).map(ClientEvent::Frame),
            Verb::Close => Ok(ClientEvent::Close(CloseName::ClientClose)),
            Verb::CancelSession => Ok(ClientEvent::Close(CloseName::ClientCancel)),
        }
    }

    /// Every field's value, or an error that names every bad one.
    fn fields(
        &mut self,
        command: &str,
        fields: &[Field],
        found: &Found<'_>,
    ) -> Result<Vec<(Target, Value)>, Error> {
        let mut values = Vec::new();
        let mut problems = Vec::new();
        for field in fields {
            match field.read(found.get(field.slot)) {
                Err(problem) => problems.push((field, problem)),
                Ok(read) => {
                    let value = self.effective(field, command, read);
                    values.extend(field.file.to.zip(value));
                }
            }
        }
        if problems.is_empty() { Ok(values) } else { Err(invalid(command, problems)) }
    }

    /// The value if it does anything; one that does nothing is noted.
    fn effective(&mut self, field: &Field, command: &str, value: Option<Value>) -> Option<Value> {
        let value = value?;
        if field.file.to.is_some() && field.acts(&value) {
            return Some(value);
        }
        self.ignored.push(Ignored {
            command: command.to_owned(),
            field: field.name.clone(),
            because: field.file.because.clone().unwrap_or_default(),
        });
        None
    }
}

/// The command that a message is: by its name, else by what is in it.
fn named<'m>(commands: &'m [Command], found: &Found<'_>) -> Result<&'m Command, Error> {
    let Some(name) = found.get(0).filter(|name| **name != Node::Null) else {
        let present = |command: &&Command| command.present.is_some_and(|slot| found.get(slot).is_some());
        let command = commands.iter().find(present);
        return command.ok_or_else(|| Error::new(ErrorKind::MissingCommand, ""));
    };
    let is_it =
        |command: &&Command| command.present.is_none() && Some(command.name.as_str()) == name.as_str();
    commands.iter().find(is_it).ok_or_else(|| {
        // A number is quoted too, as the real server does: Unknown command type: '5'.
        let name = shown(name);
        let name = if name.starts_with('\'') { name } else { format!("'{name}'") };
        Error::new(ErrorKind::UnknownCommand, name)
    })
}

/// A client that names an encoding and no rate means the rate that goes with it.
fn complete_rates(
    heard: &BTreeMap<Encoding, u32>,
    spoken: &BTreeMap<Encoding, u32>,
    settings: &mut Vec<Setting>,
) {
    let (mut input, mut output) = (None, None);
    for setting in settings.iter() {
        match setting {
            Setting::InputEncoding(encoding) if input.is_none() => input = heard.get(encoding).copied(),
            Setting::OutputEncoding(encoding) if output.is_none() => output = spoken.get(encoding).copied(),
            _ => {}
        }
    }
    // Before what the client set itself, which counts.
    settings.splice(..0, input.map(Setting::InputRate).into_iter().chain(output.map(Setting::OutputRate)));
}

fn invalid<'f>(command: &str, problems: impl IntoIterator<Item = (&'f Field, String)>) -> Error {
    let problems: Vec<String> =
        problems.into_iter().map(|(field, problem)| format!("{}: {problem}", field.name)).collect();
    Error::new(ErrorKind::Invalid, format!("'{command}': {}", problems.join("; ")))
}

fn settings(values: Vec<(Target, Value)>) -> Vec<Setting> {
    values.into_iter().filter_map(|(target, value)| setting(target, value)).collect()
}

/// A setting by its target; `None` for targets that are no settings.
fn setting(target: Target, value: Value) -> Option<Setting> {
    // A number beyond what a rate can be is kept as the greatest, which is refused with the range when it is applied.
    let as_u32 = |number: i64| u32::try_from(number).unwrap_or(if number < 0 { 0 } else { u32::MAX });
    Some(match (target, value) {
        (Target::Language, Value::Text(language)) => Setting::Language(language),
        (Target::HotWords, Value::TextList(words)) => Setting::HotWords(words),
        (Target::VadSensitivity, Value::Text(name)) => Setting::VadSensitivity(match name.as_str() {
            "high" => Sensitivity::High,
            "low" => Sensitivity::Low,
            _ => Sensitivity::Normal,
        }),
        (Target::EndSilenceMs, Value::Integer(ms)) => Setting::EndSilence(milliseconds(ms)),
        (Target::SegmentMaxMs, Value::Integer(ms)) => Setting::SegmentMax(milliseconds(ms)),
        (Target::Partials, Value::Flag(on)) => Setting::Partials(on),
        (Target::SpeakModel, Value::Text(name)) => Setting::SpeakModel(name),
        (Target::SpeakModelIfKnown, Value::Text(name)) => Setting::SpeakModelIfKnown(name),
        (Target::Voice, Value::Text(name)) => Setting::Voice(name),
        (Target::InputEncoding, Value::Text(name)) => Setting::InputEncoding(Encoding::named(&name)?),
        (Target::OutputEncoding, Value::Text(name)) => Setting::OutputEncoding(Encoding::named(&name)?),
        (Target::SpeechEvents, Value::Flag(on)) => Setting::SpeechEvents(on),
        (Target::UtteranceGapMs, Value::Integer(ms)) => Setting::UtteranceGap(milliseconds(ms)),
        (Target::InputRateHz, Value::Integer(rate)) => Setting::InputRate(as_u32(rate)),
        (Target::InputChannels, Value::Integer(count)) => {
            Setting::InputChannels(u16::try_from(count).unwrap_or(u16::MAX))
        }
        (Target::OutputRateHz, Value::Integer(rate)) => Setting::OutputRate(as_u32(rate)),
        (Target::Microphone, Value::Text(name)) => Setting::Microphone(match name.as_str() {
            "muted" => Microphone::Muted,
            _ => Microphone::Open,
        }),
        (Target::RolloverEvents, Value::Flag(on)) => Setting::RolloverEvents(on),
        _ => return None,
    })
}

fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn speak_request(values: Vec<(Target, Value)>) -> Result<SpeakRequest, Error> {
    let mut request = SpeakRequest::default();
    for (target, value) in values {
        let Value::Text(text) = value else { continue };
        match target {
            Target::Text => request.text = text,
            // "" counts as absent, as on the real server (field notes macaw.md §1.4).
            Target::RequestId => request.request_id = Some(text).filter(|id| !id.is_empty()),
            Target::Voice => request.voice = Some(text),
            Target::Language => request.language = Some(text),
            Target::Instruction => request.instruction = Some(text).filter(|words| !words.trim().is_empty()),
            Target::ReferenceAudio => request.reference = reference::read(&text)?,
            _ => {}
        }
    }
    Ok(request)
}

/// A picture, ready for the upstream's wire.
fn video_frame(values: Vec<(Target, Value)>) -> Result<VideoFrame, Error> {
    let image = values.into_iter().find_map(|value| match value {
        (Target::Image, Value::Text(image)) => Some(image),
        _ => None,
    });
    let image = image.unwrap_or_default();
    let image = image.rsplit_once(";base64,").map_or(image.as_str(), |(_, data)| data);
    picture::read(image).map_err(|problem| Error::new(ErrorKind::Invalid, format!("'image': {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Library;

    fn codec() -> Codec {
        Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 0.0)
    }

    #[test]
    fn what_is_kept_echoed_and_logged_is_bounded_and_so_is_what_is_said_about_it() {
        for (command, field, most) in [
            ("session.configure", "language", 256),
            ("session.configure", "model_tts", 256),
            ("tts.speak", "voice", 256),
            ("tts.speak", "language", 256),
            ("tts.speak", "request_id", 256),
            ("tts.speak", "instruction", 2000),
        ] {
            let told = |letters: usize| {
                let json = serde_json::json!({"type": command, "text": "Hi", field: "ü".repeat(letters)});
                codec().decode(Frame::Text(&json.to_string())).map(drop)
            };
            assert_eq!(told(most), Ok(()), "{command} {field}");
            let error = told(100_000).unwrap_err();
            assert!(error.kind == ErrorKind::Invalid && error.detail.len() < 200, "{}", error.detail);
        }
        for words in [vec!["a".repeat(257)], vec!["a".to_owned(); 257]] {
            let json = serde_json::json!({"type": "session.configure", "hot_words": words});
            assert!(codec().decode(Frame::Text(&json.to_string())).is_err());
        }
        // The real server never looks at these; a bad one is as good as none.
        let json = serde_json::json!({"type": "session.configure", "tts_voice": "a".repeat(257)});
        assert_eq!(codec().decode(Frame::Text(&json.to_string())), Ok(ClientEvent::Configure(Vec::new())));
    }

    #[test]
    fn so_is_the_query() {
        let long = "a".repeat(257);
        let connect = codec().connect(&format!("model={long}&language={long}"));
        assert_eq!(connect.model.as_deref(), Some(&long[1..]), "any model will do, so this one is cut");
        assert!(connect.settings.is_empty() && connect.problems.len() == 1, "{connect:?}");
    }
}
