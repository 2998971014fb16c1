//! Audio formats as OpenAI spells them, in both shapes.

use serde_json::{Value, json, value::RawValue};

use super::fields::{read_small, wrong_value};
use crate::{audio::encoding::Encoding, error::Error};

/// An audio format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct AudioFormat {
    pub(in crate::client) encoding: Encoding,
    pub(in crate::client) rate_hz: u32,
}

/// 24 kHz: OpenAI's only rate of linear audio.
const PCM_RATE_HZ: u32 = 24_000;
const TELEPHONE_RATE_HZ: u32 = 8000;

impl Default for AudioFormat {
    fn default() -> Self {
        Self { encoding: Encoding::S16le, rate_hz: PCM_RATE_HZ }
    }
}

impl AudioFormat {
    /// Linear audio at this rate, in hertz.
    pub(super) const fn linear(rate_hz: u32) -> Self {
        Self { encoding: Encoding::S16le, rate_hz }
    }

    /// Reads `{type, rate}`, or a name of the beta shape. Other rates of linear audio are taken too, as some servers do. With
    /// `own_rate_hz`, linear audio without a rate has this one, and also the names that Alibaba's servers give it.
    pub(super) fn read(value: &RawValue, path: &str, own_rate_hz: Option<u32>) -> Result<Self, Error> {
        let value = read_small(value, path)?;
        let name = value.as_str().or_else(|| value["type"].as_str()).unwrap_or_default();
        let telephone = |encoding| Self { encoding, rate_hz: TELEPHONE_RATE_HZ };
        match name {
            "audio/pcm" | "pcm16" => match &value["rate"] {
                Value::Null => Ok(own_rate_hz.map_or_else(Self::default, Self::linear)),
                rate => Ok(Self::linear(read_rate(rate, &format!("{path}.rate"))?)),
            },
            "pcm" | "pcm24" if own_rate_hz.is_some() => match &value["sample_rate"] {
                Value::Null => Ok(own_rate_hz.map_or_else(Self::default, Self::linear)),
                rate => Ok(Self::linear(read_rate(rate, &format!("{path}.sample_rate"))?)),
            },
            "audio/pcmu" | "g711_ulaw" => Ok(telephone(Encoding::Mulaw)),
            "audio/pcma" | "g711_alaw" => Ok(telephone(Encoding::Alaw)),
            _ => Err(wrong_value(path, "'audio/pcm', 'audio/pcmu' or 'audio/pcma'")),
        }
    }

    /// The same encoding at another rate, in hertz.
    pub(super) fn with_rate(self, rate: &RawValue, path: &str) -> Result<Self, Error> {
        Ok(Self { rate_hz: read_rate(&read_small(rate, path)?, path)?, ..self })
    }

    /// Length of this many bytes of audio, ms.
    pub(super) fn length_ms(self, bytes: u64) -> u64 {
        bytes / self.encoding.bytes_per_sample() as u64 * 1000 / u64::from(self.rate_hz)
    }

    pub(super) fn to_json(self, is_beta: bool) -> Value {
        match (self.encoding, is_beta) {
            (Encoding::Mulaw, true) => "g711_ulaw".into(),
            (Encoding::Alaw, true) => "g711_alaw".into(),
            (_, true) => "pcm16".into(),
            (Encoding::Mulaw, false) => json!({ "type": "audio/pcmu" }),
            (Encoding::Alaw, false) => json!({ "type": "audio/pcma" }),
            (_, false) => json!({ "type": "audio/pcm", "rate": self.rate_hz }),
        }
    }
}

fn read_rate(rate: &Value, path: &str) -> Result<u32, Error> {
    let rate = rate.as_u64().and_then(|rate| u32::try_from(rate).ok());
    rate.filter(|rate| (8000..=48_000).contains(rate)).ok_or_else(|| wrong_value(path, "24000"))
}
