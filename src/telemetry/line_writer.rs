//! Lines of a log, written by a thread of its own, so that sessions never wait for a terminal, a pipe or a disk.
//!
//! The queue is bounded. Lines that do not fit, or that cannot be written, are lost and counted.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// Capacity of the queue: enough for a thousand sessions that end at once.
const PENDING_LINES_MAX: usize = 4096;
/// Time for the waiting lines at the end of the program.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Destination of the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file to append to.
    File(PathBuf),
}

impl LogTarget {
    /// Parses `-` or `stdout`, `stderr`, or a path.
    pub fn from_path(path: &Path) -> Self {
        match path.to_str() {
            Some("-" | "stdout") => Self::Stdout,
            Some("stderr") => Self::Stderr,
            _ => Self::File(path.to_owned()),
        }
    }

    /// Opens the target with a descriptor of its own, so that a writer that is stuck holds no lock of the program.
    fn open(&self) -> io::Result<File> {
        match self {
            Self::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
            Self::Stderr => Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
            Self::File(path) => {
                // Opened for writing alone, a named pipe would wait for its reader.
                let is_pipe = path.metadata().is_ok_and(|found| found.file_type().is_fifo());
                OpenOptions::new().create(true).append(true).read(is_pipe).mode(0o640).open(path)
            }
        }
    }

    /// True if the target ends in the middle of a line, left by a crash or a full disk.
    fn ends_in_partial_line(&self) -> bool {
        let Self::File(path) = self else { return false };
        // Opening a named pipe would wait for its writer.
        if !path.metadata().is_ok_and(|found| found.is_file()) {
            return false;
        }
        let last_byte = File::open(path).and_then(|mut file| {
            let mut byte = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut byte).map(|()| byte[0])
        });
        last_byte.is_ok_and(|byte| byte != b'\n')
    }
}

enum WriterCommand {
    Write(Vec<u8>),
    Reopen,
    /// Drops the sender once everything before it is written.
    Flush(#[expect(dead_code, reason = "dropping it is the answer")] SyncSender<()>),
}

/// How a log speaks about itself.
#[derive(Clone, Copy)]
pub(crate) struct LogNotices {
    /// The line, with its end, that tells how many lines are missing.
    pub(crate) lines_lost: Option<fn(u64) -> String>,
    /// Called for the first error of several in a row.
    pub(crate) write_failed: fn(&io::Error),
}

/// Handle of a log; clones share it. The thread ends with the last handle.
#[derive(Debug, Clone)]
pub(crate) struct LineWriter {
    commands: SyncSender<WriterCommand>,
    lost_lines: Arc<AtomicU64>,
}

impl LineWriter {
    /// Opens the target and starts the thread.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn open(name: &str, target: LogTarget, notices: LogNotices) -> io::Result<Self> {
        let mut output = LineOutput {
            has_partial_line: target.ends_in_partial_line(),
            file: target.open()?,
            target,
            notices,
            has_failed: false,
            told_lost: 0,
        };
        let (commands, receiver) = sync_channel(PENDING_LINES_MAX);
        let lost_lines = Arc::<AtomicU64>::default();
        let counter = lost_lines.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || output.run(&receiver, &counter))?;
        Ok(Self { commands, lost_lines })
    }

    /// Queues a line, with its end. Returns false if the queue is full.
    pub(crate) fn write(&self, line: Vec<u8>) -> bool {
        let is_queued = self.commands.try_send(WriterCommand::Write(line)).is_ok();
        if !is_queued {
            self.lost_lines.fetch_add(1, Relaxed);
        }
        is_queued
    }

    /// Reopens a file, after logrotate has moved it. Returns false if the queue is full.
    pub(crate) fn reopen(&self) -> bool {
        self.commands.try_send(WriterCommand::Reopen).is_ok()
    }

    /// Waits until every queued line is written or lost, at most for [`FLUSH_TIMEOUT`]; blocks the thread. Returns
    /// false after the timeout.
    pub(crate) fn flush(&self) -> bool {
        let (sender, flushed) = sync_channel(0);
        self.commands.try_send(WriterCommand::Flush(sender)).is_ok()
            && flushed.recv_timeout(FLUSH_TIMEOUT) != Err(std::sync::mpsc::RecvTimeoutError::Timeout)
    }

    /// Lines lost so far.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.lost_lines.load(Relaxed)
    }
}

/// The thread's side of a log.
struct LineOutput {
    target: LogTarget,
    file: File,
    notices: LogNotices,
    /// The last write ended in the middle of a line.
    has_partial_line: bool,
    /// The last write failed.
    has_failed: bool,
    /// Lost lines that the log mentions.
    told_lost: u64,
}

impl LineOutput {
    fn run(&mut self, commands: &Receiver<WriterCommand>, lost_lines: &AtomicU64) {
        for command in commands {
            let result = match command {
                WriterCommand::Write(line) => {
                    self.tell_lost(lost_lines.load(Relaxed));
                    self.write_line(&line).inspect_err(|_| {
                        lost_lines.fetch_add(1, Relaxed);
                    })
                }
                WriterCommand::Reopen => self.target.open().map(|file| {
                    self.file = file;
                    self.has_partial_line = self.target.ends_in_partial_line();
                }),
                WriterCommand::Flush(_) => continue,
            };
            // A full disk fails every line.
            let had_failed = std::mem::replace(&mut self.has_failed, result.is_err());
            if let (Err(error), false) = (result, had_failed) {
                (self.notices.write_failed)(&error);
            }
        }
    }

