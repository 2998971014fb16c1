//! Pace of speech: estimates how long a text takes to speak, where its audio has not all been made.

/// Time of a letter or digit. Other signs take none.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct Pace {
    letter_ms: u64,
    /// Of a letter that is a syllable, as in Chinese.
    syllable_ms: u64,
}

impl Pace {
    /// Nearly all people speak slower.
    pub(in crate::session) const FASTEST: Self = Self { letter_ms: 35, syllable_ms: 140 };
    /// Most people speak at this pace or slower.
    pub(in crate::session) const USUAL: Self = Self { letter_ms: 65, syllable_ms: 200 };
    /// Most people speak faster, with pauses between sentences.
    pub(in crate::session) const SLOW: Self = Self { letter_ms: 90, syllable_ms: 280 };

    /// Length of this text's speech, ms.
    pub(in crate::session) fn length_ms(self, text: &str) -> u64 {
        let ms = |letter: char| if (letter as u32) < 0x2e80 { self.letter_ms } else { self.syllable_ms };
        text.chars().filter(|letter| letter.is_alphanumeric()).map(ms).sum()
    }
}
