//! JSON templates: text with `${slot}` holes, cut into pieces once and filled by appending.
//!
//! A hole stands where a JSON value stands and is filled with a complete one, quotes and escapes included. `${slot?}` is
//! the value of an object's member that is left out, key and all, when there is none. Not a language: no conditions, no
//! loops.

use std::fmt::Write as _;

use super::extract::Node;
use crate::audio::pcm;

/// What goes into a hole.
#[derive(Debug, Clone, Copy)]
pub enum SlotValue<'a> {
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
    /// A string that needs no escapes, such as base64.
    Plain(&'a str),
    /// An array of scalars.
    List(&'a [Node<'a>]),
    /// int16 samples, written as a base64 string of raw float32.
    Audio(&'a [i16]),
}

impl<'a> From<Option<&'a str>> for SlotValue<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Str)
    }
}

/// A compiled template; holes are numbered by the list of slot names it was compiled with.
#[derive(Debug, Clone, Default)]
pub struct Template {
    pieces: Vec<TemplatePiece>,
}

#[derive(Debug, Clone)]
enum TemplatePiece {
    Text(Box<str>),
    Slot(usize),
    /// A member that may be absent: its key with what stands before it, and its value.
    OptionalMember(Box<str>, usize),
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
    UnclosedSlot,
    /// A `${…?}` that is no member's value.
    #[error("`${{{name}?}}` can be left out only as the value of an object's member")]
    NotAMember {
        /// The name in the file.
        name: String,
    },
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
        let template = Self::parse(&minify(text), slots)?;
        // A string shows a hole inside a string, which `null` would not.
        for fill in [SlotValue::Null, SlotValue::Str("text")] {
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
        Self::parse(text, slots)
    }

    fn parse(text: &str, slots: &[&str]) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            if start > 0 {
                pieces.push(TemplatePiece::Text(rest[..start].into()));
            }
            let end = rest[start..].find('}').ok_or(TemplateError::UnclosedSlot)? + start;
            let name = &rest[start + 2..end];
            let piece = match name.strip_suffix('?') {
                None => TemplatePiece::Slot(slot_index(name, slots)?),
                Some(name) => TemplatePiece::OptionalMember(
                    take_member_key(&mut pieces, name)?,
                    slot_index(name, slots)?,
                ),
            };
            pieces.push(piece);
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            pieces.push(TemplatePiece::Text(rest.into()));
        }
        Ok(Self { pieces })
    }

    /// Appends the filled template to `out`.
    pub fn render<'v>(&self, out: &mut String, fill: impl Fn(usize) -> SlotValue<'v>) {
        // The first member of an object is absent: the next one brings a comma too many.
        let mut first = false;
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.push_str(without_comma(text, std::mem::take(&mut first))),
                TemplatePiece::Slot(slot) => write_json(fill(*slot), out),
                TemplatePiece::OptionalMember(key, slot) => match fill(*slot) {
                    SlotValue::Null => first |= !key.starts_with(','),
                    value => {
                        out.push_str(without_comma(key, std::mem::take(&mut first)));
                        write_json(value, out);
                    }
                },
            }
        }
    }

    /// Appends the filled plain text to `out`; strings go in as they are, the rest as JSON.
    pub fn render_plain<'v>(&self, out: &mut String, fill: impl Fn(usize) -> SlotValue<'v>) {
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.push_str(text),
                TemplatePiece::Slot(slot) | TemplatePiece::OptionalMember(_, slot) => match fill(*slot) {
                    SlotValue::Str(text) => out.push_str(text),
                    SlotValue::Null => {}
                    other => write_json(other, out),
                },
            }
        }
    }

    /// Whether the template uses a slot.
    #[must_use]
    pub fn uses_slot(&self, slot: usize) -> bool {
        let uses = |piece: &TemplatePiece| matches!(piece, TemplatePiece::Slot(hole) | TemplatePiece::OptionalMember(_, hole) if *hole == slot);
        self.pieces.iter().any(uses)
    }
}

/// Takes a member's key, and the comma before it, off the text that ends with them.
fn take_member_key(pieces: &mut Vec<TemplatePiece>, name: &str) -> Result<Box<str>, TemplateError> {
    let no_member = || TemplateError::NotAMember { name: name.to_owned() };
    let Some(TemplatePiece::Text(text)) = pieces.pop() else { return Err(no_member()) };
    let key = text.strip_suffix("\":").ok_or_else(no_member)?;
    let quote = key.rfind('"').ok_or_else(no_member)?;
    let at = if text[..quote].ends_with(',') { quote - 1 } else { quote };
    if at > 0 {
        pieces.push(TemplatePiece::Text(text[..at].into()));
    }
    Ok(text[at..].into())
}

fn without_comma(text: &str, unwanted: bool) -> &str {
    if unwanted { text.strip_prefix(',').unwrap_or(text) } else { text }
}

