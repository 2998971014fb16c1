//! Opus with its own decoder. It mixes stereo to mono by itself.

use bytes::Buf as _;
use opus_pure::{MAX_PACKET_SAMPLES, OpusDecoder, OpusMSDecoder};
use symphonia::core::errors::Error;

use super::{Decoded, NoCodec};
use crate::audio::opus::DECODED_RATE_HZ;

/// Opus track. Its rate is the one at which it is right ([`DECODED_RATE_HZ`]), and that of pre-skip and granule positions
/// (RFC 7845 §4).
pub(in crate::media::decode) struct OpusTrack {
    decoder: Streams,
    channels: usize,
    /// Decoded samples still to be skipped at the start (RFC 7845 §4.2).
    skip_samples: usize,
    packet: Vec<f32>,
}

enum Streams {
    /// One stream, mono or stereo.
    One(Box<OpusDecoder>),
    /// Surround sound: several streams.
    Many(Box<OpusMSDecoder>),
}

impl OpusTrack {
    pub(super) fn new(header: &[u8]) -> Result<Self, NoCodec> {
        let head = OpusHead::parse(header).ok_or(NoCodec::Damaged("the Opus header is damaged"))?;
        let rate_hz = DECODED_RATE_HZ as i32;
        let unsupported = || NoCodec::Unsupported("Opus with channels that have no place".to_owned());
        let decoder = if head.is_one_stream {
            let mut decoder = OpusDecoder::new(rate_hz, head.channels).map_err(|_| unsupported())?;
            decoder.gain_q8 = head.gain_q8.into();
            Streams::One(Box::new(decoder))
        } else {
            let decoder = OpusMSDecoder::new(rate_hz, head.channels, head.mapping_family);
            let mut decoder = decoder.map_err(|_| unsupported())?;
            if decoder.nb_streams() != head.streams {
                return Err(unsupported());
            }
            decoder.streams_mut().iter_mut().for_each(|stream| stream.gain_q8 = head.gain_q8.into());
            Streams::Many(Box::new(decoder))
        };
        Ok(Self {
            decoder,
            channels: head.channels,
            skip_samples: head.pre_skip.into(),
            packet: vec![0.0; MAX_PACKET_SAMPLES * head.channels],
        })
    }

    /// Forgets the packets before: an edit jumps.
    pub(super) fn reset(&mut self) {
        let _ = match &mut self.decoder {
            Streams::One(decoder) => decoder.reset_state(),
            Streams::Many(decoder) => decoder.reset_state(),
        };
    }

    /// Decodes one packet and appends its interleaved samples.
    pub(super) fn decode(&mut self, packet: &[u8], interleaved: &mut Vec<f32>) -> Result<Decoded, Error> {
        let decoded = match &mut self.decoder {
            Streams::One(decoder) => decoder.decode(packet, MAX_PACKET_SAMPLES, &mut self.packet),
            Streams::Many(decoder) => decoder.decode(packet, MAX_PACKET_SAMPLES, &mut self.packet),
        };
        let decoded = decoded.map_err(|_| Error::DecodeError("invalid Opus packet"))?;
        let skipped = self.skip_samples.min(decoded);
        self.skip_samples -= skipped;
        interleaved.extend_from_slice(&self.packet[skipped * self.channels..decoded * self.channels]);
        Ok(Decoded { rate_hz: DECODED_RATE_HZ, channels: self.channels, skipped })
    }
}

/// Identification header of Ogg and WebM (RFC 7845 §5.1).
struct OpusHead {
    channels: usize,
    pre_skip: u16,
    gain_q8: i16,
    mapping_family: u8,
    streams: usize,
    /// A single stream, whose packets are those of family 0 (RFC 7845 §5.1.1.2).
    is_one_stream: bool,
}

impl OpusHead {
    fn parse(header: &[u8]) -> Option<Self> {
        let mut fields = header.strip_prefix(b"OpusHead")?;
        if fields.len() < 11 {
            return None;
        }
        let _version = fields.get_u8();
        let channels = usize::from(fields.get_u8());
        let pre_skip = fields.get_u16_le();
        let _input_rate_hz = fields.get_u32_le();
        let gain_q8 = fields.get_i16_le();
        let mapping_family = fields.get_u8();
        let streams = if mapping_family == 0 { 1 } else { usize::from(*fields.first()?) };
        let is_one_stream = streams == 1 && channels <= 2;
        let is_valid = channels > 0 && (mapping_family != 0 || is_one_stream);
        is_valid.then_some(Self { channels, pre_skip, gain_q8, mapping_family, streams, is_one_stream })
    }
}
