//! Likeness of the microphone to the playback: the share of its power that is an echo, at an unknown delay.
//!
//! Both signals are compared at 8 kHz, with their spectrum flattened. A correlation over all delays finds the likeliest one.
//! Coherence at that delay (Welch's method) is the share of the microphone's power that comes from the loudspeaker, for any
//! effect of the room that is shorter than [`FRAME`].

use std::{f32::consts::PI, sync::Arc};

use rustfft::{Fft, FftPlanner, num_complex::Complex32};

/// Number of compared samples at 8 kHz: 192 ms of the microphone.
pub(super) const WINDOW: usize = 1_536;
/// Number of played samples to search. The difference to [`WINDOW`] is the longest delay: 0.83 s.
const SPAN: usize = 8_192;
/// Samples in one frame of the coherence estimate.
const FRAME: usize = 256;
const FRAME_STEP: usize = FRAME / 2;
/// Coherence that unrelated signals have by chance.
const CHANCE: f32 = 0.2;
/// Share of the previous sample that the flattening removes.
const FLATTENING: f32 = 0.9;

/// Result of comparing the newest audio.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Likeness {
    /// Delay of the echo, samples at 8 kHz.
    pub(super) delay: usize,
    /// Share of the microphone's power that is an echo, 0 to 1.
    pub(super) share: f32,
}

/// Newest audio of the microphone and of the loudspeaker.
pub(super) struct Comparison {
    /// The real part is the playback, the imaginary part the microphone. Oldest first; only the last [`SPAN`] samples count.
    signals: Vec<Complex32>,
    last: [f32; 2],
    spectrum: Vec<Complex32>,
    scratch: Vec<Complex32>,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    frame: Arc<dyn Fft<f32>>,
    window: [f32; FRAME],
}

impl std::fmt::Debug for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Comparison").finish_non_exhaustive()
    }
}

impl Default for Comparison {
    fn default() -> Self {
        let mut planner = FftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(SPAN), planner.plan_fft_inverse(SPAN));
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Self {
            signals: vec![Complex32::ZERO; SPAN],
            last: [0.0; 2],
            spectrum: vec![Complex32::ZERO; SPAN],
            scratch: vec![Complex32::ZERO; scratch],
            frame: planner.plan_fft_forward(FRAME),
            window: std::array::from_fn(|at| (PI * at as f32 / FRAME as f32).sin().powi(2)),
            forward,
            inverse,
        }
    }
}

impl Comparison {
    /// Takes a block of both signals.
    pub(super) fn push(&mut self, heard: &[i16], played: &[i16]) {
        if self.signals.len() >= SPAN + WINDOW {
            self.signals.drain(..WINDOW);
        }
        for (heard, played) in heard.as_chunks::<2>().0.iter().zip(played.as_chunks::<2>().0) {
            let [played, heard] = [played, heard].map(|pair| f32::midpoint(pair[0].into(), pair[1].into()));
            let flat = [played - FLATTENING * self.last[0], heard - FLATTENING * self.last[1]];
            self.last = [played, heard];
            self.signals.push(Complex32::new(flat[0], flat[1]));
        }
    }

    fn newest(&self) -> &[Complex32] {
        &self.signals[self.signals.len() - SPAN..]
    }

    /// Mean power of the microphone's newest `samples`.
    pub(super) fn heard_power(&self, samples: usize) -> f32 {
        let power: f32 = self.newest()[SPAN - samples..].iter().map(|pair| pair.im * pair.im).sum();
        power / samples as f32
    }

    /// Mean power of the playback this long before the newest `samples`.
    pub(super) fn played_power(&self, delay: usize, samples: usize) -> f32 {
        let end = SPAN.saturating_sub(delay);
        let power: f32 =
            self.newest()[end.saturating_sub(samples)..end].iter().map(|pair| pair.re * pair.re).sum();
        power / samples as f32
    }

    /// Compares the newest [`WINDOW`] with the whole kept playback.
    pub(super) fn measure(&mut self) -> Likeness {
        let delay = self.likeliest_delay();
        Likeness { delay, share: self.echo_share(delay) }
    }

    /// The delay at which the normalised correlation is greatest.
    fn likeliest_delay(&mut self) -> usize {
        self.correlate();
        let signals = self.newest();
        let mut power: f32 = signals[..WINDOW].iter().map(|pair| pair.re * pair.re).sum();
        let (mut best, mut start) = (0.0, SPAN - WINDOW);
        let places = self.spectrum.iter().zip(signals).take(SPAN - WINDOW + 1);
        for (at, (correlation, oldest)) in places.enumerate() {
            let likeness = correlation.re.powi(2) / power.max(WINDOW as f32);
            if likeness > best {
                (best, start) = (likeness, at);
            }
            let next = signals.get(at + WINDOW).map_or(0.0, |next| next.re.powi(2));
            power += next - oldest.re.powi(2);
        }
        SPAN - WINDOW - start
    }

