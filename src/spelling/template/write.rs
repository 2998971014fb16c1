//! How the value of a slot is written.

use std::fmt::Write as _;

use crate::{
    audio::{SPEECH_RATE_HZ, pcm, wav},
    vocabulary::{JsonWriter, Node, SlotValue},
};

/// How a slot's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotFormat {
    /// As JSON.
    Json,
    /// As JSON, but numbers are rounded to integers.
    Whole,
    /// As a JSON string: numbers, flags and objects too.
    Text,
    /// As a rounded number, or `null`: without quotes in any case.
    Digits,
    /// A time in seconds as whole milliseconds.
    Ms,
    /// As JSON, but a text that is not empty gets a space behind it.
    Spaced,
}

pub(super) fn write_formatted(value: SlotValue<'_>, format: SlotFormat, out: &mut String) {
    match (format, value) {
        (SlotFormat::Whole | SlotFormat::Digits, SlotValue::Float(number)) if number.is_finite() => {
            write_json(SlotValue::Int(number.round() as i64), out);
        }
        (SlotFormat::Digits, SlotValue::Int(_)) => write_json(value, out),
        (SlotFormat::Digits, SlotValue::Raw(json)) if json.parse::<f64>().is_ok() => out.push_str(json),
        (SlotFormat::Digits, SlotValue::Str(text)) if is_whole_number(text) => out.push_str(text),
        (SlotFormat::Digits, _) => out.push_str("null"),
        (SlotFormat::Text, SlotValue::Bool(_) | SlotValue::Int(_) | SlotValue::Float(_)) => {
            out.push('"');
            write_json(value, out);
            out.push('"');
        }
        (SlotFormat::Text, SlotValue::Raw(json)) => write_string(json, out),
        (SlotFormat::Ms, SlotValue::Float(seconds)) if seconds.is_finite() => {
            write_json(SlotValue::Int((seconds * 1000.0).round() as i64), out);
        }
        (SlotFormat::Spaced, SlotValue::Str(text)) if !text.is_empty() => {
            write_string(text, out);
            out.truncate(out.len() - 1);
            out.push_str(" \"");
        }
        _ => write_json(value, out),
    }
}

/// True for a text that is a JSON number without sign, fraction and exponent.
fn is_whole_number(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|number| number.to_string() == text)
}

pub(super) fn write_json(value: SlotValue<'_>, out: &mut String) {
    match value {
        SlotValue::Null => out.push_str("null"),
        SlotValue::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        SlotValue::Int(value) => {
            let _ = write!(out, "{value}");
        }
        // voxbridge measures in milliseconds, so three decimals of a second are exact.
        SlotValue::Float(value) if value.is_finite() => {
            let rounded = (value * 1000.0).round() / 1000.0;
            let _ = write!(out, "{rounded:?}");
        }
        SlotValue::Float(_) => out.push_str("null"),
        SlotValue::Str(text) => write_string(text, out),
        SlotValue::Raw(json) => out.push_str(json),
        SlotValue::Written(JsonWriter(write)) => write(out),
        SlotValue::Plain(text) => out.extend(["\"", text, "\""]),
        SlotValue::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_json(scalar_value(item), out);
            }
            out.push(']');
        }
        SlotValue::Elements(elements) => out.extend(["[", elements, "]"]),
        SlotValue::Audio(samples) => write_quoted(out, |out| pcm::encode_base64_f32(samples, out)),
        SlotValue::Pcm16(samples) => write_quoted(out, |out| pcm::encode_base64_s16(samples, out)),
        SlotValue::Wav(samples) => write_quoted(out, |out| {
            pcm::encode_base64(&wav::write_s16(samples, SPEECH_RATE_HZ), out);
        }),
        SlotValue::Base64(bytes) => write_quoted(out, |out| pcm::encode_base64(bytes, out)),
        SlotValue::DataUrl(media_type, bytes) => {
            out.extend(["\"data:", media_type, ";base64,"]);
            pcm::encode_base64(bytes, out);
            out.push('"');
        }
    }
}

/// Writes text that needs no escapes as a string.
fn write_quoted(out: &mut String, write: impl FnOnce(&mut String)) {
    out.push('"');
    write(out);
    out.push('"');
}

pub(in crate::spelling) const fn scalar_value<'n>(node: &'n Node<'_>) -> SlotValue<'n> {
    match node {
        Node::Bool(flag) => SlotValue::Bool(*flag),
        Node::Int(number) => SlotValue::Int(*number),
        Node::Float(number) => SlotValue::Float(*number),
        Node::Str(std::borrow::Cow::Borrowed(text)) => SlotValue::Str(text),
        Node::Str(std::borrow::Cow::Owned(text)) => SlotValue::Str(text.as_str()),
        Node::Null | Node::Raw(_) | Node::List(_) | Node::Object => SlotValue::Null,
    }
}

/// Writes a JSON string: quote, backslash and control characters are escaped (RFC 8259 §7).
fn write_string(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[from..at]);
        from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            other => {
                let _ = write!(out, "\\u{other:04x}");
            }
        }
    }
    out.push_str(&text[from..]);
    out.push('"');
}
