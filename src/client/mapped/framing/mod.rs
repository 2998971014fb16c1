//! How the messages of a connection are framed: named formats that mappings choose with `framing`, or with a query parameter of
//! role `framing`.
//!
//! - `none`: a binary message is audio, a text message is JSON.
//! - `stamped` and `sized`: a binary message has a header before its audio or JSON; the messages to a client are audio. Numbers
//!   are big-endian. `stamped`: u16 version, which is 2; u16 type; u32 reserved; u32 time in ms; u32 length. `sized`: u8 type; u8
//!   reserved; u16 length. The type is 0 for audio and 1 for JSON.
//! - `announced`: a header before the audio of each utterance, see [`announced`]. Messages to the client have none.
//! - `json`: a message of the client is JSON, also a binary one.
//! - `protobuf`: every message to the client is one of Pipecat's frames ([`protobuf`]), and so is a binary message of the client.
//! - `webrtc`: as `none`; an empty binary message to a call has it discard the audio that was not played.

pub(super) mod announced;
mod protobuf;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::{
    error::{Error, ErrorKind},
    spelling::client::Framing,
    vocabulary::Message,
};

/// The content of a binary message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameContent<'f> {
    /// Audio, with its format where the message has one.
    Audio(&'f [u8], Option<FrameAudioFormat>),
    Json(&'f str),
    /// Audio with headers between utterances.
    Announced(&'f [u8]),
    /// Words of the user.
    Text(&'f str),
    /// The user wants silence.
    Interruption,
    /// Nothing that this version knows.
    Nothing,
}

/// The format of a message's audio. A zero stands for the protocol's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FrameAudioFormat {
    pub(super) rate_hz: u32,
    pub(super) channels: u32,
}

impl Framing {
    /// The format of this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message is shorter than its header says, of an unknown type, JSON that is not UTF-8, or no protobuf.
    pub(super) fn read(self, message: &[u8]) -> Result<FrameContent<'_>, Error> {
        let (kind, length, payload) = match (self, message) {
            (Self::None | Self::WebRtc, _) => return Ok(FrameContent::Audio(message, None)),
            (Self::Announced, _) => return Ok(FrameContent::Announced(message)),
            (Self::Json, _) => {
                return std::str::from_utf8(message)
                    .map(FrameContent::Json)
                    .map_err(|_| invalid("JSON that is not UTF-8".to_owned()));
            }
            (Self::Protobuf, _) => {
                return protobuf::read(message).map_err(|problem| invalid(format!("no protobuf: {problem}")));
            }
            (Self::Stamped, [_, _, t1, t0, _, _, _, _, _, _, _, _, l3, l2, l1, l0, payload @ ..]) => {
                (u16::from_be_bytes([*t1, *t0]), u32::from_be_bytes([*l3, *l2, *l1, *l0]) as usize, payload)
            }
            (Self::Sized, [kind, _, l1, l0, payload @ ..]) => {
                (u16::from(*kind), usize::from(u16::from_be_bytes([*l1, *l0])), payload)
            }
            (Self::Stamped | Self::Sized, _) => {
                return Err(invalid(format!("{} bytes, fewer than its header has", message.len())));
            }
        };
        let content = payload.get(..length).ok_or_else(|| {
            invalid(format!("{} bytes behind a header that promises {length}", payload.len()))
        })?;
        match kind {
            0 => Ok(FrameContent::Audio(content, None)),
            1 => std::str::from_utf8(content)
                .map(FrameContent::Json)
                .map_err(|_| invalid("JSON that is not UTF-8".to_owned())),
            other => Err(invalid(format!("type {other} (expected 0 for audio or 1 for JSON)"))),
        }
    }

    /// A message with audio of this rate, sent `at_s` seconds after the session opened.
    #[must_use]
    pub fn write_audio(self, audio: &Bytes, rate_hz: u32, at_s: f64) -> Message {
        let mut message = BytesMut::new();
        match self {
            Self::None | Self::Json | Self::WebRtc => return Message::Binary(audio.clone()),
            Self::Announced => {
                message.reserve(8 + audio.len());
                message.put_u32_le(rate_hz);
                message.put_u32_le(u32::try_from(audio.len()).unwrap_or(u32::MAX));
            }
            Self::Protobuf => return Message::Binary(protobuf::write_audio(audio, rate_hz)),
            Self::Stamped => {
                message.reserve(16 + audio.len());
                message.put_u16(2);
                message.put_u16(0);
                message.put_u32(0);
                // The field wraps after 49 days.
                message.put_u32((at_s * 1000.0) as u64 as u32);
                message.put_u32(u32::try_from(audio.len()).unwrap_or(u32::MAX));
            }
            Self::Sized => {
                message.reserve(4 + audio.len());
                message.put_u16(0);
                message.put_u16(u16::try_from(audio.len()).unwrap_or(u16::MAX));
            }
        }
        message.extend_from_slice(audio);
        Message::Binary(message.freeze())
    }

    /// A message with JSON.
    pub(super) fn write_json(self, json: String) -> Message {
        match self {
            Self::None | Self::Json | Self::WebRtc | Self::Stamped | Self::Sized | Self::Announced => {
                Message::Text(json)
            }
            Self::Protobuf => Message::Binary(protobuf::write_json(&json)),
        }
    }

    /// The message that has the client drop the audio it holds; `None` where the framing has none.
    pub(super) fn interruption(self) -> Option<Message> {
        match self {
            Self::None | Self::Json | Self::Stamped | Self::Sized | Self::Announced => None,
            Self::Protobuf => Some(Message::Binary(protobuf::interruption_frame())),
            Self::WebRtc => Some(Message::Binary(Bytes::new())),
        }
    }
}

fn invalid(problem: String) -> Error {
    Error::new(ErrorKind::Invalid, format!("binary frame: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_has_the_bytes_of_each_format() {
        let audio = Bytes::from_static(&[7, 8, 9]);
        let write = |format: Framing| match format.write_audio(&audio, 24_000, 1.5) {
            Message::Binary(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(write(Framing::None), audio);
        assert_eq!(write(Framing::Sized)[..], [0, 0, 0, 3, 7, 8, 9]);
        assert_eq!(write(Framing::Stamped)[..], [0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 5, 220, 0, 0, 0, 3, 7, 8, 9]);
        for format in Framing::ALL.into_iter().filter(|format| *format != Framing::Json) {
            let written = write(format);
            match format.read(&written) {
                Ok(FrameContent::Audio(read, _)) => assert_eq!(read, audio, "{}", format.name()),
                Ok(FrameContent::Announced(read)) => assert_eq!(read[8..], audio, "{}", format.name()),
                other => panic!("{}: {other:?}", format.name()),
            }
        }
    }

    #[test]
    fn json_comes_in_binary_messages_too() {
        assert_eq!(Framing::Sized.read(b"\x01\0\0\x02{}"), Ok(FrameContent::Json("{}")));
        let stamped = b"\0\x02\0\x01\0\0\0\0\0\0\0\0\0\0\0\x02{}more";
        assert_eq!(Framing::Stamped.read(stamped), Ok(FrameContent::Json("{}")));
        assert_eq!(Framing::Json.read(b"{}"), Ok(FrameContent::Json("{}")));
    }

    #[test]
    fn bad_messages_are_errors() {
        for (format, message) in [
            (Framing::Sized, &b"\0\0\0"[..]),
            (Framing::Sized, b"\0\0\0\x03ab"),
            (Framing::Sized, b"\x02\0\0\0"),
            (Framing::Sized, b"\x01\0\0\x01\xff"),
            (Framing::Stamped, b"\0\x02\0\0"),
            (Framing::Stamped, b"\0\x02\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff"),
            (Framing::Json, b"{\xff}"),
        ] {
            assert_eq!(format.read(message).unwrap_err().kind, ErrorKind::Invalid, "{message:?}");
        }
    }
}
