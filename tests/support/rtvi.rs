//! Frames of Pipecat's clients, written and read without voxbridge's own code: <https://protobuf.dev/programming-guides/encoding/>.

use serde_json::Value;

/// A frame that a client received.
#[derive(Debug, Clone, PartialEq)]
pub enum RtviFrame {
    /// An RTVI message.
    Message(Value),
    /// int16 samples, their rate and channels.
    Audio(Vec<u8>, u64, u64),
    /// The client drops the audio it holds.
    Interruption,
}

impl RtviFrame {
    /// The message's type, or the kind of frame.
    pub fn kind(&self) -> &str {
        match self {
            Self::Message(message) => message["type"].as_str().unwrap_or("message without type"),
            Self::Audio(..) => "audio",
            Self::Interruption => "interruption",
        }
    }

    /// Reads a frame; panics if it is none.
    pub fn read(frame: &[u8]) -> Self {
        let fields = fields(frame);
        let [(number, Some(content), _)] = fields.as_slice() else { panic!("not one field: {fields:?}") };
        let inner = self::fields(content);
        let bytes = |field| inner.iter().find(|it| it.0 == field).and_then(|it| it.1.clone());
        let integer = |field| inner.iter().find(|it| it.0 == field).map_or(0, |it| it.2);
        match number {
            2 => Self::Audio(bytes(3).unwrap(), integer(4), integer(5)),
            4 => {
                let message: Value = serde_json::from_slice(&bytes(1).unwrap()).unwrap();
                assert_eq!(message["label"], "rtvi-ai", "{message}");
                Self::Message(message)
            }
            5 => Self::Interruption,
            other => panic!("field {other}"),
        }
    }
}

/// A frame with an RTVI message.
pub fn message_frame(message: &Value) -> Vec<u8> {
    field(4, &field(1, message.to_string().as_bytes()))
}

/// A frame with audio.
pub fn audio_frame(samples: &[i16], rate_hz: u32, channels: u32) -> Vec<u8> {
    let mut content = field(3, &crate::bench::bytes(samples));
    for (number, value) in [(4, rate_hz), (5, channels)] {
        content.push(number << 3);
        content.extend(varint(u64::from(value)));
    }
    field(2, &content)
}

/// A field of bytes.
pub fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], varint(content.len() as u64), content.to_vec()].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push((number % 128) as u8 | 128);
        number /= 128;
    }
    bytes.push(number as u8);
    bytes
}

/// The fields of a message: number, bytes or integer.
fn fields(mut message: &[u8]) -> Vec<(u64, Option<Vec<u8>>, u64)> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = take_varint(&mut message);
        let value = take_varint(&mut message);
        found.push(match key & 7 {
            0 => (key >> 3, None, value),
            2 => {
                let (content, rest) = message.split_at(value as usize);
                message = rest;
                (key >> 3, Some(content.to_vec()), 0)
            }
            other => panic!("wire type {other}"),
        });
    }
    found
}

fn take_varint(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| *byte < 128).unwrap() + 1;
    let (number, rest) = bytes.split_at(end);
    *bytes = rest;
    number.iter().rev().fold(0, |sum, byte| sum * 128 + u64::from(byte % 128))
}
