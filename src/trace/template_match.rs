//! Matches a message against the template that rendered it, so that another template can render the same values.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::mapping::template::{SlotValue, Template};

/// Marks a slot in a template that is rendered as a pattern; no message value begins with it.
const SLOT_MARK: char = '\u{1}';
/// Upper bound of the number of slots of a template.
const SLOTS_MAX: usize = 64;

/// Values of the slots of a message, by slot name.
pub(crate) type SlotValues = BTreeMap<String, Value>;

/// Extracts the slot values of a message; `None` if the message does not match the template.
pub(super) fn extract_slots<S: Copy>(
    template: &Template<S>,
    slots: &[&str],
    number: impl Fn(S) -> usize,
    message: &Value,
) -> Option<SlotValues> {
    let markers: Vec<String> = (0..SLOTS_MAX).map(|slot| format!("{SLOT_MARK}{slot}")).collect();
    let mut json = String::new();
    template.render(&mut json, |slot| {
        markers.get(number(slot)).map_or(SlotValue::Null, |marker| SlotValue::Str(marker))
    });
    let pattern: Value = serde_json::from_str(&json).ok()?;
    let mut slot_values = SlotValues::new();
    matches(&pattern, message, slots, &mut slot_values).then_some(slot_values)
}

/// Renders a template with these values; a slot without a value is `null`.
pub(super) fn render_slots<S: Copy>(
    template: &Template<S>,
    slots: &[&str],
    number: impl Fn(S) -> usize,
    slot_values: &SlotValues,
) -> String {
    let value = |slot: &&str| slot_values.get(*slot).map_or("null".to_owned(), Value::to_string);
    let values: Vec<String> = slots.iter().map(value).collect();
    let mut json = String::new();
    template.render(&mut json, |slot| {
        values.get(number(slot)).map_or(SlotValue::Null, |value| SlotValue::Raw(value))
    });
    json
}

fn matches(pattern: &Value, message: &Value, slots: &[&str], slot_values: &mut SlotValues) -> bool {
    if let Some(slot) = slot_name(pattern, slots) {
        return *slot_values.entry(slot.to_owned()).or_insert_with(|| message.clone()) == *message;
    }
    match (pattern, message) {
        (Value::Object(pattern), Value::Object(message)) => {
            let known = message.keys().all(|key| pattern.contains_key(key));
            known
                && pattern.iter().all(|(key, pattern)| match message.get(key) {
                    Some(message) => matches(pattern, message, slots, slot_values),
                    // A slot member may be omitted.
                    None => slot_name(pattern, slots).is_some(),
                })
        }
        (Value::Array(pattern), Value::Array(message)) => {
            let mut both = pattern.iter().zip(message);
            pattern.len() == message.len() && both.all(|(one, other)| matches(one, other, slots, slot_values))
        }
        (Value::String(pattern), Value::String(message)) => matches_text(pattern, message),
        _ => pattern == message,
    }
}

/// True if the texts are equal, but for a number within the text, which the pattern has as `null`.
fn matches_text(pattern: &str, message: &str) -> bool {
    let around_number = |(start, end): (&str, &str)| {
        let number = message.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
        number.is_some_and(|number| number.parse::<i64>().is_ok())
    };
    pattern == message || pattern.split_once("null").is_some_and(around_number)
}

fn slot_name<'s>(pattern: &Value, slots: &[&'s str]) -> Option<&'s str> {
    let number: usize = pattern.as_str()?.strip_prefix(SLOT_MARK)?.parse().ok()?;
    // Unnamed slots match any value.
    Some(slots.get(number).copied().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_within_a_text_is_matched_and_rendered() {
        let template = Template::compile(r#"{"ms": ${ms}, "text": "lost ${ms:digits}ms"}"#, &["ms"]).unwrap();
        let message = serde_json::json!({"ms": 5, "text": "lost 5ms"});
        let slot_values = extract_slots(&template, &["ms"], |slot| slot, &message).unwrap();
        assert_eq!(
            render_slots(&template, &["ms"], |slot| slot, &slot_values),
            r#"{"ms":5,"text":"lost 5ms"}"#
        );
        let other = serde_json::json!({"ms": 5, "text": "lost itms"});
        assert_eq!(extract_slots(&template, &["ms"], |slot| slot, &other), None);
    }

    #[test]
    fn slots_read_by_one_template_render_with_another() {
        let slots = &["text", "at_ms"];
        let one =
            Template::compile(r#"{"type": "a", "deep": {"t": ${text}}, "at": [${at_ms}]}"#, slots).unwrap();
        let other =
            Template::compile(r#"{"text": ${text}, "again": ${text}, "ms": ${at_ms}}"#, slots).unwrap();
        let message = serde_json::json!({"type": "a", "deep": {"t": "Hi \"you\""}, "at": [5]});
        let slot_values = extract_slots(&one, slots, |slot| slot, &message).unwrap();
        assert_eq!(
            render_slots(&other, slots, |slot| slot, &slot_values),
            r#"{"text":"Hi \"you\"","again":"Hi \"you\"","ms":5}"#
        );
        for other_message in [
            r#"{"type":"b","deep":{"t":""},"at":[5]}"#,
            r#"{"type":"a"}"#,
            "[]",
            r#"{"type":"a","deep":{"t":1},"at":[1],"x":1}"#,
        ] {
            assert_eq!(
                extract_slots(&one, slots, |slot| slot, &serde_json::from_str(other_message).unwrap()),
                None,
                "{other_message}"
            );
        }
    }
}
