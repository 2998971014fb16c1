//! The transcript of one recording as it is written: each segment when it comes, in the order of speech.
//!
//! Text and subtitles are complete files at any instant; the last subtitle follows when its end is known. JSON is written at the
//! end, or when the command is stopped.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::journal::{Earlier, Journal, Subject};
use crate::cli::args::TranscriptFormatArg;
use crate::cli::clock::clock;
use crate::cli::error::ClientError;
use crate::cli::output::printable;
use crate::cli::output_file::{Destination, OutputFile, check_name, is_special, unwritable};
use crate::cli::view::Terminal;
use crate::media::transcript::cues::{Cue, CueRules, cues_of};
use crate::media::transcript::partial::{Part, PartialTranscript, Span};
use crate::media::transcript::subtitles::{SubtitleFormat, SubtitleWriter};
use crate::media::transcript::{Gap, Segment, Task, Transcript, WordList};

/// The form of a transcript.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) format: TranscriptFormatArg,
    pub(super) task: Task,
    pub(super) cues: CueRules,
    pub(super) words: WordList,
}

/// Where the transcript goes.
#[derive(Debug)]
enum Sink {
    /// Nowhere: it is shown in another way.
    None,
    /// Standard output, part by part.
    Stdout {
        /// The first part was printed.
        has_begun: bool,
    },
    /// Standard output, when those of earlier recordings are printed.
    Held,
    /// A file; `None` before its first part.
    File(PathBuf, Option<File>),
}

/// A transcript that is being written. Dropped before it is finished, it keeps what was transcribed.
pub(super) struct TranscriptOutput<'c> {
    /// The recording.
    name: String,
    form: Form,
    sink: Sink,
    /// For a file that can be continued.
    journal: Option<Journal>,
    transcript: PartialTranscript,
    subtitles: Option<SubtitleWriter>,
    terminal: &'c Terminal,
    duration: Duration,
    is_finished: bool,
}

impl<'c> TranscriptOutput<'c> {
    /// A transcript that goes nowhere.
    pub(super) const fn none(name: String, form: Form, terminal: &'c Terminal) -> Self {
        Self::with_sink(name, form, Sink::None, terminal)
    }

    /// A transcript for this destination; one of several on standard output is held back.
    pub(super) fn new(
        name: String,
        form: Form,
        destination: &Destination,
        is_one_of_several: bool,
        terminal: &'c Terminal,
    ) -> Self {
        let sink = match destination {
            Destination::Stdout if is_one_of_several => Sink::Held,
            Destination::Stdout => Sink::Stdout { has_begun: false },
            Destination::File(path) => Sink::File(path.clone(), None),
        };
        Self::with_sink(name, form, sink, terminal)
    }

    const fn with_sink(name: String, form: Form, sink: Sink, terminal: &'c Terminal) -> Self {
        Self {
            name,
            form,
            sink,
            journal: None,
            transcript: PartialTranscript::new(),
            subtitles: form.subtitles(),
            terminal,
            duration: Duration::ZERO,
            is_finished: false,
        }
    }

    /// Keeps a journal of what this transcript is of, if it goes to a file. With `resumes`, continues an earlier one; with
    /// `follows_recording`, a recording that has changed begins anew.
    ///
    /// # Errors
    /// Another run works on it, the earlier transcript is of something else, or a file cannot be read or written.
    pub(super) fn keep_journal(
        &mut self,
        subject: Subject,
        resumes: bool,
        follows_recording: bool,
    ) -> Result<(), ClientError> {
        let Sink::File(path, _) = &self.sink else { return Ok(()) };
        if is_special(path) {
            return Ok(());
        }
        check_name(path)?;
        let mut journal = Journal::open(path, subject)?;
        let earlier = if resumes { journal.read(follows_recording)? } else { Earlier::Nothing };
        let path = path.display();
        match earlier {
            Earlier::Nothing => self.journal = Some(journal),
            Earlier::Unusable(reason) => {
                self.terminal.print_message(format_args!("{path}: begins anew, because {reason}"));
                self.journal = Some(journal);
            }
            Earlier::Transcript(earlier) => {
                let at = clock(Duration::from_millis(earlier.end_ms()));
                self.terminal.print_message(format_args!("{path}: goes on at {at}"));
                journal.rewrite(&earlier)?;
                self.transcript = earlier;
                self.journal = Some(journal);
                return self.rewrite();
            }
        }
        Ok(())
    }

    /// The spans of the recording that are still to be transcribed.
    pub(super) fn missing(&self) -> Vec<Span> {
        self.transcript.missing()
    }

