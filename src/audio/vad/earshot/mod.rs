//! Voice activity detector: the net of earshot 1.2, a small recurrent net over three hops of 40 mel bands, behind
//! a gain.
//!
//! [`features`] computes the net's input, [`net`] its score. Both give the results of earshot's own code, which a
//! test runs beside them, at less than a quarter of the cost. With earshot's code, the detector took half of a
//! bridge's computing time.
//!
//! earshot's score depends on the level. Of the seven recordings in examples/speech at threshold .6, one started
//! 1.1 s late at −20 dB. Two were missed at −30 dB and all at −40 dB. Macaw normalizes every frame to a peak of
//! −3 dBFS first (mappings/notes/macaw.md#voice-activity). Here a slower gain does this for sound that stands out of
//! the noise, and no recording is missed.

mod features;
mod net;

use std::sync::LazyLock;

use fearless_simd::Level;

use self::{features::Features, net::NetState};
use super::Detector;

/// Samples of a hop: 16 ms, the only length the net supports.
pub const HOP_SAMPLES: usize = 256;

/// Level that the gain aims for. At −20 dBFS, a pulsing fan at −45 dBFS passed for speech; at −25, only one at
/// −20 dBFS did.
const TARGET_DBFS: f32 = -25.0;

/// Largest gain. With 40 dB, hum and fan at −60 dBFS passed for speech, and speech at −30 dB was found no
/// earlier.
const MAX_GAIN_DB: f32 = 30.0;

/// Decay of the held level: a soft speaker after a loud one is detected within a few seconds.
const DECAY_DB_PER_HOP: f32 = 6.0 * 0.016;

/// Rise of the held noise floor: a fan becomes steady noise within seconds. Speech dips too often for that.
const RISE_DB_PER_HOP: f32 = 6.0 * 0.016;

/// Lowest noise floor. Softer noise stays below speech even with a gain of [`MAX_GAIN_DB`].
const LOWEST_FLOOR_DBFS: f32 = -75.0;

/// Sound that varies by no more than this is steady noise and gets no gain. Above twice this, it gets the full
/// gain.
const STEADY_DB: f32 = 7.0;

/// A hop this far below the loudest one is not speech, whatever the net says. The net's score takes 60 ms to fall
/// after speech stops, which made 15 of 56 snippets of 200 ms an utterance (with this limit: none). With 25 dB,
/// weak sounds within words were lost.
const TAIL_DB: f32 = 30.0;

/// Vector instructions of this machine. Code dispatched by it is compiled once for each level. Functions that it
/// calls must be `#[inline(always)]`, or they are compiled for the lowest level only.
static LEVEL: LazyLock<Level> = LazyLock::new(Level::new);

/// Name of the vector instructions that the detector uses on this machine, such as `avx2`.
pub fn vector_level_name() -> String {
    let level = format!("{:?}", *LEVEL).to_lowercase();
    level.split('(').next().unwrap_or_default().to_owned()
}

/// The net with its gain. Allocates its 3 kB of state at the first hop.
#[derive(Default)]
pub struct Earshot(Option<Box<EarshotState>>);

struct EarshotState {
    features: Features,
    net_state: NetState,
    /// Level of the loudest hop, decaying by [`DECAY_DB_PER_HOP`].
    level_dbfs: f32,
    /// Level of the softest hop, rising by [`RISE_DB_PER_HOP`].
    floor_dbfs: f32,
}

impl EarshotState {
    const fn new() -> Self {
        Self {
            features: Features::new(),
            net_state: NetState::new(),
            level_dbfs: f32::NEG_INFINITY,
            floor_dbfs: f32::INFINITY,
        }
    }

    fn gain_db(&self) -> f32 {
        let stands_out = ((self.level_dbfs - self.floor_dbfs - STEADY_DB) / STEADY_DB).clamp(0.0, 1.0);
        stands_out * (TARGET_DBFS - self.level_dbfs).clamp(0.0, MAX_GAIN_DB)
    }
}

impl Detector for Earshot {
    fn hop_samples(&self) -> usize {
        HOP_SAMPLES
    }

