//! Decodes packets to mono float32: Opus with its own decoder, everything else with symphonia's.

use opus_pure::{MAX_PACKET_SAMPLES, OpusDecoder};
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_AAC, CODEC_ID_AC3, CODEC_ID_ALAC, CODEC_ID_EAC3, CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_OPUS,
    CODEC_ID_SPEEX, CODEC_ID_VORBIS,
};
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::packet::Packet;
use symphonia::core::units::TimeBase;

use super::vorbis;
use crate::audio::opus::DECODED_RATE_HZ;

/// Decoder of one track.
pub(super) enum Codec {
    Opus(Box<OpusTrack>),
    Other(Box<dyn AudioDecoder>),
}

/// Audio of one packet, before resampling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) rate_hz: u32,
    pub(super) channels: usize,
}

impl Codec {
    /// A decoder for the track's parameters; `None` if the codec is not supported.
    ///
    /// # Errors
    /// What is wrong with the codec's headers.
    pub(super) fn new(
        params: &AudioCodecParameters,
        time_base: Option<TimeBase>,
    ) -> Result<Option<Self>, &'static str> {
        if params.codec == CODEC_ID_OPUS {
            return Ok(OpusTrack::new(params, time_base).map(|track| Self::Opus(Box::new(track))));
        }
        if params.codec == CODEC_ID_VORBIS {
            vorbis::check_headers(params.extra_data.as_deref().unwrap_or_default())?;
        }
        let mut params = params.clone();
        // symphonia allocates for as many. Decoders of packets that turn out longer grow.
        params.max_frames_per_packet = params.max_frames_per_packet.map(|frames| frames.min(FRAMES_MAX));
        let options = AudioDecoderOptions::default();
        Ok(symphonia::default::get_codecs().make_audio_decoder(&params, &options).ok().map(Self::Other))
    }

    /// Short name, such as "aac".
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Opus(_) => "opus",
            Self::Other(decoder) => decoder.codec_info().short_name,
        }
    }

    /// Decodes one packet and replaces `mono` by the average of its channels.
    pub(super) fn decode(
        &mut self,
        packet: &Packet,
        interleaved: &mut Vec<f32>,
        mono: &mut Vec<f32>,
    ) -> Result<Spec, Error> {
        mono.clear();
        match self {
            Self::Opus(track) => track.decode(packet, mono),
            Self::Other(decoder) => {
                let audio = decoder.decode(packet)?;
                let spec = Spec { rate_hz: audio.spec().rate(), channels: audio.num_planes() };
                audio.copy_to_vec_interleaved(interleaved);
                mix(interleaved, spec.channels, mono);
                Ok(spec)
            }
        }
    }
}

/// More samples than a packet has: an ADPCM block of 64 KB has 131 072.
const FRAMES_MAX: u64 = 1 << 18;

/// Name of a codec that [`Codec::new`] does not support.
pub(super) fn describe(codec: AudioCodecId) -> String {
    let name = match codec {
        CODEC_ID_AAC => "AAC with a profile other than LC",
        CODEC_ID_AC3 => "AC-3",
        CODEC_ID_ALAC => "ALAC",
        CODEC_ID_EAC3 => "E-AC-3",
        CODEC_ID_MP1 | CODEC_ID_MP2 => "MPEG audio layer I or II",
        CODEC_ID_OPUS => "Opus with more than two channels",
        CODEC_ID_SPEEX => "Speex",
        _ => return format!("with the number {codec}"),
    };
    name.to_owned()
}

fn mix(interleaved: &[f32], channels: usize, mono: &mut Vec<f32>) {
    match channels {
        0 => {}
        1 => mono.extend_from_slice(interleaved),
        _ => {
            let scale = 1.0 / channels as f32;
            mono.extend(interleaved.chunks_exact(channels).map(|group| group.iter().sum::<f32>() * scale));
        }
    }
}

/// Opus track. The decoder mixes stereo to mono by itself. Its rate is the one at which it is right ([`DECODED_RATE_HZ`]), and
/// that of pre-skip and granule positions (RFC 7845 §4).
pub(super) struct OpusTrack {
    decoder: OpusDecoder,
    channels: usize,
    /// Decoded samples still to be skipped at the start (RFC 7845 §4.2).
    skip_samples: usize,
    time_base: Option<TimeBase>,
    packet: Vec<f32>,
}

impl OpusTrack {
    fn new(params: &AudioCodecParameters, time_base: Option<TimeBase>) -> Option<Self> {
        let head = params.extra_data.as_deref().and_then(OpusHead::parse)?;
        let mut decoder = OpusDecoder::new(DECODED_RATE_HZ as i32, 1).ok()?;
        decoder.gain_q8 = i32::from(head.gain_q8);
        Some(Self {
            decoder,
            channels: head.channels,
            skip_samples: usize::from(head.pre_skip),
            time_base,
            packet: vec![0.0; MAX_PACKET_SAMPLES],
        })
    }

    fn decode(&mut self, packet: &Packet, mono: &mut Vec<f32>) -> Result<Spec, Error> {
        let decoded = self
            .decoder
            .decode(&packet.data, MAX_PACKET_SAMPLES, &mut self.packet)
            .map_err(|_| Error::DecodeError("invalid Opus packet"))?;
        // The last page's granule position cuts off the encoder's padding (RFC 7845 §4.4).
        let end = decoded.saturating_sub(self.trimmed_samples(packet.trim_end.get()));
        let start = self.skip_samples.min(decoded);
        self.skip_samples -= start;
        mono.extend_from_slice(self.packet.get(start..end).unwrap_or_default());
        Ok(Spec { rate_hz: DECODED_RATE_HZ, channels: self.channels })
    }

    fn trimmed_samples(&self, ticks: u64) -> usize {
        let Some(base) = self.time_base else { return 0 };
        let samples = u128::from(ticks) * u128::from(base.numer.get()) * u128::from(DECODED_RATE_HZ);
        usize::try_from(samples / u128::from(base.denom.get())).unwrap_or(usize::MAX)
    }
}

/// Identification header of Ogg and WebM (RFC 7845 §5.1).
struct OpusHead {
    channels: usize,
    pre_skip: u16,
    gain_q8: i16,
}

impl OpusHead {
    /// Parses the header; `None` if it is malformed, or for surround sound, which takes several decoders.
    fn parse(header: &[u8]) -> Option<Self> {
        let header: &[u8; 19] = header.first_chunk()?;
        let mapping = header[18];
        // symphonia returns the box of MP4, which has version 0 and is big endian, behind the same marker ("Opus in
        // ISOBMFF" §4.3.2).
        let u16_at = |at: usize| match header[8] {
            0 => u16::from_be_bytes([header[at], header[at + 1]]),
            _ => u16::from_le_bytes([header[at], header[at + 1]]),
        };
        (header.starts_with(b"OpusHead") && mapping == 0 && matches!(header[9], 1 | 2)).then(|| Self {
            channels: usize::from(header[9]),
            pre_skip: u16_at(10),
            gain_q8: u16_at(16).cast_signed(),
        })
    }
}
