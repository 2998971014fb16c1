//! An embedded MiniCPM-o gateway: what the bridge's tests and demo talk to when no model is at hand.
//!
//! It answers as the real gateway, worker and back-end do on the wire (field notes §1–§3, §6), with their traps: the
//! refused worker after an impolite close, the generation that outlives its session, the fail-fast validation. It is
//! not a model. Without engines its transcripts say how much they heard and its voice hums; with engines (another
//! process) the text and the speech are real.
//!
//! The core ([`Gateway`]) is sans-IO: inputs and instants in, outputs out, ids from a seed. The sockets around it are in
//! `socket`, behind the `io` feature. `mode=chat` is answered in `session_mode` and `generate`, the full-duplex modes in
//! `duplex`. It speaks the current dialect in `session`, the legacy one in `legacy`.

mod backend;
mod backlog;
mod chat;
mod dialect_session;
mod duplex;
mod fault;
mod gateway;
mod generate;
mod hum_voice;
mod legacy;
mod messages;
mod model;
mod python;
mod script;
mod session;
mod session_context;
mod session_mode;

#[cfg(feature = "io")]
pub mod engines;
#[cfg(feature = "io")]
pub mod process;
#[cfg(feature = "io")]
mod record;
#[cfg(feature = "io")]
pub mod socket;
#[cfg(feature = "io")]
mod transport;

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

pub use backend::{Backend, ParseBackendError};
pub use duplex::{DuplexOpening, DuplexUnit, read_watermark, watermark_sample};
pub use fault::{Fault, FaultKind, ParseFaultError};
pub use gateway::Gateway;
pub use script::{CORRUPTED_PREFIX, READ_ALOUD_PROMPT};

/// One WebSocket connection; the driver chooses the numbers and never reuses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// One request to the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The value of `mode` in the connection's query (field notes §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimMode {
    /// Turns of messages.
    Chat,
    /// Full duplex, audio.
    Audio,
    /// Full duplex, audio and frames; what a query without `mode` means.
    Video,
}

/// Why a handshake is answered with an HTTP status instead of a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handshake is refused with HTTP {status}")]
pub struct HandshakeRejected {
    /// Always 403: the real gateway closes before it accepts (field notes §1.1).
    pub status: u16,
}

/// Which wire a gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimDialect {
    /// `session.init`, `input.append`, `response.output.delta`.
    #[default]
    Current,
    /// `session.update`, `input_audio_buffer.append`, `response.output_audio.delta` (field notes §4).
    Legacy {
        /// As its document says, and not as the real server does.
        follows_document: bool,
    },
}

impl SimDialect {
    /// Which mode the query string asks for. The real legacy server takes everything but `video` for audio; its document
    /// has no other modes than these two.
    ///
    /// # Errors
    /// [`HandshakeRejected`] for an unknown mode.
    pub fn parse_mode(self, query: Option<&str>) -> Result<SimMode, HandshakeRejected> {
        let given = mode_parameter(query);
        match (self, given.as_deref()) {
            (Self::Current, _) => parse_mode(query),
            (Self::Legacy { .. }, Some("video")) => Ok(SimMode::Video),
            (Self::Legacy { .. }, Some("audio") | None) | (Self::Legacy { follows_document: false }, _) => {
                Ok(SimMode::Audio)
            }
            (Self::Legacy { follows_document: true }, _) => Err(HandshakeRejected { status: 403 }),
        }
    }
}

/// Which mode the query string asks for in the current dialect.
///
/// Exact and case-sensitive, `video` when absent, the last one wins when repeated.
///
/// # Errors
/// [`HandshakeRejected`] for an unknown mode.
pub fn parse_mode(query: Option<&str>) -> Result<SimMode, HandshakeRejected> {
    match mode_parameter(query).as_deref() {
        Some("chat") => Ok(SimMode::Chat),
        Some("audio") => Ok(SimMode::Audio),
        Some("video") | None => Ok(SimMode::Video),
        Some(_) => Err(HandshakeRejected { status: 403 }),
    }
}

/// The last `mode` of a query string.
fn mode_parameter(query: Option<&str>) -> Option<Cow<'_, str>> {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .filter_map(|(key, value)| (key == "mode").then_some(value))
        .last()
}

/// How long things take. The defaults have the proportions of the captures (field notes §6), shortened where the real
/// server only waits for its GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimTiming {
    /// From `session.init` to `session.created`.
    pub init: Duration,
    /// From `input.append` to the first delta.
    pub first_delta: Duration,
    /// Between two deltas of a text answer.
    pub text_delta: Duration,
    /// For each second of speech; below one second the answer is faster than real time.
    pub speech_second: Duration,
    /// For a unit of full duplex that the model only hears.
    pub listen_step: Duration,
    /// For a unit of full duplex in which the model speaks; beyond one second its speech has gaps.
    pub speak_step: Duration,
    /// From `session.close` to `session.closed`.
    pub close: Duration,
    /// How long a worker refuses the next session after an impolite end (field notes §1.2).
    pub cleanup: Duration,
    /// Between two `session.queue_update`.
    pub queue_update_interval: Duration,
}

