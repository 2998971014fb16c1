//! What is tried when an examination fails, to find out why: the same again, without the voice, in another dialect, in
//! another mode or at another path. What works is the clue.

use std::sync::Arc;

use super::{session_check::Depth, step::DoctorStep, symptom::Symptom};
use crate::mapping::{
    Library, UpstreamMapping,
    upstream::{Mode, VoiceEncoding},
};

/// At most so many sessions are opened to find out: each takes a worker's time.
const EXPERIMENTS_MAX: usize = 6;

/// What made the difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clue {
    /// A second attempt.
    SecondAttempt,
    /// Leaving the voice out.
    WithoutVoice,
    /// Writing the voice otherwise.
    OtherVoiceEncoding(VoiceEncoding),
    /// Another dialect: its name and its title.
    OtherDialect(String, String),
    /// Another place: what the URL should have been, and the dialect if it is another one, too.
    OtherUrl(String, Option<String>),
    /// Nothing: a second attempt had to wait in the queue.
    StillQueued,
    /// It looks like a server for clients of this protocol.
    SpeaksClientProtocol(String),
}

/// One attempt.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// In this dialect.
    pub dialect: Arc<UpstreamMapping>,
    /// In this mode.
    pub mode: Mode,
    /// At the dialect's own path instead of the URL's.
    pub use_dialect_path: bool,
    /// How the voice goes with it, if it does.
    pub voice_encoding: Option<VoiceEncoding>,
    /// How far it has to come to be a clue.
    pub depth: Depth,
    /// What it is a clue to; of a place the URL is known to who tries it.
    pub clue: Clue,
}

/// What was examined.
#[derive(Debug, Clone)]
pub struct FailedAttempt<'t> {
    /// In this dialect.
    pub dialect: &'t Arc<UpstreamMapping>,
    /// In this mode.
    pub mode: Mode,
    /// At a path of the URL's own, which is not the dialect's.
    pub has_custom_path: bool,
    /// With a voice.
    pub has_voice: bool,
}

/// What to try after this failure, in order; nothing where nothing could be learned.
#[must_use]
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
        _ => Vec::new(),
    };
    experiments.truncate(EXPERIMENTS_MAX);
    experiments
}

/// The upgrade was refused: other modes and dialects at this path, then all of them at their own.
fn experiments_after_rejected_upgrade(library: &Library, failed: &FailedAttempt<'_>) -> Vec<Experiment> {
    let mut experiments = Vec::new();
    let paths = if failed.has_custom_path { &[true, false][..] } else { &[false][..] };
    for use_dialect_path in paths {
        for dialect in dialects_configured_first(library, failed) {
            for mode in dialect.modes.keys() {
                let is_same_setup = dialect.name == failed.dialect.name && *mode == failed.mode;
                if is_same_setup && !use_dialect_path {
                    continue;
                }
                let other_dialect = (dialect.name != failed.dialect.name).then(|| dialect.name.clone());
                experiments.push(Experiment {
                    dialect: dialect.clone(),
                    mode: *mode,
                    use_dialect_path: *use_dialect_path,
                    voice_encoding: None,
                    depth: Depth::Queue,
                    clue: Clue::OtherUrl(String::new(), other_dialect),
                });
            }
        }
    }
    // Its own mode at the dialect's own path is the likeliest.
    experiments.sort_by_key(|experiment| (!experiment.use_dialect_path, experiment.mode != failed.mode));
    experiments
}

/// The worker was not made ready: the same again, then without or with another voice, then in other dialects.
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
    // Who was silent for as long as that is not asked the same again.
    if !was_silent {
        experiments.push(same_setup(first_encoding, Clue::SecondAttempt));
    }
    if failed.has_voice {
        experiments
            .extend(encodings.map(|encoding| same_setup(Some(encoding), Clue::OtherVoiceEncoding(encoding))));
        experiments.push(same_setup(None, Clue::WithoutVoice));
    }
    for dialect in
        dialects_configured_first(library, failed).filter(|dialect| dialect.name != failed.dialect.name)
    {
        let mode = [failed.mode, Mode::Audio, Mode::Video, Mode::Chat];
        let Some(mode) = mode.into_iter().find(|mode| dialect.modes.contains_key(mode)) else { continue };
        experiments.push(Experiment {
            dialect: dialect.clone(),
            mode,
            use_dialect_path: false,
            voice_encoding: None,
            depth: Depth::Init,
            clue: Clue::OtherDialect(dialect.name.clone(), dialect.title.clone()),
        });
    }
    experiments
}

/// Every dialect, the configured one first.
fn dialects_configured_first<'t>(
    library: &'t Library,
    failed: &'t FailedAttempt<'_>,
) -> impl Iterator<Item = &'t Arc<UpstreamMapping>> {
    let others = library.upstreams().filter(|dialect| dialect.name != failed.dialect.name);
    std::iter::once(failed.dialect).chain(others)
}
