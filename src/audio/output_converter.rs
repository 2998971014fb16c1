//! Converts the model's audio, float32 mono at 24 kHz ([`MODEL_RATE_HZ`]), to the rate and encoding that a client plays.

use bytes::Bytes;

use super::{
    MODEL_RATE_HZ,
    encode::LiveEncoder,
    encoding::Encoding,
    format::FormatError,
    opus::{PacketEncoder, PacketOptions},
    playout_queue::PlayoutQueue,
    resample::Resampler,
};

/// Format of the audio to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFormat {
    /// Encoding.
    pub encoding: Encoding,
    /// Sample rate, Hz.
    pub rate_hz: u32,
    /// Bits per second of a compressed encoding; `None` for its default.
    pub bit_rate: Option<u32>,
}

/// Converter for one client.
#[derive(Debug)]
pub struct OutputConverter {
    resampler: Resampler,
    encoding: Encoding,
    /// Encoder of a client that plays Opus. Its samples wait as int16, so that only those that leave are encoded.
    packets: Option<PacketEncoder>,
    /// Encoder of a client that plays a file format. Its samples wait as int16, too.
    file: Option<LiveEncoder>,
    /// Samples per second of the converted audio.
    pub rate_hz: u32,
    /// Size of a converted sample.
    pub bytes_per_sample: usize,
}

impl Default for OutputConverter {
    /// A converter to int16 at [`MODEL_RATE_HZ`].
    fn default() -> Self {
        Self::new(Encoding::default(), MODEL_RATE_HZ)
            .expect("the model's own rate is within the supported range")
    }
}

impl OutputConverter {
    /// A converter to this encoding at `rate_hz` samples per second; [`MODEL_RATE_HZ`] needs no resampling.
    ///
    /// # Errors
    /// [`FormatError`] for a rate outside 8 to 192 kHz, or one that Opus does not have.
    pub fn new(encoding: Encoding, rate_hz: u32) -> Result<Self, FormatError> {
        Self::with_options(OutputFormat { encoding, rate_hz, bit_rate: None }, PacketOptions::default())
    }

    /// Like [`OutputConverter::new`], with these options if the encoding is Opus.
    ///
    /// # Errors
    /// As for [`OutputConverter::new`].
    pub fn with_options(format: OutputFormat, options: PacketOptions) -> Result<Self, FormatError> {
        let OutputFormat { encoding, rate_hz, bit_rate } = format;
        let file = LiveEncoder::new(encoding, rate_hz, bit_rate)?;
        let rate_hz = file.as_ref().map_or(rate_hz, LiveEncoder::rate_hz);
        Ok(Self {
            resampler: Resampler::new(MODEL_RATE_HZ, rate_hz)?,
            packets: match encoding {
                Encoding::Opus => Some(PacketEncoder::new(rate_hz, options)?),
                _ => None,
            },
            file,
            encoding,
            rate_hz,
            bytes_per_sample: encoding.bytes_per_sample(),
        })
    }

