//! Audio codecs of calls.

use str0m::{
    Rtc,
    format::Codec as RtpCodec,
    media::{Mid, Pt},
};

use crate::audio::{
    MODEL_RATE_HZ,
    encoding::Encoding,
    g722::{self, G722Decoder, G722Encoder},
    opus::{DECODED_RATE_HZ, PacketDecoder, PacketEncoder, PacketOptions},
    pcm,
};
use crate::server::CallRates;

/// Length of a packet.
pub(super) const PACKET_MS: u32 = 20;

/// A codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Opus,
    G722,
    G711(Encoding),
}

impl Codec {
    /// The codec of a payload type, if voxbridge knows it.
    pub(super) const fn of(codec: RtpCodec) -> Option<Self> {
        match codec {
            RtpCodec::Opus => Some(Self::Opus),
            RtpCodec::G722 => Some(Self::G722),
            RtpCodec::PCMU => Some(Self::G711(Encoding::Mulaw)),
            RtpCodec::PCMA => Some(Self::G711(Encoding::Alaw)),
            _ => None,
        }
    }

    /// Sample rates of what is decoded and encoded. Opus plays at the model's rate.
    pub(super) const fn rates(self) -> CallRates {
        match self {
            Self::Opus => CallRates { in_hz: DECODED_RATE_HZ, out_hz: MODEL_RATE_HZ },
            Self::G722 => CallRates { in_hz: g722::RATE_HZ, out_hz: g722::RATE_HZ },
            Self::G711(_) => CallRates { in_hz: 8000, out_hz: 8000 },
        }
    }

    /// Rate of RTP timestamps, Hz. That of G.722 is 8 kHz for historical reasons (RFC 3551 §4.5.2).
    pub(super) const fn clock_hz(self) -> u32 {
        match self {
            Self::Opus => 48_000,
            Self::G722 | Self::G711(_) => 8000,
        }
    }

    /// Samples of a packet to the client.
    pub(super) const fn packet_samples(self) -> usize {
        (self.rates().out_hz / 1000 * PACKET_MS) as usize
    }

    pub(super) fn decoder(self) -> Decoder {
        match self {
            Self::Opus => Decoder::Opus(Box::default()),
            Self::G722 => Decoder::G722(Box::default()),
            Self::G711(law) => Decoder::G711(law),
        }
    }

    pub(super) fn encoder(self) -> Encoder {
        match self {
            Self::Opus => Encoder::Opus(opus_encoder()),
            Self::G722 => Encoder::G722(Box::default()),
            Self::G711(law) => Encoder::G711(law),
        }
    }
}

/// The codecs of ours that a track may use, as the client likes them.
pub(super) fn negotiated(rtc: &Rtc, mid: Mid) -> Vec<(Pt, Codec)> {
    let params = rtc.codec_config().params();
    let known = |pt: &Pt| {
        let params = params.iter().find(|params| params.pt() == *pt)?;
        Some((*pt, Codec::of(params.spec().codec)?))
    };
    rtc.media(mid).map_or(&[][..], |media| media.remote_pts()).iter().filter_map(known).collect()
}

/// An encoder of Opus; `None` is unreachable, because Opus has the model's rate.
fn opus_encoder() -> Option<Box<PacketEncoder>> {
    PacketEncoder::new(MODEL_RATE_HZ, PacketOptions::default()).ok().map(Box::new)
}

/// Decoder of one stream.
pub(super) enum Decoder {
    Opus(Box<PacketDecoder>),
    G722(Box<G722Decoder>),
    G711(Encoding),
}

impl Decoder {
    /// Decodes a packet, after audio that was lost before it: Opus finds some of it in the packet. `heard` is the end of what came
    /// before. Returns the number of samples that were made up.
    pub(super) fn decode(&mut self, lost: usize, payload: &[u8], heard: &[i16], out: &mut Vec<i16>) -> usize {
        match self {
            Self::Opus(decoder) => {
                let mut audio = Vec::new();
                decoder.note_lost(lost);
                decoder.decode(payload, &mut audio);
                out.extend(audio.into_iter().map(pcm::to_i16));
            }
            Self::G722(decoder) => {
                conceal(heard, lost, out);
                decoder.decode(payload, out);
            }
            Self::G711(law) => {
                conceal(heard, lost, out);
                out.extend(payload.iter().map(|code| law.decode_first(&[*code])));
            }
        }
        lost
    }
}

/// Makes up for lost audio: repeats what was heard, ever softer.
fn conceal(heard: &[i16], samples: usize, out: &mut Vec<i16>) {
    let end = out.len() + samples;
    let fading = heard.iter().cycle().zip(0..samples);
    let faded =
        |(sample, at): (&i16, usize)| (i64::from(*sample) * (samples - at) as i64 / samples as i64) as i16;
    out.extend(fading.map(faded));
    out.resize(end, 0);
}

/// Encoder of one stream.
pub(super) enum Encoder {
    Opus(Option<Box<PacketEncoder>>),
    G722(Box<G722Encoder>),
    G711(Encoding),
}

/// Opus's packet of silence, 20 ms (RFC 6716 §3.1: CELT, fullband, mono, and a frame that is cut short).
const OPUS_SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];

impl Encoder {
    /// Encodes a packet.
    pub(super) fn encode(&mut self, samples: &[i16]) -> Vec<u8> {
        let mut payload = Vec::with_capacity(samples.len());
        match self {
            Self::Opus(encoder) => {
                let bytes = pcm::s16le_bytes(samples);
                payload.extend(encoder.iter_mut().flat_map(|encoder| encoder.encode(&bytes)));
            }
            Self::G722(encoder) => encoder.encode(samples, &mut payload),
            Self::G711(law) => {
                let samples: Vec<f32> = samples.iter().map(|sample| pcm::to_f32(*sample)).collect();
                law.encode(&samples, &mut payload);
            }
        }
        payload
    }

    /// A packet of silence between what is played. Opus needs no work for it, and begins anew after it.
    pub(super) fn silence(&mut self, samples: usize) -> Vec<u8> {
        match self {
            Self::Opus(encoder) => {
                *encoder = encoder.as_ref().map(|encoder| Box::new(encoder.renewed()));
                OPUS_SILENCE.to_vec()
            }
            _ => self.encode(&vec![0; samples]),
        }
    }
}
