//! Tokens that an answer took: as an upstream counted them, or estimated.

use serde::Deserialize;

/// Letters that make one token, about, in scripts with spaces between words.
const LETTERS_PER_TOKEN: u32 = 4;
/// Positions of the model's context that one second of the user's audio takes
/// (mappings/notes/minicpm-o-duplex.md#context).
const INPUT_TOKENS_PER_S: u64 = 10;
/// Codec tokens in one second of the model's audio (mappings/notes/minicpm-o.md#chat).
const OUTPUT_TOKENS_PER_S: u64 = 25;
/// Positions of the model's context that a picture takes, if it is not cut into slices.
pub(crate) const PICTURE_TOKENS: u32 = 64;

/// Letters of a text for [`letter_tokens`]. A letter of a script without spaces counts as a whole token.
#[must_use]
pub(crate) fn letters(text: &str) -> u32 {
    let weight = |letter| if super::answer::needs_no_spaces(letter) { LETTERS_PER_TOKEN } else { 1 };
    text.chars().map(weight).fold(0, u32::saturating_add)
}

/// Estimated tokens of this many letters.
#[must_use]
pub(crate) const fn letter_tokens(letters: u32) -> u32 {
    letters.div_ceil(LETTERS_PER_TOKEN)
}

/// Estimated tokens of a text.
#[must_use]
pub(crate) fn text_tokens(text: &str) -> u32 {
    letter_tokens(letters(text))
}

/// Estimated tokens of the user's audio, samples at 16 kHz.
#[must_use]
pub(crate) fn input_audio_tokens(samples: u64) -> u32 {
    u32::try_from((samples * INPUT_TOKENS_PER_S).div_ceil(16_000)).unwrap_or(u32::MAX)
}

/// Estimated tokens of the model's audio, samples at 24 kHz.
#[must_use]
pub(crate) fn output_audio_tokens(samples: u64) -> u32 {
    u32::try_from((samples * OUTPUT_TOKENS_PER_S).div_ceil(24_000)).unwrap_or(u32::MAX)
}

/// Tokens of one request as an upstream reports them, in the names of OpenAI's APIs. vLLM-Omni and SGLang-Omni report the
/// sums, MiniCPM-o-Demo all of it (its document `realtime-api/usage.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct ReportedUsage {
    /// All input.
    #[serde(alias = "prompt_tokens")]
    pub input_tokens: Option<u32>,
    /// All output.
    #[serde(alias = "completion_tokens")]
    pub output_tokens: Option<u32>,
    /// Parts of the input.
    #[serde(alias = "prompt_tokens_details")]
    pub input_token_details: Option<TokenDetails>,
    /// Parts of the output.
    #[serde(alias = "completion_tokens_details")]
    pub output_token_details: Option<TokenDetails>,
}

/// Parts of the input or the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct TokenDetails {
    /// Text.
    pub text_tokens: Option<u32>,
    /// Audio.
    pub audio_tokens: Option<u32>,
    /// Pictures.
    #[serde(alias = "vision_tokens")]
    pub image_tokens: Option<u32>,
    /// Input that the server had in its cache.
    pub cached_tokens: Option<u32>,
}

impl ReportedUsage {
    /// Reads the object of an upstream's message; `None` if it has no counters.
    #[must_use]
    pub fn read(json: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(json).ok()?;
        (read.input_tokens.is_some() || read.output_tokens.is_some()).then_some(read)
    }

