//! What was seen where a step failed, or was slow. No opinion: [`super::diagnosis`] has those.

use std::time::Duration;

use crate::event::{EndMeaning, Why};

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
    Silent {
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
    NoName(String),
    /// Nobody listens at the port.
    Refused,
    /// The system cannot get there, in its words.
    Unreachable(String),
    /// `wss://`, and the port speaks HTTP without TLS.
    SpeaksPlain,
    /// `ws://`, and the port speaks TLS.
    SpeaksTls,
    /// The certificate is not trusted.
    Certificate(Certificate),
    /// It wants a certificate of the client's, or another one.
    WantsCertificate(String),
    /// TLS failed otherwise.
    TlsBroken(String),
    /// An HTTP answer that is no upgrade.
    Status {
        /// Its status.
        status: u16,
        /// What the server calls itself.
        server: Option<String>,
        /// It is a page for people.
        page: bool,
    },
    /// Something that is no HTTP.
    NotHttp(String),
    /// The connection ended without a word.
    HungUp(String),
    /// It agreed to something nobody offered.
    Extension(String),
    /// Still in the queue.
    Held {
        /// Last place told.
        position: Option<u32>,
        /// Last length told.
        length: Option<u32>,
        /// How long.
        waited: Duration,
    },
    /// It opened a session nobody had asked for.
    Unasked,
    /// It says what the dialect does not know.
    Strange(String),
    /// It ended the session and said so.
    Ended {
        /// In its own words.
        words: String,
        /// What that means.
        meaning: EndMeaning,
        /// The close frame's code, if one came.
        code: Option<u16>,
        /// A voice had been sent.
        voice: bool,
    },
    /// The connection ended and nothing was said.
    Dropped(Why),
    /// An error that does not end the session.
    Trouble(String),
    /// A unit took longer than it lasts, each time.
    SlowerThanLife {
        /// The quickest.
        took: Duration,
        /// What it lasts.
        unit: Duration,
    },
    /// A client's session did not begin, in the server's words.
    NoSession(String),
    /// The goodbye was not answered.
    NoGoodbye(String),
    /// Modes that the configuration needs are not there: how each was refused.
    NoModes(Vec<(String, String)>),
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificate {
    /// Nobody known vouches for it.
    UnknownIssuer,
    /// It is for other names: these.
    WrongName(Vec<String>),
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// Something else.
    Other(String),
}

impl Symptom {
    /// In some words, for the step's line.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Slow { usual, .. } => format!("usually within {}", seconds(*usual)),
            Self::Silent { .. } => "no answer".to_owned(),
            Self::VoiceTooLarge { bytes, limit } => format!("voice: {bytes} of at most {limit} bytes"),
            Self::NoName(_) => "no such name".to_owned(),
            Self::Refused => "connection refused".to_owned(),
            Self::Misconfigured(words)
            | Self::Unreachable(words)
            | Self::TlsBroken(words)
            | Self::WantsCertificate(words) => words.clone(),
            Self::SpeaksPlain => "it speaks no TLS".to_owned(),
            Self::SpeaksTls => "it speaks TLS".to_owned(),
            Self::Certificate(problem) => problem.brief().to_owned(),
            Self::Status { status, .. } => format!("HTTP {status}"),
            Self::NotHttp(_) => "it speaks no HTTP".to_owned(),
            Self::HungUp(words) => words.clone(),
            Self::Extension(name) => format!("unexpected {name}"),
            Self::Held { position, length, .. } => place(*position, *length),
            Self::Unasked => "a session nobody asked for".to_owned(),
            Self::Strange(words) | Self::Trouble(words) => words.clone(),
            Self::Ended { words, .. } | Self::NoSession(words) | Self::NoGoodbye(words) => words.clone(),
            Self::Dropped(why) => why.to_string(),
            Self::SlowerThanLife { took, unit } => {
                format!("{:.1} times real time", took.as_secs_f64() / unit.as_secs_f64())
            }
            Self::NoModes(refused) => {
                let each = refused.iter().map(|(mode, words)| format!("{mode}: {words}"));
                each.collect::<Vec<_>>().join("; ")
            }
        }
    }
}

impl Certificate {
    const fn brief(&self) -> &'static str {
        match self {
            Self::UnknownIssuer => "certificate of an unknown issuer",
            Self::WrongName(_) => "certificate for another name",
            Self::Expired => "certificate expired",
            Self::NotYet => "certificate not valid yet",
            Self::Other(_) => "bad certificate",
        }
    }
}

/// A place in a queue.
pub(super) fn place(position: Option<u32>, length: Option<u32>) -> String {
    match (position, length) {
        (Some(position), Some(length)) => format!("position {position} of {length}"),
        (Some(position), None) => format!("position {position}"),
        _ => "queued".to_owned(),
    }
}

/// A duration as people read it.
pub(super) fn seconds(duration: Duration) -> String {
    match duration.as_secs_f64() {
        long if long >= 9.95 => format!("{long:.0} s"),
        some if some >= 0.9995 => format!("{some:.1} s"),
        short => format!("{:.0} ms", (short * 1000.0).ceil()),
    }
}
