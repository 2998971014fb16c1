//! Sections of an upstream's file that are used as written: how its server is recognised, its limits, and the meanings of its
//! failures.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::vocabulary::Mode;

/// `[detect]`: how a server shows that it speaks the dialect.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialectSign {
    /// Path of a page of its HTTP server.
    pub path: String,
    /// Texts that are all in the head or body of that page, in any case.
    pub contains: Vec<String>,
    /// Texts of which none is there.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Sign that only a WebSocket shows, where the page is not enough.
    #[serde(default)]
    pub socket: Option<SocketSign>,
}

/// Behaviour of a server on a WebSocket that voxbridge opens as a trial.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum SocketSign {
    /// The server refuses a handshake in this mode. A server of another dialect accepts the handshake and begins a session,
    /// which is closed politely.
    Refusal {
        /// Value of the query parameter `mode_key`.
        mode: String,
        /// HTTP status of the refusal.
        status: u16,
        /// The other dialect.
        accepted_by: String,
        /// The reason with which a server of the other dialect ends the session. A server that ends it otherwise has the own
        /// dialect, and only checks no mode.
        closed_as: String,
    },
    /// The server answers a message.
    Answer {
        /// The message.
        send: String,
        /// Text in its answer.
        contains: String,
        /// Ends the session that the message opens, if it opens one.
        #[serde(default)]
        close: Option<String>,
    },
}

/// One sign, or several alternatives.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum DialectSigns {
    One(DialectSign),
    Any(Vec<DialectSign>),
}

impl From<DialectSigns> for Vec<DialectSign> {
    fn from(signs: DialectSigns) -> Self {
        match signs {
            DialectSigns::One(sign) => vec![sign],
            DialectSigns::Any(signs) => signs,
        }
    }
}

/// `[duplex]`: limits of a full-duplex conversation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DuplexLimits {
    /// Longest upstream session by mode, in ms; a missing mode has no limit.
    pub session_max_ms: BTreeMap<Mode, u32>,
    /// Size of the model's context in tokens.
    pub context_max_tokens: u32,
    /// Tokens per unit of silence, where the upstream does not report them.
    pub idle_unit_tokens: u32,
    /// Tokens per unit of speech, of the user or the model; 0 for a server that does not work in units.
    pub busy_unit_tokens: u32,
    /// Tokens per picture.
    pub frame_tokens: u32,
}

/// `[meanings]`: texts that identify kinds of failure in a dialect.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureMeanings {
    /// Details of a closed session whose answer was empty, which is no failure.
    pub empty_answer: Vec<String>,
    /// Error codes of a full queue.
    pub queue_full: Vec<String>,
    /// Reasons of a session closed because its time or the model's context was used up, which is no failure.
    pub limit_reached: Vec<String>,
    /// Texts in the reason or the detail of a session closed by a failure of the server. Any other detail means that the server
    /// refused the request.
    #[serde(default)]
    pub server_failed: Vec<String>,
    /// For relayed clients: reasons of a session that, closed without a detail, may have lost its back-end.
    #[serde(default)]
    pub backend_lost: Vec<String>,
    /// For relayed clients: reasons of a session closed at the client's request.
    #[serde(default)]
    pub client_close: Vec<String>,
    /// For relayed clients: reasons of a session closed at its time limit.
    #[serde(default)]
    pub timeout: Vec<String>,
    /// For relayed clients: reasons of a session closed because the model's context was full.
    #[serde(default)]
    pub context_full: Vec<String>,
    /// For relayed clients: reasons of a session closed because the server stops.
    #[serde(default)]
    pub shutdown: Vec<String>,
    /// Those of the reasons after which the connection and its worker stay occupied until the bridge closes
    /// them.
    #[serde(default)]
    pub stays_open: Vec<String>,
    /// Reasons of an answer's end that mean that it ended at the bound on its length.
    #[serde(default)]
    pub answer_limit: Vec<String>,
    /// Error codes of a refused session that another attempt does not change, where the server has no flag for it.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Error codes of a server that refuses every request, because its token, model or account is wrong in the configuration.
    #[serde(default)]
    pub misconfigured: Vec<String>,
    /// Error codes that do not end the session.
    #[serde(default)]
    pub non_fatal: Vec<String>,
}
