//! Causes after the upgrade: queue, initialisation, answer, goodbye.

use super::{Problem, Subject};
use crate::{
    doctor::{
        experiments::Clue,
        step::Step,
        symptom::{Symptom, place, seconds},
    },
    event::{EndMeaning, Why},
    mapping::upstream::VoiceEncoding,
};

/// Try again later (RFC 6455 registry); the gateway's word for a queue that takes nobody.
const TRY_AGAIN: u16 = 1013;
/// Message too big (RFC 6455 §7.4.1).
const TOO_BIG: u16 = 1009;

pub(super) fn explain(subject: &Subject, step: Step, symptom: &Symptom, clue: Option<&Clue>) -> Problem {
    match (step, symptom) {
        (_, Symptom::VoiceTooLarge { bytes, limit }) => Problem::new(
            format!(
                "The opening with the voice `default` has {bytes} bytes; dialect {:?} takes {limit}.",
                subject.dialect
            ),
            "The reference voice is too large.",
            "Use a shorter sample: some seconds are enough, and ten seconds take about 0.9 MB.",
        ),
        (_, Symptom::Misconfigured(words)) => Problem::new(
            format!("What the configuration names cannot be used: {words}."),
            "A file that it names is gone or holds something else since the configuration was checked.",
            "Put the file back, or name another one; `voxbridge check` says when all is there.",
        ),
        (_, Symptom::NoModes(refused)) => no_modes(refused),
        (Step::Queue, symptom) => queue(subject, symptom),
        (Step::Init, symptom) => {
            clue.map_or_else(|| init(subject, symptom), |clue| with_clue(subject, symptom, clue))
        }
        (Step::Close, symptom) => Problem::new(
            format!("{} did not answer the goodbye: {}.", subject.authority, symptom.brief()),
            "The server is overloaded, or it is not the kind of server the dialect describes.",
            "Look at the worker's log: a session that is not ended properly makes it refuse the next one for a while.",
        ),
        (_, Symptom::NoSession(words)) => Problem::new(
            format!("{} opened no session: {words}.", subject.authority),
            "The configuration has no route for such a client, an upstream fails, or there is no voxbridge at this address.",
            "Look at voxbridge's log; `voxbridge mappings explain` says which clients are served by what.",
        ),
        (_, symptom) => answer(subject, symptom),
    }
}

fn queue(subject: &Subject, symptom: &Symptom) -> Problem {
    let who = &subject.authority;
    match symptom {
        Symptom::Held { position, length, waited } => Problem::new(
            format!("{who}: {} after {}.", place(*position, *length), seconds(*waited)),
            "Another client holds the worker, or a session that was not ended properly still does.",
            "See who is connected to the gateway; add a worker or another upstream; restart the worker if nobody is.",
        ),
        Symptom::Silent { waited } => Problem::new(
            format!("{who} took the WebSocket, and said nothing for {}.", seconds(*waited)),
            "A gateway says at once whether there is a worker: this is a worker's or back-end's own port, or no MiniCPM-o server.",
            "Give the address of the gateway; its usual port is 8006.",
        ),
        Symptom::Ended { meaning: EndMeaning::QueueFull, words, .. } => Problem::new(
            format!("{who} takes nobody: {words}."),
            "As many clients wait already as the gateway lets wait.",
            "Add workers or another upstream, or raise the gateway's queue (--max-queue-size).",
        ),
        Symptom::Ended { words, code: Some(TRY_AGAIN), .. } => Problem::new(
            format!("{who} has no worker: {words}."),
            "No worker has registered with the gateway, or all of them are starting or busy.",
            "Look whether the workers run, and at the gateway's /status.",
        ),
        Symptom::Unasked | Symptom::Strange(_) => Problem::new(
            format!(
                "{who} takes WebSockets and says something else than {}: {}.",
                subject.title,
                symptom.brief()
            ),
            "This is another kind of server.",
            "Check the address; `voxbridge mappings list` names the dialects there are.",
        ),
        other => Problem::new(
            format!("{who} ended the session before it began: {}.", other.brief()),
            "The gateway is stopping or broken, or this is another kind of server.",
            "Look at the gateway's log.",
        ),
    }
}

