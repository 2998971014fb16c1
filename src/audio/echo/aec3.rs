//! AEC3 of WebRTC, as the canceller uses it.

use sonora_aec3::{
    block::Block, block_processor::BlockProcessor, common::BLOCK_SIZE, config::EchoCanceller3Config,
};

use super::super::SPEECH_RATE_HZ;

/// Filters of the search for the delay. Each covers another 96 ms.
const DELAY_FILTERS: usize = 8;
/// Magnitude of a clipped sample.
const CLIPPED: f32 = 32_700.0;

/// AEC3 with its buffers, twice. Samples have the range of int16.
///
/// Playback that begins anew may have another delay, by the jitter of the network. Until the linear filter has followed, it
/// takes the echo for the user's voice. Without that filter, AEC3 does not depend on the exact delay, but hears the user
/// 0.5 s later.
pub(super) struct Aec3 {
    linear: BlockProcessor,
    careful: BlockProcessor,
    played: Block,
    heard: Block,
    carefully_heard: Block,
    /// What the linear filter leaves of the microphone.
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
    /// Processes a block of the microphone. `may_have_moved` makes AEC3 trust less in the echo path that it knows, and with
    /// `is_careful` the quieter result is taken. All results are a block late.
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
    /// Without the echo, and with what that leaves of the user's voice.
    pub(super) without_echo: [i16; BLOCK_SIZE],
    /// With the user's whole voice, and perhaps some of the echo.
    pub(super) voice: [i16; BLOCK_SIZE],
}

/// Powers of the microphone and of what the linear filter leaves of it, over some blocks. The filter adds an echo where it does
/// not know the room yet.
#[derive(Debug, Default)]
struct Subtraction {
    heard: f32,
    left: f32,
}

impl Subtraction {
    /// The quieter of the two.
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
