//! Journal: what of a recording was transcribed, kept beside its transcript until this is complete.
//!
//! A line of JSON each: first the subject of the transcript, then the segments and gaps as they arrived. `--resume` reads it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::error::ClientError;
use crate::cli::output_file::{Destination, OutputFile, unwritable};
use crate::media::transcript::partial::{Part, PartialTranscript};
use crate::media::transcript::{Gap, Segment, Task};

/// Subject of a transcript. A transcript of another subject cannot be continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// SHA-256 of the recording.
    pub(super) recording: String,
    pub(super) task: Task,
    pub(super) language: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Subject(Subject),
    Segment(Segment),
    Gap(Gap),
}

/// The journal of a recording.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    subject: Subject,
    /// Open after the first entry of this run.
    file: Option<File>,
}

/// The journal of the transcript in this file.
pub(super) fn path_beside(transcript: &Path) -> PathBuf {
    let mut name = transcript.as_os_str().to_owned();
    name.push(".resume");
    name.into()
}

impl Journal {
    /// A new journal. An old one is replaced by the first entry.
    pub(super) fn new(transcript: &Path, subject: Subject) -> Self {
        Self { path: path_beside(transcript), subject, file: None }
    }

    /// Partial transcript of an earlier run, if there is a journal.
    ///
    /// # Errors
    /// The journal cannot be read, or is about something else.
    pub(super) fn read(&self) -> Result<Option<PartialTranscript>, ClientError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(reason) => {
                let source_name = self.path.display().to_string();
                return Err(ClientError::UnreadableInput { source_name, reason });
            }
        };
        // The last line may be cut off, if the machine lost its power.
        let mut lines = text.lines().map_while(|line| serde_json::from_str(line).ok());
        match lines.next() {
            Some(Line::Subject(subject)) if subject == self.subject => {}
            _ => return Err(ClientError::OtherJournal(self.path.clone())),
        }
        let mut transcript = PartialTranscript::default();
        for line in lines {
            match line {
                Line::Subject(_) => {}
                Line::Segment(segment) => _ = transcript.add_segment(segment),
                Line::Gap(gap) => _ = transcript.add_gap(gap),
            }
        }
        transcript.begin_run();
        Ok(Some(transcript))
    }

    /// Adds a segment or a gap to a journal of this run.
    pub(super) fn add(&mut self, part: Part<'_>) -> Result<(), ClientError> {
        if self.file.is_none() {
            self.rewrite(&PartialTranscript::default())?;
        }
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(line_of(part).as_bytes()));
        written.map_err(|reason| unwritable(&self.path, reason))
    }

    /// Replaces the journal by one of this transcript, to which entries are added.
    pub(super) fn rewrite(&mut self, transcript: &PartialTranscript) -> Result<(), ClientError> {
        let subject = to_line(&Line::Subject(self.subject.clone()));
        let lines: String = transcript.parts().into_iter().map(line_of).collect();
        OutputFile::write_all_to(&Destination::File(self.path.clone()), (subject + &lines).as_bytes())?;
        let opened = File::options().append(true).open(&self.path);
        self.file = Some(opened.map_err(|reason| unwritable(&self.path, reason))?);
        Ok(())
    }

    /// Removes the journal: the transcript is complete.
    pub(super) fn remove(self) -> Result<(), ClientError> {
        match fs::remove_file(&self.path) {
            Err(reason) if reason.kind() != io::ErrorKind::NotFound => Err(unwritable(&self.path, reason)),
            _ => Ok(()),
        }
    }
}

fn line_of(part: Part<'_>) -> String {
    to_line(&match part {
        Part::Segment(segment) => Line::Segment(segment.clone()),
        Part::Gap(gap) => Line::Gap(gap.clone()),
    })
}

fn to_line(line: &Line) -> String {
    // Only maps with keys that are no texts cannot be written.
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_read_up_to_a_torn_line_and_only_for_its_recording() {
        let transcript = std::env::temp_dir().join(format!("voxbridge-journal-{}.srt", std::process::id()));
        let subject = Subject { recording: "ab".into(), task: Task::Transcribe, language: None };
        let mut journal = Journal::new(&transcript, subject.clone());
        assert_eq!(journal.read().unwrap(), None);
        let segment = Segment { text: "words".into(), start_ms: 100, end_ms: 900, ..Segment::default() };
        let gap = Gap { start_ms: 1000, end_ms: 2000, message: "busy".into() };
        journal.add(Part::Segment(&segment)).unwrap();
        journal.add(Part::Gap(&gap)).unwrap();
        let path = path_beside(&transcript);
        let whole = fs::read_to_string(&path).unwrap();
        let read = journal.read().unwrap().unwrap();
        assert_eq!((read.segments(), read.gaps()), (&[segment][..], vec![gap]));
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        assert!(journal.read().unwrap().unwrap().gaps().is_empty());
        let other = Journal::new(&transcript, Subject { recording: "cd".into(), ..subject });
        let error = other.read().unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(".srt.resume belongs to"), "{error}");
        journal.remove().unwrap();
        assert_eq!(other.read().unwrap(), None);
    }
}
