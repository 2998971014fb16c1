//! Segmenter: finds the start and end of utterances, given which hops are speech.

use super::{VadConfig, quietest::QuietestPlace};
use crate::SPEECH_RATE_HZ;

/// Start or end of an utterance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Enough consecutive speech.
    Start,
    /// Enough consecutive silence.
    End,
    /// The utterance reached its maximum length. If the speech goes on, another utterance starts.
    Limit,
    /// The utterance ended at the quietest place of its newest audio. The hops since then begin the next utterance, which goes
    /// on.
    Cut {
        /// Number of these hops.
        hops: u32,
        /// The speech does not pause at that place.
        in_speech: bool,
    },
}

/// Turns hops of speech and silence into [`Edge`]s. Starts and ends alternate, beginning with a start.
#[derive(Debug, Clone, Copy)]
pub struct Segmenter {
    hop_ms: f32,
    config: VadConfig,
    /// Time since the start edge in ms; `None` outside an utterance.
    pub(super) since_start_ms: Option<f32>,
    /// Duration of the hops that contradict the current state, in ms.
    opposing_ms: f32,
    /// Time since the first hop of the speech that may start an utterance, or has started it, in ms.
    onset_ms: f32,
    /// Silence that ends the current utterance in this pause, in place of the configured one, in ms.
    pause_end_ms: Option<u32>,
    /// Where the current utterance can be cut.
    quietest: QuietestPlace,
}

/// Hops of speech that one hop of silence cancels while a start is counted. Macaw starts over at each silent hop.
/// earshot's score flickers within soft words, where starting over delayed the start by up to 1.1 s. With 3, a
/// single silent hop does little harm, and sound that is silent for a quarter of the time never triggers.
const START_LEAK: f32 = 3.0;

/// Length of speech that starts the next utterance after the end of a long one in speech or in a short pause, in ms.
const CONTINUATION_MS: u32 = 64;

impl Segmenter {
    /// A segmenter for hops of `hop_samples` samples at 16 kHz.
    pub fn new(config: VadConfig, hop_samples: usize) -> Self {
        let hop_ms = hop_samples as f32 * 1000.0 / SPEECH_RATE_HZ as f32;
        Self {
            hop_ms,
            config,
            since_start_ms: None,
            opposing_ms: 0.0,
            onset_ms: 0.0,
            pause_end_ms: None,
            quietest: QuietestPlace::NONE,
        }
    }

    /// Processes one hop of this energy and returns the edge that it completes.
    pub fn push(&mut self, speech: bool, energy: f32) -> Option<Edge> {
        let Some(since_start_ms) = &mut self.since_start_ms else {
            let step_ms = if speech { self.hop_ms } else { -START_LEAK * self.hop_ms };
            self.opposing_ms = (self.opposing_ms + step_ms).max(0.0);
            self.onset_ms = if self.opposing_ms > 0.0 { self.onset_ms + self.hop_ms } else { 0.0 };
            return (speech && self.has_lasted(self.config.start_ms))
                .then(|| self.switch_to(Some(0.0), Edge::Start));
        };
        *since_start_ms += self.hop_ms;
        let since_start_ms = *since_start_ms;
        // End one hop early: a recording never exceeds the limit, whatever the length of a hop.
        let has_reached = |max_ms: u32| since_start_ms + self.hop_ms > max_ms as f32;
        let (limit, cut) = (has_reached(self.config.max_ms), has_reached(self.config.cut_max_ms));
        let is_long = since_start_ms >= self.config.cut_after_ms as f32;
        self.opposing_ms = if speech { 0.0 } else { self.opposing_ms + self.hop_ms };
        if speech {
            self.pause_end_ms = None;
        }
        if is_long {
            self.quietest.push(speech, energy);
        }
        if self.has_lasted(if is_long { self.shorter_pause_ms() } else { self.end_ms() }) {
            let is_early = !self.has_lasted(self.end_ms());
            let edge = self.switch_to(None, Edge::End);
            if is_early {
                self.expect_continuation();
            }
            return Some(edge);
        }
        if cut && self.config.cut_max_ms <= self.config.max_ms {
            return Some(self.cut());
        }
        if limit {
            let edge = self.switch_to(None, Edge::Limit);
            if speech {
                self.expect_continuation();
            }
            return Some(edge);
        }
        cut.then(|| self.cut())
    }

    /// Ends the utterance at its quietest place, and begins the next one there; or ends it now if it has been silent since, so
    /// that no utterance begins without speech.
    fn cut(&mut self) -> Edge {
        let (hops, in_speech) = (self.quietest.hops_since(), self.quietest.is_in_speech());
        let rest_ms = hops as f32 * self.hop_ms;
        let opposing_ms = self.opposing_ms;
        if opposing_ms >= rest_ms {
            let edge = self.switch_to(None, Edge::Limit);
            self.expect_continuation();
            return edge;
        }
        let edge = self.switch_to(Some(rest_ms), Edge::Cut { hops, in_speech });
        self.opposing_ms = opposing_ms;
        edge
    }

