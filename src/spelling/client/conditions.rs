//! Conditions as files spell them: a place that has a value, or places with certain values. Verbs have conditions on messages, and
//! the messages of events have conditions on slots.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::vocabulary::SlotValue;

/// A condition in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a JSON pointer or the name of a slot, or a table of these and values"
)]
pub(super) enum ConditionFile {
    Given(String),
    Equal(BTreeMap<String, ScalarsFile>),
}

/// One value, or several; one is enough.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected true, false, a whole number, text in quotes, or a list of these")]
pub(super) enum ScalarsFile {
    One(Scalar),
    Several(Vec<Scalar>),
}

/// A value that a message is compared with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected true, false, a whole number or text in quotes")]
pub(super) enum Scalar {
    Flag(bool),
    Integer(i64),
    Text(String),
}

impl Scalar {
    /// True if a slot has this value.
    pub(super) fn equals(&self, found: &SlotValue<'_>) -> bool {
        match (found, self) {
            (SlotValue::Bool(found), Self::Flag(value)) => found == value,
            (SlotValue::Int(found), Self::Integer(value)) => found == value,
            (SlotValue::Str(found), Self::Text(value)) => found == value,
            _ => false,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Flag(value) => (*value).into(),
            Self::Integer(value) => (*value).into(),
            Self::Text(value) => value.as_str().into(),
        }
    }
}

impl ScalarsFile {
    pub(super) fn as_slice(&self) -> &[Scalar] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}

impl std::fmt::Display for ConditionFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Given(pointer) => write!(f, "{pointer} is given"),
            Self::Equal(values) => {
                let describe = |(pointer, values): (&String, &ScalarsFile)| {
                    let values: Vec<String> = values.as_slice().iter().map(Scalar::to_string).collect();
                    format!("{pointer} is {}", values.join(" or "))
                };
                f.write_str(&values.iter().map(describe).collect::<Vec<_>>().join(" and "))
            }
        }
    }
}

impl ConditionFile {
    /// The condition for people, where its names are slots.
    pub(super) fn on_slots(&self) -> String {
        match self {
            Self::Given(slot) => format!("`{slot}`"),
            Self::Equal(_) => self.to_string(),
        }
    }
}
