//! What a symptom likely means, and what to do about it. A pure function: the same was seen, the same is said.
//!
//! What is said rests on what the real servers do (field notes minicpm-o.md §1, §4, §7).

mod connection;
mod listener;
mod session;

use super::{
    experiments::Clue,
    step::Step,
    symptom::{Symptom, seconds},
};

/// Who was examined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Host and port.
    pub authority: String,
    /// The URL that was asked for.
    pub url: String,
    /// The dialect's name; empty for a client's side.
    pub dialect: String,
    /// The dialect's title.
    pub title: String,
    /// A `ca` file is named.
    pub has_ca: bool,
    /// It is a voxbridge, and was asked as a client asks it.
    pub is_listener: bool,
    /// A key was shown to it.
    pub has_key: bool,
}

/// One problem, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What was seen.
    pub seen: String,
    /// What it likely means.
    pub cause: String,
    /// What to do.
    pub advice: String,
}

impl Problem {
    fn new(seen: impl Into<String>, cause: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { seen: seen.into(), cause: cause.into(), advice: advice.into() }
    }
}

/// What a symptom likely means at a step.
#[must_use]
pub fn explain(subject: &Subject, step: Step, symptom: &Symptom, clue: Option<&Clue>) -> Problem {
    if let Some(Clue::ClientProtocol(title)) = clue {
        return Problem::new(
            format!("{} said: {}.", subject.authority, symptom.brief()),
            format!(
                "This is no model's server: it speaks as a server for clients of {title} does, which is what voxbridge is itself."
            ),
            "Give the address of the MiniCPM-o gateway instead; its usual port is 8006.",
        );
    }
    if subject.is_listener
        && let Some(problem) = listener::explain(subject, symptom)
    {
        return problem;
    }
    match symptom {
        Symptom::Slow { took, usual } => slow(step, &seconds(*took), &seconds(*usual)),
        Symptom::Silent { .. } if step < Step::Upgrade => connection::silent(subject, step, symptom),
        Symptom::NoName(_)
        | Symptom::Refused
        | Symptom::Unreachable(_)
        | Symptom::SpeaksPlain
        | Symptom::SpeaksTls
        | Symptom::Certificate(_)
        | Symptom::WantsCertificate(_)
        | Symptom::TlsBroken(_)
        | Symptom::NotHttp(_)
        | Symptom::HungUp(_)
        | Symptom::Extension(_) => connection::explain(subject, symptom),
        Symptom::Status { status, server, page } => {
            connection::status(subject, *status, server.as_deref(), *page, clue)
        }
        _ => session::explain(subject, step, symptom, clue),
    }
}

fn slow(step: Step, took: &str, usual: &str) -> Problem {
    let (cause, advice) = match step {
        Step::Dns => {
            ("The name server is slow or far away.", "Use a name server near by, or the address itself.")
        }
        Step::Tcp | Step::Tls | Step::Upgrade => (
            "The server is far away or its line is full; every answer comes later by as much.",
            "Run voxbridge in the same network as the model.",
        ),
        Step::Init => (
            "The worker is slow to make itself ready: its GPU is busy, or it has just started.",
            "Look at the worker's load; until then every new session waits as long.",
        ),
        Step::Queue => (
            "No worker was free at once.",
            "Add a worker or another upstream if clients are to be served without waiting.",
        ),
        _ => ("The model or its GPU is busy.", "Look at the worker's load."),
    };
    Problem::new(format!("It took {took}, where {usual} are usual."), cause, advice)
}