    /// Adds a segment.
    pub(super) fn add_segment(&mut self, segment: &Segment) -> Result<(), ClientError> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.add(Part::Segment(segment)))?;
        let is_last = self.transcript.add_segment(segment.clone());
        self.write_part(Part::Segment(segment), is_last)
    }

    /// Adds a gap, and reports it.
    pub(super) fn add_gap(&mut self, gap: &Gap) -> Result<(), ClientError> {
        self.terminal.print_message(format_args!(
            "{}: {} was not transcribed: {}",
            self.name,
            span_text(gap),
            printable(&gap.message)
        ));
        self.journal.as_mut().map_or(Ok(()), |journal| journal.add(Part::Gap(gap)))?;
        let is_last = self.transcript.add_gap(gap.clone());
        self.write_part(Part::Gap(gap), is_last)
    }

    /// A span was transcribed, as far as that was possible.
    pub(super) fn complete(&mut self, span: Span) -> Result<(), ClientError> {
        if !self.transcript.complete(span) {
            return Ok(());
        }
        self.journal.as_mut().map_or(Ok(()), |journal| journal.rewrite(&self.transcript))?;
        self.rewrite()
    }

    /// Number of segments.
    pub(super) fn segment_count(&self) -> usize {
        self.transcript.segments().len()
    }

    /// The gaps.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        self.transcript.gaps()
    }

    /// Ends the transcript of a recording of this length. Unless it `is_complete`, its journal stays. Returns the text that was
    /// held back.
    pub(super) fn finish(mut self, duration: Duration, is_complete: bool) -> Result<String, ClientError> {
        self.duration = duration;
        self.is_finished = true;
        match &self.sink {
            Sink::None => return Ok(String::new()),
            Sink::Held | Sink::Stdout { has_begun: false } => return Ok(self.whole()),
            Sink::File(_, Some(_)) if self.form.format != TranscriptFormatArg::Json => self.write_end()?,
            Sink::File(..) => self.rewrite_to_end()?,
            Sink::Stdout { has_begun: true } => self.write_end()?,
        }
        if is_complete && let Some(journal) = self.journal.take() {
            self.sync()?;
            journal.remove()?;
        }
        Ok(String::new())
    }

    /// Appends a part to the file if it comes last there, or writes the file anew.
    fn write_part(&mut self, part: Part<'_>, is_last: bool) -> Result<(), ClientError> {
        if self.form.format == TranscriptFormatArg::Json {
            return Ok(());
        }
        let begins_anew = match &mut self.sink {
            // A pipe takes the whole transcript at the end.
            Sink::File(path, _) if is_special(path) => return Ok(()),
            Sink::File(_, file) => file.is_none() || !is_last,
            Sink::Stdout { has_begun } => !std::mem::replace(has_begun, true),
            Sink::None | Sink::Held => false,
        };
        if begins_anew {
            return match self.sink {
                Sink::Stdout { .. } => {
                    let begun = self.begun();
                    self.terminal.print(begun)
                }
                _ => self.rewrite(),
            };
        }
        let text = self.text_of(part);
        self.append(&text)
    }

    /// Writes what was held back until the end.
    fn write_end(&mut self) -> Result<(), ClientError> {
        let end = self.end_of_subtitles();
        self.append(&end)
    }

    fn append(&mut self, text: &str) -> Result<(), ClientError> {
        match &mut self.sink {
            Sink::Stdout { .. } => self.terminal.print(text),
            Sink::File(path, Some(file)) => {
                file.write_all(text.as_bytes()).map_err(|reason| unwritable(path, reason))
            }
            Sink::None | Sink::Held | Sink::File(_, None) => Ok(()),
        }
    }

    /// Waits until the file is on the disk.
    fn sync(&self) -> Result<(), ClientError> {
        match &self.sink {
            Sink::File(path, Some(file)) => file.sync_data().map_err(|reason| unwritable(path, reason)),
            _ => Ok(()),
        }
    }

    /// Writes the whole file, but for its last subtitle.
    fn rewrite(&mut self) -> Result<(), ClientError> {
        let begun = self.begun();
        self.replace_file(&begun)
    }

    /// Writes the whole file.
    fn rewrite_to_end(&mut self) -> Result<(), ClientError> {
        let whole = self.whole();
        self.replace_file(&whole)
    }

    fn replace_file(&mut self, text: &str) -> Result<(), ClientError> {
        let Sink::File(path, file) = &mut self.sink else { return Ok(()) };
        OutputFile::write_all_to(&Destination::File(path.clone()), text.as_bytes())?;
        if !is_special(path) {
            let opened = File::options().append(true).open(&*path);
            *file = Some(opened.map_err(|reason| unwritable(path, reason))?);
        }
        Ok(())
    }

    /// The whole transcript.
    fn whole(&mut self) -> String {
        self.begun() + &self.end_of_subtitles()
    }

    /// The transcript, but for its last subtitle, whose end depends on what follows.
    fn begun(&mut self) -> String {
        self.subtitles = self.form.subtitles();
        if self.form.format == TranscriptFormatArg::Json {
            return self.json();
        }
        let transcript = std::mem::take(&mut self.transcript);
        let header = match (&self.subtitles, &self.sink) {
            (Some(subtitles), _) => subtitles.header().to_owned(),
            (None, Sink::Held) => format!("==> {} <==\n", self.name),
            (None, _) => String::new(),
        };
        let text = transcript.parts().into_iter().fold(header, |text, part| text + &self.text_of(part));
        self.transcript = transcript;
        text
    }

    fn end_of_subtitles(&mut self) -> String {
        // After an interruption, the length of the recording is not known.
        let length_ms = u64::try_from(self.duration.as_millis()).ok().filter(|_| self.is_finished);
        let end_ms = length_ms.unwrap_or(u64::MAX);
        self.subtitles.as_mut().map_or_else(String::new, |subtitles| subtitles.finish(end_ms))
    }

    fn json(&self) -> String {
        let gaps = self.transcript.gaps();
        let Form { task, words, .. } = self.form;
        let (segments, end) = (self.transcript.segments(), Duration::from_millis(self.transcript.end_ms()));
        let duration = self.duration.max(end);
        let mut json = Transcript { segments, duration, task, gaps: &gaps, words }.verbose();
        if matches!(self.sink, Sink::Held) {
            json["file"] = self.name.clone().into();
        }
        format!("{json}\n")
    }

    /// A part as text or subtitles.
    fn text_of(&mut self, part: Part<'_>) -> String {
        let Some(writer) = &mut self.subtitles else {
            return match part {
                Part::Segment(segment) => printable(segment.text.trim()) + "\n",
                Part::Gap(gap) => mark(gap) + "\n",
            };
        };
        let cues = match part {
            Part::Segment(segment) => cues_of(segment, &self.form.cues),
            Part::Gap(gap) => vec![mark_cue(gap, &self.form.cues)],
        };
        writer.add(&cues)
    }

    /// The file of the transcript.
    fn path(&self) -> Option<&Path> {
        match &self.sink {
            Sink::File(path, _) => Some(path),
            Sink::None | Sink::Stdout { .. } | Sink::Held => None,
        }
    }
}

