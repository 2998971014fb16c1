//! Diagnoses of failures after the upgrade: queue, initialisation, answer and close.

use super::{CheckedServer, Diagnosis};
use crate::{
    doctor::{
        experiments::Clue,
        step::DoctorStep,
        symptom::{Symptom, format_duration, format_queue_position},
    },
    vocabulary::{DisconnectReason, EndKind, VoiceEncoding},
};

/// Try again later (RFC 6455 registry); the gateway closes with it when the queue is full.
const CLOSE_TRY_AGAIN_LATER: u16 = 1013;
/// Message too big (RFC 6455 §7.4.1).
const CLOSE_MESSAGE_TOO_BIG: u16 = 1009;

pub(super) fn diagnose(
    server: &CheckedServer,
    step: DoctorStep,
    symptom: &Symptom,
    clue: Option<&Clue>,
) -> Diagnosis {
    match (step, symptom) {
        (_, Symptom::VoiceTooLarge { bytes, limit }) => Diagnosis::new(
            format!(
                "The session.init message with the voice `default` has {bytes} bytes; dialect {:?} allows {limit}.",
                server.dialect
            ),
            "The reference voice is too large.",
            "Use a shorter sample: a few seconds are enough; ten seconds take about 0.9 MB.",
        ),
        (_, Symptom::Misconfigured(detail)) => Diagnosis::new(
            format!("The configuration cannot be used: {detail}."),
            "A file that it names is gone or has changed since the configuration was checked.",
            "Restore the file or name another one, then run `voxbridge check`.",
        ),
        (_, Symptom::ModesUnavailable(refused)) => diagnose_unavailable_modes(refused),
        (DoctorStep::Queue, symptom) => match clue {
            Some(clue @ Clue::OtherDialect(..)) => diagnose_with_clue(server, symptom, clue),
            _ => diagnose_queue(server, symptom),
        },
        (DoctorStep::Init, symptom) => clue
            .map_or_else(|| diagnose_init(server, symptom), |clue| diagnose_with_clue(server, symptom, clue)),
        (DoctorStep::Close, symptom) => Diagnosis::new(
            format!("{} did not acknowledge the close: {}.", server.authority, symptom.summary()),
            "The server is overloaded, or does not match the dialect.",
            "Check the worker's log: after a session without a clean close, the worker rejects new ones for a while.",
        ),
        (_, Symptom::SessionNotOpened(detail)) => Diagnosis::new(
            format!("{} opened no session: {detail}.", server.authority),
            "The configuration has no route for this client, an upstream fails, or there is no voxbridge at this address.",
            "Check voxbridge's log; `voxbridge mappings explain` shows which clients, profiles and dialects are compatible.",
        ),
        (_, symptom) => diagnose_answer(server, symptom),
    }
}

fn diagnose_queue(server: &CheckedServer, symptom: &Symptom) -> Diagnosis {
    let address = &server.authority;
    match symptom {
        Symptom::StillQueued { position, length, waited } => Diagnosis::new(
            format!(
                "{address}: {} after {}.",
                format_queue_position(*position, *length),
                format_duration(*waited)
            ),
            "Another client occupies the worker, or a session without a clean close still does.",
            "Check which clients are connected to the gateway. Add a worker or another upstream, or restart the worker if no client is connected.",
        ),
        Symptom::NoAnswer { waited } => Diagnosis::new(
            format!("{address} accepted the WebSocket, but sent nothing for {}.", format_duration(*waited)),
            "A gateway reports at once whether a worker is free. This is the port of a worker or back-end, or not a MiniCPM-o server.",
            "Use the address of the gateway; its default port is 8006.",
        ),
        Symptom::SessionEnded { kind: EndKind::QueueFull, detail, .. } => Diagnosis::new(
            format!("{address} rejects new clients: {detail}."),
            "The queue of the gateway is full.",
            "Add workers or another upstream, or raise the gateway's queue (--max-queue-size).",
        ),
        Symptom::SessionEnded { detail, code: Some(CLOSE_TRY_AGAIN_LATER), .. } => Diagnosis::new(
            format!("{address} has no worker: {detail}."),
            "No worker has registered with the gateway, or all of them are starting or busy.",
            "Check that the workers run, and check the gateway's /status.",
        ),
        Symptom::UnrequestedSession | Symptom::UnknownMessage(_) => Diagnosis::new(
            format!(
                "{address} accepts WebSockets but does not speak {}: {}.",
                server.dialect_title,
                symptom.summary()
            ),
            "This is another kind of server.",
            "Check the address; `voxbridge mappings list` lists the available dialects.",
        ),
        other => Diagnosis::new(
            format!("{address} ended the session before it began: {}.", other.summary()),
            "The gateway is stopping or has failed, or this is another kind of server.",
            "Check the gateway's log.",
        ),
    }
}

