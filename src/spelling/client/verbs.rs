//! The verbs of a command: one, or several with conditions on the message.

use serde::{
    Deserialize, Deserializer,
    de::{IntoDeserializer as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use super::{
    ValueRule, Verb,
    conditions::{ConditionFile, Scalar},
    values::find_remembered,
};
use crate::{
    spelling::extract::{ExtractedValues, Extractor},
    vocabulary::{Node, SlotValue},
};

/// A compiled verb.
#[derive(Debug)]
pub struct CommandVerb {
    /// Meaning.
    pub verb: Verb,
    /// The conditions for people; empty if there are none.
    pub conditions: String,
    /// Must hold.
    when: Option<Condition>,
    /// Must not hold.
    unless: Option<Condition>,
}

/// A condition on a message, and on what earlier messages left in `[values]`.
#[derive(Debug)]
pub(super) enum Condition {
    /// There is a value other than `null`, `false` and a blank text.
    Given(Place),
    /// Each place has one of these values.
    Equal(Vec<(Place, Vec<Scalar>)>),
}

/// Where a condition finds a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In the message, by slot.
    Message(usize),
    /// In `[values]`, by index.
    Value(usize),
}

/// `verb` of a command in a file.
#[derive(Debug)]
pub(super) struct VerbsFile(Vec<VerbFile>);

#[derive(Debug)]
struct VerbFile {
    verb: Verb,
    when: Option<ConditionFile>,
    unless: Option<ConditionFile>,
}

impl CommandVerb {
    /// Values with which the verb applies, by slot, and whether any other value would do.
    pub(super) fn example_values(&self) -> Vec<(usize, Value, bool)> {
        match &self.when {
            None => Vec::new(),
            Some(Condition::Given(Place::Message(slot))) => vec![(*slot, "example".into(), true)],
            Some(Condition::Given(Place::Value(_))) => Vec::new(),
            Some(Condition::Equal(values)) => {
                let in_message = |(place, values): &(Place, Vec<Scalar>)| match place {
                    Place::Message(slot) => Some((*slot, values.first()?.to_json(), false)),
                    Place::Value(_) => None,
                };
                values.iter().filter_map(in_message).collect()
            }
        }
    }

    /// True if the verb applies to this message. `remembered` gives a value of `[values]`.
    pub(crate) fn applies<'v>(
        &self,
        found: &ExtractedValues<'_>,
        remembered: impl Fn(usize) -> SlotValue<'v>,
    ) -> bool {
        self.when.as_ref().is_none_or(|condition| condition.holds(found, &remembered))
            && !self.unless.as_ref().is_some_and(|condition| condition.holds(found, &remembered))
    }
}

impl Condition {
    pub(super) fn holds<'v>(
        &self,
        found: &ExtractedValues<'_>,
        remembered: &impl Fn(usize) -> SlotValue<'v>,
    ) -> bool {
        match self {
            Self::Given(Place::Message(slot)) => match found.get(*slot) {
                None | Some(Node::Null | Node::Bool(false)) => false,
                Some(node) => node.as_str().is_none_or(|text| !text.trim().is_empty()),
            },
            Self::Given(Place::Value(at)) => match remembered(*at) {
                SlotValue::Null | SlotValue::Bool(false) => false,
                SlotValue::Str(text) => !text.trim().is_empty(),
                _ => true,
            },
            Self::Equal(places) => places.iter().all(|(place, values)| match place {
                Place::Message(slot) => values.iter().any(|value| match (found.get(*slot), value) {
                    (Some(Node::Bool(found)), Scalar::Flag(value)) => found == value,
                    (Some(Node::Int(found)), Scalar::Integer(value)) => found == value,
                    (Some(Node::Str(found)), Scalar::Text(value)) => found == value,
                    _ => false,
                }),
                Place::Value(at) => {
                    let found = remembered(*at);
                    values.iter().any(|value| value.equals(&found))
                }
            }),
        }
    }
}

impl ConditionFile {
    /// Without `rules`, the condition is on a message alone.
    pub(super) fn compile(self, extractor: &mut Extractor, rules: &[ValueRule]) -> Result<Condition, String> {
        let mut place = |spelled: &str| {
            let name = spelled.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
            match (name, spelled.starts_with('/')) {
                (Some(name), _) => Ok(Place::Value(find_remembered(rules, name)?)),
                (None, true) => Ok(Place::Message(extractor.add(spelled))),
                (None, false) => Err(format!(
                    "the condition `{spelled}` is neither a JSON pointer, which begins with `/`, nor a remembered value, such as `${{stream}}`"
                )),
            }
        };
        Ok(match self {
            Self::Given(spelled) => Condition::Given(place(&spelled)?),
            Self::Equal(values) => {
                let values = values
                    .into_iter()
                    .map(|(spelled, values)| Ok((place(&spelled)?, values.as_slice().to_vec())));
                Condition::Equal(values.collect::<Result<_, String>>()?)
            }
        })
    }
}

impl VerbsFile {
    pub(super) fn compile(
        self,
        extractor: &mut Extractor,
        rules: &[ValueRule],
    ) -> Result<Vec<CommandVerb>, String> {
        let compile = |file: VerbFile| {
            let when = file.when.as_ref().map(|condition| format!("if {condition}"));
            let unless = file.unless.as_ref().map(|condition| format!("unless {condition}"));
            let conditions = when.into_iter().chain(unless).collect::<Vec<_>>().join(" and ");
            let mut condition =
                |file: Option<ConditionFile>| file.map(|file| file.compile(extractor, rules)).transpose();
            Ok(CommandVerb {
                verb: file.verb,
                conditions,
                when: condition(file.when)?,
                unless: condition(file.unless)?,
            })
        };
        self.0.into_iter().map(compile).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// Not `untagged`, which would replace serde's error, and with it the nearest valid spelling.
impl<'de> Deserialize<'de> for VerbsFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Verbs;
        impl<'de> Visitor<'de> for Verbs {
            type Value = VerbsFile;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a verb, a table with a verb, or a list of these")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<VerbsFile, E> {
                VerbFile::deserialize(name.into_deserializer()).map(|verb| VerbsFile(vec![verb]))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<VerbsFile, A::Error> {
                VerbFile::deserialize(MapAccessDeserializer::new(map)).map(|verb| VerbsFile(vec![verb]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<VerbsFile, A::Error> {
                let mut verbs = Vec::new();
                while let Some(verb) = items.next_element()? {
                    verbs.push(verb);
                }
                Ok(VerbsFile(verbs))
            }
        }
        from.deserialize_any(Verbs)
    }
}

impl<'de> Deserialize<'de> for VerbFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Conditional {
            verb: Verb,
            when: Option<ConditionFile>,
            unless: Option<ConditionFile>,
        }
        struct OneVerb;
        impl<'de> Visitor<'de> for OneVerb {
            type Value = VerbFile;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a verb, or a table of `verb`, `when` and `unless`")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<VerbFile, E> {
                let verb = Verb::deserialize(name.into_deserializer())?;
                Ok(VerbFile { verb, when: None, unless: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<VerbFile, A::Error> {
                let Conditional { verb, when, unless } =
                    Conditional::deserialize(MapAccessDeserializer::new(map))?;
                Ok(VerbFile { verb, when, unless })
            }
        }
        from.deserialize_any(OneVerb)
    }
}
