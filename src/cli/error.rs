//! What can go wrong on the client side of the command line, and which exit code says so.
//!
//! The codes above 2 are those of sysexits.h, which shells and service managers know.

use std::{io, path::PathBuf, time::Duration};

use crate::audio::wav::WavError;

/// The command was understood and failed.
const EXIT_FAILED: u8 = 1;
/// The command line makes no sense (clap's own code).
const EXIT_USAGE: u8 = 2;
/// EX_DATAERR: the input is there and is not what it should be.
const EXIT_INVALID_DATA: u8 = 65;
/// EX_NOINPUT: the input cannot be read.
const EXIT_NO_INPUT: u8 = 66;
/// EX_UNAVAILABLE: nobody answers at the address.
const EXIT_UNAVAILABLE: u8 = 69;

/// Why a client command failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is none of a WebSocket server.
    #[error("`{url}` is no address of a server: {reason} (expected ws://HOST[:PORT]/PATH or wss://…)")]
    InvalidUrl {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The key cannot be shown.
    #[error("{source_name}: {reason}")]
    InvalidKey {
        /// Where it was found.
        source_name: String,
        /// What is wrong, without the key.
        reason: &'static str,
    },
    /// DNS, TCP, TLS or time.
    #[error(
        "cannot reach {url}: {reason}; start a server with `voxbridge serve --upstream ws://HOST/v1/realtime`, \
         or name another one with --url"
    )]
    Unreachable {
        /// Where.
        url: String,
        /// What happened.
        reason: String,
    },
    /// HTTP said no.
    #[error("{url} refused the connection with HTTP {status}{}", status_hint(*status))]
    HttpRejected {
        /// Where.
        url: String,
        /// The status.
        status: u16,
    },
    /// Connected, but no session came of it.
    #[error("{url} opened no session: {reason}")]
    SessionNotOpened {
        /// Where.
        url: String,
        /// What came instead.
        reason: String,
    },
    /// An `error` event that ends what was being done.
    #[error("the server reports {code}: {message}")]
    Server {
        /// The server's code.
        code: String,
        /// The server's words.
        message: String,
    },
    /// The connection ended before the work was done.
    #[error("the connection was lost: {0}")]
    ConnectionLost(String),
    /// The server is connected and silent.
    #[error("the server has not answered for {0:.0?}")]
    Stalled(Duration),
    /// Something came of it, but not all.
    #[error("the transcript may be incomplete: {count} of the server's errors, the last {last}")]
    IncompleteTranscript {
        /// How many errors.
        count: usize,
        /// The last one, in the server's words.
        last: String,
    },
    /// A text was spoken without a sound.
    #[error("the server sent no audio")]
    NoAudio,
    /// More audio than any text takes.
    #[error("the server sent more than {0} bytes of audio; giving up")]
    TooMuchAudio(usize),
    /// The input cannot be read.
    #[error("cannot read {source_name}: {reason}")]
    UnreadableInput {
        /// A file name or "standard input".
        source_name: String,
        /// The system's words.
        reason: io::Error,
    },
    /// The recording cannot be used.
    #[error("{source_name}: {reason}")]
    InvalidAudio {
        /// A file name or "standard input".
        source_name: String,
        /// Why not.
        reason: WavError,
    },
    /// The text cannot be used.
    #[error("{0}")]
    InvalidText(String),
    /// The result cannot be written.
    #[error("cannot write {}: {reason}", destination.display())]
    UnwritableOutput {
        /// A file name or "standard output".
        destination: PathBuf,
        /// The system's words.
        reason: io::Error,
    },
}

impl ClientError {
    /// The exit code of the program.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::InvalidUrl { .. } | Self::InvalidKey { .. } => EXIT_USAGE,
            Self::Unreachable { .. } | Self::HttpRejected { .. } | Self::SessionNotOpened { .. } => {
                EXIT_UNAVAILABLE
            }
            Self::UnreadableInput { .. } => EXIT_NO_INPUT,
            Self::InvalidAudio { .. } | Self::InvalidText(_) => EXIT_INVALID_DATA,
            Self::Server { .. }
            | Self::ConnectionLost(_)
            | Self::Stalled(_)
            | Self::IncompleteTranscript { .. }
            | Self::NoAudio
            | Self::TooMuchAudio(_)
            | Self::UnwritableOutput { .. } => EXIT_FAILED,
        }
    }

    /// A failure to write to the terminal or a pipe.
    pub(super) fn unwritable_stdout(reason: io::Error) -> Self {
        Self::UnwritableOutput { destination: PathBuf::from("standard output"), reason }
    }
}

/// What may help.
const fn status_hint(status: u16) -> &'static str {
    match status {
        401 => "; it wants a key: --key-file FILE, or VOXBRIDGE_KEY in the environment",
        403 => "; the key is not for this, or no route leads there",
        429 => "; this key or address has as many sessions as it may",
        503 => "; it is full or stopping",
        _ => "; is the path right?",
    }
}
