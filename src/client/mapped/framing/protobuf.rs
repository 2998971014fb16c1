//! Pipecat's frames: protobuf messages with audio, JSON or text.
//!
//! Source: `frames.proto` of pipecat-ai 1.14.0. `Frame` has one of the fields 1 text, 2 audio, 3 transcription, 4 message and 5
//! interruption, each a message of its own. Unknown fields are skipped, and the last of a repeated field counts, as in every
//! reader of protobuf (<https://protobuf.dev/programming-guides/encoding/>).

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{FrameAudioFormat, FrameContent};

const TEXT: u32 = 1;
const AUDIO: u32 = 2;
const TRANSCRIPTION: u32 = 3;
const MESSAGE: u32 = 4;
const INTERRUPTION: u32 = 5;

/// Field of the text in a text or transcription.
const TEXT_TEXT: u32 = 3;
/// Fields of audio.
const AUDIO_BYTES: u32 = 3;
const AUDIO_RATE: u32 = 4;
const AUDIO_CHANNELS: u32 = 5;
/// Field of the JSON in a message.
const MESSAGE_DATA: u32 = 1;

/// Wire types.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;
const FIXED_32: u8 = 5;

/// Length of the header of a WAV file with 16-bit samples.
const WAV_HEADER_BYTES: usize = 44;

/// Bytes of a frame beside its content: two tags and lengths, and the fields of audio.
const OVERHEAD_MAX_BYTES: usize = 32;

/// An interruption, which says that audio sent so far should not be heard.
pub(super) const fn interruption_frame() -> Bytes {
    Bytes::from_static(&[0x2a, 0])
}

/// Reads a frame.
///
/// # Errors
/// The bytes are no protobuf message, or a text in it is not UTF-8; in words.
pub(super) fn read(frame: &[u8]) -> Result<FrameContent<'_>, String> {
    let mut content = FrameContent::Nothing;
    let mut fields = Fields { rest: frame };
    while let Some((field, value)) = fields.next()? {
        let Value::Bytes(message) = value else { continue };
        content = match field {
            TEXT | TRANSCRIPTION => FrameContent::Text(read_text(message, TEXT_TEXT)?),
            AUDIO => read_audio(message)?,
            MESSAGE => FrameContent::Json(read_text(message, MESSAGE_DATA)?),
            INTERRUPTION => FrameContent::Interruption,
            _ => content,
        };
    }
    Ok(content)
}

fn read_text(message: &[u8], text_field: u32) -> Result<&str, String> {
    let mut text: &[u8] = &[];
    let mut fields = Fields { rest: message };
    while let Some((field, value)) = fields.next()? {
        match value {
            Value::Bytes(bytes) if field == text_field => text = bytes,
            _ => {}
        }
    }
    std::str::from_utf8(text).map_err(|_| "text that is not UTF-8".to_owned())
}

fn read_audio(message: &[u8]) -> Result<FrameContent<'_>, String> {
    let (mut audio, mut format): (&[u8], _) = (&[], FrameAudioFormat::default());
    let mut fields = Fields { rest: message };
    while let Some((field, value)) = fields.next()? {
        match (field, value) {
            (AUDIO_BYTES, Value::Bytes(bytes)) => audio = bytes,
            // A number of 32 bits is the lower half of what was sent.
            (AUDIO_RATE, Value::Number(rate)) => format.rate_hz = rate as u32,
            (AUDIO_CHANNELS, Value::Number(channels)) => format.channels = channels as u32,
            _ => {}
        }
    }
    Ok(FrameContent::Audio(without_wav_header(audio), Some(format)))
}

/// Audio without the header of a WAV file, which pipecat-ai's own client puts before each frame by default.
fn without_wav_header(audio: &[u8]) -> &[u8] {
    match audio.split_at_checked(WAV_HEADER_BYTES) {
        Some((head, samples))
            if head.starts_with(b"RIFF") && &head[8..16] == b"WAVEfmt " && &head[36..40] == b"data" =>
        {
            samples
        }
        _ => audio,
    }
}

