//! The voice activity detector: earshot 1.2, a small recurrent net on three frames of 40 mel bands, behind a gain.
//!
//! earshot's score depends on the level: 20 dB below a close microphone its mean on speech falls by a fifth, at −30 dB
//! most speech scores below 0.5. Macaw brings every frame to a peak of −3 dBFS before it judges (field notes macaw.md
//! §3); here a slower gain does the same without lifting each pause to the level of speech.

use super::vad::{Detector, rms_dbfs};

/// The only frame size earshot takes: 16 ms.
const HOP_SAMPLES: usize = 256;

/// The level speech is brought to. At −20 dBFS the pink noise 20 dB below it begins to pass for speech, too.
const TARGET_DBFS: f32 = -25.0;

/// The most gain. At 40 dB a quiet room becomes speech.
const MAX_GAIN_DB: f32 = 30.0;

/// How fast the held level falls: a soft speaker after a loud one is heard within a few seconds.
const DECAY_DB_PER_HOP: f32 = 6.0 * 0.016;

/// earshot and its gain. Holds nothing (8 kB later) until the first hop.
#[derive(Default)]
pub struct Earshot(Option<Box<State>>);

struct State {
    net: earshot::Detector,
    /// The loudest hop, falling by [`DECAY_DB_PER_HOP`] since.
    level_dbfs: f32,
}

impl State {
    const fn new() -> Self {
        Self { net: earshot::Detector::const_default(), level_dbfs: f32::NEG_INFINITY }
    }
}

impl Detector for Earshot {
    fn hop_samples(&self) -> usize {
        HOP_SAMPLES
    }

    fn score(&mut self, hop: &[i16]) -> f32 {
        let state = self.0.get_or_insert_with(|| Box::new(State::new()));
        state.level_dbfs = (state.level_dbfs - DECAY_DB_PER_HOP).max(rms_dbfs(hop));
        let gain_db = (TARGET_DBFS - state.level_dbfs).clamp(0.0, MAX_GAIN_DB);
        let gain = 10f32.powf(gain_db / 20.0);
        let mut louder = [0i16; HOP_SAMPLES];
        for (louder, sample) in louder.iter_mut().zip(hop) {
            *louder = (f32::from(*sample) * gain) as i16; // saturates
        }
        state.net.predict_i16(&louder)
    }

    fn reset(&mut self) {
        if let Some(state) = &mut self.0 {
            state.net.reset();
        }
    }
}

impl std::fmt::Debug for Earshot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Earshot").field(&self.0.as_ref().map(|state| state.level_dbfs)).finish()
    }
}
