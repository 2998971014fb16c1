//! Command line of the load generator.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use voxbridge::{
    audio::{encoding::Encoding, input_converter::InputConverter},
    cli::args::ServerArg,
};

use crate::openai;

/// Kind of program under test
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BridgeKind {
    /// A bridge
    Bridge,
    /// A relay that copies frames; it also carries the messages that a bridge would send
    Relay,
}

/// Protocol of the clients
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    /// Macaw: binary frames
    Macaw,
    /// OpenAI Realtime: base64 in JSON, at 24 kHz
    OpenaiRealtime,
}

#[derive(Debug, Clone, Parser)]
#[command(
    about = "Measure the cost of sessions",
    after_help = "Exit codes: 0 success, 1 samples lost, repeated or reordered (or sessions lost), \
                  2 it could not be run, 3 the generator was late and the figures are not valid."
)]
pub(crate) struct Options {
    /// Concurrent sessions
    #[arg(long, default_value_t = 500)]
    pub(crate) sessions: usize,
    /// Duration of the measurement, s
    #[arg(long, default_value_t = 20.0)]
    pub(crate) seconds: f64,
    /// Warm-up before the measurement, s
    #[arg(long, default_value_t = 3.0)]
    pub(crate) warmup: f64,
    /// Sample rate of the clients' audio, Hz
    #[arg(long, default_value_t = 48_000)]
    pub(crate) rate: u32,
    /// Length of a frame, ms
    #[arg(long, default_value_t = 20)]
    pub(crate) frame_ms: u32,
    /// Protocol of the clients
    #[arg(long, value_enum, default_value = "macaw")]
    pub(crate) client: ClientKind,
    /// Bridge profile: conversation, speech, or with openai-realtime assistant
    #[arg(long, default_value = "conversation")]
    pub(crate) profile: String,
    /// Share of time in which the user speaks; the rest is room noise
    #[arg(long, default_value_t = 0.5)]
    pub(crate) speech: f64,
    /// URL of a running bridge or relay: ws://HOST:PORT/PATH
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Process id of that program, children included; may be repeated
    #[arg(long)]
    pub(crate) pid: Vec<u32>,
    /// Server whose dialect the upstream stub speaks: demo, legacy, sglang, vllm or backend
    #[arg(long, value_enum, default_value = "demo", hide_possible_values = true)]
    pub(crate) server: ServerArg,
    /// Listen address of the upstream stub
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) upstream_listen: String,
    /// Kind of bridge to measure
    #[arg(long, value_enum, default_value = "bridge")]
    pub(crate) path: BridgeKind,
    /// With a relay: send only the clients' frames
    #[arg(long)]
    pub(crate) frames_only: bool,
    /// Program under test; by default the one beside this example
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
    /// Arguments for the program under test
    #[arg(long)]
    pub(crate) workers: Option<usize>,
    /// CPUs of the program under test, as for taskset
    #[arg(long)]
    pub(crate) pin_bridge: Option<String>,
    /// CPUs of this generator
    #[arg(long)]
    pub(crate) pin_self: Option<String>,
    /// Delay with which the bridge's resampler begins, in samples at 16 kHz; by default voxbridge's, and 0 with --url
    #[arg(long)]
    pub(crate) lag: Option<usize>,
    /// Additional sessions opened and closed per second
    #[arg(long)]
    pub(crate) churn: Option<f64>,
    /// Standing sessions send only their first message
    #[arg(long)]
    pub(crate) mostly_idle: bool,
    /// Number of faults injected into the first session, which must be detected
    #[arg(long, default_value_t = 0)]
    pub(crate) spoil: u32,
    /// Several session counts, measured one after the other
    #[arg(long, value_delimiter = ',')]
    pub(crate) curve: Vec<usize>,
    /// JSON file for the results
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// SVG file for the results
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
}