/// A frame with mono audio of this rate.
pub(super) fn write_audio(audio: &[u8], rate_hz: u32) -> Bytes {
    let mut head = BytesMut::with_capacity(OVERHEAD_MAX_BYTES);
    put_key(&mut head, AUDIO_BYTES, LENGTH_DELIMITED);
    put_varint(&mut head, audio.len() as u64);
    let mut tail = BytesMut::with_capacity(OVERHEAD_MAX_BYTES);
    for (field, number) in [(AUDIO_RATE, rate_hz), (AUDIO_CHANNELS, 1)] {
        put_key(&mut tail, field, VARINT);
        put_varint(&mut tail, number.into());
    }
    write_frame(AUDIO, &[&head, audio, &tail])
}

/// A frame with JSON.
pub(super) fn write_json(json: &str) -> Bytes {
    let mut head = BytesMut::with_capacity(OVERHEAD_MAX_BYTES);
    put_key(&mut head, MESSAGE_DATA, LENGTH_DELIMITED);
    put_varint(&mut head, json.len() as u64);
    write_frame(MESSAGE, &[&head, json.as_bytes()])
}

/// A frame with this field, whose message consists of these parts.
fn write_frame(field: u32, parts: &[&[u8]]) -> Bytes {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = BytesMut::with_capacity(OVERHEAD_MAX_BYTES + length);
    put_key(&mut frame, field, LENGTH_DELIMITED);
    put_varint(&mut frame, length as u64);
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    frame.freeze()
}

fn put_key(out: &mut BytesMut, field: u32, wire_type: u8) {
    put_varint(out, u64::from(field) << 3 | u64::from(wire_type));
}

fn put_varint(out: &mut BytesMut, mut number: u64) {
    while number > 0x7f {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// The fields of a message that were not read yet.
struct Fields<'m> {
    rest: &'m [u8],
}

/// The value of a field.
enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
    /// A number of fixed length, which no known field is.
    Fixed,
}

impl<'m> Fields<'m> {
    /// The next field and its value; `None` at the end.
    fn next(&mut self) -> Result<Option<(u32, Value<'m>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let field = u32::try_from(key >> 3).ok().filter(|field| *field > 0);
        let field = field.ok_or_else(|| format!("a field with the number {}", key >> 3))?;
        let value = match key as u8 & 7 {
            VARINT => Value::Number(self.varint()?),
            FIXED_64 => self.take(8).map(|_| Value::Fixed)?,
            LENGTH_DELIMITED => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED_32 => self.take(4).map(|_| Value::Fixed)?,
            other => return Err(format!("field {field} has the unknown wire type {other}")),
        };
        Ok(Some((field, value)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or("a number without its end")?;
            self.rest = rest;
            // Bits that do not fit are dropped, as in every reader.
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 10 bytes".to_owned())
    }

    fn take(&mut self, length: u64) -> Result<&'m [u8], String> {
        let short = || format!("{} bytes where {length} are announced", self.rest.len());
        let at = usize::try_from(length).map_err(|_| short())?;
        let (taken, rest) = self.rest.split_at_checked(at).ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frames as the serializer of pipecat-ai 1.14.0 writes them.
    const PIPECAT_AUDIO: &[u8] =
        b"\x12&\x08\x01\x12\x15OutputAudioRawFrame#0\x1a\x04\x01\x00\xff\x7f \x80}(\x010\x05";
    const PIPECAT_MESSAGE: &[u8] = b"\"\n\n\x08{\"a\": 1}";
    const PIPECAT_INTERRUPTION: &[u8] = b"*\x17\x08\x03\x12\x13InterruptionFrame#0";
    const PIPECAT_TEXT: &[u8] = b"\n\x13\x08\x04\x12\x0bTextFrame#0\x1a\x02Hi";
    const PIPECAT_TRANSCRIPTION: &[u8] = b"\x1a\"\x08\x05\x12\x14TranscriptionFrame#0\x1a\x02Ja\"\x01u*\x01t";

    fn audio(bytes: &[u8], rate_hz: u32, channels: u32) -> FrameContent<'_> {
        FrameContent::Audio(bytes, Some(FrameAudioFormat { rate_hz, channels }))
    }

    #[test]
    fn frames_of_pipecat_are_read() {
        assert_eq!(read(PIPECAT_AUDIO), Ok(audio(&[1, 0, 255, 127], 16_000, 1)));
        assert_eq!(read(PIPECAT_MESSAGE), Ok(FrameContent::Json("{\"a\": 1}")));
        assert_eq!(read(PIPECAT_TEXT), Ok(FrameContent::Text("Hi")));
        assert_eq!(read(PIPECAT_TRANSCRIPTION), Ok(FrameContent::Text("Ja")));
        assert_eq!(read(PIPECAT_INTERRUPTION), Ok(FrameContent::Interruption));
        assert_eq!(read(&interruption_frame()), Ok(FrameContent::Interruption));
        assert_eq!(read(b""), Ok(FrameContent::Nothing));
    }

    #[test]
    fn written_frames_have_the_bytes_of_protobuf() {
        assert_eq!(write_json("{}")[..], *b"\x22\x04\x0a\x02{}");
        assert_eq!(write_audio(&[7, 8], 24_000)[..], *b"\x12\x0a\x1a\x02\x07\x08\x20\xc0\xbb\x01\x28\x01");
        let long = vec![3; 70_000];
        assert_eq!(read(&write_audio(&long, 48_000)), Ok(audio(&long, 48_000, 1)));
    }

    #[test]
    fn header_of_a_wav_file_is_no_audio() {
        let header =
            b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80>\0\0\0}\0\0\x02\0\x10\0data\x04\0\0\0";
        let file = [&header[..], &[1, 2, 3, 4]].concat();
        assert_eq!(read(&write_audio(&file, 16_000)), Ok(audio(&[1, 2, 3, 4], 16_000, 1)));
        let shorter = &file[..43];
        assert_eq!(read(&write_audio(shorter, 16_000)), Ok(audio(shorter, 16_000, 1)));
    }

