//! The values of a message's fields as parts of events: texts, settings, a text to speak, a picture.

use super::{picture, reference, tools};
use crate::{
    error::{Error, ErrorKind},
    spelling::field::{AudioFormat, FieldRole, FieldValue},
    vocabulary::{EntryPart, Role, Setting, SpeakRequest, SpeechId, SpeechModel, TurnDetection, VideoFrame},
};

/// Longest part of an unknown role in an error, characters.
const ROLE_SHOWN_MAX_CHARS: usize = 64;

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
pub(super) fn to_messages(values: &[(FieldRole, FieldValue)]) -> Result<Vec<(Role, Vec<EntryPart>)>, Error> {
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
            messages.push((to_role(item.role.as_deref())?, parts));
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
pub(super) fn find_turn(values: &[(FieldRole, FieldValue)]) -> Option<SpeechId> {
    values.iter().find_map(|value| match value {
        (FieldRole::Turn, FieldValue::Integer(turn)) => u32::try_from(*turn).ok().map(SpeechId),
        _ => None,
    })
}

pub(super) fn to_settings(values: Vec<(FieldRole, FieldValue)>) -> Result<Vec<Setting>, Error> {
    let mut settings = Vec::from_iter(to_turn_detection(&values));
    for (role, value) in values {
        match (role, value) {
            (FieldRole::Tools, FieldValue::Items(items)) => settings.push(tools::to_offer(&items)?),
            (role, value) => settings.extend(settings_of(role, value)),
        }
    }
    Ok(settings)
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

pub(super) fn to_speak_request(values: Vec<(FieldRole, FieldValue)>) -> Result<SpeakRequest, Error> {
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
pub(super) fn to_video_frame(values: Vec<(FieldRole, FieldValue)>) -> Result<VideoFrame, Error> {
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
