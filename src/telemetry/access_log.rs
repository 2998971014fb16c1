//! The access log: one line of JSON a session, when it has ended.
//!
//! A session hands its line to a thread of its own through a bounded channel and goes on; what the thread cannot keep up
//! with is counted and lost. Connections that were refused have no line: they are counted, and the log tells of them.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tracing::warn;

/// Lines that may wait for the disk: a thousand sessions that end at once.
const PENDING_LINES_MAX: usize = 4096;

/// One session, as its line tells it. `null` for what did not happen or is not known.
///
/// Times are seconds unless a name ends in `_ms`. Names stay; more may come.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AccessRecord {
    /// When it began, RFC 3339, UTC.
    pub opened: String,
    /// When it ended.
    pub closed: String,
    /// How long it lasted.
    pub duration_s: f64,
    /// Its id.
    pub session: String,
    /// The last upstream's name for its own session, of each that it had; the newest sixteen.
    pub upstream_sessions: Vec<String>,
    /// The upstreams it was at, each once.
    pub upstreams: Vec<String>,
    /// The client protocol.
    pub client: String,
    /// The profile.
    pub profile: String,
    /// The path the client asked for.
    pub path: String,
    /// Where the client is, as far as the TCP connection tells.
    pub peer: String,
    /// The name of the key it came with.
    pub key: Option<String>,
    /// The subject of the certificate it came with.
    pub subject: Option<String>,
    /// The trace it is part of.
    pub trace_id: Option<String>,
    /// Audio that came from the client.
    pub audio_in_s: Option<f64>,
    /// Audio that was sent to it.
    pub audio_out_s: Option<f64>,
    /// Audio of the user that was dropped.
    pub dropped_s: Option<f64>,
    /// Audio of the user that was not listened to, while speech was heard.
    pub muted_s: Option<f64>,
    /// Bytes from the client.
    pub client_in_bytes: u64,
    /// Bytes to it.
    pub client_out_bytes: u64,
    /// Bytes from upstreams.
    pub upstream_in_bytes: u64,
    /// Bytes to them.
    pub upstream_out_bytes: u64,
    /// Upstream sessions that were connected.
    pub lanes: u32,
    /// Longest wait for a worker.
    pub queue_ms: Option<f64>,
    /// First time from an utterance's end to its words.
    pub first_transcript_ms: Option<f64>,
    /// First time from a text, or from what the user said, to audio.
    pub first_audio_ms: Option<f64>,
    /// Times an upstream session was replaced.
    pub rollovers: u32,
    /// Longest of the times no audio reached a model meanwhile.
    pub gap_ms: Option<f64>,
    /// Times the model or a text was interrupted.
    pub barge_ins: u32,
    /// Times the client ran out of audio.
    pub underruns: u32,
    /// Most positions of a model's context in use.
    pub context_peak_tokens: Option<u32>,
    /// Errors the client was told, by kind.
    pub errors: std::collections::BTreeMap<&'static str, u32>,
    /// Why it ended: a [`crate::session::EndReason`]'s name.
    pub reason: &'static str,
    /// Whose doing that was: `client`, `bridge` or `upstream`.
    pub ended_by: &'static str,
    /// The close code of the client's connection, whoever sent it first.
    pub client_close: Option<u16>,
    /// Who sent it: `client` or `bridge`.
    pub client_closed_by: Option<&'static str>,
    /// The close code of the last upstream's connection.
    pub upstream_close: Option<u16>,
    /// Who sent it: `upstream` or `bridge`.
    pub upstream_closed_by: Option<&'static str>,
}

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file; lines are added to it.
    File(PathBuf),
}

impl LogTarget {
    /// `-` or `stdout`, `stderr`, or a path.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        match path.to_str() {
            Some("-" | "stdout") => Self::Stdout,
            Some("stderr") => Self::Stderr,
            _ => Self::File(path.to_owned()),
        }
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::Stderr => Box::new(io::stderr()),
            Self::File(path) => {
                Box::new(OpenOptions::new().create(true).append(true).mode(0o640).open(path)?)
            }
        })
    }
}

enum WriterCommand {
    /// A line; what is held is held until it is written.
    Write(String, mpsc::Sender<()>),
    Reopen,
}

