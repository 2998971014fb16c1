//! Automatic gain control for the microphone: raises quiet voices to a level that the model hears as speech.
//!
//! MiniCPM-o treats speech at 0.02 to 0.03 RMS as silence and only listens (mappings/notes/minicpm-o-duplex.md#level).
//! The gain follows the speech level slowly and changes linearly. It never falls below 1, so loud microphones are
//! left alone. This is neither a noise gate nor a compressor, and it adds no delay. Each output sample depends on
//! the samples before it, never on their framing.

use super::{SPEECH_RATE_HZ, pcm};

/// Length of a block. The gain is adjusted once a block, every 10 ms.
const BLOCK_SAMPLES: usize = SPEECH_RATE_HZ as usize / 100;

/// Number of speech blocks that the level is averaged over: 1.5 s, several syllables. One quiet vowel must not
/// raise the gain.
const AVERAGING_BLOCKS: f32 = 150.0;

/// Fastest rise of the gain per block: 12 dB a second. The gain reaches ×6 within the first words.
const MAX_RISE_PER_BLOCK: f32 = 1.013_911;

/// Fastest fall of the gain per block: 60 dB a second. Overload is corrected sooner than quiet speech.
const MAX_FALL_PER_BLOCK: f32 = 0.933_254_3;

/// Automatic gain control of one microphone.
///
/// ```
/// use voxbridge_audio::agc::Agc;
///
/// let mut agc = Agc::new(0.12, 8.0, 0.006);
/// let mut quiet: Vec<i16> = (0..48_000).map(|i| if i % 8 < 4 { 655 } else { -655 }).collect();
/// agc.apply(&mut quiet);
/// assert!(agc.gain() > 5.9, "0.02 was raised to 0.12");
/// ```
#[derive(Debug, Clone)]
pub struct Agc {
    target_rms: f32,
    gain_max: f32,
    floor_rms: f32,
    /// Factor applied to the last sample.
    gain: f32,
    /// Change of `gain` per sample until the end of the block.
    gain_step: f32,
    /// Value that `gain` reaches at the end of the block.
    target_gain: f32,
    /// Samples in the block so far, and the sum of their squares.
    block_samples: usize,
    block_energy: u64,
    /// Mean square of the speech so far, and the number of blocks averaged.
    speech_power: f32,
    speech_blocks: f32,
}

impl Agc {
    /// Brings speech to `target_rms` of full scale with a gain of at most `gain_max`. Blocks at or below
    /// `floor_rms` are not speech and leave the gain unchanged.
    pub const fn new(target_rms: f32, gain_max: f32, floor_rms: f32) -> Self {
        Self {
            // `max` also replaces NaN, so an invalid setting turns into the neutral value.
            target_rms: target_rms.max(0.0),
            gain_max: gain_max.max(1.0),
            floor_rms: floor_rms.max(0.0),
            gain: 1.0,
            gain_step: 0.0,
            target_gain: 1.0,
            block_samples: 0,
            block_energy: 0,
            speech_power: 0.0,
            speech_blocks: 0.0,
        }
    }

    /// Multiplies the samples by the gain in place, clipping at full scale.
    pub fn apply(&mut self, samples: &mut [i16]) {
        let mut rest = samples;
        while !rest.is_empty() {
            let taken = rest.len().min(BLOCK_SAMPLES - self.block_samples);
            let (block, after) = rest.split_at_mut(taken);
            block.iter_mut().for_each(|sample| *sample = self.apply_to_sample(*sample));
            self.block_samples += taken;
            if self.block_samples == BLOCK_SAMPLES {
                self.end_block();
            }
            rest = after;
        }
    }

    /// The current gain, 1 or more.
    pub const fn gain(&self) -> f32 {
        self.gain
    }

