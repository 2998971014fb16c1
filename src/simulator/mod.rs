//! Simulated MiniCPM-o gateway for tests and the demo, where no model is available.
//!
//! To change here: quirks of the real servers, each with the capture or source that proves it. Not here: anything
//! that voxbridge itself needs to serve a client.
//!
//! It answers like the real gateway, worker and back-end on the wire (mappings/notes/minicpm-o.md#events,
//! mappings/notes/llama-cpp-omni.md#events). It reproduces their pitfalls: the worker that refuses the next session
//! after an impolite close, the generation that outlives its session, the fail-fast validation. It is not a model.
//! Without engines, its transcripts state the duration of the audio and its voice hums. With engines (another process),
//! text and speech are real.
//!
//! The core ([`Gateway`]) is sans-IO: inputs and instants in, outputs out, ids from a seed. The sockets are in
//! `socket`, behind the `io` feature. `session_mode` and `generate` answer `mode=chat`; `duplex` answers the
//! full-duplex modes. `session` implements the current dialect, with or without a gateway, `legacy` the legacy one,
//! `sglang` and `vllm_omni` these servers' full duplex, and `openai` OpenAI's Realtime protocol.

#![warn(clippy::unwrap_used)]

mod backend;
mod backlog;
mod chat;
mod dialect_session;
mod duplex;
mod fault;
mod form_field;
mod gateway;
mod generate;
mod http_page;
mod hum_voice;
mod legacy;
mod messages;
mod model;
mod openai;
mod picture;
mod python;
mod script;
mod session;
mod session_context;
mod session_mode;
mod sglang;
mod tool_script;
mod vllm_omni;

#[cfg(feature = "io")]
pub mod engines;
#[cfg(feature = "io")]
mod http_api;
#[cfg(feature = "io")]
pub mod known_speech;
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

use voxbridge_audio as audio;

pub use backend::{Backend, ParseBackendError};
pub use duplex::{DuplexOpening, DuplexUnit, read_watermark, watermark_sample};
pub use fault::{Fault, FaultKind, ParseFaultError};
pub use gateway::Gateway;
pub use http_page::{HttpPage, SIMULATED_HEADER};
pub use script::{CORRUPTED_PREFIX, READ_ALOUD_PROMPT};

/// Number of one WebSocket connection. The driver chooses it and never reuses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Number of one request to the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The value of `mode` in the connection's query (mappings/notes/minicpm-o.md#connect).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimMode {
    /// Turn-based: each message is answered by a response.
    Chat,
    /// Full duplex with audio.
    Audio,
    /// Full duplex with audio and video frames; the default of a query without `mode`.
    Video,
    /// vLLM-Omni: the query names a model, so that a session opens before any message.
    Autostart,
    /// OpenAI: the session only transcribes.
    Transcription,
    /// A server of OpenAI's protocol refuses the query.
    Refused(RealtimeRefusal),
}

/// Reason for which a server of OpenAI's protocol refuses a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealtimeRefusal {
    /// The query names no model.
    NoModel,
    /// The server does not have the model.
    UnknownModel,
}

/// Rejects a handshake with an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("handshake rejected with HTTP {status}")]
pub struct HandshakeRejected {
    /// HTTP status; always 403, because the real gateway closes before it accepts
    /// (mappings/notes/minicpm-o.md#connect).
    pub status: u16,
}

/// Protocol that the simulated gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimDialect {
    /// `session.init`, `input.append`, `response.output.delta`.
    #[default]
    Current,
    /// `session.update`, `input_audio_buffer.append`, `response.output_audio.delta`
    /// (mappings/notes/minicpm-o-legacy.md#messages).
    Legacy {
        /// Behaves like the protocol's document; otherwise like the real server.
        follows_document: bool,
    },
    /// llama.cpp-omni without a gateway: the messages of the current dialect at `/backend`, one session, no queue.
    LlamaCppOmni,
    /// vLLM-Omni in duplex mode: OpenAI's Realtime events, as many sessions as there are workers, no queue.
    VllmOmni,
    /// SGLang-Omni's full-duplex deployment.
    SglangOmni,
    /// OpenAI's Realtime protocol.
    OpenaiRealtime(RealtimeServer),
}

/// Server that speaks OpenAI's Realtime protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RealtimeServer {
    /// OpenAI.
    #[default]
    Openai,
    /// A turn deployment of vLLM-Omni 0.32.
    VllmOmni,
}

impl SimDialect {
    /// True for the legacy dialect.
    pub const fn is_legacy(self) -> bool {
        matches!(self, Self::Legacy { .. })
    }

    /// Sessions at a time of a server that is started without options.
    pub const fn default_workers(self) -> usize {
        match self {
            Self::VllmOmni => VllmVersion::V0_30.default_sessions(),
            Self::SglangOmni => 2,
            Self::OpenaiRealtime(_) => 16,
            _ => 1,
        }
    }