/// The access log. A clone is another handle; when the last one is gone, the thread ends.
#[derive(Debug, Clone)]
pub struct AccessLog {
    commands: SyncSender<WriterCommand>,
    /// Lines that wait for the disk.
    pending_lines: watch::Sender<usize>,
}

impl AccessLog {
    /// Opens it.
    ///
    /// # Errors
    /// The system's own.
    pub fn open(target: LogTarget) -> io::Result<Self> {
        let out = target.open()?;
        let (commands, receiver) = sync_channel(PENDING_LINES_MAX);
        let pending_lines = watch::Sender::new(0);
        std::thread::Builder::new().name("access-log".to_owned()).spawn({
            let pending_lines = pending_lines.clone();
            move || run_writer(&target, out, &receiver, &pending_lines)
        })?;
        Ok(Self { commands, pending_lines })
    }

    /// Opens the file anew, for whoever has moved it away.
    pub fn reopen(&self) {
        if self.commands.try_send(WriterCommand::Reopen).is_err() {
            warn!("the access log was not reopened: too much waits for it");
        }
    }

    /// Takes a session's line, which is written in its time; `written_guard` is held until then. Whether there was room for it.
    #[must_use]
    pub(crate) fn write(&self, record: &AccessRecord, written_guard: mpsc::Sender<()>) -> bool {
        let Ok(mut line) = serde_json::to_string(record) else { return false };
        line.push('\n');
        self.pending_lines.send_modify(|pending_lines| *pending_lines += 1);
        let is_queued = self.commands.try_send(WriterCommand::Write(line, written_guard)).is_ok();
        if !is_queued {
            self.pending_lines.send_modify(|pending_lines| *pending_lines -= 1);
        }
        is_queued
    }

    /// Done when every line that was taken is written, or could not be.
    pub(crate) async fn flush(&self) {
        // Its sender is held here.
        let _ = self.pending_lines.subscribe().wait_for(|pending_lines| *pending_lines == 0).await;
    }
}

fn run_writer(
    target: &LogTarget,
    mut out: Box<dyn Write + Send>,
    commands: &Receiver<WriterCommand>,
    pending_lines: &watch::Sender<usize>,
) {
    let mut has_warned = false;
    for command in commands {
        let result = match command {
            // One write a line: a reader never sees half of one.
            WriterCommand::Write(line, _alive) => {
                let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                pending_lines.send_modify(|pending_lines| *pending_lines -= 1);
                written
            }
            WriterCommand::Reopen => target.open().map(|opened| out = opened),
        };
        match result {
            Ok(()) => has_warned = false,
            // Said once: a full disk is full for every line.
            Err(error) if !std::mem::replace(&mut has_warned, true) => {
                warn!(%error, "cannot write the access log")
            }
            Err(_) => {}
        }
    }
}

/// A time since 1970 as RFC 3339 has it, in UTC, to the millisecond.
pub(crate) fn rfc3339(unix: Duration) -> String {
    let (days, second_of_day) = (unix.as_secs() / 86_400, unix.as_secs() % 86_400);
    // Years that begin in March have their leap day at the end; eras of 400 years are all alike.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let ms = unix.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_formats_calendar_dates() {
        for (unix_ms, told) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_millis(unix_ms)), told);
        }
    }

    #[tokio::test]
    async fn line_is_written_whole_and_reopen_follows_the_renamed_file() {
        let dir = std::env::temp_dir().join(format!("voxbridge-access-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, moved) = (dir.join("access.log"), dir.join("access.log.1"));
        let log = AccessLog::open(LogTarget::from_path(&path)).unwrap();
        let (alive, mut written) = mpsc::channel(1);
        assert!(log.write(&AccessRecord { session: "a".to_owned(), ..AccessRecord::default() }, alive));
        assert_eq!(written.recv().await, None, "nobody holds it any more: it is written");
        std::fs::rename(&path, &moved).unwrap();
        log.reopen();
        let (alive, mut written) = mpsc::channel(1);
        assert!(log.write(&AccessRecord { session: "b".to_owned(), ..AccessRecord::default() }, alive));
        assert_eq!(written.recv().await, None);
        for (path, session) in [(&moved, "a"), (&path, "b")] {
            let text = std::fs::read_to_string(path).unwrap();
            let line: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
            assert_eq!(line["session"], session);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
