//! Example commands of a client protocol, made from its mapping, and the recognition of its events.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ClientMapping, EventMessage, EventSlot, ExactMessage, ProtocolCommand, Verb};
use crate::{
    spelling::field::{FieldRole, FieldType, ProtocolField},
    vocabulary::{EventName, Slot, SlotValue},
};

impl ClientMapping {
    /// An example of the first command with this verb, with the fields that the verb needs and those that are required; `None` if the protocol has no such command, or only a binary message.
    #[must_use]
    pub fn example(&self, verb: Verb, text: &str, audio: &str) -> Option<String> {
        let is_text = |command: &&ProtocolCommand| !matches!(command.exactly, Some(ExactMessage::Binary(_)));
        let commands = self.commands.iter().filter(is_text);
        let ends = |verb: Verb| matches!(verb, Verb::Finish | Verb::Close | Verb::CancelSession);
        let (command, conditions) = commands
            .filter_map(|command| Some((command, command.verbs.iter().find(|known| known.verb == verb)?)))
            // One that ends the session as well is the last choice.
            .min_by_key(|(command, _)| !ends(verb) && command.verbs.iter().any(|known| ends(known.verb)))?;
        if let Some(ExactMessage::Text(message)) = &command.exactly {
            return Some(message.clone());
        }
        let needs_text = matches!(verb, Verb::Speak | Verb::AppendText | Verb::Ask | Verb::Tell);
        let of_fields = command.fields.iter().filter_map(|field| {
            let value = match field.file.to {
                Some(FieldRole::Text) if needs_text => field.example_with(text),
                Some(FieldRole::Audio) if verb == Verb::Audio => audio.into(),
                _ if field.file.required => field.example(),
                _ => return None,
            };
            Some((field.slot, value))
        });
        let mut values: BTreeMap<_, _> = of_fields.collect();
        // They decide whether the verb applies, so that their values count.
        for (slot, value, is_any) in conditions.example_values() {
            match is_any {
                true => drop(values.entry(slot).or_insert(value)),
                false => drop(values.insert(slot, value)),
            }
        }
        match command.present {
            Some(slot) => values.entry(slot).or_insert_with(|| {
                let field = command.fields.iter().find(|field| field.slot == slot);
                field.map_or_else(|| json!({}), ProtocolField::example)
            }),
            None => values.entry(0).or_insert_with(|| command.name.as_str().into()),
        };
        Some(self.extractor.compose(&values).to_string())
    }

    /// True if the text message is this event with this value in this slot. Its other values may be anything. False for an
    /// event whose messages do not have the slot.
    #[must_use]
    pub fn is_event(&self, name: EventName, slot: Slot, value: &str, message: &str) -> bool {
        self.event(name).iter().any(|spelled| spelled.says(slot, value, message))
    }
}

impl EventMessage {
    fn says(&self, slot: Slot, value: &str, message: &str) -> bool {
        if slot == Slot::Text && self.template.uses_slot(EventSlot::Event(Slot::JoinedText)) {
            let says = |value: &str| self.says(Slot::JoinedText, value, message);
            return says(value) || says(&format!(" {value}"));
        }
        let mut json = String::new();
        self.render(&mut json, |found| match found {
            EventSlot::Event(found) if found == slot => SlotValue::Str(value),
            _ => SlotValue::Null,
        });
        if slot == Slot::Text {
            let lists_words = self.template.uses_slot(EventSlot::Event(Slot::Words));
            if lists_words && !self.template.uses_slot(EventSlot::Event(slot)) {
                return value.split(' ').all(|word| message.contains(word));
            }
            if self.is_text || self.template.uses_slot(EventSlot::Event(Slot::LastSegments)) {
                return message.contains(value);
            }
        }
        let pattern: Value = serde_json::from_str(&json).unwrap_or_default();
        let message: Value = serde_json::from_str(message).unwrap_or_default();
        self.template.uses_slot(EventSlot::Event(slot)) && matches_pattern(&pattern, &message)
    }
}

/// True if the message has all values of the pattern but `null`, which stands for any value.
fn matches_pattern(pattern: &Value, message: &Value) -> bool {
    match (pattern, message) {
        (Value::Null, _) => true,
        (Value::Object(pattern), message) => pattern
            .iter()
            .all(|(key, value)| matches_pattern(value, message.get(key).unwrap_or(&Value::Null))),
        (Value::Array(pattern), Value::Array(message)) => {
            pattern.len() == message.len()
                && pattern.iter().zip(message).all(|(one, other)| matches_pattern(one, other))
        }
        (Value::String(pattern), Value::String(message)) if pattern != message => {
            // A number within a text, such as `utt-${segment_id:digits}`.
            let around = pattern.split_once("null");
            around
                .and_then(|(start, end)| message.strip_prefix(start)?.strip_suffix(end))
                .is_some_and(|number| number.parse::<i64>().is_ok())
        }
        _ => pattern == message,
    }
}

impl ProtocolField {
    /// The value of a text, or of a list with this text alone.
    fn example_with(&self, text: &str) -> Value {
        match &self.file.items {
            None if self.file.type_name == FieldType::List => json!([text]),
            None => text.into(),
            Some(items) => json!([items.example(text)]),
        }
    }

    /// A value that the field accepts.
    fn example(&self) -> Value {
        let least = self.file.min.or(self.file.above.map(|above| above + 1.0)).unwrap_or(1.0);
        match self.file.type_name {
            FieldType::Text | FieldType::Base64 => "x".repeat((least as usize).clamp(1, 64)).into(),
            FieldType::Integer => (least as i64).into(),
            FieldType::Number => least.into(),
            FieldType::Flag | FieldType::Presence => true.into(),
            FieldType::List => json!([]),
            FieldType::Choice => {
                self.file.values.first().or_else(|| self.file.value_map.keys().next()).cloned().into()
            }
            FieldType::Object => json!({}),
        }
    }
}
