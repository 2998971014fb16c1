//! A JSON message on one short line: its type first, then its fields in the wire's order, audio as a note.
//!
//! Messages carry up to a megabyte of base64, so the line is written while the JSON is read; no tree is built.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

/// The longest text shown in full.
const TEXT_MAX_CHARS: usize = 60;

/// Base64 shorter than this may as well be a word or an id.
const BASE64_MIN_CHARS: usize = 96;

/// The line; what is no JSON is shown as it is, shortened.
pub(super) fn brief(message: &str) -> String {
    let mut line = Line::default();
    let mut json = serde_json::Deserializer::from_str(message);
    let message_field = Field { line: &mut line, depth: 0, is_type: false };
    match message_field.deserialize(&mut json) {
        Ok(()) if line.kind.is_empty() => line.rest,
        Ok(()) => format!("{} {}", line.kind, line.rest).trim_end().to_owned(),
        Err(_) => {
            let mut raw = String::new();
            push_text(&mut raw, message);
            raw
        }
    }
}

#[derive(Default)]
struct Line {
    kind: String,
    rest: String,
}

/// A value on its way into the line.
struct Field<'a> {
    line: &'a mut Line,
    depth: usize,
    /// It is the message's `type`.
    is_type: bool,
}

impl Field<'_> {
    fn inside(&mut self, is_type: bool) -> Field<'_> {
        Field { line: &mut *self.line, depth: self.depth + 1, is_type }
    }

    fn plain(self, value: impl fmt::Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.line.rest, "{value}");
    }
}

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.plain("null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.plain(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.plain(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.plain(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.plain((value * 1000.0).round() / 1000.0);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.is_type {
            push_text(&mut self.line.kind, text);
        } else if let Some(note) = blob(text) {
            self.plain(note);
        } else {
            self.line.rest.push('"');
            push_text(&mut self.line.rest, text);
            self.line.rest.push('"');
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.line.rest.push('[');
        let mut start = self.line.rest.len();
        while items.next_element_seed(self.inside(false))?.is_some() {
            start = self.line.rest.len();
            self.line.rest.push_str(", ");
        }
        if self.line.rest.ends_with(", ") {
            self.line.rest.truncate(start);
        }
        self.line.rest.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let nested = self.depth > 0;
        if nested {
            self.line.rest.push('{');
        }
        let mut start = self.line.rest.len();
        while let Some(key) = fields.next_key::<std::borrow::Cow<'de, str>>()? {
            let is_type = !nested && key == "type";
            if !is_type {
                push_text(&mut self.line.rest, &key);
                self.line.rest.push('=');
            }
            fields.next_value_seed(self.inside(is_type))?;
            if !is_type {
                start = self.line.rest.len();
                self.line.rest.push(' ');
            }
        }
        if self.line.rest.ends_with(' ') {
            self.line.rest.truncate(start);
        }
        if nested {
            self.line.rest.push('}');
        }
        Ok(())
    }
}

/// Text that cannot break the line or steer the terminal, and is not too long.
fn push_text(out: &mut String, text: &str) {
    let mut chars = text.chars();
    for c in chars.by_ref().take(TEXT_MAX_CHARS) {
        out.push(if c.is_control() { ' ' } else { c });
    }
    if chars.next().is_some() {
        out.push('…');
    }
}

/// What a long base64 string holds, as far as its beginning and length say.
fn blob(text: &str) -> Option<String> {
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
        // All raw audio inside JSON is float32 on MiniCPM-o's wire.
        _ if bytes.is_multiple_of(4) => format!("<{} samples f32>", bytes / 4),
        _ => format!("<{bytes} bytes>"),
    })
}

#[cfg(test)]
mod tests {
    use super::brief;
    use crate::audio::pcm;

    #[test]
    fn the_type_comes_first_and_the_rest_keeps_its_order() {
        let message =
            r#"{"b":1,"type":"session.x","a":{"type":"t","l":[1,"z",null]},"n":0.12345,"e":{},"v":[]}"#;
        assert_eq!(brief(message), r#"session.x b=1 a={type="t" l=[1, "z", null]} n=0.123 e={} v=[]"#);
        assert_eq!(brief(r#"{"type":"tts.cancel"}"#), "tts.cancel");
        assert_eq!(brief("[1]"), "[1]");
    }

    #[test]
    fn audio_is_a_note_and_long_text_is_cut() {
        let mut audio = String::new();
        pcm::push_base64_f32(&[7; 16_000], &mut audio);
        let message = format!(r#"{{"type":"input.append","audio":"{audio}"}}"#);
        assert_eq!(brief(&message), "input.append audio=<16000 samples f32>");
        let wav = format!(r#"{{"w":"UklGR{}"}}"#, "A".repeat(123));
        assert_eq!(brief(&wav), "w=<WAV, 96 bytes>");
        let long = format!(r#"{{"text":"{}"}}"#, "so long ".repeat(20));
        assert!(brief(&long).ends_with("so long so l…\""), "{}", brief(&long));
    }

    #[test]
    fn nothing_breaks_the_line() {
        assert_eq!(brief("not\njson\u{1b}[2J"), "not json [2J");
        assert_eq!(brief(r#"{"text":"a\nb"}"#), r#"text="a b""#);
    }
}
