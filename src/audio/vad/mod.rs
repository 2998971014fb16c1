//! Voice activity detection: which hops of 16 kHz int16 are speech, and where utterances start and end.
//!
//! A [`Detector`] scores hops, and a [`Segmenter`] turns scored hops into edges. [`VoiceActivity`] combines both
//! behind an energy gate. The timing is Macaw's (mappings/notes/macaw.md#voice-activity): 250 ms of speech start an
//! utterance, 300 ms of silence end it, and 30 s force an end. The detector is [`Earshot`]. An edge is reported once it
//! is certain; pre-roll is the caller's job.

pub mod coarse_gate;
pub mod earshot;
mod gate;
mod quietest;
mod segmenter;

use fearless_simd::{Level, Simd, dispatch};

use super::SPEECH_RATE_HZ;

use self::gate::{EnergyGate, GateState};
pub use self::{
    earshot::{Earshot, HOP_SAMPLES},
    segmenter::{Edge, Segmenter},
};

/// Scores how likely each hop is speech.
pub trait Detector {
    /// Samples at 16 kHz per call of [`score`](Self::score).
    fn hop_samples(&self) -> usize;
    /// Probability `0.0 ..= 1.0` that the hop is speech, given the hops before it; `hop_dbfs` is its level in
    /// dB of full scale.
    fn score(&mut self, hop: &[i16], hop_dbfs: f32) -> f32;
    /// Resets the detector for a new stream.
    fn reset(&mut self);
}

/// The presets of Macaw's `MACAW_VAD_SENSITIVITY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sensitivity {
    /// Triggers early, even on faint sounds.
    High,
    /// The default.
    #[default]
    Normal,
    /// For noisy places: only on clear speech.
    Low,
}

/// Thresholds and timing of the detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VadConfig {
    /// Score above which a hop is speech, `0.0 ..= 1.0`.
    pub threshold: f32,
    /// RMS level in dB of full scale below which a hop is silence and skips the detector.
    pub gate_dbfs: f32,
    /// Length of speech that starts an utterance, in ms.
    pub start_ms: u32,
    /// Length of silence that ends it, in ms.
    pub end_ms: u32,
    /// Longest utterance from its start edge, in ms; then an end is forced.
    pub max_ms: u32,
    /// From this length on, a shorter pause ends an utterance, so that it is not cut in a word at its limit, in ms;
    /// [`u32::MAX`] for never.
    pub cut_after_ms: u32,
    /// That shorter pause, in ms.
    pub cut_pause_ms: u32,
    /// An utterance of this length without such a pause is cut where it has been quietest since `cut_after_ms`;
    /// [`u32::MAX`] for never.
    pub cut_max_ms: u32,
}

impl VadConfig {
    /// The values of a preset, with Macaw's timing.
    ///
    /// The thresholds are not Macaw's (.3, .5, .7), which belong to Silero. Neither are the gates (−50, −40,
    /// −30 dBFS), which Macaw applies after normalizing every frame to a peak of −3 dBFS; these gates see the
    /// level of the microphone.
    ///
    /// Measured behind the gate of `Normal` on the seven recordings in examples/speech, at four alignments of
    /// the hops each (336 runs). Levels were 0, −20 and −30 dB, clean and over pink noise 35, 20 and 10 dB
    /// below. Steady noise was at −60 to −20 dBFS:
    ///
    /// | threshold | missed | starts after more than 500 ms, latest | noise that triggers |
    /// |---|---|---|---|
    /// | .45 | 0 | 16, 648 ms | white at −30 dBFS, brown and hum from −30, fan at −20 |
    /// | .55 | 0 | 30, 664 ms | brown, hum and fan at −20 |
    /// | .60 | 0 | 38, 664 ms | brown, hum and fan at −20 |
    /// | .70 | 0 | 86, 824 ms | brown, hum and fan at −20 |
    ///
    /// Most of the late starts are at −30 dB. There, half of a recording's hops are below about −57 dBFS, and
    /// the loudest twentieth reaches −45. `Normal` lets them through its gate; `Low` is not meant to.
    pub const fn preset(sensitivity: Sensitivity) -> Self {
        let (threshold, gate_dbfs) = match sensitivity {
            Sensitivity::High => (0.45, -75.0),
            Sensitivity::Normal => (0.55, -65.0),
            Sensitivity::Low => (0.7, -55.0),
        };
        Self {
            threshold,
            gate_dbfs,
            start_ms: 250,
            end_ms: 300,
            max_ms: 30_000,
            cut_after_ms: u32::MAX,
            cut_pause_ms: 0,
            cut_max_ms: u32::MAX,
        }
    }
}

impl Default for VadConfig {
    fn default() -> Self {
        Self::preset(Sensitivity::Normal)
    }
}

/// Result for one hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopResult {
    /// The hop is speech.
    pub is_speech: bool,
    /// The edge that the hop completes.
    pub edge: Option<Edge>,
}

/// Voice activity detection of one stream: detector, energy gate and segmenter.
#[derive(Debug)]
pub struct VoiceActivity<D = Earshot> {
    detector: D,
    /// Finds the stretches of speech in the decisions.
    pub segmenter: Segmenter,
    config: VadConfig,
    gate: EnergyGate,
}

impl VoiceActivity {
    /// Detection with [`Earshot`].
    pub fn new(config: VadConfig) -> Self {
        Self::with_detector(config, Earshot::default())
    }
}

