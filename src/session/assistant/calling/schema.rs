//! Schemas of arguments, compiled once for an answer, and the check of arguments against them: the part of JSON Schema that
//! tools use. Unknown keywords are ignored.
//!
//! Schemas come from the client and arguments from the model, so the work of a check may be the product of their sizes. A check
//! therefore has a budget of steps, and arguments beyond it count as valid. A mistake is put into words only when it is sent to
//! the model.

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Number, Value};

/// Most steps for the calls of one answer: some milliseconds of a session's thread.
pub(super) const STEPS_MAX: u32 = 100_000;
/// Longest part of a text that a mistake quotes, characters.
const QUOTED_MAX_CHARS: usize = 64;
/// Types of JSON, each with its bit in [`Schema::types`].
const TYPES: [&str; 7] = ["object", "array", "string", "boolean", "null", "number", "integer"];

/// A compiled schema.
#[derive(Debug, Default)]
pub(super) struct Schema {
    /// Types that fit, as bits; any if there are none.
    types: u8,
    /// Lists that must each contain the value: `enum` and `const`.
    values: Vec<ValueList>,
    /// Lists of schemas. In each list, one schema must fit.
    alternatives: Vec<Box<[Self]>>,
    items: Option<Box<Self>>,
    required: Box<[Box<str>]>,
    /// Properties, in the order of their names.
    properties: Box<[(Box<str>, Self)]>,
    /// Further properties are not allowed.
    is_closed: bool,
}

/// Values that fit.
#[derive(Debug)]
struct ValueList {
    /// All but arrays and objects, in order.
    plain: Box<[Value]>,
    composite: Box<[Value]>,
    /// The list in words, for the model.
    shown: Box<str>,
}

/// Remaining steps. Once there are none, everything counts as valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) steps: u32,
}

impl Budget {
    /// Takes steps. Returns false if there are not enough of them; then none are left.
    const fn take(&mut self, steps: u32) -> bool {
        let is_enough = self.steps > steps;
        self.steps = if is_enough { self.steps - steps } else { 0 };
        is_enough
    }

    /// True if the budget was used up, so that something was not checked.
    pub(super) const fn is_spent(self) -> bool {
        self.steps == 0
    }
}

/// The first mistake in a value, and where it is.
#[derive(Debug)]
pub(super) struct Mistake<'c> {
    kind: MistakeKind<'c>,
    /// From the mistake to the outermost value.
    path: Vec<PathPart<'c>>,
}

#[derive(Debug)]
enum MistakeKind<'c> {
    Type(u8),
    Value(&'c str),
    Alternatives,
    Missing(&'c str),
    Unknown(&'c str),
}

#[derive(Debug)]
enum PathPart<'c> {
    Item(usize),
    Field(&'c str),
}

impl Schema {
    /// Compiles the text of a schema. A text that is no schema allows everything.
    pub(super) fn read(text: &str) -> Self {
        serde_json::from_str(text).map(Self::compile).unwrap_or_default()
    }

    fn compile(schema: Value) -> Self {
        let Value::Object(mut fields) = schema else { return Self::default() };
        let allowed = match fields.remove("enum") {
            Some(Value::Array(values)) => {
                Some(ValueList::new(format!("one of {}", show_values(&values)), values))
            }
            _ => None,
        };
        let constant =
            fields.remove("const").map(|value| ValueList::new(quoted(&value.to_string()), vec![value]));
        let alternatives = ["anyOf", "oneOf"].into_iter().filter_map(|key| match fields.remove(key) {
            Some(Value::Array(options)) => Some(options.into_iter().map(Self::compile).collect()),
            _ => None,
        });
        Self {
            values: allowed.into_iter().chain(constant).collect(),
            alternatives: alternatives.collect(),
            types: read_types(fields.get("type")),
            items: fields
                .remove("items")
                .filter(Value::is_object)
                .map(|items| Box::new(Self::compile(items))),
            required: read_names(fields.get("required")),
            is_closed: fields.get("additionalProperties") == Some(&Value::Bool(false)),
            properties: match fields.remove("properties") {
                // A map of values has its keys in order.
                Some(Value::Object(known)) => known
                    .into_iter()
                    .map(|(key, schema)| (key.into_boxed_str(), Self::compile(schema)))
                    .collect(),
                _ => [].into(),
            },
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first mistake.
    pub(super) fn check<'c>(&'c self, value: &'c Value, budget: &mut Budget) -> Result<(), Mistake<'c>> {
        if !budget.take(1) {
            return Ok(());
        }
        if self.types != 0 && self.types & types_of(value) == 0 {
            return Err(MistakeKind::Type(self.types).into());
        }
        if let Some(list) = self.values.iter().find(|list| !list.contains(value, budget)) {
            return Err(MistakeKind::Value(&list.shown).into());
        }
        for options in &self.alternatives {
            if !options.iter().any(|option| option.check(value, budget).is_ok()) {
                return Err(MistakeKind::Alternatives.into());
            }
        }
        match (value, &self.items) {
            (Value::Object(fields), _) => self.check_object(fields, budget),
            (Value::Array(items), Some(schema)) => items.iter().enumerate().try_for_each(|(at, item)| {
                schema.check(item, budget).map_err(|mistake| mistake.within(PathPart::Item(at)))
            }),
            _ => Ok(()),
        }
    }

    fn check_object<'c>(
        &'c self,
        fields: &'c Map<String, Value>,
        budget: &mut Budget,
    ) -> Result<(), Mistake<'c>> {
        let steps_of = |count: usize| 1 + count.checked_ilog2().unwrap_or(0);
        for key in &self.required {
            if budget.take(steps_of(fields.len())) && !fields.contains_key(&**key) {
                return Err(MistakeKind::Missing(key).into());
            }
        }
        for (key, value) in fields {
            if !budget.take(steps_of(self.properties.len())) {
                return Ok(());
            }
            let at = self.properties.binary_search_by(|(known, _)| (**known).cmp(key.as_str()));
            match at.ok().and_then(|at| self.properties.get(at)) {
                Some((_, known)) => {
                    known.check(value, budget).map_err(|mistake| mistake.within(PathPart::Field(key)))?;
                }
                None if self.is_closed => return Err(MistakeKind::Unknown(key).into()),
                None => {}
            }
        }
        Ok(())
    }
}

impl ValueList {
    /// A list of these values, which an error shows like this.
    fn new(shown: String, values: Vec<Value>) -> Self {
        let (composite, mut plain): (Vec<Value>, Vec<Value>) = values.into_iter().partition(is_composite);
        plain.sort_unstable_by(|one, other| compare(one, other, &mut Budget { steps: u32::MAX }));
        Self { plain: plain.into(), composite: composite.into(), shown: shown.into() }
    }

    /// True if the value is in the list.
    fn contains(&self, value: &Value, budget: &mut Budget) -> bool {
        match is_composite(value) {
            true => self.composite.iter().any(|known| compare(known, value, budget).is_eq()),
            false => self.plain.binary_search_by(|known| compare(known, value, budget)).is_ok(),
        }
    }
}

impl<'c> Mistake<'c> {
    fn within(mut self, part: PathPart<'c>) -> Self {
        self.path.push(part);
        self
    }
}

impl<'c> From<MistakeKind<'c>> for Mistake<'c> {
    fn from(kind: MistakeKind<'c>) -> Self {
        Self { kind, path: Vec::new() }
    }
}

impl fmt::Display for Mistake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments")?;
        for part in self.path.iter().rev() {
            match part {
                PathPart::Item(at) => write!(f, "[{at}]")?,
                PathPart::Field(key) => write!(f, ".{}", quoted(key))?,
            }
        }
        match self.kind {
            MistakeKind::Type(types) => {
                let is_named = |(at, _): &(usize, &&str)| types & (1 << at) != 0;
                let names: Vec<&str> =
                    TYPES.iter().enumerate().filter(is_named).map(|(_, name)| *name).collect();
                write!(f, " must be of type {}.", names.join(" or "))
            }
            MistakeKind::Value(shown) => write!(f, " must be {shown}."),
            MistakeKind::Alternatives => write!(f, " fits none of its schemas."),
            MistakeKind::Missing(key) => write!(f, " must have {:?}.", quoted(key)),
            MistakeKind::Unknown(key) => write!(f, " must not have {:?}.", quoted(key)),
        }
    }
}

