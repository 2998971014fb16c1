//! Traces on disk: one file a session, written beside the session and never in its way.
//!
//! A session hands each line to a task of its own through a bounded channel; what the task cannot keep up with is counted
//! and told in the trace. What lines say is [`crate::trace`]'s business.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use tokio::{
    fs::File,
    io::{AsyncWriteExt as _, BufWriter},
    sync::mpsc,
};
use tracing::{Instrument as _, debug, warn};

use crate::{
    bridge::{Input, Output},
    trace::{Kept, Line, Recorder, Start, Watch},
};

/// Lines of a session that wait for the disk, and what they hold: a second of the busiest session.
const WAITING_LINES: usize = 1024;
const WAITING_BYTES: usize = 16 << 20;
/// What the lines of all sessions hold: a disk that is stuck is stuck for every session.
const ALL_WAITING_BYTES: usize = 64 << 20;
/// A line that holds more is cleaned where it holds nobody up.
const LARGE_BYTES: usize = 256 * 1024;
/// Written at once; small, for there may be many sessions.
const BUFFER_BYTES: usize = 16 * 1024;
/// What waits in the buffer longer is written: a crash is what traces are for.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// A trace ends at this size unless told otherwise: hours without audio, a quarter of one with it.
pub const MAX_BYTES: u64 = 64 << 20;

/// Where traces go, and what they hold.
#[derive(Debug)]
pub struct Traces {
    dir: PathBuf,
    audio: Kept,
    max_bytes: u64,
    /// What the lines of all sessions hold that are not yet written, bytes.
    waiting: Arc<AtomicUsize>,
    /// Lines that were lost, in all.
    lost: Arc<AtomicU64>,
    /// That something is wrong with the directory was said.
    told: AtomicBool,
}

impl Traces {
    /// Traces in this directory, of at most so many bytes each; with the audio that is
    /// to be kept. Secrets never are.
    #[must_use]
    pub fn new(dir: PathBuf, audio: Kept, max_bytes: u64) -> Self {
        Self {
            dir,
            audio,
            max_bytes,
            waiting: Arc::default(),
            lost: Arc::default(),
            told: AtomicBool::new(false),
        }
    }

    /// Shares the memory for lines that wait with the traces of before, whose sessions may still be going on.
    pub fn share_memory(&mut self, before: &Self) {
        self.waiting = before.waiting.clone();
        self.lost = before.lost.clone();
    }

    /// Lines that were lost, in all.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Makes the directory, for its owner alone, unless it is there.
    ///
    /// # Errors
    /// The system's own.
    pub fn prepare(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Begins the trace of a session; `alive` is held until all of it is written.
    pub(super) fn begin(
        self: &Arc<Self>,
        opened: Instant,
        session_id: &str,
        start: Start,
        alive: mpsc::Sender<()>,
    ) -> Tracing {
        let path = self.dir.join(format!("{}-{session_id}.jsonl", start.opened_unix_ns / 1_000_000));
        let waiting = Arc::new(Waiting {
            all_bytes: self.waiting.clone(),
            lost_of_all: self.lost.clone(),
            ..Waiting::default()
        });
        let (lines, taken) = mpsc::channel(WAITING_LINES);
        let writer =
            Writer { traces: self.clone(), recorder: Recorder::new(self.audio), waiting: waiting.clone() };
        let write = async move {
            writer.run(&path, start, taken).await;
            drop(alive);
        };
        tokio::spawn(write.in_current_span());
        Tracing { watch: Watch::new(opened, self.audio), lines, waiting }
    }

    /// Said once: a full disk is full for every session.
    fn tell(&self, path: &Path, error: &io::Error) {
        if self.told.swap(true, Relaxed) {
            debug!(path = %path.display(), %error, "cannot write a trace");
        } else {
            warn!(path = %path.display(), %error, "cannot write a trace; this is not said again");
        }
    }
}

/// What a session and its writer share.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// Those of all sessions.
    all_bytes: Arc<AtomicUsize>,
    lost: AtomicU64,
    /// Those of all sessions.
    lost_of_all: Arc<AtomicU64>,
    /// Nobody writes any more.
    over: AtomicBool,
}

impl Waiting {
    /// Room for so much; none where the session or all of them hold too much already.
    fn room(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let of_session = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        let of_all = self.all_bytes.fetch_add(bytes, SeqCst) + bytes;
        let held = Held { waiting: self.clone(), bytes };
        (of_session <= WAITING_BYTES && of_all <= ALL_WAITING_BYTES).then_some(held)
    }
}

