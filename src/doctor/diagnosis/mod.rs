//! What a symptom likely means, and what to do about it. A pure function: the same was seen, the same is said.
//!
//! What is said rests on what the real servers do (field notes minicpm-o.md §1, §4, §7).

mod connection;
mod listener;
mod session;

use super::{
    experiments::Clue,
    step::DoctorStep,
    symptom::{Symptom, format_duration},
};

/// Who was examined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedServer {
    /// Host and port.
    pub authority: String,
    /// The URL that was asked for.
    pub url: String,
    /// The dialect's name; empty for a client's side.
    pub dialect: String,
    /// The dialect's title.
    pub dialect_title: String,
    /// A `ca` file is named.
    pub has_ca: bool,
    /// It is a voxbridge, and was asked as a client asks it.
    pub is_voxbridge: bool,
    /// A key was shown to it.
    pub has_key: bool,
}

/// One problem, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// What was seen.
    pub seen: String,
    /// What it likely means.
    pub cause: String,
    /// What to do.
    pub advice: String,
}

impl Diagnosis {
    fn new(seen: impl Into<String>, cause: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { seen: seen.into(), cause: cause.into(), advice: advice.into() }
    }
}

/// What a symptom likely means at a step.
#[must_use]
pub fn diagnose(
    server: &CheckedServer,
    step: DoctorStep,
    symptom: &Symptom,
    clue: Option<&Clue>,
) -> Diagnosis {
    if let Some(Clue::SpeaksClientProtocol(title)) = clue {
        return Diagnosis::new(
            format!("{} said: {}.", server.authority, symptom.summary()),
            format!(
                "This is no model's server: it speaks as a server for clients of {title} does, which is what voxbridge is itself."
            ),
            "Give the address of the MiniCPM-o gateway instead; its usual port is 8006.",
        );
    }
    if server.is_voxbridge
        && let Some(diagnosis) = listener::diagnose(server, symptom)
    {
        return diagnosis;
    }
    match symptom {
        Symptom::Slow { took, usual } => {
            diagnose_slow(step, &format_duration(*took), &format_duration(*usual))
        }
        Symptom::NoAnswer { .. } if step < DoctorStep::Upgrade => {
            connection::diagnose_no_answer(server, step, symptom)
        }
        Symptom::NameNotFound(_)
        | Symptom::ConnectionRefused
        | Symptom::Unreachable(_)
        | Symptom::ServerSpeaksPlaintext
        | Symptom::ServerSpeaksTls
        | Symptom::UntrustedCertificate(_)
        | Symptom::ClientCertificateRequired(_)
        | Symptom::TlsFailed(_)
        | Symptom::NotHttp(_)
        | Symptom::ClosedWithoutAnswer(_)
        | Symptom::UnexpectedExtension(_) => connection::diagnose(server, symptom),
        Symptom::HttpStatus { status, server: server_name, is_html } => {
            connection::diagnose_http_status(server, *status, server_name.as_deref(), *is_html, clue)
        }
        _ => session::diagnose(server, step, symptom, clue),
    }
}

fn diagnose_slow(step: DoctorStep, took: &str, usual: &str) -> Diagnosis {
    let (cause, advice) = match step {
        DoctorStep::Dns => {
            ("The name server is slow or far away.", "Use a name server near by, or the address itself.")
        }
        DoctorStep::Tcp | DoctorStep::Tls | DoctorStep::Upgrade => (
            "The server is far away or its line is full; every answer comes later by as much.",
            "Run voxbridge in the same network as the model.",
        ),
        DoctorStep::Init => (
            "The worker is slow to make itself ready: its GPU is busy, or it has just started.",
            "Look at the worker's load; until then every new session waits as long.",
        ),
        DoctorStep::Queue => (
            "No worker was free at once.",
            "Add a worker or another upstream if clients are to be served without waiting.",
        ),
        _ => ("The model or its GPU is busy.", "Look at the worker's load."),
    };
    Diagnosis::new(format!("It took {took}, where {usual} are usual."), cause, advice)
}