/// The beginning of a text.
pub(super) fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_MAX_CHARS).collect()
}

/// The types of a schema, as bits; none if it allows any, or one that is not known.
fn read_types(given: Option<&Value>) -> u8 {
    let bit = |name: &Value| TYPES.iter().position(|known| name == known).map(|at| 1 << at);
    match given {
        Some(Value::Array(names)) => {
            let bits: Option<Vec<u8>> = names.iter().filter(|name| name.is_string()).map(bit).collect();
            bits.unwrap_or_default().into_iter().fold(0, |types, bit| types | bit)
        }
        Some(name) => bit(name).unwrap_or(0),
        None => 0,
    }
}

fn read_names(given: Option<&Value>) -> Box<[Box<str>]> {
    given.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()
}

/// The types that a value has, as bits.
fn types_of(value: &Value) -> u8 {
    match value {
        Value::Object(_) => 1,
        Value::Array(_) => 1 << 1,
        Value::String(_) => 1 << 2,
        Value::Bool(_) => 1 << 3,
        Value::Null => 1 << 4,
        Value::Number(number) => {
            let is_whole = !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0);
            if is_whole { 1 << 5 | 1 << 6 } else { 1 << 5 }
        }
    }
}

const fn is_composite(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

/// The beginning of a list of values.
fn show_values(values: &[Value]) -> String {
    let mut shown = String::new();
    for value in values {
        shown.push_str(if shown.is_empty() { "" } else { ", " });
        shown.push_str(&value.to_string());
        if shown.len() > QUOTED_MAX_CHARS * 4 {
            break;
        }
    }
    quoted(&shown)
}

/// Total order of values. Numbers compare by value, in any notation. Each part takes a step.
fn compare(one: &Value, other: &Value, budget: &mut Budget) -> Ordering {
    if !budget.take(1) {
        return Ordering::Equal;
    }
    match (one, other) {
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other),
        (Value::Array(one), Value::Array(other)) => one.len().cmp(&other.len()).then_with(|| {
            let mut orders = one.iter().zip(other).map(|(one, other)| compare(one, other, budget));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }),
        (Value::Object(one), Value::Object(other)) => one.len().cmp(&other.len()).then_with(|| {
            let mut orders = one.iter().zip(other).map(|((key, one), (other_key, other))| {
                key.cmp(other_key).then_with(|| compare(one, other, budget))
            });
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }),
        _ => types_of(one).cmp(&types_of(other)),
    }
}

/// Compares numbers as floats, and if these are equal, as integers.
fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    let key = |number: &Number| {
        // As a float, zero has a sign.
        let near = number.as_f64().unwrap_or(0.0) + 0.0;
        let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        (near, whole.unwrap_or(near as i128))
    };
    let ((near, whole), (other_near, other_whole)) = (key(one), key(other));
    near.total_cmp(&other_near).then(whole.cmp(&other_whole))
}

#[cfg(test)]
mod tests;
