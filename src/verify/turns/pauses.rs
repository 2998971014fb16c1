//! The pauses of a recorded turn, as the voice detector finds them, and what a model says at each look.

use serde::Serialize;

use crate::audio::{
    SPEECH_RATE_HZ,
    vad::{Edge, HOP_SAMPLES, VadConfig, VoiceActivity},
};

/// Samples at 16 kHz in a millisecond.
const SAMPLES_PER_MS: usize = SPEECH_RATE_HZ as usize / 1000;
/// Silence that makes a pause: no judge ends a turn earlier.
pub const PAUSE_MIN_MS: f32 = 200.0;
/// Audio before the first speech that the model hears, as in the profiles.
const PRE_ROLL_MS: usize = 300;
/// Audio that the model hears: 8 s.
const JUDGED_SAMPLES: usize = 8000 * SAMPLES_PER_MS;
/// Silence that a recording has after its end, at least. The longest that a judge waits is shorter.
const TAIL_MS: usize = 4500;
/// Stretch of noise of the room that is repeated where a recording ends too early.
const NOISE_SAMPLES: usize = 60 * SAMPLES_PER_MS;

/// The model: the probability that the user has finished, from int16 mono audio at 16 kHz that ends in the pause; `None` if it
/// failed.
pub type Model<'m> = dyn FnMut(&[i16]) -> Option<f32> + 'm;

/// What the model says at one time in a pause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Look {
    /// Silence until then, ms.
    pub silence_ms: u32,
    /// Probability that the user has finished.
    pub probability: Option<f32>,
}

/// A pause of at least [`PAUSE_MIN_MS`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Pause {
    /// Where the silence begins in the recording, ms.
    pub at_ms: f32,
    /// Length until speech goes on or the recording ends, ms.
    pub length_ms: f32,
    /// The looks at it.
    pub looks: Vec<Look>,
}

/// A recorded turn.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Turn {
    /// Where the turn ends, ms.
    pub end_ms: f32,
    /// The pauses inside of it.
    pub pauses: Vec<Pause>,
    /// Stretches of silence after its end: one, or several if the detector takes noise for speech.
    pub after: Vec<Pause>,
}

/// Finds the pauses of recordings.
pub struct Listener<'m> {
    /// Silences at which the model is asked, ms, in order.
    pub looks_ms: &'m [u32],
    /// The model, if there is one.
    pub model: Option<&'m mut Model<'m>>,
}

impl Listener<'_> {
    /// Listens to one turn: int16 mono at 16 kHz. The turn ends at `end_ms`, or where the last speech is.
    pub fn listen(&mut self, samples: &[i16], end_ms: Option<f32>) -> Turn {
        let samples = with_tail(samples, end_ms);
        let mut pauses = self.find_pauses(&samples);
        let end_ms = end_ms.or(pauses.last().map(|pause| pause.at_ms)).unwrap_or_default();
        let inner = pauses.iter().take_while(|pause| pause.at_ms + pause.length_ms < end_ms).count();
        let after = pauses.split_off(inner);
        Turn { end_ms, pauses, after }
    }

    fn find_pauses(&mut self, samples: &[i16]) -> Vec<Pause> {
        let config = VadConfig { end_ms: u32::MAX, max_ms: u32::MAX, ..VadConfig::default() };
        let mut voice = VoiceActivity::new(config);
        let (mut from, mut found, mut open) = (0, Vec::new(), Pause::default());
        for (at, hop) in (1..).zip(samples.chunks_exact(HOP_SAMPLES)) {
            let now = at * HOP_SAMPLES;
            if voice.push_hop(hop).edge == Some(Edge::Start) {
                let onset = voice.segmenter.onset_ms() as usize;
                from = now.saturating_sub((onset + PRE_ROLL_MS) * SAMPLES_PER_MS);
            }
            let Some(silence_ms) = voice.segmenter.pause_ms() else { continue };
            if silence_ms == 0.0 {
                found.extend(Some(std::mem::take(&mut open)).filter(is_pause));
                continue;
            }
            open.length_ms = silence_ms;
            open.at_ms = now as f32 / SAMPLES_PER_MS as f32 - silence_ms;
            self.look(&mut open, &samples[from.max(now.saturating_sub(JUDGED_SAMPLES))..now]);
        }
        found.extend(Some(open).filter(is_pause));
        found
    }

    /// Asks the model if the pause is long enough for the next look.
    fn look(&mut self, pause: &mut Pause, audio: &[i16]) {
        let Some(model) = &mut self.model else { return };
        match self.looks_ms.get(pause.looks.len()) {
            Some(&silence_ms) if pause.length_ms >= silence_ms as f32 => {
                pause.looks.push(Look { silence_ms, probability: model(audio) });
            }
            _ => {}
        }
    }
}

