//! Audio of an answer: a WAV file or bare samples, in pieces that are cut anywhere, as float32 at the dialect's rate.

use crate::{
    audio::{
        pcm,
        resample::{Resampler, check_rate},
        wav,
    },
    foreign::shortened,
};
use std::time::Duration;

/// Longest header of a WAV file, bytes.
const HEADER_MAX_BYTES: usize = 64 * 1024;

/// Longest WAV file in one message. The player takes less.
const FILE_MAX: Duration = Duration::from_secs(600);

/// Reader of one body of audio.
#[derive(Debug)]
pub(super) struct AudioBody {
    /// Bytes that are not decoded: the header, or a part of a sample group.
    held: Vec<u8>,
    /// `None` while the header is incomplete.
    format: Option<PcmFormat>,
    /// Rate of samples without a header, Hz.
    bare_rate_hz: u32,
    /// Rate of the samples given out, Hz.
    output_rate_hz: u32,
    resampler: Option<Resampler>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PcmFormat {
    is_float: bool,
    /// Bytes of the samples of one instant.
    group_bytes: usize,
    rate_hz: u32,
    /// Bytes of the file's samples that are still to come; `None` without a known end.
    left: Option<u64>,
}

impl AudioBody {
    /// Reader of a body of this media type, which gives samples at `output_rate_hz`.
    ///
    /// # Errors
    /// The media type is of another kind than WAV and PCM.
    pub(super) fn new(media_type: &str, output_rate_hz: u32) -> Result<Self, String> {
        let mut parts = media_type.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let known = [
            "",
            "application/octet-stream",
            "audio/pcm",
            "audio/wav",
            "audio/wave",
            "audio/x-wav",
            "audio/vnd.wave",
        ];
        if !known.contains(&name.as_str()) {
            return Err(format!(
                "it answered with {}, but voxbridge takes WAV or PCM",
                shortened(media_type)
            ));
        }
        let rate = parts.find_map(|part| part.strip_prefix("rate=")?.parse().ok());
        Ok(Self {
            held: Vec::new(),
            format: None,
            bare_rate_hz: rate.unwrap_or(output_rate_hz),
            output_rate_hz,
            resampler: None,
        })
    }

    /// Takes a piece, and appends its samples to `samples`.
    ///
    /// # Errors
    /// The audio has an unknown format.
    pub(super) fn push(&mut self, bytes: &[u8], samples: &mut Vec<f32>) -> Result<(), String> {
        self.held.extend_from_slice(bytes);
        let format = match &mut self.format {
            Some(format) => format,
            none => {
                let Some((format, start)) = read_header(&self.held, self.bare_rate_hz)? else {
                    return Ok(());
                };
                self.held.drain(..start);
                if format.rate_hz != self.output_rate_hz {
                    let resampler = Resampler::new(format.rate_hz, self.output_rate_hz);
                    self.resampler = Some(resampler.map_err(|error| error.to_string())?);
                }
                none.insert(format)
            }
        };
        let known = format.left.map_or(self.held.len(), |left| self.held.len().min(left as usize));
        let whole = known - known % format.group_bytes;
        let decoded = self.held[..whole]
            .chunks_exact(format.group_bytes)
            .map(|group| first_sample(group, format.is_float));
        match &mut self.resampler {
            Some(resampler) => resampler.push(&decoded.collect::<Vec<_>>(), samples),
            None => samples.extend(decoded),
        }
        format.left = format.left.map(|left| left - whole as u64);
        let is_over = format.left.is_some_and(|left| left < format.group_bytes as u64);
        self.held.drain(..if is_over { self.held.len() } else { whole });
        Ok(())
    }

