//! Command line of the simulated fleet.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::phases::Phase;

/// Kind of the clients
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    /// Full duplex: a client keeps its worker for minutes
    Conversations,
    /// Typed questions to an assistant: each takes a worker for seconds
    Questions,
}

/// Which gateways a replica knows, if not all
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SubsetKind {
    /// Drawn at random
    Random,
    /// Drawn in turns, so that each gateway is known to as many replicas, and with all zones
    Even,
}

#[derive(Debug, Clone, Parser)]
#[command(
    about = "Simulate a fleet of replicas and workers in virtual time",
    after_help = "Exit codes: 0 the simulation ran, 2 it could not be run."
)]
pub(crate) struct Options {
    /// A twentieth of the fleet, and phases of a minute
    #[arg(long)]
    pub(crate) small: bool,
    /// Replicas of voxbridge
    #[arg(long)]
    pub(crate) replicas: Option<usize>,
    /// Workers of MiniCPM-o
    #[arg(long)]
    pub(crate) workers: Option<usize>,
    /// Gateways, among which the workers are divided
    #[arg(long)]
    pub(crate) gateways: Option<usize>,
    /// Zones, among which the gateways are divided
    #[arg(long, default_value_t = 3)]
    pub(crate) zones: usize,
    /// Gateways that each replica knows; 0 for all
    #[arg(long, default_value_t = 0)]
    pub(crate) known: usize,
    /// Which gateways those are
    #[arg(long, value_enum, default_value = "even")]
    pub(crate) subset: SubsetKind,
    /// The gateways have no page that reports their workers
    #[arg(long)]
    pub(crate) without_status: bool,
    /// Workers in use on average, as a part of all
    #[arg(long, default_value_t = 0.6)]
    pub(crate) load: f64,
    /// Kind of the clients
    #[arg(long, value_enum, default_value = "conversations")]
    pub(crate) clients: ClientKind,
    /// Mean length of a conversation, s
    #[arg(long)]
    pub(crate) conversation_s: Option<f64>,
    /// Duration of a phase, s
    #[arg(long)]
    pub(crate) phase_s: Option<f64>,
    /// Phases after the warm-up, in this order; all by default
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) phases: Vec<Phase>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// JSON file for the results
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    /// Fills in the values that depend on `--small`.
    pub(crate) fn resolved(mut self) -> Self {
        let (replicas, workers, gateways, conversation_s, phase_s) =
            if self.small { (50, 480, 12, 45.0, 60.0) } else { (1000, 10_000, 100, 180.0, 300.0) };
        self.replicas.get_or_insert(replicas);
        self.workers.get_or_insert(workers);
        self.gateways.get_or_insert(gateways);
        self.conversation_s.get_or_insert(conversation_s);
        self.phase_s.get_or_insert(phase_s);
        if self.phases.is_empty() {
            self.phases = Phase::all();
        }
        self
    }

    pub(crate) fn replica_count(&self) -> usize {
        self.replicas.unwrap_or(1)
    }

    pub(crate) fn gateway_count(&self) -> usize {
        self.gateways.unwrap_or(1)
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.unwrap_or(1)
    }

    /// Workers of each gateway.
    pub(crate) fn workers_each(&self) -> usize {
        self.worker_count() / self.gateway_count()
    }

    pub(crate) fn conversation_s(&self) -> f64 {
        self.conversation_s.unwrap_or(1.0)
    }

    pub(crate) fn phase_s(&self) -> f64 {
        self.phase_s.unwrap_or(1.0)
    }

    /// Says why the options cannot be simulated.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let require = |is_met: bool, error: &str| if is_met { Ok(()) } else { Err(error.to_owned()) };
        require(self.replica_count() > 0, "--replicas must be at least 1")?;
        require(
            self.gateway_count() > 0 && self.worker_count().is_multiple_of(self.gateway_count()),
            "--gateways must divide --workers, so that each gateway has as many workers",
        )?;
        require(self.workers_each() > 0, "--workers must be at least --gateways")?;
        require(
            (1..=self.gateway_count()).contains(&self.zones),
            "--zones must be from 1 to the number of gateways",
        )?;
        require(self.known <= self.gateway_count(), "--known must be at most the number of gateways")?;
        require(self.load > 0.0 && self.load < 1.0, "--load must be above 0 and below 1")?;
        let is_length = |s: f64| s >= 1.0 && s.is_finite();
        require(is_length(self.phase_s()), "--phase-s must be at least 1 s")?;
        // A gateway ends a conversation after 600 s, and a client's lasts up to 5/3 of the mean.
        require(
            is_length(self.conversation_s()) && self.conversation_s() <= 300.0,
            "--conversation-s must be from 1 to 300 s",
        )
    }
}