fn diagnose_with_clue(server: &CheckedServer, symptom: &Symptom, clue: &Clue) -> Diagnosis {
    let seen = format!("{} did not open the session: {}.", server.authority, symptom.summary());
    match clue {
        Clue::SecondAttempt => Diagnosis::new(
            format!("{seen} A second attempt worked."),
            "The worker was still cleaning up, because the previous client had disconnected without closing its session.",
            "If this happens often, find the client that drops its connections; otherwise ignore it.",
        ),
        Clue::WithoutVoice => Diagnosis::new(
            format!("{seen} An attempt without the voice worked."),
            "The reference voice is invalid or too large for the server or a proxy in front of it.",
            "Replace voices.default by a few seconds of clean speech; proxies and workers often accept at most 1 MiB a message.",
        ),
        Clue::OtherVoiceEncoding(encoding) => Diagnosis::new(
            format!("{seen} An attempt with the voice encoded as {} worked.", encoding_name(*encoding)),
            "This server expects another voice encoding than the first one of the dialect. voxbridge detects this by itself, at the cost of an attempt.",
            "Put this encoding first in `voice_encodings` of your own dialect.",
        ),
        Clue::OtherDialect(name, title) => Diagnosis::new(
            format!("{seen} An attempt with another dialect worked."),
            format!("The server speaks {title}, but the configuration names {:?}.", server.dialect),
            format!("Set dialect = {name:?} for this upstream (or --upstream-dialect {name})."),
        ),
        Clue::StillQueued => Diagnosis::new(
            seen,
            "Further attempts waited in the queue: another client or this session still occupies the worker.",
            "Try again when no client is connected; if that does not help, restart the worker.",
        ),
        Clue::OtherUrl(..) | Clue::SpeaksClientProtocol(_) => diagnose_init(server, symptom),
    }
}

const fn encoding_name(encoding: VoiceEncoding) -> &'static str {
    match encoding {
        VoiceEncoding::F32le => "raw float32",
        VoiceEncoding::Wav | VoiceEncoding::WavUrl => "a WAV file",
    }
}

fn diagnose_init(server: &CheckedServer, symptom: &Symptom) -> Diagnosis {
    let address = &server.authority;
    match symptom {
        Symptom::NoAnswer { waited } => Diagnosis::new(
            format!("{address} assigned a worker, which was not ready after {}.", format_duration(*waited)),
            "The worker hangs or is still loading its model; a real one initialises in 9 to 16 s.",
            "Check the worker's log and its GPU, or allow more time with --timeout.",
        ),
        Symptom::Disconnected(DisconnectReason::Closed(CLOSE_MESSAGE_TOO_BIG, _))
        | Symptom::SessionEnded { code: Some(CLOSE_MESSAGE_TOO_BIG), .. } => Diagnosis::new(
            format!("{address} rejected session.init as too large."),
            "The reference voice is too large for the server or a proxy in front of it.",
            "Use a shorter sample as voices.default, or raise the limit of the proxy.",
        ),
        Symptom::SessionEnded { kind: EndKind::QueueFull, detail, .. } => Diagnosis::new(
            format!("{address} opened no session: {detail}."),
            "Another client than this check holds the server's session, or the server rejects the settings.",
            "End the other client, or run `doctor` when no client is connected. Otherwise check the server's log.",
        ),
        other => Diagnosis::new(
            format!("{address} assigned a worker, which did not open the session: {}.", other.summary()),
            "The worker never becomes ready: its back-end is down, out of memory, or rejects the settings. Further attempts failed as well.",
            "Check the logs of the worker and its back-end, and restart them.",
        ),
    }
}

fn diagnose_answer(server: &CheckedServer, symptom: &Symptom) -> Diagnosis {
    let address = &server.authority;
    match symptom {
        Symptom::SlowerThanRealTime { took, unit } => Diagnosis::new(
            format!(
                "One second of audio took {}, {:.2} times real time, and further attempts were no faster.",
                format_duration(*took),
                took.as_secs_f64() / unit.as_secs_f64()
            ),
            "The GPU is slower than real time, or other jobs use it too. A conversation falls behind further with every second.",
            "Use a faster GPU, a smaller or quantised model, or one session per GPU. Turn-based speech to text still works.",
        ),
        Symptom::NoAnswer { waited } => Diagnosis::new(
            format!("{address} opened the session, but did not answer for {}.", format_duration(*waited)),
            "The back-end hangs.",
            "Check the back-end's log and its GPU, and restart the worker.",
        ),
        Symptom::RecoverableError(detail) => Diagnosis::new(
            format!("{address} could not answer: {detail}."),
            "The model failed during inference.",
            "Check the back-end's log.",
        ),
        // A server over HTTP that reads the request and refuses it.
        Symptom::SessionEnded { detail, .. } if detail.starts_with("HTTP 4") => Diagnosis::new(
            format!("{address} refuses the request: {detail}."),
            "The server needs a model's name, or knows no such request.",
            "Set `model` of the [[upstream]] to one of the server's models (/v1/models), or `dialect` to that of the server.",
        ),
        other => Diagnosis::new(
            format!("{address} ended the session instead of answering: {}.", other.summary()),
            "The back-end died during inference, because it ran out of memory or crashed.",
            "Check the back-end's log, and restart the worker.",
        ),
    }
}

fn diagnose_unavailable_modes(refused: &[(String, String)]) -> Diagnosis {
    let names: Vec<&str> = refused.iter().map(|(mode, _)| mode.as_str()).collect();
    let each: Vec<String> = refused.iter().map(|(mode, detail)| format!("mode {mode}: {detail}")).collect();
    Diagnosis::new(
        format!("The server works, but not in every mode that the routes need: {}.", each.join("; ")),
        format!(
            "The server has disabled mode {}, does not answer in it, or its dialect does not support it.",
            names.join(" and ")
        ),
        "Enable the mode on the server (for chat, the gateway's app `turnbased`), or use a profile that does not need it.",
    )
}