impl Options {
    /// Samples at 16 kHz that the bridge's resampler puts before the audio.
    pub(crate) fn lead_in_samples(&self) -> usize {
        let of_voxbridge = || {
            let mut converter =
                InputConverter::live(Encoding::S16le, self.rate, 1).ok().filter(|_| self.url.is_none())?;
            converter.push(&[0, 0], &mut Vec::new());
            Some(converter.take_lead_in() as usize)
        };
        self.lag.or_else(of_voxbridge).unwrap_or(0)
    }

    /// Returns why the options cannot be measured.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let require = |is_met: bool, error: &str| if is_met { Ok(()) } else { Err(error.to_owned()) };
        require(
            self.rate.is_multiple_of(2_000) && (8_000..=96_000).contains(&self.rate),
            "--rate must be a multiple of 2000 from 8000 to 96000 Hz, so that clients can begin anywhere",
        )?;
        require((5..=200).contains(&self.frame_ms), "--frame-ms must be from 5 to 200")?;
        require(1000 % self.frame_ms == 0, "--frame-ms must divide a second, so that units end with frames")?;
        require(
            matches!(
                (self.profile.as_str(), self.client),
                ("conversation", _) | ("speech", ClientKind::Macaw)
            ) || self.is_assistant(),
            "--profile must be conversation, speech with macaw, or assistant with openai-realtime",
        )?;
        require(
            self.client == ClientKind::Macaw
                || (self.rate == openai::RATE_HZ && self.path == BridgeKind::Bridge && !self.mostly_idle),
            "--client openai-realtime needs --rate 24000, and a bridge whose clients speak",
        )?;
        require((0.0..=1.0).contains(&self.speech), "--speech must be from 0 to 1")?;
        require(
            (0.5..=500.0).contains(&self.seconds),
            "--seconds must be from 0.5 to 500: after that conversations move to other upstream sessions",
        )?;
        require(
            self.path == BridgeKind::Bridge || self.url.is_some(),
            "--path relay needs --url: which relay is to be measured?",
        )?;
        require(
            self.path == BridgeKind::Bridge || self.server == ServerArg::Demo,
            "--path relay needs --server demo: a relay copies the messages of any server",
        )?;
        require(
            !self.server.url("").starts_with("http:"),
            "--server must be demo, legacy, sglang, vllm or backend: the stub holds conversations, which no server does over HTTP",
        )?;
        require(
            self.profile == "conversation" || matches!(self.server, ServerArg::Demo | ServerArg::Backend),
            "--profile speech and assistant need --server demo or backend: the others only converse",
        )?;
        require(
            self.path == BridgeKind::Bridge || self.churn.is_none(),
            "--churn is for bridges: a relay says nothing when a session is there",
        )?;
        require(
            self.url.is_none() || self.curve.is_empty() || !self.pid.is_empty(),
            "--curve with --url needs --pid",
        )
    }

    /// True if the model talks, so that every second of audio goes upstream.
    pub(crate) fn is_conversation(&self) -> bool {
        self.profile == "conversation" && !self.frames_only
    }

    /// True if every utterance is answered in a turn.
    pub(crate) fn is_assistant(&self) -> bool {
        self.profile == "assistant" && self.client == ClientKind::OpenaiRealtime
    }

    /// First message of a client, if any.
    pub(crate) fn first_message(&self, number: usize) -> Option<String> {
        match self.client {
            ClientKind::Macaw => (self.mostly_idle && self.path == BridgeKind::Bridge)
                .then(|| r#"{"type":"session.configure","enable_partial_transcripts":true}"#.to_owned()),
            ClientKind::OpenaiRealtime => openai::first_message(self, number),
        }
    }

    /// Time by which the bridge sends audio before it is played (`lead_ms` of the profile), µs.
    pub(crate) fn lead_us(&self) -> u64 {
        if self.is_assistant() { 500_000 } else { 300_000 }
    }

    /// Returns the additional messages for a relay.
    pub(crate) fn has_relay_messages(&self) -> bool {
        self.path == BridgeKind::Relay && self.is_conversation()
    }

    /// Samples per frame.
    pub(crate) fn frame_samples(&self) -> usize {
        (self.rate * self.frame_ms / 1000) as usize
    }
}