    /// The end of the body: appends the rest of the samples.
    ///
    /// # Errors
    /// The body ends before the length that its header says.
    pub(super) fn finish(&mut self, samples: &mut Vec<f32>) -> Result<(), String> {
        let missing =
            self.format.and_then(|format| format.left.filter(|left| *left >= format.group_bytes as u64));
        if let Some(bytes) = missing {
            return Err(format!("its WAV file ends {bytes} bytes too early"));
        }
        if let Some(resampler) = &mut self.resampler {
            resampler.flush(samples);
        }
        Ok(())
    }
}

/// Sample of the first channel.
fn first_sample(group: &[u8], is_float: bool) -> f32 {
    match *group {
        [a, b, c, d, ..] if is_float => f32::from_le_bytes([a, b, c, d]),
        [low, high, ..] => pcm::to_f32(i16::from_le_bytes([low, high])),
        _ => 0.0,
    }
}

/// Reads the beginning of a body: its format, and where its samples begin. `None` if more of it is needed.
fn read_header(bytes: &[u8], bare_rate_hz: u32) -> Result<Option<(PcmFormat, usize)>, String> {
    let magic = &bytes[..bytes.len().min(4)];
    if !b"RIFF".starts_with(magic) {
        let rate_hz = check_rate(bare_rate_hz).map_err(|error| error.to_string())?;
        return Ok(Some((PcmFormat { is_float: false, group_bytes: 2, rate_hz, left: None }, 0)));
    }
    let mut format = None;
    let mut at = 12;
    while let Some(head) = bytes.get(at..at + 8) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let start = at + 8;
        if head.starts_with(b"data") {
            let mut format: PcmFormat = format.ok_or("its WAV file has no format")?;
            // A writer that generates a file as it goes does not know its length, and writes 0 or a very large one.
            format.left = Some(u64::from(length)).filter(|length| (1..0x7fff_0000).contains(length));
            return Ok(Some((format, start)));
        }
        let Some(body) = bytes.get(start..start.saturating_add(length as usize)) else { break };
        if head.starts_with(b"fmt ") {
            format = Some(parse_format(body)?);
        }
        at = start + length as usize + length as usize % 2;
    }
    if bytes.len() > HEADER_MAX_BYTES {
        return Err("its WAV file has no samples".to_owned());
    }
    Ok(None)
}

fn parse_format(body: &[u8]) -> Result<PcmFormat, String> {
    let number = |at: usize| body.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let (channels, bits) = (number(2).max(1), number(14));
    let rate_hz = u32::from(number(4)) | u32::from(number(6)) << 16;
    // 0xfffe: the format stands at the beginning of the extension.
    let tag = if number(0) == 0xfffe { number(24) } else { number(0) };
    let is_float = match (tag, bits) {
        (1, 16) => false,
        (3, 32) => true,
        _ => {
            return Err(format!(
                "its WAV file has {bits}-bit samples of format {tag}, but voxbridge takes int16 or float32"
            ));
        }
    };
    let rate_hz = check_rate(rate_hz).map_err(|error| error.to_string())?;
    Ok(PcmFormat {
        is_float,
        group_bytes: usize::from(channels) * usize::from(bits / 8),
        rate_hz,
        left: None,
    })
}