impl Drop for TranscriptOutput<'_> {
    /// Keeps what was transcribed until the command was stopped, or failed.
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let end_ms = self.transcript.end_ms();
        if end_ms == 0 {
            // Nothing was begun.
            if let Some(journal) = self.journal.take().filter(Journal::is_new) {
                let _ = journal.remove();
            }
            return;
        }
        let is_json = self.form.format == TranscriptFormatArg::Json;
        let kept = match self.sink {
            Sink::File(..) if is_json => self.rewrite_to_end(),
            Sink::Stdout { .. } if is_json => self.terminal.print(self.json()),
            Sink::Held => {
                let whole = self.whole();
                self.terminal.print(whole)
            }
            _ => self.write_end(),
        };
        if let Err(error) = kept
            && !error.is_closed_pipe()
        {
            self.terminal.print_message(error);
        }
        if let Some(path) = self.path() {
            let at = clock(Duration::from_millis(end_ms));
            let is_continued = self.journal.as_ref().is_some_and(Journal::can_be_continued);
            let how = if is_continued { "; the same command goes on there" } else { "" };
            self.terminal
                .print_message(format_args!("{}: the transcript is kept up to {at}{how}", path.display()));
        }
    }
}

impl Form {
    const fn subtitles(&self) -> Option<SubtitleWriter> {
        match self.format {
            TranscriptFormatArg::Srt => Some(SubtitleWriter::new(SubtitleFormat::Srt)),
            TranscriptFormatArg::Vtt => Some(SubtitleWriter::new(SubtitleFormat::Vtt)),
            TranscriptFormatArg::Text | TranscriptFormatArg::Json => None,
        }
    }
}

/// Stands for speech that was not transcribed.
fn mark(gap: &Gap) -> String {
    format!("[not transcribed: {}]", span_text(gap))
}

fn mark_cue(gap: &Gap, rules: &CueRules) -> Cue {
    let end_ms = gap.end_ms.min(gap.start_ms + rules.max_cue_ms).max(gap.start_ms + 1);
    Cue { start_ms: gap.start_ms, end_ms, words_end_ms: end_ms, lines: vec![mark(gap)] }
}

/// Where a gap is.
fn span_text(gap: &Gap) -> String {
    let at = |ms: u64| clock(Duration::from_millis(ms));
    let Gap { start_ms, end_ms, .. } = *gap;
    // A server may not say how long the recording is.
    if end_ms > start_ms {
        format!("{} to {}", at(start_ms), at(end_ms))
    } else {
        format!("from {} on", at(start_ms))
    }
}