/// Room for a line; it is given back with the line, however that ends.
#[derive(Debug)]
struct Held {
    waiting: Arc<Waiting>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, SeqCst);
        self.waiting.all_bytes.fetch_sub(self.bytes, SeqCst);
    }
}

/// A session's end of its trace. Dropping it ends the trace.
#[derive(Debug)]
pub(super) struct Tracing {
    watch: Watch,
    lines: mpsc::Sender<(Line, Held)>,
    waiting: Arc<Waiting>,
}

impl Tracing {
    /// To be called before the bridge takes it.
    pub(super) fn input(&mut self, now: Instant, input: &Input<'_>) {
        if !self.waiting.over.load(Relaxed) {
            let line = self.watch.input(now, input);
            self.hand(line);
        }
    }

    /// To be called with all that the bridge gives.
    pub(super) fn output(&mut self, now: Instant, output: &Output) {
        if !self.waiting.over.load(Relaxed)
            && let Some(line) = self.watch.output(now, output)
        {
            self.hand(line);
        }
    }

    fn hand(&self, line: Line) {
        let held = self.waiting.room(line.weight());
        if held.is_none_or(|held| self.lines.try_send((line, held)).is_err()) {
            self.waiting.lost.fetch_add(1, SeqCst);
            self.waiting.lost_of_all.fetch_add(1, Relaxed);
        }
    }
}

/// What a session hands to its writer.
type Lines = mpsc::Receiver<(Line, Held)>;

/// Writes one session's trace.
struct Writer {
    traces: Arc<Traces>,
    recorder: Recorder,
    waiting: Arc<Waiting>,
}

impl Writer {
    async fn run(mut self, path: &Path, start: Start, mut lines: Lines) {
        if let Err(error) = self.write(path, start, &mut lines).await {
            self.traces.tell(path, &error);
        }
        self.waiting.over.store(true, Relaxed);
    }

    async fn write(&mut self, path: &Path, start: Start, lines: &mut Lines) -> io::Result<()> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path).await?;
        let mut page = Page { file: BufWriter::with_capacity(BUFFER_BYTES, file), bytes: 0 };
        page.put(&self.recorder.start(start)).await?;
        while let Some((line, _held)) = page.next(lines).await? {
            let ns = line.ns;
            self.put_lost(&mut page, ns).await?;
            let text = self.text_of(line).await?;
            if page.bytes + text.len() as u64 > self.traces.max_bytes {
                let full = Line { ns, full: Some(self.traces.max_bytes), ..Line::default() };
                page.put(&self.recorder.line(full)).await?;
                break;
            }
            page.put(&text).await?;
        }
        self.put_lost(&mut page, 0).await?;
        page.file.flush().await
    }

    async fn text_of(&mut self, line: Line) -> io::Result<String> {
        if line.weight() <= LARGE_BYTES {
            return Ok(self.recorder.line(line));
        }
        let mut recorder = std::mem::replace(&mut self.recorder, Recorder::new(self.traces.audio));
        let clean = move || (recorder.line(line), recorder);
        let (text, recorder) = tokio::task::spawn_blocking(clean).await?;
        self.recorder = recorder;
        Ok(text)
    }

    /// What was lost since the last line.
    async fn put_lost(&mut self, page: &mut Page, ns: u64) -> io::Result<()> {
        match self.waiting.lost.swap(0, SeqCst) {
            0 => Ok(()),
            lost => page.put(&self.recorder.line(Line { ns, lost: Some(lost), ..Line::default() })).await,
        }
    }
}

/// A file and how much is in it.
struct Page {
    file: BufWriter<File>,
    bytes: u64,
}

impl Page {
    async fn put(&mut self, text: &str) -> io::Result<()> {
        self.bytes += text.len() as u64;
        self.file.write_all(text.as_bytes()).await
    }

    /// The next line; what is in the buffer is written while none comes.
    async fn next(&mut self, lines: &mut Lines) -> io::Result<Option<(Line, Held)>> {
        match tokio::time::timeout(FLUSH_EVERY, lines.recv()).await {
            Ok(line) => Ok(line),
            Err(_) => {
                self.file.flush().await?;
                Ok(lines.recv().await)
            }
        }
    }
}

#[cfg(test)]
mod tests;
