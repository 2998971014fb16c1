//! What a client received, read by its mapping: words, audio, errors and ends.

use std::collections::BTreeMap;

use serde_json::Value;
use voxbridge::{
    audio::{encoding::Encoding, opus::packet_samples, pcm},
    error::Error,
    spelling::{
        ClientMapping,
        client::{EventSlot, Framing, RealtimeEvent},
    },
    vocabulary::{CloseReason, EventName, Message, Slot, SlotValue},
};

use super::client::Formats;
use crate::rtvi::RtviFrame;

/// Stands for audio where a template is searched for its place.
const MARK: &str = "place of the audio";

/// A message that a client received.
pub enum Content {
    /// JSON, or plain text as a JSON string.
    Json(Value),
    /// Audio of this length, s.
    Audio(f64),
    /// The end of the connection.
    Close(u16, String),
    /// No content, such as the order to drop audio.
    Nothing,
}

/// Reads the messages to clients of one protocol.
pub struct Reading<'m> {
    mapping: &'m ClientMapping,
    formats: Formats,
    /// Places of audio in JSON: the value at a place that tells the message, if there is one, and the place of the audio.
    audio_places: Vec<AudioPlace>,
}

struct AudioPlace {
    /// Values that the message has.
    pattern: Value,
    /// JSON pointer to the audio.
    pointer: String,
}

impl<'m> Reading<'m> {
    /// A reader of this protocol's messages.
    pub fn new(mapping: &'m ClientMapping, formats: Formats) -> Self {
        let mut audio_places: Vec<AudioPlace> = mapping
            .event(EventName::Audio)
            .iter()
            .filter_map(|it| {
                let mut json = String::new();
                it.render(&mut json, |slot| match slot {
                    EventSlot::Event(Slot::Audio) => SlotValue::Str(MARK),
                    _ => SlotValue::Null,
                });
                let pattern: Value = serde_json::from_str(&json).ok()?;
                let mut leaves = Vec::new();
                collect(&pattern, "", &mut leaves);
                let pointer = leaves.into_iter().find(|(_, value)| value == MARK)?.0;
                Some(AudioPlace { pattern, pointer })
            })
            .collect();
        if let Some(names) = &mapping.realtime {
            let name = names.event(RealtimeEvent::AudioDelta, false);
            audio_places.push(AudioPlace {
                pattern: serde_json::json!({"type": name}),
                pointer: "/delta".to_owned(),
            });
        }
        Self { mapping, formats, audio_places }
    }

    /// Reads a message.
    pub fn read(&self, message: &Message) -> Content {
        match message {
            Message::Close(code, reason) => Content::Close(*code, reason.clone()),
            Message::Binary(bytes) if self.mapping.framing == Framing::Protobuf => {
                match RtviFrame::read(bytes) {
                    RtviFrame::Message(json) => Content::Json(json),
                    RtviFrame::Audio(bytes, ..) => Content::Audio(self.seconds(&bytes)),
                    RtviFrame::Interruption => Content::Nothing,
                }
            }
            Message::Binary(bytes) => Content::Audio(self.seconds(bytes)),
            Message::Text(text) => match serde_json::from_str::<Value>(text) {
                Ok(json) if json.is_object() => match self.audio_in(&json) {
                    Some(audio) => Content::Audio(self.seconds(&audio)),
                    None => Content::Json(json),
                },
                _ => Content::Json(text.as_str().into()),
            },
        }
    }

    fn audio_in(&self, json: &Value) -> Option<Vec<u8>> {
        let has_type = |place: &&AudioPlace| match &place.pattern {
            Value::Object(members) => members.iter().all(|(name, value)| match value {
                Value::String(value) if value != MARK && !value.contains("null") => json[name] == *value,
                _ => true,
            }),
            _ => false,
        };
        let place = self.audio_places.iter().filter(has_type);
        let base64 = place.filter_map(|place| json.pointer(&place.pointer)?.as_str()).next()?;
        let mut bytes = Vec::new();
        pcm::decode_base64(base64, &mut bytes).unwrap();
        Some(bytes)
    }

    /// Length of audio, s.
    fn seconds(&self, audio: &[u8]) -> f64 {
        match self.formats.encoding_out {
            Encoding::Opus => packet_samples(audio).unwrap() as f64 / 48_000.0,
            Encoding::Mp3 => mp3_seconds(audio),
            encoding => {
                audio.len() as f64 / encoding.bytes_per_sample() as f64 / f64::from(self.formats.rate_out_hz)
            }
        }
    }

    /// True if a message is a final transcript of the user with these words.
    pub fn is_final(&self, message: &Value, words: &str) -> bool {
        let names = [EventName::TranscriptFinal, EventName::UserTranscript, EventName::TurnEnded];
        let line = line(message);
        let is_mapped = names.into_iter().any(|name| self.mapping.is_event(name, Slot::Text, words, &line));
        let names = self.mapping.realtime.as_ref();
        let completed = names.map(|names| names.event(RealtimeEvent::TranscriptionCompleted, false));
        is_mapped || completed.is_some_and(|name| message["type"] == name && message["transcript"] == words)
    }

    /// True if a message has this text as the transcript so far.
    pub fn is_partial(&self, message: &Value, words: &str) -> bool {
        let line = line(message);
        [EventName::TranscriptPartial, EventName::UserPartial, EventName::TranscriptPart]
            .into_iter()
            .any(|name| self.mapping.is_event(name, Slot::Text, words, &line))
    }

