//! The stream that is decoded: what its headers say, whether the limits allow it, and its decoder.

use std::time::Duration;

use symphonia::core::errors::Error;

use super::codec::{Codec, NoCodec};
use super::container::Container;
use super::packet::{Stream, duration};
use crate::audio::{SPEECH_RATE_HZ, resample};
use crate::media::MediaError;

/// Bounds of what a file may decode to. The caller bounds the file itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Longest decoded audio. Compressed silence takes hardly any bytes.
    pub decoded_max: Duration,
    /// Most channels.
    pub channels_max: usize,
    /// Highest sample rate in Hz; at most the resampler's, 192 kHz.
    pub rate_hz_max: u32,
}

impl Default for DecodeLimits {
    /// An hour, surround sound, and the fastest sound cards.
    fn default() -> Self {
        Self {
            decoded_max: Duration::from_secs(3600),
            channels_max: 8,
            rate_hz_max: *resample::SUPPORTED_HZ.end(),
        }
    }
}

/// Rate and channels of audio.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) rate_hz: u32,
    pub(super) channels: usize,
}

impl DecodeLimits {
    pub(super) fn check(&self, spec: Spec) -> Result<(), MediaError> {
        if spec.channels > self.channels_max {
            return Err(MediaError::TooManyChannels { actual: spec.channels, max: self.channels_max });
        }
        let (min, max) = (*resample::SUPPORTED_HZ.start(), self.rate_hz_max);
        if !(min..=max).contains(&spec.rate_hz) || resample::check_rate(spec.rate_hz).is_err() {
            return Err(MediaError::RateNotSupported { actual: spec.rate_hz, min, max });
        }
        Ok(())
    }
}

/// Properties of the audio according to the file's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaInfo {
    /// File format.
    pub container: Container,
    /// Name of the codec, such as "aac".
    pub codec: &'static str,
    /// Sample rate in Hz, before resampling; 0 if only the audio itself says.
    pub sample_rate_hz: u32,
    /// Channels, before mixing; 0 if only the audio itself says.
    pub channels: usize,
    /// Length according to the headers, which recorders often leave out, and which may be wrong.
    pub duration: Option<Duration>,
    /// Which audio track was chosen, if there are several: its number among them, from 1, and how many there are.
    pub track: Option<(usize, usize)>,
}

/// Makes the decoder of a stream, and says what its headers say.
pub(super) fn open_stream(
    container: Container,
    stream: &Stream,
    limits: DecodeLimits,
) -> Result<(MediaInfo, Codec), MediaError> {
    let params = &stream.params;
    let spec = Spec {
        rate_hz: params.sample_rate.unwrap_or(0),
        channels: params.channels.as_ref().map_or(0, |channels| channels.count()),
    };
    let codec = Codec::new(stream).map_err(|reason| match reason {
        NoCodec::Unsupported(codec) => MediaError::CodecNotSupported { container: container.name(), codec },
        NoCodec::Damaged(problem) => container.broken(Duration::ZERO, &Error::DecodeError(problem)),
    })?;
    // Headers that leave out one may also be wrong about the other; the audio itself says both.
    let is_stated = spec.rate_hz > 0 && spec.channels > 0;
    let assumed_hz = if is_stated { spec.rate_hz } else { SPEECH_RATE_HZ };
    limits.check(Spec { rate_hz: assumed_hz, ..spec })?;
    let info = MediaInfo {
        container,
        codec: codec.name(),
        sample_rate_hz: spec.rate_hz,
        channels: spec.channels,
        duration: stream.duration.map(duration).filter(|duration| !duration.is_zero()),
        track: None,
    };
    Ok((info, codec))
}
