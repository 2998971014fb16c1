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

/// A condition on the values at some places.
#[derive(Debug)]
pub(super) enum Condition<P> {
    /// The place has a value.
    Given(P),
    /// Each place has one of these values.
    Equal(Vec<(P, Vec<Scalar>)>),
}

/// The conditions of a verb or of a message.
#[derive(Debug)]
pub struct Conditions<P> {
    /// Must hold.
    pub(super) when: Option<Condition<P>>,
    /// Must not hold.
    unless: Option<Condition<P>>,
    /// The conditions for people; empty if there are none.
    pub text: String,
}

impl<P: Copy> Condition<P> {
    pub(super) fn holds<'v>(
        &self,
        value: &impl Fn(P) -> SlotValue<'v>,
        is_given: fn(&SlotValue<'v>) -> bool,
    ) -> bool {
        match self {
            Self::Given(place) => is_given(&value(*place)),
            Self::Equal(places) => places.iter().all(|(place, wanted)| {
                let found = value(*place);
                wanted.iter().any(|wanted| wanted.equals(&found))
            }),
        }
    }
}

impl<P: Copy> Conditions<P> {
    /// Compiles conditions of a file; `find` gives the place of a name.
    pub(super) fn compile<E>(
        when: Option<&ConditionFile>,
        unless: Option<&ConditionFile>,
        describe: fn(&ConditionFile) -> String,
        mut find: impl FnMut(&str) -> Result<P, E>,
    ) -> Result<Self, E> {
        let texts = [("if", when), ("unless", unless)];
        let texts = texts.into_iter().filter_map(|(word, file)| Some(format!("{word} {}", describe(file?))));
        let text = texts.collect::<Vec<_>>().join(" and ");
        let mut condition =
            |file: Option<&ConditionFile>| file.map(|file| file.compile(&mut find)).transpose();
        Ok(Self { when: condition(when)?, unless: condition(unless)?, text })
    }

    /// True if the conditions hold for these values; `is_given` says which count as given.
    pub(crate) fn hold<'v>(
        &self,
        value: impl Fn(P) -> SlotValue<'v>,
        is_given: fn(&SlotValue<'v>) -> bool,
    ) -> bool {
        self.when.as_ref().is_none_or(|condition| condition.holds(&value, is_given))
            && !self.unless.as_ref().is_some_and(|condition| condition.holds(&value, is_given))
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
    /// Compiles the condition; `find` gives the place of a name.
    pub(super) fn compile<P, E>(
        &self,
        mut find: impl FnMut(&str) -> Result<P, E>,
    ) -> Result<Condition<P>, E> {
        Ok(match self {
            Self::Given(name) => Condition::Given(find(name)?),
            Self::Equal(values) => {
                let values =
                    values.iter().map(|(name, values)| Ok((find(name)?, values.as_slice().to_vec())));
                Condition::Equal(values.collect::<Result<_, E>>()?)
            }
        })
    }

    /// The condition for people, where its names are slots.
    pub(super) fn on_slots(&self) -> String {
        match self {
            Self::Given(slot) => format!("`{slot}`"),
            Self::Equal(_) => self.to_string(),
        }
    }
}
