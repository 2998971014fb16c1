//! Rows of an explanation.

use serde::Serialize;

/// One row: a message, field or parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainRow {
    /// Kind of the row.
    pub is: RowKind,
    /// Name in the protocol; empty for audio.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Effect of what is sent, or origin of what is received.
    pub becomes: String,
}

/// Kind of an [`ExplainRow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// Binary frames.
    Audio,
    /// A query parameter.
    Query,
    /// A command.
    Command,
    /// A field of the command before it.
    Field,
    /// An event.
    Event,
}

impl ExplainRow {
    pub(in crate::spelling) fn new(is: RowKind, name: &str, becomes: impl Into<String>) -> Self {
        Self { is, name: name.to_owned(), becomes: becomes.into() }
    }
}
