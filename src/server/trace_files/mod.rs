//! Trace files: one file per session, written by a task of its own.
//!
//! A session sends each record to the writer through a bounded channel. Records that the writer cannot keep up with
//! are dropped and counted, and the trace says how many. [`crate::trace`] defines the records.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{
    fs::File,
    io::{AsyncWriteExt as _, BufWriter},
    sync::mpsc,
};
use tracing::{Instrument as _, debug, warn};

use super::session_queue::{QueuePermit, QueueReceiver, QueueSender, QueueTotals, session_queue};
use crate::{
    bridge::{Input, Output},
    trace::{AudioRetention, TraceHeader, TraceRecord, TraceTap, TraceWriter},
};

/// Larger records are redacted on a blocking thread.
const LARGE_LINE_BYTES: usize = 256 * 1024;
/// File buffer; small because there may be many sessions.
const BUFFER_BYTES: usize = 16 * 1024;
/// Buffered records are written after this time at the latest, so that a trace survives a crash.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Default size limit of a trace: hours without audio, a quarter of an hour with it.
pub const DEFAULT_MAX_BYTES: u64 = 64 << 20;

/// Directory and limits of the trace files.
#[derive(Debug)]
pub struct TraceDirectory {
    dir: PathBuf,
    audio: AudioRetention,
    max_bytes: u64,
    /// Records that wait for the disk, and lost ones.
    totals: QueueTotals,
    /// A write error was logged as a warning.
    error_logged: AtomicBool,
}

impl TraceDirectory {
    /// Trace files of at most `max_bytes` in `dir`, with audio as `audio` says. Secrets are always redacted.
    pub fn new(dir: PathBuf, audio: AudioRetention, max_bytes: u64) -> Self {
        Self { dir, audio, max_bytes, totals: QueueTotals::default(), error_logged: AtomicBool::new(false) }
    }

    /// Shares the counters of `previous`, whose sessions may still run.
    pub fn share_backlog(&mut self, previous: &Self) {
        self.totals = previous.totals.clone();
    }

    /// Records lost since the start, of all sessions.
    pub fn lost_lines(&self) -> u64 {
        self.totals.lost()
    }

    /// Creates the directory with mode 0700 unless it exists.
    ///
    /// # Errors
    /// Fails with the system's error.
    pub fn create_dir(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the trace of a session; the writer holds `drain_guard` until the file is complete.
    pub(super) fn start_session(
        self: &Arc<Self>,
        opened: Instant,
        session_id: &str,
        start: TraceHeader,
        drain_guard: mpsc::Sender<()>,
    ) -> SessionTrace {
        let path = self.dir.join(format!("{}-{session_id}.jsonl", start.opened_unix_ns / 1_000_000));
        let (session_trace, lines) = SessionTrace::new(opened, self.audio, self.totals.clone());
        let recorder = TraceWriter::new(self.audio);
        let writer = TraceFileWriter { traces: self.clone(), recorder };
        let write = async move {
            writer.run(&path, start, lines.0).await;
            drop(drain_guard);
        };
        tokio::spawn(write.in_current_span());
        session_trace
    }

    /// Warns once and logs later errors at debug level: a full disk fails for every session.
    fn log_write_error(&self, path: &Path, error: &io::Error) {
        if self.error_logged.swap(true, Relaxed) {
            debug!(path = %path.display(), %error, "cannot write a trace; the session goes on without");
        } else {
            warn!(path = %path.display(), %error, "cannot write a trace; the session goes on without. Further trace errors are logged at debug level");
        }
    }
}

/// The session's end of its trace; dropping it ends the trace.
#[derive(Debug)]
pub(super) struct SessionTrace {
    watch: TraceTap,
    lines: QueueSender<TraceRecord>,
}

/// The reader's end of a session's trace.
#[derive(Debug)]
pub(super) struct TraceLines(QueueReceiver<TraceRecord>);

impl TraceLines {
    /// The next record, after one that says how many were lost before it; `None` after the end of the session.
    pub(super) async fn next(&mut self) -> Option<[Option<TraceRecord>; 2]> {
        let (record, _permit) = self.0.next().await?;
        let lost = Some(self.0.take_lost()).filter(|lost| *lost > 0);
        let lost = lost.map(|lost| TraceRecord { ns: record.ns, lost: Some(lost), ..TraceRecord::default() });
        Some([lost, Some(record)])
    }
}

impl SessionTrace {
    /// A trace of a session that was opened at this instant, and its reader's end.
    pub(super) fn new(opened: Instant, audio: AudioRetention, totals: QueueTotals) -> (Self, TraceLines) {
        let (lines, receiver) = session_queue(totals);
        (Self { watch: TraceTap::new(opened, audio), lines }, TraceLines(receiver))
    }

