//! The values of a message's fields as parts of events: texts, settings, a text to speak, a picture.

use std::time::Duration;

use super::{picture, reference, tools};
use crate::{
    audio::{encoding::Encoding, vad::Sensitivity},
    error::{Error, ErrorKind},
    spelling::field::{AudioFormat, FieldRole, FieldValue},
    vocabulary::{
        EntryPart, MicrophoneMode, Role, Setting, SpeakRequest, SpeechId, TurnDetection, VideoFrame,
    },
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
            Some(Setting::InputRate(rate_hz)),
            channels.map(Setting::InputChannels),
        ],
        Some(AudioFormat { encoding, rate_hz, bit_rate, .. }) => {
            let bit_rate = bit_rate.map(Setting::OutputBitRate);
            [Some(Setting::OutputEncoding(encoding)), Some(Setting::OutputRate(rate_hz)), bit_rate]
        }
        None => [to_setting(role, value), None, None],
    };
    settings.into_iter().flatten()
}

/// Makes a setting of a value by its role; `None` for other roles.
fn to_setting(role: FieldRole, value: FieldValue) -> Option<Setting> {
    // A number out of range saturates, and is rejected with the valid range when it is applied.
    let as_u32 = |number: i64| u32::try_from(number).unwrap_or(if number < 0 { 0 } else { u32::MAX });
    Some(match (role, value) {
        (FieldRole::Language, FieldValue::Text(language)) => Setting::Language(language),
        (FieldRole::HotWords, FieldValue::Items(items)) => {
            Setting::HotWords(items.iter().flat_map(|item| item.texts.iter().cloned()).collect())
        }
        (FieldRole::TranscriptionPrompt, FieldValue::Text(words)) => Setting::TranscriptionPrompt(words),
        (FieldRole::Task, FieldValue::Text(name)) => Setting::Translation(name == "translate"),
        (FieldRole::VadSensitivity, FieldValue::Text(name)) => Setting::VadSensitivity(match name.as_str() {
            "high" => Sensitivity::High,
            "low" => Sensitivity::Low,
            _ => Sensitivity::Normal,
        }),
        (FieldRole::EndSilenceMs, FieldValue::Integer(ms)) => Setting::EndSilence(duration_from_ms(ms)),
        (FieldRole::EndThreshold, FieldValue::Number(share)) => Setting::EndThreshold(share),
        (FieldRole::EndLikelyThreshold, FieldValue::Number(share)) => Setting::EndLikelyThreshold(share),
        (FieldRole::EndWaitMaxMs, FieldValue::Integer(ms)) => Setting::EndWaitMax(duration_from_ms(ms)),
        (FieldRole::SegmentMaxMs, FieldValue::Integer(ms)) => Setting::SegmentMax(duration_from_ms(ms)),
        (FieldRole::Partials, FieldValue::Flag(on)) => Setting::Partials(on),
        (FieldRole::WordTimes, FieldValue::Flag(on)) => Setting::WordTimes(on),
        (FieldRole::EstimatedWordTimes, FieldValue::Flag(on)) => Setting::EstimatedWordTimes(on),
        (FieldRole::SpeakModel, FieldValue::Text(name)) => Setting::SpeakModel(name),
        (FieldRole::SpeakModelIfKnown, FieldValue::Text(name)) => Setting::SpeakModelIfKnown(name),
        (FieldRole::Voice, FieldValue::Text(name)) => Setting::Voice(name),
        (FieldRole::InputEncoding, FieldValue::Text(name)) => {
            Setting::InputEncoding(Encoding::from_name(&name)?)
        }
        (FieldRole::OutputEncoding, FieldValue::Text(name)) => {
            Setting::OutputEncoding(Encoding::from_name(&name)?)
        }
        (FieldRole::SpeechEvents, FieldValue::Flag(on)) => Setting::SpeechEvents(on),
        (FieldRole::FinalsOnly, FieldValue::Flag(on)) => Setting::FinalsOnly(on),
        (FieldRole::UtteranceGapMs, FieldValue::Integer(ms)) => Setting::UtteranceGap(duration_from_ms(ms)),
        (FieldRole::InputRateHz, FieldValue::Integer(rate)) => Setting::InputRate(as_u32(rate)),
        (FieldRole::InputChannels, FieldValue::Integer(count)) => {
            Setting::InputChannels(u16::try_from(count).unwrap_or(u16::MAX))
        }
        (FieldRole::OutputRateHz, FieldValue::Integer(rate)) => Setting::OutputRate(as_u32(rate)),
        (FieldRole::OutputBitRate, FieldValue::Integer(rate)) => Setting::OutputBitRate(as_u32(rate)),
        (FieldRole::Microphone, FieldValue::Text(name)) => Setting::Microphone(match name.as_str() {
            "muted" => MicrophoneMode::Muted,
            _ => MicrophoneMode::Open,
        }),
        (FieldRole::SpokenAnswers, FieldValue::Flag(on)) => Setting::SpokenAnswers(on),
        (FieldRole::TranscribeUser, FieldValue::Flag(on)) => Setting::TranscribeUser(on),
        (FieldRole::Instructions, FieldValue::Text(words)) => Setting::Instructions(words),
        (FieldRole::Instructions, FieldValue::Items(items)) => {
            let texts: Vec<_> = items.iter().flat_map(|item| &item.texts).map(String::as_str).collect();
            Setting::Instructions(texts.join("\n"))
        }
        (FieldRole::MaxTokens, FieldValue::Integer(max)) => {
            Setting::AnswerMaxTokens(Some(as_u32(max).max(1)))
        }
        (FieldRole::Temperature, FieldValue::Number(temperature)) => Setting::Temperature(Some(temperature)),
        (FieldRole::EchoCancellation, FieldValue::Flag(on)) => Setting::EchoCancellation(on),
        (FieldRole::RolloverEvents, FieldValue::Flag(on)) => Setting::RolloverEvents(on),
        _ => return None,
    })
}

fn duration_from_ms(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
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
