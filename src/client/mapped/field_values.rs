//! The values of a message's fields as requests and their parts: texts, settings, a text to speak, a picture.

use super::{
    messages::{AddedMessage, answer_request},
    tools,
};
use crate::{
    client::reference,
    error::{Error, ErrorKind},
    picture,
    spelling::{
        client::Verb,
        field::{AudioFormat, FieldRole, FieldValue},
    },
    vocabulary::{
        ClientRequest, CloseReason, EntryPart, Role, Setting, SpeakRequest, SpeechId, SpeechModel,
        TurnDetection, VideoFrame,
    },
};

/// Longest part of an unknown role in an error, characters.
const ROLE_SHOWN_MAX_CHARS: usize = 64;

/// The request of a verb that needs only the values of its message; `None` if there is nothing to do.
///
/// # Errors
/// The mistake in the values.
pub(super) fn to_request(
    verb: Verb,
    values: Vec<(FieldRole, FieldValue)>,
) -> Result<Option<ClientRequest<'static>>, Error> {
    Ok(Some(match verb {
        Verb::Played => return Ok(find_turn(&values).map(ClientRequest::Played)),
        Verb::PauseAudio => ClientRequest::PauseAudio,
        Verb::ResumeAudio => ClientRequest::ResumeAudio,
        Verb::Answer => ClientRequest::Answer(Box::new(answer_request(None))),
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
        // These need more than their values.
        Verb::Audio | Verb::Configure | Verb::Adjust | Verb::Ask | Verb::Tell | Verb::ToolResult => {
            return Ok(None);
        }
        // Read by the codecs of OpenAI's protocols; other protocols have none of them.
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
        | Verb::LiveDelegate => return Ok(None),
    }))
}

/// The text of a message, unless it is blank.
pub(super) fn find_text(values: Vec<(FieldRole, FieldValue)>) -> Option<String> {
    values.into_iter().find_map(|(role, value)| {
        joined_text(value).filter(|text| role == FieldRole::Text && !text.trim().is_empty())
    })
}

/// A text, or the texts of a list one behind the other.
fn joined_text(value: FieldValue) -> Option<String> {
    match value {
        FieldValue::Text(text) => Some(text),
        FieldValue::Items(items) => {
            Some(items.iter().flat_map(|item| &item.texts).map(String::as_str).collect())
        }
        _ => None,
    }
}

/// The messages of a list as entries of the conversation, with the picture of each. A message without contents is left out.
pub(super) fn to_messages(values: &[(FieldRole, FieldValue)]) -> Result<Vec<AddedMessage>, Error> {
    let lists = values.iter().filter_map(|value| match value {
        (FieldRole::Messages, FieldValue::Items(items)) => Some(items),
        _ => None,
    });
    let mut messages = Vec::new();
    for item in lists.flat_map(|items| items.iter()) {
        let mut parts = Vec::new();
        for image in &item.images {
            parts.push(EntryPart::Picture(to_picture(image)?.0));
        }
        let texts = item.texts.iter().filter(|text| !text.trim().is_empty());
        parts.extend(texts.cloned().map(EntryPart::Text));
        if !parts.is_empty() {
            messages.push(AddedMessage { role: to_role(item.role.as_deref())?, parts });
        }
    }
    Ok(messages)
}

/// The speaker of a message, in the words of chat; the user without one.
fn to_role(name: Option<&str>) -> Result<Role, Error> {
    match name {
        None | Some("user") => Ok(Role::User),
        Some("assistant" | "model") => Ok(Role::Assistant),
        Some("system" | "developer") => Ok(Role::System),
        Some(other) => {
            let shown: String = other.chars().take(ROLE_SHOWN_MAX_CHARS).collect();
            Err(Error::new(ErrorKind::Invalid, format!("'role': there is no role '{shown}'")))
        }
    }
}

/// A flag of a message; `None` if it is not given.
pub(super) fn find_flag(values: &[(FieldRole, FieldValue)], role: FieldRole) -> Option<bool> {
    values.iter().find_map(|value| match value {
        (known, FieldValue::Flag(flag)) if *known == role => Some(*flag),
        _ => None,
    })
}

/// The number of segments that the client wants; 1 if it is less.
pub(super) fn find_segments_max(values: &[(FieldRole, FieldValue)]) -> Option<usize> {
    values.iter().find_map(|value| match value {
        (FieldRole::SegmentsMax, FieldValue::Integer(max)) => Some(usize::try_from(*max).unwrap_or(1)),
        _ => None,
    })
}

/// The rate of a message's audio, Hz.
pub(super) fn find_rate(values: &[(FieldRole, FieldValue)]) -> Option<u32> {
    values.iter().find_map(|value| match value {
        (FieldRole::InputRateHz, FieldValue::Integer(rate)) => Some(u32::try_from(*rate).unwrap_or(1)),
        _ => None,
    })
}

