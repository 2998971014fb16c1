//! The audio file of a recording: WAV of int16, complete after every write.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use super::{RecordedSides, store::Store};
use crate::{
    audio::{
        pcm::s16le_bytes,
        wav::{HEADER_BYTES, header_s16},
    },
    recording::{AudioPart, RATE_HZ},
};

/// A WAV file that grows.
#[derive(Debug)]
pub(super) struct WavFile {
    file: File,
    sides: RecordedSides,
    data_bytes: u64,
}

impl WavFile {
    /// Creates a file without samples.
    pub(super) fn create(path: &Path, sides: RecordedSides, store: &Store) -> io::Result<Self> {
        store.reserve(HEADER_BYTES as u64)?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        let wav = Self { file, sides, data_bytes: 0 };
        wav.write_header()?;
        Ok(wav)
    }

    /// Length of the audio, ms.
    pub(super) fn length_ms(&self) -> u64 {
        self.data_bytes / self.group_bytes() * 1000 / u64::from(RATE_HZ)
    }

    fn group_bytes(&self) -> u64 {
        u64::from(self.sides.channels()) * 2
    }

    /// Writes samples at their place: first the samples, then the header that counts them.
    ///
    /// # Errors
    /// The system's, or there is no room.
    pub(super) fn write(&mut self, part: &AudioPart, store: &Store) -> io::Result<()> {
        let start = part.position * self.group_bytes();
        let bytes = s16le_bytes(&self.sides.interleaved(&part.samples));
        let end = start + bytes.len() as u64;
        if end > u64::from(u32::MAX) - HEADER_BYTES as u64 {
            return Err(io::Error::other("a WAV file has room for 4 GiB"));
        }
        store.reserve(end.saturating_sub(self.data_bytes))?;
        self.file.write_all_at(&bytes, HEADER_BYTES as u64 + start)?;
        if end > self.data_bytes {
            self.data_bytes = end;
            self.write_header()?;
        }
        Ok(())
    }

    fn write_header(&self) -> io::Result<()> {
        let data_bytes = u32::try_from(self.data_bytes).unwrap_or(u32::MAX);
        self.file.write_all_at(&header_s16(self.sides.channels(), RATE_HZ, data_bytes), 0)
    }
}
