//! Tests of the conversion quality, and of independence from framing.

use super::*;
use proptest::prelude::*;
use std::f64::consts::TAU;

fn tone(hz: f64, rate_hz: u32, len: usize) -> Vec<f32> {
    (0..len).map(|i| (0.5 * (TAU * hz * i as f64 / f64::from(rate_hz)).sin()) as f32).collect()
}

fn convert(samples: &[f32], from_hz: u32, to_hz: u32) -> Vec<f32> {
    let mut resampler = Resampler::new(from_hz, to_hz).unwrap();
    let mut out = Vec::new();
    resampler.push(samples, &mut out);
    resampler.flush(&mut out);
    out
}

fn rms(samples: &[f64]) -> f64 {
    (samples.iter().map(|s| s * s).sum::<f64>() / samples.len() as f64).sqrt()
}

/// Level of everything but the tone in dB, relative to the tone: least squares over the middle of the output.
fn noise_db(out: &[f32], hz: f64, rate_hz: u32) -> f64 {
    let middle = out.len() / 4..out.len() * 3 / 4;
    let (mut ss, mut sc, mut cc, mut sx, mut cx) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let basis = |i: usize| (TAU * hz * i as f64 / f64::from(rate_hz)).sin_cos();
    for i in middle.clone() {
        let ((s, c), x) = (basis(i), f64::from(out[i]));
        (ss, sc, cc, sx, cx) = (ss + s * s, sc + s * c, cc + c * c, sx + s * x, cx + c * x);
    }
    let determinant = ss * cc - sc * sc;
    let (a, b) = ((sx * cc - cx * sc) / determinant, (cx * ss - sx * sc) / determinant);
    let rest: Vec<f64> = middle.map(|i| f64::from(out[i]) - a * basis(i).0 - b * basis(i).1).collect();
    assert!((a.hypot(b) / 0.5 - 1.0).abs() < 0.02, "{hz} Hz comes out at {}", a.hypot(b));
    20.0 * (rms(&rest) / a.hypot(b)).log10()
}

#[test]
fn in_band_tones_stay_clean() {
    let pairs = [
        (48_000, 16_000, 7_000.0),
        (44_100, 16_000, 7_000.0),
        (24_000, 16_000, 7_000.0),
        (8_000, 16_000, 3_400.0),
        (22_050, 16_000, 7_000.0),
        (11_025, 16_000, 4_800.0),
        (12_345, 16_000, 5_200.0),
        (16_000, 24_000, 7_000.0),
        (24_000, 48_000, 10_000.0),
        (24_000, 44_100, 10_000.0),
        (24_000, 8_000, 3_400.0),
    ];
    for (from_hz, to_hz, top_hz) in pairs {
        let worst = (0..12)
            .map(|step| 100.0 + f64::from(step) / 11.0 * (top_hz - 100.0))
            .map(|hz| noise_db(&convert(&tone(hz, from_hz, from_hz as usize / 2), from_hz, to_hz), hz, to_hz))
            .fold(f64::MIN, f64::max);
        println!("{from_hz} -> {to_hz}: in band up to {top_hz} Hz: {:.1} dB", -worst);
        assert!(worst < -120.0, "{from_hz} -> {to_hz}: {worst} dB");
    }
}

#[test]
fn tones_above_the_band_are_rejected() {
    for (from_hz, to_hz) in
        [(48_000, 16_000), (44_100, 16_000), (24_000, 16_000), (47_999, 16_000), (24_000, 8_000)]
    {
        let (low, high) = (f64::from(to_hz) / 2.0 + 50.0, f64::from(from_hz) / 2.0 - 50.0);
        let worst = (0..24)
            .map(|step| low + f64::from(step) / 23.0 * (high - low))
            .map(|hz| {
                let out = convert(&tone(hz, from_hz, from_hz as usize / 2), from_hz, to_hz);
                let middle = &out[out.len() / 4..out.len() * 3 / 4];
                let middle: Vec<f64> = middle.iter().map(|s| f64::from(*s)).collect();
                20.0 * (rms(&middle) / (0.5 / 2f64.sqrt())).log10()
            })
            .fold(f64::MIN, f64::max);
        println!("{from_hz} -> {to_hz}: alias rejection {:.1} dB", -worst);
        assert!(worst < -120.0, "{from_hz} -> {to_hz}: {worst} dB");
    }
}

