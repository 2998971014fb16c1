//! One field of a command, or one query parameter: its position, type, range and role.

mod items;
mod list;
mod media_type;
mod unit;
mod validate;

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;

pub use self::{
    items::{ItemPaths, ItemsFile},
    unit::{AudioFormat, FieldUnit},
};
use crate::vocabulary::Node;
pub use crate::vocabulary::{FieldRole, FieldValue, ListItem};

/// A field in a mapping file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldFile {
    /// JSON pointer; the default is `/` and the field's name.
    pub at: Option<String>,
    /// Role; a field without one has no effect, and `because` says why.
    pub to: Option<FieldRole>,
    /// Reason why the field has no effect, or only sometimes.
    pub because: Option<String>,
    /// Name in `[values]` of the value that keeps this one for later messages.
    pub remember: Option<String>,
    /// Name in `[values]` of the remembered value that this one must repeat.
    pub same_as: Option<String>,
    /// Type.
    #[serde(rename = "type")]
    pub type_name: FieldType,
    /// Where the items of a `list` stand, and their parts; without it, they are texts.
    pub items: Option<ItemsFile>,
    /// A `list` may also be one text of words.
    #[serde(default)]
    pub split: bool,
    /// Values of a `choice`; `*` at the end of one stands for anything.
    #[serde(default)]
    pub values: Vec<String>,
    /// Unit of a number whose role is in milliseconds.
    pub unit: Option<FieldUnit>,
    /// The protocol's words, and the values they stand for.
    #[serde(default)]
    pub value_map: BTreeMap<String, String>,
    /// Value of a field that the client leaves out.
    pub default: Option<String>,
    /// Reports an error when the field is missing.
    #[serde(default)]
    pub required: bool,
    /// Reports an error for `null`, which otherwise means "not given".
    #[serde(default)]
    pub not_null: bool,
    /// Ignores a bad value, because the real server never reads the field.
    #[serde(default)]
    pub lenient: bool,
    /// Smallest number, or fewest characters of a text.
    pub min: Option<f64>,
    /// Greatest number, most characters of a text, or most items of a list.
    pub max: Option<f64>,
    /// The number must be greater than this.
    pub above: Option<f64>,
    /// Range in which the value has an effect; other values are accepted without effect.
    pub effective_range: Option<[i64; 2]>,
}

/// Types of fields, after pydantic's lax mode, which the Macaw server validates with
/// (mappings/notes/macaw.md#commands).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// A string.
    Text,
    /// A string of base64, which its command decodes.
    Base64,
    /// A whole number; numeric strings and `1000.0` count.
    Integer,
    /// A number; numeric strings count.
    Number,
    /// A boolean; 0, 1, "yes", "no" and their like count.
    Flag,
    /// One of `values`.
    Choice,
    /// An object, whose contents are ignored.
    Object,
    /// Whether the message has the value at all: not `null`, and not `false`.
    Presence,
    /// An array of texts, or of objects; `items` says what is taken of them.
    List,
}

/// A compiled field.
#[derive(Debug, Clone)]
pub struct ProtocolField {
    /// Name in the protocol.
    pub name: String,
    /// Slot in the protocol's [`super::extract::Extractor`]; unused for query parameters.
    pub slot: usize,
    /// Index of the value that this one is remembered in.
    pub remember: Option<usize>,
    /// Index of the remembered value that this one must repeat.
    pub same_as: Option<usize>,
    /// Paths of the parts of a list's items; empty for texts and for other types.
    pub items: ItemPaths,
    /// The field in the file.
    pub file: FieldFile,
}

