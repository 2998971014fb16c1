//! The end of the user's turn: when a pause in speech is one.

/// Number of a pause in the user's speech. A session never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PauseId(pub u32);

/// How soon a turn ends where a model judges it (OpenAI Realtime: `semantic_vad`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eagerness {
    /// Waits long for a user who may go on.
    Low,
    /// The default, which OpenAI calls `auto` too.
    #[default]
    Medium,
    /// Ends turns early.
    High,
}

impl Eagerness {
    /// Probability that the user has finished, from which on the turn ends.
    ///
    /// Sentences that are finished have 0.85 to 0.98, and JFK's "fellow Americans", after which he goes on, 0.65 (field notes
    /// webrtc-and-turn-end.md §2).
    #[must_use]
    pub const fn threshold(self) -> f32 {
        match self {
            Self::Low => 0.85,
            Self::Medium => 0.7,
            Self::High => 0.6,
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
    /// Silence that ends a turn although the user does not seem to have finished, ms.
    pub wait_max_ms: u32,
}

impl From<Eagerness> for JudgedEnd {
    fn from(eagerness: Eagerness) -> Self {
        Self { threshold: eagerness.threshold(), wait_max_ms: eagerness.wait_max_ms() }
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
