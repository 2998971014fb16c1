//! Errors of the client commands and their exit codes.
//!
//! Codes above 2 are those of sysexits.h, which shells and service managers know.

use std::{io, path::PathBuf, time::Duration};

use super::clock::clock;
use crate::error::{Error, ErrorKind};
use crate::media::MediaError;
use crate::vocabulary::CloseReason;

/// The command itself failed.
pub(super) const EXIT_FAILED: u8 = 1;
/// The command line is wrong (clap's own code).
pub(super) const EXIT_USAGE: u8 = 2;
/// EX_DATAERR: the input has the wrong format.
pub(super) const EXIT_INVALID_DATA: u8 = 65;
/// EX_NOINPUT: the input cannot be read.
pub(super) const EXIT_NO_INPUT: u8 = 66;
/// EX_TEMPFAIL: a transcript has gaps, which another attempt may close, or another run works on it.
pub(super) const EXIT_INCOMPLETE: u8 = 75;
/// EX_UNAVAILABLE: no server answers at the address.
pub(super) const EXIT_UNAVAILABLE: u8 = 69;
/// Base of the exit code after a signal; the signal number is added, as in shells.
pub(super) const SIGNAL_BASE: u8 = 128;
/// EX_PROTOCOL: the server at the address cannot be trusted to be the right one.
pub(super) const EXIT_UNTRUSTED: u8 = 76;