    /// Makes a short stretch of speech start the next utterance: the speech probably goes on, and would be lost if it were too
    /// short for a start of its own.
    const fn expect_continuation(&mut self) {
        self.opposing_ms = self.config.start_ms.saturating_sub(CONTINUATION_MS) as f32;
    }

    /// Silence that ends a long utterance.
    fn shorter_pause_ms(&self) -> u32 {
        self.end_ms().min(self.config.cut_pause_ms)
    }

    /// Silence that ends the current utterance.
    fn end_ms(&self) -> u32 {
        self.pause_end_ms.unwrap_or(self.config.end_ms)
    }

    /// Sets the silence that ends the current utterance, until speech goes on. Returns the edge if the pause has lasted that
    /// long.
    pub fn set_pause_end(&mut self, ms: u32) -> Option<Edge> {
        self.since_start_ms?;
        self.pause_end_ms = Some(ms);
        self.has_lasted(ms).then(|| self.switch_to(None, Edge::End))
    }

    /// Lets the current pause last this long, until another length is set or speech goes on. A value below the configured one is
    /// raised to it.
    pub fn extend_pause(&mut self, ms: u32) {
        self.pause_end_ms = self.since_start_ms.map(|_| ms.max(self.config.end_ms));
    }

    /// Returns to the configured silence in this pause.
    pub const fn clear_pause_end(&mut self) {
        self.pause_end_ms = None;
    }

    /// Length of the current pause in an utterance, in ms; 0 while the user speaks, `None` outside of utterances.
    pub fn pause_ms(&self) -> Option<f32> {
        self.since_start_ms.map(|_| self.opposing_ms)
    }

    /// Smallest number of hops until a pause in the utterance has this length; `None` outside of utterances, and in a pause
    /// that has it.
    pub fn min_hops_to_pause(&self, ms: u32) -> Option<u32> {
        let missing_ms = Some(ms as f32 - self.pause_ms()?).filter(|missing_ms| *missing_ms > 0.0)?;
        Some(((missing_ms / self.hop_ms).ceil() as u32).max(1))
    }

    /// True during an utterance.
    pub const fn is_in_speech(&self) -> bool {
        self.since_start_ms.is_some()
    }

    /// True if no hop of speech counts towards an utterance.
    pub fn is_silent(&self) -> bool {
        self.since_start_ms.is_none() && self.opposing_ms == 0.0
    }

    /// Length of the speech that has just completed an [`Edge::Start`], from its first hop, in ms.
    pub const fn onset_ms(&self) -> f32 {
        self.onset_ms
    }

    /// Smallest number of hops until the next edge, including the hop that completes it.
    pub fn min_hops_to_edge(&self) -> u32 {
        let short = |ms: u32| (ms as f32 - self.opposing_ms).max(0.0);
        let hops = |ms: f32| ((ms / self.hop_ms).ceil() as u32).max(1);
        let Some(since_start_ms) = self.since_start_ms else { return hops(short(self.config.start_ms)) };
        // The limit edge comes one hop before the limit would be exceeded; reaching it is allowed.
        let max_ms = self.config.max_ms.min(self.config.cut_max_ms);
        let left_ms = max_ms as f32 - self.hop_ms - since_start_ms;
        let to_limit = (left_ms / self.hop_ms).floor().max(0.0) as u32;
        let to_cut = hops(self.config.cut_after_ms as f32 - since_start_ms);
        let to_cut = to_cut.max(hops(short(self.shorter_pause_ms())));
        hops(short(self.end_ms())).min(to_limit.saturating_add(1)).min(to_cut)
    }

    /// Applies another configuration from now on, also to the current utterance.
    pub const fn set_config(&mut self, config: VadConfig) {
        self.config = config;
    }

    /// Enters an utterance without an edge, because speech is already going on.
    pub const fn force_start(&mut self) {
        self.since_start_ms = Some(0.0);
        self.opposing_ms = 0.0;
        self.pause_end_ms = None;
        self.quietest = QuietestPlace::NONE;
    }

    /// Returns to silence without an edge.
    pub const fn reset(&mut self) {
        self.since_start_ms = None;
        self.opposing_ms = 0.0;
        self.onset_ms = 0.0;
        self.pause_end_ms = None;
    }

    fn has_lasted(&self, ms: u32) -> bool {
        self.opposing_ms > 0.0 && self.opposing_ms >= ms as f32
    }

