//! Field of a relay message: its place, its type and its role.
//!
//! Values borrow from the message. Audio is checked, never decoded.

use serde::Deserialize;

use super::super::{
    extract::Extractor,
    field::display_node,
    upstream::{SendName, UpstreamMapping},
};
use crate::{named_enum::named_enum, vocabulary::Node};

named_enum! {
    /// Role of a field. Mapping files name these in snake case after `to =`; slots of upstream messages have the same names.
    pub enum RelayFieldRole {
        /// System prompt.
        Prompt = "prompt",
        /// Inference settings, an object.
        Config = "config",
        /// Voice sample for the model, base64.
        Voice = "voice",
        /// Voice sample for speech only, base64.
        SpeechVoice = "speech_voice",
        /// Most slices per picture.
        SliceMax = "slice_max",
        /// Microphone audio, base64.
        Audio = "audio",
        /// Pictures, a list of base64 JPEG.
        Frames = "frames",
        /// Forces the model to stop talking.
        ForceListen = "force_listen",
        /// Client's id for an append.
        InputId = "input_id",
        /// Client's id for an answer.
        ResponseId = "response_id",
        /// Reason for the end of the session.
        Reason = "reason",
    }
}

impl RelayFieldRole {
    /// True if upstreams of this dialect take the field. Those without messages of a relay get the commands of a
    /// conversation.
    #[must_use]
    pub fn is_taken_by(self, dialect: &UpstreamMapping) -> bool {
        let has = |name: SendName| dialect.message(name).is_some();
        match self {
            _ if dialect.has_relay_messages() => {
                dialect.has_slot(&[SendName::RelayOpen, SendName::RelayAppend, SendName::Close], self.name())
            }
            Self::Prompt | Self::Config => dialect.has_slot(&[SendName::Converse], self.name()),
            Self::Voice => has(SendName::ConverseWithVoice),
            Self::Frames => has(SendName::AppendWithFrame),
            Self::Audio | Self::ForceListen => has(SendName::Append),
            _ => false,
        }
    }
}

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayFieldType {
    /// A string.
    Text,
    /// A whole number.
    Integer,
    /// A boolean.
    Flag,
    /// An array of strings.
    List,
    /// An object, which is not inspected.
    Object,
    /// An object, kept as JSON text.
    Json,
    /// A string: base64 of float32 samples.
    Samples,
    /// A string: base64 of a WAV file or of float32 samples.
    VoiceSample,
}

/// Field as written in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelayFieldFile {
    at: Option<String>,
    to: Option<RelayFieldRole>,
    #[serde(rename = "type")]
    field_type: RelayFieldType,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    checked: bool,
    because: Option<String>,
}

/// A compiled field.
#[derive(Debug, Clone)]
pub struct RelayField {
    /// Name in the protocol.
    pub name: String,
    /// Role. A field without one has no effect, and `because` says why.
    pub to: Option<RelayFieldRole>,
    /// Its type.
    pub field_type: RelayFieldType,
    /// The field must be given, or another field with the same role.
    pub required: bool,
    /// The bridge validates the field even if messages pass unchanged.
    pub checked: bool,
    /// Why the field has no effect.
    pub because: Option<String>,
    /// Slot in the protocol's [`Extractor`].
    pub(crate) slot: usize,
}

impl RelayFieldFile {
    pub(super) fn compile(self, name: String, extractor: &mut Extractor) -> RelayField {
        let at = self.at.unwrap_or_else(|| format!("/{name}"));
        let slot =
            if self.field_type == RelayFieldType::Json { extractor.add_raw(&at) } else { extractor.add(&at) };
        let Self { to, field_type, required, checked, because, .. } = self;
        RelayField { name, to, field_type, required, checked, because, slot }
    }
}

