//! Corrects lengths in headers that contradict the length of the file.

use bytes::{Bytes, BytesMut};

/// Shortens the last box of an MP4 file that was cut off to what the file has, because symphonia otherwise rejects the file
/// before the first sample. States the length of a last box that ends with the file.
pub(super) fn repair_mp4(file: Bytes) -> Bytes {
    let mut at: usize = 0;
    while let Some(size) = read_u32(&file, at).map(u32::from_be_bytes) {
        let left = file.len() - at;
        let (size, size_at) = match size {
            // Zero stands for "to the end of the file".
            0 => (u32::MAX, at),
            // The size follows the type in 64 bits; the lower half suffices.
            1 => (read_u32(&file, at + 12).map_or(u32::MAX, u32::from_be_bytes), at + 12),
            _ => (size, at),
        };
        if size as usize > left {
            let fits = size_at + 4 <= file.len();
            return if fits { patch(file, &[(size_at, &as_u32(left).to_be_bytes())]) } else { file };
        }
        if size < 8 {
            break;
        }
        at += size as usize;
    }
    file
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