    fn score(&mut self, hop: &[i16], hop_dbfs: f32) -> f32 {
        let state = self.0.get_or_insert_with(|| Box::new(EarshotState::new()));
        state.level_dbfs = (state.level_dbfs - DECAY_DB_PER_HOP).max(hop_dbfs);
        state.floor_dbfs = (state.floor_dbfs + RISE_DB_PER_HOP).min(hop_dbfs).max(LOWEST_FLOOR_DBFS);
        let gain = 10f32.powf(state.gain_db() / 20.0);
        let bands = state.features.push(*LEVEL, hop, gain, net::band_weights());
        let score = state.net_state.score(*LEVEL, bands);
        if hop_dbfs < state.level_dbfs - TAIL_DB { 0.0 } else { score }
    }

    fn reset(&mut self) {
        if let Some(state) = &mut self.0 {
            (state.features, state.net_state) = (Features::new(), NetState::new());
            state.floor_dbfs = LOWEST_FLOOR_DBFS;
        }
    }
}

impl std::fmt::Debug for Earshot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Earshot").field(&self.0.as_ref().map(|state| state.level_dbfs)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vad::{Edge, Sensitivity, VadConfig, VoiceActivity, rms_dbfs};
    use std::io::Cursor;

    /// The recordings with the onset of speech in ms, read off their levels.
    const RECORDINGS: [(&str, &[u8], i32); 7] = [
        ("arctic_a0007", include_bytes!("../../../../examples/speech/arctic_a0007_16k.wav"), 560),
        ("cards_005", include_bytes!("../../../../examples/speech/cards_005_16k.wav"), 208),
        ("goforward", include_bytes!("../../../../examples/speech/goforward_16k.wav"), 496),
        ("jfk", include_bytes!("../../../../examples/speech/jfk_16k.wav"), 320),
        ("librivox_0870", include_bytes!("../../../../examples/speech/librivox_0870_16k.wav"), 208),
        ("librivox_0880", include_bytes!("../../../../examples/speech/librivox_0880_16k.wav"), 256),
        ("librivox_0920", include_bytes!("../../../../examples/speech/librivox_0920_16k.wav"), 256),
    ];

    const SECOND: usize = 16_000;

    fn samples(wav: &[u8], gain_db: f32) -> Vec<i16> {
        let gain = 10f32.powf(gain_db / 20.0);
        let reader = hound::WavReader::new(Cursor::new(wav)).unwrap();
        reader
            .into_samples::<i16>()
            .map(|sample| (f32::from(sample.unwrap()) * gain).round() as i16)
            .collect()
    }

    /// Edges with the end of their hop in ms.
    fn edges(config: VadConfig, audio: &[i16]) -> Vec<(i32, Edge)> {
        let mut vad = VoiceActivity::new(config);
        let hops = (1..).zip(audio.chunks_exact(vad.hop_samples()));
        hops.filter_map(|(hop, samples)| Some((hop * 16, vad.push_hop(samples).edge?))).collect()
    }

    /// Noise at an RMS level: white, or roughly pink through a one-pole filter.
    fn noise(level_dbfs: f32, pole: f32, len: usize) -> Vec<i16> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut last = 0.0;
        let raw: Vec<f32> = (0..len)
            .map(|_| {
                last = pole * last + random.f32() - 0.5;
                last
            })
            .collect();
        let rms = (raw.iter().map(|s| s * s).sum::<f32>() / len as f32).sqrt();
        let scale = 32_768.0 * 10f32.powf(level_dbfs / 20.0) / rms;
        raw.iter().map(|s| (s * scale).round() as i16).collect()
    }

    fn presets() -> [VadConfig; 3] {
        [Sensitivity::High, Sensitivity::Normal, Sensitivity::Low].map(VadConfig::preset)
    }

    #[test]
    fn every_recording_is_detected_in_time_down_to_minus_30_db() {
        for (gain_db, latest_ms) in [(0.0, 500), (-20.0, 500), (-30.0, 650)] {
            for (name, wav, onset_ms) in RECORDINGS {
                for shift in [0, 64, 128, 192] {
                    let mut audio = vec![0; SECOND + shift];
                    audio.extend(samples(wav, gain_db));
                    audio.extend(vec![0; SECOND]);
                    let found = edges(VadConfig::default(), &audio);
                    let delay_ms = found[0].0 - 1_000 - onset_ms - shift as i32 / 16;
                    println!("{name} at {gain_db} dB, shift {shift}: {delay_ms} ms, {found:?}");
                    assert!((0..=latest_ms).contains(&delay_ms), "{name} at {gain_db} dB: {delay_ms} ms");
                    assert_eq!(found.last().map(|edge| edge.1), Some(Edge::End), "{name} at {gain_db} dB");
                }
            }
        }
    }

    #[test]
    fn speech_in_noise_is_detected() {
        for (name, wav, onset_ms) in RECORDINGS {
            let speech = samples(wav, 0.0);
            let level_dbfs = rms_dbfs(&speech) - 15.0;
            let mut audio = noise(level_dbfs, 0.9, speech.len() + 2 * SECOND);
            audio[SECOND..].iter_mut().zip(&speech).for_each(|(a, s)| *a = a.saturating_add(*s));
            let found = edges(VadConfig::default(), &audio);
            let delay_ms = found[0].0 - 1_000 - onset_ms;
            println!("{name} at 15 dB: {delay_ms} ms, {found:?}");
            assert!((0..=750).contains(&delay_ms), "{name}: {delay_ms} ms");
            assert_eq!(found.last().map(|edge| edge.1), Some(Edge::End), "{name}");
        }
    }

    #[test]
    fn silence_and_steady_noise_never_trigger() {
        for config in presets() {
            assert_eq!(edges(config, &[0; 10 * SECOND]), []);
            for (level_dbfs, pole) in [(-80.0, 0.0), (-60.0, 0.0), (-40.0, 0.0), (-60.0, 0.9), (-40.0, 0.9)] {
                let found = edges(config, &noise(level_dbfs, pole, 20 * SECOND));
                assert_eq!(found, [], "{config:?}: noise at {level_dbfs} dBFS, pole {pole}");
            }
        }
    }

    #[test]
    fn speech_and_pauses_of_200_ms_cause_no_edge() {
        let jfk = samples(RECORDINGS[3].1, 0.0);
        for at in (5_120..40_000).step_by(3_200) {
            let mut blip = noise(-70.0, 0.0, 3 * SECOND);
            blip[SECOND..SECOND + 3_200].copy_from_slice(&jfk[at..at + 3_200]);
            assert_eq!(edges(VadConfig::default(), &blip), [], "at {at}");
        }
        let mut paused = vec![0; SECOND / 2];
        paused.extend(&jfk[5_120..20_000]);
        paused.extend(vec![0; 3_200]);
        paused.extend(&jfk[20_000..34_000]);
        let found = edges(VadConfig::default(), &paused);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn scores_match_earshot_at_every_simd_level() {
        let mut random = fastrand::Rng::with_seed(11);
        let levels = [Level::baseline(), *LEVEL];
        let mut worst = 0.0_f32;
        for (name, wav, _) in RECORDINGS {
            for (gain_db, noise_db) in [(0.0, -90.0), (-30.0, -60.0), (0.0, -30.0), (20.0, -20.0)] {
                let mut audio = samples(wav, gain_db);
                let noise = noise(noise_db, 0.9, audio.len());
                audio.iter_mut().zip(noise).for_each(|(a, n)| *a = a.saturating_add(n));
                let mut heard = levels.map(|_| (Features::new(), NetState::new()));
                let mut earshot = earshot::Detector::default();
                for hop in audio.as_chunks::<HOP_SAMPLES>().0 {
                    if random.u32(0..100) == 0 {
                        heard = levels.map(|_| (Features::new(), NetState::new()));
                        earshot.reset();
                    }
                    let right = earshot.predict_i16(hop);
                    for (level, (features, net_state)) in levels.iter().zip(&mut heard) {
                        let bands = features.push(*level, hop, 1.0, net::band_weights());
                        let off = (net_state.score(*level, bands) - right).abs();
                        worst = worst.max(off);
                        assert!(
                            off < 0.001,
                            "{name} at {gain_db} dB over {noise_db} dBFS, {level:?}: off by {off}"
                        );
                    }
                }
            }
        }
        println!("off by {worst} at most");
    }
}
