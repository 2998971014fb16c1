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
/// each; earshot's score flickers within soft words, where that cost up to 1.1 s more than forgiving two hops.
/// With 3, a hop now and then passes and what is silent for a quarter of the time never gets anywhere.
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
        // One more hop would be too long: what is recorded never exceeds the limit, whatever the hop's length.
        let limit = *since_start_ms + self.hop_ms > self.config.max_ms as f32;
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

    /// How many hops at least there are to the next edge, whatever they are; the last of them completes it.
    #[must_use]
    pub fn hops_to_edge(&self) -> u32 {
        let short = |ms: u32| (ms as f32 - self.against_ms).max(0.0);
        let left_ms = match self.since_start_ms {
            None => short(self.config.start_ms),
            // The limit comes a hop before it would be passed.
            Some(since) => short(self.config.end_ms).min(self.config.max_ms as f32 - self.hop_ms - since),
        };
        ((left_ms / self.hop_ms).ceil() as u32).max(1)
    }

    /// Takes other settings from now on; the utterance going on is judged by them.
    pub const fn set_config(&mut self, config: VadConfig) {
        self.config = config;
    }

    /// Into an utterance, without an edge: somebody speaks already.
    pub const fn begin(&mut self) {
        self.since_start_ms = Some(0.0);
        self.against_ms = 0.0;
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
    floor: Floor,
    /// Hops for which the gate stays open.
    open_hops: u32,
}

/// How loud it is when nobody speaks. A room is never silent, asking the detector about a room costs as much as asking it
/// about speech, and what it remembers of a room only confuses it: on the seven recordings in examples/speech at two levels
/// each, over white, pink and brown noise, it missed 2 of 42 at 5 dB and 8 at 0 dB when it was always asked, and 0 and 1
/// behind this gate, which was open for 47 to 62 % of the time (steady noise that wanders, as brown does, opens it).
#[derive(Debug, Clone, Copy)]
struct Floor {
    /// The softest hop, rising by [`FLOOR_RISE_DB`] a hop since.
    dbfs: f32,
    hops: u32,
}

impl Floor {
    const UNKNOWN: Self = Self { dbfs: f32::INFINITY, hops: 0 };

    /// Whether a hop of that level is more than the room.
    fn stands_out(&mut self, hop_dbfs: f32) -> bool {
        self.dbfs = (self.dbfs + FLOOR_RISE_DB).min(hop_dbfs).max(FLOOR_LOWEST_DBFS);
        self.hops = self.hops.saturating_add(1);
        self.hops < FLOOR_KNOWN_HOPS || hop_dbfs > self.dbfs + STANDS_OUT_DB
    }
}

/// How fast the floor rises: 6 dB a second, as a fan that is switched on is to be known soon.
const FLOOR_RISE_DB: f32 = 6.0 * 0.016;
/// No room is softer; what would be is digital silence.
const FLOOR_LOWEST_DBFS: f32 = -80.0;
/// Who speaks from the first moment on is not taken for the room: it is known after a second.
const FLOOR_KNOWN_HOPS: u32 = 63;
/// What is louder than the room by this much may be speech. Hops of steady noise vary by less; where speech is as loud as the
/// noise on average its loud sounds stand out by more, and the gate stays open between them.
const STANDS_OUT_DB: f32 = 4.0;