impl<D: Detector> VoiceActivity<D> {
    /// Detection with another detector.
    pub fn with_detector(config: VadConfig, detector: D) -> Self {
        let segmenter = Segmenter::new(config, detector.hop_samples());
        Self { detector, segmenter, config, gate: EnergyGate::new() }
    }

    /// Samples at 16 kHz per call of [`push_hop`](Self::push_hop).
    pub fn hop_samples(&self) -> usize {
        self.detector.hop_samples()
    }

    /// Processes one hop of [`hop_samples`](Self::hop_samples) samples.
    ///
    /// When the gate closes, the detector is reset, so that it meets the next speech without a context from before the silence.
    /// On the recordings, utterances then start as early as with the context kept, and within three hops of running the
    /// detector through the silence.
    pub fn push_hop(&mut self, hop: &[i16]) -> HopResult {
        let energy = mean_energy(hop);
        let hop_dbfs = dbfs(energy);
        let gate = self.gate.update(hop_dbfs, &self.config);
        if gate == GateState::Closing {
            self.detector.reset();
        }
        let is_speech = gate == GateState::Open && self.detector.score(hop, hop_dbfs) > self.config.threshold;
        HopResult { is_speech, edge: self.segmenter.push(is_speech, energy as f32) }
    }

    /// True during an utterance.
    pub const fn is_in_speech(&self) -> bool {
        self.segmenter.since_start_ms.is_some()
    }

    /// True in silence: the gate is closed, and no hop of speech counts towards an utterance. Then further hops that are no
    /// louder than the room change nothing but the estimate of its noise.
    pub fn is_silent(&self) -> bool {
        self.gate.is_closed() && self.segmenter.is_silent()
    }

    /// Goes on after hops in [silence](Self::is_silent) that were not processed.
    pub fn skip_silence(&mut self, hops: u32) {
        self.gate.skip(hops);
    }

    /// Level below which a hop is silence, dB of full scale.
    pub const fn gate_dbfs(&self) -> f32 {
        self.config.gate_dbfs
    }

    /// Samples of the speech that has just started an utterance, from its first hop.
    pub const fn onset_samples(&self) -> u64 {
        (self.segmenter.onset_ms() * (SPEECH_RATE_HZ / 1000) as f32) as u64
    }

    /// Applies another configuration from the next hop on, also to the current utterance.
    pub const fn set_config(&mut self, config: VadConfig) {
        self.config = config;
        self.segmenter.set_config(config);
    }

    /// Resets the detection without an edge: after muted audio, or for another stream.
    pub fn reset(&mut self) {
        self.detector.reset();
        self.segmenter.reset();
        self.gate = EnergyGate::new();
    }
}

/// Root mean square level in dB of full scale; −∞ for digital silence and for no samples.
pub fn rms_dbfs(samples: &[i16]) -> f32 {
    dbfs(mean_energy(samples))
}

/// Mean of the squares of the samples.
fn mean_energy(samples: &[i16]) -> f64 {
    let energy = dispatch!(Level::new(), simd => energy(simd, samples));
    energy as f64 / samples.len().max(1) as f64
}

fn dbfs(mean_energy: f64) -> f32 {
    (10.0 * (mean_energy / (32_768.0 * 32_768.0)).log10()) as f32
}

/// Sum of the squares, in a loop that the compiler turns into the vector instructions of the given level.
#[inline(always)]
fn energy<S: Simd>(_: S, samples: &[i16]) -> u64 {
    samples.iter().map(|sample| u64::from(i32::from(*sample).pow(2).unsigned_abs())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores by the loudness of the first sample, and counts its calls.
    #[derive(Default)]
    struct FakeDetector {
        score_calls: usize,
        resets: usize,
    }

    impl Detector for FakeDetector {
        fn hop_samples(&self) -> usize {
            160
        }

        fn score(&mut self, hop: &[i16], _: f32) -> f32 {
            self.score_calls += 1;
            f32::from(hop[0]) / 32_768.0
        }

        fn reset(&mut self) {
            self.resets += 1;
        }
    }

    #[test]
    fn silence_skips_the_detector() {
        let mut vad = VoiceActivity::with_detector(VadConfig::default(), FakeDetector::default());
        let (silence, loud) = ([3i16; 160], [30_000i16; 160]);
        for _ in 0..100 {
            assert_eq!(vad.push_hop(&silence), HopResult { is_speech: false, edge: None });
        }
        assert_eq!((vad.detector.score_calls, vad.detector.resets), (0, 0));
        let starts = (0..25).filter(|_| vad.push_hop(&loud).edge == Some(Edge::Start)).count();
        assert_eq!(starts, 1);
        assert!(vad.is_in_speech());
        let ends: Vec<usize> = (1..100).filter(|_| vad.push_hop(&silence).edge == Some(Edge::End)).collect();
        assert_eq!(ends, [30], "300 ms in hops of 10");
        assert_eq!((vad.detector.score_calls, vad.detector.resets), (25 + 11, 1), "the gate closes once");
    }

    #[test]
    fn levels_are_in_db_of_full_scale() {
        assert_eq!(rms_dbfs(&[0; 256]), f32::NEG_INFINITY);
        assert_eq!(rms_dbfs(&[]), f32::NEG_INFINITY);
        assert!(rms_dbfs(&[i16::MIN; 256]).abs() < 1e-6);
        assert!((rms_dbfs(&[328; 256]) + 40.0).abs() < 0.01);
    }
}
