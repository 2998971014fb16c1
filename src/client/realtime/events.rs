//! Writes events: their names and ids.

use std::sync::Arc;

use serde_json::Value;

use super::numbered_input::NumberedInput;
use crate::{
    client::json_text::write_field,
    spelling::{
        ClientMapping,
        client::{RealtimeEvent, RealtimeNames},
    },
    vocabulary::{EntryId, Message},
};

/// Writer of one connection's events.
#[derive(Debug)]
pub(super) struct EventWriter {
    pub(super) mapping: Arc<ClientMapping>,
    pub(super) is_beta: bool,
    /// Makes the ids of sessions differ.
    pub(super) seed: u32,
    count: u32,
    /// Number and position of the client's input, in protocols that have them.
    pub(super) numbered: Option<NumberedInput>,
}

impl EventWriter {
    pub(super) fn new(mapping: Arc<ClientMapping>) -> Self {
        let numbers_input = mapping.realtime.as_ref().is_some_and(RealtimeNames::numbers_input);
        let numbered = numbers_input.then(NumberedInput::default);
        Self { mapping, is_beta: false, seed: 0, count: 0, numbered }
    }

    /// Name of an event, and its id; `None` for an event that this shape does not have.
    pub(super) fn begin(&mut self, event: RealtimeEvent) -> Option<(&str, String)> {
        self.count = self.count.wrapping_add(1);
        let id = format!("event_{:08x}{:08x}", self.seed, self.count);
        let name = self.mapping.realtime.as_ref()?.event(event, self.is_beta);
        (!name.is_empty()).then_some((name, id))
    }

    /// A message with these fields.
    pub(super) fn message(&mut self, event: RealtimeEvent, mut fields: Value) -> Option<Message> {
        let (name, id) = self.begin(event)?;
        fields["type"] = name.into();
        fields["event_id"] = id.into();
        self.add_position(event, &mut fields);
        Some(Message::Text(fields.to_string()))
    }

    /// Adds the position in the client's input, and the client's name for the message that an event answers.
    fn add_position(&mut self, event: RealtimeEvent, fields: &mut Value) {
        let Some(input) = &mut self.numbered else { return };
        if event.is_output()
            && let Ok(label) = serde_json::from_str(&input.label())
        {
            fields["sglang"] = label;
        }
        if event.is_answer() && fields["client_event_id"].is_null() {
            fields["client_event_id"] = input.event_id.as_str().into();
        }
    }

    /// A message with these fields, and one more that is given as JSON.
    pub(super) fn message_with(
        &mut self,
        event: RealtimeEvent,
        mut fields: Value,
        key: &str,
        json: &str,
    ) -> Option<Message> {
        let (name, id) = self.begin(event)?;
        fields["type"] = name.into();
        fields["event_id"] = id.into();
        self.add_position(event, &mut fields);
        let fields = fields.to_string();
        let mut text = String::with_capacity(key.len() + json.len() + fields.len() + 8);
        write_field(&mut text, key, json);
        // The fields are not empty: a comma and their first key follow.
        text.push(',');
        text.push_str(&fields[1..]);
        Some(Message::Text(text))
    }

    /// Id of the item with this number.
    pub(super) fn item_id(&self, number: EntryId) -> String {
        format!("item_{:08x}{:08x}", self.seed, number.0)
    }
}
