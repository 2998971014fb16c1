//! JSON templates: text with `${slot}` holes, cut into pieces once and filled by appending.
//!
//! A hole stands where a JSON value stands and is filled with a complete one, quotes and escapes included. Not a
//! language: no conditions, no loops.

use std::fmt::Write as _;

use crate::audio::pcm;

/// What goes into a hole.
#[derive(Debug, Clone, Copy)]
pub enum Fill<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number, written with up to three decimals; not finite becomes `null`.
    Float(f64),
    /// A string, escaped as JSON wants it.
    Str(&'a str),
    /// JSON as it is, such as base64 in quotes made beforehand.
    Raw(&'a str),
    /// int16 samples, written as a base64 string of raw float32.
    Audio(&'a [i16]),
}

impl<'a> From<Option<&'a str>> for Fill<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Str)
    }
}

/// A compiled template; holes are numbered by the list of slot names it was compiled with.
#[derive(Debug, Clone)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(Box<str>),
    Hole(usize),
}

/// Why a template does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A hole whose name this template has no value for.
    #[error("unknown slot `${{{name}}}`{hint}; this template knows {known}")]
    UnknownSlot {
        /// The name in the file.
        name: String,
        /// ", did you mean …", or nothing.
        hint: String,
        /// The names there are.
        known: String,
    },
    /// A `${` without its `}`.
    #[error("`${{` without a closing `}}`")]
    Open,
    /// Filled with values it is not JSON.
    #[error("not JSON once filled: {0}")]
    NotJson(String),
}

impl Template {
    /// Compiles `text` with the slots it may use; spaces and line ends between JSON tokens are dropped.
    ///
    /// # Errors
    /// [`TemplateError`] says what is wrong with the text.
    pub fn compile(text: &str, slots: &[&str]) -> Result<Self, TemplateError> {
        let template = Self::cut(&minify(text), slots)?;
        // A string shows a hole inside a string, which `null` would not.
        for fill in [Fill::Null, Fill::Str("text")] {
            let mut sample = String::new();
            template.render(&mut sample, |_| fill);
            serde_json::from_str::<serde::de::IgnoredAny>(&sample)
                .map_err(|error| TemplateError::NotJson(error.to_string()))?;
        }
        Ok(template)
    }

    /// Compiles a plain text (a prompt, a message), to be filled with [`Template::render_plain`].
    ///
    /// # Errors
    /// [`TemplateError`] for an unknown slot or an open hole.
    pub fn compile_plain(text: &str, slots: &[&str]) -> Result<Self, TemplateError> {
        Self::cut(text, slots)
    }

    fn cut(text: &str, slots: &[&str]) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            if start > 0 {
                pieces.push(Piece::Text(rest[..start].into()));
            }
            let end = rest[start..].find('}').ok_or(TemplateError::Open)? + start;
            pieces.push(Piece::Hole(slot_index(&rest[start + 2..end], slots)?));
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Self { pieces })
    }

    /// Appends the filled template to `out`.
    pub fn render<'v>(&self, out: &mut String, fill: impl Fn(usize) -> Fill<'v>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Hole(slot) => write_json(fill(*slot), out),
            }
        }
    }

    /// Appends the filled plain text to `out`; strings go in as they are, the rest as JSON.
    pub fn render_plain<'v>(&self, out: &mut String, fill: impl Fn(usize) -> Fill<'v>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Hole(slot) => match fill(*slot) {
                    Fill::Str(text) => out.push_str(text),
                    Fill::Null => {}
                    other => write_json(other, out),
                },
            }
        }
    }

    /// Whether the template uses a slot.
    #[must_use]
    pub fn uses(&self, slot: usize) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Hole(hole) if *hole == slot))
    }
}

fn slot_index(name: &str, slots: &[&str]) -> Result<usize, TemplateError> {
    slots.iter().position(|slot| *slot == name).ok_or_else(|| TemplateError::UnknownSlot {
        name: name.to_owned(),
        hint: super::check::did_you_mean(name, slots.iter().copied()),
        known: super::check::listed(slots.iter().copied()),
    })
}

fn write_json(value: Fill<'_>, out: &mut String) {
    match value {
        Fill::Null => out.push_str("null"),
        Fill::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        Fill::Int(value) => {
            let _ = write!(out, "{value}");
        }
        // Milliseconds are the finest this bridge knows, so three decimals of a second say all there is.
        Fill::Float(value) if value.is_finite() => {
            let rounded = (value * 1000.0).round() / 1000.0;
            let _ = write!(out, "{rounded:?}");
        }
        Fill::Float(_) => out.push_str("null"),
        Fill::Str(text) => write_string(text, out),
        Fill::Raw(json) => out.push_str(json),
        Fill::Audio(samples) => {
            out.push('"');
            pcm::push_base64_f32(samples, out);
            out.push('"');
        }
    }
}

/// RFC 8259 §7: quote, backslash and control characters are escaped; everything else stands as it is.
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

/// Drops white space outside strings, so that templates can be laid out for people and sent compact.
fn minify(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for letter in text.chars() {
        if in_string {
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            out.push(letter);
        } else if !letter.is_whitespace() {
            in_string = letter == '"';
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fills_values_and_drops_layout() {
        let template = Template::compile("{ \"a b\": ${x},\n  \"y\": [${y}, ${x}] }", &["x", "y"]).unwrap();
        let mut out = String::new();
        template
            .render(&mut out, |slot| if slot == 0 { Fill::Str("q\"\n\u{1}é") } else { Fill::Float(3.42) });
        assert_eq!(out, "{\"a b\":\"q\\\"\\n\\u0001é\",\"y\":[3.42,\"q\\\"\\n\\u0001é\"]}");
        assert!(template.uses(0) && !Template::compile("{}", &["x"]).unwrap().uses(0));
    }

    #[test]
    fn mistakes_are_named() {
        let known = &["text", "language"];
        let unknown = Template::compile("{\"a\":${langage}}", known).unwrap_err().to_string();
        assert!(unknown.contains("did you mean `language`"), "{unknown}");
        assert_eq!(Template::compile("{\"a\":${text", known).unwrap_err(), TemplateError::Open);
        for no_json in ["{\"a\":${text},}", "{\"a\":\"${text}\"}", "{${text}:1}"] {
            assert!(matches!(Template::compile(no_json, known), Err(TemplateError::NotJson(_))), "{no_json}");
        }
    }

    #[test]
    fn plain_text_takes_strings_as_they_are() {
        let template = Template::compile_plain("Terms: ${words}. ", &["words"]).unwrap();
        let mut out = String::new();
        template.render_plain(&mut out, |_| Fill::Str("\"A\", B"));
        assert_eq!(out, "Terms: \"A\", B. ");
    }

    proptest! {
        #[test]
        fn any_string_survives(text in any::<String>()) {
            let mut out = String::new();
            write_json(Fill::Str(&text), &mut out);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
