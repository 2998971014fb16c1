//! Example commands of a client protocol, made from its mapping.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ClientMapping, ExactMessage, ProtocolCommand, Verb};
use crate::mapping::field::{FieldRole, FieldType, ProtocolField};

impl ClientMapping {
    /// An example of the first command with this verb, with the fields that the verb needs and those that are required; `None` if the protocol has no such command, or only a binary message.
    #[must_use]
    pub fn example(&self, verb: Verb, text: &str, audio: &str) -> Option<String> {
        let is_text = |command: &&ProtocolCommand| !matches!(command.exactly, Some(ExactMessage::Binary(_)));
        let commands = self.commands.iter().filter(is_text);
        let (command, conditions) = commands
            .filter_map(|command| Some((command, command.verbs.iter().find(|known| known.verb == verb)?)))
            .next()?;
        if let Some(ExactMessage::Text(message)) = &command.exactly {
            return Some(message.clone());
        }
        let needs_text = matches!(verb, Verb::Speak | Verb::AppendText | Verb::Ask | Verb::Tell);
        let of_fields = command.fields.iter().filter_map(|field| {
            let value = match field.file.to {
                Some(FieldRole::Text) if needs_text => text.into(),
                Some(FieldRole::Audio) if verb == Verb::Audio => audio.into(),
                _ if field.file.required => field.example(),
                _ => return None,
            };
            Some((field.slot, value))
        });
        let mut values: BTreeMap<_, _> = of_fields.collect();
        // They decide whether the verb applies, so that their values count.
        values.extend(conditions.example_values());
        match command.present {
            Some(slot) => values.entry(slot).or_insert_with(|| {
                let field = command.fields.iter().find(|field| field.slot == slot);
                field.map_or_else(|| json!({}), ProtocolField::example)
            }),
            None => values.entry(0).or_insert_with(|| command.name.as_str().into()),
        };
        Some(self.extractor.compose(&values).to_string())
    }
}

impl ProtocolField {
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
