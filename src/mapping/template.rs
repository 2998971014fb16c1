//! JSON templates: text with `${slot}` placeholders, parsed once and filled by appending.
//!
//! A slot stands where a JSON value stands and is filled with a complete value, quotes and escapes included.
//! `${slot:whole}` rounds a number to an integer. `${slot:text}` writes a number or flag as a JSON string. `${slot:digits}`
//! writes a rounded number, and `null` for anything else, so that it may stand within a string. `${slot?}` and
//! `${slot:whole?}` are values of object members: a member without a value is left out, key and all. Templates are not a
//! language: they have no conditions and no loops.

use std::fmt::Write as _;

use super::extract::Node;
use crate::audio::{SPEECH_RATE_HZ, pcm, wav};

/// The value of a slot.
#[derive(Debug, Clone, Copy)]
pub enum SlotValue<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number, written with up to three decimals; a non-finite one becomes `null`.
    Float(f64),
    /// A string, escaped as JSON requires.
    Str(&'a str),
    /// JSON that is inserted unchanged, such as base64 that already has its quotes.
    Raw(&'a str),
    /// A string that needs no escapes, such as base64.
    Plain(&'a str),
    /// An array of scalars.
    List(&'a [Node<'a>]),
    /// An array, given as JSON without its brackets. An optional member is left out if the array is empty.
    Elements(&'a str),
    /// int16 samples, written as a base64 string of raw float32.
    Audio(&'a [i16]),
    /// int16 samples, written as a base64 string.
    Pcm16(&'a [i16]),
    /// int16 samples at 16 kHz, written as a WAV file in a base64 string.
    Wav(&'a [i16]),
    /// Bytes, written as a base64 string.
    Base64(&'a [u8]),
    /// Bytes of this media type, written as a data URL.
    DataUrl(&'a str, &'a [u8]),
    /// JSON that is written in place, because it is long.
    Written(JsonWriter<'a>),
}

/// Writes a value of its own.
#[derive(Clone, Copy)]
pub struct JsonWriter<'a>(pub &'a dyn Fn(&mut String));

impl std::fmt::Debug for JsonWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JsonWriter")
    }
}

impl<'a> From<Option<&'a str>> for SlotValue<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Str)
    }
}

/// A compiled template. `S` identifies its slots: an index into the list of names it was compiled with, or an enum.
#[derive(Debug, Clone, Default)]
pub struct Template<S = usize> {
    pieces: Vec<TemplatePiece<S>>,
}

#[derive(Debug, Clone)]
enum TemplatePiece<S> {
    Text(Box<str>),
    Slot(S, SlotFormat),
    /// An object member that may be absent: the comma before it with its key, and its value.
    OptionalMember(Box<str>, S, SlotFormat),
}

/// How a slot's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotFormat {
    /// As JSON.
    Json,
    /// As JSON, but numbers are rounded to integers.
    Whole,
    /// As a JSON string, numbers and flags too.
    Text,
    /// As a rounded number, or `null`: without quotes in any case.
    Digits,
}

/// Why a template does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template has no slot of this name.
    #[error("unknown slot `${{{name}}}`{known}")]
    UnknownSlot {
        /// The name in the file.
        name: String,
        /// The nearest valid name, and all valid names.
        known: String,
    },
    /// A format other than `whole`, `text` and `digits`.
    #[error("unknown format `{format}` of `${{{name}}}`; a slot may be `:whole`, `:text` or `:digits`")]
    UnknownFormat {
        /// The slot's name.
        name: String,
        /// The format in the file.
        format: String,
    },
    /// A `${` without its `}`.
    #[error("`${{` without a closing `}}`")]
    UnclosedSlot,
    /// A `${…?}` that is not the value of an object member.
    #[error("`${{{name}?}}` can be left out only as the value of an object's member")]
    NotAMember {
        /// The name in the file.
        name: String,
    },
    /// A slot as the whole of a JSON string.
    #[error("\"${{{name}}}\" is in quotes: remove the quotes, because a slot brings its own")]
    QuotedSlot {
        /// The name in the file.
        name: String,
    },
    /// A slot as a part of a JSON string.
    #[error(
        "`${{{name}}}` stands within a string: a slot must be a whole value, such as that of an object's member"
    )]
    SlotInString {
        /// The name in the file.
        name: String,
    },
    /// The filled template is not JSON.
    #[error("not JSON once filled: {0}")]
    NotJson(String),
}

