//! Valid messages with something wrong in them.

use proptest::prelude::*;
use serde_json::{Value, json};

/// What is done to a message; places are taken modulo what there is.
#[derive(Debug, Clone)]
pub(crate) enum Spoil {
    /// Nothing: it stays as it is.
    Leave,
    /// Only the beginning is there.
    Cut(usize),
    /// One character is another one.
    Letter(usize, char),
    /// A piece comes twice.
    Twice(usize, usize),
    /// A piece is missing.
    Gap(usize, usize),
    /// One value is another one.
    Value(usize, usize),
    /// One key comes twice, with another value.
    Key(usize),
    /// All of it is inside of so many arrays or objects.
    Nest(usize),
}

pub(crate) fn any_spoil() -> impl Strategy<Value = Spoil> {
    let (at, length) = (|| 0..2000usize, || 1..40usize);
    prop_oneof![
        2 => Just(Spoil::Leave),
        2 => at().prop_map(Spoil::Cut),
        2 => (at(), any::<char>()).prop_map(|(at, letter)| Spoil::Letter(at, letter)),
        1 => (at(), length()).prop_map(|(at, length)| Spoil::Twice(at, length)),
        2 => (at(), length()).prop_map(|(at, length)| Spoil::Gap(at, length)),
        8 => (at(), at()).prop_map(|(at, value)| Spoil::Value(at, value)),
        2 => at().prop_map(Spoil::Key),
        1 => (1..300usize).prop_map(Spoil::Nest),
    ]
}

impl Spoil {
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut letters: Vec<char> = text.chars().collect();
        let place = |at: usize| at % letters.len().max(1);
        match *self {
            Self::Leave => text.to_owned(),
            Self::Cut(at) => letters[..place(at)].iter().collect(),
            Self::Letter(at, letter) => {
                let at = place(at);
                letters.splice(at..=at, [letter]);
                letters.into_iter().collect()
            }
            Self::Twice(at, length) => {
                let piece: Vec<_> = letters.iter().copied().skip(place(at)).take(length).collect();
                let at = place(at);
                letters.splice(at..at, piece);
                letters.into_iter().collect()
            }
            Self::Gap(at, length) => {
                let at = place(at);
                letters.drain(at..(at + length).min(letters.len()));
                letters.into_iter().collect()
            }
            Self::Value(at, other) => {
                let mut message: Value = serde_json::from_str(text).unwrap();
                let places = places(&message, "");
                let other = others()[other % others().len()].clone();
                *message.pointer_mut(&places[at % places.len()]).unwrap() = other;
                message.to_string()
            }
            Self::Key(at) => {
                let message: Value = serde_json::from_str(text).unwrap();
                let keys: Vec<_> = message.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
                let other = &others()[at % others().len()];
                format!("{{{:?}: {other}, {}", keys[at % keys.len()], &text[1..])
            }
            Self::Nest(depth) => {
                let (open, close) = if depth % 2 == 0 { ("[", "]") } else { ("{\"type\":", "}") };
                format!("{}{text}{}", open.repeat(depth), close.repeat(depth))
            }
        }
    }
}

/// JSON pointers to every value below this one.
fn places(value: &Value, at: &str) -> Vec<String> {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (format!("{at}/{key}"), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (format!("{at}/{index}"), value)).collect()
        }
        _ => Vec::new(),
    };
    let deeper = inside.into_iter().flat_map(|(at, value)| {
        let below = places(value, &at);
        std::iter::once(at).chain(below)
    });
    deeper.collect()
}

fn others() -> Vec<Value> {
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
