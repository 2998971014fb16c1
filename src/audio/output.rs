//! What the model says, turned into what clients play: float32 mono at 24 kHz ([`MODEL_RATE_HZ`]) in, int16
//! little-endian bytes at the client's rate out.

use super::resample::{Resampler, UnsupportedRate};
use super::{MODEL_RATE_HZ, pcm};

/// One voice on its way out to one client.
#[derive(Debug)]
pub struct Voice {
    resampler: Resampler,
    /// The rate is [`MODEL_RATE_HZ`]: samples are converted only.
    straight: bool,
    /// Reused between deltas; empty unless the rates differ.
    resampled: Vec<f32>,
}

impl Voice {
    /// A voice at `out_rate_hz` samples per second; [`MODEL_RATE_HZ`] needs no resampling.
    ///
    /// # Errors
    /// [`UnsupportedRate`] outside 8 to 192 kHz.
    pub fn new(out_rate_hz: u32) -> Result<Self, UnsupportedRate> {
        Ok(Self {
            resampler: Resampler::new(MODEL_RATE_HZ, out_rate_hz)?,
            straight: out_rate_hz == MODEL_RATE_HZ,
            resampled: Vec::new(),
        })
    }

    /// Takes samples in and appends the bytes that are ready to `out`.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<u8>) {
        if self.straight {
            return pcm::push_s16le(samples, out);
        }
        self.resampler.push(samples, &mut self.resampled);
        self.drain(out);
    }

    /// Ends a turn: appends the bytes of everything still in the resampler and is fresh for the next turn.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.resampler.flush(&mut self.resampled);
        self.drain(out);
    }

    /// Forgets what is still in the resampler: the turn was cancelled, nothing of it may be heard any more.
    pub fn clear(&mut self) {
        self.resampler.reset();
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        pcm::push_s16le(&self.resampled, out);
        self.resampled.clear();
    }
}
