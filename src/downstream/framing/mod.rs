//! How the messages of a connection are framed: named formats that mappings choose with `to = "frame_header"`.
//!
//! Numbers are big-endian. `stamped`: u16 version, which is 2; u16 type; u32 reserved; u32 time in ms; u32 length. `sized`: u8
//! type; u8 reserved; u16 length. The type is 0 for audio and 1 for JSON. The messages to a client are audio.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::error::{Error, ErrorKind};

/// The format of a connection's messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Framing {
    /// A message is audio.
    #[default]
    None,
    /// 16 bytes with a time.
    Stamped,
    /// 4 bytes.
    Sized,
}

/// What a binary message contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameContent<'f> {
    Audio(&'f [u8]),
    Json(&'f str),
}

impl Framing {
    /// The format of this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        [("none", Self::None), ("stamped", Self::Stamped), ("sized", Self::Sized)]
            .into_iter()
            .find_map(|(known, format)| (known == name).then_some(format))
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message is shorter than its header says, of an unknown type, or JSON that is not UTF-8.
    pub(super) fn read(self, message: &[u8]) -> Result<FrameContent<'_>, Error> {
        let (kind, length, payload) = match (self, message) {
            (Self::None, _) => return Ok(FrameContent::Audio(message)),
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
            0 => Ok(FrameContent::Audio(content)),
            1 => std::str::from_utf8(content)
                .map(FrameContent::Json)
                .map_err(|_| invalid("JSON that is not UTF-8".to_owned())),
            other => Err(invalid(format!("type {other} (expected 0 for audio or 1 for JSON)"))),
        }
    }

    /// A message with audio, sent `at_s` seconds after the session opened.
    pub(super) fn write(self, audio: &Bytes, at_s: f64) -> Bytes {
        let mut message = BytesMut::with_capacity(16 + audio.len());
        match self {
            Self::None => return audio.clone(),
            Self::Stamped => {
                message.put_u16(2);
                message.put_u16(0);
                message.put_u32(0);
                // The field wraps after 49 days.
                message.put_u32((at_s * 1000.0) as u64 as u32);
                message.put_u32(u32::try_from(audio.len()).unwrap_or(u32::MAX));
            }
            Self::Sized => {
                message.put_u16(0);
                message.put_u16(u16::try_from(audio.len()).unwrap_or(u16::MAX));
            }
        }
        message.extend_from_slice(audio);
        message.freeze()
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
        assert_eq!(Framing::None.write(&audio, 1.0), audio);
        assert_eq!(Framing::Sized.write(&audio, 1.0)[..], [0, 0, 0, 3, 7, 8, 9]);
        assert_eq!(
            Framing::Stamped.write(&audio, 1.5)[..],
            [0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 5, 220, 0, 0, 0, 3, 7, 8, 9]
        );
        for name in ["none", "stamped", "sized"] {
            let format = Framing::from_name(name).unwrap();
            assert_eq!(format.read(&format.write(&audio, 1.5)), Ok(FrameContent::Audio(&audio)), "{name}");
        }
    }

    #[test]
    fn json_comes_in_binary_messages_too() {
        assert_eq!(Framing::Sized.read(b"\x01\0\0\x02{}"), Ok(FrameContent::Json("{}")));
        let stamped = b"\0\x02\0\x01\0\0\0\0\0\0\0\0\0\0\0\x02{}more";
        assert_eq!(Framing::Stamped.read(stamped), Ok(FrameContent::Json("{}")));
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
        ] {
            assert_eq!(format.read(message).unwrap_err().kind, ErrorKind::Invalid, "{message:?}");
        }
    }
}
