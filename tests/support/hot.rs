//! What the tests of `core` do with each frame. It is here because this package is optimised in tests, and they are not.

/// Samples with noise of at most this level; none of them is zero, so that voxbridge's own silence is told from them.
pub fn with_noise(samples: &[i16], level: i16, rng: &mut fastrand::Rng) -> Vec<i16> {
    let add = |sample: &i16| match sample.saturating_add(rng.i16(-level..=level)) {
        0 => 1,
        marked => marked,
    };
    samples.iter().map(add).collect()
}

/// True if a message contains the phrase.
pub fn contains(message: &str, phrase: &str) -> bool {
    message.contains(phrase)
}
