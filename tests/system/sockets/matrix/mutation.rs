//! Mutations of valid messages.

use proptest::prelude::*;

use super::*;

/// A mutation of one message. Positions are taken modulo the length.
#[derive(Debug, Clone)]
pub(crate) enum Mutation {
    /// The message stays unchanged.
    Unchanged,
    /// Keeps only the beginning.
    Truncate(usize),
    /// Replaces one character.
    ReplaceChar(usize, char),
    /// Repeats a span.
    RepeatSpan(usize, usize),
    /// Removes a span.
    RemoveSpan(usize, usize),
    /// Replaces one value.
    Value(usize, usize),
    /// Repeats one key with another value.
    DuplicateKey(usize),
    /// Nests the message in this many arrays or objects.
    Nest(usize),
}

pub(crate) fn any_mutation() -> impl Strategy<Value = Mutation> {
    let (at, length) = (|| 0..2000usize, || 1..40usize);
    prop_oneof![
        2 => Just(Mutation::Unchanged),
        2 => at().prop_map(Mutation::Truncate),
        2 => (at(), any::<char>()).prop_map(|(at, letter)| Mutation::ReplaceChar(at, letter)),
        1 => (at(), length()).prop_map(|(at, length)| Mutation::RepeatSpan(at, length)),
        2 => (at(), length()).prop_map(|(at, length)| Mutation::RemoveSpan(at, length)),
        8 => (at(), at()).prop_map(|(at, value)| Mutation::Value(at, value)),
        2 => at().prop_map(Mutation::DuplicateKey),
        1 => (1..300usize).prop_map(Mutation::Nest),
    ]
}

impl Mutation {
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut letters: Vec<char> = text.chars().collect();
        let place = |at: usize| at % letters.len().max(1);
        match *self {
            Self::Unchanged => text.to_owned(),
            Self::Truncate(at) => letters[..place(at)].iter().collect(),
            Self::ReplaceChar(at, letter) => {
                let at = place(at);
                letters.splice(at..=at, [letter]);
                letters.into_iter().collect()
            }
            Self::RepeatSpan(at, length) => {
                let piece: Vec<_> = letters.iter().copied().skip(place(at)).take(length).collect();
                let at = place(at);
                letters.splice(at..at, piece);
                letters.into_iter().collect()
            }
            Self::RemoveSpan(at, length) => {
                let at = place(at);
                letters.drain(at..(at + length).min(letters.len()));
                letters.into_iter().collect()
            }
            Self::Value(at, other) => {
                let mut message: Value = serde_json::from_str(text).unwrap();
                let value_pointers = value_pointers(&message, "");
                let other = replacement_values()[other % replacement_values().len()].clone();
                *message.pointer_mut(&value_pointers[at % value_pointers.len()]).unwrap() = other;
                message.to_string()
            }
            Self::DuplicateKey(at) => {
                let message: Value = serde_json::from_str(text).unwrap();
                let keys: Vec<_> = message.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
                let other = &replacement_values()[at % replacement_values().len()];
                format!("{{{:?}: {other}, {}", keys[at % keys.len()], &text[1..])
            }
            Self::Nest(depth) => {
                let (open, close) = if depth % 2 == 0 { ("[", "]") } else { ("{\"type\":", "}") };
                format!("{}{text}{}", open.repeat(depth), close.repeat(depth))
            }
        }
    }
}

/// JSON pointers to all values below this one.
fn value_pointers(value: &Value, at: &str) -> Vec<String> {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (format!("{at}/{key}"), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (format!("{at}/{index}"), value)).collect()
        }
        _ => Vec::new(),
    };
    let deeper = inside.into_iter().flat_map(|(at, value)| {
        let below = value_pointers(value, &at);
        std::iter::once(at).chain(below)
    });
    deeper.collect()
}

fn replacement_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e308),
        json!(-0.5),
        json!(""),
        json!("\u{0}\u{1f}\"\\"),
        json!("AAAA"),
        json!("AAAAAAAAgH8AAMB/"),
        json!("\u{fffd}\u{10ffff}"),
        json!("x".repeat(5000)),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!({"type": {"type": []}}),
        json!([1, "a", null, {"audio": 5}]),
    ]
}
