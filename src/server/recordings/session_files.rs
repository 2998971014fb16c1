//! The two files of one session's recording.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use super::{
    RecordedSides, RecordingFormat, RecordingOptions,
    event_file::EventFile,
    news::{RecordingNews, TimedNews},
    opus_file::OpusFile,
    store::Store,
    wav_file::WavFile,
};
use crate::recording::{
    AudioPart, Timeline,
    document::{RecordingEnd, RecordingHead},
};

/// The files of a recording, and what is not written yet.
#[derive(Debug)]
pub(super) struct SessionFiles {
    timeline: Timeline,
    audio_path: PathBuf,
    audio: AudioFile,
    events: EventFile,
    end: RecordingEnd,
    store: StoreEntry,
}

/// The audio file, in one of the formats.
#[derive(Debug)]
enum AudioFile {
    Wav(WavFile),
    Opus(Box<OpusFile>),
}

impl AudioFile {
    fn create(path: &Path, format: RecordingFormat, sides: RecordedSides, store: &Store) -> io::Result<Self> {
        Ok(match format {
            RecordingFormat::Wav => Self::Wav(WavFile::create(path, sides, store)?),
            RecordingFormat::Opus => Self::Opus(Box::new(OpusFile::create(path, sides, store)?)),
        })
    }

    fn length_ms(&self) -> u64 {
        match self {
            Self::Wav(wav) => wav.length_ms(),
            Self::Opus(opus) => opus.length_ms(),
        }
    }

    fn write(&mut self, part: &AudioPart, store: &Store) -> io::Result<()> {
        match self {
            Self::Wav(wav) => wav.write(part, store),
            Self::Opus(opus) => opus.write(part, store),
        }
    }

    fn finish(&mut self, store: &Store) -> io::Result<()> {
        match self {
            Self::Wav(_) => Ok(()),
            Self::Opus(opus) => opus.finish(store),
        }
    }
}

/// A recording in the store until it ends.
#[derive(Debug)]
struct StoreEntry {
    store: Arc<Store>,
    name: String,
}

impl Drop for StoreEntry {
    fn drop(&mut self) {
        self.store.end(&self.name);
    }
}

/// The name of a session's files, without an extension.
pub(super) fn name_of(head: &RecordingHead) -> String {
    format!("{:013}-{}", head.opened_unix_ms, head.session)
}

impl SessionFiles {
    /// Creates the files of a session that was opened at this instant.
    pub(super) fn create(
        opened: Instant,
        options: &RecordingOptions,
        head: RecordingHead,
        store: Arc<Store>,
    ) -> io::Result<Self> {
        let name = name_of(&head);
        store.begin(&name)?;
        let entry = StoreEntry { store, name: name.clone() };
        let audio_name = format!("{name}.{}", options.format.name());
        let audio_path = options.dir.join(&audio_name);
        let audio = AudioFile::create(&audio_path, options.format, options.sides, &entry.store)?;
        let json_path = options.dir.join(format!("{name}.json"));
        let mut events = EventFile::create(&json_path, &head, &audio_name, options.sides)?;
        let end = RecordingEnd::default();
        events.write(&end, &entry.store)?;
        Ok(Self {
            timeline: Timeline::new(opened, options.format.kept()),
            audio_path,
            audio,
            events,
            end,
            store: entry,
        })
    }

    pub(super) fn audio_path(&self) -> &Path {
        &self.audio_path
    }

    /// Takes something of the session.
    pub(super) fn push(&mut self, TimedNews { at, news }: TimedNews) {
        if let RecordingNews::Item(item) = &news {
            self.timeline.push(at, item);
        }
        self.events.push(self.timeline.time_of(at), &news);
    }

    /// Counts pieces that the queue has lost.
    pub(super) const fn note_lost(&mut self, pieces: u64) {
        self.end.lost_pieces += pieces;
    }

    /// Writes what is new at this instant.
    pub(super) fn write(&mut self, now: Instant) -> io::Result<()> {
        let part = self.timeline.take_changed(now);
        self.write_part(&part)
    }

    /// Writes the rest at the end of the session.
    pub(super) fn finish(&mut self, at: Instant) -> io::Result<()> {
        let part = self.timeline.finish(at);
        self.end.complete = true;
        self.audio.write(&part, &self.store.store)?;
        self.audio.finish(&self.store.store)?;
        self.write_end()
    }

    fn write_part(&mut self, part: &AudioPart) -> io::Result<()> {
        self.audio.write(part, &self.store.store)?;
        self.write_end()
    }

    /// Writes the new events, and how much there is.
    fn write_end(&mut self) -> io::Result<()> {
        self.end.duration_ms = self.audio.length_ms();
        self.end.left_out_ms = u64::try_from(self.timeline.left_out().as_millis()).unwrap_or(u64::MAX);
        self.events.write(&self.end, &self.store.store)
    }

    /// Checks that nothing is missing.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn check_whole(&self) -> io::Result<()> {
        let RecordingEnd { lost_pieces, left_out_ms, .. } = self.end;
        match (lost_pieces, left_out_ms) {
            (0, 0) => Ok(()),
            (lost, left_out) => Err(io::Error::other(format!(
                "{}: {lost} pieces are missing because the disk was too slow, and {left_out} ms of audio because they came \
                 too far ahead of their time",
                self.audio_path.display()
            ))),
        }
    }
}
