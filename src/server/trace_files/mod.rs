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
    trace::{AudioRetention, TraceHeader, TraceRecord, TraceTap, TraceWriter},
};

/// Lines of a session that wait for the disk, and what they hold: a second of the busiest session.
const PENDING_LINES_MAX: usize = 1024;
const PENDING_BYTES_MAX: usize = 16 << 20;
/// What the lines of all sessions hold: a disk that is stuck is stuck for every session.
const TOTAL_PENDING_BYTES_MAX: usize = 64 << 20;
/// A line that holds more is cleaned where it holds nobody up.
const LARGE_LINE_BYTES: usize = 256 * 1024;
/// Written at once; small, for there may be many sessions.
const BUFFER_BYTES: usize = 16 * 1024;
/// What waits in the buffer longer is written: a crash is what traces are for.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// A trace ends at this size unless told otherwise: hours without audio, a quarter of one with it.
pub const DEFAULT_MAX_BYTES: u64 = 64 << 20;

/// Where traces go, and what they hold.
#[derive(Debug)]
pub struct TraceDirectory {
    dir: PathBuf,
    audio: AudioRetention,
    max_bytes: u64,
    /// What the lines of all sessions hold that are not yet written, bytes.
    pending_bytes: Arc<AtomicUsize>,
    /// Lines that were lost, in all.
    lost_lines: Arc<AtomicU64>,
    /// That something is wrong with the directory was said.
    error_logged: AtomicBool,
}

impl TraceDirectory {
    /// Traces in this directory, of at most so many bytes each; with the audio that is
    /// to be kept. Secrets never are.
    #[must_use]
    pub fn new(dir: PathBuf, audio: AudioRetention, max_bytes: u64) -> Self {
        Self {
            dir,
            audio,
            max_bytes,
            pending_bytes: Arc::default(),
            lost_lines: Arc::default(),
            error_logged: AtomicBool::new(false),
        }
    }

    /// Shares the memory for lines that wait with the traces of before, whose sessions may still be going on.
    pub fn share_backlog(&mut self, previous: &Self) {
        self.pending_bytes = previous.pending_bytes.clone();
        self.lost_lines = previous.lost_lines.clone();
    }

    /// Lines that were lost, in all.
    #[must_use]
    pub fn lost_lines(&self) -> u64 {
        self.lost_lines.load(Relaxed)
    }

    /// Makes the directory, for its owner alone, unless it is there.
    ///
    /// # Errors
    /// The system's own.
    pub fn create_dir(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Begins the trace of a session; `drain_guard` is held until all of it is written.
    pub(super) fn start_session(
        self: &Arc<Self>,
        opened: Instant,
        session_id: &str,
        start: TraceHeader,
        drain_guard: mpsc::Sender<()>,
    ) -> SessionTrace {
        let path = self.dir.join(format!("{}-{session_id}.jsonl", start.opened_unix_ns / 1_000_000));
        let backlog = Arc::new(TraceBacklog {
            total_bytes: self.pending_bytes.clone(),
            total_lost: self.lost_lines.clone(),
            ..TraceBacklog::default()
        });
        let (lines, receiver) = mpsc::channel(PENDING_LINES_MAX);
        let writer = TraceFileWriter {
            traces: self.clone(),
            recorder: TraceWriter::new(self.audio),
            backlog: backlog.clone(),
        };
        let write = async move {
            writer.run(&path, start, receiver).await;
            drop(drain_guard);
        };
        tokio::spawn(write.in_current_span());
        SessionTrace { watch: TraceTap::new(opened, self.audio), lines, backlog }
    }

    /// Said once: a full disk is full for every session.
    fn log_write_error(&self, path: &Path, error: &io::Error) {
        if self.error_logged.swap(true, Relaxed) {
            debug!(path = %path.display(), %error, "cannot write a trace");
        } else {
            warn!(path = %path.display(), %error, "cannot write a trace; this is not said again");
        }
    }
}

/// What a session and its writer share.
#[derive(Debug, Default)]
struct TraceBacklog {
    bytes: AtomicUsize,
    /// Those of all sessions.
    total_bytes: Arc<AtomicUsize>,
    lost: AtomicU64,
    /// Those of all sessions.
    total_lost: Arc<AtomicU64>,
    /// Nobody writes any more.
    writer_stopped: AtomicBool,
}

impl TraceBacklog {
    /// Room for so much; none where the session or all of them hold too much already.
    fn reserve(self: &Arc<Self>, bytes: usize) -> Option<BacklogPermit> {
        let in_session = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        let total = self.total_bytes.fetch_add(bytes, SeqCst) + bytes;
        let permit = BacklogPermit { backlog: self.clone(), bytes };
        (in_session <= PENDING_BYTES_MAX && total <= TOTAL_PENDING_BYTES_MAX).then_some(permit)
    }
}

/// Room for a line; it is given back with the line, however that ends.
#[derive(Debug)]
struct BacklogPermit {
    backlog: Arc<TraceBacklog>,
    bytes: usize,
}

impl Drop for BacklogPermit {
    fn drop(&mut self) {
        self.backlog.bytes.fetch_sub(self.bytes, SeqCst);
        self.backlog.total_bytes.fetch_sub(self.bytes, SeqCst);
    }
}

/// A session's end of its trace. Dropping it ends the trace.
#[derive(Debug)]
pub(super) struct SessionTrace {
    watch: TraceTap,
    lines: mpsc::Sender<(TraceRecord, BacklogPermit)>,
    backlog: Arc<TraceBacklog>,
}

impl SessionTrace {
    /// To be called before the bridge takes it.
    pub(super) fn record_input(&mut self, now: Instant, input: &Input<'_>) {
        if !self.backlog.writer_stopped.load(Relaxed) {
            let line = self.watch.record_input(now, input);
            self.enqueue(line);
        }
    }

