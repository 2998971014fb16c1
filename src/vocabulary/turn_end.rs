//! The end of the user's turn: when a pause in speech is one.

use serde::Deserialize;

/// The profile's rule by which the end of an utterance is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEndRule {
    /// A fixed silence.
    #[default]
    Fixed,
    /// The judgement of an end-of-turn model.
    Semantic,
}

/// Number of a pause in the user's speech. A session never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PauseId(pub u32);

/// How soon a turn ends where a model judges it (OpenAI Realtime: `semantic_vad`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eagerness {
    /// Waits long, because the user may go on.
    Low,
    /// The default, which OpenAI calls `auto` too.
    #[default]
    Medium,
    /// Ends turns early.
    High,
}

impl Eagerness {
    /// Probability that the user has finished, from which on the turn ends at once.
    ///
    /// Of twelve places inside of sentences, the model gives five 0.7 to 0.93, and ends of sentences mostly 0.93 to 0.98
    /// (`tests/core/turn_end/gain.rs`). So the trial's threshold of 0.7 cuts too often
    /// (mappings/notes/turn-end.md#decisions).
    #[must_use]
    pub const fn threshold(self) -> f32 {
        match self {
            Self::Low => 0.95,
            Self::Medium => 0.9,
            Self::High => 0.8,
        }
    }

    /// Silence that ends a turn below that threshold if the user has rather finished than not, in ms: longer than most pauses
    /// within a sentence.
    #[must_use]
    pub const fn wait_likely_ms(self) -> u32 {
        match self {
            Self::Low => 2000,
            Self::Medium => 1100,
            Self::High => 700,
        }
    }

    /// Silence that ends a turn although the user does not seem to have finished, in ms: half of what OpenAI waits at most,
    /// because the model misses some ends.
    #[must_use]
    pub const fn wait_max_ms(self) -> u32 {
        match self {
            Self::Low => 4000,
            Self::Medium => 2000,
            Self::High => 1000,
        }
    }
}

/// How a model's judgement ends a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JudgedEnd {
    /// Probability that the user has finished, from which on the turn ends. Infinite if only silence ends it.
    pub threshold: f32,
    /// Silence that ends a turn if the user has rather finished than not, ms.
    pub wait_likely_ms: u32,
    /// Silence that ends a turn although the user does not seem to have finished, ms.
    pub wait_max_ms: u32,
}

impl JudgedEnd {
    /// Silence that ends a turn that the model does not end, ms.
    #[must_use]
    pub fn wait_ms(self, probability: f32) -> u32 {
        if probability >= 0.5 { self.wait_likely_ms } else { self.wait_max_ms }
    }
}

impl From<Eagerness> for JudgedEnd {
    fn from(eagerness: Eagerness) -> Self {
        Self {
            threshold: eagerness.threshold(),
            wait_likely_ms: eagerness.wait_likely_ms(),
            wait_max_ms: eagerness.wait_max_ms(),
        }
    }
}

/// Rule by which the end of an utterance is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnEnd {
    /// The profile's.
    #[default]
    OfProfile,
    /// A fixed silence.
    Fixed,
    /// The judgement of an end-of-turn model.
    Semantic(Eagerness),
}