    /// True if the protocol has transcripts so far.
    pub fn has_partials(&self) -> bool {
        [EventName::TranscriptPartial, EventName::UserPartial]
            .into_iter()
            .any(|name| !self.mapping.event(name).is_empty())
    }

    /// True if the protocol has a message for errors.
    pub fn has_errors(&self) -> bool {
        self.mapping.realtime.is_some()
            || self.mapping.is_live
            || !self.mapping.event(EventName::Error).is_empty()
    }

    /// True if the protocol has a message or a close frame for this error.
    pub fn spells(&self, error: &Error) -> bool {
        let spelling = self.mapping.error(error.kind);
        spelling.is_some_and(|it| it.close.is_some() || (self.has_errors() && !it.code.is_empty()))
    }

    /// True if a message is this error in the protocol's own form.
    pub fn is_error(&self, message: &Value, error: &Error) -> bool {
        let Some(spelling) = self.mapping.error(error.kind) else { return false };
        if self.mapping.realtime.is_some() || self.mapping.is_live {
            let name = match &self.mapping.realtime {
                Some(names) => {
                    let events = [RealtimeEvent::Error, RealtimeEvent::TranscriptionFailed];
                    return events.iter().any(|event| message["type"] == names.event(*event, false))
                        && has_leaf(message, &spelling.code)
                        || message["type"] == names.event(RealtimeEvent::ResponseDone, false)
                            && message["response"]["status"] == "failed";
                }
                None => "error",
            };
            return message["type"] == name && has_leaf(message, &spelling.code);
        }
        let names =
            [EventName::Error, EventName::Warning, EventName::RequestFailed, EventName::ConfigureFailed];
        let line = line(message);
        names.into_iter().any(|name| {
            let events = self.mapping.event(name);
            let has_code = events.iter().any(|it| it.template.uses_slot(EventSlot::Event(Slot::Code)));
            match has_code {
                true => self.mapping.is_event(name, Slot::Code, &spelling.code, &line),
                false => events.iter().any(|it| {
                    it.template.uses_slot(EventSlot::Event(Slot::Message))
                        && line.contains(error.detail.get(..8).unwrap_or(&error.detail))
                }),
            }
        })
    }

    /// True for the close frame of this error.
    pub fn is_close_of(&self, code: u16, error: &Error) -> bool {
        let close = self.mapping.error(error.kind).and_then(|it| it.close.as_ref());
        close.is_some_and(|close| close.code == code)
    }

    /// True for the close frame of a session that ends for this reason.
    pub fn is_end(&self, (code, reason): (u16, &str), why: CloseReason) -> bool {
        self.mapping.close(why).is_some_and(|it| it.code == code && it.text == reason)
    }
}

fn line(message: &Value) -> String {
    message.as_str().map_or_else(|| message.to_string(), str::to_owned)
}

/// Texts of messages: those of one place in all of them, joined. So whole texts, texts in pieces and lists of words are the same.
#[derive(Default)]
pub struct Texts(BTreeMap<String, String>);

impl Texts {
    /// Adds the texts of a message.
    pub fn add(&mut self, message: &Value) {
        let mut leaves = Vec::new();
        collect(message, "", &mut leaves);
        for (place, text) in leaves {
            let place = place.split('/').filter(|part| part.parse::<u32>().is_err()).collect::<Vec<_>>();
            self.0.entry(place.join("/")).or_default().push_str(&without_space(&text));
        }
    }

    /// True if one place has these words, whatever the space between them.
    pub fn have(&self, words: &str) -> bool {
        let words = without_space(words);
        self.0.values().any(|text| text.contains(&words))
    }
}

fn without_space(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

/// The texts and numbers of a value with their places.
fn collect(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| collect(member, &format!("{place}/{name}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| collect(item, &format!("{place}/{at}"), found));
        }
        Value::String(text) => found.push((place.to_owned(), text.clone())),
        Value::Number(number) => found.push((place.to_owned(), number.to_string())),
        Value::Null | Value::Bool(_) => {}
    }
}

fn has_leaf(message: &Value, text: &str) -> bool {
    let mut leaves = Vec::new();
    collect(message, "", &mut leaves);
    leaves.iter().any(|(_, leaf)| leaf == text)
}

/// Length of whole MP3 frames (ISO 11172-3 §2.4.1.3, ISO 13818-3 §2.4.2.3).
fn mp3_seconds(mut audio: &[u8]) -> f64 {
    const KBPS: [[usize; 15]; 2] = [
        [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
        [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    ];
    let mut seconds = 0.0;
    while let [0xff, version, rates, ..] = audio {
        let is_mpeg_1 = version & 8 != 0;
        let divisor = [4, 0, 2, 1][usize::from(version >> 3 & 3)];
        let rate_hz = [44_100, 48_000, 32_000][usize::from(rates >> 2 & 3)] / divisor;
        let samples = if is_mpeg_1 { 1152 } else { 576 };
        let kbps = KBPS[usize::from(is_mpeg_1)][usize::from(rates >> 4)];
        let bytes = samples / 8 * kbps * 1000 / rate_hz + usize::from(rates >> 1 & 1);
        seconds += samples as f64 / rate_hz as f64;
        audio = &audio[bytes..];
    }
    assert!(audio.is_empty(), "no whole frames");
    seconds
}
