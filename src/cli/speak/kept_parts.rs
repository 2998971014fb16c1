//! Parts of a text that were spoken, kept beside the audio file until it is complete. The same command goes on after them.
//!
//! `FILE.resume` has a line of JSON, which says what the speech is of; then, for each part, the number of its bytes (8 bytes,
//! little endian) and its samples (int16 at 24 kHz). The number of a part that was not finished is 0.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Speech;
use crate::cli::error::ClientError;
use crate::cli::output_file::unwritable;
use crate::cli::resume_file::{self, checksum, path_beside};
use crate::cli::view::Terminal;

/// Bytes of kept speech in memory at a time; an even number, so that no sample is split.
const CHUNK_BYTES: u64 = 64 * 1024;
/// Bytes of the number before a part.
const LENGTH_BYTES: u64 = 8;
/// Longest line that says what the speech is of.
const SUBJECT_MAX_BYTES: u64 = 1000;

/// The parts of a text that were spoken. Dropped before it is removed, it stays, unless it is empty.
pub(super) struct KeptParts<'c> {
    path: PathBuf,
    /// Open and locked.
    file: File,
    /// Where the first part begins.
    begin: u64,
    /// Number of parts that are complete.
    complete: usize,
    /// Number of parts of the text.
    total: usize,
    /// Where the part begins that is being spoken.
    current: Option<u64>,
    is_removed: bool,
    terminal: &'c Terminal,
}

impl<'c> KeptParts<'c> {
    /// Opens the parts that are kept for an audio file. With `resumes`, those of an earlier run with the same text and voice
    /// stay.
    ///
    /// # Errors
    /// Another run works on the audio file, or the parts cannot be kept.
    pub(super) fn open(
        audio: &Path,
        parts: &[String],
        voice: Option<&str>,
        resumes: bool,
        terminal: &'c Terminal,
    ) -> Result<Self, ClientError> {
        let path = path_beside(audio);
        let file = resume_file::open(&path)?;
        let of = checksum(json!([parts, voice]).to_string().as_bytes());
        let subject = format!("{}\n", json!({"speech_of": of}));
        let begin = subject.len() as u64;
        let (complete, total) = (0, parts.len());
        let mut kept =
            Self { path, file, begin, complete, total, current: None, is_removed: false, terminal };
        let earlier = kept.read_subject().map_err(|reason| kept.unwritable(reason))?;
        if resumes && earlier == subject {
            kept.count().map_err(|reason| kept.unwritable(reason))?;
        } else {
            if resumes && !earlier.is_empty() {
                let reason = "the text or the voice has changed";
                terminal.print_message(format_args!("{}: begins anew, because {reason}", audio.display()));
            }
            kept.begin_anew(&subject).map_err(|reason| kept.unwritable(reason))?;
        }
        if kept.complete > 0 {
            let (audio, done) = (audio.display(), kept.complete);
            terminal.print_message(format_args!("{audio}: goes on after {done} of {total} parts"));
        }
        Ok(kept)
    }

