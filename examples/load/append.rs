//! Fast reader for appends without a JSON parser: finds the audio by its key and borrows it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use voxbridge::{audio::pcm, spelling::upstream::SampleEncoding};

use super::test_audio::{BLOCK_SAMPLES, SECOND_SAMPLES};

/// Base64 characters of a whole unit of float32.
const UNIT_BASE64_CHARS: usize = (4 * SECOND_SAMPLES).div_ceil(3) * 4;
/// The message type is within this prefix.
const TYPE_SEARCH_BYTES: usize = 160;
/// Number of blocks decoded in sparse mode.
const SPOT_CHECKS: usize = 8;

/// Content of an append.
pub(crate) struct Append<'a> {
    audio: &'a [u8],
    encoding: SampleEncoding,
    /// Samples before the client's audio.
    lead: usize,
    /// Empty without an id.
    pub(crate) input_id: &'a str,
}

/// True if a message has this type.
pub(crate) fn has_type(payload: &[u8], kind: &str) -> bool {
    find_text(&payload[..payload.len().min(TYPE_SEARCH_BYTES)], kind).is_some()
        || (payload.len() < 2_000 && find_text(payload, kind).is_some())
}

impl<'a> Append<'a> {
    /// Reads an append; `None` if it has no audio.
    pub(crate) fn parse(payload: &'a [u8], encoding: SampleEncoding, lead: usize) -> Option<Self> {
        let audio =
            find_string_value(payload, "\"audio\"").or_else(|| find_string_value(payload, "\"data\""))?;
        let behind = audio.as_ptr() as usize - payload.as_ptr() as usize + audio.len();
        let tail = payload.get(behind..)?;
        let id = find_string_value(tail, "\"input_id\"")
            .or_else(|| find_string_value(&payload[..payload.len() - tail.len()], "\"input_id\""));
        let input_id = id.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or_default();
        Some(Self { audio, encoding, lead, input_id })
    }

    /// True if the audio lasts exactly one second.
    pub(crate) const fn is_unit(&self) -> bool {
        self.audio.len() == (self.sample_bytes() * SECOND_SAMPLES).div_ceil(3) * 4
    }

    const fn sample_bytes(&self) -> usize {
        if matches!(self.encoding, SampleEncoding::S16le) { 2 } else { 4 }
    }

    /// Decodes all audio; invalid base64 becomes empty.
    pub(crate) fn samples(&self) -> Vec<f32> {
        let mut samples = self.decode(self.audio);
        samples.drain(..self.lead.min(samples.len()));
        samples
    }

    fn decode(&self, text: &[u8]) -> Vec<f32> {
        match self.encoding {
            SampleEncoding::S16le => decode_s16(&STANDARD.decode(text).unwrap_or_default()),
            _ => decode_f32_base64(text),
        }
    }

    /// Decodes some blocks with their positions; `seed` selects the blocks.
    pub(crate) fn spot_check_blocks(&self, number: u64) -> Vec<(usize, Vec<f32>)> {
        // Three samples take four characters for each byte of one.
        const PART: usize = BLOCK_SAMPLES.div_ceil(3);
        let block = |index: usize| {
            let three =
                (index * SECOND_SAMPLES / SPOT_CHECKS + (number as usize * 7 % 12) * BLOCK_SAMPLES) / 3;
            let chars = 4 * self.sample_bytes();
            let mut samples = self.decode(self.audio.get(chars * three..chars * (three + PART))?);
            samples.truncate(BLOCK_SAMPLES);
            Some((3 * three, samples))
        };
        (0..SPOT_CHECKS).filter_map(block).collect()
    }
}

/// Decodes base64 of float32; invalid base64 becomes empty.
pub(crate) fn decode_f32_base64(text: &[u8]) -> Vec<f32> {
    decode_f32(&STANDARD.decode(text).unwrap_or_default())
}

fn decode_s16(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<2>().0.iter().map(|two| pcm::to_f32(i16::from_le_bytes(*two))).collect()
}

fn decode_f32(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

/// Finds the text value of a key without scanning the whole of a long message.
pub(crate) fn find_string_value<'a>(payload: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let begin = find_text(&payload[..payload.len().min(TYPE_SEARCH_BYTES)], key)
        .or_else(|| find_text(payload, key))?
        + key.len();
    let rest = payload.get(begin..)?;
    let quote = rest.iter().position(|byte| !matches!(byte, b':' | b' '))?;
    if rest[quote] != b'"' {
        return None;
    }
    let text = &rest[quote + 1..];
    let whole = text.get(UNIT_BASE64_CHARS) == Some(&b'"') && text[UNIT_BASE64_CHARS - 1] == b'=';
    let end = if whole { UNIT_BASE64_CHARS } else { text.iter().position(|byte| *byte == b'"')? };
    Some(&text[..end])
}

fn find_text(bytes: &[u8], text: &str) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_is_parsed_with_any_field_order() {
        let unit = STANDARD.encode(vec![0; 4 * SECOND_SAMPLES]);
        for text in [
            format!(
                r#"{{"type":"input.append","input":{{"audio":"{unit}","input_id":"7","force_listen":false}}}}"#
            ),
            format!(r#"{{"type": "input.append", "input": {{"input_id": "7", "audio": "{unit}"}}}}"#),
        ] {
            assert!(has_type(text.as_bytes(), "input.append"));
            let append = Append::parse(text.as_bytes(), SampleEncoding::F32le, 0).unwrap();
            assert!(append.is_unit() && append.samples().len() == SECOND_SAMPLES && append.input_id == "7");
            assert_eq!(append.spot_check_blocks(3).len(), SPOT_CHECKS);
        }
        assert!(Append::parse(br#"{"type":"input.append","input":{}}"#, SampleEncoding::F32le, 0).is_none());
    }

    #[test]
    fn int16_append_is_a_unit_without_its_lead() {
        let bytes: Vec<u8> = (0..SECOND_SAMPLES as i16).flat_map(i16::to_le_bytes).collect();
        let text = format!(r#"{{"type":"input_audio_buffer.append","audio":"{}"}}"#, STANDARD.encode(bytes));
        let append = Append::parse(text.as_bytes(), SampleEncoding::S16le, 0).unwrap();
        let (at, block) = append.spot_check_blocks(3).pop().unwrap();
        assert!(append.is_unit() && block[1] == pcm::to_f32(at as i16 + 1) && block.len() == BLOCK_SAMPLES);
        let append = Append::parse(text.as_bytes(), SampleEncoding::S16le, 320).unwrap();
        assert_eq!((append.samples().len(), append.samples()[0]), (SECOND_SAMPLES - 320, pcm::to_f32(320)));
    }
}