    fn apply_to_sample(&mut self, sample: i16) -> i16 {
        self.block_energy += u64::from(sample.unsigned_abs()).pow(2);
        self.gain += self.gain_step;
        let amplified = pcm::to_f32(sample) * self.gain;
        if amplified.abs() > 1.0 {
            // The gain drops to full scale at once, not from the next block on. This causes no jump,
            // because the sample would have been clipped.
            self.gain /= amplified.abs();
            self.target_gain = self.gain;
            self.gain_step = 0.0;
        }
        pcm::to_i16(pcm::to_f32(sample) * self.gain)
    }

    /// Ends a block: if it was speech, its level sets the gain that the next block moves towards.
    fn end_block(&mut self) {
        let power = (self.block_energy as f64 / (BLOCK_SAMPLES as f64 * 32_768.0 * 32_768.0)) as f32;
        // Rounding: the added steps miss the target slightly.
        self.gain = self.target_gain;
        (self.block_samples, self.block_energy) = (0, 0);
        if power.sqrt() > self.floor_rms {
            self.speech_blocks = (self.speech_blocks + 1.0).min(AVERAGING_BLOCKS);
            self.speech_power += (power - self.speech_power) / self.speech_blocks;
            let wanted = self.target_rms / self.speech_power.sqrt();
            self.target_gain = wanted
                .clamp(self.gain * MAX_FALL_PER_BLOCK, self.gain * MAX_RISE_PER_BLOCK)
                .clamp(1.0, self.gain_max);
        }
        self.gain_step = (self.target_gain - self.gain) / BLOCK_SAMPLES as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: usize = SPEECH_RATE_HZ as usize;

    fn test_agc() -> Agc {
        Agc::new(0.12, 8.0, 0.006)
    }

    fn rms(samples: &[i16]) -> f32 {
        let energy: f64 = samples.iter().map(|sample| f64::from(pcm::to_f32(*sample)).powi(2)).sum();
        (energy / samples.len() as f64).sqrt() as f32
    }

    /// Noise whose level swells and fades four times a second, as syllables do.
    fn speech(level: f32, samples: usize) -> Vec<i16> {
        let mut rng = fastrand::Rng::with_seed(7);
        let noise = (0..samples).map(|at| {
            let syllable = 0.6 + 0.4 * (at as f32 * std::f32::consts::TAU * 4.0 / SECOND as f32).sin();
            (rng.f32() * 2.0 - 1.0) * syllable
        });
        let noise: Vec<f32> = noise.collect();
        let power = noise.iter().map(|sample| sample * sample).sum::<f32>() / samples as f32;
        noise.iter().map(|sample| pcm::to_i16(sample * level / power.sqrt())).collect()
    }

    fn apply_to(agc: &mut Agc, mut samples: Vec<i16>) -> Vec<i16> {
        agc.apply(&mut samples);
        samples
    }

    #[test]
    fn quiet_speech_reaches_target_within_two_seconds() {
        for quiet in [0.02, 0.03, 0.06] {
            let out = apply_to(&mut test_agc(), speech(quiet, 4 * SECOND));
            let settled = rms(&out[2 * SECOND..]);
            assert!((settled - 0.12).abs() < 0.012, "{quiet} became {settled}");
        }
    }

    #[test]
    fn gain_stops_at_its_limit() {
        let mut agc = test_agc();
        let out = apply_to(&mut agc, speech(0.01, 4 * SECOND));
        assert_eq!(agc.gain(), 8.0);
        assert!((rms(&out[3 * SECOND..]) - 0.08).abs() < 0.004);
    }

    #[test]
    fn loud_speech_is_unchanged() {
        for loud in [0.13, 0.2, 0.5] {
            let samples = speech(loud, 2 * SECOND);
            // The first syllable may be quiet and raise the gain briefly.
            let out = apply_to(&mut test_agc(), samples.clone());
            assert!(out[SECOND..] == samples[SECOND..], "{loud}");
            assert!(rms(&out) < loud * 1.05);
        }
    }

    #[test]
    fn silence_keeps_the_gain() {
        let mut agc = test_agc();
        apply_to(&mut agc, speech(0.03, 4 * SECOND));
        let gain = agc.gain();
        let murmur = speech(0.003, 10 * SECOND);
        let out = apply_to(&mut agc, murmur.clone());
        assert!(
            (rms(&out) / rms(&murmur) - gain).abs() < 0.1,
            "background noise gets the gain of the speech around it"
        );
        assert_eq!(apply_to(&mut agc, vec![0; SECOND]), vec![0; SECOND]);
        assert!(
            (agc.gain() / gain - 1.0).abs() < MAX_RISE_PER_BLOCK - 1.0,
            "only the step begun by the last speech block is completed"
        );
    }

    #[test]
    fn sudden_shout_clips_only_briefly() {
        let mut agc = test_agc();
        apply_to(&mut agc, speech(0.02, 4 * SECOND));
        assert!(agc.gain() > 5.0);
        let out = apply_to(&mut agc, speech(0.25, SECOND));
        let clipped = out.iter().filter(|sample| sample.unsigned_abs() >= 32_767).count();
        assert!(clipped < SECOND / 200, "{clipped} samples were clipped");
        assert!(agc.gain() < 1.5, "{}", agc.gain());
    }

    #[test]
    fn gain_changes_without_jumps() {
        let steady = vec![1_000i16; SECOND];
        let out = apply_to(&mut test_agc(), steady);
        let steps = out.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        assert!(steps.max().unwrap_or(0) <= 1, "the gain jumped");
        assert!(out[SECOND - 1] > 3_800);
    }

    #[test]
    fn invalid_settings_never_attenuate() {
        for (target, max, floor) in [(f32::NAN, 8.0, 0.0), (0.1, f32::NAN, -1.0), (0.0, 0.0, f32::NAN)] {
            let samples = speech(0.1, SECOND);
            let out = apply_to(&mut Agc::new(target, max, floor), samples.clone());
            assert!(rms(&out) >= rms(&samples) * 0.99, "{target} {max} {floor}");
        }
    }

    /// Stretches of silence, noise at any level and full scale.
    fn any_samples() -> impl Strategy<Value = Vec<i16>> {
        let stretch =
            (prop_oneof![Just(0i16), Just(i16::MAX), 1i16..2_000, any::<i16>()], any::<u64>(), 1usize..2_000);
        prop::collection::vec(stretch, 0..8).prop_map(|stretches| {
            let noise = |(peak, seed, length): (i16, u64, usize)| {
                let mut rng = fastrand::Rng::with_seed(seed);
                let peak = peak.saturating_abs();
                (0..length).map(move |_| rng.i16(-peak..=peak)).collect::<Vec<i16>>()
            };
            stretches.into_iter().flat_map(noise).collect()
        })
    }

    proptest! {
        #![proptest_config(crate::property_config::property_config(64))]

        #[test]
        fn samples_never_wrap_or_shrink(samples in any_samples()) {
            let mut agc = test_agc();
            let out = apply_to(&mut agc, samples.clone());
            prop_assert!((1.0..=8.0).contains(&agc.gain()));
            for (before, after) in samples.iter().zip(&out) {
                prop_assert!(before.signum() == after.signum(), "{} became {}", before, after);
                prop_assert!(before.unsigned_abs() <= after.unsigned_abs().saturating_add(1));
                prop_assert!(f32::from(after.unsigned_abs()) <= f32::from(before.unsigned_abs()) * 8.0 + 0.5);
            }
        }

        #[test]
        fn framing_does_not_change_output(samples in any_samples(), frame in 1usize..700) {
            let whole = apply_to(&mut test_agc(), samples.clone());
            let (mut agc, mut pieces) = (test_agc(), samples);
            pieces.chunks_mut(frame).for_each(|piece| agc.apply(piece));
            prop_assert!(whole == pieces);
        }
    }
}
