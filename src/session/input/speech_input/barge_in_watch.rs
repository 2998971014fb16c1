//! Watch for barge-ins: tells speech from other sound while something plays.
//!
//! A short sound is only a suspicion, because a cough or a click looks like the beginning of a word. The detector's own
//! utterance confirms it: the same decision that the client learns as the start of speech.

use super::SpeechEvent;
use crate::{
    audio::vad::{Edge, Segmenter, VadConfig},
    spelling::profile::BargeInRules,
};

/// Watch for one barge-in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BargeInWatch {
    segmenter: Segmenter,
    is_suspected: bool,
}

impl BargeInWatch {
    /// Starts a watch for hops of `hop_samples`. A voice that `has_lasted_too_long` has to pause before it counts.
    pub(crate) fn new(rules: &BargeInRules, hop_samples: usize, has_lasted_too_long: bool) -> Self {
        let (start_ms, end_ms) = (rules.start_ms, rules.start_ms);
        let config = VadConfig { start_ms, end_ms, max_ms: u32::MAX, ..VadConfig::default() };
        let mut segmenter = Segmenter::new(config, hop_samples);
        if has_lasted_too_long {
            segmenter.force_start();
        }
        Self { segmenter, is_suspected: false }
    }

    /// Processes a hop. `in_utterance` is true while the detector is certain that the user speaks.
    pub(crate) fn push(&mut self, is_speech: bool, in_utterance: bool) -> Option<SpeechEvent> {
        let edge = self.segmenter.push(is_speech, 0.0);
        if edge == Some(Edge::Start) {
            self.is_suspected = true;
        }
        if self.is_suspected && in_utterance {
            self.is_suspected = false;
            return Some(SpeechEvent::Interrupted);
        }
        match edge? {
            Edge::Start => Some(SpeechEvent::InterruptionSuspected),
            Edge::End | Edge::Limit | Edge::Cut { .. } => {
                std::mem::take(&mut self.is_suspected).then_some(SpeechEvent::SuspicionDismissed)
            }
        }
    }

    /// Smallest number of hops until the watch can decide something.
    pub(crate) fn min_hops_to_edge(&self) -> u32 {
        self.segmenter.min_hops_to_edge()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;

    /// Events of the watch, with the number of their hop of 16 ms.
    fn events(has_lasted_too_long: bool, hops: &[(usize, bool, bool)]) -> Vec<(usize, SpeechEvent)> {
        let profile = Library::embedded().unwrap().profile("conversation").unwrap();
        let rules = &profile.dialogue.as_ref().unwrap().barge_in;
        let mut watch = BargeInWatch::new(rules, 256, has_lasted_too_long);
        let hops = hops.iter().flat_map(|(count, speech, inside)| vec![(*speech, *inside); *count]);
        (1..)
            .zip(hops)
            .filter_map(|(hop, (speech, inside))| Some((hop, watch.push(speech, inside)?)))
            .collect()
    }

    #[test]
    fn short_sound_is_suspected_and_dismissed() {
        let dismissed = [(7, SpeechEvent::InterruptionSuspected), (15, SpeechEvent::SuspicionDismissed)];
        assert_eq!(events(false, &[(8, true, false), (20, false, false)]), dismissed);
    }

    #[test]
    fn utterance_confirms_a_suspicion_once() {
        let confirmed = [(7, SpeechEvent::InterruptionSuspected), (16, SpeechEvent::Interrupted)];
        let hops = [(15, true, false), (30, true, true), (10, false, true), (30, false, false)];
        assert_eq!(events(false, &hops), confirmed);
    }

    #[test]
    fn speech_within_an_utterance_interrupts_without_a_suspicion() {
        assert_eq!(events(false, &[(8, true, true)]), [(7, SpeechEvent::Interrupted)]);
    }

    #[test]
    fn endless_voice_counts_only_after_a_pause() {
        assert_eq!(events(true, &[(500, true, true), (7, false, true)]), []);
        let hops = [(500, true, true), (7, false, true), (8, true, true)];
        assert_eq!(events(true, &hops), [(514, SpeechEvent::Interrupted)]);
    }
}
