//! Recordings of sessions: an audio file, and a JSON file with what was said and done, written by a task of each session.
//!
//! A session passes each piece on through a [`session_queue`](super::session_queue), as traces do, so that a slow disk never
//! delays it. Every [`WRITE_INTERVAL`], the task writes what is new on a blocking thread. Both files are complete after each
//! write, so that a process that is killed leaves readable recordings behind. [`crate::recording`] puts the audio in order.
//!
//! - [`news`]: what a session passes on
//! - [`session_files`]: the two files of a session; [`wav_file`], [`opus_file`] and [`event_file`] write them
//! - [`store`]: the bound on all recordings

mod event_file;
mod news;
mod opus_file;
mod session_files;
mod store;
mod wav_file;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tracing::{Instrument as _, debug, info, warn};

pub(super) use self::news::RecordingNews;
pub use self::store::WhenFull;
use self::{news::TimedNews, session_files::SessionFiles, store::Store};
use super::session_queue::{QueueReceiver, QueueSender, QueueTotals, session_queue};
use crate::{named_enum::named_enum, recording::document::RecordingHead};

/// A process that is killed loses no more than this, and what the queue holds.
const WRITE_INTERVAL: Duration = Duration::from_millis(400);
/// Default bound on all recordings: a day of stereo.
pub const DEFAULT_MAX_BYTES: u64 = 8 << 30;

named_enum! {
    /// The sides that are recorded.
    pub enum RecordedSides {
        /// Stereo: the user left, what the user heard right.
        Both = "both",
        /// The user alone, in one channel.
        User = "user",
        /// What the user heard alone, in one channel.
        Model = "model",
    }
}

impl RecordedSides {
    const fn channels(self) -> u16 {
        match self {
            Self::Both => 2,
            Self::User | Self::Model => 1,
        }
    }

    /// The samples of these sides.
    fn interleaved(self, samples: &[[i16; 2]]) -> Vec<i16> {
        match self {
            Self::Both => samples.as_flattened().to_vec(),
            Self::User => samples.iter().map(|[user, _]| *user).collect(),
            Self::Model => samples.iter().map(|[_, model]| *model).collect(),
        }
    }
}

named_enum! {
    /// The format of the audio files.
    pub enum RecordingFormat {
        /// WAV of int16.
        Wav = "wav",
        /// Opus in Ogg.
        Opus = "opus",
    }
}

impl RecordingFormat {
    /// Length of the audio that late messages may change after it was recorded. What is encoded stays as it is.
    const fn kept(self) -> Duration {
        match self {
            Self::Wav => Duration::from_secs(10),
            Self::Opus => Duration::from_millis(550),
        }
    }
}

/// Where and how sessions are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingOptions {
    /// Directory of the files.
    pub dir: PathBuf,
    /// Format of the audio files.
    pub format: RecordingFormat,
    /// The sides in the audio files.
    pub sides: RecordedSides,
    /// Bound on all files of recordings in the directory, bytes.
    pub max_bytes: u64,
    /// What happens at that bound.
    pub when_full: WhenFull,
}

/// The directory of recordings.
#[derive(Debug)]
pub struct RecordingDirectory {
    options: RecordingOptions,
    totals: QueueTotals,
    store: Arc<Store>,
    failures: Failures,
}

/// Recordings that are missing or have gaps.
#[derive(Debug, Clone, Default)]
struct Failures {
    count: Arc<AtomicU64>,
    /// One was logged as a warning.
    is_logged: Arc<AtomicBool>,
}

impl RecordingDirectory {
    /// Recordings with these options.
    pub fn new(options: RecordingOptions) -> Self {
        let store = Arc::new(Store::new(&options));
        Self { options, totals: QueueTotals::default(), store, failures: Failures::default() }
    }

    /// Shares the state of `previous`, whose sessions may still run.
    pub fn share_state(&mut self, previous: &Self) {
        self.totals = previous.totals.clone();
        self.failures = previous.failures.clone();
        if self.options.dir == previous.options.dir {
            self.store = Arc::new(self.store.with_writers_of(&previous.store));
        }
    }

    /// Recordings that are missing or have gaps, since the start.
    pub fn incomplete(&self) -> u64 {
        self.failures.count.load(Relaxed)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Creates the directory with mode 0700 unless it exists.
    ///
    /// # Errors
    /// Fails with the system's error.
    pub fn create_dir(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.options.dir)
    }

    /// Starts the recording of a session that was opened at this instant; the writer holds `drain_guard` until the files are
    /// complete.
    pub(super) fn start_session(
        &self,
        opened: Instant,
        head: RecordingHead,
        drain_guard: mpsc::Sender<()>,
    ) -> SessionRecording {
        let (news, receiver) = session_queue(self.totals.clone());
        let (options, store, failures) = (self.options.clone(), self.store.clone(), self.failures.clone());
        let write = async move {
            let file = options.dir.join(session_files::name_of(&head));
            if let Err(error) = write_session(receiver, opened, options, head, store).await {
                failures.log(&file, &error);
            }
            drop(drain_guard);
        };
        tokio::spawn(write.in_current_span());
        SessionRecording { news }
    }
}

impl Failures {
    /// Counts a recording that failed. Warns once and logs later errors at debug level: a full disk fails for every session.
    fn log(&self, file: &Path, error: &io::Error) {
        self.count.fetch_add(1, Relaxed);
        if self.is_logged.swap(true, Relaxed) {
            debug!(file = %file.display(), %error, "cannot record the session; it goes on without");
        } else {
            warn!(file = %file.display(), %error, "cannot record the session; it goes on without. Further errors of recordings are logged at debug level");
        }
    }
}

/// The session's end of its recording; dropping it ends the recording.
#[derive(Debug)]
pub(super) struct SessionRecording {
    news: QueueSender<TimedNews>,
}

impl SessionRecording {
    /// Records something.
    pub(super) fn push(&self, at: Instant, news: RecordingNews) {
        if self.news.is_open() {
            let bytes = news.memory_bytes();
            self.news.push(TimedNews { at, news }, bytes);
        }
    }
}

/// Writes the files of one session until its end.
async fn write_session(
    mut news: QueueReceiver<TimedNews>,
    opened: Instant,
    options: RecordingOptions,
    head: RecordingHead,
    store: Arc<Store>,
) -> io::Result<()> {
    let mut files = spawn_blocking(move || SessionFiles::create(opened, &options, head, store)).await??;
    info!(file = %files.audio_path().display(), "the session is recorded");
    let mut ticks = interval(WRITE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            next = news.next() => {
                files.note_lost(news.take_lost());
                match next {
                    Some((news, _permit)) => files.push(news),
                    None => break,
                }
            }
            _ = ticks.tick() => files = write_on_thread(files, SessionFiles::write).await?,
        }
    }
    let files = write_on_thread(files, SessionFiles::finish).await?;
    files.check_whole()
}

/// Writes on a blocking thread what has come until now.
async fn write_on_thread(
    mut files: SessionFiles,
    write: fn(&mut SessionFiles, Instant) -> io::Result<()>,
) -> io::Result<SessionFiles> {
    let now = tokio::time::Instant::now().into_std();
    spawn_blocking(move || write(&mut files, now).map(|()| files)).await?
}

#[cfg(test)]
mod tests;
