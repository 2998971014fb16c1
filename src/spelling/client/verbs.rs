//! The verbs of a command: one, or several with conditions on the message.

use serde::{
    Deserialize, Deserializer,
    de::{IntoDeserializer as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use super::{
    ValueRule, Verb,
    conditions::{Condition, ConditionFile, Conditions, Scalar},
    values::find_remembered,
};
use crate::{
    spelling::{
        extract::{ExtractedValues, Extractor},
        template::scalar_value,
    },
    vocabulary::{Node, SlotValue},
};

/// A compiled verb.
#[derive(Debug)]
pub struct CommandVerb {
    /// Meaning.
    pub verb: Verb,
    /// It applies only if these hold.
    pub conditions: Conditions<Place>,
}

/// Where a condition finds a value.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// In the message, by slot.
    Message(usize),
    /// In `[values]`, by index.
    Value(usize),
}

/// `verb` of a command in a file.
#[derive(Debug)]
pub(super) struct VerbsFile(Vec<VerbFile>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct VerbFile {
    verb: Verb,
    when: Option<ConditionFile>,
    unless: Option<ConditionFile>,
}

impl CommandVerb {
    /// Values with which the verb applies, by slot, and whether any other value would do.
    pub(super) fn example_values(&self) -> Vec<(usize, Value, bool)> {
        match &self.conditions.when {
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
        found: &'v ExtractedValues<'_>,
        remembered: impl Fn(usize) -> SlotValue<'v>,
    ) -> bool {
        self.conditions.hold(|place| value_at(place, found, &remembered), is_given)
    }
}

/// The value at a place: in a message, or remembered.
pub(super) fn value_at<'v>(
    place: Place,
    found: &'v ExtractedValues<'_>,
    remembered: impl Fn(usize) -> SlotValue<'v>,
) -> SlotValue<'v> {
    match place {
        Place::Message(slot) => match found.get(slot) {
            None => SlotValue::Null,
            // Only its presence counts.
            Some(Node::List(_) | Node::Object | Node::Raw(_)) => SlotValue::Raw(""),
            Some(scalar) => scalar_value(scalar),
        },
        Place::Value(at) => remembered(at),
    }
}

/// True for a value other than `null`, `false` and a blank text.
pub(super) fn is_given(value: &SlotValue<'_>) -> bool {
    match value {
        SlotValue::Null | SlotValue::Bool(false) => false,
        SlotValue::Str(text) => !text.trim().is_empty(),
        _ => true,
    }
}

/// Finds the place of a condition. Without `rules`, the condition is on a message alone.
pub(super) fn find_place(
    spelled: &str,
    extractor: &mut Extractor,
    rules: &[ValueRule],
) -> Result<Place, String> {
    let name = spelled.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    match (name, spelled.starts_with('/')) {
        (Some(name), _) => Ok(Place::Value(find_remembered(rules, name)?)),
        (None, true) => Ok(Place::Message(extractor.add(spelled))),
        (None, false) => Err(format!(
            "the condition `{spelled}` is neither a JSON pointer, which begins with `/`, nor a remembered value, such as `${{stream}}`"
        )),
    }
}

impl VerbsFile {
    pub(super) fn compile(
        self,
        extractor: &mut Extractor,
        rules: &[ValueRule],
    ) -> Result<Vec<CommandVerb>, String> {
        let compile = |file: &VerbFile| {
            let (when, unless) = (file.when.as_ref(), file.unless.as_ref());
            let find = |spelled: &str| find_place(spelled, extractor, rules);
            let conditions = Conditions::compile(when, unless, ConditionFile::to_string, find)?;
            Ok(CommandVerb { verb: file.verb, conditions })
        };
        self.0.iter().map(compile).collect()
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
                <VerbFile as Deserialize>::deserialize(name.into_deserializer())
                    .map(|verb| VerbsFile(vec![verb]))
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
                // The derived reader of a table.
                VerbFile::deserialize(MapAccessDeserializer::new(map))
            }
        }
        from.deserialize_any(OneVerb)
    }
}