    /// Writes how many lines were lost since the last time.
    fn tell_lost(&mut self, lost: u64) {
        let missing = lost - self.told_lost;
        if let Some(line) = self.notices.lines_lost.filter(|_| missing > 0)
            && self.write_line(line(missing).as_bytes()).is_ok()
        {
            self.told_lost = lost;
        }
    }

    /// Writes a line with one system call where possible, so that readers never see half a line. A line that does not fit on
    /// the disk is taken back. Where that is not possible, it gets its end before the next line.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.has_partial_line {
            self.file.write_all(b"\n")?;
            self.has_partial_line = false;
        }
        let start = self.file_length();
        let mut rest = line;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.take_back(start, line.len() - rest.len());
                    return Err(error);
                }
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = &rest[count..];
                    self.has_partial_line = !rest.is_empty();
                }
            }
        }
        Ok(())
    }

    /// Length of a file; `None` for a terminal, a pipe or a device.
    fn file_length(&self) -> Option<u64> {
        self.file.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
    }

    /// Removes the first `written` bytes of a line from the end of the file, unless another program has written since.
    fn take_back(&mut self, start: Option<u64>, written: usize) {
        let Some(start) = start.filter(|_| written > 0) else { return };
        if self.file_length() == Some(start + written as u64) && self.file.set_len(start).is_ok() {
            self.has_partial_line = false;
        }
    }
}

impl<'a> MakeWriter<'a> for LineWriter {
    type Writer = LineSink<'a>;

    fn make_writer(&'a self) -> LineSink<'a> {
        LineSink(self)
    }
}

/// Takes one whole line per write, as tracing's formatter does.
pub(crate) struct LineSink<'a>(&'a LineWriter);

impl Write for LineSink<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(line.to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: LogNotices =
        LogNotices { lines_lost: Some(|count| format!("{count} lost\n")), write_failed: |_| {} };

    #[test]
    fn partial_line_gets_its_end_and_reopen_follows_a_renamed_file() {
        let dir = std::env::temp_dir().join(format!("voxbridge-lines-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, moved) = (dir.join("log"), dir.join("log.1"));
        std::fs::write(&path, "cut o").unwrap();
        let log = LineWriter::open("test", LogTarget::from_path(&path), SILENT).unwrap();
        assert!(log.write(b"one\n".to_vec()) && log.flush());
        std::fs::rename(&path, &moved).unwrap();
        assert!(log.reopen() && log.write(b"two\n".to_vec()) && log.flush());
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "cut o\none\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Lines that this many bytes do not hold, and a short one that they do.
    const DISK_BYTES: usize = 4096;
    const LONG_LINE: [u8; 300] = {
        let mut line = [b'x'; 300];
        line[299] = b'\n';
        line
    };

    /// Runs the test below in a process whose files hold 4 KiB.
    #[test]
    fn line_that_does_not_fit_on_the_disk_is_taken_back() {
        let path = std::env::temp_dir().join(format!("voxbridge-full-{}", std::process::id()));
        let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact --ignored \
                       telemetry::line_writer::tests::lines_are_written_on_a_full_disk";
        let child = std::process::Command::new("sh")
            .args(["-c", limited])
            .arg(std::env::current_exe().unwrap())
            .env("VOXBRIDGE_TEST_LOG", &path)
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        let whole = DISK_BYTES / LONG_LINE.len();
        let expected = [LONG_LINE.repeat(whole), b"1 lost\n".repeat(3), b"end\n".to_vec()].concat();
        assert_eq!(String::from_utf8(std::fs::read(&path).unwrap()), String::from_utf8(expected));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    #[ignore = "run by the test above"]
    fn lines_are_written_on_a_full_disk() {
        let Some(path) = std::env::var_os("VOXBRIDGE_TEST_LOG").map(PathBuf::from) else { return };
        let log = LineWriter::open("test", LogTarget::File(path), SILENT).unwrap();
        let whole = DISK_BYTES / LONG_LINE.len();
        assert!((0..whole + 3).all(|_| log.write(LONG_LINE.to_vec())) && log.flush());
        assert!(log.write(b"end\n".to_vec()) && log.flush());
        assert_eq!(log.lost_lines(), 3);
    }

    #[test]
    fn full_disk_loses_lines_and_counts_them() {
        let log = LineWriter::open("test", LogTarget::File("/dev/full".into()), SILENT).unwrap();
        assert!((0..3).all(|_| log.write(b"line\n".to_vec())) && log.flush());
        assert_eq!(log.lost_lines(), 3);
    }

    #[test]
    fn unread_pipe_blocks_nobody_and_the_loss_is_told() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        let log = LineWriter::open("test", LogTarget::File(path.into()), SILENT).unwrap();
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let mut queued = 0_u64;
        while log.write(line.clone()) {
            queued += 1;
        }
        assert!(!log.flush(), "the pipe is full");
        assert!(log.lost_lines() == 1 && queued > 4000);
        drop(writer);
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text).unwrap()
        });
        let is_taken = |log: &LineWriter| log.write(b"end\n".to_vec());
        while !is_taken(&log) {
            std::thread::yield_now();
        }
        drop(log);
        let text = reading.join().unwrap();
        let told: u64 = text.lines().filter_map(|line| line.strip_suffix(" lost")?.parse::<u64>().ok()).sum();
        assert!(
            told >= 1 && text.lines().filter(|line| line.starts_with('x')).count() as u64 == queued,
            "{told}"
        );
        assert!(text.ends_with("end\n"));
    }
}
