//! Synthetic voice without an engine: one soft hummed vowel per character.
//!
//! Every sample is a function of the text and its position, so any range renders separately and repeatably.

use std::ops::Range;

/// Output sample rate of the model.
pub(super) const SAMPLE_RATE_HZ: usize = 24_000;

/// Silence before speech: 0.12 s (mappings/notes/minicpm-o.md#chat).
const LEAD_IN_SAMPLES: usize = 2_880;

/// Duration of a character: about fourteen per second.
const CHAR_SAMPLES: usize = SAMPLE_RATE_HZ / 14;

/// Peak level of the synthetic voice.
const PEAK: f32 = 0.3;

/// Two formants of the vowels a, e, i, o, u, approximately, in Hz.
const VOWELS: [(f32, f32); 5] =
    [(730.0, 1090.0), (530.0, 1840.0), (270.0, 2290.0), (570.0, 840.0), (300.0, 870.0)];

/// Source of an answer's audio.
#[derive(Debug)]
pub(super) enum SpeechSource {
    /// Synthetic hum.
    Hummed(HumVoice),
    /// Engine speech, 24 kHz.
    Engine(Vec<f32>),
}

/// Hum for one text.
#[derive(Debug)]
pub(super) struct HumVoice {
    chars: Vec<char>,
    pitch_hz: f32,
}

impl HumVoice {
    /// Creates a hum. The voice reference determines its pitch, so that a received reference is audible.
    pub(super) fn new(text: &str, reference: Option<&[f32]>) -> Self {
        Self { chars: text.chars().collect(), pitch_hz: reference.map_or(120.0, pitch_for) }
    }

    fn sample_at(&self, at: usize) -> f32 {
        let Some(voiced) = at.checked_sub(LEAD_IN_SAMPLES) else { return 0.0 };
        let within = voiced % CHAR_SAMPLES;
        let Some(character) =
            self.chars.get(voiced / CHAR_SAMPLES).filter(|character| character.is_alphanumeric())
        else {
            return 0.0;
        };
        let (low, high) = VOWELS[*character as usize % VOWELS.len()];
        let phase = within as f32 / SAMPLE_RATE_HZ as f32 * std::f32::consts::TAU;
        let hum =
            (phase * self.pitch_hz).sin() * 0.5 + (phase * low).sin() * 0.3 + (phase * high).sin() * 0.2;
        // A raised sine over the character prevents clicks.
        let swell = (within as f32 / CHAR_SAMPLES as f32 * std::f32::consts::PI).sin();
        hum * swell * PEAK
    }
}

impl SpeechSource {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Hummed(hum) => LEAD_IN_SAMPLES + hum.chars.len() * CHAR_SAMPLES,
            Self::Engine(samples) => samples.len(),
        }
    }

    /// Renders a range of samples, clipped to the length.
    pub(super) fn samples(&self, range: Range<usize>) -> Vec<f32> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match self {
            Self::Hummed(hum) => range.map(|at| hum.sample_at(at)).collect(),
            Self::Engine(samples) => samples.get(range).unwrap_or_default().to_vec(),
        }
    }
}

/// Derives a pitch between 90 and 249 Hz from the bits of the reference.
fn pitch_for(reference: &[f32]) -> f32 {
    let hash = reference.iter().fold(17u32, |hash, sample| hash.wrapping_mul(31) ^ sample.to_bits());
    90.0 + (hash % 160) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_follows_text_and_ranges_join() {
        let sound = SpeechSource::Hummed(HumVoice::new("fourteen chars", None));
        let whole = sound.samples(0..sound.len());
        assert!(whole.len().abs_diff(SAMPLE_RATE_HZ + LEAD_IN_SAMPLES) < 20, "{}", whole.len());
        let parts = [sound.samples(0..10_000), sound.samples(10_000..usize::MAX)].concat();
        assert_eq!(parts, whole);
        assert!(whole[..LEAD_IN_SAMPLES].iter().all(|sample| *sample == 0.0));
        let peak = whole.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
        assert!((0.1..=PEAK).contains(&peak), "{peak}");
    }

    #[test]
    fn reference_changes_the_voice() {
        let plain = SpeechSource::Hummed(HumVoice::new("abc", None)).samples(0..9000);
        let cloned = SpeechSource::Hummed(HumVoice::new("abc", Some(&[0.1, 0.2]))).samples(0..9000);
        assert_ne!(plain, cloned);
    }
}
