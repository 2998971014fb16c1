//! The steps of an examination, what comes of one, and how long each may take.

use std::time::Duration;

use super::symptom::Symptom;

/// One step, in the order they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
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

impl Step {
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
pub enum Verdict {
    /// It is well.
    Ok,
    /// It works, and takes longer than it should.
    Slow(Symptom),
    /// It does not work.
    Failed(Symptom),
    /// It was not taken.
    Skipped,
}

impl Verdict {
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
pub struct Outcome {
    /// Which.
    pub step: Step,
    /// How long it took; none where that says nothing.
    pub took: Option<Duration>,
    /// What came of it.
    pub verdict: Verdict,
    /// What else is worth a word; of a step that was skipped, why.
    pub note: String,
}

impl Outcome {
    /// A step that is well if it was quick enough.
    #[must_use]
    pub fn good(step: Step, took: Duration, usual: Duration, note: impl Into<String>) -> Self {
        let verdict = if took > usual { Verdict::Slow(Symptom::Slow { took, usual }) } else { Verdict::Ok };
        Self { step, took: Some(took), verdict, note: note.into() }
    }

    /// A step that failed.
    #[must_use]
    pub fn failed(step: Step, took: Duration, symptom: Symptom) -> Self {
        let note = symptom.brief();
        Self { step, took: Some(took), verdict: Verdict::Failed(symptom), note }
    }

    /// A step that was not taken.
    #[must_use]
    pub fn skipped(step: Step, why: impl Into<String>) -> Self {
        Self { step, took: None, verdict: Verdict::Skipped, note: why.into() }
    }

    /// What was seen where it failed.
    #[must_use]
    pub const fn failure(&self) -> Option<&Symptom> {
        match &self.verdict {
            Verdict::Failed(symptom) => Some(symptom),
            _ => None,
        }
    }
}

/// How long a step may take, and above what it is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Any step that takes longer has failed.
    pub step: Duration,
    /// The same of the goodbye.
    pub close: Duration,
    /// A name is usually found faster.
    pub dns: Duration,
    /// The round trip: audio comes every second, and who speaks notices 200 ms.
    pub tcp: Duration,
    /// Two round trips and a signature.
    pub tls: Duration,
    /// One round trip.
    pub upgrade: Duration,
    /// A worker that is free is assigned in a millisecond (field notes minicpm-o.md §7.2).
    pub queue: Duration,
    /// Initialising takes real servers 9 to 16 s (field notes minicpm-o.md §7.2).
    pub init: Duration,
    /// One question in a chat.
    pub question: Duration,
}

impl Bounds {
    /// The usual ones, with this much for each step.
    #[must_use]
    pub fn within(step: Duration) -> Self {
        let ms = Duration::from_millis;
        Self {
            step,
            close: step.min(ms(5000)),
            dns: ms(500),
            tcp: ms(200),
            tls: ms(1000),
            upgrade: ms(1000),
            queue: ms(2000),
            init: ms(16_000),
            question: ms(10_000),
        }
    }
}
