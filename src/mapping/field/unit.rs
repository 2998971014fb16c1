//! Units and formats of values that mean two things at once: seconds for roles in milliseconds, and one word for encoding and rate.

use serde::Deserialize;

use super::{FieldRole, FieldValue, ProtocolField};
use crate::audio::encoding::Encoding;

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

/// Reads an encoding and a rate, such as `s16le 16000`.
#[must_use]
pub fn parse_format(text: &str) -> Option<(Encoding, u32)> {
    let (encoding, rate_hz) = text.split_once(' ')?;
    Some((Encoding::from_name(encoding)?, rate_hz.parse().ok().filter(|rate_hz| *rate_hz > 0)?))
}