    /// To be called with all that the bridge gives.
    pub(super) fn record_output(&mut self, now: Instant, output: &Output) {
        if !self.backlog.writer_stopped.load(Relaxed)
            && let Some(line) = self.watch.record_output(now, output)
        {
            self.enqueue(line);
        }
    }

    fn enqueue(&self, line: TraceRecord) {
        let permit = self.backlog.reserve(line.memory_bytes());
        if permit.is_none_or(|permit| self.lines.try_send((line, permit)).is_err()) {
            self.backlog.lost.fetch_add(1, SeqCst);
            self.backlog.total_lost.fetch_add(1, Relaxed);
        }
    }
}

/// What a session hands to its writer.
type TraceLineReceiver = mpsc::Receiver<(TraceRecord, BacklogPermit)>;

/// Writes one session's trace.
struct TraceFileWriter {
    traces: Arc<TraceDirectory>,
    recorder: TraceWriter,
    backlog: Arc<TraceBacklog>,
}

impl TraceFileWriter {
    async fn run(mut self, path: &Path, start: TraceHeader, mut lines: TraceLineReceiver) {
        if let Err(error) = self.write(path, start, &mut lines).await {
            self.traces.log_write_error(path, &error);
        }
        self.backlog.writer_stopped.store(true, Relaxed);
    }

    async fn write(
        &mut self,
        path: &Path,
        start: TraceHeader,
        lines: &mut TraceLineReceiver,
    ) -> io::Result<()> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path).await?;
        let mut trace_file = TraceFile { file: BufWriter::with_capacity(BUFFER_BYTES, file), bytes: 0 };
        trace_file.write_line(&self.recorder.format_header(start)).await?;
        while let Some((line, _permit)) = trace_file.next_line(lines).await? {
            let ns = line.ns;
            self.write_lost_count(&mut trace_file, ns).await?;
            let text = self.render(line).await?;
            if trace_file.bytes + text.len() as u64 > self.traces.max_bytes {
                let full = TraceRecord { ns, full: Some(self.traces.max_bytes), ..TraceRecord::default() };
                trace_file.write_line(&self.recorder.format_record(full)).await?;
                break;
            }
            trace_file.write_line(&text).await?;
        }
        self.write_lost_count(&mut trace_file, 0).await?;
        trace_file.file.flush().await
    }

    async fn render(&mut self, line: TraceRecord) -> io::Result<String> {
        if line.memory_bytes() <= LARGE_LINE_BYTES {
            return Ok(self.recorder.format_record(line));
        }
        let mut recorder = std::mem::replace(&mut self.recorder, TraceWriter::new(self.traces.audio));
        let redact = move || (recorder.format_record(line), recorder);
        let (text, recorder) = tokio::task::spawn_blocking(redact).await?;
        self.recorder = recorder;
        Ok(text)
    }

    /// What was lost since the last line.
    async fn write_lost_count(&mut self, trace_file: &mut TraceFile, ns: u64) -> io::Result<()> {
        match self.backlog.lost.swap(0, SeqCst) {
            0 => Ok(()),
            lost => {
                trace_file
                    .write_line(&self.recorder.format_record(TraceRecord {
                        ns,
                        lost: Some(lost),
                        ..TraceRecord::default()
                    }))
                    .await
            }
        }
    }
}

/// A file and how much is in it.
struct TraceFile {
    file: BufWriter<File>,
    bytes: u64,
}

impl TraceFile {
    async fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.bytes += text.len() as u64;
        self.file.write_all(text.as_bytes()).await
    }

    /// The next line; what is in the buffer is written while none comes.
    async fn next_line(
        &mut self,
        lines: &mut TraceLineReceiver,
    ) -> io::Result<Option<(TraceRecord, BacklogPermit)>> {
        match tokio::time::timeout(FLUSH_INTERVAL, lines.recv()).await {
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
