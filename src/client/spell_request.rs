//! Requests of a client within this process, as the commands of its protocol: checked against the protocol's limits, and spelled
//! for traces.
//!
//! To add: a request or setting that such a client has. It is the inverse of `field_values`.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::mapped::invalid_error;
use crate::{
    audio::pcm::s16le_bytes,
    error::Error,
    spelling::{
        ClientMapping,
        client::{ProtocolCommand, Verb},
        field::{FieldRole, ProtocolField},
    },
    vocabulary::{ClientRequest, Node, Setting, SpeakRequest, VoiceSample},
};

/// A value of a command.
struct SpelledField<'s> {
    field: &'s ProtocolField,
    value: Node<'s>,
}

/// Checks a request against the limits of the protocol's fields.
///
/// # Errors
/// The mistakes, as in a message of the protocol.
pub(crate) fn check_request(mapping: &ClientMapping, request: &ClientRequest<'_>) -> Result<(), Error> {
    let Some((command, fields)) = find_request(mapping, request) else { return Ok(()) };
    let problems = fields.iter().filter_map(|it| Some((it.field, it.field.read(Some(&it.value)).err()?)));
    let problems: Vec<_> = problems.collect();
    if problems.is_empty() { Ok(()) } else { Err(invalid_error(&command.name, problems)) }
}

/// The message that asks for the same; `None` for audio, and for a request that the protocol does not have.
pub(crate) fn spell_request(mapping: &ClientMapping, request: &ClientRequest<'_>) -> Option<String> {
    let (command, fields) = find_request(mapping, request)?;
    let name = mapping.command_key.trim_start_matches('/').to_owned();
    let mut message = Map::from_iter([(name, Value::from(command.name.as_str()))]);
    message.extend(fields.iter().map(|it| (it.field.name.clone(), to_json(&it.value))));
    Some(Value::Object(message).to_string())
}

/// The command of a request with its fields.
fn find_request<'s>(
    mapping: &'s ClientMapping,
    request: &'s ClientRequest<'_>,
) -> Option<(&'s ProtocolCommand, Vec<SpelledField<'s>>)> {
    let (verb, mut values): (_, Vec<_>) = match request {
        ClientRequest::Configure(settings) => {
            (Verb::Configure, settings.iter().filter_map(setting_value).collect())
        }
        ClientRequest::Speak(request) => (Verb::Speak, speak_values(request)),
        ClientRequest::Finish => (Verb::Finish, Vec::new()),
        _ => return None,
    };
    let command = mapping.commands.iter().find(|command| command.verbs.iter().any(|it| it.verb == verb))?;
    let mut with_value = |field: &'s ProtocolField| {
        let at = values.iter().position(|(role, _)| Some(*role) == field.file.to)?;
        Some(SpelledField { field, value: values.swap_remove(at).1 })
    };
    Some((command, command.fields.iter().filter_map(&mut with_value).collect()))
}

fn setting_value(setting: &Setting) -> Option<(FieldRole, Node<'_>)> {
    Some(match setting {
        Setting::Language(language) => (FieldRole::Language, text(language)),
        Setting::HotWords(words) => {
            (FieldRole::HotWords, Node::List(words.iter().map(|word| text(word)).collect()))
        }
        Setting::TranscriptionPrompt(words) => (FieldRole::TranscriptionPrompt, text(words)),
        Setting::Task(on) => (FieldRole::Task, text(if *on { "translate" } else { "transcribe" })),
        Setting::Partials(on) => (FieldRole::Partials, Node::Bool(*on)),
        Setting::WordTimes(on) => (FieldRole::WordTimes, Node::Bool(*on)),
        Setting::EstimatedWordTimes(on) => (FieldRole::EstimatedWordTimes, Node::Bool(*on)),
        Setting::OutputRateHz(rate_hz) => (FieldRole::OutputRateHz, Node::Int((*rate_hz).into())),
        _ => return None,
    })
}