/// Failure of a client command.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is not a valid WebSocket URL.
    #[error("`{url}` is not a valid server URL: {reason} (expected ws://HOST[:PORT]/PATH or wss://…)")]
    InvalidUrl {
        /// URL as given.
        url: String,
        /// Problem of the URL.
        reason: String,
    },
    /// The API key is malformed.
    #[error("{source_name}: {reason}")]
    InvalidKey {
        /// File or variable with the key.
        source_name: String,
        /// Problem of the key; never contains the key.
        reason: &'static str,
    },
    /// No connection: DNS, TCP or TLS failed, or the timeout expired.
    #[error(
        "cannot reach {url}: {reason}; start a server with `voxbridge serve --upstream ws://HOST/v1/realtime`, \
                 or choose another one with --url"
    )]
    Unreachable {
        /// Where.
        url: String,
        /// Error of the connection.
        reason: String,
    },
    /// No connection to an upstream.
    #[error("cannot reach upstream {url}: {reason}; find the cause with `voxbridge doctor --upstream {url}`")]
    UpstreamUnreachable {
        /// Where, without secrets.
        url: String,
        /// Error of the connection.
        reason: String,
    },
    /// The certificate of the server is not trusted.
    #[error(
        "the certificate of {url} is not trusted: {problem}; to trust it, name a file with it by {option}"
    )]
    UntrustedCertificate {
        /// Where.
        url: String,
        /// Problem of the certificate.
        problem: &'static str,
        /// Option that names the trusted certificates.
        option: &'static str,
    },
    /// The file of `--ca` holds no certificates.
    #[error("--ca {0}")]
    UnreadableCa(String),
    /// The server only transcribes.
    #[error(
        "the server transcribes questions but does not answer them; talk needs a conversation: `voxbridge serve \
         --profile conversation`, or a route of that profile for the name given by --model"
    )]
    NoConversation,
    /// A conversational server that shows no sign of having heard a question.
    #[error(
        "the server has heard no speech {} s after the question; is the recording loud enough, and does the server's profile \
         take audio (`voxbridge serve --profile conversation`)?", .0.as_secs_f64()
    )]
    NotHeard(Duration),
    /// The server rejected the WebSocket upgrade with an HTTP status.
    #[error("{url} rejected the connection with HTTP {status}{}", status_hint(*status))]
    HttpRejected {
        /// Where.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The connection was opened, but no session.
    #[error("{url} opened no session: {reason}")]
    SessionNotOpened {
        /// Where.
        url: String,
        /// Reason.
        reason: String,
    },
    /// An unrecoverable `error` event.
    #[error("the server reports {code}: {message}")]
    Server {
        /// Error code of the server.
        code: String,
        /// Error message of the server.
        message: String,
    },
    /// The connection ended before the command was done.
    #[error("the connection was lost: {0}")]
    ConnectionLost(String),
    /// The server is connected but silent.
    #[error("the server has not answered for {} s", .0.as_secs_f64().round())]
    Stalled(Duration),
    /// The server reported errors beside transcripts.
    #[error("the transcript may be incomplete: the server reported {count} errors; last: {last}")]
    IncompleteTranscript {
        /// Number of errors.
        count: usize,
        /// Text of the last error.
        last: String,
    },
    /// Speech without a transcript, and without an error of the server.
    #[error(
        "the transcript is incomplete: {utterances} utterances have no transcript, and {} ms of audio were dropped",
        dropped.as_millis()
    )]
    MissingSpeech {
        /// Number of utterances.
        utterances: usize,
        /// Audio that the server has dropped.
        dropped: Duration,
    },
    /// The server spoke a text without sending audio.
    #[error("the server sent no audio")]
    NoAudio,
    /// The server sent more audio than any text needs.
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
    /// The recording has the wrong format.
    #[error("{source_name}: {reason}")]
    InvalidAudio {
        /// A file name or "standard input".
        source_name: String,
        /// Problem of the recording.
        reason: MediaError,
    },
    /// The text is empty or not UTF-8.
    #[error("{0}")]
    InvalidText(String),
    /// The command line asks for what cannot be done together.
    #[error("{0}")]
    Usage(String),
    /// The bridge in this process cannot start.
    #[error("cannot start a bridge in this process: {0}")]
    LocalServer(String),
    /// A server answered a request with an HTTP error.
    #[error("{url} answered with HTTP {status}: {message}")]
    HttpFailed {
        /// Where.
        url: String,
        /// HTTP status.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// The model could not be asked.
    #[error("{0}")]
    ModelFailed(String),
    /// No upstream opened a session.
    #[error("{0}")]
    NoUpstreamSession(String),
    /// An utterance could not be transcribed.
    #[error("at {}: {error}", clock(*at))]
    UtteranceFailed {
        /// Where it begins in the recording.
        at: Duration,
        /// Problem of the upstream.
        error: Box<Self>,
    },
    /// Some utterances could not be transcribed; the transcript marks them.
    #[error("{}; the same command asks for them again", gaps_text(*gaps, *utterances))]
    Gaps {
        /// Number of utterances that were not transcribed.
        gaps: usize,
        /// Number of utterances that were.
        utterances: usize,
    },
    /// The journal beside an output is about something else.
    #[error(
        "{} belongs to another recording, or to other options; with --overwrite, the transcript begins anew", .0.display()
    )]
    OtherJournal(PathBuf),
    /// Another run works on the result.
    #[error(
        "another voxbridge works on this file (it has locked {}); the file is left out", .0.display()
    )]
    BusyFile(PathBuf),
    /// A file has the name of a transcript, but is older than the recording.
    #[error(
        "{} is older than the recording, so it is not its transcript; --overwrite replaces it, and --output DIR/ writes \
         elsewhere", .0.display()
    )]
    OlderTranscript(PathBuf),
    /// The recording has utterances, and every transcript is empty.
    #[error(
        "speech was found{}, but the model returned no words; the recording may hold only noise",
        first_utterance.map_or_else(String::new, |at| format!(" at {}", clock(at)))
    )]
    NoWords {
        /// Where the first utterance begins, if the server reports times.
        first_utterance: Option<Duration>,
    },
    /// An error with the file that it is about.
    #[error("{name}: {error}")]
    InFile {
        /// Name of the file.
        name: String,
        /// The error.
        error: Box<Self>,
    },
    /// Some of several files failed; the errors are printed already.
    #[error("{failed} of {total} files failed{}", not_begun_text(*not_begun))]
    FilesFailed {
        /// Number of files that failed.
        failed: usize,
        /// Number of files that were not begun, because the upstream was lost.
        not_begun: usize,
        /// Number of files.
        total: usize,
        /// The exit code that holds for all of them.
        exit_code: u8,
    },
    /// A signal stopped the command.
    #[error("stopped by signal {0}")]
    Stopped(u8),
    /// The output cannot be written.
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
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::InFile { error, .. } | Self::UtteranceFailed { error, .. } => error.exit_code(),
            Self::FilesFailed { exit_code, .. } => *exit_code,
            Self::Stopped(signal) => SIGNAL_BASE + *signal,
            Self::InvalidUrl { .. }
            | Self::InvalidKey { .. }
            | Self::Usage(_)
            | Self::OtherJournal(_)
            | Self::OlderTranscript(_) => EXIT_USAGE,
            Self::Gaps { .. }
            | Self::IncompleteTranscript { .. }
            | Self::MissingSpeech { .. }
            | Self::BusyFile(_) => EXIT_INCOMPLETE,
            Self::UntrustedCertificate { .. } => EXIT_UNTRUSTED,
            Self::Unreachable { .. }
            | Self::UpstreamUnreachable { .. }
            | Self::NoUpstreamSession(_)
            | Self::HttpRejected { .. }
            | Self::SessionNotOpened { .. } => EXIT_UNAVAILABLE,
            Self::UnreadableInput { .. } | Self::UnreadableCa(_) => EXIT_NO_INPUT,
            Self::InvalidAudio { .. } | Self::InvalidText(_) => EXIT_INVALID_DATA,
            Self::NoConversation
            | Self::NotHeard(_)
            | Self::Server { .. }
            | Self::ConnectionLost(_)
            | Self::Stalled(_)
            | Self::HttpFailed { .. }
            | Self::LocalServer(_)
            | Self::ModelFailed(_)
            | Self::NoWords { .. }
            | Self::NoAudio
            | Self::TooMuchAudio(_)
            | Self::UnwritableOutput { .. } => EXIT_FAILED,
        }
    }

    /// The error with the file that it is about, unless it names its file itself.
    pub(super) fn in_file(self, name: String) -> Self {
        match self {
            Self::UnreadableInput { .. } | Self::InvalidAudio { .. } | Self::UnwritableOutput { .. } => self,
            error => Self::InFile { name, error: Box::new(error) },
        }
    }

    /// Error that a session with the model reports.
    pub(super) fn from_model(error: Error) -> Self {
        match error.kind {
            ErrorKind::Unavailable | ErrorKind::QueueTimeout => Self::NoUpstreamSession(error.detail),
            _ => Self::ModelFailed(error.detail),
        }
    }

    /// Error for speech that ended before its text.
    pub(super) fn cut_short() -> Self {
        Self::ConnectionLost("the speech was cut short".to_owned())
    }

    /// Error for a session that the server closed before the command was done.
    pub(super) fn session_closed(reason: &str) -> Self {
        Self::ConnectionLost(format!("the server closed the session: {reason}"))
    }

    /// Error for a session of this process that ended before the command was done.
    pub(super) fn bridge_closed(reason: CloseReason) -> Self {
        Self::session_closed(reason.name())
    }

    /// True if no server or upstream answers, so that further files would fail alike.
    pub(super) fn is_of_lost_server(&self) -> bool {
        match self {
            Self::InFile { error, .. } | Self::UtteranceFailed { error, .. } => error.is_of_lost_server(),
            Self::NoUpstreamSession(_) | Self::Unreachable { .. } | Self::UpstreamUnreachable { .. } => true,
            _ => false,
        }
    }

    /// True if the reader of standard output is gone, as after `| head -1`. That is not worth a message.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::UnwritableOutput { reason, .. } if reason.kind() == io::ErrorKind::BrokenPipe)
    }

    /// A failure to write to the terminal or a pipe.
    pub(super) fn unwritable_stdout(reason: io::Error) -> Self {
        Self::UnwritableOutput { destination: PathBuf::from("standard output"), reason }
    }
}

fn not_begun_text(not_begun: usize) -> String {
    match not_begun {
        0 => String::new(),
        _ => format!(
            ", and {not_begun} were not begun, because no server answers; run the command again when one does"
        ),
    }
}

fn gaps_text(gaps: usize, utterances: usize) -> String {
    let total = gaps + utterances;
    format!("{gaps} of {total} utterances were not transcribed, and are marked")
}

/// Probable cause or remedy of an HTTP status.
const fn status_hint(status: u16) -> &'static str {
    match status {
        401 => {
            "; the server requires an API key: use --key-file FILE or the environment variable VOXBRIDGE_KEY"
        }
        403 => "; the key is not allowed to use this path, or no route matches it",
        429 => "; this key or address has reached its session limit",
        503 => "; the server is full or shutting down",
        _ => "; check the path of the URL",
    }
}
