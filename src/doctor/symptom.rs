//! Symptoms: observations at a failed or slow step. [`super::diagnosis`] interprets them.

use std::time::Duration;

use crate::vocabulary::{DisconnectReason, EndKind};

/// Observation at a failed or slow step.
#[derive(Debug, Clone, PartialEq)]
pub enum Symptom {
    /// The step succeeded, but took longer than usual.
    Slow {
        /// Measured duration.
        took: Duration,
        /// Longest usual duration.
        usual: Duration,
    },
    /// The server did not answer.
    NoAnswer {
        /// Time waited.
        waited: Duration,
    },
    /// The init message with the voice exceeds the size limit of messages.
    VoiceTooLarge {
        /// Size of the message.
        bytes: usize,
        /// Limit of the dialect.
        limit: usize,
    },
    /// The configuration can no longer be used; contains the error.
    Misconfigured(String),
    /// The name has no address; contains the system's error.
    NameNotFound(String),
    /// Nothing listens on the port.
    ConnectionRefused,
    /// The address is unreachable; contains the system's error.
    Unreachable(String),
    /// The URL begins with `wss://`, but the port speaks HTTP without TLS.
    ServerSpeaksPlaintext,
    /// The URL begins with `ws://`, but the port speaks TLS.
    ServerSpeaksTls,
    /// The certificate is not trusted.
    UntrustedCertificate(CertificateProblem),
    /// The server requires a client certificate, or another one.
    ClientCertificateRequired(String),
    /// TLS failed for another reason.
    TlsFailed(String),
    /// The server answered the upgrade with another HTTP status.
    HttpStatus {
        /// HTTP status.
        status: u16,
        /// Header `Server`.
        server: Option<String>,
        /// True if the body is an HTML page.
        is_html: bool,
    },
    /// The answer is not HTTP.
    NotHttp(String),
    /// The server closed the connection without an answer.
    ClosedWithoutAnswer(String),
    /// The server accepted a WebSocket extension that was not offered.
    UnexpectedExtension(String),
    /// The session is still in the queue.
    StillQueued {
        /// Last reported position.
        position: Option<u32>,
        /// Last reported length of the queue.
        length: Option<u32>,
        /// Time waited.
        waited: Duration,
    },
    /// The server opened a session without a request.
    UnrequestedSession,
    /// The server sent a message that the dialect does not know.
    UnknownMessage(String),
    /// The server ended the session with a message.
    SessionEnded {
        /// Text of the server.
        detail: String,
        /// Meaning of the message.
        kind: EndKind,
        /// Code of the close frame, if one arrived.
        code: Option<u16>,
        /// True if a voice had been sent.
        had_voice: bool,
    },
    /// The connection ended without a message.
    Disconnected(DisconnectReason),
    /// An error that does not end the session.
    RecoverableError(String),
    /// Every unit took longer than its own duration.
    SlowerThanRealTime {
        /// Shortest measured time.
        took: Duration,
        /// Duration of a unit.
        unit: Duration,
    },
    /// The session of the client path did not open; contains the server's text.
    SessionNotOpened(String),
    /// The server did not acknowledge the close.
    CloseNotAcknowledged(String),
    /// The server rejected modes that the routes need: pairs of mode and reason.
    ModesUnavailable(Vec<(String, String)>),
}

/// Problem with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateProblem {
    /// The issuer is not trusted.
    UnknownIssuer,
    /// The certificate is for these other names.
    WrongName(Vec<String>),
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// Another problem.
    Other(String),
}

impl Symptom {
    /// Short description for the line of the step.
    pub fn summary(&self) -> String {
        match self {
            Self::Slow { usual, .. } => format!("usually within {}", format_duration(*usual)),
            Self::NoAnswer { .. } => "no answer".to_owned(),
            Self::VoiceTooLarge { bytes, limit } => format!("voice: {bytes} of at most {limit} bytes"),
            Self::NameNotFound(_) => "name not found".to_owned(),
            Self::ConnectionRefused => "connection refused".to_owned(),
            Self::Misconfigured(detail)
            | Self::Unreachable(detail)
            | Self::TlsFailed(detail)
            | Self::ClientCertificateRequired(detail) => detail.clone(),
            Self::ServerSpeaksPlaintext => "the server speaks no TLS".to_owned(),
            Self::ServerSpeaksTls => "the server speaks TLS".to_owned(),
            Self::UntrustedCertificate(problem) => problem.summary().to_owned(),
            Self::HttpStatus { status, .. } => format!("HTTP {status}"),
            Self::NotHttp(_) => "the server speaks no HTTP".to_owned(),
            Self::ClosedWithoutAnswer(detail) => detail.clone(),
            Self::UnexpectedExtension(name) => format!("unexpected extension {name}"),
            Self::StillQueued { position, length, .. } => format_queue_position(*position, *length),
            Self::UnrequestedSession => "the server opened a session without a request".to_owned(),
            Self::UnknownMessage(detail) | Self::RecoverableError(detail) => detail.clone(),
            Self::SessionEnded { detail, .. }
            | Self::SessionNotOpened(detail)
            | Self::CloseNotAcknowledged(detail) => detail.clone(),
            Self::Disconnected(why) => why.to_string(),
            Self::SlowerThanRealTime { took, unit } => {
                format!("{:.1} times real time", took.as_secs_f64() / unit.as_secs_f64())
            }
            Self::ModesUnavailable(refused) => {
                let each = refused.iter().map(|(mode, detail)| format!("{mode}: {detail}"));
                each.collect::<Vec<_>>().join("; ")
            }
        }
    }
}

impl CertificateProblem {
    const fn summary(&self) -> &'static str {
        match self {
            Self::UnknownIssuer => "certificate of an unknown issuer",
            Self::WrongName(_) => "certificate for another name",
            Self::Expired => "certificate expired",
            Self::NotYetValid => "certificate not valid yet",
            Self::Other(_) => "bad certificate",
        }
    }
}

/// Formats a queue position.
pub(super) fn format_queue_position(position: Option<u32>, length: Option<u32>) -> String {
    match (position, length) {
        (Some(position), Some(length)) => format!("position {position} of {length}"),
        (Some(position), None) => format!("position {position}"),
        _ => "queued".to_owned(),
    }
}

/// Formats a duration in seconds or milliseconds.
pub(super) fn format_duration(duration: Duration) -> String {
    match duration.as_secs_f64() {
        long if long >= 9.95 => format!("{long:.0} s"),
        some if some >= 0.9995 => format!("{some:.1} s"),
        short => format!("{:.0} ms", (short * 1000.0).ceil()),
    }
}
