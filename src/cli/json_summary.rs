//! One-line summary of a JSON message: its type, its text or status, then its other fields in their original order, with audio as a
//! short note. Ids are left out.
//!
//! Messages contain up to a megabyte of base64, so the summary is written during parsing, without a JSON tree.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

/// Maximum length of a text; longer ones are truncated.
const TEXT_MAX_CHARS: usize = 60;

/// Minimum length of a base64 string; shorter ones may be words or ids.
const BASE64_MIN_CHARS: usize = 96;

/// Summarizes a message. Text that is not JSON is only truncated.
pub(super) fn summarize_json(message: &str) -> String {
    let mut line = SummaryLine::default();
    let mut json = serde_json::Deserializer::from_str(message);
    let root = SummaryField { line: &mut line, depth: 0, is_type: false };
    match root.deserialize(&mut json) {
        Ok(()) => {
            let parts = [line.message_type, line.text, line.fields];
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(" ")
        }
        Err(_) => {
            let mut raw = String::new();
            push_text(&mut raw, message);
            raw
        }
    }
}

#[derive(Default)]
struct SummaryLine {
    message_type: String,
    /// The text of the message and the status of what it contains, with their keys.
    text: String,
    fields: String,
}

/// Visitor that appends one JSON value to the summary.
struct SummaryField<'a> {
    line: &'a mut SummaryLine,
    depth: usize,
    /// True for the `type` of the message.
    is_type: bool,
}

impl SummaryField<'_> {
    fn nested(&mut self, is_type: bool) -> SummaryField<'_> {
        SummaryField { line: &mut *self.line, depth: self.depth + 1, is_type }
    }

    fn push_value(self, value: impl fmt::Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.line.fields, "{value}");
    }
}

impl<'de> DeserializeSeed<'de> for SummaryField<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SummaryField<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.push_value("null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.push_value(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.push_value(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.push_value(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.push_value((value * 1000.0).round() / 1000.0);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.is_type {
            push_text(&mut self.line.message_type, text);
        } else if let Some(note) = describe_base64(text) {
            self.push_value(note);
        } else {
            self.line.fields.push('"');
            push_text(&mut self.line.fields, text);
            self.line.fields.push('"');
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.line.fields.push('[');
        let mut start = self.line.fields.len();
        while items.next_element_seed(self.nested(false))?.is_some() {
            start = self.line.fields.len();
            self.line.fields.push_str(", ");
        }
        if self.line.fields.ends_with(", ") {
            self.line.fields.truncate(start);
        }
        self.line.fields.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let is_nested = self.depth > 0;
        if is_nested {
            self.line.fields.push('{');
        }
        let mut start = self.line.fields.len();
        while let Some(key) = entries.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == "id" || key.ends_with("_id") {
                entries.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            let is_type = !is_nested && key == "type";
            let is_leading = match self.depth {
                0 => matches!(&*key, "text" | "transcript" | "delta"),
                depth => depth == 1 && key == "status",
            };
            if is_leading {
                let others = std::mem::replace(&mut self.line.fields, format!("{key}="));
                entries.next_value_seed(self.nested(false))?;
                let leading = std::mem::replace(&mut self.line.fields, others);
                self.line.text.push_str(if self.line.text.is_empty() { "" } else { " " });
                self.line.text.push_str(&leading);
                continue;
            }
            if !is_type {
                push_text(&mut self.line.fields, &key);
                self.line.fields.push('=');
            }
            entries.next_value_seed(self.nested(is_type))?;
            if !is_type {
                start = self.line.fields.len();
                self.line.fields.push(' ');
            }
        }
        if self.line.fields.ends_with(' ') {
            self.line.fields.truncate(start);
        }
        if is_nested {
            self.line.fields.push('}');
        }
        Ok(())
    }
}

/// Appends text, truncated and without control characters.
fn push_text(out: &mut String, text: &str) {
    let mut chars = text.chars();
    for c in chars.by_ref().take(TEXT_MAX_CHARS) {
        out.push(if c.is_control() { ' ' } else { c });
    }
    if chars.next().is_some() {
        out.push('…');
    }
}

/// Describes a long base64 string by its beginning and length; `None` for other strings.
fn describe_base64(text: &str) -> Option<String> {
    let body = text.trim_end_matches('=');
    let is_base64 = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
    if text.len() < BASE64_MIN_CHARS
        || !text.len().is_multiple_of(4)
        || !body.as_bytes().iter().all(is_base64)
    {
        return None;
    }
    let bytes = body.len() * 3 / 4;
    Some(match body {
        _ if body.starts_with("UklGR") => format!("<WAV, {bytes} bytes>"),
        _ if body.starts_with("/9j/") => format!("<JPEG, {bytes} bytes>"),
        // MiniCPM-o sends all raw audio inside JSON as float32.
        _ if bytes.is_multiple_of(4) => format!("<{} samples f32>", bytes / 4),
        _ => format!("<{bytes} bytes>"),
    })
}

#[cfg(test)]
mod tests {
    use super::summarize_json;
    use crate::audio::pcm;

    #[test]
    fn summary_starts_with_type_and_keeps_field_order() {
        let message =
            r#"{"b":1,"type":"session.x","a":{"type":"t","l":[1,"z",null]},"n":0.12345,"e":{},"v":[]}"#;
        assert_eq!(
            summarize_json(message),
            r#"session.x b=1 a={type="t" l=[1, "z", null]} n=0.123 e={} v=[]"#
        );
        assert_eq!(summarize_json(r#"{"type":"tts.cancel"}"#), "tts.cancel");
        assert_eq!(summarize_json("[1]"), "[1]");
    }

    #[test]
    fn summary_starts_with_text_and_leaves_ids_out() {
        let message =
            r#"{"type":"x","id":"a","response_id":"resp_1","n":1,"text":"Hi","d":{"id":2,"e":3},"s_id":4}"#;
        assert_eq!(summarize_json(message), r#"x text="Hi" n=1 d={e=3}"#);
        assert_eq!(summarize_json(r#"{"type":"x","session_id":"s"}"#), "x");
        let done = r#"{"response":{"output":[{"status":"a"}],"status":"cancelled"},"type":"response.done"}"#;
        assert_eq!(
            summarize_json(done),
            r#"response.done status="cancelled" response={output=[{status="a"}]}"#
        );
        assert_eq!(summarize_json(r#"{"index":0,"delta":"Hel","type":"x"}"#), r#"x delta="Hel" index=0"#);
        assert_eq!(summarize_json(r#"{"text":"Hi","id":1}"#), r#"text="Hi""#);
    }

    #[test]
    fn summary_describes_audio_and_truncates_long_text() {
        let mut audio = String::new();
        pcm::encode_base64_f32(&[7; 16_000], &mut audio);
        let message = format!(r#"{{"type":"input.append","audio":"{audio}"}}"#);
        assert_eq!(summarize_json(&message), "input.append audio=<16000 samples f32>");
        let wav = format!(r#"{{"w":"UklGR{}"}}"#, "A".repeat(123));
        assert_eq!(summarize_json(&wav), "w=<WAV, 96 bytes>");
        let long = format!(r#"{{"text":"{}"}}"#, "so long ".repeat(20));
        assert!(summarize_json(&long).ends_with("so long so l…\""), "{}", summarize_json(&long));
    }

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(summarize_json("not\njson\u{1b}[2J"), "not json [2J");
        assert_eq!(summarize_json(r#"{"text":"a\nb"}"#), r#"text="a b""#);
    }
}
