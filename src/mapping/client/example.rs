//! Example commands of a client protocol, made from its mapping.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ClientMapping, Verb};
use crate::mapping::field::{FieldRole, FieldType, ProtocolField};

impl ClientMapping {
    /// An example of the first command with this verb, with the fields that the verb needs and those that are required; `None` if the protocol has no such command, or only an empty message.
    #[must_use]
    pub fn example(&self, verb: Verb, text: &str, audio: &str) -> Option<String> {
        let commands = self.commands.iter().filter(|command| command.empty.is_none());
        let (command, conditions) = commands
            .filter_map(|command| Some((command, command.verbs.iter().find(|known| known.verb == verb)?)))
            .next()?;
        let needs_text =
            matches!(verb, Verb::Speak | Verb::AppendText | Verb::StreamText | Verb::Ask | Verb::Tell);
        let mut values = BTreeMap::from([match command.present {
            Some(slot) => (slot, json!({})),
            None => (0, command.name.as_str().into()),
        }]);
        values.extend(conditions.example_values());
        values.extend(command.fields.iter().filter_map(|field| {
            let value = match field.file.to {
                Some(FieldRole::Text) if needs_text => text.into(),
                Some(FieldRole::Audio) if verb == Verb::Audio => audio.into(),
                _ if field.file.required => field.example(),
                _ => return None,
            };
            Some((field.slot, value))
        }));
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
            FieldType::Flag => true.into(),
            FieldType::TextList => json!([]),
            FieldType::Choice => {
                self.file.values.first().or_else(|| self.file.value_map.keys().next()).cloned().into()
            }
            FieldType::Object => json!({}),
        }
    }
}
