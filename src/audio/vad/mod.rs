//! Voice activity: which hops of 16 kHz int16 are speech, and where utterances start and end.
//!
//! A [`Detector`] scores hops, a [`Segmenter`] turns hops into edges, [`VoiceActivity`] is both behind an energy gate.
//! The timing is Macaw's (field notes macaw.md §3: 250 ms of speech start, 300 ms of silence end, 30 s force an end);
//! the detector is [`Earshot`]. Pre-roll is the listener's business: an edge is reported when it is certain.

pub mod earshot;
mod gate;
mod segmenter;

use self::gate::{EnergyGate, GateState};
pub use self::{
    earshot::Earshot,
    segmenter::{Edge, Segmenter},
};

/// Tells speech from everything else, hop by hop.
pub trait Detector {
    /// Samples at 16 kHz that [`score`](Self::score) takes at a time.
    fn hop_samples(&self) -> usize;
    /// How likely the hop of that level (dB of full scale) is speech, `0.0 ..= 1.0`, given those before it.
    fn score(&mut self, hop: &[i16], hop_dbfs: f32) -> f32;
    /// Forgets everything heard so far.
    fn reset(&mut self);
}

/// The presets of Macaw's `MACAW_VAD_SENSITIVITY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sensitivity {
    /// Triggers early, also on what is hardly speech.
    High,
    /// The default.
    #[default]
    Normal,
    /// For noisy places: only what is certainly speech.
    Low,
}

/// What counts as speech and for how long it must last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VadConfig {
    /// The score above which a hop is speech, `0.0 ..= 1.0`.
    pub threshold: f32,
    /// RMS level in dB of full scale below which a hop is silence without asking the detector.
    pub gate_dbfs: f32,
    /// Speech of this length starts an utterance, in ms.
    pub start_ms: u32,
    /// Silence of this length ends it, in ms.
    pub end_ms: u32,
    /// An utterance is ended by force after this time from its start edge, in ms.
    pub max_ms: u32,
}

impl VadConfig {
    /// The values of a preset, with Macaw's timing.
    ///
    /// Not Macaw's thresholds (.3, .5, .7), which are Silero's, nor its gates (−50, −40, −30 dBFS), which it applies
    /// after bringing every frame to a peak of −3 dBFS: ours see the level of the microphone. Measured behind the gate
    /// of `Normal` on the seven recordings in examples/speech at 0, −20 and −30 dB, clean and over pink noise 35, 20
    /// and 10 dB below, at four alignments of the hops each (336 runs), and on steady noise at −60 to −20 dBFS:
    ///
    /// | threshold | missed | starts after more than 500 ms, latest | noise that starts |
    /// |---|---|---|---|
    /// | .45 | 0 | 16, 648 ms | white at −30 dBFS, brown and hum from −30, fan at −20 |
    /// | .55 | 0 | 30, 664 ms | brown, hum and fan at −20 |
    /// | .60 | 0 | 38, 664 ms | the same |
    /// | .70 | 0 | 86, 824 ms | the same |
    ///
    /// Most of the late ones are at −30 dB, where half of the hops of a recording are below −57 dBFS or so and the
    /// loudest twentieth reaches −45: `Normal` lets that through its gate, `Low` is not meant to.
    #[must_use]
    pub const fn preset(sensitivity: Sensitivity) -> Self {
        let (threshold, gate_dbfs) = match sensitivity {
            Sensitivity::High => (0.45, -75.0),
            Sensitivity::Normal => (0.55, -65.0),
            Sensitivity::Low => (0.7, -55.0),
        };
        Self { threshold, gate_dbfs, start_ms: 250, end_ms: 300, max_ms: 30_000 }
    }
}

impl Default for VadConfig {
    fn default() -> Self {
        Self::preset(Sensitivity::Normal)
    }
}

/// What a hop was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopResult {
    /// The hop is speech.
    pub is_speech: bool,
    /// The edge it completes.
    pub edge: Option<Edge>,
}

/// Detector, energy gate and segmenter of one stream.
#[derive(Debug)]
pub struct VoiceActivity<D = Earshot> {
    detector: D,
    segmenter: Segmenter,
    config: VadConfig,
    gate: EnergyGate,
}

impl VoiceActivity {
    /// Listens by [`Earshot`].
    #[must_use]
    pub fn new(config: VadConfig) -> Self {
        Self::with_detector(config, Earshot::default())
    }
}

impl<D: Detector> VoiceActivity<D> {
    /// Listens by another detector.
    #[must_use]
    pub fn with_detector(config: VadConfig, detector: D) -> Self {
        let segmenter = Segmenter::new(config, detector.hop_samples());
        Self { detector, segmenter, config, gate: EnergyGate::new() }
    }

    /// Samples at 16 kHz that [`push_hop`](Self::push_hop) takes at a time.
    #[must_use]
    pub fn hop_samples(&self) -> usize {
        self.detector.hop_samples()
    }

    /// Takes one hop of [`hop_samples`](Self::hop_samples) samples.
    pub fn push_hop(&mut self, hop: &[i16]) -> HopResult {
        let hop_dbfs = rms_dbfs(hop);
        let is_speech =
            self.is_gate_open(hop_dbfs) && self.detector.score(hop, hop_dbfs) > self.config.threshold;
        HopResult { is_speech, edge: self.segmenter.push(is_speech) }
    }

    /// Whether an utterance is going on.
    #[must_use]
    pub const fn is_in_speech(&self) -> bool {
        self.segmenter.is_in_speech()
    }

    /// How many hops at least there are to the next edge.
    #[must_use]
    pub fn min_hops_to_edge(&self) -> u32 {
        self.segmenter.min_hops_to_edge()
    }

    /// Takes other settings from the next hop on; an utterance going on is judged by them.
    pub const fn set_config(&mut self, config: VadConfig) {
        self.config = config;
        self.segmenter.set_config(config);
    }

    /// Forgets everything heard, without an edge: after muted audio or for another stream.
    pub fn reset(&mut self) {
        self.detector.reset();
        self.segmenter.reset();
        self.gate = EnergyGate::new();
    }

    /// Whether the gate is open. When it shuts, the detector forgets: it meets the next speech fresh, not with a
    /// context from before the silence. On the recordings that starts utterances as early as keeping the context, and
    /// within three hops of running the detector through the silence.
    fn is_gate_open(&mut self, hop_dbfs: f32) -> bool {
        let state = self.gate.update(hop_dbfs, &self.config);
        if state == GateState::Closing {
            self.detector.reset();
        }
        state == GateState::Open
    }
}

/// Root mean square level in dB of full scale; −∞ for digital silence and for no samples.
#[must_use]
pub fn rms_dbfs(samples: &[i16]) -> f32 {
    let energy: u64 = samples.iter().map(|sample| u64::from(i32::from(*sample).pow(2).unsigned_abs())).sum();
    let mean = energy as f64 / samples.len().max(1) as f64;
    (10.0 * (mean / (32_768.0 * 32_768.0)).log10()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores by the loudness of the first sample; counts how often it was asked.
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
        assert_eq!((vad.detector.score_calls, vad.detector.resets), (25 + 11, 1), "the gate shuts once");
    }

    #[test]
    fn levels_are_in_db_of_full_scale() {
        assert_eq!(rms_dbfs(&[0; 256]), f32::NEG_INFINITY);
        assert_eq!(rms_dbfs(&[]), f32::NEG_INFINITY);
        assert!(rms_dbfs(&[i16::MIN; 256]).abs() < 1e-6);
        assert!((rms_dbfs(&[328; 256]) + 40.0).abs() < 0.01);
    }
}
