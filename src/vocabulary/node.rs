//! Values found in JSON messages.

use std::borrow::Cow;

/// A value found in a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number that fits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string, borrowed from the message unless it holds escapes.
    Str(Cow<'a, str>),
    /// An array; its scalars, and [`Node::Object`] for anything nested.
    List(Vec<Self>),
    /// An object addressed by a pointer; only its presence is kept.
    Object,
    /// Any value, verbatim ([`crate::spelling::extract::Extractor::add_raw`]).
    Raw(&'a str),
}

impl Node<'_> {
    /// Name of the JSON type for error messages.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "boolean",
            Node::Int(_) => "integer",
            Node::Float(_) => "number",
            Node::Str(_) => "string",
            Node::List(_) => "array",
            Node::Object => "object",
            Node::Raw(_) => "JSON value",
        }
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Node::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The number as a float, if it is one.
    #[must_use]
    pub const fn as_f64(&self) -> Option<f64> {
        match self {
            Node::Int(number) => Some(*number as f64),
            Node::Float(number) => Some(*number),
            _ => None,
        }
    }
}
