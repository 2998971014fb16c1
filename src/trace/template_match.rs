//! Messages taken apart by the template they were made with, so that another template can say the same.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::mapping::template::{Fill, Template};

/// Stands for a hole while a template is read as a pattern; no message begins like this.
const MARK: char = '\u{1}';
/// More than any template has slots.
const MOST_SLOTS: usize = 64;

/// What stood in the holes of a message, by slot.
pub(super) type Filled = BTreeMap<String, Value>;

/// What stands in a message's holes; `None` for a message that this template did not make.
pub(super) fn taken_apart(template: &Template, slots: &[&str], message: &Value) -> Option<Filled> {
    let marks: Vec<String> = (0..MOST_SLOTS).map(|slot| format!("{MARK}{slot}")).collect();
    let mut json = String::new();
    template.render(&mut json, |slot| marks.get(slot).map_or(Fill::Null, |mark| Fill::Str(mark)));
    let pattern: Value = serde_json::from_str(&json).ok()?;
    let mut filled = Filled::new();
    matches(&pattern, message, slots, &mut filled).then_some(filled)
}

/// The template with these values; a slot without one is `null`.
pub(super) fn put_together(template: &Template, slots: &[&str], filled: &Filled) -> String {
    let value = |slot: &&str| filled.get(*slot).map_or("null".to_owned(), Value::to_string);
    let values: Vec<String> = slots.iter().map(value).collect();
    let mut json = String::new();
    template.render(&mut json, |slot| values.get(slot).map_or(Fill::Null, |value| Fill::Raw(value)));
    json
}

fn matches(pattern: &Value, message: &Value, slots: &[&str], filled: &mut Filled) -> bool {
    if let Some(slot) = slot_of(pattern, slots) {
        return *filled.entry(slot.to_owned()).or_insert_with(|| message.clone()) == *message;
    }
    match (pattern, message) {
        (Value::Object(pattern), Value::Object(message)) => {
            let known = message.keys().all(|key| pattern.contains_key(key));
            known
                && pattern.iter().all(|(key, pattern)| match message.get(key) {
                    Some(message) => matches(pattern, message, slots, filled),
                    // A member that may be left out.
                    None => slot_of(pattern, slots).is_some(),
                })
        }
        (Value::Array(pattern), Value::Array(message)) => {
            let mut both = pattern.iter().zip(message);
            pattern.len() == message.len() && both.all(|(one, other)| matches(one, other, slots, filled))
        }
        _ => pattern == message,
    }
}

fn slot_of<'s>(pattern: &Value, slots: &[&'s str]) -> Option<&'s str> {
    let number: usize = pattern.as_str()?.strip_prefix(MARK)?.parse().ok()?;
    // A slot that has no name here is as good as any.
    Some(slots.get(number).copied().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_template_made_another_says_too() {
        let slots = &["text", "at_ms"];
        let one =
            Template::compile(r#"{"type": "a", "deep": {"t": ${text}}, "at": [${at_ms}]}"#, slots).unwrap();
        let other =
            Template::compile(r#"{"text": ${text}, "again": ${text}, "ms": ${at_ms}}"#, slots).unwrap();
        let message = serde_json::json!({"type": "a", "deep": {"t": "Hi \"you\""}, "at": [5]});
        let filled = taken_apart(&one, slots, &message).unwrap();
        assert_eq!(
            put_together(&other, slots, &filled),
            r#"{"text":"Hi \"you\"","again":"Hi \"you\"","ms":5}"#
        );
        for stranger in [
            r#"{"type":"b","deep":{"t":""},"at":[5]}"#,
            r#"{"type":"a"}"#,
            "[]",
            r#"{"type":"a","deep":{"t":1},"at":[1],"x":1}"#,
        ] {
            assert_eq!(
                taken_apart(&one, slots, &serde_json::from_str(stranger).unwrap()),
                None,
                "{stranger}"
            );
        }
    }
}
