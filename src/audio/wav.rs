//! Reads and writes WAV files as clips of mono float32, for voice references and the command line. Files are held
//! in memory, not streamed.

use super::resample::{Resampler, UnsupportedRate, resampled_len};
use hound::{SampleFormat, WavReader};
use std::borrow::Cow;
use std::time::Duration;

/// WAV file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WavError {
    /// Not a WAV file, damaged, or not PCM (hound's message says which).
    #[error("not a readable WAV file: {0}")]
    Format(#[from] hound::Error),
    /// Unsupported PCM sample format.
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
        /// Longest allowed clip.
        expected: Duration,
        /// Length of this clip.
        actual: Duration,
    },
    /// The header names an unsupported rate.
    #[error(transparent)]
    Rate(#[from] UnsupportedRate),
}

/// Reads the first channel of a WAV file of at most `max_duration`: samples in ±1 and their rate in Hz. If the
/// header claims more data than the file has, as piped output of ffmpeg and sox does, reads to the end of the
/// file.
///
/// # Errors
/// [`WavError`] if the file is not WAV, damaged, too long, or has an unsupported sample format or rate.
pub fn read(bytes: &[u8], max_duration: Duration) -> Result<(Vec<f32>, u32), WavError> {
    let repaired = repair_data_length(bytes);
    let mut reader = WavReader::new(&*repaired)?;
    let spec = reader.spec();
    let rate_hz = super::resample::check_rate(spec.sample_rate)?;
    let actual = Duration::from_secs_f64(f64::from(reader.duration()) / f64::from(rate_hz));
    if actual > max_duration {
        return Err(WavError::TooLong { expected: max_duration, actual });
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

/// Resamples a whole clip.
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

/// Length of the header of a file of int16.
pub const HEADER_BYTES: usize = 44;

/// The header of a file of int16 with this many bytes of samples.
pub fn header_s16(channels: u16, rate_hz: u32, data_bytes: u32) -> [u8; HEADER_BYTES] {
    let group_bytes = channels.saturating_mul(2);
    let mut header = [0; HEADER_BYTES];
    let fields: [&[u8]; 13] = [
        b"RIFF",
        &data_bytes.saturating_add(HEADER_BYTES as u32 - 8).to_le_bytes(),
        b"WAVE",
        b"fmt ",
        &16u32.to_le_bytes(),
        &1u16.to_le_bytes(), // PCM
        &channels.to_le_bytes(),
        &rate_hz.to_le_bytes(),
        &(rate_hz * u32::from(group_bytes)).to_le_bytes(), // bytes per second
        &group_bytes.to_le_bytes(),
        &16u16.to_le_bytes(), // bits per sample
        b"data",
        &data_bytes.to_le_bytes(),
    ];
    header.copy_from_slice(&fields.concat());
    header
}

/// Builds a WAV file of mono int16.
pub fn write_s16(samples: &[i16], rate_hz: u32) -> Vec<u8> {
    let data_bytes = u32::try_from(samples.len() * 2).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(HEADER_BYTES + samples.len() * 2);
    out.extend_from_slice(&header_s16(1, rate_hz, data_bytes));
    out.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    out
}

/// Returns the file with a length that is no multiple of four bytes, so that receivers cannot mistake it for raw
/// float32. If necessary, appends a chunk that readers skip.
pub fn with_unaligned_length(bytes: Vec<u8>) -> Vec<u8> {
    if !bytes.len().is_multiple_of(4) {
        return bytes;
    }
    // Repair the length first, or an oversized data chunk would include the appended chunk as sound.
    let mut out = repair_data_length(&bytes).into_owned();
    out.extend_from_slice(b"JUNK\x02\0\0\0\0\0");
    let length = u32::try_from(out.len() - 8).unwrap_or(u32::MAX);
    if let Some(known) = out.get_mut(4..8) {
        known.copy_from_slice(&length.to_le_bytes());
    }
    out
}

/// Corrects the length of a data chunk that claims more bytes than the file has, to whole sample groups.
fn repair_data_length(bytes: &[u8]) -> Cow<'_, [u8]> {
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
            let available = bytes.len() - body;
            if len <= available {
                break;
            }
            let whole = (available - available % group_bytes) as u32;
            let mut repaired = bytes.to_vec();
            repaired[at + 4..body].copy_from_slice(&whole.to_le_bytes());
            return Cow::Owned(repaired);
        }
        at = body.saturating_add(len).saturating_add(len % 2);
    }
    Cow::Borrowed(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hound::{WavSpec, WavWriter};
    use proptest::prelude::*;
    use std::io::Cursor;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn unaligned_length_keeps_the_samples() {
        for samples in 0..8_i16 {
            let samples: Vec<i16> = (0..samples).map(|at| at * 99).collect();
            let mut streamed = write_s16(&samples, 24_000);
            streamed[40..44].fill(0xff);
            for file in [write_s16(&samples, 24_000), streamed] {
                let unaligned = with_unaligned_length(file.clone());
                assert!(!unaligned.len().is_multiple_of(4));
                assert_eq!(read(&unaligned, MINUTE).unwrap(), read(&file, MINUTE).unwrap());
                assert_eq!(
                    unaligned == file,
                    !file.len().is_multiple_of(4),
                    "an unaligned file stays unchanged"
                );
            }
        }
    }

    fn write<S: hound::Sample + Copy>(
        format: SampleFormat,
        bits: u16,
        channels: u16,
        samples: &[S],
    ) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let spec = WavSpec { channels, sample_rate: 22_050, bits_per_sample: bits, sample_format: format };
        let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
        samples.iter().for_each(|sample| writer.write_sample(*sample).unwrap());
        writer.finalize().unwrap();
        bytes.into_inner()
    }

    #[test]
    fn every_sample_format_is_read() {
        for bits in [8u16, 16, 24, 32] {
            let half = 1i32 << (bits - 2);
            let bytes = write(SampleFormat::Int, bits, 2, &[half, 1, -half, 1]);
            assert_eq!(read(&bytes, MINUTE).unwrap(), (vec![0.5, -0.5], 22_050), "{bits} bits");
        }
        let bytes = write(SampleFormat::Float, 32, 3, &[0.25f32, 9.0, 9.0, -1.0, 9.0, 9.0]);
        assert_eq!(read(&bytes, MINUTE).unwrap().0, [0.25, -1.0]);
    }

    #[test]
    fn unknown_data_length_reads_to_the_end() {
        let mut bytes = write_s16(&[100, 200, 300], 16_000);
        bytes[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        bytes.push(7);
        assert_eq!(read(&bytes, MINUTE).unwrap().0.len(), 3);
    }

    #[test]
    fn long_clips_and_unsupported_rates_are_rejected() {
        let error = read(&write_s16(&[0; 16_000], 8_000), Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.to_string(), "the recording lasts 2.0s, which is too long (expected at most 1.0s)");
        assert!(matches!(read(&write_s16(&[0], 4_000), MINUTE), Err(WavError::Rate(_))));
        assert!(matches!(read(b"ID3 not a wav", MINUTE), Err(WavError::Format(_))));
    }

    #[test]
    fn resample_all_keeps_the_duration() {
        assert_eq!(resample_all(&[0.1; 44_100], 44_100, 16_000).unwrap().len(), 16_000);
        assert!(resample_all(&[0.1], 1, 16_000).is_err());
    }

    proptest! {
        #[test]
        fn written_file_reads_back(samples in prop::collection::vec(any::<i16>(), 0..400)) {
            let (back, rate_hz) = read(&write_s16(&samples, 16_000), MINUTE).unwrap();
            prop_assert_eq!(rate_hz, 16_000);
            prop_assert_eq!(back, samples.iter().map(|s| crate::pcm::to_f32(*s)).collect::<Vec<_>>());
        }

        #[test]
        fn damaged_files_never_panic(at in 0usize..60, byte: u8, len in 0usize..60) {
            let mut bytes = write_s16(&[1, 2, 3, 4, 5, 6, 7, 8], 16_000);
            bytes[at] = byte;
            bytes.truncate(len);
            let _ = read(&bytes, MINUTE);
        }
    }
}
