//! A file as its decoder reads it: parts of the upload and rewritten headers in a row, until the request is cancelled.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use symphonia::core::io::MediaSource;

/// Stops a decoder from another thread, also in the middle of a call.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Stops the decoder at its next packet or its next read from the file.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Parts in a row.
pub(super) struct Source {
    /// Each part with its position; none is empty.
    parts: Vec<(u64, Bytes)>,
    len: u64,
    position: u64,
    cancel: CancelFlag,
}

impl Source {
    pub(super) fn new(parts: Vec<Bytes>, cancel: CancelFlag) -> Self {
        let mut len = 0;
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let parts = parts
            .map(|part| {
                let at = len;
                len += part.len() as u64;
                (at, part)
            })
            .collect();
        Self { parts, len, position: 0, cancel }
    }

    /// The bytes from the position to the end of their part.
    fn rest_of_part(&self) -> &[u8] {
        let next = self.parts.partition_point(|(at, _)| *at <= self.position);
        let Some((at, part)) = next.checked_sub(1).and_then(|index| self.parts.get(index)) else {
            return &[];
        };
        let skipped = usize::try_from(self.position - at).unwrap_or(usize::MAX);
        part.get(skipped..).unwrap_or_default()
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("the request was cancelled"));
        }
        let rest = self.rest_of_part();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for Source {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.len.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl MediaSource for Source {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let parts = [&b"ab"[..], b"", b"XYZ", b"fgh"].map(Bytes::from_static);
        Source::new(parts.to_vec(), CancelFlag::default())
    }

    #[test]
    fn parts_are_read_in_a_row() {
        let mut read = String::new();
        source().read_to_string(&mut read).unwrap();
        assert_eq!(read, "abXYZfgh");
    }

    #[test]
    fn seeking_reaches_every_part_and_behind_the_end_there_is_nothing() {
        for at in 0..10 {
            let (mut source, mut read) = (source(), String::new());
            source.seek(SeekFrom::Start(at)).unwrap();
            source.read_to_string(&mut read).unwrap();
            assert_eq!(read, "abXYZfgh".get(at as usize..).unwrap_or_default());
        }
    }

    #[test]
    fn cancelled_file_is_not_read_on() {
        let mut source = source();
        source.cancel.cancel();
        assert!(source.read(&mut [0]).is_err());
    }
}
