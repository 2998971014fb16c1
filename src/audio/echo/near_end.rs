//! Detector of the user's voice during playback, by the microphone's power that the echo does not explain.
//!
//! [`Comparison`] says how much of the microphone's power is an echo. Sounds that are only an echo give the gain of the echo
//! path, and so the loudest possible echo. A sound that is clearly louder, and unlike the playback, is the user.

use super::{
    BLOCK_SIZE, blocks,
    likeness::{Comparison, Likeness, WINDOW},
};

/// Time between two comparisons.
const STEP_BLOCKS: u32 = blocks(32);
/// Samples at 8 kHz between two comparisons, and in the newest sound. The newest sound must be the user, too, so that a click
/// does not let the echo pass.
const STEP: usize = STEP_BLOCKS as usize * BLOCK_SIZE / 2;
const NEWEST: usize = 2 * STEP;
/// A sound is only an echo if at least this share of its power is explained. In rooms, 0.88 to 0.95 of an echo's power is.
const ECHO_SHARE_MIN: f32 = 0.7;
/// A sound may be the user if less than this share of its power is explained: once the echo path is known, and before.
const VOICE_SHARE_MAX: f32 = 0.6;
const VOICE_SHARE_MAX_WITHOUT_ECHO: f32 = 0.4;
/// Least power of the user's voice, relative to the loudest echo. The unexplained part of an echo has less than a fifth.
const ABOVE_ECHO: f32 = 0.6;
/// Relative power above which one comparison is enough.
const FAR_ABOVE_ECHO: f32 = 3.0;
/// Least power of the user's voice, relative to the room's noise.
const ABOVE_NOISE: f32 = 10.0;
/// Least noise, as the power of a sample.
const NOISE_MIN: f32 = 100.0;
/// Growth of the estimated noise at each comparison, so that it follows a room that gets louder.
const NOISE_GROWTH: f32 = 1.02;
/// Number of comparisons in a row that must find the user; the second applies until an echo has been heard.
const CERTAIN_AFTER: u32 = 2;
const CERTAIN_AFTER_WITHOUT_ECHO: u32 = 4;
/// Time for which the user may pause in a word.
const HOLD_BLOCKS: u32 = blocks(192);
/// Reverberation: delays after the direct sound, and the share of the power that remains.
const TAIL: [(usize, f32); 5] = [(0, 1.0), (512, 0.3), (1_024, 0.1), (1_536, 0.03), (2_048, 0.01)];
/// Weight of a comparison in the estimated gain.
const GAIN_WEIGHT: f32 = 0.2;

/// Gain of the echo's path, and its delay.
#[derive(Debug, Clone, Copy)]
struct EchoPath {
    gain: f32,
    delay: usize,
}

/// Detector of the user's voice in a microphone with an echo.
#[derive(Debug, Default)]
pub(super) struct NearEnd {
    comparison: Comparison,
    blocks: u32,
    noise: Option<f32>,
    path: Option<EchoPath>,
    /// Number of comparisons in a row that found the user.
    found: u32,
    /// Number of blocks for which the user still counts as speaking.
    hold: u32,
}

impl NearEnd {
    /// Takes a block. Returns true while the user speaks.
    pub(super) fn push(&mut self, heard: &[i16], played: &[i16]) -> bool {
        self.comparison.push(heard, played);
        self.hold = self.hold.saturating_sub(1);
        self.blocks += 1;
        if self.blocks >= STEP_BLOCKS {
            self.blocks = 0;
            self.compare();
        }
        self.hold > 0
    }

