//! Corrects lengths in headers that contradict the length of the file.

use bytes::{Bytes, BytesMut};

/// Sets the lengths of a WAV file's RIFF chunk and data chunk to what the file has, if it was written as a stream: a
/// program that writes to a pipe does not know the length. ffmpeg writes 0xFFFFFFFF, Macaw and sox something near
/// 0x7FFFFFFF, others 0.
///
/// A file that was cut off keeps the data length that its header claims, so that [`super::Decoder`] reports the
/// missing audio.
pub(super) fn repair_wav(file: Bytes) -> Bytes {
    let Some(data_at) = find_wav_data(&file) else { return file };
    let claimed = read_u32(&file, data_at - 4).map_or(0, u32::from_le_bytes);
    let is_unknown = claimed == 0 || claimed >= UNKNOWN_FROM_BYTES;
    let data = if is_unknown { as_u32(file.len() - data_at) } else { claimed };
    let riff = as_u32(file.len() - 8).max(data.saturating_add(36)).min(u32::MAX - 1);
    patch(file, &[(4, &riff.to_le_bytes()), (data_at - 4, &data.to_le_bytes())])
}

/// Claimed data lengths from here on mean "unknown": just below 2 GB, where sox subtracts the header.
const UNKNOWN_FROM_BYTES: u32 = 0x7fff_0000;

/// Position of the samples: behind the header of the data chunk.
fn find_wav_data(file: &[u8]) -> Option<usize> {
    let mut at: usize = 12;
    loop {
        let len = u32::from_le_bytes(read_u32(file, at.checked_add(4)?)?) as usize;
        if file.get(at..at + 4)? == b"data" {
            return Some(at + 8);
        }
        at = at.checked_add(8)?.checked_add(len)?.checked_add(len % 2)?;
    }
}

/// Shortens the last box of an MP4 file that was cut off to what the file has. symphonia otherwise rejects the file
/// before the first sample.
pub(super) fn repair_mp4(file: Bytes) -> Bytes {
    let mut at: usize = 0;
    while let Some(size) = read_u32(&file, at).map(u32::from_be_bytes) {
        let left = file.len() - at;
        let (size, size_at) = match size {
            // The size follows the type in 64 bits, of which the lower half suffices.
            1 => (read_u32(&file, at + 12).map_or(u32::MAX, u32::from_be_bytes), at + 12),
            _ => (size, at),
        };
        if size as usize > left {
            let fits = size_at + 4 <= file.len();
            return if fits { patch(file, &[(size_at, &as_u32(left).to_be_bytes())]) } else { file };
        }
        // Zero stands for "to the end of the file".
        if size < 8 {
            break;
        }
        at += size as usize;
    }
    file
}

/// True if a fragmented MP4 file announces more samples than it has bytes. symphonia counts through all of them, 10 s
/// for each header of 20 bytes. Looks only at runs of samples whose length no table bounds (ISO 14496-12 §8.8.8).
pub(super) fn has_endless_runs(file: &[u8]) -> bool {
    let samples = |at: usize| match file.get(at + 4..at + 8)? {
        [0 | 1, 0, 0, _] => read_u32(file, at + 8).map(|count| u64::from(u32::from_be_bytes(count))),
        _ => None,
    };
    memchr::memmem::find_iter(file, b"trun").filter_map(samples).sum::<u64>() > file.len() as u64
}

/// Declares the length of a WebM file's segment unknown if the file was cut off, and its table of contents void.
/// symphonia otherwise rejects the file.
pub(super) fn repair_webm(file: Bytes) -> Bytes {
    let Some((at, len)) = find_cut_segment(&file) else { return file };
    // Ones in all bits behind the length marker stand for "unknown" (RFC 8794 §6.2).
    let mut unknown = [0xff; 8];
    unknown[0] = 0xff >> (len - 1);
    let mut file = patch(file, &[(at, &unknown[..len])]);
    let contents_at = at + len;
    if let Some([0x11, 0x4d, 0x9b, 0x74, size @ 0x80..=0xff]) = file.get(contents_at..contents_at + 5) {
        // Void, and the same size in four bytes instead of one.
        let void = [0xec, 0x10, 0, 0, size & 0x7f];
        file = patch(file, &[(contents_at, &void)]);
    }
    file
}

/// Position and length of the segment's size, if the segment is longer than the file (RFC 8794 §11.1).
fn find_cut_segment(file: &[u8]) -> Option<(usize, usize)> {
    let (header_size, header_size_len) = read_vint(file, 4)?;
    let segment_at = usize::try_from(header_size).ok()?.checked_add(4 + header_size_len)?;
    if file.get(segment_at..segment_at.checked_add(4)?)? != [0x18, 0x53, 0x80, 0x67] {
        return None;
    }
    let (size, len) = read_vint(file, segment_at + 4)?;
    let left = (file.len() - segment_at - 4 - len) as u64;
    (size > left).then_some((segment_at + 4, len))
}

/// Reads a size of one to eight bytes, and returns it with its length.
fn read_vint(file: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *file.get(at)?;
    let len = first.leading_zeros() as usize + 1;
    let bytes = file.get(at + 1..at + len)?;
    let head = u64::from(first) & (0x7f >> (len - 1).min(7));
    (len <= 8).then(|| (bytes.iter().fold(head, |size, byte| size << 8 | u64::from(*byte)), len))
}

/// Replaces the bytes at each position. Copies the file only if somebody else holds it too.
fn patch(file: Bytes, changes: &[(usize, &[u8])]) -> Bytes {
    if changes.iter().all(|(at, bytes)| file[*at..].starts_with(bytes)) {
        return file;
    }
    let mut file = file.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    for (at, bytes) in changes {
        file[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    file.freeze()
}

fn read_u32(file: &[u8], at: usize) -> Option<[u8; 4]> {
    file.get(at..at.checked_add(4)?)?.try_into().ok()
}

fn as_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