    /// Path of the WebSocket.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Current
            | Self::Legacy { .. }
            | Self::VllmOmni
            | Self::SglangOmni
            | Self::OpenaiRealtime(_) => "/v1/realtime",
            Self::LlamaCppOmni => "/backend",
        }
    }

    /// True if the server decides at the handshake whether it has a session for the client, and says the first word.
    pub(crate) const fn admits_at_handshake(self) -> bool {
        matches!(self, Self::SglangOmni | Self::OpenaiRealtime(_))
    }

    /// Reads the mode from the query string. The real legacy server treats every mode but `video` as audio; its
    /// document allows only these two.
    ///
    /// # Errors
    /// [`HandshakeRejected`] for an unknown mode.
    pub fn parse_mode(self, query: Option<&str>) -> Result<SimMode, HandshakeRejected> {
        let given = mode_parameter(query);
        match (self, given.as_deref()) {
            (Self::Current, _) => parse_mode(query),
            // The payload of `session.init` names the mode; pictures are always taken.
            (Self::LlamaCppOmni, _) => Ok(SimMode::Video),
            (Self::VllmOmni, _) => {
                let value = |name: &str| {
                    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
                    pairs.filter(|(key, _)| key == name).map(|(_, value)| value.into_owned()).last()
                };
                let waits = value("autostart")
                    .is_some_and(|flag| ["0", "false", "no", "off"].contains(&&*flag))
                    || value("resume").is_some_and(|flag| ["1", "true", "yes", "on"].contains(&&*flag));
                if value("duplex").as_deref() == Some("0") {
                    return Ok(SimMode::Chat);
                }
                let names_model = value("model").is_some_and(|model| !model.is_empty());
                Ok(if names_model && !waits { SimMode::Autostart } else { SimMode::Video })
            }
            (Self::SglangOmni, _) if !sglang::pages::is_own_model(query) => {
                Err(HandshakeRejected { status: 403 })
            }
            (Self::SglangOmni, _) => Ok(SimMode::Video),
            (Self::OpenaiRealtime(server), _) => Ok(server.parse_mode(query)),
            (Self::Legacy { .. }, Some("video")) => Ok(SimMode::Video),
            (Self::Legacy { .. }, Some("audio") | None) | (Self::Legacy { follows_document: false }, _) => {
                Ok(SimMode::Audio)
            }
            (Self::Legacy { follows_document: true }, _) => Err(HandshakeRejected { status: 403 }),
        }
    }
}

/// Version of the simulated vLLM-Omni.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum VllmVersion {
    /// 0.30: opens a conversation only with a voice sample.
    #[default]
    V0_30,
    /// 0.31 and 0.32: has a voice of its own, and says whether a refused session may be tried again.
    V0_32,
}

impl VllmVersion {
    /// Sessions at a time of a server that is started without options.
    pub const fn default_sessions(self) -> usize {
        match self {
            Self::V0_30 => 4,
            Self::V0_32 => 16,
        }
    }
}

/// Server whose HTTP API is simulated, in place of the WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpApi {
    /// vLLM-Omni: chat completions.
    VllmOmni,
    /// SGLang-Omni: chat completions, transcripts and speech.
    SglangOmni,
    /// OpenAI's API for transcripts and speech, as speaches has it.
    OpenaiAudio,
}

impl HttpApi {
    /// Name of the dialect.
    pub const fn dialect(self) -> &'static str {
        match self {
            Self::VllmOmni => "vllm-omni-http",
            Self::SglangOmni => "sglang-omni-http",
            Self::OpenaiAudio => "openai-audio",
        }
    }
}

/// Reads the mode from the query string of the current dialect.
///
/// Matching is exact and case-sensitive. The default is `video`; the last of repeated values wins.
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

/// Returns the last `mode` of a query string.
fn mode_parameter(query: Option<&str>) -> Option<Cow<'_, str>> {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .filter_map(|(key, value)| (key == "mode").then_some(value))
        .last()
}

/// Simulated processing times. The defaults have the proportions of the captures
/// (mappings/notes/minicpm-o.md#exchanges), but shorten the times in which the real server waits for its GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimTiming {
    /// From `session.init` to `session.created`.
    pub init: Duration,
    /// From `input.append` to the first delta.
    pub first_delta: Duration,
    /// Between two deltas of a text answer.
    pub text_delta: Duration,
    /// For each second of speech; below 1 s, the answer is generated faster than real time.
    pub speech_second: Duration,
    /// For a full-duplex unit in which the model listens.
    pub listen_step: Duration,
    /// For a full-duplex unit in which the model speaks; beyond 1 s, its speech has gaps.
    pub speak_step: Duration,
    /// From `session.close` to `session.closed`.
    pub close: Duration,
    /// Time for which a worker rejects the next session after an impolite end (mappings/notes/minicpm-o.md#queue).
    pub cleanup: Duration,
    /// Between two `session.queue_update` messages.
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
    /// Sets all session times to zero; keeps the queue update interval and the cleanup after an impolite end.
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

