//! Encoder of packets.

use bytes::Bytes;
use opus_pure::{Application, OpusEncoder};

use crate::{format::FormatError, scratch};

/// Below this bit rate, speech sounds better in the mode for speech (PESQ at 12 kbit/s 3.2, not 2.7), which takes three times
/// the work.
const SPEECH_MODE_BELOW_BPS: u32 = 16_000;

/// Room for a packet of 60 ms at the highest bit rate.
const PACKET_MAX_BYTES: usize = 4_000;

/// How packets are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketOptions {
    /// Bits per second.
    pub bit_rate: u32,
    /// Effort, 0 to 10.
    pub complexity: u8,
    /// Length of a packet, ms.
    pub frame_ms: u32,
    /// Longest packet, bytes. At least [`PacketOptions::mean_bytes`].
    pub max_bytes: usize,
}

impl Default for PacketOptions {
    /// The cheapest settings with the quality of libopus's own at 24 kbit/s: PESQ 4.3 of 4.6, for a seventh of their work.
    fn default() -> Self {
        Self { bit_rate: 48_000, complexity: 0, frame_ms: 20, max_bytes: PACKET_MAX_BYTES }
    }
}

impl PacketOptions {
    /// Lengths that a packet may have, ms.
    pub const FRAMES_MS: [u32; 3] = [20, 40, 60];
    /// Bit rates that an encoder may have.
    pub const BIT_RATES: std::ops::RangeInclusive<u32> = 6_000..=128_000;
    /// Highest complexity.
    pub const COMPLEXITY_MAX: u8 = 10;

    /// Mean length of a packet, bytes.
    #[must_use]
    pub const fn mean_bytes(&self) -> usize {
        (self.bit_rate as usize * self.frame_ms as usize).div_ceil(8_000)
    }

    const fn application(&self) -> Application {
        match self.bit_rate {
            ..SPEECH_MODE_BELOW_BPS => Application::Voip,
            _ => Application::RestrictedLowDelay,
        }
    }
}

/// Encoder of one speech to packets of equal length. Allocates its state with the first packet.
///
/// Each speech has an encoder of its own. Its first packet needs nothing of what the client has decoded before, so that
/// clients may start their decoder anew with each speech, or not.
#[derive(Debug)]
pub struct PacketEncoder {
    options: PacketOptions,
    rate_hz: u32,
    encoder: Option<Box<OpusEncoder>>,
    /// Audio was added since the last flush.
    has_audio: bool,
}

impl PacketEncoder {
    /// An encoder of mono int16 at this rate.
    ///
    /// # Errors
    /// [`FormatError::OpusRate`] for a rate that Opus does not have.
    pub fn new(rate_hz: u32, options: PacketOptions) -> Result<Self, FormatError> {
        super::check_rate(rate_hz)?;
        Ok(Self { options, rate_hz, encoder: None, has_audio: false })
    }

    /// An encoder of the same format for another speech.
    #[must_use]
    pub const fn renewed(&self) -> Self {
        Self { options: self.options, rate_hz: self.rate_hz, encoder: None, has_audio: false }
    }

    /// Samples of a packet.
    pub const fn packet_samples(&self) -> usize {
        self.rate_hz as usize * self.options.frame_ms as usize / 1000
    }

    /// Notes that audio was added.
    pub const fn note_audio(&mut self) {
        self.has_audio = true;
    }

    /// Takes the number of silent samples that push the end of the audio out of the encoder, which runs behind its input.
    pub fn take_tail_samples(&mut self) -> usize {
        let delay = match self.options.application() {
            Application::RestrictedLowDelay => self.rate_hz / 400,
            _ => self.rate_hz / 400 + self.rate_hz / 250,
        };
        if std::mem::take(&mut self.has_audio) { delay as usize } else { 0 }
    }

    /// Encodes little-endian int16 to a packet; a short one is filled up with silence.
    pub fn encode(&mut self, s16le: &[u8]) -> Bytes {
        let samples = self.packet_samples();
        let mut audio = scratch::take::<i16>();
        audio.clear();
        audio.extend(s16le.as_chunks().0.iter().map(|two| i16::from_le_bytes(*two)));
        audio.resize(samples, 0);
        let mut packet = [0; PACKET_MAX_BYTES];
        let room = &mut packet[..self.options.max_bytes.min(PACKET_MAX_BYTES)];
        // It fails only for other frame lengths, and without room for a packet's head.
        let encoded = self.encoder().map_or(Ok(0), |encoder| encoder.encode_s16(&audio, samples, room));
        debug_assert!(matches!(encoded, Ok(1..)), "{encoded:?}");
        scratch::put_back(audio);
        Bytes::copy_from_slice(&packet[..encoded.unwrap_or(0)])
    }

    fn encoder(&mut self) -> Option<&mut OpusEncoder> {
        if self.encoder.is_none() {
            let encoder = OpusEncoder::new(self.rate_hz as i32, 1, self.options.application()).ok();
            self.encoder = encoder.map(Box::new);
            if let Some(encoder) = &mut self.encoder {
                encoder.bitrate_bps = self.options.bit_rate as i32;
                encoder.complexity = self.options.complexity.into();
            }
        }
        self.encoder.as_deref_mut()
    }
}