#[test]
fn output_is_aligned_with_the_input() {
    for from_hz in [48_000, 44_100, 32_000, 24_000, 22_050, 11_025, 8_000] {
        let out = convert(&tone(440.0, from_hz, from_hz as usize / 2), from_hz, 16_000);
        let expected = tone(440.0, 16_000, 8_000);
        let worst = (1_000..7_000).map(|i| (out[i] - expected[i]).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{from_hz} Hz: off by {worst}, so the delay is not dropped");
    }
}

#[test]
fn live_audio_comes_out_with_its_last_whole_chunk() {
    for (from_hz, frame, lead_in) in
        [(48_000, 960, 80), (24_000, 480, 80), (8_000, 160, 160), (44_100, 882, 80)]
    {
        let clip = tone(440.0, from_hz, 50 * frame);
        let mut resampler = Resampler::with_lead_in(from_hz, 16_000).unwrap();
        for stretch in 1..3 {
            let mut out = Vec::<f32>::new();
            for (count, frame) in (1..).zip(clip.chunks(frame)) {
                resampler.push(frame, &mut out);
                assert_eq!(out.len(), 320 * count, "{from_hz} Hz");
            }
            resampler.flush(&mut out);
            assert_eq!((out.len(), resampler.lead_in_samples), (16_000 + lead_in, lead_in as u64 * stretch));
            let aligned = convert(&clip, from_hz, 16_000);
            assert!(difference(&out[lead_in..], &aligned) < ROUNDING, "the lead-in is all that differs");
        }
    }
}

#[test]
fn flush_leaves_nothing_behind() {
    let mut resampler = Resampler::new(44_100, 16_000).unwrap();
    let clip = tone(300.0, 44_100, 10_000);
    let (mut first, mut second) = (Vec::<f32>::new(), Vec::<f32>::new());
    resampler.push(&clip, &mut first);
    assert!(resampler.pending_samples() > 0);
    resampler.flush(&mut first);
    assert_eq!(resampler.pending_samples(), 0);
    resampler.flush(&mut second);
    assert!(second.is_empty(), "an empty stretch gives no samples");
    resampler.push(&clip, &mut second);
    resampler.flush(&mut second);
    assert_eq!(first, second, "a stretch does not depend on the one before");
}

#[test]
fn non_finite_samples_do_not_spread() {
    for from_hz in [44_100, 12_345, 24_000] {
        let mut clip = tone(440.0, from_hz, from_hz as usize);
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN];
        clip[100..105].copy_from_slice(&odd);
        let out = convert(&clip, from_hz, 16_000);
        assert_eq!(out.len(), 16_000);
        assert!(out.iter().all(|sample| sample.is_finite()), "{from_hz}");
    }
}

#[test]
fn rates_out_of_range_are_rejected() {
    for rate in [0, 7_999, 192_001, u32::MAX] {
        assert_eq!(Resampler::new(rate, 16_000).unwrap_err(), UnsupportedRate { actual: rate });
        assert_eq!(Resampler::new(16_000, rate).unwrap_err(), UnsupportedRate { actual: rate });
    }
}

#[test]
fn sink_with_room_for_one_chunk_never_grows() {
    let mut resampler = Resampler::new(48_000, 16_000).unwrap();
    let mut out = Vec::<f32>::with_capacity(1_000);
    for _ in 0..100 {
        resampler.push(&[0.25; 960], &mut out);
        assert_eq!(out.capacity(), 1_000);
        out.clear();
    }
}

/// Rounding error of float32: 120 dB below full scale. int16 ends at 90 dB.
const ROUNDING: f32 = 1e-6;

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Overlap-add by its definition, chunk by chunk, with discrete Fourier transforms written out as sums in float64: what
/// rubato's `Fft` computes, with its delay.
fn overlap_add(clip: &[f32], chunk_in: usize, chunk_out: usize) -> Vec<f64> {
    let taps: Vec<_> = engine::filter_taps(chunk_in, chunk_out).map(f64::from).collect();
    let turn = |bin: usize, at: usize, len: usize| (TAU * (bin * at % len) as f64 / len as f64).sin_cos();
    let bins = chunk_in.min(chunk_out);
    let spectrum = |samples: &[f64]| -> Vec<(f64, f64)> {
        let bin = |bin| {
            samples.iter().enumerate().fold((0.0, 0.0), |(re, im), (at, sample)| {
                let (sin, cos) = turn(bin, at, 2 * chunk_in);
                (re + sample * cos, im - sample * sin)
            })
        };
        (0..bins).map(bin).collect()
    };
    let filter = spectrum(&taps);
    let mut out = vec![0.0; clip.len() / chunk_in * chunk_out + chunk_out];
    for (number, chunk) in clip.chunks_exact(chunk_in).enumerate() {
        let chunk: Vec<_> = chunk.iter().map(|sample| f64::from(*sample)).collect();
        let lines = spectrum(&chunk).into_iter().zip(&filter);
        let product: Vec<_> = lines.map(|((a, b), (c, d))| (a * c - b * d, a * d + b * c)).collect();
        for (at, sum) in out[number * chunk_out..][..2 * chunk_out].iter_mut().enumerate() {
            for (bin, (re, im)) in product.iter().enumerate() {
                let (sin, cos) = turn(bin, at, 2 * chunk_out);
                let sides = if bin == 0 { 1.0 } else { 2.0 };
                *sum += sides * (re * cos - im * sin) / (2 * chunk_in) as f64;
            }
        }
    }
    out
}

