//! JSON templates: text with `${slot}` placeholders, parsed once and filled by appending.
//!
//! A slot stands where a JSON value stands and is filled with a complete value, quotes and escapes included.
//! `${slot:whole}` rounds a number to an integer. `${slot:text}` writes a number, flag or object as a JSON string. `${slot:digits}`
//! writes a rounded number or a text of digits, and `null` for anything else, so that it may stand within a string.
//! `${slot:ms}` writes seconds as whole milliseconds, and `${slot:spaced}` a text with a space behind it. `${slot?}` and
//! `${slot:whole?}` are values of object members: a member without a value is left out, key and all. Templates are not a
//! language: they have no loops.
//!
//! A template may also be a line of plain text, whose values have no quotes.
//!
//! `compile` reads a template, and `write` writes the values.

mod compile;
mod write;

pub use self::compile::TemplateError;
use self::write::{SlotFormat, write_formatted};
use super::extract::Node;

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

impl SlotValue<'_> {
    /// True unless the value is `null`, `false`, 0, or an empty text or list.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        match self {
            Self::Null | Self::Bool(false) | Self::Int(0) => false,
            Self::Str(text) | Self::Plain(text) | Self::Elements(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            _ => true,
        }
    }
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

impl<S: Copy> Template<S> {
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

    /// Appends the filled plain text to `out`: values without quotes, `null` as nothing, and a space for each control
    /// character of a value, so that no value begins another line.
    pub fn render_line<'v>(&self, out: &mut String, fill: impl Fn(S) -> SlotValue<'v>) {
        for piece in &self.pieces {
            let (slot, format) = match piece {
                TemplatePiece::Text(text) => {
                    out.push_str(text);
                    continue;
                }
                TemplatePiece::Slot(slot, format) | TemplatePiece::OptionalMember(_, slot, format) => {
                    (slot, format)
                }
            };
            match fill(*slot) {
                SlotValue::Null => {}
                SlotValue::Str(text) if *format != SlotFormat::Digits => {
                    out.extend(text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }));
                    if *format == SlotFormat::Spaced && !text.is_empty() {
                        out.push(' ');
                    }
                }
                other => {
                    let mut json = String::new();
                    write_formatted(other, *format, &mut json);
                    if json != "null" {
                        out.push_str(json.trim_matches('"'));
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

fn without_comma(text: &str, unwanted: bool) -> &str {
    if unwanted { text.strip_prefix(',').unwrap_or(text) } else { text }
}

#[cfg(test)]
mod tests;
