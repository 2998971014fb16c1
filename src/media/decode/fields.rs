//! Reads numbers from headers.

/// Reads a big-endian number of this many bytes, at most eight.
pub(super) fn be(file: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = file.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Reads 16 bits, the highest first.
pub(super) fn be16(file: &[u8], at: usize) -> Option<u16> {
    file.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// Reads 32 bits, the highest first.
pub(super) fn be32(file: &[u8], at: usize) -> Option<u32> {
    file.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Reads 64 bits, the highest first.
pub(super) fn be64(file: &[u8], at: usize) -> Option<u64> {
    file.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Reads 16 bits, the lowest first.
pub(super) fn le16(file: &[u8], at: usize) -> Option<u16> {
    file.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

/// Reads 32 bits, the lowest first.
pub(super) fn le32(file: &[u8], at: usize) -> Option<u32> {
    file.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Reads 64 bits, the lowest first.
pub(super) fn le64(file: &[u8], at: usize) -> Option<u64> {
    file.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
