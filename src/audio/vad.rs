//! Voice activity: which hops of 16 kHz int16 are speech, and where utterances start and end.
//!
//! A [`Detector`] scores hops, a [`Segmenter`] turns hops into edges, [`VoiceActivity`] is both behind an energy gate.
//! The timing is Macaw's (field notes macaw.md §3: 250 ms of speech start, 300 ms of silence end, 30 s force an end);
//! the detector is [`Earshot`]. Pre-roll is the listener's business: an edge is reported when it is certain.

use super::SPEECH_RATE_HZ;
pub use super::earshot::Earshot;

/// Tells speech from everything else, hop by hop.
pub trait Detector {
    /// Samples at 16 kHz that [`score`](Self::score) takes at a time.
    fn hop_samples(&self) -> usize;
    /// How likely the hop is speech, `0.0 ..= 1.0`, given those before it.
    fn score(&mut self, hop: &[i16]) -> f32;
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

/// Where an utterance starts or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Enough speech in a row.
    Start,
    /// Enough silence in a row.
    End,
    /// The utterance has reached its longest time; if the speech goes on, another one starts.
    Limit,
}

/// Turns hops of speech and silence into [`Edge`]s; they alternate, beginning with a start.
#[derive(Debug, Clone, Copy)]
pub struct Segmenter {
    hop_ms: f32,
    config: VadConfig,
    /// Since the start edge in ms; none outside an utterance.
    since_start_ms: Option<f32>,
    /// How long the hops have been against the present state, in ms.
    against_ms: f32,
}

/// How many hops of speech a single hop of silence takes back while a start is being counted. Macaw starts over at
/// each; earshot's score flickers within words, so starting over cost up to 1.4 s on the recordings at −30 dB.
/// With 3, a hop now and then passes and anything that is silent for a quarter of the time never gets anywhere.
const START_LEAK: f32 = 3.0;

impl Segmenter {
    /// A segmenter of hops of that many samples at 16 kHz.
    #[must_use]
    pub fn new(config: VadConfig, hop_samples: usize) -> Self {
        let hop_ms = hop_samples as f32 * 1000.0 / SPEECH_RATE_HZ as f32;
        Self { hop_ms, config, since_start_ms: None, against_ms: 0.0 }
    }

    /// Takes one hop; gives the edge it completes.
    pub fn push(&mut self, speech: bool) -> Option<Edge> {
        let Some(since_start_ms) = &mut self.since_start_ms else {
            let step_ms = if speech { self.hop_ms } else { -START_LEAK * self.hop_ms };
            self.against_ms = (self.against_ms + step_ms).max(0.0);
            return (speech && self.reached(self.config.start_ms))
                .then(|| self.switch(Some(0.0), Edge::Start));
        };
        *since_start_ms += self.hop_ms;
        let limit = *since_start_ms >= self.config.max_ms as f32;
        self.against_ms = if speech { 0.0 } else { self.against_ms + self.hop_ms };
        if self.reached(self.config.end_ms) {
            return Some(self.switch(None, Edge::End));
        }
        limit.then(|| self.switch(None, Edge::Limit))
    }

    /// Whether an utterance is going on.
    #[must_use]
    pub const fn in_speech(&self) -> bool {
        self.since_start_ms.is_some()
    }

    /// Takes other settings from now on; the utterance going on is judged by them.
    pub const fn set_config(&mut self, config: VadConfig) {
        self.config = config;
    }

    /// Back to silence, without an edge.
    pub const fn reset(&mut self) {
        self.since_start_ms = None;
        self.against_ms = 0.0;
    }

    fn reached(&self, ms: u32) -> bool {
        self.against_ms > 0.0 && self.against_ms >= ms as f32
    }

    const fn switch(&mut self, since_start_ms: Option<f32>, edge: Edge) -> Edge {
        self.since_start_ms = since_start_ms;
        self.against_ms = 0.0;
        edge
    }
}

/// What a hop was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopResult {
    /// The hop is speech.
    pub speech: bool,
    /// The edge it completes.
    pub edge: Option<Edge>,
}

/// Detector, energy gate and segmenter of one stream.
#[derive(Debug)]
pub struct VoiceActivity<D = Earshot> {
    detector: D,
    segmenter: Segmenter,
    config: VadConfig,
    /// Hops for which the gate stays open.
    open_hops: u32,
}

/// How long the gate stays open after the last hop above it: 192 ms, longer than the weak sounds within a word. A
/// gate that shut at every hop delayed starts by up to 2 s at −30 dB; with this it delays none.
const GATE_HANGOVER_HOPS: u32 = 12;

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
        Self { detector, segmenter, config, open_hops: 0 }
    }

    /// Samples at 16 kHz that [`hop`](Self::hop) takes at a time.
    #[must_use]
    pub fn hop_samples(&self) -> usize {
        self.detector.hop_samples()
    }

    /// Takes one hop of [`hop_samples`](Self::hop_samples) samples.
    pub fn hop(&mut self, hop: &[i16]) -> HopResult {
        let speech = self.gate(hop) && self.detector.score(hop) > self.config.threshold;
        HopResult { speech, edge: self.segmenter.push(speech) }
    }

    /// Whether an utterance is going on.
    #[must_use]
    pub const fn in_speech(&self) -> bool {
        self.segmenter.in_speech()
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
        self.open_hops = 0;
    }

    /// Whether the gate is open. When it shuts, the detector forgets, so that it meets the next speech fresh rather
    /// than with a context from before the silence (no measurable effect on starts, and none on what they depend on).
    fn gate(&mut self, hop: &[i16]) -> bool {
        if rms_dbfs(hop) >= self.config.gate_dbfs {
            self.open_hops = GATE_HANGOVER_HOPS;
            return true;
        }
        match self.open_hops {
            0 => return false,
            1 => self.detector.reset(),
            _ => {}
        }
        self.open_hops -= 1;
        self.open_hops > 0
    }
}

/// Root mean square level in dB of full scale; −∞ for digital silence and for no samples.
#[must_use]
pub fn rms_dbfs(samples: &[i16]) -> f32 {
    let energy: u64 = samples.iter().map(|sample| u64::from(sample.unsigned_abs()).pow(2)).sum();
    let mean = energy as f64 / samples.len().max(1) as f64;
    (10.0 * (mean / (32_768.0 * 32_768.0)).log10()) as f32
}
