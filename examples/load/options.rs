//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// What lies between the clients and the stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BridgeKind {
    /// A bridge for Macaw clients
    Macaw,
    /// A relay that copies frames; what a bridge would send is sent through it as well
    Relay,
}

#[derive(Debug, Clone, Parser)]
#[command(
    about = "Measure what sessions cost",
    after_help = "Exit codes: 0 all is well, 1 samples were lost, repeated or out of order (or sessions were), \
                  2 it could not be run, 3 the generator was late and the figures are not valid."
)]
pub(crate) struct Options {
    /// Sessions at a time
    #[arg(long, default_value_t = 500)]
    pub(crate) sessions: usize,
    /// How long is measured
    #[arg(long, default_value_t = 20.0)]
    pub(crate) seconds: f64,
    /// How long everybody sends before that
    #[arg(long, default_value_t = 3.0)]
    pub(crate) warmup: f64,
    /// Sample rate of the clients' audio, Hz
    #[arg(long, default_value_t = 48_000)]
    pub(crate) rate: u32,
    /// Length of their frames, ms
    #[arg(long, default_value_t = 20)]
    pub(crate) frame_ms: u32,
    /// What the clients' verbs mean: conversation or speech
    #[arg(long, default_value = "conversation")]
    pub(crate) profile: String,
    /// Part of the time in which the user speaks; quiet room noise for the rest
    #[arg(long, default_value_t = 0.5)]
    pub(crate) speech: f64,
    /// A bridge (or relay) that runs already: ws://HOST:PORT/PATH
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Its process, children included; may be given several times
    #[arg(long)]
    pub(crate) pid: Vec<u32>,
    /// Where the stub of the upstream listens
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) upstream_listen: String,
    /// What is measured
    #[arg(long, value_enum, default_value = "macaw")]
    pub(crate) path: BridgeKind,
    /// Through a relay: nothing but the clients' frames
    #[arg(long)]
    pub(crate) frames_only: bool,
    /// The program under test; the one beside this example unless given
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
    /// Passed on to the program
    #[arg(long)]
    pub(crate) workers: Option<usize>,
    /// CPUs the program may use, as for taskset
    #[arg(long)]
    pub(crate) pin_bridge: Option<String>,
    /// CPUs this generator may use
    #[arg(long)]
    pub(crate) pin_self: Option<String>,
    /// Samples at 16 kHz before the first one that this bridge's resampler makes of the client's
    #[arg(long, default_value_t = 0)]
    pub(crate) lag: usize,
    /// Sessions opened and closed a second, beside the standing ones
    #[arg(long)]
    pub(crate) churn: Option<f64>,
    /// Standing sessions send nothing but their first message
    #[arg(long)]
    pub(crate) mostly_idle: bool,
    /// So many mishaps are made on purpose in the first session, which must be found
    #[arg(long, default_value_t = 0)]
    pub(crate) spoil: u32,
    /// Several numbers of sessions, one after the other
    #[arg(long, value_delimiter = ',')]
    pub(crate) curve: Vec<usize>,
    /// Where the results go as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Where they go as a picture
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
}

impl Options {
    /// What cannot be measured, and why.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let require = |is_met: bool, error: &str| if is_met { Ok(()) } else { Err(error.to_owned()) };
        require(
            self.rate.is_multiple_of(2_000) && (8_000..=96_000).contains(&self.rate),
            "--rate is to be a multiple of 2000 from 8000 to 96000 Hz, so that clients can begin anywhere",
        )?;
        require((5..=200).contains(&self.frame_ms), "--frame-ms is to be from 5 to 200")?;
        require(1000 % self.frame_ms == 0, "--frame-ms is to divide a second, so that units end with frames")?;
        require(
            matches!(self.profile.as_str(), "conversation" | "speech"),
            "--profile is to be conversation or speech: the stub knows no others",
        )?;
        require((0.0..=1.0).contains(&self.speech), "--speech is to be from 0 to 1")?;
        require(
            (0.5..=500.0).contains(&self.seconds),
            "--seconds is to be from 0.5 to 500: after that conversations move to other upstream sessions",
        )?;
        require(
            self.path == BridgeKind::Macaw || self.url.is_some(),
            "--path relay needs --url: which relay is to be measured?",
        )?;
        require(
            self.path == BridgeKind::Macaw || self.churn.is_none(),
            "--churn is for bridges: a relay says nothing when a session is there",
        )?;
        require(
            self.url.is_none() || self.curve.is_empty() || !self.pid.is_empty(),
            "--curve with --url needs --pid",
        )
    }

    /// The model talks: every second of audio goes up.
    pub(crate) fn is_conversation(&self) -> bool {
        self.profile == "conversation" && !self.frames_only
    }

    /// What a relay is to carry besides frames.
    pub(crate) fn has_relay_messages(&self) -> bool {
        self.path == BridgeKind::Relay && self.is_conversation()
    }

    /// Samples of a frame.
    pub(crate) fn frame_samples(&self) -> usize {
        (self.rate * self.frame_ms / 1000) as usize
    }
}
