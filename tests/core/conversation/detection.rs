//! Voice activity in the audio of a microphone, computed apart from the bridge.

use voxbridge::audio::vad::{Edge, Segmenter, VadConfig, VoiceActivity};

use super::*;

/// The profile's `start_ms` of `[barge_in]`.
const SUSPICION_MS: u32 = 100;

/// Arrival times of the frames that complete a stage of a barge-in.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Detection {
    /// The first hop of speech.
    pub(crate) voiced: Option<Duration>,
    /// The first [`SUSPICION_MS`] of speech.
    pub(crate) suspected: Option<Duration>,
    /// An utterance with new speech.
    pub(crate) decided: Option<Duration>,
}

impl Detection {
    /// Stages in the microphone's audio. Only speech that arrives after `watched_from` counts.
    pub(crate) fn of(microphone: &Microphone, watched_from: Duration) -> Self {
        let mut intake = InputConverter::live(Encoding::S16le, microphone.rate_hz, 1).unwrap();
        let mut activity = VoiceActivity::new(VadConfig::default());
        let hop_samples = activity.hop_samples();
        let config = VadConfig { start_ms: SUSPICION_MS, end_ms: SUSPICION_MS, ..VadConfig::default() };
        let mut segmenter = Segmenter::new(config, hop_samples);
        let (mut found, mut samples, mut is_suspected) = (Self::default(), Vec::new(), false);
        for (at, frame) in &microphone.sent {
            intake.push(frame, &mut samples);
            let whole = samples.len() / hop_samples * hop_samples;
            for hop in samples[..whole].chunks_exact(hop_samples) {
                let is_speech = activity.push_hop(hop).is_speech;
                if *at <= watched_from {
                    continue;
                }
                if is_speech {
                    found.voiced.get_or_insert(*at);
                }
                match segmenter.push(is_speech, 0.0) {
                    Some(Edge::Start) => is_suspected = true,
                    Some(Edge::End | Edge::Limit | Edge::Cut { .. }) => is_suspected = false,
                    None => {}
                }
                if is_suspected {
                    found.suspected.get_or_insert(*at);
                    if activity.is_in_speech() {
                        found.decided.get_or_insert(*at);
                    }
                }
            }
            samples.drain(..whole);
        }
        found
    }
}