fn speak_values(request: &SpeakRequest) -> Vec<(FieldRole, Node<'_>)> {
    let SpeakRequest { text: words, request_id, voice, language, reference, instruction } = request;
    let texts = [
        (FieldRole::Text, Some(words)),
        (FieldRole::RequestId, request_id.as_ref()),
        (FieldRole::Voice, voice.as_ref()),
        (FieldRole::Language, language.as_ref()),
        (FieldRole::Instruction, instruction.as_ref()),
    ];
    let texts = texts.into_iter().filter_map(|(role, value)| Some((role, text(value?))));
    texts.chain(reference.as_ref().map(|voice| (FieldRole::ReferenceAudio, raw_base64(voice)))).collect()
}

/// The samples as raw int16, which [`super::reference`] reads.
fn raw_base64(voice: &VoiceSample) -> Node<'static> {
    Node::Str(Cow::Owned(STANDARD.encode(s16le_bytes(&voice.samples))))
}

const fn text(text: &str) -> Node<'_> {
    Node::Str(Cow::Borrowed(text))
}

fn to_json(value: &Node<'_>) -> Value {
    match value {
        Node::Str(text) => Value::from(text.as_ref()),
        Node::Bool(on) => Value::from(*on),
        Node::Int(number) => Value::from(*number),
        Node::List(items) => items.iter().map(to_json).collect(),
        Node::Null | Node::Float(_) | Node::Object | Node::Raw(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client::Codec, error::ErrorKind, spelling::Library, vocabulary::Frame};

    fn codec() -> Codec {
        Codec::new(Library::embedded().unwrap().client("rest").unwrap(), 0.0)
    }

    fn speak(text: &str) -> SpeakRequest {
        SpeakRequest { text: text.to_owned(), ..SpeakRequest::default() }
    }

    #[test]
    fn spelled_request_is_read_as_the_same_request() {
        // In the order of the protocol's fields.
        let settings = vec![
            Setting::EstimatedWordTimes(true),
            Setting::HotWords(vec!["Müller".to_owned(), "\"x\"".to_owned()]),
            Setting::Language("de".to_owned()),
            Setting::OutputRateHz(16_000),
            Setting::Partials(false),
            Setting::TranscriptionPrompt("a\nb".to_owned()),
            Setting::Task(true),
            Setting::WordTimes(true),
        ];
        let request = SpeakRequest {
            text: "Hello.".to_owned(),
            request_id: Some("id".to_owned()),
            voice: Some("eve".to_owned()),
            language: Some("en".to_owned()),
            reference: Some(VoiceSample::new(vec![1, -2, 3])),
            instruction: Some("fast".to_owned()),
        };
        for request in [
            ClientRequest::Configure(settings),
            ClientRequest::Configure(vec![Setting::HotWords(Vec::new())]),
            ClientRequest::Speak(Box::new(request)),
            ClientRequest::Speak(Box::new(speak("x"))),
            ClientRequest::Finish,
        ] {
            let mut codec = codec();
            check_request(codec.mapping(), &request).unwrap();
            let message = spell_request(codec.mapping(), &request).unwrap();
            let mut read = 0;
            let decoded = codec.decode(Frame::Text(&message), |decoded| {
                assert_eq!(format!("{decoded:?}"), format!("{request:?}"), "{message}");
                read += 1;
            });
            assert_eq!((decoded, read), (Ok(()), 1), "{message}");
        }
    }

    #[test]
    fn request_beyond_a_limit_has_the_error_of_its_message() {
        for request in [
            ClientRequest::Configure(vec![Setting::Language("x".repeat(257)), Setting::OutputRateHz(0)]),
            ClientRequest::Configure(vec![Setting::HotWords(vec!["x".repeat(5000)])]),
            ClientRequest::Speak(Box::new(speak(""))),
            ClientRequest::Speak(Box::new(SpeakRequest { voice: Some("x".repeat(300)), ..speak("x") })),
        ] {
            let mut codec = codec();
            let message = spell_request(codec.mapping(), &request).unwrap();
            let of_message = codec.decode(Frame::Text(&message), |_| ()).unwrap_err();
            assert_eq!(check_request(codec.mapping(), &request), Err(of_message.clone()));
            assert_eq!(of_message.kind, ErrorKind::Invalid);
        }
    }
}
