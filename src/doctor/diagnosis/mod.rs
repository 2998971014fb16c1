//! Diagnoses: the likely cause of a symptom and the remedy. A pure function of its arguments.
//!
//! Source: behaviour of the real servers (mappings/notes/minicpm-o.md#rejections,
//! mappings/notes/minicpm-o-legacy.md#faults, mappings/notes/minicpm-o-duplex.md#rollover).

mod connection;
mod listener;
mod session;
mod start_options;

use super::{
    experiments::Clue,
    step::DoctorStep,
    symptom::{Symptom, format_duration},
};

/// The checked server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedServer {
    /// Host and port.
    pub authority: String,
    /// Requested URL.
    pub url: String,
    /// Name of the dialect; empty for the client path.
    pub dialect: String,
    /// Title of the dialect.
    pub dialect_title: String,
    /// Command that starts the server, if the dialect is known and names one.
    pub start: Option<String>,
    /// True if a `ca` file is configured.
    pub has_ca: bool,
    /// True for the client path: the server is a voxbridge.
    pub is_voxbridge: bool,
    /// True if an API key was sent.
    pub has_key: bool,
}

/// Description of one problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// Observation.
    pub seen: String,
    /// Likely cause.
    pub cause: String,
    /// Remedy.
    pub advice: String,
}

impl Diagnosis {
    fn new(seen: impl Into<String>, cause: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { seen: seen.into(), cause: cause.into(), advice: advice.into() }
    }
}

/// Diagnoses a symptom at a step.
pub fn diagnose(
    server: &CheckedServer,
    step: DoctorStep,
    symptom: &Symptom,
    clue: Option<&Clue>,
) -> Diagnosis {
    if let Some(Clue::SpeaksClientProtocol(title)) = clue {
        return Diagnosis::new(
            format!("{} sent an unexpected answer: {}.", server.authority, symptom.summary()),
            format!("This is not a model server: it serves clients of {title}, as voxbridge itself does."),
            "Use the address of the MiniCPM-o gateway instead; its default port is 8006.",
        );
    }
    if server.is_voxbridge
        && let Some(diagnosis) = listener::diagnose(server, symptom)
    {
        return diagnosis;
    }
    if matches!(clue, None | Some(Clue::StillQueued))
        && let Some(diagnosis) = start_options::diagnose(server, symptom)
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
            ("The name server is slow or far away.", "Use a nearby name server, or the IP address itself.")
        }
        DoctorStep::Tcp | DoctorStep::Tls | DoctorStep::Upgrade => (
            "The server is far away or its network is congested, which delays every answer.",
            "Run voxbridge in the same network as the model.",
        ),
        DoctorStep::Init => (
            "The worker initialises slowly: its GPU is busy, or it has just started.",
            "Check the worker's load; every new session waits this long.",
        ),
        DoctorStep::Queue => {
            ("No worker was free at once.", "Add a worker or another upstream if clients should not wait.")
        }
        _ => ("The model or its GPU is busy.", "Check the worker's load."),
    };
    Diagnosis::new(format!("This step took {took}; {usual} are usual."), cause, advice)
}
