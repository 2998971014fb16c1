//! Steps of a check, their outcomes and their time limits.

use std::time::Duration;

use super::symptom::Symptom;
use crate::named_enum::named_enum;

named_enum! {
    /// Step of a check, in order.
    pub enum DoctorStep {
        /// The init message fits the limit of the dialect.
        Configuration = "configuration",
        /// The name has an address.
        Dns = "dns",
        /// The port accepts a connection.
        Tcp = "tcp",
        /// The certificate is trusted.
        Tls = "tls",
        /// The server accepts the WebSocket.
        Upgrade = "upgrade",
        /// A worker is assigned.
        Queue = "queue",
        /// The worker is initialised.
        Init = "init",
        /// The model answers.
        Answer = "answer",
        /// A session opens (client path only).
        Session = "session",
        /// The session closes cleanly.
        Close = "close",
        /// The server accepts the other modes that the routes need.
        Modes = "modes",
    }
}

impl DoctorStep {
    /// Steps of an upstream check.
    pub const UPSTREAM: [Self; 9] = [
        Self::Configuration,
        Self::Dns,
        Self::Tcp,
        Self::Tls,
        Self::Upgrade,
        Self::Queue,
        Self::Init,
        Self::Answer,
        Self::Close,
    ];
    /// Steps of a client path check.
    pub const CLIENT: [Self; 6] =
        [Self::Dns, Self::Tcp, Self::Tls, Self::Upgrade, Self::Session, Self::Close];
}

/// Verdict of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepVerdict {
    /// The step succeeded.
    Ok,
    /// The step succeeded, but took longer than usual.
    Slow(Symptom),
    /// The step failed.
    Failed(Symptom),
    /// The step was not run.
    Skipped,
}

impl StepVerdict {
    /// Name in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slow(_) => "slow",
            Self::Failed(_) => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Outcome of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckOutcome {
    /// The step.
    pub step: DoctorStep,
    /// Duration; `None` if meaningless.
    pub took: Option<Duration>,
    /// Verdict.
    pub verdict: StepVerdict,
    /// Detail to show; the reason of a skipped step.
    pub note: String,
}

impl CheckOutcome {
    /// A successful step, slow if it took longer than `usual`.
    pub fn completed(step: DoctorStep, took: Duration, usual: Duration, note: impl Into<String>) -> Self {
        let verdict =
            if took > usual { StepVerdict::Slow(Symptom::Slow { took, usual }) } else { StepVerdict::Ok };
        Self { step, took: Some(took), verdict, note: note.into() }
    }

    /// A step that failed.
    pub fn failed(step: DoctorStep, took: Duration, symptom: Symptom) -> Self {
        let note = symptom.summary();
        Self { step, took: Some(took), verdict: StepVerdict::Failed(symptom), note }
    }

    /// A step that was not run.
    pub fn skipped(step: DoctorStep, reason: impl Into<String>) -> Self {
        Self { step, took: None, verdict: StepVerdict::Skipped, note: reason.into() }
    }

    /// Symptom of a failed step.
    pub const fn failure(&self) -> Option<&Symptom> {
        match &self.verdict {
            StepVerdict::Failed(symptom) => Some(symptom),
            _ => None,
        }
    }
}

/// Longest wait for a worker only to leave an upstream's queue: three times as long as a conversation may hold a worker
/// (mappings/notes/minicpm-o-duplex.md#limits).
pub const QUEUE_EXIT_MAX: Duration = Duration::from_secs(1800);

/// Time limits of steps, and durations above which a step counts as slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Time limit of every step except close.
    pub step_timeout: Duration,
    /// Time limit of the close.
    pub close_timeout: Duration,
    /// Time limit of leaving the queue.
    pub queue_exit_max: Duration,
    /// Usual time of a DNS lookup.
    pub dns_usual: Duration,
    /// Usual time of a TCP connect, one round trip; speakers notice a delay of 200 ms.
    pub tcp_usual: Duration,
    /// Usual time of TLS: two round trips and a signature.
    pub tls_usual: Duration,
    /// Usual time of the upgrade: one round trip.
    pub upgrade_usual: Duration,
    /// Usual time in the queue; a free worker is assigned in a millisecond
    /// (mappings/notes/minicpm-o-duplex.md#rollover).
    pub queue_usual: Duration,
    /// Usual time of the initialisation; real servers need 9 to 16 s (mappings/notes/minicpm-o-duplex.md#rollover).
    pub init_usual: Duration,
    /// Usual time of one question in a chat.
    pub question_usual: Duration,
}

impl StepLimits {
    /// Default limits with this timeout for each step.
    pub fn with_timeout(step_timeout: Duration) -> Self {
        let ms = Duration::from_millis;
        Self {
            step_timeout,
            close_timeout: step_timeout.min(ms(5000)),
            queue_exit_max: QUEUE_EXIT_MAX,
            dns_usual: ms(500),
            tcp_usual: ms(200),
            tls_usual: ms(1000),
            upgrade_usual: ms(1000),
            queue_usual: ms(2000),
            init_usual: ms(16_000),
            question_usual: ms(10_000),
        }
    }
}