fn is_pause(pause: &Pause) -> bool {
    pause.length_ms >= PAUSE_MIN_MS
}

/// The recording with enough noise of its room after the end.
fn with_tail(samples: &[i16], end_ms: Option<f32>) -> Vec<i16> {
    let end = end_ms.map_or(samples.len(), |ms| ms as usize * SAMPLES_PER_MS);
    let missing = (end + TAIL_MS * SAMPLES_PER_MS).saturating_sub(samples.len());
    let energy = |stretch: &[i16]| stretch.iter().map(|sample| i64::from(*sample).pow(2)).sum::<i64>();
    let stretches = samples.chunks_exact(NOISE_SAMPLES).filter(|stretch| energy(stretch) > 0);
    let quietest = stretches.min_by_key(|stretch| energy(stretch)).unwrap_or(&[0]);
    let there_and_back = quietest.iter().chain(quietest.iter().rev());
    samples.iter().chain(there_and_back.cycle().take(missing)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sentence with silence of this length in it, and where the silence begins, ms.
    fn sentence_with_pause(pause_ms: usize) -> (Vec<i16>, f32) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/speech/arctic_a0007_16k.wav");
        let spoken: Vec<i16> = hound::WavReader::open(path).unwrap().samples().map(Result::unwrap).collect();
        let (before, after) = spoken.split_at(1335 * SAMPLES_PER_MS);
        ([before, &vec![0; pause_ms * SAMPLES_PER_MS], after].concat(), 1335.0)
    }

    #[test]
    fn pause_is_found_with_the_looks_that_it_is_long_enough_for() {
        for (pause_ms, expected) in [(300, &[110, 200][..]), (800, &[110, 200, 600])] {
            let (samples, place_ms) = sentence_with_pause(pause_ms);
            let mut heard = Vec::new();
            let mut model = |audio: &[i16]| {
                heard.push(audio.len());
                Some(0.25)
            };
            let mut listener = Listener { looks_ms: &[110, 200, 600], model: Some(&mut model) };
            let turn = listener.listen(&samples, None);
            let [pause] = &turn.pauses[..] else { panic!("{turn:?}") };
            assert!((pause.at_ms - place_ms).abs() < 100.0, "{turn:?}");
            assert!((pause.length_ms - pause_ms as f32).abs() < 150.0, "{turn:?}");
            assert_eq!(pause.looks.iter().map(|look| look.silence_ms).collect::<Vec<_>>(), expected);
            assert!(pause.looks.iter().all(|look| look.probability == Some(0.25)));
            assert!(heard.iter().all(|samples| *samples <= JUDGED_SAMPLES && *samples > 16_000), "{heard:?}");
        }
    }

    #[test]
    fn recording_that_ends_with_its_speech_is_followed_by_the_noise_of_its_room() {
        let (samples, _) = sentence_with_pause(500);
        let turn = Listener { looks_ms: &[], model: None }.listen(&samples, None);
        let [after] = &turn.after[..] else { panic!("{turn:?}") };
        assert!(after.length_ms > 4000.0 && (after.at_ms - turn.end_ms).abs() < 1.0, "{turn:?}");
    }

    #[test]
    fn empty_and_silent_recordings_have_no_pauses() {
        for samples in [vec![], vec![0; 100], vec![0; 48_000]] {
            assert_eq!(Listener { looks_ms: &[], model: None }.listen(&samples, None), Turn::default());
        }
    }
}