/// The turn that a message says was played.
fn find_turn(values: &[(FieldRole, FieldValue)]) -> Option<SpeechId> {
    values.iter().find_map(|value| match value {
        (FieldRole::Turn, FieldValue::Integer(turn)) => u32::try_from(*turn).ok().map(SpeechId),
        _ => None,
    })
}

pub(super) fn to_settings(
    values: impl AsRef<[(FieldRole, FieldValue)]> + IntoIterator<Item = (FieldRole, FieldValue)>,
) -> Result<Vec<Setting>, Error> {
    let mut settings = Vec::new();
    push_settings(values, &mut settings)?;
    Ok(settings)
}

/// Adds the settings of values with these roles. After an error, some may have been added.
pub(super) fn push_settings(
    values: impl AsRef<[(FieldRole, FieldValue)]> + IntoIterator<Item = (FieldRole, FieldValue)>,
    settings: &mut Vec<Setting>,
) -> Result<(), Error> {
    settings.extend(to_turn_detection(values.as_ref()));
    for (role, value) in values {
        match (role, value) {
            (FieldRole::Tools, FieldValue::Items(items)) => settings.push(tools::to_offer(&items)?),
            (role, value) => settings.extend(settings_of(role, value)),
        }
    }
    Ok(())
}

/// How the session reacts to the user's speech, of one or two fields; `None` without them.
fn to_turn_detection(values: &[(FieldRole, FieldValue)]) -> Option<Setting> {
    let mut detection = TurnDetection::default();
    let mut is_given = false;
    for (role, value) in values {
        match (role, value) {
            (FieldRole::UtteranceEnd, FieldValue::Text(name)) => detection.is_automatic = name != "client",
            (FieldRole::Interruption, FieldValue::Flag(on)) => detection.interrupts = *on,
            _ => continue,
        }
        is_given = true;
    }
    is_given.then_some(Setting::TurnDetection(detection))
}

/// Makes the settings of a value by its role: one, up to three for a format, none for other roles.
pub(super) fn settings_of(role: FieldRole, value: FieldValue) -> impl Iterator<Item = Setting> {
    let format = match &value {
        FieldValue::Text(name) if role.is_format() => AudioFormat::parse(name),
        _ => None,
    };
    let settings = match format {
        Some(AudioFormat { encoding, rate_hz, channels, .. }) if role == FieldRole::InputFormat => [
            Some(Setting::InputEncoding(encoding)),
            Some(Setting::InputRateHz(rate_hz)),
            channels.map(Setting::InputChannels),
        ],
        Some(AudioFormat { encoding, rate_hz, bit_rate, .. }) => {
            let bit_rate = bit_rate.map(Setting::OutputBitRate);
            [Some(Setting::OutputEncoding(encoding)), Some(Setting::OutputRateHz(rate_hz)), bit_rate]
        }
        None => match (role, value) {
            (FieldRole::SpeakModelIfKnown, FieldValue::Text(name)) => {
                [Some(Setting::SpeakModel(SpeechModel::if_known(name))), None, None]
            }
            (role, value) => [Setting::of_field(role, value), None, None],
        },
    };
    settings.into_iter().flatten()
}

fn to_speak_request(values: Vec<(FieldRole, FieldValue)>) -> Result<SpeakRequest, Error> {
    let mut request = SpeakRequest::default();
    for (role, value) in values {
        let Some(text) = joined_text(value) else { continue };
        match role {
            FieldRole::Text => request.text = text,
            // "" counts as absent, as on the real server (mappings/notes/macaw.md#commands).
            FieldRole::RequestId => request.request_id = Some(text).filter(|id| !id.is_empty()),
            FieldRole::Voice => request.voice = Some(text),
            FieldRole::Language => request.language = Some(text),
            FieldRole::Instruction => {
                request.instruction = Some(text).filter(|words| !words.trim().is_empty());
            }
            FieldRole::ReferenceAudio => request.reference = reference::decode_voice_sample(&text)?,
            _ => {}
        }
    }
    Ok(request)
}

/// Checks a picture and prepares it for the upstream.
fn to_video_frame(values: Vec<(FieldRole, FieldValue)>) -> Result<VideoFrame, Error> {
    let image = values.into_iter().find_map(|value| match value {
        (FieldRole::Image, FieldValue::Text(image)) => Some(image),
        _ => None,
    });
    to_picture(&image.unwrap_or_default())
}

/// Reads a picture: base64 of a JPEG or PNG file, or a data URL.
fn to_picture(image: &str) -> Result<VideoFrame, Error> {
    let image = image.rsplit_once(";base64,").map_or(image, |(_, data)| data);
    picture::decode_picture(image)
        .map_err(|problem| Error::new(ErrorKind::Invalid, format!("'image': {problem}")))
}
