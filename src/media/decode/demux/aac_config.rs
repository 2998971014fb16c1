//! AudioSpecificConfig of AAC (ISO 14496-3 §1.6.2.1), in the form that symphonia decodes, or why it does not.

use symphonia::core::audio::Channels;
use symphonia::core::codecs::audio::AudioCodecParameters;
use symphonia::core::codecs::audio::well_known::CODEC_ID_AAC;

use crate::audio::frame_headers::AAC_RATES_HZ;
use crate::media::decode::fields::be;
use crate::media::decode::packet::Stream;

/// Object types.
const LC: u8 = 2;
const SBR: u8 = 5;
const PARAMETRIC_STEREO: u8 = 29;

/// The parameters of a decoder.
pub(super) struct AacConfig {
    pub(super) object_type: u8,
    pub(super) rate_hz: u32,
    pub(super) channel_configuration: u8,
    /// 960 samples instead of 1024.
    pub(super) has_short_frames: bool,
}

impl AacConfig {
    /// Parses a configuration. Of HE-AAC, the core is LC at half of the rate, which has all of speech's band.
    pub(super) fn parse(config: &[u8]) -> Option<Self> {
        let mut bits = Bits { bytes: config, at: 0 };
        let mut object_type = bits.object_type()?;
        let rate_hz = bits.rate()?;
        let channel_configuration = bits.read(4)? as u8;
        if matches!(object_type, SBR | PARAMETRIC_STEREO) {
            let _extension_rate_hz = bits.rate()?;
            object_type = bits.object_type()?;
        }
        let has_short_frames = bits.read(1) == Some(1);
        Some(Self { object_type, rate_hz, channel_configuration, has_short_frames })
    }

    /// A stream with this configuration.
    pub(super) fn stream(&self) -> Stream {
        let mut params = AudioCodecParameters::new();
        params.for_codec(CODEC_ID_AAC).with_sample_rate(self.rate_hz);
        let channels = if self.channel_configuration == 7 { 8 } else { self.channel_configuration };
        if channels > 0 {
            params.with_channels(Channels::Discrete(channels.into()));
        }
        params.with_extra_data(self.write().into());
        Stream { params, unsupported: self.problem().map(str::to_owned), ..Stream::default() }
    }

    fn problem(&self) -> Option<&'static str> {
        match self.object_type {
            LC if self.has_short_frames => Some("AAC with frames of 960 samples"),
            LC => match self.channel_configuration {
                1 | 2 => None,
                0 => Some("AAC whose channels stand in its data"),
                _ => Some("AAC with more than two channels"),
            },
            1 => Some("AAC Main"),
            3 => Some("AAC SSR"),
            4 => Some("AAC LTP"),
            23 => Some("AAC-LD"),
            39 => Some("AAC-ELD"),
            42 => Some("xHE-AAC"),
            _ => Some("MPEG-4 audio other than AAC-LC"),
        }
    }

    /// The shortest form: programs write flags whose fields are missing.
    fn write(&self) -> Vec<u8> {
        let index = AAC_RATES_HZ.iter().position(|rate_hz| *rate_hz == self.rate_hz);
        let (object_type, channels) =
            (u64::from(self.object_type & 31), u64::from(self.channel_configuration));
        let (bits, len) = match index {
            Some(index) => (object_type << 11 | (index as u64) << 7 | channels << 3, 2),
            None => (object_type << 35 | 15 << 31 | u64::from(self.rate_hz) << 7 | channels << 3, 5),
        };
        bits.to_be_bytes()[8 - len..].to_vec()
    }
}

/// Reads bits, the highest first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn read(&mut self, count: usize) -> Option<u32> {
        let (first, end) = (self.at / 8, (self.at + count).div_ceil(8));
        let word = be(self.bytes, first, end - first)?;
        self.at += count;
        Some((word >> (8 * end - self.at) & ((1 << count) - 1)) as u32)
    }

    fn object_type(&mut self) -> Option<u8> {
        match self.read(5)? {
            31 => Some(32 + self.read(6)? as u8),
            object_type => Some(object_type as u8),
        }
    }

    fn rate(&mut self) -> Option<u32> {
        match self.read(4)? {
            15 => self.read(24),
            index => AAC_RATES_HZ.get(index as usize).copied(),
        }
    }
}
