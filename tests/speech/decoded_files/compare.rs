//! Compares decoded audio with what ffmpeg decodes: the length, and the energy of each 100 ms.

/// Samples of 100 ms, and of the tolerance of 50 ms.
const WINDOW: usize = 1600;
const SHIFT: usize = 800;
/// Steps in which windows are shifted.
const STEP: usize = 80;
const TOLERANCE_DB: f64 = 1.0;
const SILENCE_DB: f64 = -50.0;

/// The difference, if it is more than 50 ms and 1 dB.
pub(super) fn difference(reference: &[i16], ours: &[i16]) -> Option<String> {
    if reference.len().abs_diff(ours.len()) > SHIFT {
        let seconds = |samples: &[i16]| samples.len() as f64 / 16_000.0;
        return Some(format!("{:.3} s instead of {:.3} s", seconds(ours), seconds(reference)));
    }
    let sums = running_energy(reference);
    let windows = ours.chunks_exact(WINDOW).enumerate();
    let wrong: Vec<_> =
        windows.filter_map(|(index, window)| wrong_window(&sums, index * WINDOW, window)).collect();
    (!wrong.is_empty()).then(|| format!("{} windows differ, the first {}", wrong.len(), wrong[0]))
}

fn wrong_window(sums: &[f64], at: usize, window: &[i16]) -> Option<String> {
    let ours = level(running_energy(window)[WINDOW]);
    let starts = (at.saturating_sub(SHIFT)..=at + SHIFT).step_by(STEP);
    let levels = starts
        .filter(|start| start + WINDOW < sums.len())
        .map(|start| level(sums[start + WINDOW] - sums[start]));
    let (low, high) =
        levels.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), db| (low.min(db), high.max(db)));
    let is_wrong = ours < low - TOLERANCE_DB || ours > high + TOLERANCE_DB;
    is_wrong.then(|| {
        format!("at {:.1} s: {ours:.1} dB instead of {low:.1} to {high:.1} dB", at as f64 / 16_000.0)
    })
}

/// Sum of the squares of all samples before each.
fn running_energy(samples: &[i16]) -> Vec<f64> {
    let mut sums = Vec::with_capacity(samples.len() + 1);
    sums.push(0.0);
    for sample in samples {
        sums.push(sums[sums.len() - 1] + (f64::from(*sample) / 32_768.0).powi(2));
    }
    sums
}

/// Level of a window. Silence counts as the quietest level, whatever the noise of its codec.
fn level(energy: f64) -> f64 {
    (10.0 * (energy / WINDOW as f64).log10()).max(SILENCE_DB)
}

#[test]
fn shifts_within_the_tolerance_agree_and_cuts_do_not() {
    let speech: Vec<i16> = (0..32_000)
        .map(|at| ((at as f64 * 0.3).sin() * 9000.0 * (at as f64 / 3000.0).sin()) as i16)
        .collect();
    assert_eq!(difference(&speech, &speech[300..]), None);
    assert!(difference(&speech, &speech[..30_000]).is_some());
    let mut muted = speech.clone();
    muted[12_000..14_400].fill(0);
    assert!(difference(&speech, &muted).unwrap().contains("windows differ"));
}
