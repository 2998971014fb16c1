//! What is tried when an examination fails, to find out why: the same again, without the voice, in another dialect, in
//! another mode or at another path. What works is the clue.

use std::sync::Arc;

use super::{session_check::Depth, step::Step, symptom::Symptom};
use crate::mapping::{
    Library, UpstreamMapping,
    upstream::{Mode, VoiceEncoding},
};

/// At most so many sessions are opened to find out: each takes a worker's time.
const TRIALS_MAX: usize = 6;

/// What made the difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clue {
    /// A second attempt.
    Again,
    /// Leaving the voice out.
    NoVoice,
    /// Writing the voice otherwise.
    VoiceAs(VoiceEncoding),
    /// Another dialect: its name and its title.
    Dialect(String, String),
    /// Another place: what the URL should have been, and the dialect if it is another one, too.
    Place(String, Option<String>),
    /// Nothing: a second attempt had to wait in the queue.
    Held,
    /// It looks like a server for clients of this protocol.
    ClientProtocol(String),
}

/// One attempt.
#[derive(Debug, Clone)]
pub struct Trial {
    /// In this dialect.
    pub dialect: Arc<UpstreamMapping>,
    /// In this mode.
    pub mode: Mode,
    /// At the dialect's own path instead of the URL's.
    pub own_path: bool,
    /// How the voice goes with it, if it does.
    pub voice: Option<VoiceEncoding>,
    /// How far it has to come to be a clue.
    pub depth: Depth,
    /// What it is a clue to; of a place the URL is known to who tries it.
    pub clue: Clue,
}

/// What was examined.
#[derive(Debug, Clone)]
pub struct Tried<'t> {
    /// In this dialect.
    pub dialect: &'t Arc<UpstreamMapping>,
    /// In this mode.
    pub mode: Mode,
    /// At a path of the URL's own, which is not the dialect's.
    pub at_other_path: bool,
    /// With a voice.
    pub voice: bool,
}

/// What to try after this failure, in order; nothing where nothing could be learned.
#[must_use]
pub fn trials(library: &Library, tried: &Tried<'_>, step: Step, symptom: &Symptom) -> Vec<Trial> {
    let mut trials = match (step, symptom) {
        (Step::Upgrade, Symptom::Status { status: 400 | 403 | 404 | 405 | 426, .. }) => {
            elsewhere(library, tried)
        }
        (
            Step::Init,
            Symptom::Ended { .. } | Symptom::Dropped(_) | Symptom::Trouble(_) | Symptom::Silent { .. },
        ) => otherwise(library, tried, matches!(symptom, Symptom::Silent { .. })),
        _ => Vec::new(),
    };
    trials.truncate(TRIALS_MAX);
    trials
}

/// The upgrade was refused: other modes and dialects at this path, then all of them at their own.
fn elsewhere(library: &Library, tried: &Tried<'_>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let paths = if tried.at_other_path { &[true, false][..] } else { &[false][..] };
    for own_path in paths {
        for dialect in dialects(library, tried) {
            for mode in dialect.modes.keys() {
                let same = dialect.name == tried.dialect.name && *mode == tried.mode;
                if same && !own_path {
                    continue;
                }
                let other = (dialect.name != tried.dialect.name).then(|| dialect.name.clone());
                trials.push(Trial {
                    dialect: dialect.clone(),
                    mode: *mode,
                    own_path: *own_path,
                    voice: None,
                    depth: Depth::Queue,
                    clue: Clue::Place(String::new(), other),
                });
            }
        }
    }
    // Its own mode at the dialect's own path is the likeliest.
    trials.sort_by_key(|trial| (!trial.own_path, trial.mode != tried.mode));
    trials
}

/// The worker was not made ready: the same again, then without or with another voice, then in other dialects.
fn otherwise(library: &Library, tried: &Tried<'_>, silent: bool) -> Vec<Trial> {
    let same = |voice: Option<VoiceEncoding>, clue: Clue| Trial {
        dialect: tried.dialect.clone(),
        mode: tried.mode,
        own_path: false,
        voice,
        depth: Depth::Init,
        clue,
    };
    let mut encodings = tried.dialect.voice_encodings.iter().copied();
    let first = encodings.next().filter(|_| tried.voice);
    let mut trials = Vec::new();
    // Who was silent for as long as that is not asked the same again.
    if !silent {
        trials.push(same(first, Clue::Again));
    }
    if tried.voice {
        trials.extend(encodings.map(|encoding| same(Some(encoding), Clue::VoiceAs(encoding))));
        trials.push(same(None, Clue::NoVoice));
    }
    for dialect in dialects(library, tried).filter(|dialect| dialect.name != tried.dialect.name) {
        let mode = [tried.mode, Mode::Audio, Mode::Video, Mode::Chat];
        let Some(mode) = mode.into_iter().find(|mode| dialect.modes.contains_key(mode)) else { continue };
        trials.push(Trial {
            dialect: dialect.clone(),
            mode,
            own_path: false,
            voice: None,
            depth: Depth::Init,
            clue: Clue::Dialect(dialect.name.clone(), dialect.title.clone()),
        });
    }
    trials
}

/// Every dialect, the configured one first.
fn dialects<'t>(
    library: &'t Library,
    tried: &'t Tried<'_>,
) -> impl Iterator<Item = &'t Arc<UpstreamMapping>> {
    let others = library.upstreams().filter(|dialect| dialect.name != tried.dialect.name);
    std::iter::once(tried.dialect).chain(others)
}
