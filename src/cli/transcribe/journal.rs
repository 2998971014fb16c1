//! Journal: what of a recording was transcribed, kept beside its transcript until this is complete.
//!
//! A line of JSON each: first the subject of the transcript, then the segments and gaps as they arrived. The same command reads it.
//! While a run has it, it is locked: no other run works on the transcript.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::error::ClientError;
use crate::cli::output_file::unwritable;
use crate::cli::resume_file::{self, path_beside};
use crate::media::transcript::partial::{Part, PartialTranscript};
use crate::media::transcript::{Gap, Segment, Task};

/// Subject of a transcript. A transcript of another subject cannot be continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// SHA-256 of the recording. `None` for a transcript that begins anew after an interruption, because a server transcribes the
    /// recording as a whole or in real time.
    pub(super) recording: Option<String>,
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

/// The remains of an earlier run.
#[derive(Debug, PartialEq)]
pub(super) enum Earlier {
    /// Nothing.
    Nothing,
    /// A transcript that cannot be continued, and why.
    Unusable(&'static str),
    /// A transcript to continue.
    Transcript(PartialTranscript),
}

/// The journal of a recording.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    subject: Subject,
    /// Open and locked.
    file: File,
    /// False if an earlier run has left it.
    is_new: bool,
    /// True if it is about this run. Until then, an entry replaces what an earlier run has left.
    is_of_this_run: bool,
}

impl Journal {
    /// Opens and locks the journal of a transcript. A new one has a subject at once: the transcript is not complete.
    ///
    /// # Errors
    /// Another run has the journal, or it cannot be written.
    pub(super) fn open(transcript: &Path, subject: Subject) -> Result<Self, ClientError> {
        let path = path_beside(transcript);
        let file = resume_file::open(&path)?;
        let is_new = file.metadata().is_ok_and(|metadata| metadata.len() == 0);
        let mut journal = Self { path, subject, file, is_new, is_of_this_run: false };
        if is_new {
            journal.rewrite(&PartialTranscript::default())?;
        }
        Ok(journal)
    }

