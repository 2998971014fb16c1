//! Headers of codecs as MP4 and CAF write them, in the form that the decoders expect.

use symphonia::core::audio::Channels;
use symphonia::core::codecs::audio::AudioCodecParameters;
use symphonia::core::codecs::audio::well_known::CODEC_ID_ALAC;

use super::aac_config::AacConfig;
use crate::media::decode::fields::be32;
use crate::media::decode::packet::Stream;

/// A stream of AAC.
pub(super) fn aac_stream(config: &[u8]) -> Stream {
    match AacConfig::parse(config) {
        Some(config) => config.stream(),
        None => Stream::unsupported("AAC without a valid configuration"),
    }
}

/// A stream of ALAC. Its configuration may follow boxes of QuickTime.
pub(super) fn alac_stream(cookie: &[u8], rate_hz: u32, channels: u16) -> Stream {
    let mut config = cookie;
    for kind in [b"frma", b"alac"] {
        if config.get(4..8) == Some(kind) {
            config = config.get(12..).unwrap_or_default();
        }
    }
    // A channel layout follows where there are more than two channels.
    let config = &config[..if config.len() >= 48 { 48 } else { config.len().min(24) }];
    let mut params = AudioCodecParameters::new();
    params.for_codec(CODEC_ID_ALAC).with_sample_rate(be32(config, 20).unwrap_or(rate_hz));
    params.with_channels(Channels::Discrete(config.get(9).map_or(channels, |count| u16::from(*count))));
    params.with_extra_data(config.into());
    Stream { params, ..Stream::default() }
}

/// The header of an Opus stream (RFC 7845 §5.1) for mono or stereo.
pub(super) fn opus_head(channels: u8, pre_skip: u16) -> Vec<u8> {
    let pre_skip = pre_skip.to_le_bytes();
    [b"OpusHead\x01", &[channels][..], &pre_skip, &48_000_u32.to_le_bytes(), &[0, 0, 0]].concat()
}

/// Kind of the codec and its configuration in an elementary stream descriptor (ISO 14496-1 §7.2.6.5).
pub(super) fn decoder_descriptor(descriptor: &[u8]) -> Option<(u8, &[u8])> {
    let stream = descriptor_body(descriptor, 3)?;
    let flags = *stream.get(2)?;
    let mut at = 3;
    at += if flags & 0x80 == 0 { 0 } else { 2 };
    at += if flags & 0x40 == 0 { 0 } else { 1 + usize::from(*stream.get(at)?) };
    at += if flags & 0x20 == 0 { 0 } else { 2 };
    let decoder = descriptor_body(stream.get(at..)?, 4)?;
    let config = decoder.get(13..).and_then(|rest| descriptor_body(rest, 5)).unwrap_or_default();
    Some((*decoder.first()?, config))
}

/// The configuration in an elementary stream descriptor.
pub(super) fn decoder_config(descriptor: &[u8]) -> Option<&[u8]> {
    decoder_descriptor(descriptor).map(|(_, config)| config)
}

/// Contents of a descriptor with this tag. Its length has seven bits in each byte.
fn descriptor_body(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(&[tag])?;
    let len_bytes = rest.iter().take(4).position(|byte| byte & 0x80 == 0)? + 1;
    let len = rest[..len_bytes].iter().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7f));
    let body = &rest[len_bytes..];
    Some(&body[..len.min(body.len())])
}

/// Name of a codec for people, by its four letters.
pub(super) fn codec_name(kind: &[u8]) -> String {
    let name = match kind {
        b"ac-3" => "AC-3",
        b"ec-3" => "E-AC-3",
        b"ac-4" => "AC-4",
        b"dtsc" | b"dtsh" | b"dtsl" | b"dtse" => "DTS",
        b"samr" => "AMR",
        b"sawb" | b"sawp" => "AMR-WB",
        b"agsm" => "GSM 6.10",
        b"QDM2" | b"QDMC" => "QDesign",
        b"Qclp" | b"sqcp" => "QCELP",
        b"MAC3" | b"MAC6" => "MACE",
        b"enca" => "of an encrypted track",
        b"mlpa" => "TrueHD",
        b"usac" => "xHE-AAC",
        b"aach" | b"aacp" => "HE-AAC",
        b"aacl" => "AAC-LD",
        b"aace" | b"aacf" => "AAC-ELD",
        _ => return format!("'{}'", kind.escape_ascii()),
    };
    name.to_owned()
}
