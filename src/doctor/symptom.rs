//! What was seen where a step failed, or was slow. No opinion: [`super::diagnosis`] has those.

use std::time::Duration;

use crate::event::{DisconnectReason, EndKind};

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub enum Symptom {
    /// It worked, but took longer than usual.
    Slow {
        /// How long.
        took: Duration,
        /// How long at most where all is well.
        usual: Duration,
    },
    /// Nothing came.
    NoAnswer {
        /// For so long.
        waited: Duration,
    },
    /// The opening with the voice in it is larger than a message may be.
    VoiceTooLarge {
        /// Its size.
        bytes: usize,
        /// The dialect's limit.
        limit: usize,
    },
    /// What the configuration names cannot be used any more, in words.
    Misconfigured(String),
    /// The name has no address, in the system's words.
    NameNotFound(String),
    /// Nobody listens at the port.
    ConnectionRefused,
    /// The system cannot get there, in its words.
    Unreachable(String),
    /// `wss://`, and the port speaks HTTP without TLS.
    ServerSpeaksPlaintext,
    /// `ws://`, and the port speaks TLS.
    ServerSpeaksTls,
    /// The certificate is not trusted.
    UntrustedCertificate(CertificateProblem),
    /// It wants a certificate of the client's, or another one.
    ClientCertificateRequired(String),
    /// TLS failed otherwise.
    TlsFailed(String),
    /// An HTTP answer that is no upgrade.
    HttpStatus {
        /// Its status.
        status: u16,
        /// What the server calls itself.
        server: Option<String>,
        /// It is a page for people.
        is_html: bool,
    },
    /// Something that is no HTTP.
    NotHttp(String),
    /// The connection ended without a word.
    ClosedWithoutAnswer(String),
    /// It agreed to something nobody offered.
    UnexpectedExtension(String),
    /// Still in the queue.
    StillQueued {
        /// Last place told.
        position: Option<u32>,
        /// Last length told.
        length: Option<u32>,
        /// How long.
        waited: Duration,
    },
    /// It opened a session nobody had asked for.
    UnrequestedSession,
    /// It says what the dialect does not know.
    UnknownMessage(String),
    /// It ended the session and said so.
    SessionEnded {
        /// In its own words.
        detail: String,
        /// What that means.
        kind: EndKind,
        /// The close frame's code, if one came.
        code: Option<u16>,
        /// A voice had been sent.
        had_voice: bool,
    },
    /// The connection ended and nothing was said.
    Disconnected(DisconnectReason),
    /// An error that does not end the session.
    RecoverableError(String),
    /// A unit took longer than it lasts, each time.
    SlowerThanRealTime {
        /// The quickest.
        took: Duration,
        /// What it lasts.
        unit: Duration,
    },
    /// A client's session did not begin, in the server's words.
    SessionNotOpened(String),
    /// The goodbye was not answered.
    CloseNotAcknowledged(String),
    /// Modes that the configuration needs are not there: how each was refused.
    ModesUnavailable(Vec<(String, String)>),
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateProblem {
    /// Nobody known vouches for it.
    UnknownIssuer,
    /// It is for other names: these.
    WrongName(Vec<String>),
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// Something else.
    Other(String),
}

impl Symptom {
    /// In some words, for the step's line.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::Slow { usual, .. } => format!("usually within {}", format_duration(*usual)),
            Self::NoAnswer { .. } => "no answer".to_owned(),
            Self::VoiceTooLarge { bytes, limit } => format!("voice: {bytes} of at most {limit} bytes"),
            Self::NameNotFound(_) => "no such name".to_owned(),
            Self::ConnectionRefused => "connection refused".to_owned(),
            Self::Misconfigured(detail)
            | Self::Unreachable(detail)
            | Self::TlsFailed(detail)
            | Self::ClientCertificateRequired(detail) => detail.clone(),
            Self::ServerSpeaksPlaintext => "it speaks no TLS".to_owned(),
            Self::ServerSpeaksTls => "it speaks TLS".to_owned(),
            Self::UntrustedCertificate(problem) => problem.summary().to_owned(),
            Self::HttpStatus { status, .. } => format!("HTTP {status}"),
            Self::NotHttp(_) => "it speaks no HTTP".to_owned(),
            Self::ClosedWithoutAnswer(detail) => detail.clone(),
            Self::UnexpectedExtension(name) => format!("unexpected {name}"),
            Self::StillQueued { position, length, .. } => format_queue_position(*position, *length),
            Self::UnrequestedSession => "a session nobody asked for".to_owned(),
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

/// A place in a queue.
pub(super) fn format_queue_position(position: Option<u32>, length: Option<u32>) -> String {
    match (position, length) {
        (Some(position), Some(length)) => format!("position {position} of {length}"),
        (Some(position), None) => format!("position {position}"),
        _ => "queued".to_owned(),
    }
}

/// A duration as people read it.
pub(super) fn format_duration(duration: Duration) -> String {
    match duration.as_secs_f64() {
        long if long >= 9.95 => format!("{long:.0} s"),
        some if some >= 0.9995 => format!("{some:.1} s"),
        short => format!("{:.0} ms", (short * 1000.0).ceil()),
    }
}
