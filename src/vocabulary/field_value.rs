//! Checked values of the fields of a client's message or query.

use std::sync::Arc;

use crate::audio::{encoding::Encoding, vad::Sensitivity};

/// A checked value.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// A string.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A boolean.
    Flag(bool),
    /// Items of a list; of a text, its only part.
    Items(Arc<[ListItem]>),
    /// Present, without a value here.
    Object,
}

/// One item of a list. Parts that the file does not name, or that the message lacks, are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListItem {
    /// Name of a tool.
    pub name: Option<String>,
    /// Purpose of a tool.
    pub description: Option<String>,
    /// JSON schema of a tool's arguments, as its text.
    pub parameters: Option<String>,
    /// Id of the call that a result belongs to.
    pub call_id: Option<String>,
    /// A result: a text, or the text of another JSON value.
    pub output: Option<String>,
    /// Speaker of a message, in the protocol's words.
    pub role: Option<String>,
    /// Texts.
    pub texts: Vec<String>,
    /// Pictures in base64.
    pub images: Vec<String>,
}

/// A type that a field's value can be read as. A number out of range saturates, and is rejected with the valid range when it is
/// applied.
pub(super) trait FromField: Sized {
    /// `None` for a value of another type, or an unknown word.
    fn from_field(value: FieldValue) -> Option<Self>;
}

/// Implements [`FromField`] by patterns of values and what they become.
macro_rules! from_field {
    ($($type:ty: $($pattern:pat => $value:expr),+;)+) => {
        $(impl FromField for $type {
            fn from_field(value: FieldValue) -> Option<Self> {
                match value {
                    $($pattern => $value,)+
                    _ => None,
                }
            }
        })+
    };
}

from_field! {
    bool: FieldValue::Flag(on) => Some(on);
    f64: FieldValue::Number(number) => Some(number);
    u32: FieldValue::Integer(number) => Some(u32::try_from(number.max(0)).unwrap_or(u32::MAX));
    u16: FieldValue::Integer(number) => Some(u16::try_from(number).unwrap_or(u16::MAX));
    String: FieldValue::Text(text) => Some(text), FieldValue::Items(items) => Some(texts(&items).join("\n"));
    Vec<String>: FieldValue::Items(items) => Some(texts(&items));
    Encoding: FieldValue::Text(name) => Self::from_name(&name);
    Sensitivity: FieldValue::Text(name) => Some(match name.as_str() {
        "high" => Self::High,
        "low" => Self::Low,
        _ => Self::Normal,
    });
}

impl ListItem {
    /// An item that is a text.
    pub(crate) fn of_text(text: &str) -> Self {
        Self { texts: vec![text.to_owned()], ..Self::default() }
    }
}

impl<T: FromField> FromField for Option<T> {
    fn from_field(value: FieldValue) -> Option<Self> {
        T::from_field(value).map(Some)
    }
}

fn texts(items: &[ListItem]) -> Vec<String> {
    items.iter().flat_map(|item| item.texts.iter().cloned()).collect()
}
