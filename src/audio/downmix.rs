//! Mix of a recording's channels to mono: what a listener would hear.
//!
//! As a rule this is the average, as players mix. But a channel and its inverse cancel each other, and a voice on one
//! of eight channels is 18 dB softer in the average: then the average is raised, up to the sum, or gives way to the loudest
//! channel.

/// Longest block for which one mix is chosen, groups of samples: 21 ms at 48 kHz.
const BLOCK_GROUPS: usize = 1024;
/// The average may be this much softer than the loudest channel, a ratio of energies: 7 dB, as with a voice on one of two.
const SOFTER_MAX: f32 = 5.0;
/// Part of the measured energy that a block keeps, so that the mix does not change within a word.
const KEPT: f32 = 0.9;

/// The mix of one recording.
#[derive(Debug, Default)]
pub struct Downmix {
    /// Smoothed energies of the channels, and of their average.
    channels: Vec<f32>,
    average: f32,
    /// Weights of the channels at the end of the last block.
    weights: Vec<f32>,
}

impl Downmix {
    /// Replaces `mono` by the mix of interleaved samples. The number of channels may change between calls.
    pub fn mix(&mut self, interleaved: &[f32], channels: usize, mono: &mut Vec<f32>) {
        mono.clear();
        if channels <= 1 {
            return mono.extend_from_slice(interleaved);
        }
        if self.channels.len() != channels {
            *self = Self { channels: vec![0.0; channels], ..Self::default() };
        }
        interleaved.chunks(BLOCK_GROUPS * channels).for_each(|block| self.mix_block(block, mono));
    }

    fn mix_block(&mut self, block: &[f32], mono: &mut Vec<f32>) {
        let count = self.channels.len();
        let start = mono.len();
        let scale = 1.0 / count as f32;
        mono.extend(block.chunks_exact(count).map(|group| group.iter().sum::<f32>() * scale));
        self.measure(block, &mono[start..]);
        let weights = self.wanted_weights();
        let before = std::mem::replace(&mut self.weights, weights);
        let is_average = |weights: &[f32]| weights.iter().all(|weight| *weight == scale);
        if !is_average(&self.weights) || !(before.is_empty() || is_average(&before)) {
            let from = if before.is_empty() { &self.weights } else { &before };
            reweigh(block, from, &self.weights, &mut mono[start..]);
        }
    }

    /// Updates the energies with a block and its average.
    fn measure(&mut self, block: &[f32], average: &[f32]) {
        let mut energies = vec![0.0; self.channels.len()];
        for group in block.chunks_exact(energies.len()) {
            energies.iter_mut().zip(group).for_each(|(energy, sample)| *energy += sample * sample);
        }
        let groups = average.len().max(1) as f32;
        self.channels
            .iter_mut()
            .zip(energies)
            .for_each(|(smoothed, energy)| smooth(smoothed, energy / groups));
        smooth(&mut self.average, average.iter().map(|sample| sample * sample).sum::<f32>() / groups);
    }

    /// Weights of the channels that suit their energies.
    fn wanted_weights(&self) -> Vec<f32> {
        let count = self.channels.len();
        let energies = self.channels.iter().copied().enumerate();
        let (loudest, energy) = energies.max_by(|left, right| left.1.total_cmp(&right.1)).unwrap_or_default();
        let gain = (energy / SOFTER_MAX / self.average.max(f32::MIN_POSITIVE)).sqrt().max(1.0);
        if gain <= count as f32 {
            return vec![gain / count as f32; count];
        }
        (0..count).map(|at| if at == loudest { 1.0 } else { 0.0 }).collect()
    }
}

/// Follows a louder block at once, and a softer one slowly.
fn smooth(smoothed: &mut f32, energy: f32) {
    *smoothed = energy.max(*smoothed * KEPT + energy * (1.0 - KEPT));
}