impl ProtocolField {
    /// True for a query parameter that stands once for each of its texts.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.file.type_name == FieldType::List && !self.file.split
    }

    /// True for a field with the requested model.
    #[must_use]
    pub const fn names_model(&self) -> bool {
        matches!(self.file.to, Some(FieldRole::Model | FieldRole::ModelAndVoice))
    }

    /// Checks a value; `Ok(None)` if it is missing or ignored.
    ///
    /// # Errors
    /// Description of the mistake, without the field's name.
    pub fn read(&self, node: Option<&Node<'_>>) -> Result<Option<FieldValue>, String> {
        if self.file.type_name == FieldType::Presence {
            let is_present = !matches!(node, None | Some(Node::Null | Node::Bool(false)));
            return Ok(Some(FieldValue::Flag(is_present)));
        }
        match node {
            None if self.file.required => Err("Field required".to_owned()),
            None => self.read_default(),
            Some(Node::Null) if !self.file.not_null && !self.file.required => self.read_default(),
            Some(node) => match self.convert(node) {
                Ok(value) => Ok(Some(value)),
                Err(_) if self.file.lenient => Ok(None),
                Err(problem) => Err(problem),
            },
        }
    }

    /// The default's value.
    fn read_default(&self) -> Result<Option<FieldValue>, String> {
        self.file.default.as_ref().map_or(Ok(None), |text| self.read_text(text))
    }

    /// True if the value has an effect.
    #[must_use]
    pub fn is_effective(&self, value: &FieldValue) -> bool {
        match (self.file.effective_range, value) {
            (Some([from, to]), FieldValue::Integer(number)) => (from..=to).contains(number),
            _ => true,
        }
    }

    /// Checks the text of a query parameter.
    ///
    /// # Errors
    /// Description of the mistake, without the field's name.
    pub fn read_text(&self, text: &str) -> Result<Option<FieldValue>, String> {
        let node = Node::Str(text.into());
        self.read(Some(&if self.is_repeated() { Node::List(vec![node]) } else { node }))
    }

    fn convert(&self, node: &Node<'_>) -> Result<FieldValue, String> {
        let translated = to_word(node).and_then(|word| self.translate(word)).map(Node::Str);
        let node = match self.file.type_name {
            // The error lists the protocol's own words.
            FieldType::Choice => node,
            _ => translated.as_ref().unwrap_or(node),
        };
        match self.file.type_name {
            FieldType::Text => self.parse_text(node),
            FieldType::Base64 => match node {
                Node::Str(_) => Ok(FieldValue::Object),
                other => Err(format!("Input should be a valid string, got {}", display_node(other))),
            },
            FieldType::Integer => self.name_words(node, "integer", self.parse_number(node, true)),
            FieldType::Number => {
                let value = self.name_words(node, "number", self.parse_number(node, false));
                value.map(|value| self.in_unit_of_role(value))
            }
            FieldType::Flag => self.name_words(node, "boolean", parse_flag(node).map(FieldValue::Flag)),
            FieldType::Choice => self.parse_choice(node),
            FieldType::Presence => Ok(FieldValue::Flag(true)),
            FieldType::List => self.parse_list(node).map(FieldValue::Items),
            FieldType::Object => match node {
                Node::Object => Ok(FieldValue::Object),
                other => Err(format!("Input should be an object, got {}", display_node(other))),
            },
        }
    }

    /// Looks up a word in `value_map`. A `*` at the end of a word in the map stands for anything, and `*` as its value for that.
    /// Media types are compared by their parts.
    fn translate<'w>(&'w self, word: &'w str) -> Option<Cow<'w, str>> {
        let map = &self.file.value_map;
        // Most fields have none, such as audio, whose base64 would be looked through for a media type.
        if map.is_empty() {
            return None;
        }
        if let Some(value) = map.get(word) {
            return Some(Cow::Borrowed(value.as_str()));
        }
        let by_start = map.iter().find_map(|(known, value)| {
            let rest = word.strip_prefix(known.strip_suffix('*')?)?;
            Some(if value == "*" { Cow::Borrowed(rest) } else { Cow::Borrowed(value.as_str()) })
        });
        by_start.filter(|rest| !word.contains('/') || !rest.contains(';')).or_else(|| {
            let (value, rest) = media_type::find_media_type(map.iter(), word)?;
            Some(if value == "*" { Cow::Owned(rest) } else { Cow::Borrowed(value) })
        })
    }

    fn parse_text(&self, node: &Node<'_>) -> Result<FieldValue, String> {
        let text = node
            .as_str()
            .ok_or_else(|| format!("Input should be a valid string, got {}", display_node(node)))?;
        let letters = text.chars().count() as f64;
        if let Some(min) = self.file.min.filter(|min| letters < *min) {
            return Err(format!("String should have at least {min} character{}, got {letters}", plural(min)));
        }
        if let Some(max) = self.file.max.filter(|max| letters > *max) {
            return Err(format!("String should have at most {max} characters, got {letters}"));
        }
        Ok(FieldValue::Text(text.to_owned()))
    }

    fn parse_choice(&self, node: &Node<'_>) -> Result<FieldValue, String> {
        if self.file.value_map.is_empty() {
            return match node
                .as_str()
                .filter(|text| self.file.values.iter().any(|value| is_choice(value, text)))
            {
                Some(text) => Ok(FieldValue::Text(text.to_owned())),
                None => {
                    Err(format!("Input should be {}, got {}", one_of(&self.file.values), display_node(node)))
                }
            };
        }
        let mapped = to_word(node).and_then(|word| self.translate(word));
        mapped
            .map(|mapped| FieldValue::Text(mapped.into_owned()))
            .ok_or_else(|| format!("Input should be {}, got {}", one_of(&self.words()), display_node(node)))
    }

    /// The protocol's own words.
    fn words(&self) -> Vec<String> {
        self.file.value_map.keys().cloned().collect()
    }

    /// Adds the protocol's own words to the error about a text that is none of them, and nothing else of this kind.
    fn name_words(
        &self,
        node: &Node<'_>,
        kind: &str,
        read: Result<FieldValue, String>,
    ) -> Result<FieldValue, String> {
        let is_number = |text: &str| text.trim().parse::<f64>().is_ok();
        if self.file.value_map.is_empty() || node.as_str().is_none_or(is_number) {
            return read;
        }
        read.map_err(|_| {
            let words = one_of(&self.words());
            format!("Input should be {words}, or a valid {kind}, got {}", display_node(node))
        })
    }

    fn parse_number(&self, node: &Node<'_>, whole: bool) -> Result<FieldValue, String> {
        let kind = if whole { "integer" } else { "number" };
        let number = match node {
            Node::Int(number) => Some(*number as f64),
            Node::Float(number) => Some(*number),
            Node::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Node::Str(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number
            .filter(|number: &f64| number.is_finite() && (!whole || number.fract() == 0.0))
            .ok_or_else(|| format!("Input should be a valid {kind}, got {}", display_node(node)))?;
        let (min, max, above) = (self.file.min, self.file.max, self.file.above);
        if let Some(above) = above.filter(|above| number <= *above) {
            return Err(format!("Input should be greater than {above}, got {number}"));
        }
        if let Some(min) = min.filter(|min| number < *min) {
            return Err(format!("Input should be greater than or equal to {min}, got {number}"));
        }
        if let Some(max) = max.filter(|max| number > *max) {
            return Err(format!("Input should be less than or equal to {max}, got {number}"));
        }
        Ok(if whole { FieldValue::Integer(number as i64) } else { FieldValue::Number(number) })
    }
}

/// The word of a value that `value_map` may have: a text, `true` or `false`.
fn to_word<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    match node {
        Node::Bool(true) => Some("true"),
        Node::Bool(false) => Some("false"),
        node => node.as_str(),
    }
}