fn slot_index(name: &str, slots: &[&str]) -> Result<usize, TemplateError> {
    slots.iter().position(|slot| *slot == name).ok_or_else(|| TemplateError::UnknownSlot {
        name: name.to_owned(),
        hint: super::check::did_you_mean(name, slots.iter().copied()),
        known: super::check::quoted_list(slots.iter().copied()),
    })
}

fn write_json(value: SlotValue<'_>, out: &mut String) {
    match value {
        SlotValue::Null => out.push_str("null"),
        SlotValue::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        SlotValue::Int(value) => {
            let _ = write!(out, "{value}");
        }
        // Milliseconds are the finest this bridge knows, so three decimals of a second say all there is.
        SlotValue::Float(value) if value.is_finite() => {
            let rounded = (value * 1000.0).round() / 1000.0;
            let _ = write!(out, "{rounded:?}");
        }
        SlotValue::Float(_) => out.push_str("null"),
        SlotValue::Str(text) => write_string(text, out),
        SlotValue::Raw(json) => out.push_str(json),
        SlotValue::Plain(text) => {
            out.push('"');
            out.push_str(text);
            out.push('"');
        }
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
        SlotValue::Audio(samples) => {
            out.push('"');
            pcm::encode_base64_f32(samples, out);
            out.push('"');
        }
    }
}

const fn scalar_value<'n>(node: &'n Node<'_>) -> SlotValue<'n> {
    match node {
        Node::Bool(flag) => SlotValue::Bool(*flag),
        Node::Int(number) => SlotValue::Int(*number),
        Node::Float(number) => SlotValue::Float(*number),
        Node::Str(std::borrow::Cow::Borrowed(text)) => SlotValue::Str(text),
        Node::Str(std::borrow::Cow::Owned(text)) => SlotValue::Str(text.as_str()),
        Node::Null | Node::Raw(_) | Node::List(_) | Node::Object => SlotValue::Null,
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
    fn render_fills_values_and_drops_layout() {
        let template = Template::compile("{ \"a b\": ${x},\n  \"y\": [${y}, ${x}] }", &["x", "y"]).unwrap();
        let mut out = String::new();
        template.render(&mut out, |slot| {
            if slot == 0 { SlotValue::Str("q\"\n\u{1}é") } else { SlotValue::Float(3.42) }
        });
        assert_eq!(out, "{\"a b\":\"q\\\"\\n\\u0001é\",\"y\":[3.42,\"q\\\"\\n\\u0001é\"]}");
        assert!(template.uses_slot(0) && !Template::compile("{}", &["x"]).unwrap().uses_slot(0));
    }

    #[test]
    fn template_errors_name_the_mistake() {
        let known = &["text", "language"];
        let unknown = Template::compile("{\"a\":${langage}}", known).unwrap_err().to_string();
        assert!(unknown.contains("did you mean `language`"), "{unknown}");
        assert_eq!(Template::compile("{\"a\":${text", known).unwrap_err(), TemplateError::UnclosedSlot);
        for no_json in ["{\"a\":${text},}", "{\"a\":\"${text}\"}", "{${text}:1}"] {
            assert!(matches!(Template::compile(no_json, known), Err(TemplateError::NotJson(_))), "{no_json}");
        }
    }

    #[test]
    fn optional_member_without_value_is_left_out() {
        let text = "{\"a\": ${x?}, \"b\": ${y?}, \"c\": {\"d\": ${x?}}, \"e\": ${y?}}";
        let template = Template::compile(text, &["x", "y"]).unwrap();
        let filled = |x: SlotValue<'static>, y: SlotValue<'static>| {
            let mut out = String::new();
            template.render(&mut out, |slot| if slot == 0 { x } else { y });
            out
        };
        assert_eq!(
            filled(SlotValue::Int(1), SlotValue::Plain("q")),
            r#"{"a":1,"b":"q","c":{"d":1},"e":"q"}"#
        );
        assert_eq!(filled(SlotValue::Null, SlotValue::Int(2)), r#"{"b":2,"c":{},"e":2}"#);
        assert_eq!(filled(SlotValue::Int(1), SlotValue::Null), r#"{"a":1,"c":{"d":1}}"#);
        assert_eq!(filled(SlotValue::Null, SlotValue::Null), r#"{"c":{}}"#);
        assert!(template.uses_slot(0) && template.uses_slot(1));
        let problem = Template::compile("[${x?}]", &["x"]).unwrap_err();
        assert_eq!(problem, TemplateError::NotAMember { name: "x".into() });
    }

    #[test]
    fn plain_text_inserts_strings_verbatim() {
        let template = Template::compile_plain("Terms: ${words}. ", &["words"]).unwrap();
        let mut out = String::new();
        template.render_plain(&mut out, |_| SlotValue::Str("\"A\", B"));
        assert_eq!(out, "Terms: \"A\", B. ");
    }

    proptest! {
        #[test]
        fn any_string_round_trips(text in any::<String>()) {
            let mut out = String::new();
            write_json(SlotValue::Str(&text), &mut out);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
