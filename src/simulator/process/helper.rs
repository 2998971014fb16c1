//! The helper process: start, requests, exit status. The request queue is in the parent module.
//!
//! The message format is described at the top of `examples/engines/engines.py`.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Program text of the helper, passed on its command line, so that it is never missing or of another version.
const HELPER: &str = include_str!("../engines.py");

/// Time for a helper that closed its pipes to exit.
const EXIT_BOUND: Duration = Duration::from_secs(2);

/// A header contains the transcript of at most ten minutes of speech, about 10 kB.
const HEADER_LIMIT_BYTES: u64 = 1 << 20;

/// An answer contains at most ten minutes of speech (24 kHz float32).
const SPEECH_LIMIT_BYTES: usize = 600 * 24_000 * 4;

/// Text and audio of an answer; one of them is empty.
pub(super) type HelperAnswer = (String, Vec<u8>);

#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum HelperRequest {
    Recognise { bytes: usize },
    Speak { text: String, voice: &'static str },
}

#[derive(Serialize)]
struct RequestHeader<'a> {
    id: u64,
    #[serde(flatten)]
    request: &'a HelperRequest,
}

#[derive(Deserialize)]
struct ReplyHeader {
    id: Option<u64>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    bytes: usize,
    error: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ReadyHeader {
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) recogniser: String,
    #[serde(default)]
    pub(super) synthesiser: String,
    pub(super) error: Option<String>,
}

/// The process and its pipes.
pub(super) struct Helper {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Returns the last line of standard error when the helper closes it.
    last_stderr_line: JoinHandle<String>,
    request_count: u64,
}

impl Helper {
    pub(super) fn spawn(python: &Path, dir: &Path) -> io::Result<Self> {
        let mut child = Command::new(python)
            // Isolated mode ignores user packages and PYTHON* variables; the helper adds the engines' own path.
            .args(["-I", "-c", HELPER])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the process has no pipes"));
        };
        let last_stderr_line = tokio::spawn(drain_stderr(stderr));
        Ok(Self { child, stdin, stdout: BufReader::new(stdout), last_stderr_line, request_count: 0 })
    }

    pub(super) fn process_id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Sends one request; returns the answer or its rejection. An I/O error means that the helper is lost.
    pub(super) async fn request(
        &mut self,
        request: &HelperRequest,
        audio: Vec<u8>,
    ) -> io::Result<Result<HelperAnswer, String>> {
        self.request_count += 1;
        let mut message = serde_json::to_vec(&RequestHeader { id: self.request_count, request })?;
        message.push(b'\n');
        self.stdin.write_all(&message).await?;
        self.stdin.write_all(&audio).await?;
        self.stdin.flush().await?;
        drop(audio);

        let reply: ReplyHeader = self.read_header().await?;
        if reply.id != Some(self.request_count) || reply.bytes > SPEECH_LIMIT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "invalid answer (wrong id or size)"));
        }
        let mut audio = vec![0; reply.bytes];
        self.stdout.read_exact(&mut audio).await?;
        Ok(reply.error.map_or(Ok((reply.text, audio)), Err))
    }

    /// Reads the next header line of the helper.
    pub(super) async fn read_header<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        (&mut self.stdout).take(HEADER_LIMIT_BYTES).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }

    /// Describes a pipe failure by the exit status of the process, if it exited.
    pub(super) async fn describe_failure(&mut self, error: &io::Error) -> String {
        match timeout(EXIT_BOUND, self.child.wait()).await {
            Ok(status) => self.describe_exit(status).await,
            Err(_) => error.to_string(),
        }
    }

    /// Waits for the process to exit and describes its status. Cancel-safe.
    pub(super) async fn wait_for_exit(&mut self) -> String {
        let status = self.child.wait().await;
        self.describe_exit(status).await
    }

    async fn describe_exit(&mut self, status: io::Result<ExitStatus>) -> String {
        let exit = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        // The wait is bounded, because a child of the helper may hold standard error open.
        match timeout(EXIT_BOUND, &mut self.last_stderr_line).await {
            Ok(Ok(stderr_line)) if !stderr_line.is_empty() => format!("{exit}, {stderr_line}"),
            _ => exit,
        }
    }
}

/// Drains standard error, so that the helper never blocks on it; returns the last line.
async fn drain_stderr(stderr: ChildStderr) -> String {
    let mut stderr = BufReader::new(stderr);
    let (mut line, mut last_line) = (Vec::new(), String::new());
    loop {
        line.clear();
        match (&mut stderr).take(HEADER_LIMIT_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return last_line,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !text.is_empty() {
            tracing::debug!(line = text, "speech engines");
            text.clone_into(&mut last_line);
        }
    }
}