impl RelayField {
    /// Checks the type of a value.
    ///
    /// # Errors
    /// A description of the problem, without the field's name.
    pub fn check(&self, node: &Node<'_>) -> Result<(), String> {
        let wanted = match (self.field_type, node) {
            (RelayFieldType::Text, Node::Str(_))
            | (RelayFieldType::Integer, Node::Int(_))
            | (RelayFieldType::Flag, Node::Bool(_))
            | (RelayFieldType::Object, Node::Object) => return Ok(()),
            (RelayFieldType::Json, Node::Raw(json)) if json.starts_with('{') => return Ok(()),
            (RelayFieldType::List, Node::List(items)) if items.iter().all(|item| item.as_str().is_some()) => {
                return Ok(());
            }
            (RelayFieldType::Samples, Node::Str(text)) => return check_samples(text),
            (RelayFieldType::VoiceSample, Node::Str(text)) => {
                let is_wav = without_data_prefix(text).starts_with(RIFF_BASE64);
                return if is_wav { base64_decoded_len(text).map(drop) } else { check_samples(text) };
            }
            (RelayFieldType::Text | RelayFieldType::Samples | RelayFieldType::VoiceSample, _) => "a string",
            (RelayFieldType::Integer, _) => "a whole number",
            (RelayFieldType::Flag, _) => "true or false",
            (RelayFieldType::List, _) => "an array of strings",
            (RelayFieldType::Object | RelayFieldType::Json, _) => "an object",
        };
        Err(format!("should be {wanted}, got {}", display_node(node)))
    }
}

/// Start of a WAV file in base64.
const RIFF_BASE64: &str = "UklGR";

fn check_samples(text: &str) -> Result<(), String> {
    match base64_decoded_len(text)? {
        bytes if bytes % 4 != 0 => {
            Err(format!("{bytes} bytes are not a whole number of float32 samples (4 bytes each)"))
        }
        _ => Ok(()),
    }
}

/// Length of the decoded bytes. Like the real servers' decoder, it skips characters outside the alphabet and rejects
/// wrong padding (mappings/notes/minicpm-o.md#rejections).
fn base64_decoded_len(text: &str) -> Result<usize, String> {
    let data = without_data_prefix(text);
    let padding = data.bytes().filter(|byte| *byte == b'=').count();
    let letters = data.bytes().filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    let letters = letters.count();
    match letters % 4 {
        0 => Ok(letters / 4 * 3),
        1 => Err("base64 decode failed: one letter too many".to_owned()),
        rest if padding >= 4 - rest => Ok(letters * 3 / 4),
        _ => Err("base64 decode failed: incorrect padding".to_owned()),
    }
}

/// Strips `data:audio/…;base64,`, which the real servers' decoder skips too.
pub(crate) fn without_data_prefix(text: &str) -> &str {
    text.split_once(";base64,").map_or(text, |(_, data)| data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(field_type: RelayFieldType) -> RelayField {
        let none = || None;
        RelayField {
            name: "f".into(),
            to: none(),
            field_type,
            required: false,
            checked: false,
            because: None,
            slot: 0,
        }
    }

    #[test]
    fn audio_is_validated_like_the_real_servers_decoder() {
        let audio = field(RelayFieldType::Samples);
        let text = |text: &'static str| audio.check(&Node::Str(text.into()));
        for good in ["", "AAAAAA==", "AAAAAAAAAAA=", "AA AA\nAA==", "data:audio/pcm;base64,AAAAAA=="] {
            assert_eq!(text(good), Ok(()), "{good:?}");
        }
        assert!(text("AAAAAA").unwrap_err().contains("padding"));
        assert!(text("AAAAA").unwrap_err().contains("one letter too many"));
        assert!(text("AAAA").unwrap_err().contains("3 bytes are not a whole number"));
        assert!(audio.check(&Node::Int(5)).unwrap_err().contains("should be a string, got 5"));
        for wav in ["UklGRgAA", "data:audio/wav;base64,UklGRgAA"] {
            assert_eq!(field(RelayFieldType::VoiceSample).check(&Node::Str(wav.into())), Ok(()));
        }
    }
}
