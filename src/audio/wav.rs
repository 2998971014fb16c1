//! WAV files as clips of mono float32: voice references and the command line. Whole files in memory, not streams.

use super::resample::{Resampler, UnsupportedRate, resampled_len};
use hound::{SampleFormat, WavReader};
use std::borrow::Cow;
use std::time::Duration;

/// Bytes that are no clip.
#[derive(Debug, thiserror::Error)]
pub enum WavError {
    /// Not a WAV file, or damaged, or of a kind that is not PCM (hound says which).
    #[error("not a readable WAV file: {0}")]
    Format(#[from] hound::Error),
    /// A PCM format that nobody uses for speech.
    #[error(
        "{bits}-bit {kind} samples are not supported (expected 8, 16, 24 or 32-bit integers or 32-bit floats)"
    )]
    Samples {
        /// Bits per sample.
        bits: u16,
        /// "integer" or "float".
        kind: &'static str,
    },
    /// The clip is longer than allowed.
    #[error("the recording lasts {actual:.1?}, which is too long (expected at most {expected:.1?})")]
    TooLong {
        /// The longest clip allowed.
        expected: Duration,
        /// How long this one is.
        actual: Duration,
    },
    /// The header names a rate that cannot be converted.
    #[error(transparent)]
    Rate(#[from] UnsupportedRate),
}

/// Reads the first channel of a WAV file of at most `longest`: samples in ±1 and their rate in Hz. A header written
/// before the length was known (a pipe of ffmpeg or sox) is taken to mean: to the end.
///
/// # Errors
/// [`WavError`] if it is no WAV file, damaged, of a sample format or rate that is not supported, or too long.
pub fn read(bytes: &[u8], longest: Duration) -> Result<(Vec<f32>, u32), WavError> {
    let mended = mend(bytes);
    let mut reader = WavReader::new(&*mended)?;
    let spec = reader.spec();
    let rate_hz = super::resample::supported(spec.sample_rate)?;
    let actual = Duration::from_secs_f64(f64::from(reader.duration()) / f64::from(rate_hz));
    if actual > longest {
        return Err(WavError::TooLong { expected: longest, actual });
    }
    let channels = usize::from(spec.channels.max(1));
    let samples = match (spec.sample_format, spec.bits_per_sample) {
        (SampleFormat::Int, bits @ (8 | 16 | 24 | 32)) => {
            let scale = 1.0 / (1u64 << (bits - 1)) as f32;
            reader
                .samples::<i32>()
                .step_by(channels)
                .map(|s| Ok(s? as f32 * scale))
                .collect::<Result<_, hound::Error>>()?
        }
        (SampleFormat::Float, 32) => reader.samples::<f32>().step_by(channels).collect::<Result<_, _>>()?,
        (SampleFormat::Int, bits) => return Err(WavError::Samples { bits, kind: "integer" }),
        (SampleFormat::Float, bits) => return Err(WavError::Samples { bits, kind: "float" }),
    };
    Ok((samples, rate_hz))
}

/// A whole clip at another rate.
///
/// # Errors
/// [`UnsupportedRate`] if either rate is outside 8 to 192 kHz.
pub fn resample_all(samples: &[f32], from_hz: u32, to_hz: u32) -> Result<Vec<f32>, UnsupportedRate> {
    let mut resampler = Resampler::new(from_hz, to_hz)?;
    let mut out = Vec::with_capacity(resampled_len(samples.len() as u64, from_hz, to_hz) as usize);
    resampler.push(samples, &mut out);
    resampler.flush(&mut out);
    Ok(out)
}

/// Length of the header that [`write_s16`] writes.
const HEADER_BYTES: usize = 44;

/// A WAV file of int16 mono.
#[must_use]
pub fn write_s16(samples: &[i16], rate_hz: u32) -> Vec<u8> {
    let data_bytes = u32::try_from(samples.len() * 2).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(HEADER_BYTES + samples.len() * 2);
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&data_bytes.saturating_add(HEADER_BYTES as u32 - 8).to_le_bytes());
    out.extend_from_slice(b"WAVEfmt ");
    out.extend_from_slice(&16u32.to_le_bytes());
    out.extend_from_slice(&1u16.to_le_bytes()); // PCM
    out.extend_from_slice(&1u16.to_le_bytes()); // channels
    out.extend_from_slice(&rate_hz.to_le_bytes());
    out.extend_from_slice(&(rate_hz * 2).to_le_bytes()); // bytes per second
    out.extend_from_slice(&2u16.to_le_bytes()); // bytes per sample group
    out.extend_from_slice(&16u16.to_le_bytes()); // bits per sample
    out.extend_from_slice(b"data");
    out.extend_from_slice(&data_bytes.to_le_bytes());
    out.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    out
}

/// Puts right the length of a data chunk that claims more than there is, down to whole sample groups.
fn mend(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut group_bytes = 1;
    let mut at = 12;
    while let Some(header) = bytes.get(at..at + 8) {
        let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let body = at + 8;
        if header.starts_with(b"fmt ")
            && let Some(group) = bytes.get(body + 12..body + 14)
        {
            group_bytes = usize::from(u16::from_le_bytes([group[0], group[1]])).max(1);
        }
        if header.starts_with(b"data") {
            let there = bytes.len() - body;
            if len <= there {
                break;
            }
            let whole = (there - there % group_bytes) as u32;
            let mut mended = bytes.to_vec();
            mended[at + 4..body].copy_from_slice(&whole.to_le_bytes());
            return Cow::Owned(mended);
        }
        at = body.saturating_add(len).saturating_add(len % 2);
    }
    Cow::Borrowed(bytes)
}
