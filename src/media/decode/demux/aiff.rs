//! AIFF and AIFF-C files (Apple, "Audio Interchange File Format AIFF-C").

use bytes::Bytes;
use symphonia::core::codecs::audio::well_known::*;
use symphonia::core::errors::Error;

use super::blocks::{Blocks, Format, Layout, pcm};
use crate::media::decode::fields::{be16, be32, be64};
use crate::media::decode::packet::Stream;

/// Opens a file.
pub(in crate::media::decode) fn open(file: &Bytes) -> Result<Blocks, Error> {
    let chunks = Chunks::find(file)
        .ok_or(Error::DecodeError("the chunk of samples or that of their format is missing"))?;
    let format = parse_common(chunks.common).ok_or(Error::DecodeError("the format is damaged"))?;
    let format = match format {
        Ok(format) => format,
        Err(name) => return Ok(Blocks::unsupported(name)),
    };
    let stream = Stream {
        params: format.params(),
        duration: Some(format.time_of(chunks.claimed)),
        is_duration_certain: true,
        ..Stream::default()
    };
    Ok(Blocks::new(stream, chunks.sound, format.layout))
}

struct Chunks<'a> {
    common: &'a [u8],
    sound: Bytes,
    /// Length of the samples according to the header.
    claimed: u64,
}

impl<'a> Chunks<'a> {
    fn find(file: &'a Bytes) -> Option<Self> {
        let (mut common, mut sound) = (None, None);
        let mut at: usize = 12;
        while let Some(len) =
            be32(file, at + 4).map(|len| len as usize).filter(|_| common.is_none() || sound.is_none())
        {
            let (body_at, end) = (at + 8, at.saturating_add(8).saturating_add(len));
            match file.get(at..at + 4)? {
                b"COMM" => common = file.get(body_at..end),
                b"SSND" => sound = Some(sound_data(file, body_at, end)?),
                _ => {}
            }
            at = end.saturating_add(len % 2);
        }
        let (sound, claimed) = sound?;
        Some(Self { common: common?, sound, claimed })
    }
}

/// The samples, behind an offset and a block size. Programs that write to a pipe state no length.
fn sound_data(file: &Bytes, body_at: usize, end: usize) -> Option<(Bytes, u64)> {
    let start = body_at + 8 + be32(file, body_at)? as usize;
    let is_unknown = end <= start || end - start >= 0x7fff_0000;
    let stop = if is_unknown { file.len() } else { end };
    let data = file.get(start..stop.min(file.len()))?;
    Some((file.slice_ref(data), (stop - start) as u64))
}

/// Channels, number of samples, bits, rate, and in AIFF-C the codec.
fn parse_common(common: &[u8]) -> Option<Result<Format, String>> {
    let (channels, bits) = (be16(common, 0)?, be16(common, 6)?);
    let rate_hz = extended(common.get(8..18)?)?;
    let bytes = usize::from(bits).div_ceil(8);
    let kind: &[u8] = common.get(18..22).unwrap_or(b"NONE");
    let (codec, bytes) = match kind {
        b"NONE" | b"twos" => (pcm(bytes, true, false), bytes),
        b"sowt" => (pcm(bytes, false, false), bytes),
        b"raw " if bytes == 1 => (Some(CODEC_ID_PCM_U8), 1),
        b"fl32" | b"FL32" => (Some(CODEC_ID_PCM_F32BE), 4),
        b"fl64" | b"FL64" => (Some(CODEC_ID_PCM_F64BE), 8),
        b"in24" => (Some(CODEC_ID_PCM_S24BE), 3),
        b"in32" => (Some(CODEC_ID_PCM_S32BE), 4),
        b"ulaw" | b"ULAW" => (Some(CODEC_ID_PCM_MULAW), 1),
        b"alaw" | b"ALAW" => (Some(CODEC_ID_PCM_ALAW), 1),
        b"ima4" => (Some(CODEC_ID_ADPCM_IMA_QT), 34),
        _ => (None, 1),
    };
    let Some(codec) = codec else { return Some(Err(format!("'{}'", kind.escape_ascii()))) };
    let samples = if codec == CODEC_ID_ADPCM_IMA_QT { 64 } else { 1 };
    let layout = Layout { bytes: bytes * usize::from(channels), samples };
    (layout.bytes > 0).then_some(Ok(Format { codec, rate_hz, channels, layout }))
}

/// Reads a positive number of 80 bits with floating point as an integer.
fn extended(bytes: &[u8]) -> Option<u32> {
    let exponent = u32::from(be16(bytes, 0)?).checked_sub(16_383)?;
    let mantissa = be64(bytes, 2)?;
    (exponent < 32).then(|| (mantissa >> (63 - exponent)) as u32)
}