    /// A converter to the same format, with nothing in its resampler.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self {
            resampler: self.resampler.renewed(),
            packets: self.packets.as_ref().map(PacketEncoder::renewed),
            file: self.file.as_ref().map(LiveEncoder::renewed),
            ..*self
        }
    }

    /// Converts samples of the model and appends those that are ready to `out`.
    pub fn push(&mut self, samples: &[f32], out: &mut PlayoutQueue) {
        if let Some(packets) = self.packets.as_mut().filter(|_| !samples.is_empty()) {
            packets.note_audio();
        }
        if self.rate_hz == MODEL_RATE_HZ {
            return out.push(self.encode(samples));
        }
        let mut resampled = Vec::new();
        self.resampler.push(samples, &mut resampled);
        out.push(self.encode(&resampled));
    }

    /// Ends a turn: appends everything that is still in the resampler, which is then ready for the next turn.
    pub fn flush(&mut self, out: &mut PlayoutQueue) {
        let mut rest = Vec::new();
        self.resampler.flush(&mut rest);
        if let Some(packets) = &mut self.packets {
            rest.resize(rest.len() + packets.take_tail_samples(), 0.0);
        }
        out.push(self.encode(&rest));
    }

    /// Discards everything that is still in the resampler, because the turn was cancelled.
    pub fn clear(&mut self) {
        self.resampler.reset();
        self.packets = self.packets.as_ref().map(PacketEncoder::renewed);
        self.file = self.file.as_ref().map(LiveEncoder::renewed);
    }

    /// Encoding of the converted samples: int16 for a client that plays Opus or a file format, until
    /// [`encode_frame`](Self::encode_frame).
    pub fn sample_encoding(&self) -> Encoding {
        if self.packets.is_some() || self.file.is_some() { Encoding::S16le } else { self.encoding }
    }

    /// True if the client plays a file format.
    pub const fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// The client has the beginning of its file: a WAV header is not repeated.
    pub fn continue_file(&mut self) {
        if let Some(file) = &mut self.file {
            file.continue_file();
        }
    }

    /// Samples of each packet of a client that plays Opus.
    pub fn packet_samples(&self) -> Option<usize> {
        self.packets.as_ref().map(PacketEncoder::packet_samples)
    }

    /// Encodes a frame that leaves: for a client that plays Opus to a packet, where a short one is filled up with silence; for one
    /// that plays a file format to the part of the stream that is ready, which may be empty.
    pub fn encode_frame(&mut self, frame: Bytes) -> Bytes {
        match (&mut self.packets, &mut self.file) {
            (Some(packets), _) => packets.encode(&frame),
            (None, Some(file)) => file.encode(&frame),
            (None, None) => frame,
        }
    }

    /// The rest of a stream whose audio has left; empty if there is none.
    pub fn finish_stream(&mut self) -> Bytes {
        self.file.as_mut().map_or_else(Bytes::new, LiveEncoder::finish)
    }

    /// Fills a frame up with silence.
    pub fn fill_up(&self, frame: Bytes, samples: usize) -> Bytes {
        let missing = samples.saturating_sub(frame.len() / self.bytes_per_sample);
        if missing == 0 {
            return frame;
        }
        let mut bytes = Vec::from(frame);
        self.encoding.encode(&vec![0.0; missing], &mut bytes);
        bytes.into()
    }

    fn encode(&self, samples: &[f32]) -> Bytes {
        let mut bytes = Vec::new();
        self.encoding.encode(samples, &mut bytes);
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speech() -> Vec<f32> {
        (0..24_000).map(|i| (i as f32 * 0.05).sin() * 0.8 + (i as f32 * 0.31).sin() * 0.1).collect()
    }

    fn converter(rate_hz: u32) -> OutputConverter {
        OutputConverter::new(Encoding::F32le, rate_hz).unwrap()
    }

    /// All samples of a queue of float32.
    fn samples(mut queue: PlayoutQueue) -> Vec<f32> {
        let bytes = queue.take(queue.len);
        bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    }

    #[test]
    fn model_rate_output_is_not_resampled() {
        let (mut converter, mut out) = (converter(24_000), PlayoutQueue::default());
        converter.push(&speech(), &mut out);
        converter.flush(&mut out);
        assert_eq!(samples(out), speech());
    }

    #[test]
    fn resampled_output_has_exact_length_for_any_framing() {
        for rate_hz in [8_000u32, 16_000, 22_050, 44_100, 48_000] {
            let mut converter = converter(rate_hz);
            let (mut whole, mut pieces) = (PlayoutQueue::default(), PlayoutQueue::default());
            converter.push(&speech(), &mut whole);
            converter.flush(&mut whole);
            for piece in speech().chunks(777) {
                converter.push(piece, &mut pieces);
            }
            converter.flush(&mut pieces);
            let (whole, pieces) = (samples(whole), samples(pieces));
            assert_eq!((whole.len(), pieces.len()), (rate_hz as usize, rate_hz as usize), "one second");
            // Sums may be rounded in another order: by no more than one step of int16.
            let differs = |(a, b): (&f32, &f32)| (a - b).abs() > 1.0 / 32_768.0;
            assert!(!whole.iter().zip(&pieces).any(differs), "{rate_hz} Hz depends on the framing");
        }
    }

    #[test]
    fn cleared_audio_never_reaches_the_output() {
        let (mut converter, mut out) = (converter(48_000), PlayoutQueue::default());
        converter.push(&speech()[..1_000], &mut out);
        converter.clear();
        out.clear();
        converter.push(&[0.0; 1_000], &mut out);
        converter.flush(&mut out);
        assert_eq!(samples(out), vec![0.0; 2_000]);
    }

    #[test]
    fn short_frame_is_filled_up_with_silence_of_its_encoding() {
        let silence = |encoding, bytes: &'static [u8]| {
            let converter = OutputConverter::new(encoding, 8_000).unwrap();
            converter.fill_up(Bytes::from_static(bytes), 3)
        };
        assert_eq!(silence(Encoding::S16le, &[1, 2])[..], [1, 2, 0, 0, 0, 0]);
        assert_eq!(silence(Encoding::Mulaw, &[1])[..], [1, 0xff, 0xff]);
        assert_eq!(silence(Encoding::Alaw, &[1, 2, 3, 4])[..], [1, 2, 3, 4]);
    }
}
