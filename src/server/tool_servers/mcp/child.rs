//! A tool server as a child process: started without a shell, and ended with the connection.
//!
//! Messages are lines on its standard input and output. What it writes to its standard error is logged at debug.

use std::{
    io,
    pin::Pin,
    process::Stdio,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader, ReadBuf},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};
use tracing::debug;

use super::{MESSAGE_MAX_BYTES, ToolServerSettings, ToolServerTransport};

/// Longest line of the log, bytes.
const LOG_LINE_MAX_BYTES: u64 = 1024;

/// Starts the child. Gives its output and input.
///
/// # Errors
/// It cannot be started.
pub(super) fn start(
    settings: &ToolServerSettings,
) -> Result<((BoundedLines<ChildStdout>, ChildStdin), Child), String> {
    let ToolServerTransport::Child { program, arguments, environment, directory } = &settings.transport
    else {
        return Err("the server is no child process".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command.envs(environment.iter().map(|(name, value)| (name, value.expose())));
    directory.iter().for_each(|directory| _ = command.current_dir(directory));
    // A group of its own: Ctrl-C at a terminal lets sessions finish their calls.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
    let pipes = child.stdout.take().zip(child.stdin.take()).zip(child.stderr.take());
    let ((stdout, stdin), stderr) = pipes.ok_or("its pipes are missing")?;
    tokio::spawn(log_lines(settings.name.clone(), stderr));
    Ok(((BoundedLines { inner: stdout, line_bytes: 0 }, stdin), child))
}

/// Logs what the child writes to its standard error.
async fn log_lines(server: String, stderr: ChildStderr) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut reader).take(LOG_LINE_MAX_BYTES).read_until(b'\n', &mut line).await {
        debug!(server, "tool server: {}", String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

/// Bytes of lines, each at most [`MESSAGE_MAX_BYTES`] long. A longer one is an error.
pub(super) struct BoundedLines<R> {
    inner: R,
    /// Bytes of the line so far.
    line_bytes: usize,
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        self.line_bytes = match memchr::memrchr(b'\n', read) {
            Some(end) => read.len() - end - 1,
            None => self.line_bytes + read.len(),
        };
        if self.line_bytes > MESSAGE_MAX_BYTES {
            let message = format!("a message is longer than {MESSAGE_MAX_BYTES} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        Poll::Ready(Ok(()))
    }
}