fn with_clue(subject: &Subject, symptom: &Symptom, clue: &Clue) -> Problem {
    let seen = format!("{} did not open the session: {}.", subject.authority, symptom.brief());
    match clue {
        Clue::Again => Problem::new(
            format!("{seen} A second attempt worked."),
            "The worker was still cleaning up: the client before had left without a goodbye.",
            "Nothing, if this was an exception; otherwise find the client that just drops its connection.",
        ),
        Clue::NoVoice => Problem::new(
            format!("{seen} Without the voice it worked."),
            "The reference voice is wrong or too large for the server, or for a proxy in front of it.",
            "Replace voices.default by some seconds of clean speech; proxies and workers often take no more than 1 MiB a message.",
        ),
        Clue::VoiceAs(encoding) => Problem::new(
            format!("{seen} With the voice written as {} it worked.", spelled(*encoding)),
            "This server wants voices written otherwise than the dialect tries first; voxbridge finds out by itself, at the cost of an attempt.",
            "Put that encoding first in `voice_encodings` of a dialect of your own.",
        ),
        Clue::Dialect(name, title) => Problem::new(
            format!("{seen} In another dialect it worked."),
            format!("The server speaks {title}, and the configuration says {:?}.", subject.dialect),
            format!("Set dialect = {name:?} for this upstream (or --upstream-dialect {name})."),
        ),
        Clue::Held => Problem::new(
            seen,
            "Further attempts waited in the queue: the worker is held by another client, or still by this session.",
            "Wait until nobody is connected, and try again; restart the worker if nobody is and it stays so.",
        ),
        Clue::Place(..) | Clue::ClientProtocol(_) => init(subject, symptom),
    }
}

const fn spelled(encoding: VoiceEncoding) -> &'static str {
    match encoding {
        VoiceEncoding::F32le => "raw float32",
        VoiceEncoding::Wav => "a WAV file",
    }
}

fn init(subject: &Subject, symptom: &Symptom) -> Problem {
    let who = &subject.authority;
    match symptom {
        Symptom::Silent { waited } => Problem::new(
            format!("{who} assigned a worker, which was not ready after {}.", seconds(*waited)),
            "The worker hangs or still loads its model; real ones take 9 to 16 s.",
            "Look at the worker's log and its GPU; give it more time with --timeout.",
        ),
        Symptom::Dropped(Why::Closed(TOO_BIG, _)) | Symptom::Ended { code: Some(TOO_BIG), .. } => {
            Problem::new(
                format!("{who} found the opening too large."),
                "The reference voice is larger than the server, or a proxy in front of it, takes.",
                "Use a shorter sample as voices.default, or raise the limit of the proxy.",
            )
        }
        other => Problem::new(
            format!("{who} assigned a worker, which did not open the session: {}.", other.brief()),
            "The worker never becomes ready: its back-end is down, out of memory, or refuses the settings. Further attempts failed as well.",
            "Look at the worker's and the back-end's log, and restart them.",
        ),
    }
}

fn answer(subject: &Subject, symptom: &Symptom) -> Problem {
    let who = &subject.authority;
    match symptom {
        Symptom::SlowerThanLife { took, unit } => Problem::new(
            format!(
                "One second of audio took {}, {:.2} times real time, and was no quicker the next times.",
                seconds(*took),
                took.as_secs_f64() / unit.as_secs_f64()
            ),
            "The GPU is slower than real time, or somebody else uses it too: a conversation falls behind by as much every second.",
            "Use a faster GPU, a smaller or quantised model, or one session for each GPU; speech to text by turns works nevertheless.",
        ),
        Symptom::Silent { waited } => Problem::new(
            format!("{who} opened the session, and did not answer for {}.", seconds(*waited)),
            "The back-end hangs.",
            "Look at the back-end's log and its GPU, and restart the worker.",
        ),
        Symptom::Trouble(words) => Problem::new(
            format!("{who} could not answer: {words}."),
            "The model failed at its work.",
            "Look at the back-end's log.",
        ),
        other => Problem::new(
            format!("{who} ended the session instead of answering: {}.", other.brief()),
            "The back-end died at its work: out of memory, or a fault of its own.",
            "Look at the back-end's log, and restart the worker.",
        ),
    }
}

fn no_modes(refused: &[(String, String)]) -> Problem {
    let names: Vec<&str> = refused.iter().map(|(mode, _)| mode.as_str()).collect();
    let each: Vec<String> = refused.iter().map(|(mode, words)| format!("mode {mode}: {words}")).collect();
    Problem::new(
        format!("The server works, but not in each mode that is needed: {}.", each.join("; ")),
        format!(
            "Mode {} is switched off at the server, or its dialect does not have it.",
            names.join(" and ")
        ),
        "Switch it on (for chat, the gateway's app `turnbased`), or use a profile that does not need it.",
    )
}