    /// Records an input; call this before the bridge handles it.
    pub(super) fn record_input(&mut self, now: Instant, input: &Input<'_>) {
        if self.lines.is_open() {
            let line = self.watch.record_input(now, input);
            self.enqueue(line);
        }
    }

    /// Records an output of the bridge.
    pub(super) fn record_output(&mut self, now: Instant, output: &Output) {
        if self.lines.is_open()
            && let Some(line) = self.watch.record_output(now, output)
        {
            self.enqueue(line);
        }
    }

    fn enqueue(&self, line: TraceRecord) {
        let bytes = line.memory_bytes();
        self.lines.push(line, bytes);
    }
}

/// Writes the trace of one session.
struct TraceFileWriter {
    traces: Arc<TraceDirectory>,
    recorder: TraceWriter,
}

impl TraceFileWriter {
    async fn run(mut self, path: &Path, start: TraceHeader, mut lines: QueueReceiver<TraceRecord>) {
        if let Err(error) = self.write(path, start, &mut lines).await {
            self.traces.log_write_error(path, &error);
        }
    }

    async fn write(
        &mut self,
        path: &Path,
        start: TraceHeader,
        lines: &mut QueueReceiver<TraceRecord>,
    ) -> io::Result<()> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path).await?;
        let mut trace_file = TraceFile { file: BufWriter::with_capacity(BUFFER_BYTES, file), bytes: 0 };
        trace_file.write_line(&self.recorder.format_header(start)).await?;
        while let Some((line, _permit)) = trace_file.next_line(lines).await? {
            let ns = line.ns;
            self.write_lost_count(&mut trace_file, lines.take_lost(), ns).await?;
            let text = self.render(line).await?;
            if trace_file.bytes + text.len() as u64 > self.traces.max_bytes {
                let full = TraceRecord { ns, full: Some(self.traces.max_bytes), ..TraceRecord::default() };
                trace_file.write_line(&self.recorder.format_record(full)).await?;
                break;
            }
            trace_file.write_line(&text).await?;
        }
        self.write_lost_count(&mut trace_file, lines.take_lost(), 0).await?;
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

    /// Writes a record that says how many records were lost since the last one.
    async fn write_lost_count(&mut self, trace_file: &mut TraceFile, lost: u64, ns: u64) -> io::Result<()> {
        if lost == 0 {
            return Ok(());
        }
        let record = TraceRecord { ns, lost: Some(lost), ..TraceRecord::default() };
        trace_file.write_line(&self.recorder.format_record(record)).await
    }
}

/// A file and its size.
struct TraceFile {
    file: BufWriter<File>,
    bytes: u64,
}

impl TraceFile {
    async fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.bytes += text.len() as u64;
        self.file.write_all(text.as_bytes()).await
    }

    /// The next record; flushes the buffer while none comes.
    async fn next_line(
        &mut self,
        lines: &mut QueueReceiver<TraceRecord>,
    ) -> io::Result<Option<(TraceRecord, QueuePermit)>> {
        match tokio::time::timeout(FLUSH_INTERVAL, lines.next()).await {
            Ok(line) => Ok(line),
            Err(_) => {
                self.file.flush().await?;
                Ok(lines.next().await)
            }
        }
    }
}

#[cfg(test)]
mod tests;