impl Default for SimTiming {
    fn default() -> Self {
        Self {
            init: Duration::from_millis(40),
            first_delta: Duration::from_millis(170),
            text_delta: Duration::from_millis(80),
            speech_second: Duration::from_millis(250),
            listen_step: Duration::from_millis(80),
            speak_step: Duration::from_millis(250),
            close: Duration::from_millis(20),
            cleanup: Duration::from_millis(300),
            queue_update_interval: Duration::from_secs(3),
        }
    }
}

impl SimTiming {
    /// Everything a session does costs no time; the queue's rhythm and the cleanup after an impolite end remain.
    #[must_use]
    pub fn instant() -> Self {
        let zero = Duration::ZERO;
        Self {
            init: zero,
            first_delta: zero,
            text_delta: zero,
            speech_second: zero,
            listen_step: zero,
            speak_step: zero,
            close: zero,
            ..Self::default()
        }
    }
}

/// What kind of gateway to be.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatorConfig {
    /// Which wire it speaks.
    pub dialect: SimDialect,
    /// Which back-end the workers run; the legacy dialect has but one.
    pub backend: Backend,
    /// Sessions served at once.
    pub workers: usize,
    /// Connections that may wait; the real default is 1000 (field notes §1.2).
    pub queue_limit: usize,
    /// How long things take.
    pub timing: SimTiming,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Ask engines for transcripts and speech instead of making them up.
    pub use_engines: bool,
    /// How long a `mode=audio` session may last, from the moment it has a worker (field notes §1.6).
    pub audio_time_limit: Duration,
    /// The same for `mode=video`.
    pub video_time_limit: Duration,
    /// Units of a full-duplex session in which the model only listens, to begin with (field notes §1.6).
    pub force_listen_count: u32,
    /// Units of a full-duplex turn that no engine speaks; more if its text needs them.
    pub turn_units: usize,
    /// Where the ids come from: same seed and inputs, same outputs.
    pub seed: u64,
    /// Report every ASR request's samples with [`SimOutput::AsrAudio`], every full-duplex session with
    /// [`SimOutput::DuplexOpened`] and its input with [`SimOutput::DuplexUnit`]; the socket driver records messages as well.
    pub record: bool,
}

impl Default for SimulatorConfig {
    fn default() -> Self {
        Self {
            dialect: SimDialect::Current,
            backend: Backend::Pytorch,
            workers: 1,
            queue_limit: 1000,
            timing: SimTiming::default(),
            faults: Vec::new(),
            use_engines: false,
            audio_time_limit: Duration::from_secs(600),
            video_time_limit: Duration::from_secs(300),
            force_listen_count: 3,
            turn_units: 3,
            seed: 0,
            record: false,
        }
    }
}

/// What came in.
#[derive(Debug)]
pub enum SimInput<'a> {
    /// A handshake that [`parse_mode`] accepted.
    Connected(ConnId, SimMode),
    /// A text frame.
    Text(ConnId, &'a str),
    /// A binary frame; its content does not matter.
    Binary(ConnId),
    /// The client's transport is gone, by a close frame or without.
    Closed(ConnId),
    /// The engines answered.
    EngineDone(JobId, EngineAnswer),
    /// This goes wrong from now on, besides what already does.
    AddFault(Fault),
    /// Nothing goes wrong any more; what a fault has begun goes on.
    ClearFaults,
    /// The instant of the last [`SimOutput::Wait`] has come.
    Timeout,
}

/// What goes out.
#[derive(Debug, Clone, PartialEq)]
pub enum SimOutput {
    /// Send a text frame.
    Text(ConnId, String),
    /// Close with this code and reason; the connection's number is forgotten.
    Close(ConnId, u16, String),
    /// Abort the TCP connection without a close frame; the connection's number is forgotten.
    Abort(ConnId),
    /// Ask the engines.
    AskEngines(JobId, EngineRequest),
    /// The samples of an ASR request, as the back-end decoded them. Only with [`SimulatorConfig::record`].
    AsrAudio(ConnId, Vec<f32>),
    /// A full-duplex session was initialised. Only with [`SimulatorConfig::record`].
    DuplexOpened(ConnId, DuplexOpening),
    /// One append of a full-duplex session, in order, when its turn came. Only with [`SimulatorConfig::record`].
    DuplexUnit(ConnId, DuplexUnit),
    /// Nothing more until an input, or [`SimInput::Timeout`] at this instant.
    Wait(Option<Instant>),
}

/// Work for the engines.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineRequest {
    /// Float32 samples at 16 kHz, mono.
    Recognise(Vec<f32>),
    /// A text to be spoken.
    Speak(String),
}

/// What the engines made of an [`EngineRequest`]; the error's text becomes the session's diagnostic.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineAnswer {
    /// The transcript; an empty one has the back-end's own consequences (field notes §2).
    Transcript(Result<String, String>),
    /// Float32 samples at 24 kHz, mono.
    Speech(Result<Vec<f32>, String>),
}