/// Replaces the mix of a block by one whose weights change from one list to another.
fn reweigh(block: &[f32], from: &[f32], to: &[f32], mono: &mut [f32]) {
    let step = 1.0 / mono.len().max(1) as f32;
    for (at, (group, mixed)) in block.chunks_exact(to.len()).zip(mono).enumerate() {
        let part = at as f32 * step;
        let weighed = group.iter().zip(from.iter().zip(to));
        *mixed = weighed.map(|(sample, (from, to))| sample * (to - from).mul_add(part, *from)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One second of a voice at 16 kHz: bursts of a tone.
    fn voice(pitch: f32) -> Vec<f32> {
        (0..16_000).map(|at| if at / 3200 % 2 == 0 { (at as f32 * pitch).sin() * 0.5 } else { 0.0 }).collect()
    }

    fn mixed(channels: &[Vec<f32>], piece: usize) -> Vec<f32> {
        let interleaved: Vec<f32> =
            (0..channels[0].len()).flat_map(|at| channels.iter().map(move |channel| channel[at])).collect();
        let (mut downmix, mut mono, mut all) = (Downmix::default(), Vec::new(), Vec::new());
        for piece in interleaved.chunks(piece * channels.len()) {
            downmix.mix(piece, channels.len(), &mut mono);
            all.extend_from_slice(&mono);
        }
        all
    }

    /// Level above that of the reference, dB.
    fn level_over(samples: &[f32], reference: &[f32]) -> f32 {
        let energy = |samples: &[f32]| samples.iter().map(|sample| sample * sample).sum::<f32>();
        10.0 * (energy(samples) / energy(reference)).log10()
    }

    fn scaled(samples: &[f32], factor: f32) -> Vec<f32> {
        samples.iter().map(|sample| sample * factor).collect()
    }

    #[test]
    fn listener_hears_the_voice_wherever_it_is() {
        let (voice, other, silence) = (voice(0.2), voice(0.31), vec![0.0; 16_000]);
        let inverted = scaled(&voice, -1.0);
        let quiet = scaled(&voice, 0.1);
        let of_eight = |at: usize, voice: &Vec<f32>| {
            (0..8)
                .map(|channel| if channel == at { voice.clone() } else { silence.clone() })
                .collect::<Vec<_>>()
        };
        for (case, channels, lowest, highest) in [
            ("mono", vec![voice.clone()], 0.0, 0.0),
            ("both channels", vec![voice.clone(), voice.clone()], -0.01, 0.01),
            ("one of two", vec![silence.clone(), voice.clone()], -6.1, -5.9),
            ("two voices", vec![other.clone(), voice.clone()], -3.3, -2.7),
            ("one inverted", vec![voice.clone(), inverted.clone()], -0.2, 0.2),
            ("one inverted and softer", vec![voice.clone(), scaled(&inverted, 0.9)], -0.2, 0.2),
            ("one of eight", of_eight(6, &voice), -7.2, -6.0),
            ("a quiet one of eight", of_eight(2, &quiet), -27.2, -26.0),
            (
                "four channels with two inverted",
                vec![voice.clone(), inverted.clone(), voice.clone(), inverted],
                -0.2,
                0.2,
            ),
        ] {
            for piece in [100, 1024, 5000, 16_000] {
                let level = level_over(&mixed(&channels, piece), &voice);
                assert!((lowest..=highest).contains(&level), "{case}, pieces of {piece}: {level:.2} dB");
            }
        }
    }

    #[test]
    fn average_is_untouched_and_silence_stays_silent() {
        let (left, right) = (voice(0.2), voice(0.25));
        let average: Vec<f32> = left.iter().zip(&right).map(|(left, right)| (left + right) * 0.5).collect();
        assert_eq!(mixed(&[left, right], 1000), average);
        let silence = vec![0.0; 5000];
        assert_eq!(mixed(&[silence.clone(), silence.clone(), silence.clone()], 700), silence);
    }

    #[test]
    fn mix_changes_without_a_click() {
        // The channels begin to cancel each other where both are zero.
        let angle = |at: u16| f32::from(at % 320) / 320.0 * std::f32::consts::TAU;
        let tone: Vec<f32> = (0..16_000).map(|at| angle(at).sin() * 0.5).collect();
        let other =
            tone.iter().enumerate().map(|(at, sample)| if at < 8000 { *sample } else { -sample }).collect();
        let out = mixed(&[tone, other], 320);
        let jump = out.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
        assert!(jump < 0.03, "{jump}");
    }
}
