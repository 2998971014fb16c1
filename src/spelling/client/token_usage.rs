//! Tokens of an answer, as its end reports them.

/// Tokens of an answer: of all that the model read for it, and of what it made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    /// Text that the model read.
    pub input_text: u32,
    /// Audio that the model heard.
    pub input_audio: u32,
    /// Pictures that the model saw.
    pub input_images: u32,
    /// Part of the input that the server had in its cache.
    pub cached: u32,
    /// Text that the model wrote.
    pub output_text: u32,
    /// Audio that the model spoke.
    pub output_audio: u32,
}

impl TokenUsage {
    /// All input.
    #[must_use]
    pub const fn input(&self) -> u32 {
        self.input_text.saturating_add(self.input_audio).saturating_add(self.input_images)
    }

    /// All output.
    #[must_use]
    pub const fn output(&self) -> u32 {
        self.output_text.saturating_add(self.output_audio)
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_text: self.input_text.saturating_add(other.input_text),
            input_audio: self.input_audio.saturating_add(other.input_audio),
            input_images: self.input_images.saturating_add(other.input_images),
            cached: self.cached.saturating_add(other.cached),
            output_text: self.output_text.saturating_add(other.output_text),
            output_audio: self.output_audio.saturating_add(other.output_audio),
        }
    }
}
