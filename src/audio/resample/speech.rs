//! Speech from 16 kHz to 24 kHz, at less than half of the instructions that [`super::Resampler`] takes for it.
//!
//! Two samples become three: the first of them as it is, and two between the samples, by a windowed sinc of [`TAPS`] samples. It is
//! flat to 6.8 kHz, and mirrors less than a thousandth of what is below. What is above leaves a weaker image between 8 and 9.2 kHz,
//! which a model of speech at 16 kHz does not hear.

use std::{f64::consts::PI, sync::LazyLock};

use fearless_simd::{Level, Simd, dispatch, i16x16, i32x8, prelude::*};

use super::{OutputSample, engine::bessel_i0, resampled_len};

/// Rate of the input, Hz.
const FROM_HZ: u32 = crate::SPEECH_RATE_HZ;
/// Rate of the output, Hz.
pub const TO_HZ: u32 = 24_000;

/// Input samples on each side of an output sample. Even, because samples are taken in pairs.
const SIDE: usize = 12;
const TAPS: usize = 2 * SIDE;

/// Bits of a tap behind the binary point: the sum of products fits into 32 bits even if every sample is as loud as can be.
const TAP_BITS: u32 = 14;

/// Shape of the Kaiser window for 60 dB (see `engine::filter_taps`).
const SHAPE: f64 = 0.1102 * (60.0 - 8.7);

/// Pairs of input samples in a vector, vectors in a block, and input samples of a block with those around it.
const LANES: usize = 8;
const VECTORS: usize = 4;
const PAIRS: usize = LANES * VECTORS;
const WINDOW: usize = 2 * PAIRS + TAPS + 2;

/// Taps of an output sample in pairs, each pair in all lanes.
type TapPairs = [[i16; 2 * LANES]; SIDE];

/// Taps of the two samples between two input samples.
static BETWEEN: LazyLock<[TapPairs; 2]> = LazyLock::new(|| [tap_pairs(2.0 / 3.0), tap_pairs(1.0 / 3.0)]);

/// Converter of one stream of speech.
#[derive(Debug, Clone)]
pub struct SpeechUpsampler {
    /// Input samples whose output is not complete, behind [`SIDE`] samples before them.
    tail: Vec<i16>,
}

impl SpeechUpsampler {
    /// Input samples whose output waits for the next ones, in a stream that is aligned.
    pub const HELD_SAMPLES: usize = SIDE;

    /// A converter whose output begins with the audio itself.
    #[must_use]
    pub fn aligned() -> Self {
        Self { tail: vec![0; SIDE] }
    }

    /// A converter whose output begins with the filter's delay, so that an even number of samples gives all of its output at once.
    #[must_use]
    pub fn with_lead_in() -> Self {
        Self { tail: vec![0; TAPS] }
    }

    /// Takes samples in, and appends the output that is ready to `sink`.
    pub fn push<S: OutputSample>(&mut self, samples: &[i16], sink: &mut Vec<S>) {
        let len = self.tail.len() + samples.len();
        let pairs = len.saturating_sub(TAPS) / 2;
        let blocks = pairs.div_ceil(PAIRS);
        let mut input = Vec::with_capacity(len.max(2 * PAIRS * blocks + WINDOW));
        input.extend_from_slice(&self.tail);
        input.extend_from_slice(samples);
        self.tail.clear();
        self.tail.extend_from_slice(&input[2 * pairs..]);
        input.resize(input.capacity(), 0);
        let end = sink.len() + 3 * pairs;
        sink.reserve(3 * PAIRS * blocks);
        dispatch!(Level::new(), simd => convert(simd, &BETWEEN, &input, blocks, sink));
        sink.truncate(end);
    }

    /// Speech as a whole.
    #[must_use]
    pub fn convert_all(samples: &[i16]) -> Vec<i16> {
        let (mut converter, mut converted) = (Self::aligned(), Vec::new());
        converter.push(samples, &mut converted);
        converter.push(&[0; SIDE + 1], &mut converted);
        converted.truncate(resampled_len(samples.len() as u64, FROM_HZ, TO_HZ) as usize);
        converted
    }
}

/// Appends the output of this number of blocks to `sink`.
#[inline(always)]
fn convert<S: Simd, T: OutputSample>(
    simd: S,
    between: &[TapPairs; 2],
    input: &[i16],
    blocks: usize,
    sink: &mut Vec<T>,
) {
    for block in 0..blocks {
        let Some(window) = input[2 * PAIRS * block..].first_chunk::<WINDOW>() else { return };
        let second = filter(simd, &between[0], window, 1);
        let third = filter(simd, &between[1], window, 2);
        let mut three = [0; 3 * PAIRS];
        for (at, three) in three.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            *three = [window[SIDE + 2 * at], second[at], third[at]];
        }
        sink.extend(three.iter().map(|sample| T::from_s16(*sample)));
    }
}