impl Template {
    /// Compiles a JSON template; its slots are indices into `slots`.
    ///
    /// # Errors
    /// [`TemplateError`] says what is wrong with the text.
    pub fn compile(text: &str, slots: &[&str]) -> Result<Self, TemplateError> {
        Self::compile_slots(text, &numbered(slots))
    }

    /// Compiles a plain text (a prompt, a message), to be filled with [`Template::render_plain`].
    ///
    /// # Errors
    /// [`TemplateError`] for an unknown slot or an unclosed one.
    pub fn compile_plain(text: &str, slots: &[&str]) -> Result<Self, TemplateError> {
        Self::parse(text, &numbered(slots))
    }
}

impl<S: Copy> Template<S> {
    /// Compiles a JSON template with its slots by name. Spaces and line ends between JSON tokens are dropped.
    ///
    /// # Errors
    /// [`TemplateError`] says what is wrong with the text.
    pub fn compile_slots(text: &str, slots: &[(&str, S)]) -> Result<Self, TemplateError> {
        let text = minify(text);
        let template = Self::parse(&text, slots)?;
        check_slots_outside_strings(&text)?;
        // `null` is valid inside a JSON string; a string value is not, and so reveals a slot within quotes.
        for fill in [SlotValue::Null, SlotValue::Str("text")] {
            let mut sample = String::new();
            template.render(&mut sample, |_| fill);
            serde_json::from_str::<serde::de::IgnoredAny>(&sample)
                .map_err(|error| TemplateError::NotJson(error.to_string()))?;
        }
        Ok(template)
    }

    fn parse(text: &str, slots: &[(&str, S)]) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            if start > 0 {
                pieces.push(TemplatePiece::Text(rest[..start].into()));
            }
            let end = rest[start..].find('}').ok_or(TemplateError::UnclosedSlot)? + start;
            let name = &rest[start + 2..end];
            let piece = match name.strip_suffix('?') {
                None => {
                    let (slot, format) = find_slot(name, slots)?;
                    TemplatePiece::Slot(slot, format)
                }
                Some(name) => {
                    let key = take_member_key(&mut pieces, name)?;
                    let (slot, format) = find_slot(name, slots)?;
                    TemplatePiece::OptionalMember(key, slot, format)
                }
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
    pub fn render<'v>(&self, out: &mut String, fill: impl Fn(S) -> SlotValue<'v>) {
        // True while the first member of an object was left out: the next member brings a comma too many.
        let mut first = false;
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.push_str(without_comma(text, std::mem::take(&mut first))),
                TemplatePiece::Slot(slot, format) => write_formatted(fill(*slot), *format, out),
                TemplatePiece::OptionalMember(key, slot, format) => match fill(*slot) {
                    SlotValue::Null | SlotValue::Elements("") => first |= !key.starts_with(','),
                    value => {
                        out.push_str(without_comma(key, std::mem::take(&mut first)));
                        write_formatted(value, *format, out);
                    }
                },
            }
        }
    }

    /// A plain text whose only slot is filled with these words.
    #[must_use]
    pub fn filled_with(&self, words: &str) -> String {
        let mut text = String::new();
        self.render_plain(&mut text, |_| SlotValue::Str(words));
        text
    }

    /// Appends the filled plain text to `out`: strings unchanged, other values as JSON.
    pub fn render_plain<'v>(&self, out: &mut String, fill: impl Fn(S) -> SlotValue<'v>) {
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => out.push_str(text),
                TemplatePiece::Slot(slot, format) | TemplatePiece::OptionalMember(_, slot, format) => {
                    match fill(*slot) {
                        SlotValue::Str(text) => out.push_str(text),
                        SlotValue::Null => {}
                        other => write_formatted(other, *format, out),
                    }
                }
            }
        }
    }

    /// The slots the template uses, in order, repeated ones repeatedly.
    pub fn slots(&self) -> impl Iterator<Item = S> + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Slot(slot, _) | TemplatePiece::OptionalMember(_, slot, _) => Some(*slot),
        })
    }

    /// Whether the template uses a slot.
    #[must_use]
    pub fn uses_slot(&self, slot: S) -> bool
    where
        S: PartialEq,
    {
        self.slots().any(|used| used == slot)
    }
}

