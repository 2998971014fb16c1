//! Speech of a model that sends audio all the time, silence included, in a response without an end.
//!
//! PersonaPlex and Nemotron VoiceChat send a frame for each frame that they hear (mappings/notes/vllm-omni.md#other-models). Their
//! silence means that they listen. A stretch of speech is an answer with an id of its own, and ends with a pause.

use crate::audio::MODEL_RATE_HZ;

/// Level below which audio is silence: the server's own bound for the user's audio (`overlap_silence_rms`).
const SILENCE_RMS: f32 = 0.003;

/// Silence that ends a stretch of speech. Pauses between sentences are shorter.
const PAUSE_SAMPLES: usize = MODEL_RATE_HZ as usize * 4 / 5;

/// What the model does, by its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    /// It says something, or pauses between words.
    Speaks,
    /// It has just stopped.
    Stops,
    /// It listens, or its speech was interrupted.
    Listens,
}

/// Finds stretches of speech in audio at [`MODEL_RATE_HZ`].
#[derive(Debug, Default)]
pub(super) struct SpeechGate {
    stretch: u32,
    is_speaking: bool,
    /// The rest of the stretch is not wanted.
    is_interrupted: bool,
    /// Silence at the end of the stretch so far, samples.
    quiet_samples: usize,
}

impl SpeechGate {
    /// Takes the model's words and audio of one frame.
    pub(super) fn note(&mut self, text: &str, samples: &[f32]) -> Activity {
        if !text.trim().is_empty() || rms(samples) >= SILENCE_RMS {
            if !std::mem::replace(&mut self.is_speaking, true) {
                self.stretch += 1;
            }
            self.quiet_samples = 0;
        } else {
            self.quiet_samples += samples.len();
        }
        if !self.is_speaking {
            return Activity::Listens;
        }
        let was_interrupted = self.is_interrupted;
        let has_stopped = self.quiet_samples >= PAUSE_SAMPLES;
        if has_stopped {
            self.stop();
        }
        match (was_interrupted, has_stopped) {
            (true, _) => Activity::Listens,
            (false, true) => Activity::Stops,
            (false, false) => Activity::Speaks,
        }
    }

    /// The stretch is over.
    pub(super) const fn stop(&mut self) {
        (self.is_speaking, self.is_interrupted) = (false, false);
    }

    /// The rest of the stretch is not wanted.
    pub(super) const fn interrupt(&mut self) {
        self.is_interrupted = self.is_speaking;
    }

    /// Id of the stretch.
    pub(super) fn answer_id(&self) -> String {
        format!("speech_{}", self.stretch)
    }
}

fn rms(samples: &[f32]) -> f32 {
    let energy: f32 = samples.iter().map(|sample| sample * sample).sum();
    (energy / samples.len().max(1) as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = MODEL_RATE_HZ as usize * 8 / 100;

    /// Activities of frames of this level, without repetitions.
    fn activities(gate: &mut SpeechGate, level: f32, frames: usize) -> Vec<Activity> {
        let mut activities: Vec<_> = (0..frames).map(|_| gate.note("", &[level; FRAME])).collect();
        activities.dedup();
        activities
    }

    #[test]
    fn silence_is_listening_and_speech_ends_with_a_pause() {
        use Activity::{Listens, Speaks, Stops};
        let mut gate = SpeechGate::default();
        assert_eq!(activities(&mut gate, 0.002, 50), [Listens]);
        assert_eq!(activities(&mut gate, 0.05, 20), [Speaks]);
        let first = gate.answer_id();
        assert_eq!(activities(&mut gate, 0.0, 9), [Speaks], "a pause between sentences");
        assert_eq!(activities(&mut gate, 0.05, 20), [Speaks]);
        assert_eq!(activities(&mut gate, 0.0, 30), [Speaks, Stops, Listens]);
        assert_eq!(gate.note("Yes. ", &[]), Speaks, "words come before their audio");
        assert_ne!(gate.answer_id(), first);
    }

    #[test]
    fn interrupted_speech_is_not_heard_again_before_a_pause() {
        let mut gate = SpeechGate::default();
        activities(&mut gate, 0.05, 20);
        gate.interrupt();
        assert_eq!(activities(&mut gate, 0.05, 100), [Activity::Listens]);
        assert_eq!(activities(&mut gate, 0.0, 20), [Activity::Listens]);
        assert_eq!(activities(&mut gate, 0.05, 2), [Activity::Speaks]);
        // Without speech, there is nothing to interrupt.
        activities(&mut gate, 0.0, 20);
        gate.interrupt();
        assert_eq!(activities(&mut gate, 0.05, 2), [Activity::Speaks]);
    }
}
