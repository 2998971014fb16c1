//! The end of the user's turn: when a pause in speech is one.

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
    /// (`tests/core/turn_end/gain.rs`). So the note's threshold of 0.7 cuts too often (field notes webrtc-and-turn-end.md §2).
    #[must_use]
    pub const fn threshold(self) -> f32 {
        match self {
            Self::Low => 0.95,
            Self::Medium => 0.9,
            Self::High => 0.8,
        }
    }

    /// Silence that ends a turn below that threshold, in ms. If the user has rather finished than not, it is longer than most
    /// pauses within a sentence. Otherwise it is half of what OpenAI waits at most, because the model misses some ends.
    #[must_use]
    pub fn wait_ms(self, probability: f32) -> u32 {
        match (self, probability >= 0.5) {
            (Self::Low, true) => 2000,
            (Self::Low, false) => 4000,
            (Self::Medium, true) => 1100,
            (Self::Medium, false) => 2000,
            (Self::High, true) => 700,
            (Self::High, false) => 1000,
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