/// One output sample for each pair of a window, whose first taps stand at `from`.
#[inline(always)]
fn filter<S: Simd>(simd: S, taps: &TapPairs, window: &[i16; WINDOW], from: usize) -> [i16; PAIRS] {
    let mut sums = [i32x8::splat(simd, 1 << (TAP_BITS - 1)); VECTORS];
    for (at, taps) in taps.iter().enumerate() {
        let taps = i16x16::load_array_ref(simd, taps);
        for (vector, sum) in sums.iter_mut().enumerate() {
            let begin = from + 2 * at + 2 * LANES * vector;
            let samples = i16x16::from_slice(simd, &window[begin..][..2 * LANES]);
            *sum += samples.pairwise_dot_product(taps);
        }
    }
    let mut filtered = [0; PAIRS];
    for (filtered, sum) in filtered.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
        let clipped = |sum: i32| (sum >> TAP_BITS).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        *filtered = sum.to_array().map(clipped);
    }
    filtered
}

/// Taps of an output sample at this fraction of the way from an input sample to the next, from [`SIDE`] − 1 samples before it.
fn tap_pairs(fraction: f64) -> TapPairs {
    let tap = |at: usize| {
        let distance = fraction + (SIDE as f64 - 1.0) - at as f64;
        let place = 1.0 - (distance / SIDE as f64).powi(2);
        let window = bessel_i0(SHAPE * place.max(0.0).sqrt());
        (PI * distance).sin() / (PI * distance) * window
    };
    let sum: f64 = (0..TAPS).map(tap).sum();
    let rounded = |at: usize| (tap(at) / sum * f64::from(1 << TAP_BITS)).round() as i16;
    std::array::from_fn(|pair| std::array::from_fn(|lane| rounded(2 * pair + lane % 2)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pcm;

    fn sine(hz: f64, rate_hz: u32, samples: usize) -> Vec<f64> {
        (0..samples).map(|at| 16_000.0 * (2.0 * PI * hz * at as f64 / f64::from(rate_hz)).sin()).collect()
    }

    fn rounded(samples: &[f64]) -> Vec<i16> {
        samples.iter().map(|sample| sample.round() as i16).collect()
    }

    #[test]
    fn speech_is_the_same_at_the_other_rate() {
        for (hz, error_db) in
            [(100.0, -60.0), (1000.0, -60.0), (3000.0, -60.0), (5000.0, -60.0), (6500.0, -55.0)]
        {
            let converted = SpeechUpsampler::convert_all(&rounded(&sine(hz, FROM_HZ, 8000)));
            let expected = sine(hz, TO_HZ, 12_000);
            let inner = 100..11_900;
            let power: f64 = expected[inner.clone()].iter().map(|sample| sample.powi(2)).sum();
            let error: f64 = inner.map(|at| (f64::from(converted[at]) - expected[at]).powi(2)).sum();
            let db = 10.0 * (error / power).log10();
            assert!(db < error_db, "{hz} Hz: {db:.1} dB");
        }
    }

    #[test]
    fn loudest_audio_is_clipped_and_silence_stays() {
        let square: Vec<i16> = (0..800).map(|at| if at % 40 < 20 { i16::MAX } else { i16::MIN }).collect();
        let converted = SpeechUpsampler::convert_all(&square);
        for (at, sample) in converted.iter().enumerate().filter(|(at, _)| (3..27).contains(&(at % 30))) {
            let is_high = at % 60 < 30;
            assert!(if is_high { *sample > 25_000 } else { *sample < -25_000 }, "{sample} at {at}");
        }
        assert_eq!(SpeechUpsampler::convert_all(&[0; 999]), [0; 1499]);
    }

    #[test]
    fn lead_in_lets_each_unit_out_whole() {
        let audio: Vec<i16> = (0..1280).map(|at| (at * 97 % 20_011) as i16 - 10_000).collect();
        let (mut live, mut converted) = (SpeechUpsampler::with_lead_in(), Vec::<i16>::new());
        live.push(&audio, &mut converted);
        assert_eq!(converted.len(), 1920);
        let lead_in = 3 * SIDE / 2;
        assert_eq!(converted[lead_in..], SpeechUpsampler::convert_all(&audio)[..1920 - lead_in]);
        let mut floats = Vec::<f32>::new();
        SpeechUpsampler::with_lead_in().push(&audio, &mut floats);
        assert_eq!(floats.iter().map(|sample| pcm::to_i16(*sample)).collect::<Vec<_>>(), converted);
    }

    proptest! {
        #![proptest_config(crate::property_config::property_config(64))]

        #[test]
        fn framing_changes_nothing(audio in prop::collection::vec(any::<i16>(), 0..2000), cuts in prop::collection::vec(1usize..300, 1..20)) {
            let (mut converter, mut converted) = (SpeechUpsampler::aligned(), Vec::<i16>::new());
            let (mut rest, mut cuts) = (&audio[..], cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (frame, later) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                converter.push(frame, &mut converted);
                rest = later;
            }
            let whole = SpeechUpsampler::convert_all(&audio);
            prop_assert_eq!(converted.len(), audio.len().saturating_sub(SIDE) / 2 * 3);
            prop_assert!(converted == whole[..converted.len()]);
            prop_assert_eq!(whole.len(), (audio.len() * 3).div_ceil(2));
        }
    }
}