    fn switch_to(&mut self, since_start_ms: Option<f32>, edge: Edge) -> Edge {
        self.since_start_ms = since_start_ms;
        self.opposing_ms = 0.0;
        self.pause_end_ms = None;
        self.quietest = QuietestPlace::NONE;
        if edge != Edge::Start {
            self.onset_ms = 0.0;
        }
        edge
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOP_MS: u32 = 16;

    /// Edges with the end of their hop in ms, for stretches of speech or silence given in ms.
    fn edges(segmenter: &mut Segmenter, stretches: &[(bool, u32)]) -> Vec<(u32, Edge)> {
        let hops = stretches.iter().flat_map(|(speech, ms)| (0..ms / HOP_MS).map(|_| *speech));
        (1..)
            .zip(hops)
            .filter_map(|(hop, speech)| segmenter.push(speech, 1.0).map(|edge| (hop * HOP_MS, edge)))
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
        assert_eq!(edges(&mut segmenter(), &flicker), [], "one third of silence prevents a start");
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
                (limit + 64, Edge::Start),
                (2 * limit - 192, Edge::Limit),
                (2 * limit - 192 + 64, Edge::Start)
            ]
        );
    }

    #[test]
    fn long_speech_ends_at_the_next_short_pause() {
        let config = VadConfig { cut_after_ms: 20_000, cut_pause_ms: 192, ..VadConfig::default() };
        let phrase = [(true, 4_000), (false, 192)];
        let found = edges(&mut Segmenter::new(config, 256), &phrase.repeat(8));
        let cut = 5 * 4_192;
        assert_eq!(found, [(256, Edge::Start), (cut, Edge::End), (cut + 64, Edge::Start)]);
    }

    #[test]
    fn long_speech_without_pauses_is_cut_at_its_quietest_place_and_goes_on() {
        let config = VadConfig { cut_after_ms: 3_200, cut_max_ms: 4_800, ..VadConfig::default() };
        let mut segmenter = Segmenter::new(config, 256);
        // Quiet in the middle of each second.
        let energy = |hop: u32| if (hop + 31) % 62 < 6 { 1.0 } else { 100.0 };
        let found: Vec<_> =
            (1..=900).filter_map(|hop| segmenter.push(true, energy(hop)).map(|edge| (hop, edge))).collect();
        assert_eq!(found[0], (16, Edge::Start));
        let places = found[1..].iter().map(|(hop, edge)| match edge {
            Edge::Cut { hops, in_speech: true } => hop - hops,
            edge => panic!("{edge:?}"),
        });
        let places: Vec<u32> = places.collect();
        assert!(places.iter().all(|place| energy(*place) < 2.0 && energy(place + 1) < 2.0), "{places:?}");
        let lengths: Vec<u32> = places.windows(2).map(|pair| (pair[1] - pair[0]) * HOP_MS).collect();
        assert!(lengths.len() > 1 && lengths.iter().all(|ms| (3_000..=4_800).contains(ms)), "{lengths:?}");
        assert!(segmenter.is_in_speech());
    }

    #[test]
    fn short_rest_of_speech_after_the_limit_is_kept() {
        let found = edges(&mut segmenter(), &[(true, 256 + 30_000 + 112), (false, 480)]);
        let limit = 256 + 30_000;
        let rest = [(limit + 64, Edge::Start), (limit + 112 + 304, Edge::End)];
        assert_eq!(found[1..], [&[(limit, Edge::Limit)][..], &rest].concat());
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
        fn edges_alternate(hops in prop::collection::vec(any::<bool>(), 0..600), max_ms in 0u32..2_000, cut_max_ms in 0u32..4_000) {
            let config = VadConfig { start_ms: 32, end_ms: 32, max_ms, cut_max_ms, ..VadConfig::default() };
            let mut segmenter = Segmenter::new(config, 256);
            let mut inside = false;
            for (at, speech) in hops.iter().copied().enumerate() {
                if let Some(edge) = segmenter.push(speech, 1.0) {
                    prop_assert_eq!(inside, edge != Edge::Start);
                    if let Edge::Cut { hops: rest, .. } = edge {
                        let rest = &hops[at + 1 - rest as usize..=at];
                        prop_assert!(rest.contains(&true), "an utterance begins without speech");
                    }
                    inside = matches!(edge, Edge::Start | Edge::Cut { .. });
                }
                prop_assert_eq!(segmenter.is_in_speech(), inside);
            }
        }
    }

    /// Configurations whose times are short enough to count hop by hop.
    fn configs() -> impl Strategy<Value = VadConfig> {
        let ms = || 0u32..600;
        (ms(), ms(), 0u32..2_000, 0u32..2_000, ms(), 0u32..4_000).prop_map(
            |(start_ms, end_ms, max_ms, cut_after_ms, cut_pause_ms, cut_max_ms)| VadConfig {
                start_ms,
                end_ms,
                max_ms,
                cut_after_ms,
                cut_pause_ms,
                cut_max_ms,
                ..VadConfig::default()
            },
        )
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
                // If all following hops favour an edge, it comes exactly then.
                let mut probe = segmenter;
                let against = !probe.is_in_speech();
                let first = (1..=10_000).find(|_| probe.push(against, 1.0).is_some());
                prop_assert_eq!(first, Some(min_hops), "hop {} {:?}", at, segmenter);
                // Whatever hop follows, the distance shrinks by at most one hop.
                let edge = segmenter.push(speech, 1.0);
                prop_assert!(min_hops == 1 || edge.is_none());
                prop_assert!(edge.is_some() || segmenter.min_hops_to_edge() + 1 >= min_hops);
            }
        }
    }
}
