//! Python behaviour that is visible on the wire: truth values, base64 decoding, exception texts.
//!
//! Covers only what a request can reach. Sources: mappings/notes/minicpm-o.md#rejections and CPython's `binascii`.

use serde_json::Value;

use crate::audio::pcm::{PcmError, decode_base64_f32};

/// `bool(value)`.
pub(super) fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// `str(value)` of a JSON value, approximately.
pub(super) fn to_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `repr(value)` in an error message.
pub(super) fn to_repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::String(text) => format!("'{text}'"),
        other => other.to_string(),
    }
}

/// `np.frombuffer(base64.b64decode(text), dtype=np.float32)`, with its exception texts.
pub(super) fn decode_float32(text: &str) -> Result<Vec<f32>, String> {
    let mut samples = Vec::new();
    let strict = decode_base64_f32(text, &mut samples);
    let outcome = match strict {
        Err(PcmError::Base64(_)) => decode_base64_f32(&normalize_base64(text)?, &mut samples),
        done => done,
    };
    match outcome {
        Ok(()) => Ok(samples),
        Err(PcmError::PartialSample { .. }) => {
            Err("buffer size must be a multiple of element size".to_owned())
        }
        Err(PcmError::Base64(_)) => Err("Incorrect padding".to_owned()),
    }
}

/// `base64.b64decode(text)`.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let strict = STANDARD.decode(text);
    strict.or_else(|_| STANDARD.decode(normalize_base64(text)?).map_err(|_| "Incorrect padding".to_owned()))
}

/// Returns well-formed base64 of what a lenient decoder reads: it skips illegal characters and stops at complete
/// padding.
fn normalize_base64(text: &str) -> Result<String, String> {
    let mut clean = String::with_capacity(text.len() + 3);
    let mut padding = 0;
    for character in text.chars() {
        if character == '=' {
            padding += 1;
            if clean.len() % 4 >= 2 && clean.len() % 4 + padding >= 4 {
                break;
            }
        } else if character.is_ascii_alphanumeric() || matches!(character, '+' | '/') {
            padding = 0;
            clean.push(character);
        }
    }
    match (clean.len() % 4, padding) {
        (0, _) => Ok(clean),
        (1, _) => Err(format!(
            "Invalid base64-encoded string: number of data characters ({}) cannot be 1 more than a multiple of 4",
            clean.len()
        )),
        (2, 2) => Ok(clean + "=="),
        (3, 1) => Ok(clean + "="),
        _ => Err("Incorrect padding".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_characters_are_skipped_but_bad_lengths_fail() {
        assert_eq!(decode_float32("AAAAAA=="), Ok(vec![0.0]));
        assert_eq!(decode_float32("AA\nAA!!AA=="), Ok(vec![0.0]));
        assert_eq!(decode_float32("é#"), Ok(Vec::new()));
        assert_eq!(decode_float32("AAAAAA"), Err("Incorrect padding".to_owned()));
        assert!(decode_float32("AAAAA").unwrap_err().contains("data characters (5)"));
        assert_eq!(decode_float32("AAAA"), Err("buffer size must be a multiple of element size".to_owned()));
    }
}
