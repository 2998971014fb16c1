//! Reads fields of the client's messages. Errors name the field in OpenAI's words.

use serde_json::{Value, value::RawValue};

use crate::{
    client::json_text::{Fields, JsonKind, read_list, read_str},
    error::{Error, ErrorKind},
};

/// Longest instructions, bytes: more than the model's context.
pub(super) const TEXT_MAX_BYTES: usize = 64 * 1024;
/// Longest names, of models, voices and languages, bytes.
pub(super) const NAME_MAX_BYTES: usize = 256;
/// Longest setting that is no text, such as an audio format, bytes.
const SMALL_MAX_BYTES: usize = 1024;

/// Reads the object at this path of a message.
pub(super) fn read_object<'m>(value: &'m RawValue, path: &str) -> Result<Fields<'m>, Error> {
    match value.kind() {
        "an object" => Fields::read(value).ok_or_else(|| wrong_value(path, "fewer fields")),
        _ => Err(wrong_type(path, "an object", value)),
    }
}

/// Reads the array at this path of a message, of at most `max` elements.
pub(super) fn read_array<'m>(
    value: &'m RawValue,
    path: &str,
    max: usize,
) -> Result<Vec<&'m RawValue>, Error> {
    match value.kind() {
        "an array" => {
            read_list(value, max).ok_or_else(|| wrong_value(path, &format!("at most {max} elements")))
        }
        _ => Err(wrong_type(path, "an array", value)),
    }
}

/// Reads the text at this path of a message.
pub(super) fn read_text(value: &RawValue, path: &str, max_bytes: usize) -> Result<String, Error> {
    let text = read_str(value).ok_or_else(|| wrong_type(path, "a string", value))?;
    match text.len() <= max_bytes {
        true => Ok(text.into_owned()),
        false => Err(wrong_value(path, &format!("a string of at most {max_bytes} bytes"))),
    }
}

/// Reads the setting at this path of a message as a value, if its text is short.
pub(super) fn read_small(value: &RawValue, path: &str) -> Result<Value, Error> {
    let text = Some(value.get()).filter(|text| text.len() <= SMALL_MAX_BYTES);
    text.and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| wrong_value(path, &format!("at most {SMALL_MAX_BYTES} bytes")))
}

/// The beginning of what the client gave, to quote it.
pub(super) fn shortened(words: &str) -> String {
    const QUOTED_MAX_CHARS: usize = 64;
    words.chars().take(QUOTED_MAX_CHARS).collect()
}

/// Error for a field of the wrong type.
pub(super) fn wrong_type(path: &str, expected: &str, found: &(impl JsonKind + ?Sized)) -> Error {
    let found = found.kind();
    let detail = format!("Invalid type for '{path}': expected {expected}, but got {found} instead.");
    Error::new(ErrorKind::Invalid, detail).of_field(path)
}

/// Error for a value that is not allowed.
pub(super) fn wrong_value(path: &str, expected: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("Invalid value for '{path}': expected {expected}.")).of_field(path)
}

/// Error for a field that is absent.
pub(super) fn missing(path: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("Missing required parameter: '{path}'.")).of_field(path)
}
