//! WebRTC's AEC3, as the canceller uses it.

use sonora_aec3::{
    block::Block, block_processor::BlockProcessor, common::BLOCK_SIZE, config::EchoCanceller3Config,
};

use super::super::SPEECH_RATE_HZ;

/// Number of filters that search for the delay. Each covers another 96 ms.
const DELAY_FILTERS: usize = 8;
/// Magnitude of a clipped sample.
const CLIPPED: f32 = 32_700.0;

/// Two instances of AEC3 with their buffers, one with and one without the linear filter. Samples have the range of int16.
///
/// When playback restarts, network jitter may have changed the delay. The linear filter then mistakes the echo for the user's
/// voice until it has adapted. AEC3 without that filter does not depend on the exact delay, but detects the user 0.5 s later.
pub(super) struct Aec3 {
    linear: BlockProcessor,
    careful: BlockProcessor,
    played: Block,
    heard: Block,
    carefully_heard: Block,
    /// The microphone's audio after the linear filter.
    subtracted: Block,
    subtraction: Subtraction,
    /// The user's voice in the last block.
    voice: [i16; BLOCK_SIZE],
}

impl Default for Aec3 {
    fn default() -> Self {
        let mut config = EchoCanceller3Config::default();
        config.delay.num_filters = DELAY_FILTERS;
        let linear = BlockProcessor::new(&config, SPEECH_RATE_HZ as usize, 1, 1);
        config.filter.use_linear_filter = false;
        let careful = BlockProcessor::new(&config, SPEECH_RATE_HZ as usize, 1, 1);
        let [played, heard, carefully_heard, subtracted] = [(); 4].map(|()| Block::new(1, 1));
        let (subtraction, voice) = (Subtraction::default(), [0; BLOCK_SIZE]);
        Self { linear, careful, played, heard, carefully_heard, subtracted, subtraction, voice }
    }
}

impl std::fmt::Debug for Aec3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aec3").finish_non_exhaustive()
    }
}

impl Aec3 {
    /// Processes a block of the microphone. With `may_have_moved`, AEC3 trusts its known echo path less; with `is_careful`, the
    /// quieter result is used. All results are one block late.
    pub(super) fn process(
        &mut self,
        heard: &[i16],
        played: &[i16],
        may_have_moved: bool,
        is_careful: bool,
    ) -> Cleaned {
        let is_clipped = heard.iter().any(|sample| f32::from(*sample).abs() >= CLIPPED);
        fill(&mut self.played, played);
        for (processor, block, subtracted) in [
            (&mut self.linear, &mut self.heard, Some(&mut self.subtracted)),
            (&mut self.careful, &mut self.carefully_heard, None),
        ] {
            fill(block, heard);
            processor.buffer_render(&self.played);
            processor.process_capture(may_have_moved, is_clipped, subtracted, block);
        }
        let [linear, careful] = [self.heard.view(0, 0), self.carefully_heard.view(0, 0)];
        let is_quieter = power(careful) < power(linear);
        let without_echo = if is_careful && is_quieter { careful } else { linear };
        let voice =
            std::mem::replace(&mut self.voice, self.subtraction.better(heard, self.subtracted.view(0, 0)));
        Cleaned { without_echo: rounded(without_echo), voice }
    }
}

/// A block of the microphone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cleaned {
    /// The echo is removed, and with it some of the user's voice.
    pub(super) without_echo: [i16; BLOCK_SIZE],
    /// Contains the user's whole voice, and perhaps some of the echo.
    pub(super) voice: [i16; BLOCK_SIZE],
}

/// Powers of the microphone before and after the linear filter, averaged over some blocks. The filter adds an echo while it does
/// not know the room yet.
#[derive(Debug, Default)]
struct Subtraction {
    heard: f32,
    left: f32,
}

impl Subtraction {
    /// Returns the quieter of the two signals.
    fn better(&mut self, heard: &[i16], left: &[f32]) -> [i16; BLOCK_SIZE] {
        const WEIGHT: f32 = 0.1;
        let heard_power = heard.iter().map(|sample| f32::from(*sample).powi(2)).sum::<f32>();
        self.heard += WEIGHT * (heard_power - self.heard);
        self.left += WEIGHT * (power(left) - self.left);
        if self.left < self.heard { rounded(left) } else { std::array::from_fn(|at| heard[at]) }
    }
}

fn rounded(samples: &[f32]) -> [i16; BLOCK_SIZE] {
    std::array::from_fn(|at| samples[at].round() as i16)
}

fn fill(block: &mut Block, samples: &[i16]) {
    for (to, from) in block.view_mut(0, 0).iter_mut().zip(samples) {
        *to = f32::from(*from);
    }
}

fn power(samples: &[f32]) -> f32 {
    samples.iter().map(|sample| sample * sample).sum()
}
