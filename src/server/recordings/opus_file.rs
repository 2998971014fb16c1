//! The audio file of a recording: Opus in Ogg, whose last page is complete after every write.
//!
//! A player needs no end of the file, so that the file of a process that was killed plays like any other.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use super::{RecordedSides, store::Store};
use crate::{
    audio::encode::OpusStream,
    recording::{AudioPart, RATE_HZ},
};

/// An Opus file that grows.
#[derive(Debug)]
pub(super) struct OpusFile {
    file: File,
    stream: OpusStream,
    sides: RecordedSides,
    /// Position of the first sample that is not encoded.
    encoded: u64,
    /// Samples from there on, which may still change.
    waiting: Vec<[i16; 2]>,
}

impl OpusFile {
    /// Creates a file without samples.
    pub(super) fn create(path: &Path, sides: RecordedSides, store: &Store) -> io::Result<Self> {
        let stream = OpusStream::new(RATE_HZ, sides.channels().into(), None);
        let stream = stream.ok_or_else(|| io::Error::other("Opus does not have the rate of recordings"))?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        let mut opus = Self { file, stream, sides, encoded: 0, waiting: Vec::new() };
        let mut head = Vec::new();
        opus.stream.push(&[], &mut head);
        opus.append(&head, store)?;
        Ok(opus)
    }

    /// Length of the audio, ms.
    pub(super) fn length_ms(&self) -> u64 {
        self.encoded * 1000 / u64::from(RATE_HZ)
    }

    /// Takes samples, and writes those that do not change any more.
    ///
    /// # Errors
    /// The system's, or there is no room.
    pub(super) fn write(&mut self, part: &AudioPart, store: &Store) -> io::Result<()> {
        let skipped = self.encoded.saturating_sub(part.position).min(part.samples.len() as u64);
        // A part goes on to the end of the recording.
        self.waiting.truncate((part.position + skipped).saturating_sub(self.encoded) as usize);
        self.waiting.extend_from_slice(&part.samples[skipped as usize..]);
        let count = part.fixed.saturating_sub(self.encoded).min(self.waiting.len() as u64);
        let fixed: Vec<[i16; 2]> = self.waiting.drain(..count as usize).collect();
        self.encoded += count;
        let mut pages = Vec::new();
        self.stream.push_page(&self.sides.interleaved(&fixed), &mut pages);
        self.append(&pages, store)
    }

    /// Writes the end of the file.
    ///
    /// # Errors
    /// The system's, or there is no room.
    pub(super) fn finish(&mut self, store: &Store) -> io::Result<()> {
        let mut pages = Vec::new();
        self.stream.finish(&mut pages);
        self.append(&pages, store)
    }

    fn append(&mut self, bytes: &[u8], store: &Store) -> io::Result<()> {
        store.reserve(bytes.len() as u64)?;
        self.file.write_all(bytes)
    }
}
