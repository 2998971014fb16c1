//! Access log: one line of JSON per session, written at its end.
//!
//! Rejected connections have no line; they appear in the metrics and in the log.

use std::io;

use serde::Serialize;
use tracing::warn;

use super::line_writer::{LineWriter, LogNotices, LogTarget};

/// Access log line of one session; `null` for events that did not happen and unknown values.
///
/// Times are in seconds unless the name ends in `_ms`. Field names are stable; new fields may be added.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AccessRecord {
    /// Start of the session, RFC 3339, UTC.
    pub opened: String,
    /// End of the session, RFC 3339, UTC.
    pub closed: String,
    /// Duration of the session.
    pub duration_s: f64,
    /// Session id.
    pub session: String,
    /// Session ids given by the upstreams, one per upstream used; the newest sixteen.
    pub upstream_sessions: Vec<String>,
    /// Upstreams used, without duplicates.
    pub upstreams: Vec<String>,
    /// Client protocol.
    pub client: String,
    /// Profile.
    pub profile: String,
    /// Path of the client's request.
    pub path: String,
    /// Address of the client, as seen by the TCP connection.
    pub peer: String,
    /// Name of the client's API key.
    pub key: Option<String>,
    /// Subject of the client's certificate.
    pub subject: Option<String>,
    /// Id of the distributed trace.
    pub trace_id: Option<String>,
    /// Audio received from the client.
    pub audio_in_s: Option<f64>,
    /// Audio sent to the client.
    pub audio_out_s: Option<f64>,
    /// User audio that was dropped.
    pub dropped_s: Option<f64>,
    /// User audio that was muted during playback.
    pub muted_s: Option<f64>,
    /// Bytes received from the client.
    pub client_in_bytes: u64,
    /// Bytes sent to the client.
    pub client_out_bytes: u64,
    /// Bytes received from upstreams.
    pub upstream_in_bytes: u64,
    /// Bytes sent to upstreams.
    pub upstream_out_bytes: u64,
    /// Number of upstream sessions that were connected.
    pub lanes: u32,
    /// Longest wait for a worker.
    pub queue_ms: Option<f64>,
    /// Time from the end of the first transcribed utterance to its transcript.
    pub first_transcript_ms: Option<f64>,
    /// Time from the first text or the user's first speech to the first audio.
    pub first_audio_ms: Option<f64>,
    /// Number of upstream sessions that were replaced.
    pub rollovers: u32,
    /// Longest interruption of audio to the model during a rollover.
    pub gap_ms: Option<f64>,
    /// Number of interruptions of the model or of a text.
    pub barge_ins: u32,
    /// Number of times the client ran out of audio during playback.
    pub underruns: u32,
    /// Largest context in use by the model, in tokens.
    pub context_peak_tokens: Option<u32>,
    /// Errors sent to the client, by kind.
    pub errors: std::collections::BTreeMap<&'static str, u32>,
    /// Reason of the end: name of a [`crate::session::EndReason`].
    pub reason: &'static str,
    /// Side that ended the session: `client`, `bridge` or `upstream`.
    pub ended_by: &'static str,
    /// Close code of the client's connection.
    pub client_close: Option<u16>,
    /// Side that sent this close code: `client` or `bridge`.
    pub client_closed_by: Option<&'static str>,
    /// Close code of the last upstream connection.
    pub upstream_close: Option<u16>,
    /// Side that sent this close code: `upstream` or `bridge`.
    pub upstream_closed_by: Option<&'static str>,
}

/// Handle of the access log; clones share it.
#[derive(Debug, Clone)]
pub struct AccessLog(LineWriter);

impl AccessLog {
    /// Opens the target and starts the writer's thread.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(target: LogTarget) -> io::Result<Self> {
        let write_failed = |error: &io::Error| warn!(%error, "cannot write the access log");
        LineWriter::open("access-log", target, LogNotices { lines_lost: None, write_failed }).map(Self)
    }

    /// Reopens the file, after logrotate has moved it.
    pub fn reopen(&self) {
        if !self.0.reopen() {
            warn!("the access log was not reopened, because its queue is full; send SIGHUP again");
        }
    }

    /// Queues a session's line. It is lost if the queue is full.
    pub(crate) fn write(&self, record: &AccessRecord) {
        if let Ok(mut line) = serde_json::to_vec(record) {
            line.push(b'\n');
            self.0.write(line);
        }
    }

    /// Waits until every queued line is written or lost. Returns false after a second.
    pub(crate) async fn flush(&self) -> bool {
        let lines = self.0.clone();
        tokio::task::spawn_blocking(move || lines.flush()).await.unwrap_or(false)
    }

    /// Lines lost so far.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.0.lost_lines()
    }
}