#[test]
fn output_matches_the_definition() {
    let mut random = fastrand::Rng::with_seed(5);
    for (from_hz, to_hz) in
        [(48_000, 16_000), (44_100, 16_000), (8_000, 16_000), (24_000, 48_000), (24_000, 44_100)]
    {
        let chunk_in = engine::overlap_save_chunk(from_hz, to_hz).unwrap();
        let chunk_out = chunk_in * to_hz as usize / from_hz as usize;
        let clip: Vec<f32> = (0..7 * chunk_in).map(|_| random.f32() - 0.5).collect();
        let expected: Vec<f32> =
            overlap_add(&clip, chunk_in, chunk_out).into_iter().map(|sample| sample as f32).collect();
        let (mut resampler, mut out) = (Resampler::new(from_hz, to_hz).unwrap(), Vec::new());
        clip.chunks(3 * chunk_in).for_each(|frame| resampler.push(frame, &mut out));
        let expected = &expected[chunk_out / 2..7 * chunk_out];
        let worst = difference(&out, expected);
        println!("{from_hz} -> {to_hz}: {worst}");
        assert!(worst < 2.0 * ROUNDING, "{from_hz} -> {to_hz}: {worst}");
    }
}

proptest! {
    #![proptest_config(crate::property_config::property_config(48))]

    #[test]
    fn framing_changes_output_by_rounding_only(
        from_hz in prop::sample::select(vec![8_000, 11_025, 12_345, 16_000, 24_000, 44_100, 48_000]),
        frames in prop::collection::vec(0usize..3_000, 1..12),
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let clip: Vec<f32> = (0..frames.iter().sum()).map(|_| random.f32() - 0.5).collect();
        let whole = convert(&clip, from_hz, 16_000);
        let mut resampler = Resampler::new(from_hz, 16_000).unwrap();
        let (mut out, mut rest) = (Vec::new(), &clip[..]);
        for frame in frames {
            let (head, tail) = rest.split_at(frame);
            rest = tail;
            resampler.push(head, &mut out);
            let taken = (clip.len() - rest.len()) as u64;
            prop_assert!(out.len() as u64 <= resampled_len(taken, from_hz, 16_000));
        }
        resampler.flush(&mut out);
        prop_assert_eq!(out.len() as u64, resampled_len(clip.len() as u64, from_hz, 16_000));
        prop_assert!(difference(&out, &whole) < ROUNDING);
    }

    #[test]
    fn any_two_rates_give_the_exact_length(from_hz in SUPPORTED_HZ, to_hz in SUPPORTED_HZ, len in 0usize..5_000) {
        let out = convert(&vec![0.1; len], from_hz, to_hz);
        prop_assert_eq!(out.len() as u64, resampled_len(len as u64, from_hz, to_hz));
    }
}

#[test]
fn interleaved_streams_do_not_affect_each_other() {
    let tones = [300.0, 1_000.0, 3_300.0].map(|hz| tone(hz, 48_000, 48_000));
    let alone = tones.each_ref().map(|tone| convert(tone, 48_000, 16_000));
    let mut random = fastrand::Rng::with_seed(3);
    let mut turns: Vec<_> =
        (0..3).map(|_| (Resampler::new(48_000, 16_000).unwrap(), Vec::new(), 0)).collect();
    while let Some(at) = (0..3).filter(|at| turns[*at].2 < 48_000).max_by_key(|_| random.u32(..)) {
        let (resampler, out, sent) = &mut turns[at];
        let more = random.usize(1..5_000).min(48_000 - *sent);
        resampler.push(&tones[at][*sent..*sent + more], out);
        *sent += more;
    }
    for ((mut resampler, mut out, _), alone) in turns.into_iter().zip(alone) {
        resampler.flush(&mut out);
        assert!(difference(&out, &alone) < ROUNDING);
    }
}

#[test]
fn engine_eviction_does_not_change_output() {
    let rates: Vec<u32> = (0..40).map(|at| 8_000 + 1_000 * at).filter(|rate| *rate != 16_000).collect();
    let tones: Vec<_> = rates.iter().map(|rate| tone(440.0, *rate, *rate as usize / 4)).collect();
    let mut streams: Vec<_> =
        rates.iter().map(|rate| (Resampler::new(*rate, 16_000).unwrap(), Vec::new())).collect();
    for part in 0..5 {
        for ((resampler, out), tone) in streams.iter_mut().zip(&tones) {
            let (from, to) = (tone.len() * part / 5, tone.len() * (part + 1) / 5);
            resampler.push(&tone[from..to], out);
        }
    }
    for (((resampler, out), tone), rate) in streams.iter_mut().zip(&tones).zip(rates) {
        resampler.flush(out);
        assert!(difference(out, &convert(tone, rate, 16_000)) < ROUNDING, "{rate} Hz");
    }
}
