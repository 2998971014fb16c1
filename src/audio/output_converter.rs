//! Converts model audio for clients: float32 mono at 24 kHz ([`MODEL_RATE_HZ`]) in, bytes in the client's
//! [`Encoding`] and at its rate out.

use super::MODEL_RATE_HZ;
use super::encoding::Encoding;
use super::resample::{Resampler, UnsupportedRate};

/// Converter for one voice of one client.
#[derive(Debug)]
pub struct OutputConverter {
    resampler: Resampler,
    /// The rate is [`MODEL_RATE_HZ`]: samples are encoded but not resampled.
    passthrough: bool,
    encoding: Encoding,
    /// Resampler output, reused between deltas; empty unless the rates differ.
    resampled: Vec<f32>,
}

impl Default for OutputConverter {
    /// An int16 converter at [`MODEL_RATE_HZ`].
    fn default() -> Self {
        Self::new(MODEL_RATE_HZ).expect("the model's own rate is within the supported range")
    }
}

impl OutputConverter {
    /// An int16 converter to `out_rate_hz`; [`MODEL_RATE_HZ`] needs no resampling.
    ///
    /// # Errors
    /// [`UnsupportedRate`] outside 8 to 192 kHz.
    pub fn new(out_rate_hz: u32) -> Result<Self, UnsupportedRate> {
        Self::with_encoding(Encoding::S16le, out_rate_hz)
    }

    /// Like [`OutputConverter::new`], with another encoding.
    ///
    /// # Errors
    /// As for [`OutputConverter::new`].
    pub fn with_encoding(encoding: Encoding, out_rate_hz: u32) -> Result<Self, UnsupportedRate> {
        Ok(Self {
            resampler: Resampler::new(MODEL_RATE_HZ, out_rate_hz)?,
            passthrough: out_rate_hz == MODEL_RATE_HZ,
            encoding,
            resampled: Vec::new(),
        })
    }

    /// Converts samples and appends the bytes that are ready to `out`.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<u8>) {
        if self.passthrough {
            return self.encoding.encode(samples, out);
        }
        self.resampler.push(samples, &mut self.resampled);
        self.encode_resampled(out);
    }

    /// Ends a turn: appends all pending audio to `out` and resets for the next turn.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.resampler.flush(&mut self.resampled);
        self.encode_resampled(out);
    }

    /// Discards the pending audio of a cancelled turn.
    pub fn clear(&mut self) {
        self.resampler.reset();
    }

    fn encode_resampled(&mut self, out: &mut Vec<u8>) {
        self.encoding.encode(&self.resampled, out);
        self.resampled.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::pcm;

    fn speech() -> Vec<f32> {
        (0..24_000).map(|i| (i as f32 * 0.05).sin() * 0.8 + (i as f32 * 0.31).sin() * 0.1).collect()
    }

    #[test]
    fn model_rate_output_is_not_resampled() {
        let (mut converter, mut out, mut expected) =
            (OutputConverter::new(24_000).unwrap(), Vec::new(), Vec::new());
        converter.push(&speech(), &mut out);
        converter.flush(&mut out);
        pcm::encode_s16le(&speech(), &mut expected);
        assert_eq!(out, expected);
    }

    #[test]
    fn resampled_output_has_exact_length_for_any_framing() {
        for rate_hz in [8_000u32, 16_000, 22_050, 44_100, 48_000] {
            let (mut converter, mut whole, mut pieces) =
                (OutputConverter::new(rate_hz).unwrap(), Vec::new(), Vec::new());
            converter.push(&speech(), &mut whole);
            converter.flush(&mut whole);
            assert_eq!(whole.len(), rate_hz as usize * 2, "one second");
            for piece in speech().chunks(777) {
                converter.push(piece, &mut pieces);
            }
            converter.flush(&mut pieces);
            // The last digit may round either way.
            let sample = |two: &[u8]| i32::from(i16::from_le_bytes([two[0], two[1]]));
            let pairs = whole.chunks_exact(2).zip(pieces.chunks_exact(2));
            assert!(whole.len() == pieces.len(), "{rate_hz} Hz");
            let differ = pairs.map(|(a, b)| (sample(a) - sample(b)).abs()).max();
            assert!(differ <= Some(1), "{rate_hz} Hz depends on the framing");
        }
    }

    #[test]
    fn cleared_audio_never_reaches_the_output() {
        let (mut converter, mut out) = (OutputConverter::new(48_000).unwrap(), Vec::new());
        converter.push(&speech()[..1_000], &mut out);
        converter.clear();
        out.clear();
        converter.push(&[0.0; 1_000], &mut out);
        converter.flush(&mut out);
        assert_eq!(out, vec![0; 4_000]);
    }
}
