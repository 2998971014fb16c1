//! Small files of every container and codec, joined, edited and with wrong headers: the length, and the level of each 100 ms, as
//! ffmpeg decodes them (`tests/media/corpus/make`).

use super::*;

/// Samples of 10 ms.
const STEP: usize = 160;
/// Steps in 100 ms, and in the tolerance of 50 ms.
const WINDOW: usize = 10;
const SHIFT: usize = 5;
/// Rounding of the stored levels comes on top of 1 dB.
const TOLERANCE_DB: f64 = 1.5;
/// Quieter windows are silence with noise of the codec.
const SILENCE_DB: f64 = -50.0;

fn decode(file: &Path) -> Vec<i16> {
    let bytes = fs::read(file).unwrap();
    let mut decoder = Decoder::open(bytes.into(), DecodeLimits::default()).unwrap();
    std::iter::from_fn(|| decoder.next_chunk()).flat_map(Result::unwrap).collect()
}

fn power(samples: &[i16]) -> f64 {
    samples.iter().map(|sample| (f64::from(*sample) / 32_768.0).powi(2)).sum::<f64>() / samples.len() as f64
}

/// Level of a window of steps.
fn level(steps: &[f64]) -> f64 {
    (10.0 * (steps.iter().sum::<f64>() / steps.len() as f64).log10()).max(SILENCE_DB)
}

fn check(name: &str, samples: &[i16], expected: &[f64]) {
    let ours: Vec<f64> = samples.chunks(STEP).map(power).collect();
    for (at, window) in ours.chunks_exact(WINDOW).enumerate() {
        let at = at * WINDOW;
        let starts = at.saturating_sub(SHIFT)..=at + SHIFT;
        let levels = starts.filter_map(|start| expected.get(start..start + WINDOW)).map(level);
        let (low, high) =
            levels.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), db| (low.min(db), high.max(db)));
        let found = level(window);
        assert!(
            (low - TOLERANCE_DB..=high + TOLERANCE_DB).contains(&found),
            "{name} at {at}0 ms: {found:.1} dB instead of {low:.1} to {high:.1} dB"
        );
    }
}

#[test]
fn files_of_all_containers_have_the_length_and_the_levels_that_ffmpeg_decodes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/media/corpus");
    let levels = fs::read_to_string(dir.join("levels.txt")).unwrap();
    assert!(levels.lines().count() > 50);
    for line in levels.lines() {
        let (name, numbers) = line.split_once(' ').unwrap();
        let mut numbers = numbers.split(' ').map(|number| number.parse::<u32>().unwrap());
        let length = numbers.next().unwrap() as usize;
        let expected: Vec<f64> = numbers.map(|level| 10_f64.powf(-f64::from(level) / 10.0)).collect();
        let samples = decode(&dir.join(name));
        let difference = samples.len().abs_diff(length);
        assert!(difference <= SHIFT * STEP, "{name}: {} samples instead of {length}", samples.len());
        check(name, &samples, &expected);
    }
}