/// How long the gate stays open after the last hop above it: 192 ms, longer than the weak sounds within a word. A
/// gate at −60 dBFS without it delayed starts by up to 2 s and missed a recording at −30 dB; with it, none.
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
        Self { detector, segmenter, config, floor: Floor::UNKNOWN, open_hops: 0 }
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

    /// How many hops at least there are to the next edge.
    #[must_use]
    pub fn hops_to_edge(&self) -> u32 {
        self.segmenter.hops_to_edge()
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
        self.floor = Floor::UNKNOWN;
        self.open_hops = 0;
    }

    /// Whether the gate is open. When it shuts, the detector forgets: it meets the next speech fresh, not with a
    /// context from before the silence. On the recordings that starts utterances as early as keeping the context, and
    /// within three hops of running the detector through the silence.
    fn gate(&mut self, hop: &[i16]) -> bool {
        let hop_dbfs = rms_dbfs(hop);
        if self.floor.stands_out(hop_dbfs) && hop_dbfs >= self.config.gate_dbfs {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOP_MS: u32 = 16;

    /// Edges with the time of the end of their hop, in ms, for stretches of speech and silence of so many ms.
    fn edges(segmenter: &mut Segmenter, stretches: &[(bool, u32)]) -> Vec<(u32, Edge)> {
        let hops = stretches.iter().flat_map(|(speech, ms)| (0..ms / HOP_MS).map(|_| *speech));
        (1..)
            .zip(hops)
            .filter_map(|(hop, speech)| segmenter.push(speech).map(|edge| (hop * HOP_MS, edge)))
            .collect()
    }

    fn segmenter() -> Segmenter {
        Segmenter::new(VadConfig::default(), 256)
    }

    #[test]
    fn speech_starts_after_250_ms_and_ends_after_300() {
        let found = edges(&mut segmenter(), &[(false, 480), (true, 960), (false, 480)]);
        assert_eq!(found, [(480 + 256, Edge::Start), (480 + 960 + 304, Edge::End)]);
    }

    #[test]
    fn blips_and_pauses_of_200_ms_do_not_switch() {
        let blips = [(true, 208), (false, 208), (true, 208), (false, 208), (true, 208), (false, 480)];
        assert_eq!(edges(&mut segmenter(), &blips), []);
        let pauses = [(true, 320), (false, 208), (true, 208), (false, 208), (true, 16), (false, 208)];
        assert_eq!(edges(&mut segmenter(), &pauses), [(256, Edge::Start)]);
    }

    #[test]
    fn a_flickering_hop_delays_a_start_but_does_not_prevent_it() {
        let found = edges(&mut segmenter(), &[(true, 160), (false, 16), (true, 320)]);
        assert_eq!(found, [(256 + 4 * HOP_MS, Edge::Start)]);
        let flicker = [(true, 32), (false, 16)].repeat(200);
        assert_eq!(edges(&mut segmenter(), &flicker), [], "a third of silence is no speech");
    }

    #[test]
    fn endless_speech_is_cut_and_starts_again() {
        let found = edges(&mut segmenter(), &[(true, 64_000)]);
        let limit = 256 + 30_000;
        assert_eq!(
            found,
            [
                (256, Edge::Start),
                (limit, Edge::Limit),
                (limit + 256, Edge::Start),
                (2 * limit, Edge::Limit),
                (2 * limit + 256, Edge::Start)
            ]
        );
    }

    #[test]
    fn settings_change_at_run_time() {
        let mut segmenter = segmenter();
        assert_eq!(edges(&mut segmenter, &[(true, 256), (false, 160)]), [(256, Edge::Start)]);
        segmenter.set_config(VadConfig { end_ms: 160, start_ms: 32, ..VadConfig::default() });
        assert_eq!(edges(&mut segmenter, &[(false, 16)]), [(16, Edge::End)]);
        assert_eq!(edges(&mut segmenter, &[(true, 32)]), [(32, Edge::Start)]);
    }

    /// Scores by the loudness of the first sample; counts how often it was asked.
    #[derive(Default)]
    struct Fake {
        asked: usize,
        resets: usize,
    }

    impl Detector for Fake {
        fn hop_samples(&self) -> usize {
            160
        }

        fn score(&mut self, hop: &[i16]) -> f32 {
            self.asked += 1;
            f32::from(hop[0]) / 32_768.0
        }

        fn reset(&mut self) {
            self.resets += 1;
        }
    }

    #[test]
    fn silence_does_not_trouble_the_detector() {
        let mut vad = VoiceActivity::with_detector(VadConfig::default(), Fake::default());
        let (silence, loud) = ([3i16; 160], [30_000i16; 160]);
        for _ in 0..100 {
            assert_eq!(vad.hop(&silence), HopResult { speech: false, edge: None });
        }
        assert_eq!((vad.detector.asked, vad.detector.resets), (0, 0));
        let starts = (0..25).filter(|_| vad.hop(&loud).edge == Some(Edge::Start)).count();
        assert_eq!(starts, 1);
        assert!(vad.in_speech());
        let ends: Vec<usize> = (1..100).filter(|_| vad.hop(&silence).edge == Some(Edge::End)).collect();
        assert_eq!(ends, [30], "300 ms in hops of 10");
        assert_eq!((vad.detector.asked, vad.detector.resets), (25 + 11, 1), "the gate shuts once");
    }

    #[test]
    fn levels_are_in_db_of_full_scale() {
        assert_eq!(rms_dbfs(&[0; 256]), f32::NEG_INFINITY);
        assert_eq!(rms_dbfs(&[]), f32::NEG_INFINITY);
        assert!(rms_dbfs(&[i16::MIN; 256]).abs() < 1e-6);
        assert!((rms_dbfs(&[328; 256]) + 40.0).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn edges_alternate(hops in prop::collection::vec(any::<bool>(), 0..600), max_ms in 0u32..2_000) {
            let mut segmenter =
                Segmenter::new(VadConfig { start_ms: 32, end_ms: 32, max_ms, ..VadConfig::default() }, 256);
            let mut inside = false;
            for speech in hops {
                if let Some(edge) = segmenter.push(speech) {
                    prop_assert_eq!(inside, edge != Edge::Start);
                    inside = !inside;
                }
                prop_assert_eq!(segmenter.in_speech(), inside);
            }
        }
    }
}
