//! Corrects lengths in the headers of WAV files that were written as a stream.
//!
//! A program that writes to a pipe does not know the length: ffmpeg writes 0xFFFFFFFF, Macaw and sox something near
//! 0x7FFFFFFF, others 0.

use bytes::{Bytes, BytesMut};

/// Sets the lengths of the RIFF chunk and of the data chunk to what the file has. A file that was cut off keeps the
/// data length that its header claims, so that [`super::Decoder`] reports the missing audio.
pub(super) fn repair(file: Bytes) -> Bytes {
    let Some(data_at) = find_data(&file) else { return file };
    let available = file.len() - data_at;
    let claimed = read_u32(&file, data_at - 4).unwrap_or(0);
    let riff = u32::try_from(file.len() - 8).unwrap_or(u32::MAX);
    let unknown = claimed == 0 || claimed >= UNKNOWN_FROM_BYTES;
    let data = if unknown { u32::try_from(available).unwrap_or(u32::MAX) } else { claimed };
    if data == claimed && read_u32(&file, 4).is_some_and(|known| known >= riff && known < u32::MAX) {
        return file;
    }
    // Copies only if somebody else holds the file too.
    let mut file = file.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    file[4..8].copy_from_slice(&riff.max(data.saturating_add(36)).to_le_bytes());
    file[data_at - 4..data_at].copy_from_slice(&data.to_le_bytes());
    file.freeze()
}

/// Claimed data lengths from here on mean "unknown": just below 2 GB, where sox subtracts the header.
const UNKNOWN_FROM_BYTES: u32 = 0x7fff_0000;

/// Position of the samples: behind the header of the data chunk.
fn find_data(file: &[u8]) -> Option<usize> {
    let mut at: usize = 12;
    loop {
        let len = read_u32(file, at.checked_add(4)?)? as usize;
        if file.get(at..at + 4)? == b"data" {
            return Some(at + 8);
        }
        at = at.checked_add(8)?.checked_add(len)?.checked_add(len % 2)?;
    }
}

fn read_u32(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
