//! Signals that stop a command.

use std::{fs, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StopSignal {
    pub(super) name: &'static str,
    pub(super) number: u8,
}

/// Listens for SIGINT, SIGTERM and SIGQUIT, and some commands for SIGHUP.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Begins to listen. These signals no longer end the process by themselves.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            hangup: None,
        })
    }

    /// Listens for the end of the terminal as well, unless the process ignores it (`nohup`).
    pub(super) fn with_hangup(mut self) -> io::Result<Self> {
        if !ignores_hangup() {
            self.hangup = Some(signal(SignalKind::hangup())?);
        }
        Ok(self)
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> StopSignal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let (name, kind) = tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            _ = self.quit.recv() => ("SIGQUIT", SignalKind::quit()),
            _ = hangup => ("SIGHUP", SignalKind::hangup()),
        };
        StopSignal { name, number: u8::try_from(kind.as_raw_value()).unwrap_or_default() }
    }
}

/// True if the process was started with SIGHUP ignored, or the system does not say.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit stands for signal 1.
    mask.is_none_or(|mask| mask & 1 != 0)
}
