//! Where utterances start and end, given which hops are speech.

use super::VadConfig;
use crate::audio::SPEECH_RATE_HZ;

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
    opposing_ms: f32,
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
        Self { hop_ms, config, since_start_ms: None, opposing_ms: 0.0 }
    }

    /// Takes one hop; gives the edge it completes.
    pub fn push(&mut self, speech: bool) -> Option<Edge> {
        let Some(since_start_ms) = &mut self.since_start_ms else {
            let step_ms = if speech { self.hop_ms } else { -START_LEAK * self.hop_ms };
            self.opposing_ms = (self.opposing_ms + step_ms).max(0.0);
            return (speech && self.has_lasted(self.config.start_ms))
                .then(|| self.switch_to(Some(0.0), Edge::Start));
        };
        *since_start_ms += self.hop_ms;
        // One more hop would be too long: what is recorded never exceeds the limit, whatever the hop's length.
        let limit = *since_start_ms + self.hop_ms > self.config.max_ms as f32;
        self.opposing_ms = if speech { 0.0 } else { self.opposing_ms + self.hop_ms };
        if self.has_lasted(self.config.end_ms) {
            return Some(self.switch_to(None, Edge::End));
        }
        limit.then(|| self.switch_to(None, Edge::Limit))
    }

    /// Whether an utterance is going on.
    #[must_use]
    pub const fn is_in_speech(&self) -> bool {
        self.since_start_ms.is_some()
    }

    /// How many hops at least there are to the next edge, whatever they are; the last of them completes it.
    #[must_use]
    pub fn min_hops_to_edge(&self) -> u32 {
        let short = |ms: u32| (ms as f32 - self.opposing_ms).max(0.0);
        let hops = |ms: f32| ((ms / self.hop_ms).ceil() as u32).max(1);
        let Some(since_start_ms) = self.since_start_ms else { return hops(short(self.config.start_ms)) };
        // The limit comes a hop before it would be passed; reached is not passed.
        let left_ms = self.config.max_ms as f32 - self.hop_ms - since_start_ms;
        let to_limit = (left_ms / self.hop_ms).floor().max(0.0) as u32;
        hops(short(self.config.end_ms)).min(to_limit.saturating_add(1))
    }

    /// Takes other settings from now on; the utterance going on is judged by them.
    pub const fn set_config(&mut self, config: VadConfig) {
        self.config = config;
    }

    /// Into an utterance, without an edge: somebody speaks already.
    pub const fn force_start(&mut self) {
        self.since_start_ms = Some(0.0);
        self.opposing_ms = 0.0;
    }

    /// Back to silence, without an edge.
    pub const fn reset(&mut self) {
        self.since_start_ms = None;
        self.opposing_ms = 0.0;
    }

    fn has_lasted(&self, ms: u32) -> bool {
        self.opposing_ms > 0.0 && self.opposing_ms >= ms as f32
    }

    const fn switch_to(&mut self, since_start_ms: Option<f32>, edge: Edge) -> Edge {
        self.since_start_ms = since_start_ms;
        self.opposing_ms = 0.0;
        edge
    }
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
    fn speech_and_pauses_of_200_ms_cause_no_edge() {
        let blips = [(true, 208), (false, 208), (true, 208), (false, 208), (true, 208), (false, 480)];
        assert_eq!(edges(&mut segmenter(), &blips), []);
        let pauses = [(true, 320), (false, 208), (true, 208), (false, 208), (true, 16), (false, 208)];
        assert_eq!(edges(&mut segmenter(), &pauses), [(256, Edge::Start)]);
    }

    #[test]
    fn flickering_hops_delay_but_do_not_prevent_a_start() {
        let found = edges(&mut segmenter(), &[(true, 160), (false, 16), (true, 320)]);
        assert_eq!(found, [(256 + 4 * HOP_MS, Edge::Start)]);
        let flicker = [(true, 32), (false, 16)].repeat(200);
        assert_eq!(edges(&mut segmenter(), &flicker), [], "a third of silence is no speech");
    }

    #[test]
    fn endless_speech_is_split_at_the_limit() {
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
    fn config_change_applies_to_the_open_utterance() {
        let mut segmenter = segmenter();
        assert_eq!(edges(&mut segmenter, &[(true, 256), (false, 160)]), [(256, Edge::Start)]);
        segmenter.set_config(VadConfig { end_ms: 160, start_ms: 32, ..VadConfig::default() });
        assert_eq!(edges(&mut segmenter, &[(false, 16)]), [(16, Edge::End)]);
        assert_eq!(edges(&mut segmenter, &[(true, 32)]), [(32, Edge::Start)]);
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
                prop_assert_eq!(segmenter.is_in_speech(), inside);
            }
        }
    }

    /// As long as nothing is too long to be counted.
    fn configs() -> impl Strategy<Value = VadConfig> {
        let ms = || 0u32..600;
        (ms(), ms(), 0u32..2_000).prop_map(|(start_ms, end_ms, max_ms)| VadConfig {
            start_ms,
            end_ms,
            max_ms,
            ..VadConfig::default()
        })
    }

    proptest! {
        #[test]
        fn no_edge_comes_before_min_hops_to_edge(
            config in configs(),
            hop_samples in prop::sample::select(vec![160usize, 256, 480, 512]),
            stretches in prop::collection::vec((any::<bool>(), 1usize..40), 0..40),
        ) {
            let mut segmenter = Segmenter::new(config, hop_samples);
            let hops = stretches.iter().flat_map(|(speech, hops)| vec![*speech; *hops]);
            for (at, speech) in hops.enumerate() {
                let min_hops = segmenter.min_hops_to_edge();
                prop_assert!(min_hops >= 1);
                // If all that follow are for an edge it comes exactly then, neither before nor after.
                let mut probe = segmenter;
                let against = !probe.is_in_speech();
                let first = (1..=10_000).find(|_| probe.push(against).is_some());
                prop_assert_eq!(first, Some(min_hops), "hop {} {:?}", at, segmenter);
                // Whatever comes, it comes no nearer than by a hop at a time.
                let edge = segmenter.push(speech);
                prop_assert!(min_hops == 1 || edge.is_none());
                prop_assert!(edge.is_some() || segmenter.min_hops_to_edge() + 1 >= min_hops);
            }
        }
    }
}
