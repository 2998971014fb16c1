//! Coarse gate: tells whether audio at the client's rate is as quiet as the room, without resampling it.
//!
//! It works like the gate in front of the detector, on a coarse level: that of the moving average over about one sample at
//! 16 kHz. Of steady noise the average lets about as much through as the resampler's filter does, so that a hissing microphone
//! does not mask a soft voice. It is a tenth of the resampler's work.

use fearless_simd::{Level, Simd, dispatch};

use super::gate::NoiseFloor;
use crate::SPEECH_RATE_HZ;

/// Blocks per second whose levels are judged: one for each hop of the detector, about.
const BLOCKS_PER_SECOND: u32 = 62;
/// Samples that are summed in one go, so that the compiler uses vector instructions.
const LANES: usize = 16;

/// The average softens the highest sounds of speech by up to this much, so the set level counts as lower.
const DROOP_DB: f32 = 4.0;

/// Coarse gate for mono int16 of one rate. It has its own estimate of the room's noise.
#[derive(Debug)]
pub struct CoarseGate {
    block_samples: usize,
    /// Samples that are averaged: the rate as a multiple of 16 kHz, rounded.
    window: usize,
    floor: NoiseFloor,
}

impl CoarseGate {
    /// A gate for audio at `rate_hz`, Hz.
    pub fn new(rate_hz: u32) -> Self {
        Self {
            block_samples: (rate_hz / BLOCKS_PER_SECOND).max(1) as usize,
            window: ((rate_hz + SPEECH_RATE_HZ / 2) / SPEECH_RATE_HZ).max(1) as usize,
            floor: NoiseFloor::UNKNOWN,
        }
    }

    /// Judges a frame of int16 (little-endian): true if all of it is clearly softer than `gate_dbfs` or no louder than the
    /// room. In the first second, while the room is not known, only the former counts.
    pub fn is_quiet(&mut self, frame: &[u8], gate_dbfs: f32) -> bool {
        let samples = frame.as_chunks().0;
        let blocks = (samples.len() / self.block_samples).max(1);
        let mut is_quiet = true;
        for block in samples.chunks(samples.len().div_ceil(blocks).max(1)) {
            let dbfs = self.level_dbfs(block);
            is_quiet &= !self.floor.update_and_compare(dbfs) || dbfs < gate_dbfs - DROOP_DB;
        }
        is_quiet
    }

    /// Level of the moving average in dB of full scale; −∞ for digital silence.
    fn level_dbfs(&self, samples: &[[u8; 2]]) -> f32 {
        let window = self.window.min(samples.len()).max(1);
        // Each window has a loop of its own, which is many times as fast. At other rates nothing is quiet.
        let sum = dispatch!(Level::new(), simd => match window {
            1 => sum_of_squares(simd, samples, 1),
            2 => sum_of_squares(simd, samples, 2),
            3 => sum_of_squares(simd, samples, 3),
            6 => sum_of_squares(simd, samples, 6),
            _ => f32::INFINITY,
        });
        let averages = (samples.len() + 1).saturating_sub(window).max(1) as f32;
        let full_scale = 32_768.0 * window as f32;
        10.0 * (sum / averages / (full_scale * full_scale)).log10()
    }
}

/// Sum of the squares of each `window` neighbouring samples' sums.
#[inline(always)]
fn sum_of_squares<S: Simd>(_: S, samples: &[[u8; 2]], window: usize) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let mut rest = samples;
    while let Some(lanes) = rest.get(..LANES + window - 1) {
        let mut moving = [0_i32; LANES];
        for offset in 0..window {
            for (moving, sample) in moving.iter_mut().zip(&lanes[offset..]) {
                *moving += i32::from(i16::from_le_bytes(*sample));
            }
        }
        for (sum, moving) in sums.iter_mut().zip(moving) {
            *sum += (moving as f32) * (moving as f32);
        }
        rest = &rest[LANES..];
    }
    let last = rest.windows(window).map(|window| {
        let sum: i32 = window.iter().map(|sample| i32::from(i16::from_le_bytes(*sample))).sum();
        sum as f32 * sum as f32
    });
    sums.iter().sum::<f32>() + last.sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{input_converter::InputConverter, vad::rms_dbfs};

    /// A second of noise at this amplitude.
    fn noise(rate_hz: u32, amplitude: f32, seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..rate_hz).flat_map(|_| (((random.f32() - 0.5) * amplitude) as i16).to_le_bytes()).collect()
    }

    #[test]
    fn level_of_hiss_is_about_that_after_resampling() {
        for rate_hz in [22_050, 24_000, 32_000, 44_100, 48_000, 96_000] {
            let hiss = noise(rate_hz, 600.0, u64::from(rate_hz));
            let coarse_dbfs = CoarseGate::new(rate_hz).level_dbfs(hiss.as_chunks().0);
            let mut resampled = Vec::new();
            InputConverter::new(rate_hz, 1).unwrap().push(&hiss, &mut resampled);
            let right_dbfs = rms_dbfs(&resampled);
            assert!((coarse_dbfs - right_dbfs).abs() < 2.0, "{rate_hz} Hz: {coarse_dbfs}, not {right_dbfs}");
        }
    }

    #[test]
    fn room_becomes_quiet_after_a_second_and_a_click_is_heard_at_once() {
        let mut gate = CoarseGate::new(48_000);
        let room = noise(48_000, 200.0, 1);
        let quiet: Vec<bool> =
            room.chunks(1_920).cycle().take(100).map(|frame| gate.is_quiet(frame, -75.0)).collect();
        assert!(quiet[..50].iter().all(|quiet| !quiet), "the room is not known yet");
        assert!(quiet[70..].iter().all(|quiet| *quiet), "nothing stands out");
        // 100 ms in one frame, louder in the last 16 ms.
        let mut click = room[..9_600].to_vec();
        click[8_000..].copy_from_slice(&noise(48_000, 500.0, 2)[..1_600]);
        assert!(!gate.is_quiet(&click, -75.0));
        assert!(gate.is_quiet(&click, -30.0), "it is below the set level");
    }

    #[test]
    fn frames_of_any_length_are_judged() {
        let mut gate = CoarseGate::new(48_000);
        for samples in [0, 1, 2, 3, 15, 16, 17, 18, 19, 1_000] {
            gate.is_quiet(&noise(48_000, 100.0, 3)[..2 * samples], -65.0);
            let dbfs = gate.level_dbfs(vec![[0, 0x40]; samples].as_slice());
            assert!(samples == 0 || (dbfs + 6.02).abs() < 0.01, "{samples} samples: {dbfs} dBFS");
        }
        assert!(CoarseGate::new(48_000).level_dbfs(&[[0, 0]; 960]).is_infinite());
    }
}
