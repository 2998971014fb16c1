//! Units and formats of values that mean two things at once: seconds for roles in milliseconds, kbit/s for bit rates, and one word for
//! encoding and rate.

use serde::Deserialize;

use super::{FieldRole, FieldValue, ProtocolField};
use crate::audio::{encoding::Encoding, format::MAX_CHANNELS};

/// Unit of a number whose role has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum FieldUnit {
    /// Seconds, with decimals.
    #[serde(rename = "s")]
    Seconds,
    /// 1000 bits per second, for a bit rate.
    #[serde(rename = "kbit/s")]
    KilobitsPerSecond,
}

impl FieldUnit {
    /// Rule for mapping files.
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Seconds => "has a `unit`, which is for numbers whose role is in milliseconds",
            Self::KilobitsPerSecond => "has the `unit` kbit/s, which is for numbers whose role is a bit rate",
        }
    }
}

impl FieldRole {
    /// True for a role whose value may have this unit.
    pub(super) fn takes(self, unit: FieldUnit) -> bool {
        match unit {
            FieldUnit::Seconds => self.unit() == "ms",
            FieldUnit::KilobitsPerSecond => self.unit() == "bit/s",
        }
    }

    /// True for a role whose value names encoding and rate.
    #[must_use]
    pub const fn is_format(self) -> bool {
        matches!(self, Self::InputFormat | Self::OutputFormat)
    }
}

impl ProtocolField {
    /// A number in the unit of the field's role.
    pub(super) fn in_unit_of_role(&self, value: FieldValue) -> FieldValue {
        match (self.file.unit, value) {
            (Some(FieldUnit::Seconds | FieldUnit::KilobitsPerSecond), FieldValue::Number(number)) => {
                FieldValue::Integer((number * 1000.0).round() as i64)
            }
            (_, value) => value,
        }
    }
}

/// An encoding, a rate and perhaps a number of channels or a bit rate, in one word of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioFormat {
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Sample rate, Hz.
    pub rate_hz: u32,
    /// Channels; `None` if the word says nothing about them.
    pub channels: Option<u16>,
    /// Bit rate of a file format, bit/s; `None` if the word says nothing about it.
    pub bit_rate: Option<u32>,
}

impl AudioFormat {
    /// Reads a format, such as `s16le 16000`, `s16le 48000 2` with channels, or `mp3 44100 128` with kbit/s.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let encoding = Encoding::from_name(words.next()?)?;
        let rate_hz = words.next()?.parse().ok().filter(|rate_hz| *rate_hz > 0)?;
        let third = words.next();
        if words.next().is_some() {
            return None;
        }
        let (mut channels, mut bit_rate) = (None, None);
        match third {
            Some(kbps) if encoding.is_file() => {
                bit_rate = Some(kbps.parse::<u32>().ok().filter(|kbps| (1..=320).contains(kbps))? * 1000);
            }
            Some(count) => {
                channels = Some(count.parse().ok().filter(|count| (1..=MAX_CHANNELS).contains(count))?);
            }
            None => {}
        }
        Some(Self { encoding, rate_hz, channels, bit_rate })
    }
}