    #[test]
    fn unknown_fields_are_skipped() {
        // A number, eight bytes, a text and four bytes; then the known field.
        let unknown = b"\x30\x96\x01\x39abcdefgh\x42\x02hi\x4dabcd";
        assert_eq!(read(unknown), Ok(FrameContent::Nothing));
        let frame = [unknown, &write_json("{}")[..], unknown].concat();
        assert_eq!(read(&frame), Ok(FrameContent::Json("{}")));
        // A known field of another type is an unknown one.
        assert_eq!(read(b"\x20\x05"), Ok(FrameContent::Nothing));
    }

    #[test]
    fn bytes_that_are_no_protobuf_are_errors_in_words() {
        for (frame, problem) in [
            (&b"\x22"[..], "a number without its end"),
            (b"\x22\x05{}", "2 bytes where 5 are announced"),
            (b"\x22\x04\x0a\x02\xff\xff", "text that is not UTF-8"),
            (b"\x23\x00", "field 4 has the unknown wire type 3"),
            (b"\x02\x00", "a field with the number 0"),
            (
                b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "0 bytes where 18446744073709551615 are announced",
            ),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number of more than 10 bytes"),
            (b"RIFF\x00\x00\x00\x00WAVE", "10 bytes where 73 are announced"),
        ] {
            let found = read(frame).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
    }

    proptest! {
        /// Bytes of any kind are read or refused; what is read lies within them.
        #[test]
        fn mutated_frames_are_read_or_refused(
            which in 0_usize..4,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            junk in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            let own = write_audio(&[1, 2, 3, 4], 24_000);
            let mut frame = [PIPECAT_AUDIO, PIPECAT_MESSAGE, PIPECAT_INTERRUPTION, &own][which].to_vec();
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            frame.truncate(cut.index(frame.len() + 1));
            frame.extend(junk);
            match read(&frame) {
                Ok(FrameContent::Audio(bytes, _)) => prop_assert!(bytes.len() <= frame.len()),
                Ok(FrameContent::Json(text) | FrameContent::Text(text)) => prop_assert!(text.len() <= frame.len()),
                Ok(FrameContent::Interruption | FrameContent::Nothing) => {}
                Ok(FrameContent::Announced(_)) => prop_assert!(false, "no header of another framing"),
                Err(problem) => prop_assert!(problem.len() < 100, "{problem}"),
            }
        }

        #[test]
        fn written_frames_are_read_again(bytes in prop::collection::vec(any::<u8>(), 0..500), rate_hz: u32, text: String) {
            let (audio_frame, json_frame) = (write_audio(&bytes, rate_hz), write_json(&text));
            prop_assert_eq!(read(&audio_frame), Ok(audio(&bytes, rate_hz, 1)));
            prop_assert_eq!(read(&json_frame), Ok(FrameContent::Json(&text)));
        }
    }
}
