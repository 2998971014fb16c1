//! Form of a client's events: no missing, unknown or mistyped member (the types of the Python package openai).

use serde_json::{Map, Value};

use super::wire::Rejected;
use crate::form_field;
pub(super) use crate::form_field::{optional, required};

/// Form of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Any,
    Text,
    /// A text of at most this many characters.
    Id(usize),
    Integer {
        min: i64,
        max: i64,
    },
    /// This number.
    Exactly(i64),
    Number {
        min: f64,
        max: f64,
    },
    Boolean,
    /// One of these texts.
    Word(&'static [&'static str]),
    List(&'static Self),
    Object(&'static [Field]),
    /// An object whose form this member chooses.
    Tagged(&'static str, &'static [(&'static str, Self)]),
    /// Null is also allowed.
    Nullable(&'static Self),
    /// A value of the second form if it is an object, or else of the first.
    OrObject(&'static Self, &'static Self),
    /// This text, or else the form.
    OrWord(&'static str, &'static Self),
}

/// Member of an object.
pub(super) type Field = form_field::Field<Form>;

/// Handling of members that no form has. A server that drops them checks no range either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extras {
    Refuse,
    Drop,
}

/// Checks an object. The error is that of the first bad member, or else of an unknown one; it names the path.
pub(super) fn check_object(
    object: &mut Map<String, Value>,
    fields: &[Field],
    path: &str,
    extras: Extras,
) -> Result<(), Rejected> {
    for field in fields {
        let path = join(path, field.name);
        match object.get_mut(field.name) {
            Some(value) => check(value, field.form, &path, extras)?,
            None if field.is_required => return Err(missing(&path)),
            None => {}
        }
    }
    let is_known = |key: &String| fields.iter().any(|field| field.name == *key);
    if extras == Extras::Drop {
        object.retain(|key, _| is_known(key));
    }
    match object.keys().find(|key| !is_known(key)) {
        Some(unknown) => {
            let path = join(path, unknown);
            Err(Rejected::new("unknown_parameter", format!("Unknown parameter: '{path}'.")).at(path))
        }
        None => Ok(()),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn missing(path: &str) -> Rejected {
    Rejected::new("missing_required_parameter", format!("Missing required parameter: '{path}'.")).at(path)
}

fn check(value: &mut Value, form: Form, path: &str, extras: Extras) -> Result<(), Rejected> {
    match (form, value) {
        (Form::Any, _)
        | (Form::Nullable(_), Value::Null)
        | (Form::Text, Value::String(_))
        | (Form::Boolean, Value::Bool(_)) => Ok(()),
        (Form::Nullable(form), value) => check(value, *form, path, extras),
        (Form::OrObject(_, form), value @ Value::Object(_)) | (Form::OrObject(form, _), value) => {
            check(value, *form, path, extras)
        }
        (Form::OrWord(word, _), Value::String(text)) if text == word => Ok(()),
        (Form::OrWord(_, form), value) => check(value, *form, path, extras),
        (Form::Id(max), Value::String(text)) => check_length(text, max, path, extras),
        (Form::Word(words), Value::String(word)) if words.contains(&word.as_str()) => Ok(()),
        (Form::Word(words), Value::String(word)) => Err(wrong_word(word, words, path)),
        (Form::Integer { min, max }, Value::Number(number)) if number.is_i64() || number.is_u64() => {
            let given = number.as_i64().unwrap_or(i64::MAX);
            if extras == Extras::Drop { Ok(()) } else { check_range(given, min, max, "integer", path) }
        }
        (Form::Exactly(only), Value::Number(number)) if number.is_i64() || number.is_u64() => {
            check_range(number.as_i64().unwrap_or(i64::MAX), only, only, "integer", path)
        }
        (Form::Number { min, max }, Value::Number(number)) => {
            let given = number.as_f64().unwrap_or_default();
            if extras == Extras::Drop { Ok(()) } else { check_range(given, min, max, "decimal", path) }
        }
        (Form::List(form), Value::Array(items)) => {
            let mut items = items.iter_mut().enumerate();
            items.try_for_each(|(at, item)| check(item, *form, &format!("{path}[{at}]"), extras))
        }
        (Form::Object(fields), Value::Object(object)) => check_object(object, fields, path, extras),
        (Form::Tagged(key, forms), value @ Value::Object(_)) => {
            let path_of_tag = join(path, key);
            let tag = value.get(key).ok_or_else(|| missing(&path_of_tag))?;
            let tag = tag.as_str().ok_or_else(|| wrong_type("a string", tag, &path_of_tag))?;
            let known = forms.iter().find(|(name, _)| *name == tag);
            let names = || forms.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            let (_, form) = known.ok_or_else(|| wrong_word(tag, &names(), &path_of_tag))?;
            check(value, *form, path, extras)
        }
        (form, value) => Err(wrong_type(form.expected(), value, path)),
    }
}

fn check_length(text: &str, max: usize, path: &str, extras: Extras) -> Result<(), Rejected> {
    let length = text.chars().count();
    if length <= max || extras == Extras::Drop {
        return Ok(());
    }
    let message = format!(
        "Invalid '{path}': string too long. Expected a string with maximum length {max}, but got a string with length {length} \
         instead."
    );
    Err(Rejected::new("string_above_max_length", message).at(path))
}

fn check_range<T: PartialOrd + std::fmt::Display>(
    given: T,
    min: T,
    max: T,
    kind: &str,
    path: &str,
) -> Result<(), Rejected> {
    let (code, side, sign, limit) = if given < min {
        ("integer_below_min_value", "below minimum", ">=", min)
    } else if given > max {
        ("integer_above_max_value", "above maximum", "<=", max)
    } else {
        return Ok(());
    };
    let message = format!(
        "Invalid '{path}': {kind} {side} value. Expected a value {sign} {limit}, but got {given} instead."
    );
    Err(Rejected::new(code, message).at(path))
}

pub(super) fn wrong_word(given: &str, words: &[&str], path: &str) -> Rejected {
    let names: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let names = match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{}, and {last}", first.join(", ")),
        names => names.concat(),
    };
    let message = format!("Invalid value: '{given}'. Supported values are: {names}.");
    Rejected::new("invalid_value", message).at(path)
}

fn wrong_type(expected: &str, given: &Value, path: &str) -> Rejected {
    let given = match given {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message = format!("Invalid type for '{path}': expected {expected}, but got {given} instead.");
    Rejected::new("invalid_type", message).at(path)
}

impl Form {
    const fn expected(self) -> &'static str {
        match self {
            Self::Any | Self::Nullable(_) => "a value",
            Self::Text | Self::Id(_) | Self::Word(_) => "a string",
            Self::Integer { .. } | Self::Exactly(_) => "an integer",
            Self::Number { .. } => "a decimal",
            Self::Boolean => "a boolean",
            Self::List(_) => "an array",
            Self::Object(_) | Self::Tagged(..) => "an object",
            Self::OrObject(form, _) | Self::OrWord(_, form) => form.expected(),
        }
    }
}