    /// The remains of an earlier run. With `follows_recording`, a recording that has changed begins anew.
    ///
    /// # Errors
    /// The journal cannot be read, or is about something else.
    pub(super) fn read(&self, follows_recording: bool) -> Result<Earlier, ClientError> {
        if self.is_new {
            return Ok(Earlier::Nothing);
        }
        let bytes = fs::read(&self.path).map_err(|reason| {
            let source_name = self.path.display().to_string();
            ClientError::UnreadableInput { source_name, reason }
        })?;
        // The last line may be cut off, if the machine lost its power.
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines().map_while(|line| serde_json::from_str(line).ok());
        let Some(Line::Subject(subject)) = lines.next() else {
            return Ok(Earlier::Unusable("its journal is damaged"));
        };
        if subject.recording.is_none() || self.subject.recording.is_none() {
            return Ok(Earlier::Unusable("what a server at --url has begun cannot be continued"));
        }
        let is_same_work = (subject.task, &subject.language) == (self.subject.task, &self.subject.language);
        if subject.recording != self.subject.recording && is_same_work && follows_recording {
            return Ok(Earlier::Unusable("the recording has changed"));
        }
        if subject != self.subject {
            return Err(ClientError::OtherJournal(self.path.clone()));
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
        let is_empty = transcript == PartialTranscript::default();
        Ok(if is_empty { Earlier::Nothing } else { Earlier::Transcript(transcript) })
    }

    /// Adds a segment or a gap to the journal of this run.
    pub(super) fn add(&mut self, part: Part<'_>) -> Result<(), ClientError> {
        if !self.is_of_this_run {
            self.rewrite(&PartialTranscript::default())?;
        }
        if !self.can_be_continued() {
            return Ok(());
        }
        self.file.write_all(line_of(part).as_bytes()).map_err(|reason| unwritable(&self.path, reason))
    }

    /// Replaces the journal by one of this transcript, to which entries are added.
    pub(super) fn rewrite(&mut self, transcript: &PartialTranscript) -> Result<(), ClientError> {
        let subject = to_line(&Line::Subject(self.subject.clone()));
        let lines: String = transcript.parts().into_iter().map(line_of).collect();
        self.file = resume_file::replace(&self.path, &(subject + &lines))?;
        self.is_of_this_run = true;
        Ok(())
    }

    /// True if a later run can go on where this one ends.
    pub(super) const fn can_be_continued(&self) -> bool {
        self.subject.recording.is_some()
    }

    /// True if no earlier run has left anything.
    pub(super) const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Removes the journal: the transcript is complete.
    pub(super) fn remove(self) -> Result<(), ClientError> {
        resume_file::remove(&self.path)
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

    fn subject(recording: &str) -> Subject {
        Subject { recording: Some(recording.into()), task: Task::Transcribe, language: None }
    }

    fn transcript(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("voxbridge-journal-{name}-{}.srt", std::process::id()))
    }

    fn segment() -> Segment {
        Segment { text: "words".into(), start_ms: 100, end_ms: 900, ..Segment::default() }
    }

    /// The transcript of a journal that can be continued.
    fn continued(journal: &Journal) -> PartialTranscript {
        match journal.read(false).unwrap() {
            Earlier::Transcript(transcript) => transcript,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn journal_is_read_up_to_a_torn_line_and_only_for_its_recording() {
        let transcript = transcript("torn");
        let gap = Gap { start_ms: 1000, end_ms: 2000, message: "busy".into() };
        let mut journal = Journal::open(&transcript, subject("ab")).unwrap();
        assert_eq!(journal.read(false).unwrap(), Earlier::Nothing);
        journal.add(Part::Segment(&segment())).unwrap();
        journal.add(Part::Gap(&gap)).unwrap();
        drop(journal);
        let path = path_beside(&transcript);
        let whole = fs::read_to_string(&path).unwrap();
        let journal = Journal::open(&transcript, subject("ab")).unwrap();
        let read = continued(&journal);
        assert_eq!((read.segments(), read.gaps()), (&[segment()][..], vec![gap]));
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        assert!(continued(&journal).gaps().is_empty());
        drop(journal);
        let other = Journal::open(&transcript, subject("cd")).unwrap();
        let error = other.read(false).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(".srt.resume belongs to"), "{error}");
        assert_eq!(other.read(true).unwrap(), Earlier::Unusable("the recording has changed"));
        let german = Subject { language: Some("de".into()), ..subject("cd") };
        drop(other);
        let german = Journal::open(&transcript, german).unwrap();
        assert_eq!(
            german.read(true).unwrap_err().exit_code(),
            2,
            "other options are refused also in folders"
        );
        german.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn journal_without_a_first_line_is_none() {
        let transcript = transcript("empty");
        let path = path_beside(&transcript);
        for (torn, earlier) in [
            ("", Earlier::Nothing),
            ("{\"subject\": {\"rec", Earlier::Unusable("its journal is damaged")),
            ("\0\0\0\0", Earlier::Unusable("its journal is damaged")),
        ] {
            fs::write(&path, torn).unwrap();
            let journal = Journal::open(&transcript, subject("ab")).unwrap();
            assert_eq!(journal.read(false).unwrap(), earlier, "{torn:?}");
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn journal_belongs_to_one_run_at_a_time_also_after_it_was_replaced() {
        let transcript = transcript("locked");
        let mut first = Journal::open(&transcript, subject("ab")).unwrap();
        let is_busy = || matches!(Journal::open(&transcript, subject("ab")), Err(ClientError::BusyFile(_)));
        assert!(is_busy());
        first.rewrite(&PartialTranscript::default()).unwrap();
        first.add(Part::Segment(&segment())).unwrap();
        assert!(is_busy());
        drop(first);
        let second = Journal::open(&transcript, subject("ab")).unwrap();
        assert_eq!(continued(&second).segments(), [segment()]);
        second.remove().unwrap();
    }

    #[test]
    fn transcript_of_a_server_is_not_continued() {
        let transcript = transcript("server");
        let of_server = Subject { recording: None, ..subject("") };
        let mut journal = Journal::open(&transcript, of_server).unwrap();
        journal.add(Part::Segment(&segment())).unwrap();
        drop(journal);
        let journal = Journal::open(&transcript, subject("ab")).unwrap();
        assert!(matches!(journal.read(false).unwrap(), Earlier::Unusable(_)));
        journal.remove().unwrap();
    }
}
