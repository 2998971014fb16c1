//! Records: a byte with the kind, two bytes with the length, big-endian, and as many bytes of content.

use std::collections::VecDeque;

use bytes::{Buf as _, BytesMut};
use serde_json::{Map, Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{FramingProblem, Progress};
use crate::{
    secret::hex,
    spelling::client::tcp::{
        RECORD_COMMAND, RECORD_CONTENT, RECORD_RATE, RECORD_RATE_HZ, Record, RecordContent, Records,
    },
};

const HEADER_BYTES: usize = 3;

/// Reads records. Audio is preceded by a message when its rate changes.
#[derive(Debug, Default)]
pub(super) struct RecordReader {
    /// Kind of the last audio. The client gets the same.
    audio_kind: Option<u8>,
}

impl RecordReader {
    /// Takes a record out of `input`.
    pub(super) fn take(
        &mut self,
        rules: &Records,
        input: &mut BytesMut,
        max: usize,
        ready: &mut VecDeque<Message>,
    ) -> Result<Progress, FramingProblem> {
        let Some([kind, high, low]) = input.first_chunk() else {
            return Ok(Progress::Missing(HEADER_BYTES - input.len()));
        };
        let (kind, length) = (*kind, usize::from(u16::from_be_bytes([*high, *low])));
        let total = HEADER_BYTES + length;
        if total > max {
            return Err(FramingProblem::TooLong(total as u64, max));
        }
        if input.len() < total {
            return Ok(Progress::Missing(total - input.len()));
        }
        input.advance(HEADER_BYTES);
        let content = input.split_to(length).freeze();
        match rules.kinds.get(&kind) {
            Some(Record::Audio(rate_hz)) => {
                if self.audio_kind.replace(kind) != Some(kind) {
                    let message = json!({RECORD_COMMAND: RECORD_RATE, RECORD_RATE_HZ: rate_hz});
                    ready.push_back(Message::text(message.to_string()));
                }
                // A record without a sample is no message with a meaning of its own.
                ready.extend((!content.is_empty()).then_some(Message::Binary(content)));
            }
            Some(Record::Command(name, form)) => {
                let mut members = Map::from_iter([(RECORD_COMMAND.to_owned(), Value::from(name.as_str()))]);
                if let Some(text) = display_content(*form, &content) {
                    members.insert(RECORD_CONTENT.to_owned(), text.into());
                }
                ready.push_back(Message::text(Value::Object(members).to_string()));
            }
            None => {
                let message = json!({RECORD_COMMAND: format!("{kind:#04x}")});
                ready.push_back(Message::text(message.to_string()));
            }
        }
        Ok(Progress::Complete)
    }

    pub(super) fn write_audio(&self, rules: &Records, audio: &[u8], output: &mut Vec<u8>) {
        let is_audio = |(_, record): &(&u8, &Record)| matches!(record, Record::Audio(_));
        let first = || rules.kinds.iter().find(is_audio).map(|(kind, _)| *kind);
        let Some(kind) = self.audio_kind.or_else(first) else { return };
        // Whole samples of two bytes.
        for part in audio.chunks(usize::from(u16::MAX) - 1) {
            write_record(kind, part, output);
        }
    }
}

pub(super) fn write_close(rules: &Records, output: &mut Vec<u8>) {
    rules.close.iter().for_each(|kind| write_record(*kind, &[], output));
}

fn write_record(kind: u8, content: &[u8], output: &mut Vec<u8>) {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    output.reserve(HEADER_BYTES + content.len());
    output.push(kind);
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(content);
}

fn display_content(form: RecordContent, content: &[u8]) -> Option<String> {
    match form {
        RecordContent::None => None,
        RecordContent::Text => Some(String::from_utf8_lossy(content).into_owned()),
        RecordContent::Hex => Some(hex(content)),
        RecordContent::Uuid => {
            let digits = hex(content);
            let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range));
            Some(match groups {
                [Some(a), Some(b), Some(c), Some(d), Some(e)] if content.len() == 16 => {
                    [a, b, c, d, e].join("-")
                }
                _ => digits,
            })
        }
    }
}
