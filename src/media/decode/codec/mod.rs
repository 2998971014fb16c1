//! Decodes packets to interleaved float32: Opus and ima4 with their own decoders, everything else with symphonia's.

mod ima4;
mod opus;
pub(super) mod vorbis_blocks;

use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_ADPCM_IMA_QT, CODEC_ID_ALAC, CODEC_ID_OPUS, CODEC_ID_VORBIS,
};
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};

use self::ima4::Ima4Track;
use self::opus::OpusTrack;
use super::guard::{alac, vorbis};
use super::packet::{Packet, Stream};

/// More channels than any codec here has.
const CHANNELS_MAX: usize = 64;

/// Decoder of one stream.
pub(super) enum Codec {
    Opus(Box<OpusTrack>),
    Ima4(Ima4Track),
    Other(Box<dyn AudioDecoder>),
}

/// Audio of one packet, before resampling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoded {
    pub(super) rate_hz: u32,
    pub(super) channels: usize,
    /// Samples at its start that the codec left out.
    pub(super) skipped: usize,
}

/// Why there is no decoder.
pub(super) enum NoCodec {
    /// Name of a codec that is not supported.
    Unsupported(String),
    /// The fault of its headers.
    Damaged(&'static str),
}

/// The index of the default track among those that can be decoded, the first of equals. Without any that can, an error names
/// the codec of the default.
pub(super) fn choose_track<'a>(tracks: impl Iterator<Item = (&'a Stream, bool)>) -> Option<usize> {
    let is_small = |stream: &Stream| {
        stream.params.channels.as_ref().is_none_or(|channels| channels.count() <= CHANNELS_MAX)
    };
    let ranks =
        tracks.map(|(stream, is_default)| (is_small(stream) && Codec::new(stream).is_ok(), is_default));
    let ranked: Vec<_> = ranks.enumerate().collect();
    ranked.into_iter().rev().max_by_key(|(_, rank)| *rank).map(|(index, _)| index)
}

impl Codec {
    /// A decoder for the stream.
    pub(super) fn new(stream: &Stream) -> Result<Self, NoCodec> {
        if let Some(name) = &stream.unsupported {
            return Err(NoCodec::Unsupported(name.clone()));
        }
        let mut params = stream.params.clone();
        let headers = params.extra_data.as_deref().unwrap_or_default();
        match params.codec {
            CODEC_ID_OPUS => {
                return Ok(Self::Opus(Box::new(OpusTrack::new(headers)?)));
            }
            CODEC_ID_ADPCM_IMA_QT => return Ima4Track::new(&params).map(Self::Ima4),
            CODEC_ID_VORBIS => vorbis::check_headers(headers).map_err(NoCodec::Damaged)?,
            CODEC_ID_ALAC => alac::check_config(headers).map_err(NoCodec::Damaged)?,
            _ => {}
        }
        // symphonia allocates for as many. Decoders of packets that turn out longer grow.
        params.max_frames_per_packet = params.max_frames_per_packet.map(|frames| frames.min(FRAMES_MAX));
        let decoder =
            symphonia::default::get_codecs().make_audio_decoder(&params, &AudioDecoderOptions::default());
        decoder.map(Self::Other).map_err(|error| match error {
            Error::DecodeError(problem) => NoCodec::Damaged(problem),
            Error::Unsupported(problem) => NoCodec::Unsupported(problem.to_owned()),
            error => NoCodec::Unsupported(error.to_string()),
        })
    }

    /// Short name, such as "aac".
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Opus(_) => "opus",
            Self::Ima4(_) => "ima4",
            Self::Other(decoder) => decoder.codec_info().short_name,
        }
    }

    /// Forgets the packets before: an edit jumps.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Opus(track) => track.reset(),
            Self::Ima4(track) => track.reset(),
            Self::Other(decoder) => decoder.reset(),
        }
    }

    /// Decodes one packet and replaces `interleaved` by its samples.
    pub(super) fn decode(&mut self, packet: &Packet, interleaved: &mut Vec<f32>) -> Result<Decoded, Error> {
        interleaved.clear();
        match self {
            Self::Opus(track) => track.decode(&packet.data, interleaved),
            Self::Ima4(track) => track.decode(&packet.data, interleaved),
            Self::Other(decoder) => {
                let packet =
                    PacketRef::new(0, Timestamp::new(0), Duration::new(packet.samples), &packet.data);
                let audio = decoder.decode_ref(&packet)?;
                audio.copy_to_vec_interleaved(interleaved);
                Ok(Decoded { rate_hz: audio.spec().rate(), channels: audio.num_planes(), skipped: 0 })
            }
        }
    }
}

/// More samples than a packet has: an ADPCM block of 64 KB has 131 072.
const FRAMES_MAX: u64 = 1 << 18;
