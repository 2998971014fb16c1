//! The user's audio on its way to the model: units, what is held while a text is spoken, level, and what is dropped.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    audio::{
        SPEECH_RATE_HZ,
        level::Level,
        units::{UNIT_SAMPLES, Units},
    },
    mapping::profile::ConverseRules,
};

/// What is kept of the microphone while a text is spoken: who interrupts it is heard from the first sound on.
const HELD_SAMPLES: usize = SPEECH_RATE_HZ as usize;

/// Where the audio of a conversation went, samples at 16 kHz. What the ear handed on is `appended` + `hushed` +
/// `dropped` + `waiting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streamed {
    /// Sent to a model.
    pub appended: u64,
    /// Replaced by silence while a text was spoken.
    pub hushed: u64,
    /// Too old to be sent.
    pub dropped: u64,
    /// Not sent yet.
    pub waiting: u64,
    /// Silence sent besides.
    pub filled: u64,
}

/// One session's microphone.
#[derive(Debug)]
pub(super) struct Mic {
    units: Units,
    held: VecDeque<i16>,
    level: Option<Level>,
    /// What was kept for an upstream session that came up, and is still to be caught up with.
    allowance: usize,
    hushed: u64,
}

impl Mic {
    pub(super) fn new(rules: &ConverseRules) -> Self {
        let level = rules.level.map(|level| Level::new(level.target_rms, level.gain_max, level.floor_rms));
        Self { units: Units::default(), held: VecDeque::new(), level, allowance: 0, hushed: 0 }
    }

    /// Takes the user's audio in; while the client hears a text the model hears silence instead.
    pub(super) fn push(&mut self, samples: &mut Vec<i16>, hush: bool) {
        if let Some(level) = &mut self.level {
            level.apply(samples);
        }
        if hush {
            self.held.extend(samples.iter());
            self.forget_held(HELD_SAMPLES);
        } else {
            self.units.push(samples);
        }
        samples.clear();
    }

    /// The text is over: what was held was said into it, and is gone.
    pub(super) fn forget(&mut self) {
        self.forget_held(0);
        self.held = VecDeque::new();
    }

    /// The user interrupted the text: what was held is heard.
    pub(super) fn recall(&mut self) {
        let held = std::mem::take(&mut self.held);
        let (front, back) = held.as_slices();
        self.units.push(front);
        self.units.push(back);
    }

    fn forget_held(&mut self, keep: usize) {
        let excess = self.held.len().saturating_sub(keep);
        self.held.drain(..excess);
        self.hushed += excess as u64;
    }

    /// Samples that wait.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// A whole unit of the user's audio is there.
    pub(super) fn has_unit(&self) -> bool {
        self.units.has_unit()
    }

    /// Takes a unit out, and how much of it is the user's.
    pub(super) fn take(&mut self) -> (Arc<Vec<i16>>, usize) {
        let real = self.units.len().min(UNIT_SAMPLES);
        let unit = self.units.take();
        self.allowance = self.allowance.min(self.units.len());
        (Arc::new(unit), real)
    }

    /// Takes back a unit no model has answered.
    pub(super) fn give_back(&mut self, unit: &[i16], real: usize) {
        self.units.give_back(unit, real);
    }

    /// An upstream session is there: what was kept for it may be caught up with.
    pub(super) fn catch_up(&mut self) {
        self.allowance = self.units.len();
    }

    /// Keeps what waits bounded: the oldest goes. How much that was, ms.
    pub(super) fn limit(&mut self, talking: bool, rules: &ConverseRules) -> u64 {
        let samples = |ms: u64| ms.saturating_mul(u64::from(SPEECH_RATE_HZ) / 1000) as usize;
        let most = if talking {
            samples(rules.backlog_max_ms).max(self.allowance + UNIT_SAMPLES).min(samples(rules.replay_max_ms))
        } else {
            samples(rules.replay_max_ms)
        };
        self.units.limit(most) * 1000 / u64::from(SPEECH_RATE_HZ)
    }

    /// Where it all went.
    pub(super) fn streamed(&self) -> Streamed {
        let counts = self.units.counts();
        Streamed {
            appended: counts.taken,
            hushed: self.hushed,
            dropped: counts.dropped,
            waiting: (self.units.len() + self.held.len()) as u64,
            filled: counts.filled,
        }
    }
}
