//! Judges of the end of a turn, each with the settings that are tried.

use crate::{
    named_enum::named_enum,
    vocabulary::{Eagerness, JudgedEnd},
};

use super::pauses::Pause;

/// Time of an inference, ms, as measured with one thread (mappings/notes/turn-end.md#runtimes).
const INFERENCE_MS: f32 = 100.0;
/// Silence after which voxbridge asks, ms.
const ASK_AFTER_MS: u32 = 110;
/// Silence after which Pipecat asks: the `stop_secs` of its voice detector (`VAD_STOP_SECS`).
const PIPECAT_ASK_AFTER_MS: u32 = 200;
/// Silence that ends a turn at once if the user has finished.
const END_AFTER_MS: f32 = 200.0;

/// A judge with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Judge {
    /// A fixed silence, ms.
    Fixed(f32),
    /// Smart Turn as Pipecat uses it: asked once, it ends the turn above the threshold. Otherwise a longer silence does.
    Pipecat {
        /// Probability that ends the turn.
        threshold: f32,
        /// Longest silence (`SmartTurnParams.stop_secs`), ms.
        wait_ms: f32,
    },
    /// The rule of `turn_end = "semantic"`.
    Semantic(JudgedEnd),
}

impl Judge {
    /// Silence that ends the turn in this pause if it lasts for ever, ms.
    #[must_use]
    pub fn end_ms(&self, pause: &Pause) -> f32 {
        match *self {
            Self::Fixed(silence_ms) => silence_ms,
            Self::Pipecat { threshold, wait_ms } => match probability(pause, PIPECAT_ASK_AFTER_MS) {
                Some(found) if found > threshold => PIPECAT_ASK_AFTER_MS as f32 + INFERENCE_MS,
                _ => wait_ms,
            },
            Self::Semantic(rule) => match probability(pause, ASK_AFTER_MS) {
                Some(found) if found >= rule.threshold => {
                    END_AFTER_MS.max(ASK_AFTER_MS as f32 + INFERENCE_MS)
                }
                Some(found) => rule.wait_ms(found) as f32,
                None => rule.wait_max_ms as f32,
            },
        }
    }
}

/// What the model says at a look.
fn probability(pause: &Pause, silence_ms: u32) -> Option<f32> {
    pause.looks.iter().find(|look| look.silence_ms == silence_ms)?.probability
}

named_enum! {
    /// A kind of judge, for the table.
    pub enum Family {
        /// [`Judge::Fixed`].
        Fixed = "fixed silence",
        /// [`Judge::Pipecat`].
        Pipecat = "Smart Turn as in Pipecat",
        /// [`Judge::Semantic`].
        Semantic = "semantic",
    }
}

impl Family {
    /// Silences at which they ask the model, ms.
    pub const LOOKS_MS: &[u32] = &[ASK_AFTER_MS, PIPECAT_ASK_AFTER_MS];

    /// True if it asks the model.
    #[must_use]
    pub const fn needs_model(self) -> bool {
        !matches!(self, Self::Fixed)
    }

    /// The settings that are in force by default, with their names.
    #[must_use]
    pub fn defaults(self) -> Vec<(&'static str, Judge)> {
        match self {
            Self::Fixed => vec![("500 ms", Judge::Fixed(500.0))],
            Self::Pipecat => vec![("0.5, 3 s", Judge::Pipecat { threshold: 0.5, wait_ms: 3000.0 })],
            Self::Semantic => [
                ("eagerness high", Eagerness::High),
                ("eagerness medium", Eagerness::Medium),
                ("eagerness low", Eagerness::Low),
            ]
            .map(|(name, eagerness)| (name, Judge::Semantic(eagerness.into())))
            .to_vec(),
        }
    }

    /// All settings that are tried.
    #[must_use]
    pub fn settings(self) -> Vec<Judge> {
        let waits = || (4..=40).map(|step| step as f32 * 100.0);
        let thresholds = || (-8..=12).map(|step| 1.0 / (1.0 + (-step as f32 / 2.0).exp()));
        match self {
            Self::Fixed => (20..=250).map(|step| Judge::Fixed(step as f32 * 10.0)).collect(),
            Self::Pipecat => thresholds()
                .flat_map(|threshold| waits().map(move |wait_ms| Judge::Pipecat { threshold, wait_ms }))
                .collect(),
            Self::Semantic => thresholds()
                .flat_map(|threshold| waits().map(move |wait_ms| (threshold, wait_ms as u32)))
                .flat_map(|(threshold, wait_max_ms)| {
                    let likely =
                        (2..=10).map(move |tenths| wait_max_ms * tenths / 10).filter(|ms| *ms >= 300);
                    likely.map(move |wait_likely_ms| JudgedEnd { threshold, wait_likely_ms, wait_max_ms })
                })
                .map(Judge::Semantic)
                .collect(),
        }
    }
}