/// Rejects slots within JSON strings, except those that are written as digits.
fn check_slots_outside_strings(text: &str) -> Result<(), TemplateError> {
    // Where the present string begins, after its quote.
    let mut string_start = None;
    let mut chars = text.char_indices();
    while let Some((at, letter)) = chars.next() {
        match (letter, string_start) {
            ('\\', Some(_)) => drop(chars.next()),
            ('"', None) => string_start = Some(at + 1),
            ('"', Some(_)) => string_start = None,
            ('$', Some(start)) if text[at..].starts_with("${") => {
                let (name, rest) = text[at + 2..].split_once('}').unwrap_or_default();
                if name.ends_with(":digits") {
                    continue;
                }
                let name = name.to_owned();
                return Err(match start == at && rest.starts_with('"') {
                    true => TemplateError::QuotedSlot { name },
                    false => TemplateError::SlotInString { name },
                });
            }
            _ => {}
        }
    }
    Ok(())
}

fn numbered<'s>(slots: &[&'s str]) -> Vec<(&'s str, usize)> {
    slots.iter().enumerate().map(|(number, name)| (*name, number)).collect()
}

/// Removes a member's key, and the comma before it, from the text that ends with them.
fn take_member_key<S>(pieces: &mut Vec<TemplatePiece<S>>, name: &str) -> Result<Box<str>, TemplateError> {
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

/// The slot and format of `name` or `name:format`.
fn find_slot<S: Copy>(spelled: &str, slots: &[(&str, S)]) -> Result<(S, SlotFormat), TemplateError> {
    let (name, format) =
        spelled.split_once(':').map_or((spelled, None), |(name, format)| (name, Some(format)));
    let names = || slots.iter().map(|(name, _)| *name);
    let slot = slots.iter().find(|(known, _)| *known == name).ok_or_else(|| TemplateError::UnknownSlot {
        name: name.to_owned(),
        known: super::check::suggest_known(name, names),
    })?;
    let format = match format {
        None => SlotFormat::Json,
        Some("whole") => SlotFormat::Whole,
        Some("text") => SlotFormat::Text,
        Some("digits") => SlotFormat::Digits,
        Some(other) => {
            return Err(TemplateError::UnknownFormat { name: name.to_owned(), format: other.to_owned() });
        }
    };
    Ok((slot.1, format))
}

fn write_formatted(value: SlotValue<'_>, format: SlotFormat, out: &mut String) {
    match (format, value) {
        (SlotFormat::Whole | SlotFormat::Digits, SlotValue::Float(number)) if number.is_finite() => {
            write_json(SlotValue::Int(number.round() as i64), out);
        }
        (SlotFormat::Digits, SlotValue::Int(_)) => write_json(value, out),
        (SlotFormat::Digits, SlotValue::Raw(json)) if json.parse::<f64>().is_ok() => out.push_str(json),
        (SlotFormat::Digits, _) => out.push_str("null"),
        (SlotFormat::Text, SlotValue::Bool(_) | SlotValue::Int(_) | SlotValue::Float(_)) => {
            out.push('"');
            write_json(value, out);
            out.push('"');
        }
        _ => write_json(value, out),
    }
}

fn write_json(value: SlotValue<'_>, out: &mut String) {
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
        SlotValue::Elements(elements) => {
            out.push('[');
            out.push_str(elements);
            out.push(']');
        }
        SlotValue::Audio(samples) => {
            out.push('"');
            pcm::encode_base64_f32(samples, out);
            out.push('"');
        }
        SlotValue::Pcm16(samples) => {
            out.push('"');
            pcm::encode_base64_s16(samples, out);
            out.push('"');
        }
        SlotValue::Wav(samples) => {
            out.push('"');
            pcm::encode_base64(&wav::write_s16(samples, SPEECH_RATE_HZ), out);
            out.push('"');
        }
        SlotValue::Base64(bytes) => {
            out.push('"');
            pcm::encode_base64(bytes, out);
            out.push('"');
        }
        SlotValue::DataUrl(media_type, bytes) => {
            out.extend(["\"data:", media_type, ";base64,"]);
            pcm::encode_base64(bytes, out);
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

/// Drops white space outside strings: files are laid out for people, messages are compact.
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
        for no_json in ["{\"a\":${text},}", "{${text}:1}"] {
            assert!(matches!(Template::compile(no_json, known), Err(TemplateError::NotJson(_))), "{no_json}");
        }
        for (quoted, words) in [
            ("{\"a\": \"${text}\"}", "\"${text}\" is in quotes: remove the quotes"),
            ("{\"a\": \"say ${text}\"}", "`${text}` stands within a string"),
            ("{\"a\": \"\\\"${text}\"}", "`${text}` stands within a string"),
        ] {
            let problem = Template::compile(quoted, known).unwrap_err().to_string();
            assert!(problem.starts_with(words), "{quoted}: {problem}");
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
        assert_eq!(
            filled(SlotValue::Elements(""), SlotValue::Elements("1,2")),
            r#"{"b":[1,2],"c":{},"e":[1,2]}"#
        );
        assert!(template.uses_slot(0) && template.uses_slot(1));
        let problem = Template::compile("[${x?}]", &["x"]).unwrap_err();
        assert_eq!(problem, TemplateError::NotAMember { name: "x".into() });
    }

    #[test]
    fn rounded_number_may_stand_within_a_string() {
        let template = Template::compile(r#"{"message": "lost ${ms:digits}ms"}"#, &["ms"]).unwrap();
        let mut out = String::new();
        template.render(&mut out, |_| SlotValue::Float(99.7));
        assert_eq!(out, r#"{"message":"lost 100ms"}"#);
        assert!(Template::compile(r#"{"message": "lost ${ms}ms"}"#, &["ms"]).is_err());
    }

    #[test]
    fn formats_write_integers_and_strings() {
        let text = "{\"a\": ${x:whole}, \"b\": ${x:text}, \"c\": ${x:whole?}, \"d\": ${x}}";
        let template = Template::compile(text, &["x"]).unwrap();
        let filled = |x: SlotValue<'static>| {
            let mut out = String::new();
            template.render(&mut out, |_| x);
            out
        };
        assert_eq!(filled(SlotValue::Float(2.6)), r#"{"a":3,"b":"2.6","c":3,"d":2.6}"#);
        assert_eq!(filled(SlotValue::Int(7)), r#"{"a":7,"b":"7","c":7,"d":7}"#);
        assert_eq!(filled(SlotValue::Str("s")), r#"{"a":"s","b":"s","c":"s","d":"s"}"#);
        assert_eq!(filled(SlotValue::Null), r#"{"a":null,"b":null,"d":null}"#);
        let problem = Template::compile("[${x:hole}]", &["x"]).unwrap_err().to_string();
        assert!(problem.contains("`:whole`, `:text` or `:digits`"), "{problem}");
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