    fn compare(&mut self) {
        let newest = self.comparison.heard_power(STEP);
        let noise = self.noise.map_or(newest, |noise| (noise * NOISE_GROWTH).min(newest)).max(NOISE_MIN);
        self.noise = Some(noise);
        let heard = self.comparison.heard_power(WINDOW);
        if heard < ABOVE_NOISE * noise {
            self.found = 0;
            return;
        }
        let likeness = self.likeness();
        if likeness.share > ECHO_SHARE_MIN {
            self.learn(likeness, heard);
        }
        let voice = (1.0 - likeness.share) * heard;
        let echo_max = self.echo_max(WINDOW);
        let is_loud_still = self.comparison.heard_power(NEWEST) > ABOVE_ECHO * self.echo_max(NEWEST);
        let (share_max, certain_after) = match self.path {
            Some(_) => (VOICE_SHARE_MAX, CERTAIN_AFTER),
            None => (VOICE_SHARE_MAX_WITHOUT_ECHO, CERTAIN_AFTER_WITHOUT_ECHO),
        };
        let is_voice = likeness.share < share_max
            && voice > ABOVE_NOISE * noise
            && voice > ABOVE_ECHO * echo_max
            && is_loud_still;
        let step = if self.path.is_some() && voice > FAR_ABOVE_ECHO * echo_max { CERTAIN_AFTER } else { 1 };
        self.found = if is_voice { self.found + step } else { 0 };
        if self.found >= certain_after {
            self.hold = HOLD_BLOCKS;
        }
    }

    /// The likeness at the likeliest delay, or at the known one.
    fn likeness(&mut self) -> Likeness {
        let found = self.comparison.measure();
        let Some(EchoPath { delay, .. }) = self.path else { return found };
        let known = Likeness { delay, share: self.comparison.echo_share(delay) };
        if known.share > found.share { known } else { found }
    }

    /// Updates the echo path from a sound that is only an echo.
    fn learn(&mut self, Likeness { delay, share }: Likeness, heard: f32) {
        let played = self.comparison.played_power(delay, WINDOW);
        if played < NOISE_MIN {
            return;
        }
        let gain = share * heard / played;
        let known = self.path.map_or(gain, |path| path.gain);
        self.path = Some(EchoPath { gain: known + GAIN_WEIGHT * (gain - known), delay });
    }

    /// Greatest power of an echo in the newest `samples`.
    fn echo_max(&self, samples: usize) -> f32 {
        let Some(EchoPath { gain, delay }) = self.path else { return 0.0 };
        let powers =
            TAIL.iter().map(|(later, left)| left * self.comparison.played_power(delay + later, samples));
        gain * powers.fold(0.0, f32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: usize = 16 * 120;

    fn noise(samples: usize, amplitude: i16, seed: u64) -> Vec<i16> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..samples).map(|_| random.i16(-amplitude..=amplitude)).collect()
    }

    /// When the user counts as speaking, ms. The room gives back a tenth of what is played from the start on, and the user speaks
    /// with this amplitude from the first to the second instant, ms.
    fn speaking_ms(amplitude: i16, from_ms: usize, to_ms: usize) -> Vec<usize> {
        let played = noise(16 * 4_000, 9_000, 1);
        let (room, voice) = (noise(played.len(), 20, 2), noise(played.len(), amplitude, 3));
        let heard: Vec<i16> = (0..played.len())
            .map(|at| {
                let echo = at.checked_sub(DELAY).map_or(0, |at| played[at] / 10);
                let voice = if (16 * from_ms..16 * to_ms).contains(&at) { voice[at] } else { 0 };
                echo + room[at] + voice
            })
            .collect();
        let mut near_end = NearEnd::default();
        let blocks = heard.chunks_exact(BLOCK_SIZE).zip(played.chunks_exact(BLOCK_SIZE));
        let is_near = blocks.map(|(heard, played)| near_end.push(heard, played));
        is_near
            .enumerate()
            .filter(|(_, is_near)| *is_near)
            .map(|(block, _)| block * BLOCK_SIZE / 16)
            .collect()
    }

    #[test]
    fn echo_alone_is_not_the_user() {
        assert!(speaking_ms(0, 0, 0).is_empty());
    }

    #[test]
    fn voice_above_the_echo_is_found_from_the_first_second_on() {
        for from_ms in [500, 1_000, 2_500] {
            for amplitude in [3_000, 9_000] {
                let found = speaking_ms(amplitude, from_ms, from_ms + 600);
                let (first, last) = (found[0], found[found.len() - 1]);
                assert!((from_ms..from_ms + 160).contains(&first), "{first} ms for {from_ms} ms");
                assert!((from_ms + 600..from_ms + 1_200).contains(&last), "{last} ms for {from_ms} ms");
            }
        }
    }

    #[test]
    fn voice_far_below_the_echo_is_not_found() {
        assert!(speaking_ms(100, 1_000, 3_000).is_empty());
    }
}