    /// The tokens of the request. An input whose parts are not reported is split as the estimate is; audio of the model that is
    /// not reported is estimated.
    #[must_use]
    pub fn complete(&self, estimate: TokenUsage) -> TokenUsage {
        let input = self.input_token_details.unwrap_or_default();
        let output = self.output_token_details.unwrap_or_default();
        let [input_text, input_audio, input_images] = split(
            self.input_tokens,
            [input.text_tokens, input.audio_tokens, input.image_tokens],
            [estimate.input_text, estimate.input_audio, estimate.input_images],
        );
        // vLLM-Omni counts only the text of an answer.
        let text = self.output_tokens.map(|sum| sum.saturating_sub(output.audio_tokens.unwrap_or(0)));
        let output_text = output.text_tokens.or(text).unwrap_or(estimate.output_text);
        let output_audio = output.audio_tokens.unwrap_or(estimate.output_audio);
        let cached = input.cached_tokens.unwrap_or(0);
        TokenUsage { input_text, input_audio, input_images, cached, output_text, output_audio }
    }
}

/// Parts of a sum: as reported, and the rest in the proportions of the estimates. Without estimates, the rest is text.
fn split(sum: Option<u32>, reported: [Option<u32>; 3], estimates: [u32; 3]) -> [u32; 3] {
    let Some(sum) = sum else { return [0, 1, 2].map(|at| reported[at].unwrap_or(estimates[at])) };
    let known = reported.iter().flatten().fold(0, |sum: u32, part| sum.saturating_add(*part));
    let rest = u64::from(sum.saturating_sub(known));
    let weights = [0, 1, 2].map(|at| if reported[at].is_some() { 0 } else { u64::from(estimates[at]) });
    let total: u64 = weights.iter().sum();
    let mut parts = [0, 1, 2].map(|at| {
        let share = (rest * weights[at]).checked_div(total).unwrap_or(0);
        reported[at].unwrap_or(u32::try_from(share).unwrap_or(u32::MAX))
    });
    // The rest of the rounding goes to the first part that is not reported.
    let missing = sum.saturating_sub(parts.iter().fold(0, |sum: u32, part| sum.saturating_add(*part)));
    if let Some(first) = reported.iter().position(Option::is_none) {
        parts[first] = parts[first].saturating_add(missing);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_parts_are_taken_as_they_are() {
        let demo = r#"{"total_tokens": 34, "input_tokens": 28, "output_tokens": 6,
            "input_token_details": {"text_tokens": 1, "audio_tokens": 16, "vision_tokens": 11},
            "output_token_details": {"text_tokens": 2, "audio_tokens": 4}}"#;
        let usage = ReportedUsage::read(demo).unwrap().complete(TokenUsage::default());
        let parts = (usage.input_text, usage.input_audio, usage.input_images);
        assert_eq!((parts, usage.output_text, usage.output_audio), ((1, 16, 11), 2, 4));
    }

    #[test]
    fn reported_sums_are_split_like_the_estimate() {
        let openai = r#"{"prompt_tokens": 101, "completion_tokens": 40, "total_tokens": 141,
            "prompt_tokens_details": {"cached_tokens": 16}, "completion_tokens_details": null}"#;
        let estimate = TokenUsage {
            input_text: 30,
            input_audio: 30,
            output_text: 10,
            output_audio: 30,
            ..TokenUsage::default()
        };
        let usage = ReportedUsage::read(openai).unwrap().complete(estimate);
        assert_eq!((usage.input_text, usage.input_audio, usage.cached), (51, 50, 16));
        assert_eq!((usage.output_text, usage.output_audio), (40, 30));
        let usage = ReportedUsage::read(openai).unwrap().complete(TokenUsage::default());
        assert_eq!((usage.input_text, usage.output_text), (101, 40));
    }

    #[test]
    fn unreadable_counters_are_no_report() {
        for json in [
            "null",
            "{}",
            "[]",
            r#"{"total_tokens": 3}"#,
            r#"{"prompt_tokens": -1}"#,
            r#"{"prompt_tokens": "3"}"#,
        ] {
            assert_eq!(ReportedUsage::read(json), None, "{json}");
        }
    }

    #[test]
    fn texts_of_all_scripts_have_tokens() {
        assert_eq!((text_tokens(""), text_tokens("Hello you"), text_tokens("你好")), (0, 3, 2));
        assert_eq!((input_audio_tokens(16_000), output_audio_tokens(24_000)), (10, 25));
    }
}

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