    /// Leaves in `spectrum[n].re` the correlation of the window with the playback from `n` on.
    fn correlate(&mut self) {
        let signals = &self.signals[self.signals.len() - SPAN..];
        for (at, (to, from)) in self.spectrum.iter_mut().zip(signals).enumerate() {
            let heard = if at < WINDOW { signals[SPAN - WINDOW + at].im } else { 0.0 };
            *to = Complex32::new(from.re, heard);
        }
        self.forward.process_with_scratch(&mut self.spectrum, &mut self.scratch);
        for low in 0..=SPAN / 2 {
            let high = (SPAN - low) % SPAN;
            let (one, other) = (self.spectrum[low], self.spectrum[high].conj());
            // Spectra of two real signals, and a product whose inverse is real.
            let (played, heard) = ((one + other) * 0.5, (one - other) * Complex32::new(0.0, -0.5));
            let product = played * heard.conj();
            self.spectrum[low] = product;
            self.spectrum[high] = product.conj();
        }
        self.inverse.process_with_scratch(&mut self.spectrum, &mut self.scratch);
        let scale = 1.0 / SPAN as f32;
        self.spectrum.iter_mut().for_each(|value| *value *= scale);
    }

    /// Share of the newest [`WINDOW`]'s power that comes from the playback this long before.
    pub(super) fn echo_share(&mut self, delay: usize) -> f32 {
        let (mut played_power, mut heard_power) = ([1.0_f32; FRAME / 2], [1.0_f32; FRAME / 2]);
        let mut common = [Complex32::ZERO; FRAME / 2];
        let signals = &self.signals[self.signals.len() - SPAN..];
        for start in (SPAN - WINDOW..=SPAN - FRAME).step_by(FRAME_STEP) {
            let mut frame = [Complex32::ZERO; FRAME];
            for (at, to) in frame.iter_mut().enumerate() {
                let played = (start + at).checked_sub(delay).map_or(0.0, |at| signals[at].re);
                *to = Complex32::new(played, signals[start + at].im) * self.window[at];
            }
            self.frame.process_with_scratch(&mut frame, &mut self.scratch);
            for line in 1..FRAME / 2 {
                let (one, other) = (frame[line], frame[FRAME - line].conj());
                let (played, heard) = ((one + other) * 0.5, (one - other) * Complex32::new(0.0, -0.5));
                played_power[line] += played.norm_sqr();
                heard_power[line] += heard.norm_sqr();
                common[line] += heard * played.conj();
            }
        }
        let lines = common.iter().zip(&played_power).map(|(common, played)| common.norm_sqr() / played);
        let share = lines.sum::<f32>() / heard_power.iter().sum::<f32>();
        ((share - CHANCE) / (1.0 - CHANCE)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use sonora_aec3::common::BLOCK_SIZE;

    use super::*;

    fn noise(samples: usize, seed: u64) -> Vec<i16> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..samples).map(|_| random.i16(-9_000..=9_000)).collect()
    }

    fn compared(played: &[i16], heard: &[i16]) -> Comparison {
        let mut comparison = Comparison::default();
        for (played, heard) in played.chunks_exact(BLOCK_SIZE).zip(heard.chunks_exact(BLOCK_SIZE)) {
            comparison.push(heard, played);
        }
        comparison
    }

    #[test]
    fn delay_and_share_of_an_echo_are_found() {
        let (played, voice) = (noise(16_000, 1), noise(16_000, 2));
        for delay_ms in [0, 20, 250, 800] {
            let echo = |at: usize| at.checked_sub(16 * delay_ms).map_or(0, |at| played[at] / 2);
            let alone: Vec<i16> = (0..16_000).map(echo).collect();
            let found = compared(&played, &alone).measure();
            assert!(found.delay.abs_diff(8 * delay_ms) <= 1 && found.share > 0.9, "{delay_ms} ms: {found:?}");
            let half: Vec<i16> = (0..16_000).map(|at| echo(at) + voice[at] / 2).collect();
            let found = compared(&played, &half).measure();
            assert!((0.2..0.8).contains(&found.share), "{delay_ms} ms: {found:?}");
        }
        let found = compared(&played, &voice).measure();
        assert!(found.share < 0.15, "{found:?}");
    }
}
