//! Values that fill the slots of templates.

use super::Node;

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