    fn read_subject(&self) -> io::Result<String> {
        let mut line = Vec::new();
        BufReader::new(&self.file).take(SUBJECT_MAX_BYTES).read_until(b'\n', &mut line)?;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn begin_anew(&mut self, subject: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(subject.as_bytes())
    }

    /// Counts the complete parts, and removes what follows them.
    fn count(&mut self) -> io::Result<()> {
        let (mut end, length) = (self.begin, self.file.metadata()?.len());
        while self.complete < self.total {
            match self.length_at(end)? {
                0 => break,
                part => match end.checked_add(LENGTH_BYTES + part).filter(|next| *next <= length) {
                    Some(next) => end = next,
                    None => break,
                },
            }
            self.complete += 1;
        }
        self.file.set_len(end)?;
        self.file.seek(SeekFrom::Start(end)).map(drop)
    }

    /// The length of the part at this position; 0 at the end of the file.
    fn length_at(&self, position: u64) -> io::Result<u64> {
        let mut length = [0; LENGTH_BYTES as usize];
        match self.file.read_exact_at(&mut length, position) {
            Err(reason) if reason.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read.map(|()| u64::from_le_bytes(length) & (u64::MAX >> 1)),
        }
    }

    /// Gives the parts that are kept, as if they were spoken now. Returns how many they are.
    pub(super) fn replay(
        &self,
        mut on_speech: impl FnMut(Speech<'_>) -> Result<(), ClientError>,
    ) -> Result<usize, ClientError> {
        let unwritable = |reason| self.unwritable(reason);
        let mut position = self.begin;
        for number in 0..self.complete {
            on_speech(Speech::Part(number))?;
            let mut left = self.length_at(position).map_err(unwritable)?;
            position += LENGTH_BYTES;
            while left > 0 {
                let mut chunk = vec![0; left.min(CHUNK_BYTES) as usize];
                self.file.read_exact_at(&mut chunk, position).map_err(unwritable)?;
                on_speech(Speech::Audio(&chunk))?;
                left -= chunk.len() as u64;
                position += chunk.len() as u64;
            }
        }
        Ok(self.complete)
    }

    /// Keeps speech as it comes. A part is complete when the next one begins.
    pub(super) fn add(&mut self, speech: &Speech<'_>) -> Result<(), ClientError> {
        let written = match speech {
            Speech::Part(_) => self.begin_part(),
            Speech::Audio(audio) => self.file.write_all(audio),
        };
        written.map_err(|reason| self.unwritable(reason))
    }

    fn begin_part(&mut self) -> io::Result<()> {
        let now = self.file.stream_position()?;
        if let Some(begin) = self.current.replace(now) {
            // The samples are on the disk before their number.
            self.file.sync_data()?;
            self.file.write_all_at(&(now - begin - LENGTH_BYTES).to_le_bytes(), begin)?;
            self.complete += 1;
        }
        self.file.write_all(&[0; LENGTH_BYTES as usize])
    }

    /// Removes what is kept: the audio file is complete.
    pub(super) fn remove(mut self) -> Result<(), ClientError> {
        self.is_removed = true;
        resume_file::remove(&self.path)
    }

    fn unwritable(&self, reason: io::Error) -> ClientError {
        unwritable(&self.path, reason)
    }
}

impl Drop for KeptParts<'_> {
    fn drop(&mut self) {
        let Self { complete, total, .. } = *self;
        if self.is_removed {
            return;
        }
        if complete == 0 {
            let _ = resume_file::remove(&self.path);
            return;
        }
        let path = self.path.display();
        self.terminal.print_message(format_args!(
            "{path}: {complete} of {total} parts are kept; the same command goes on there"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_parts_of_the_same_text_are_kept_and_others_are_not() {
        let audio = std::env::temp_dir().join(format!("voxbridge-kept-{}.mp3", std::process::id()));
        let parts = ["One.", "Two.", "Three."].map(str::to_owned);
        let terminal = Terminal::hidden();
        let open =
            |voice: Option<&str>, resumes: bool| KeptParts::open(&audio, &parts, voice, resumes, &terminal);
        let replayed = |kept: &KeptParts<'_>| {
            let mut speech = Vec::new();
            let count = kept.replay(|part| {
                if let Speech::Audio(audio) = part {
                    speech.extend(audio);
                }
                Ok(())
            });
            (count.unwrap(), speech)
        };
        let mut kept = open(None, true).unwrap();
        for speech in [
            Speech::Part(0),
            Speech::Audio(&[1, 0, 2]),
            Speech::Audio(&[0]),
            Speech::Part(1),
            Speech::Audio(&[3, 0]),
        ] {
            kept.add(&speech).unwrap();
        }
        assert!(matches!(open(None, true), Err(ClientError::BusyFile(_))));
        drop(kept);

        let mut kept = open(None, true).unwrap();
        assert_eq!(replayed(&kept), (1, vec![1, 0, 2, 0]), "the second part was not finished");
        for speech in [Speech::Part(1), Speech::Audio(&[4, 0]), Speech::Part(2)] {
            kept.add(&speech).unwrap();
        }
        drop(kept);
        assert_eq!(replayed(&open(None, true).unwrap()), (2, vec![1, 0, 2, 0, 4, 0]));

        // As after a crash or on a full disk. The second part has 2 bytes behind 8 of its length.
        let file = path_beside(&audio);
        let whole = std::fs::read(&file).unwrap();
        for (missing, complete) in [(0, 2), (1, 1), (2, 1), (3, 1), (10, 1), (11, 0), (12, 0)] {
            std::fs::write(&file, &whole[..whole.len() - missing]).unwrap();
            let speech = [1, 0, 2, 0, 4, 0][..[0, 4, 6][complete]].to_vec();
            let mut kept = open(None, true).unwrap();
            assert_eq!(replayed(&kept), (complete, speech.clone()), "{missing} bytes are missing");
            let rest: &[Speech<'_>] = match complete {
                0 => &[Speech::Part(0), Speech::Audio(&[1, 0, 2, 0]), Speech::Part(1)],
                _ => &[Speech::Part(complete)],
            };
            rest.iter().for_each(|speech| kept.add(speech).unwrap());
            drop(kept);
            let expected = if complete == 0 { (1, vec![1, 0, 2, 0]) } else { (complete, speech) };
            assert_eq!(replayed(&open(None, true).unwrap()), expected, "{missing} bytes were missing");
        }
        std::fs::write(&file, &whole).unwrap();

        assert_eq!(replayed(&open(Some("anna"), true).unwrap()), (0, vec![]), "another voice");
        assert!(!path_beside(&audio).exists(), "nothing is kept");
    }
}