/// Configuration of a simulated gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatorConfig {
    /// Protocol it speaks.
    pub dialect: SimDialect,
    /// Version of vLLM-Omni, if it is one.
    pub vllm_version: VllmVersion,
    /// Answers HTTP requests instead. Its answers come from the current dialect's chat mode.
    pub http_api: Option<HttpApi>,
    /// Back-end of the workers; the legacy dialect always has PyTorch, llama.cpp-omni always C++.
    pub backend: Backend,
    /// Maximum number of concurrent sessions; llama.cpp-omni has one, SGLang-Omni by default two.
    pub workers: usize,
    /// Maximum number of queued connections; the real default is 1000 (mappings/notes/minicpm-o.md#queue).
    pub queue_limit: usize,
    /// Processing times.
    pub timing: SimTiming,
    /// Faults to inject.
    pub faults: Vec<Fault>,
    /// Requests transcripts and speech from engines instead of simulating them.
    pub use_engines: bool,
    /// Maximum duration of a `mode=audio` session after it got a worker (mappings/notes/minicpm-o-duplex.md#limits).
    pub audio_time_limit: Duration,
    /// Maximum duration of a `mode=video` session after it got a worker.
    pub video_time_limit: Duration,
    /// Number of units at the start of a full-duplex session in which the model only listens
    /// (mappings/notes/minicpm-o-duplex.md#turns).
    pub force_listen_count: u32,
    /// Number of units of a full-duplex turn without an engine; a longer text takes more.
    pub turn_units: usize,
    /// The first answers of the chat model, in this order. Texts to read aloud and transcripts do not count.
    pub answers: Vec<String>,
    /// Counts tokens in full duplex, as newer servers of the current dialect do.
    pub counts_tokens: bool,
    /// Seed of the ids: equal seeds and inputs give equal outputs.
    pub seed: u64,
    /// Reports the samples of every ASR request ([`SimOutput::AsrAudio`]), every full-duplex session
    /// ([`SimOutput::DuplexOpened`]) and its input ([`SimOutput::DuplexUnit`]). The socket driver records messages as
    /// well.
    pub record: bool,
}

impl Default for SimulatorConfig {
    fn default() -> Self {
        Self {
            dialect: SimDialect::Current,
            vllm_version: VllmVersion::default(),
            http_api: None,
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
            answers: Vec::new(),
            counts_tokens: false,
            seed: 0,
            record: false,
        }
    }
}

/// Input of the [`Gateway`].
#[derive(Debug)]
pub enum SimInput<'a> {
    /// A handshake that [`parse_mode`] accepted.
    Connected(ConnId, SimMode),
    /// A text frame.
    Text(ConnId, &'a str),
    /// A binary frame; its content is ignored.
    Binary(ConnId),
    /// The client's transport ended, with or without a close frame.
    Closed(ConnId),
    /// The engines answered.
    EngineDone(JobId, EngineAnswer),
    /// Injects a fault in addition to the active ones.
    AddFault(Fault),
    /// Removes all faults; effects of faults that already triggered continue.
    ClearFaults,
    /// The instant of the last [`SimOutput::Wait`] has been reached.
    Timeout,
}

/// Output of the [`Gateway`].
#[derive(Debug, Clone, PartialEq)]
pub enum SimOutput {
    /// Send a text frame.
    Text(ConnId, String),
    /// Close with this code and reason, then forget the connection.
    Close(ConnId, u16, String),
    /// Abort the TCP connection without a close frame, then forget the connection.
    Abort(ConnId),
    /// Answer the handshake with this page, then forget the connection. The first output of the connection.
    Refuse(ConnId, HttpPage),
    /// Send a request to the engines.
    AskEngines(JobId, EngineRequest),
    /// The samples of an ASR request, as the back-end decoded them. Only with [`SimulatorConfig::record`].
    AsrAudio(ConnId, Vec<f32>),
    /// A full-duplex session was initialised. Only with [`SimulatorConfig::record`].
    DuplexOpened(ConnId, DuplexOpening),
    /// One append of a full-duplex session, reported in order when it is processed. Only with
    /// [`SimulatorConfig::record`].
    DuplexUnit(ConnId, DuplexUnit),
    /// No more output until the next input; if an instant is given, pass [`SimInput::Timeout`] then.
    Wait(Option<Instant>),
}

/// Request to the speech engines.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineRequest {
    /// Transcribe float32 samples, 16 kHz mono.
    Recognise(Vec<f32>),
    /// Synthesize a text.
    Speak(String),
}

/// Answer to an [`EngineRequest`]; an error text becomes the diagnostic of the session.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineAnswer {
    /// The transcript; an empty one fails in the same way as in the back-end (mappings/notes/minicpm-o.md#chat).
    Transcript(Result<String, String>),
    /// Float32 samples, 24 kHz mono.
    Speech(Result<Vec<f32>, String>),
}
