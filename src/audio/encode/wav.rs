//! WAV of unknown length.

use super::push_s16le;
use crate::audio::wav;

/// Data length that stands for "unknown", as Macaw writes it (Macaw field notes §6). Players then read to the end.
/// 0xFFFFFFFF, which ffmpeg writes, is negative for programs that read it as a signed number.
const UNKNOWN_BYTES: u32 = 0x7fff_ffff;

/// Writes the header before the first samples.
pub(super) struct WavStream {
    header: Option<Vec<u8>>,
}

impl WavStream {
    pub(super) fn new(rate_hz: u32) -> Self {
        let mut header = wav::write_s16(&[], rate_hz);
        header[4..8].copy_from_slice(&(UNKNOWN_BYTES + 36).to_le_bytes());
        header[40..44].copy_from_slice(&UNKNOWN_BYTES.to_le_bytes());
        Self { header: Some(header) }
    }

    pub(super) fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        if let Some(header) = self.header.take() {
            out.extend(header);
        }
        push_s16le(samples, out);
    }
}
