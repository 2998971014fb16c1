//! Causes after the upgrade: queue, initialisation, answer, goodbye.

use super::{CheckedServer, Diagnosis};
use crate::{
    doctor::{
        experiments::Clue,
        step::DoctorStep,
        symptom::{Symptom, format_duration, format_queue_position},
    },
    event::{DisconnectReason, EndKind},
    mapping::upstream::VoiceEncoding,
};

/// Try again later (RFC 6455 registry); the gateway's word for a queue that takes nobody.
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
                "The opening with the voice `default` has {bytes} bytes; dialect {:?} takes {limit}.",
                server.dialect
            ),
            "The reference voice is too large.",
            "Use a shorter sample: some seconds are enough, and ten seconds take about 0.9 MB.",
        ),
        (_, Symptom::Misconfigured(detail)) => Diagnosis::new(
            format!("What the configuration names cannot be used: {detail}."),
            "A file that it names is gone or holds something else since the configuration was checked.",
            "Put the file back, or name another one; `voxbridge check` says when all is there.",
        ),
        (_, Symptom::ModesUnavailable(refused)) => diagnose_unavailable_modes(refused),
        (DoctorStep::Queue, symptom) => diagnose_queue(server, symptom),
        (DoctorStep::Init, symptom) => clue
            .map_or_else(|| diagnose_init(server, symptom), |clue| diagnose_with_clue(server, symptom, clue)),
        (DoctorStep::Close, symptom) => Diagnosis::new(
            format!("{} did not answer the goodbye: {}.", server.authority, symptom.summary()),
            "The server is overloaded, or it is not the kind of server the dialect describes.",
            "Look at the worker's log: a session that is not ended properly makes it refuse the next one for a while.",
        ),
        (_, Symptom::SessionNotOpened(detail)) => Diagnosis::new(
            format!("{} opened no session: {detail}.", server.authority),
            "The configuration has no route for such a client, an upstream fails, or there is no voxbridge at this address.",
            "Look at voxbridge's log; `voxbridge mappings explain` says which clients are served by what.",
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
            "Another client holds the worker, or a session that was not ended properly still does.",
            "See who is connected to the gateway; add a worker or another upstream; restart the worker if nobody is.",
        ),
        Symptom::NoAnswer { waited } => Diagnosis::new(
            format!("{address} took the WebSocket, and said nothing for {}.", format_duration(*waited)),
            "A gateway says at once whether there is a worker: this is a worker's or back-end's own port, or no MiniCPM-o server.",
            "Give the address of the gateway; its usual port is 8006.",
        ),
        Symptom::SessionEnded { kind: EndKind::QueueFull, detail, .. } => Diagnosis::new(
            format!("{address} takes nobody: {detail}."),
            "As many clients wait already as the gateway lets wait.",
            "Add workers or another upstream, or raise the gateway's queue (--max-queue-size).",
        ),
        Symptom::SessionEnded { detail, code: Some(CLOSE_TRY_AGAIN_LATER), .. } => Diagnosis::new(
            format!("{address} has no worker: {detail}."),
            "No worker has registered with the gateway, or all of them are starting or busy.",
            "Look whether the workers run, and at the gateway's /status.",
        ),
        Symptom::UnrequestedSession | Symptom::UnknownMessage(_) => Diagnosis::new(
            format!(
                "{address} takes WebSockets and says something else than {}: {}.",
                server.dialect_title,
                symptom.summary()
            ),
            "This is another kind of server.",
            "Check the address; `voxbridge mappings list` names the dialects there are.",
        ),
        other => Diagnosis::new(
            format!("{address} ended the session before it began: {}.", other.summary()),
            "The gateway is stopping or broken, or this is another kind of server.",
            "Look at the gateway's log.",
        ),
    }
}

