//! Compilation of a template: its slots are found, and whether it is JSON once filled.

use super::{Template, TemplatePiece, write::SlotFormat};
use crate::{suggestion::suggest_known, vocabulary::SlotValue};

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
    /// An unknown format.
    #[error(
        "unknown format `{format}` of `${{{name}}}`; a slot may be `:whole`, `:text`, `:digits`, `:ms` or `:spaced`"
    )]
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

    /// Compiles a line of plain text with its slots by name, to be filled with [`Template::render_line`].
    ///
    /// # Errors
    /// [`TemplateError`] for an unknown slot or an unclosed one.
    pub fn compile_line(text: &str, slots: &[(&str, S)]) -> Result<Self, TemplateError> {
        Self::parse(text, slots)
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

/// The slot and format of `name` or `name:format`.
fn find_slot<S: Copy>(spelled: &str, slots: &[(&str, S)]) -> Result<(S, SlotFormat), TemplateError> {
    let (name, format) =
        spelled.split_once(':').map_or((spelled, None), |(name, format)| (name, Some(format)));
    let names = || slots.iter().map(|(name, _)| *name);
    let slot = slots.iter().find(|(known, _)| *known == name).ok_or_else(|| TemplateError::UnknownSlot {
        name: name.to_owned(),
        known: suggest_known(name, names),
    })?;
    let format = match format {
        None => SlotFormat::Json,
        Some("whole") => SlotFormat::Whole,
        Some("text") => SlotFormat::Text,
        Some("digits") => SlotFormat::Digits,
        Some("ms") => SlotFormat::Ms,
        Some("spaced") => SlotFormat::Spaced,
        Some(other) => {
            return Err(TemplateError::UnknownFormat { name: name.to_owned(), format: other.to_owned() });
        }
    };
    Ok((slot.1, format))
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