/// True if the value of a choice is this text, or with `*` at its end the start of it.
fn is_choice(value: &str, text: &str) -> bool {
    value.strip_suffix('*').map_or(value == text, |start| text.starts_with(start))
}

fn parse_flag(node: &Node<'_>) -> Result<bool, String> {
    let value = match node {
        Node::Bool(flag) => Some(*flag),
        Node::Int(0) => Some(false),
        Node::Int(1) => Some(true),
        Node::Float(number) if *number == 0.0 || *number == 1.0 => Some(*number == 1.0),
        Node::Str(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    };
    value.ok_or_else(|| format!("Input should be a valid boolean, got {}", display_node(node)))
}

/// Formats a value for an error, on one line.
pub(crate) fn display_node(node: &Node<'_>) -> String {
    const MAX_CHARS: usize = 40;
    match node {
        Node::Null => "null".to_owned(),
        Node::Bool(value) => value.to_string(),
        Node::Int(value) => value.to_string(),
        Node::Float(value) => value.to_string(),
        Node::Str(text) if text.chars().count() > MAX_CHARS => {
            format!("'{}…'", text.chars().take(MAX_CHARS).collect::<String>())
        }
        Node::Str(text) => format!("'{text}'"),
        Node::List(items) => if items.is_empty() { "[]" } else { "an array" }.to_owned(),
        Node::Object => "an object".to_owned(),
        Node::Raw(_) => "a JSON value".to_owned(),
    }
}

fn one_of(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
    match quoted.split_last() {
        Some((last, most)) if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        Some((only, _)) => only.clone(),
        None => "nothing".to_owned(),
    }
}

fn plural(number: f64) -> &'static str {
    if number == 1.0 { "" } else { "s" }
}

#[cfg(test)]
mod tests;