/// Replaces `samples` by the audio of one message: a WAV file, or bare int16 samples at `rate_hz`.
pub(in crate::upstream) fn decode_base64_wav(
    data: &str,
    rate_hz: u32,
    samples: &mut Vec<f32>,
) -> Result<(), String> {
    let mut bytes = Vec::new();
    let dropped = |problem: String| format!("audio of {} characters that was dropped: {problem}", data.len());
    pcm::decode_base64(data, &mut bytes).map_err(|_| dropped("the audio is not valid base64".to_owned()))?;
    samples.clear();
    if !bytes.starts_with(b"RIFF") {
        let groups = bytes.chunks_exact(2);
        samples.extend(groups.map(|group| first_sample(group, false)));
        return Ok(());
    }
    let (read, read_hz) = wav::read(&bytes, FILE_MAX).map_err(|error| dropped(error.to_string()))?;
    let converted = wav::resample_all(&read, read_hz, rate_hz).map_err(|error| dropped(error.to_string()))?;
    samples.extend(converted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_HZ: u32 = 24_000;

    /// Samples of a body that comes in pieces of this length.
    fn read_in_pieces(media_type: &str, bytes: &[u8], length: usize) -> Result<Vec<f32>, String> {
        let mut body = AudioBody::new(media_type, RATE_HZ)?;
        let mut samples = Vec::new();
        for piece in bytes.chunks(length.max(1)) {
            body.push(piece, &mut samples)?;
        }
        body.finish(&mut samples)?;
        Ok(samples)
    }

    fn tone(samples: usize) -> Vec<i16> {
        (0..samples).map(|at| ((at as f32 * 0.1).sin() * 9000.0) as i16).collect()
    }

    #[test]
    fn wav_file_and_bare_samples_are_read_in_any_pieces() {
        let tone = tone(1000);
        let expected: Vec<f32> = tone.iter().map(|sample| pcm::to_f32(*sample)).collect();
        let bare: Vec<u8> = tone.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let file = wav::write_s16(&tone, RATE_HZ);
        let mut streamed = file.clone();
        streamed[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        let followed = wav::with_unaligned_length(file.clone());
        for length in [1, 2, 3, 7, 43, 44, 45, 4096] {
            for (media_type, bytes) in [
                ("audio/pcm", &bare),
                ("audio/wav", &file),
                ("Audio/X-WAV", &streamed),
                ("audio/wav", &followed),
            ] {
                assert_eq!(
                    read_in_pieces(media_type, bytes, length).unwrap(),
                    expected,
                    "{media_type} {length}"
                );
            }
        }
    }

    #[test]
    fn other_rates_are_converted() {
        for (rate_hz, media_type, has_header) in [
            (22_050, "audio/wav", true),
            (16_000, "audio/pcm;rate=16000", false),
            (48_000, "audio/wav", true),
        ] {
            let second = tone(rate_hz as usize);
            let bytes = match has_header {
                true => wav::write_s16(&second, rate_hz),
                false => second.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
            };
            assert_eq!(
                read_in_pieces(media_type, &bytes, 1000).unwrap().len(),
                RATE_HZ as usize,
                "{rate_hz} Hz"
            );
        }
    }

    #[test]
    fn file_that_ends_before_its_length_is_an_error() {
        let file = wav::write_s16(&tone(1000), RATE_HZ);
        for missing in [2, 100, 1999] {
            let problem = read_in_pieces("audio/wav", &file[..file.len() - missing], 100).unwrap_err();
            assert!(problem.contains("too early"), "{missing}: {problem}");
        }
    }

    #[test]
    fn other_formats_are_named() {
        let problem = |media_type: &str, bytes: &[u8]| read_in_pieces(media_type, bytes, 100).unwrap_err();
        assert!(problem("audio/mpeg", b"ID3").contains("answered with audio/mpeg"));
        let mut file = wav::write_s16(&[0; 10], RATE_HZ);
        file[34] = 24;
        assert!(problem("audio/wav", &file).contains("24-bit"));
        file[34] = 16;
        file[24..28].copy_from_slice(&1000u32.to_le_bytes());
        assert!(problem("audio/wav", &file).contains("1000 Hz is not supported"));
        assert!(
            problem("audio/wav", &[b"RIFF....WAVEjunk\xff\xff\xff\x7f".as_slice(), &[0; 70_000]].concat())
                .contains("no samples")
        );
    }

    #[test]
    fn audio_of_a_message_may_be_a_file_or_bare_samples() {
        for (rate_hz, bytes) in [
            (48_000, wav::write_s16(&tone(4800), 48_000)),
            (RATE_HZ, tone(2400).iter().flat_map(|sample| sample.to_le_bytes()).collect()),
        ] {
            let (mut base64, mut samples) = (String::new(), Vec::new());
            pcm::encode_base64(&bytes, &mut base64);
            decode_base64_wav(&base64, RATE_HZ, &mut samples).unwrap();
            assert_eq!(samples.len(), 2400, "{rate_hz} Hz");
        }
        assert!(decode_base64_wav("?", RATE_HZ, &mut Vec::new()).unwrap_err().contains("not valid base64"));
    }
}
