//! Experiments after a failed check: repeat it, or vary voice, dialect, mode or path. The variation that works is a clue to
//! the cause.

use std::sync::Arc;

use super::{session_check::Depth, step::DoctorStep, symptom::Symptom};
use crate::{
    spelling::{Library, UpstreamMapping},
    vocabulary::{Mode, VoiceEncoding},
};

/// Maximum number of experiments; each one occupies a worker.
const EXPERIMENTS_MAX: usize = 6;

/// Variation that worked, or other evidence of the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clue {
    /// A second attempt worked.
    SecondAttempt,
    /// An attempt without the voice worked.
    WithoutVoice,
    /// Another encoding of the voice worked.
    OtherVoiceEncoding(VoiceEncoding),
    /// Another dialect worked: its name and title.
    OtherDialect(String, String),
    /// Another URL worked; also names the dialect if it differs.
    OtherUrl(String, Option<String>),
    /// No evidence: a second attempt had to wait in the queue.
    StillQueued,
    /// The messages look like those of a server for clients of this protocol.
    SpeaksClientProtocol(String),
}

/// One experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Dialect to use.
    pub dialect: Arc<UpstreamMapping>,
    /// Mode to use.
    pub mode: Mode,
    /// True to use the path of the dialect instead of that of the URL.
    pub use_dialect_path: bool,
    /// Encoding of the voice; `None` to send no voice.
    pub voice_encoding: Option<VoiceEncoding>,
    /// Depth that counts as success.
    pub depth: Depth,
    /// Clue if it succeeds; the runner fills in the URL of [`Clue::OtherUrl`].
    pub clue: Clue,
}

/// Setup of the failed check.
#[derive(Debug, Clone)]
pub struct FailedAttempt<'t> {
    /// Dialect used.
    pub dialect: &'t Arc<UpstreamMapping>,
    /// Mode used.
    pub mode: Mode,
    /// True if the path of the URL differs from that of the dialect.
    pub has_custom_path: bool,
    /// True if a voice was sent.
    pub has_voice: bool,
}

/// Plans experiments after a failure, likeliest first; empty if they could not show anything.
pub fn plan_experiments(
    library: &Library,
    failed: &FailedAttempt<'_>,
    step: DoctorStep,
    symptom: &Symptom,
) -> Vec<Experiment> {
    let mut experiments = match (step, symptom) {
        (DoctorStep::Upgrade, Symptom::HttpStatus { status: 400 | 403 | 404 | 405 | 426, .. }) => {
            experiments_after_rejected_upgrade(library, failed)
        }
        (
            DoctorStep::Init,
            Symptom::SessionEnded { .. }
            | Symptom::Disconnected(_)
            | Symptom::RecoverableError(_)
            | Symptom::NoAnswer { .. },
        ) => experiments_after_failed_init(library, failed, matches!(symptom, Symptom::NoAnswer { .. })),
        // A server without a queue says nothing until it is sent something.
        (DoctorStep::Queue, Symptom::NoAnswer { .. }) => {
            other_dialects(library, failed).filter(|experiment| !experiment.dialect.has_queue()).collect()
        }
        _ => Vec::new(),
    };
    experiments.truncate(EXPERIMENTS_MAX);
    experiments
}

/// Experiments after a rejected upgrade: other modes and dialects, at their own paths and at the path of the URL.
fn experiments_after_rejected_upgrade(library: &Library, failed: &FailedAttempt<'_>) -> Vec<Experiment> {
    let mut experiments = Vec::new();
    let paths = if failed.has_custom_path { &[true, false][..] } else { &[false][..] };
    for use_dialect_path in paths {
        for dialect in dialects_configured_first(library, failed) {
            for mode in dialect.modes.keys() {
                let is_other_url = dialect.mode_key.is_some() || *mode == failed.mode;
                let is_same_setup = dialect.name == failed.dialect.name && *mode == failed.mode;
                if is_same_setup && !use_dialect_path || !is_other_url {
                    continue;
                }
                let other_dialect = (dialect.name != failed.dialect.name).then(|| dialect.name.clone());
                experiments.push(Experiment {
                    dialect: dialect.clone(),
                    mode: *mode,
                    use_dialect_path: *use_dialect_path,
                    voice_encoding: None,
                    depth: if dialect.has_queue() { Depth::Queue } else { Depth::Init },
                    clue: Clue::OtherUrl(String::new(), other_dialect),
                });
            }
        }
    }
    // The configured mode at the path of the dialect is the likeliest.
    experiments.sort_by_key(|experiment| (!experiment.use_dialect_path, experiment.mode != failed.mode));
    experiments
}

/// Experiments after a failed initialisation: repeat it, then vary the voice, then the dialect.
fn experiments_after_failed_init(
    library: &Library,
    failed: &FailedAttempt<'_>,
    was_silent: bool,
) -> Vec<Experiment> {
    let same_setup = |voice_encoding: Option<VoiceEncoding>, clue: Clue| Experiment {
        dialect: failed.dialect.clone(),
        mode: failed.mode,
        use_dialect_path: false,
        voice_encoding,
        depth: Depth::Init,
        clue,
    };
    let mut encodings = failed.dialect.voice_encodings.iter().copied();
    let first_encoding = encodings.next().filter(|_| failed.has_voice);
    let mut experiments = Vec::new();
    // After a timeout, repeating the same attempt would only cost another timeout.
    if !was_silent {
        experiments.push(same_setup(first_encoding, Clue::SecondAttempt));
    }
    if failed.has_voice {
        experiments
            .extend(encodings.map(|encoding| same_setup(Some(encoding), Clue::OtherVoiceEncoding(encoding))));
        experiments.push(same_setup(None, Clue::WithoutVoice));
    }
    experiments.extend(other_dialects(library, failed));
    experiments
}

/// Initialisations with every other dialect, in the mode of the failed attempt if the dialect has it.
fn other_dialects<'t>(
    library: &'t Library,
    failed: &'t FailedAttempt<'_>,
) -> impl Iterator<Item = Experiment> + 't {
    dialects_configured_first(library, failed).skip(1).filter_map(|dialect| {
        let modes = [failed.mode, Mode::Audio, Mode::Video, Mode::Chat];
        Some(Experiment {
            dialect: dialect.clone(),
            mode: modes.into_iter().find(|mode| dialect.modes.contains_key(mode))?,
            use_dialect_path: false,
            voice_encoding: None,
            depth: Depth::Init,
            clue: Clue::OtherDialect(dialect.name.clone(), dialect.title.clone()),
        })
    })
}

/// All dialects, the configured one first.
fn dialects_configured_first<'t>(
    library: &'t Library,
    failed: &'t FailedAttempt<'_>,
) -> impl Iterator<Item = &'t Arc<UpstreamMapping>> {
    // No server of requests opens a WebSocket.
    let is_other =
        |dialect: &&Arc<UpstreamMapping>| dialect.name != failed.dialect.name && !dialect.is_http();
    let others = library.upstreams().filter(is_other);
    std::iter::once(failed.dialect).chain(others)
}
