//! Files of [`crate::audio::encode`], read back.

use crate::audio::encode::{AudioFormat, Encoder};
use crate::audio::encoding::Encoding;
use crate::media::decode::{DecodeLimits, Decoder};
use bytes::Bytes;

fn voice(samples: usize) -> Vec<i16> {
    (0..samples)
        .map(|at| {
            let t = at as f32 / 24_000.0;
            let tone: f32 =
                (1..12).map(|n| (t * 140.0 * n as f32 * std::f32::consts::TAU).sin() / n as f32).sum();
            (tone * (1.0 + (t * 25.0).sin()) * 4000.0) as i16
        })
        .collect()
}

fn encode(format: AudioFormat, rate_hz: u32, samples: &[i16], push: usize) -> Vec<u8> {
    let mut encoder = Encoder::new(format, rate_hz).unwrap();
    let mut out = Vec::new();
    samples.chunks(push).for_each(|chunk| encoder.push(chunk, &mut out));
    encoder.finish(&mut out);
    out
}

/// Decodes to 16 kHz.
fn decode(file: Vec<u8>) -> Vec<i16> {
    let mut decoder = Decoder::open(Bytes::from(file), DecodeLimits::default()).unwrap();
    std::iter::from_fn(|| decoder.next_chunk()).flat_map(|chunk| chunk.unwrap()).collect()
}

/// Signal to noise ratio in dB of `heard`, which is late by `delay` samples.
fn snr_db(heard: &[i16], sent: &[i16], delay: usize) -> f64 {
    let power = |samples: &mut dyn Iterator<Item = f64>| samples.map(|s| s * s).sum::<f64>();
    let pairs = || heard[delay..].iter().zip(sent).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    10.0 * (power(&mut pairs().map(|(_, b)| b)) / power(&mut pairs().map(|(a, b)| a - b)).max(1.0)).log10()
}

#[test]
fn lossless_formats_return_every_sample_at_every_length() {
    for len in [1, 3, 5, 255, 2047, 2048, 2049, 20_000] {
        let samples = voice(len);
        for format in [AudioFormat::Flac, AudioFormat::Wav] {
            let heard = decode(encode(format, 16_000, &samples, 777));
            assert_eq!(heard, samples, "{} of {len} samples", format.name());
        }
    }
    assert_eq!(encode(AudioFormat::Pcm, 24_000, &[1, -2], 1), [1, 0, 0xfe, 0xff]);
}

#[test]
fn flac_keeps_extreme_samples_and_noise() {
    let square: Vec<i16> = (0..9000).map(|at| if at / 3 % 2 == 0 { i16::MIN } else { i16::MAX }).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<i16> = (0..9000).map(|_| random.i16(..)).collect();
    for samples in [square, noise, vec![0; 9000], vec![i16::MIN; 9000]] {
        let file = encode(AudioFormat::Flac, 16_000, &samples, 9000);
        assert!(file.len() < 2 * samples.len() + 200, "{}", file.len());
        assert!(decode(file) == samples);
    }
}

#[test]
fn lossy_formats_return_the_audio() {
    // At 16 kHz, so that the decoder does not resample.
    let samples = voice(40_000);
    // The delay of the mp3 encoder and decoder; streams cannot state it.
    for (format, delay, snr_min_db, longer_max) in
        [(AudioFormat::Opus, 0, 20.0, 0), (AudioFormat::Mp3, 1057, 40.0, 1700)]
    {
        let heard = decode(encode(format, 16_000, &samples, 1000));
        let snr = snr_db(&heard, &samples, delay);
        assert!(snr > snr_min_db, "{}: {snr} dB", format.name());
        assert!((samples.len()..=samples.len() + longer_max).contains(&heard.len()), "{}", heard.len());
    }
}

#[test]
fn first_audio_leaves_with_the_first_push() {
    // 200 ms, shorter than the first delta of a model.
    let samples = voice(4800);
    for format in AudioFormat::ALL {
        let mut encoder = Encoder::new(format, 24_000).unwrap();
        let (mut header, mut out) = (Vec::new(), Vec::new());
        encoder.push(&[], &mut header);
        encoder.push(&samples, &mut out);
        assert!(
            out.len() > 100,
            "{}: {} bytes of header, {} of audio",
            format.name(),
            header.len(),
            out.len()
        );
    }
}

#[test]
fn size_of_a_push_does_not_change_the_file() {
    let samples = voice(30_000);
    for format in AudioFormat::ALL {
        let whole = encode(format, 24_000, &samples, samples.len());
        assert!(encode(format, 24_000, &samples, 333) == whole, "{}", format.name());
    }
}

#[test]
fn mp3_has_every_rate_and_bit_rate_and_loses_no_sample() {
    let samples = voice(24_000);
    for rate_hz in AudioFormat::Mp3.rates_hz().unwrap() {
        for kbps in [32, 48, 64, 128, 192] {
            let mut encoder =
                Encoder::with_options(AudioFormat::Mp3, Encoding::S16le, *rate_hz, Some(kbps * 1000))
                    .unwrap();
            let (mut file, mut first) = (Vec::new(), 0);
            for (at, chunk) in samples.chunks(480).enumerate() {
                encoder.push(chunk, &mut file);
                first = if file.is_empty() { at + 1 } else { first };
            }
            encoder.finish(&mut file);
            assert!(first < 3, "{rate_hz} Hz: nothing before {first} times 480 samples");
            let seconds = samples.len() as f64 / f64::from(*rate_hz);
            let most = match rate_hz {
                ..=12_000 => 64,
                12_001..=24_000 => 160,
                _ => 320,
            };
            let expected = f64::from(kbps.min(most) * 125) * seconds;
            let close = 0.9..1.25;
            assert!(close.contains(&(file.len() as f64 / expected)), "{rate_hz} Hz {kbps}: {}", file.len());
            let heard = decode(file).len() as f64 / 16_000.0;
            assert!((seconds..seconds + 0.5).contains(&heard), "{rate_hz} Hz {kbps}: {heard} of {seconds} s");
        }
    }
}

#[test]
fn wav_has_every_encoding_of_samples() {
    let samples = voice(4_000);
    for (encoding, snr_min_db) in
        [(Encoding::S16le, 90.0), (Encoding::F32le, 80.0), (Encoding::Mulaw, 30.0), (Encoding::Alaw, 30.0)]
    {
        let mut encoder = Encoder::with_options(AudioFormat::Wav, encoding, 16_000, None).unwrap();
        let mut file = Vec::new();
        encoder.push(&samples, &mut file);
        encoder.finish(&mut file);
        let heard = decode(file);
        assert_eq!(heard.len(), samples.len(), "{encoding:?}");
        assert!(snr_db(&heard, &samples, 0) > snr_min_db, "{encoding:?}");
    }
}

#[test]
fn unsupported_rates_are_rejected_with_the_range() {
    let error = Encoder::new(AudioFormat::Mp3, 96_000).err().unwrap();
    assert_eq!(error.to_string(), "the audio's sample rate is 96000 Hz (accepted: 8000 to 48000 Hz)");
    for format in AudioFormat::ALL {
        assert!(Encoder::new(format, 0).is_err());
        assert!(Encoder::new(format, 24_000).is_ok());
        assert_eq!(AudioFormat::from_name(format.name()), Some(format));
    }
}