fn diagnose_with_clue(server: &CheckedServer, symptom: &Symptom, clue: &Clue) -> Diagnosis {
    let seen = format!("{} did not open the session: {}.", server.authority, symptom.summary());
    match clue {
        Clue::SecondAttempt => Diagnosis::new(
            format!("{seen} A second attempt worked."),
            "The worker was still cleaning up: the client before had left without a goodbye.",
            "Nothing, if this was an exception; otherwise find the client that just drops its connection.",
        ),
        Clue::WithoutVoice => Diagnosis::new(
            format!("{seen} Without the voice it worked."),
            "The reference voice is wrong or too large for the server, or for a proxy in front of it.",
            "Replace voices.default by some seconds of clean speech; proxies and workers often take no more than 1 MiB a message.",
        ),
        Clue::OtherVoiceEncoding(encoding) => Diagnosis::new(
            format!("{seen} With the voice written as {} it worked.", encoding_name(*encoding)),
            "This server wants voices written otherwise than the dialect tries first; voxbridge finds out by itself, at the cost of an attempt.",
            "Put that encoding first in `voice_encodings` of a dialect of your own.",
        ),
        Clue::OtherDialect(name, title) => Diagnosis::new(
            format!("{seen} In another dialect it worked."),
            format!("The server speaks {title}, and the configuration says {:?}.", server.dialect),
            format!("Set dialect = {name:?} for this upstream (or --upstream-dialect {name})."),
        ),
        Clue::StillQueued => Diagnosis::new(
            seen,
            "Further attempts waited in the queue: the worker is held by another client, or still by this session.",
            "Wait until nobody is connected, and try again; restart the worker if nobody is and it stays so.",
        ),
        Clue::OtherUrl(..) | Clue::SpeaksClientProtocol(_) => diagnose_init(server, symptom),
    }
}

const fn encoding_name(encoding: VoiceEncoding) -> &'static str {
    match encoding {
        VoiceEncoding::F32le => "raw float32",
        VoiceEncoding::Wav => "a WAV file",
    }
}

fn diagnose_init(server: &CheckedServer, symptom: &Symptom) -> Diagnosis {
    let address = &server.authority;
    match symptom {
        Symptom::NoAnswer { waited } => Diagnosis::new(
            format!("{address} assigned a worker, which was not ready after {}.", format_duration(*waited)),
            "The worker hangs or still loads its model; real ones take 9 to 16 s.",
            "Look at the worker's log and its GPU; give it more time with --timeout.",
        ),
        Symptom::Disconnected(DisconnectReason::Closed(CLOSE_MESSAGE_TOO_BIG, _))
        | Symptom::SessionEnded { code: Some(CLOSE_MESSAGE_TOO_BIG), .. } => Diagnosis::new(
            format!("{address} found the opening too large."),
            "The reference voice is larger than the server, or a proxy in front of it, takes.",
            "Use a shorter sample as voices.default, or raise the limit of the proxy.",
        ),
        other => Diagnosis::new(
            format!("{address} assigned a worker, which did not open the session: {}.", other.summary()),
            "The worker never becomes ready: its back-end is down, out of memory, or refuses the settings. Further attempts failed as well.",
            "Look at the worker's and the back-end's log, and restart them.",
        ),
    }
}

fn diagnose_answer(server: &CheckedServer, symptom: &Symptom) -> Diagnosis {
    let address = &server.authority;
    match symptom {
        Symptom::SlowerThanRealTime { took, unit } => Diagnosis::new(
            format!(
                "One second of audio took {}, {:.2} times real time, and was no quicker the next times.",
                format_duration(*took),
                took.as_secs_f64() / unit.as_secs_f64()
            ),
            "The GPU is slower than real time, or somebody else uses it too: a conversation falls behind by as much every second.",
            "Use a faster GPU, a smaller or quantised model, or one session for each GPU; speech to text by turns works nevertheless.",
        ),
        Symptom::NoAnswer { waited } => Diagnosis::new(
            format!("{address} opened the session, and did not answer for {}.", format_duration(*waited)),
            "The back-end hangs.",
            "Look at the back-end's log and its GPU, and restart the worker.",
        ),
        Symptom::RecoverableError(detail) => Diagnosis::new(
            format!("{address} could not answer: {detail}."),
            "The model failed at its work.",
            "Look at the back-end's log.",
        ),
        other => Diagnosis::new(
            format!("{address} ended the session instead of answering: {}.", other.summary()),
            "The back-end died at its work: out of memory, or a fault of its own.",
            "Look at the back-end's log, and restart the worker.",
        ),
    }
}

fn diagnose_unavailable_modes(refused: &[(String, String)]) -> Diagnosis {
    let names: Vec<&str> = refused.iter().map(|(mode, _)| mode.as_str()).collect();
    let each: Vec<String> = refused.iter().map(|(mode, detail)| format!("mode {mode}: {detail}")).collect();
    Diagnosis::new(
        format!("The server works, but not in each mode that is needed: {}.", each.join("; ")),
        format!(
            "Mode {} is switched off at the server, or its dialect does not have it.",
            names.join(" and ")
        ),
        "Switch it on (for chat, the gateway's app `turnbased`), or use a profile that does not need it.",
    )
}
