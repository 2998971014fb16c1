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

use serde::{Deserialize, Deserializer, de::Error as _};

pub use self::compile::TemplateError;
pub(super) use self::write::scalar_value;
use self::write::{SlotFormat, write_formatted};
use crate::vocabulary::SlotValue;

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

/// Reads a template of JSON with these slots, for `deserialize_with`.
pub(super) fn deserialize_template<'de, D: Deserializer<'de>, S: Copy>(
    from: D,
    slots: &[(&str, S)],
) -> Result<Template<S>, D::Error> {
    let text = String::deserialize(from)?;
    Template::compile_slots(&text, slots).map_err(D::Error::custom)
}

/// Templates of plain text with one slot, whose name is the type's.
macro_rules! texts_with_slot {
    ($($Text:ident = $slot:literal,)+) => {$(
        #[doc = concat!("A plain text with the slot `", $slot, "`.")]
        #[derive(Debug, Clone, Default)]
        pub struct $Text(Template);

        impl $Text {
            /// The text with these words in its slot.
            #[must_use]
            pub fn filled_with(&self, words: &str) -> String {
                self.0.filled_with(words)
            }
        }

        impl<'de> Deserialize<'de> for $Text {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Template::compile_plain(&text, &[$slot]).map(Self).map_err(D::Error::custom)
            }
        }
    )+};
}

texts_with_slot! {
    TextWithDetail = "detail",
    TextWithHistory = "history",
    TextWithInstruction = "instruction",
    TextWithPrompt = "prompt",
    TextWithText = "text",
    TextWithWords = "words",
}

fn without_comma(text: &str, unwanted: bool) -> &str {
    if unwanted { text.strip_prefix(',').unwrap_or(text) } else { text }
}

#[cfg(test)]
mod tests;
