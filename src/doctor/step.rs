//! The steps of an examination, what comes of one, and how long each may take.

use std::time::Duration;

use super::symptom::Symptom;

/// One step, in the order they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoctorStep {
    /// What is to be sent fits what the dialect allows.
    Configuration,
    /// The name has an address.
    Dns,
    /// Somebody listens there.
    Tcp,
    /// And shows a certificate that is trusted.
    Tls,
    /// And takes a WebSocket.
    Upgrade,
    /// A worker is assigned.
    Queue,
    /// The worker is made ready.
    Init,
    /// The model answers.
    Answer,
    /// The client's side: a session is opened.
    Session,
    /// The session ends as it should.
    Close,
    /// The other modes that the configuration needs are there, too.
    Modes,
}

impl DoctorStep {
    /// The steps towards an upstream.
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
    /// The steps of a client.
    pub const CLIENT: [Self; 6] =
        [Self::Dns, Self::Tcp, Self::Tls, Self::Upgrade, Self::Session, Self::Close];

    /// As reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Upgrade => "upgrade",
            Self::Queue => "queue",
            Self::Init => "init",
            Self::Answer => "answer",
            Self::Session => "session",
            Self::Close => "close",
            Self::Modes => "modes",
        }
    }
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepVerdict {
    /// It is well.
    Ok,
    /// It works, and takes longer than it should.
    Slow(Symptom),
    /// It does not work.
    Failed(Symptom),
    /// It was not taken.
    Skipped,
}

impl StepVerdict {
    /// As reports call it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slow(_) => "slow",
            Self::Failed(_) => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One step that was taken, or not.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckOutcome {
    /// Which.
    pub step: DoctorStep,
    /// How long it took; none where that says nothing.
    pub took: Option<Duration>,
    /// What came of it.
    pub verdict: StepVerdict,
    /// What else is worth a word; of a step that was skipped, why.
    pub note: String,
}

impl CheckOutcome {
    /// A step that is well if it was quick enough.
    #[must_use]
    pub fn completed(step: DoctorStep, took: Duration, usual: Duration, note: impl Into<String>) -> Self {
        let verdict =
            if took > usual { StepVerdict::Slow(Symptom::Slow { took, usual }) } else { StepVerdict::Ok };
        Self { step, took: Some(took), verdict, note: note.into() }
    }

    /// A step that failed.
    #[must_use]
    pub fn failed(step: DoctorStep, took: Duration, symptom: Symptom) -> Self {
        let note = symptom.summary();
        Self { step, took: Some(took), verdict: StepVerdict::Failed(symptom), note }
    }

    /// A step that was not taken.
    #[must_use]
    pub fn skipped(step: DoctorStep, reason: impl Into<String>) -> Self {
        Self { step, took: None, verdict: StepVerdict::Skipped, note: reason.into() }
    }

    /// What was seen where it failed.
    #[must_use]
    pub const fn failure(&self) -> Option<&Symptom> {
        match &self.verdict {
            StepVerdict::Failed(symptom) => Some(symptom),
            _ => None,
        }
    }
}

/// How long a step may take, and above what it is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Any step that takes longer has failed.
    pub step_timeout: Duration,
    /// The same of the goodbye.
    pub close_timeout: Duration,
    /// A name is usually found faster.
    pub dns_usual: Duration,
    /// The round trip: audio comes every second, and who speaks notices 200 ms.
    pub tcp_usual: Duration,
    /// Two round trips and a signature.
    pub tls_usual: Duration,
    /// One round trip.
    pub upgrade_usual: Duration,
    /// A worker that is free is assigned in a millisecond (field notes minicpm-o.md §7.2).
    pub queue_usual: Duration,
    /// Initialising takes real servers 9 to 16 s (field notes minicpm-o.md §7.2).
    pub init_usual: Duration,
    /// One question in a chat.
    pub question_usual: Duration,
}

impl StepLimits {
    /// The usual ones, with this much for each step.
    #[must_use]
    pub fn with_timeout(step_timeout: Duration) -> Self {
        let ms = Duration::from_millis;
        Self {
            step_timeout,
            close_timeout: step_timeout.min(ms(5000)),
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
