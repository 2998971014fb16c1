//! Samples, alone or as a WAV file of unknown length.

use crate::{encoding::Encoding, pcm};

/// Data length that stands for "unknown", as Macaw writes it (mappings/notes/macaw.md#rest). Players then read to the
/// end. 0xFFFFFFFF, which ffmpeg writes, is negative for programs that read it as a signed number.
const UNKNOWN_BYTES: u32 = 0x7fff_ffff;

/// Writes samples, and the header before the first of them.
pub(super) struct SampleStream {
    header: Option<Vec<u8>>,
    samples: Encoding,
}

impl SampleStream {
    /// A WAV file.
    pub(super) fn with_header(samples: Encoding, rate_hz: u32) -> Self {
        Self { header: Some(header(samples, rate_hz)), samples }
    }

    /// Samples alone.
    pub(super) const fn bare(samples: Encoding) -> Self {
        Self { header: None, samples }
    }

    pub(super) fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        out.extend(self.header.take().unwrap_or_default());
        match self.samples {
            Encoding::S16le => out.extend(samples.iter().flat_map(|sample| sample.to_le_bytes())),
            other => {
                let samples: Vec<f32> = samples.iter().map(|sample| pcm::to_f32(*sample)).collect();
                other.encode(&samples, out);
            }
        }
    }
}

/// A header with the format tags of WAVE (RFC 2361: 1 integer, 3 float, 6 A-law, 7 μ-law).
fn header(samples: Encoding, rate_hz: u32) -> Vec<u8> {
    let tag: u16 = match samples {
        Encoding::F32le => 3,
        Encoding::Alaw => 6,
        Encoding::Mulaw => 7,
        _ => 1,
    };
    let sample_bytes = samples.bytes_per_sample() as u16;
    let mut header = Vec::with_capacity(44);
    header.extend(b"RIFF");
    header.extend((UNKNOWN_BYTES + 36).to_le_bytes());
    header.extend(b"WAVEfmt ");
    header.extend(16_u32.to_le_bytes());
    header.extend([tag, 1].map(u16::to_le_bytes).concat());
    header.extend(rate_hz.to_le_bytes());
    header.extend((rate_hz * u32::from(sample_bytes)).to_le_bytes());
    header.extend([sample_bytes, sample_bytes * 8].map(u16::to_le_bytes).concat());
    header.extend(b"data");
    header.extend(UNKNOWN_BYTES.to_le_bytes());
    header
}
