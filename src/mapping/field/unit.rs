//! Units and formats of values that mean two things at once: seconds for roles in milliseconds, and one word for encoding and rate.

use serde::Deserialize;

use super::{FieldRole, FieldValue, ProtocolField};
use crate::audio::{encoding::Encoding, format::MAX_CHANNELS};

/// Unit of a number whose role is in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum FieldUnit {
    /// Seconds, with decimals.
    #[serde(rename = "s")]
    Seconds,
}

impl FieldRole {
    /// True for a role whose value is in milliseconds.
    pub(super) const fn is_in_ms(self) -> bool {
        matches!(self, Self::EndSilenceMs | Self::EndWaitMaxMs | Self::SegmentMaxMs | Self::UtteranceGapMs)
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
            (Some(FieldUnit::Seconds), FieldValue::Number(seconds)) => {
                FieldValue::Integer((seconds * 1000.0).round() as i64)
            }
            (_, value) => value,
        }
    }
}

/// An encoding, a rate and perhaps a number of channels, in one word of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioFormat {
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Sample rate, Hz.
    pub rate_hz: u32,
    /// Channels; `None` if the word says nothing about them.
    pub channels: Option<u16>,
}

impl AudioFormat {
    /// Reads a format, such as `s16le 16000` or `s16le 48000 2`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (encoding, rest) = text.split_once(' ')?;
        let (rate_hz, channels) = match rest.split_once(' ') {
            Some((rate_hz, channels)) => {
                let channels = channels.parse().ok().filter(|count| (1..=MAX_CHANNELS).contains(count))?;
                (rate_hz, Some(channels))
            }
            None => (rest, None),
        };
        let rate_hz = rate_hz.parse().ok().filter(|rate_hz| *rate_hz > 0)?;
        Some(Self { encoding: Encoding::from_name(encoding)?, rate_hz, channels })
    }
}
