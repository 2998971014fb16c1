//! Where the time until the first audio of an answer goes, stage by stage.
//!
//! The figures come from a replay: the session has the same requests and events at the same instants again, and a tap notes when
//! each stage ends. To change here: the stages. Not here: how a table of them is printed.
//!
//! - `recorder`: notes the instants of a session; `lanes`: those of its upstream sessions
//! - [`table`]: percentiles of the answers of many sessions

mod lanes;
mod recorder;
pub mod table;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use self::recorder::SharedRecorder;
use super::{Trace, record::InputKind, redact::AudioRetention, replay::replay_tapped};
use crate::{named_enum::named_enum, spelling::Library, vocabulary::Lane};

named_enum! {
    /// Stage of the time until the first audio, in order. Each begins where the one before ends.
    pub enum Stage {
        /// It is not certain yet that the user has finished.
        Verdict = "verdict",
        /// The upstream is connected.
        Dial = "dial",
        /// The upstream session waits for a worker.
        Queue = "queue",
        /// The upstream session is initialised.
        Init = "init",
        /// The question waits for something else, such as the text before it.
        Ask = "ask",
        /// The question is sent. In full duplex: the second of audio with the last sound is filled and sent.
        Upload = "upload",
        /// The model has not answered yet.
        Model = "model",
        /// The model has answered by words alone.
        Voice = "voice",
        /// The audio is held before it leaves for the client.
        Playout = "playout",
    }
}

named_enum! {
    /// What the audio answers.
    pub enum Trigger {
        /// The user's speech; the time begins when its last sound arrives.
        Speech = "speech",
        /// The client's request for an answer, without speech before it.
        Request = "request",
        /// A text that the client has spoken.
        Text = "text",
    }
}

impl Stage {
    /// True if voxbridge waits for the model, or for the user to go on.
    #[must_use]
    pub const fn is_waiting_for_others(self) -> bool {
        matches!(self, Self::Verdict | Self::Model | Self::Voice)
    }

    /// What happens in the stage.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Verdict => "until it is certain that the turn is over",
            Self::Dial => "until the upstream is connected",
            Self::Queue => "in the upstream's queue",
            Self::Init => "until the upstream session is initialised",
            Self::Ask => "until the question is asked, for other reasons",
            Self::Upload => "until the question, or the second of audio, is sent",
            Self::Model => "until the model's first words or audio",
            Self::Voice => "until its first audio, if words came first",
            Self::Playout => "until the audio leaves for the client",
        }
    }
}

/// The first audio of an answer or a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstAudio {
    /// When it left for the client, since the start of the session.
    pub at: Duration,
    /// What it answers.
    pub trigger: Trigger,
    /// Dialect of the upstream that was asked.
    pub server: String,
    /// Length of the client's message with the last sound, which waited in it; zero without speech.
    pub frame: Duration,
    /// Length of each stage, in the order of [`Stage::ALL`].
    pub stages: [Duration; Stage::ALL.len()],
}

impl FirstAudio {
    /// Length of a stage.
    #[must_use]
    pub const fn stage(&self, stage: Stage) -> Duration {
        self.stages[stage as usize]
    }

    /// Time from the trigger to the audio.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.stages.iter().sum()
    }

    /// The part of it beyond the wait for the end of the turn and for the model.
    #[must_use]
    pub fn beyond_model(&self) -> Duration {
        let stages = Stage::ALL.into_iter().filter(|stage| !stage.is_waiting_for_others());
        stages.map(|stage| self.stage(stage)).sum()
    }
}

/// The answers of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLatencies {
    /// Its profile.
    pub profile: String,
    /// The answers and texts that the client heard, in order.
    pub answers: Vec<FirstAudio>,
    /// Why figures are missing or may be wrong, one sentence each.
    pub notes: Vec<String>,
}

/// Measures the answers of a recorded session.
///
/// # Errors
/// A mapping is missing, or an input is malformed.
pub fn measure(trace: &Trace, embedded: Library, epoch: Instant) -> Result<SessionLatencies, String> {
    let mut notes = Vec::new();
    let is_relayed = trace.header.library(embedded.clone())?.client(&trace.header.client)?.is_relayed();
    if is_relayed {
        notes.push("a relayed session is not decoded, so it has no stages".to_owned());
    }
    let recorder = SharedRecorder::new(epoch, lane_dialects(trace), &trace.header.dialect);
    let mut observe = |at: Duration, output: &_| recorder.observe(epoch + at, output);
    let outcome = replay_tapped(trace, embedded, epoch, Box::new(recorder.clone()), &mut observe)?;
    if trace.header.audio == AudioRetention::None {
        notes.push("the user's audio is not in the trace, so the answers to speech are missing".to_owned());
    } else if !outcome.is_same() {
        let count = outcome.differences.count;
        notes.push(format!("{count} outputs differ from the recorded ones, so the figures may differ, too"));
    }
    Ok(SessionLatencies { profile: trace.header.profile.clone(), answers: recorder.take_answers(), notes })
}

/// Dialects of the lanes that do not have the session's first one.
fn lane_dialects(trace: &Trace) -> BTreeMap<Lane, String> {
    let named = trace.records.iter().filter(|record| record.input == Some(InputKind::LaneDialect));
    named.filter_map(|record| Some((Lane(record.lane?), record.words.clone()?))).collect()
}
