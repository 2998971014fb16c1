//! Writes events: their names and ids.

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::{
    client::json_text::write_field,
    spelling::{ClientMapping, client::RealtimeEvent},
    vocabulary::{EntryId, Message},
};

/// Fields that a protocol of this kind adds to events.
pub(in crate::client) trait EventLabels: fmt::Debug + Default + Send + Sync {
    /// The field of an event with audio.
    fn audio_field(&mut self) -> Option<ExtraField> {
        None
    }

    /// Adds the fields of any other event.
    fn add_fields(&mut self, _event: RealtimeEvent, _fields: &mut Value) {}

    /// Adds the fields of an error, which may end the session.
    fn add_error_fields(&self, _is_fatal: bool, _fields: &mut Value) {}
}

/// No fields, as with OpenAI.
#[derive(Debug, Default)]
pub(in crate::client) struct NoLabels;

impl EventLabels for NoLabels {}

/// A field whose value is JSON.
#[derive(Debug)]
pub(in crate::client) struct ExtraField {
    pub(in crate::client) key: &'static str,
    pub(in crate::client) json: String,
}

/// Writer of one connection's events.
#[derive(Debug)]
pub(super) struct EventWriter<L> {
    pub(super) mapping: Arc<ClientMapping>,
    pub(super) is_beta: bool,
    /// Makes the ids of sessions differ.
    pub(super) seed: u32,
    count: u32,
    pub(super) labels: L,
}

impl<L: EventLabels> EventWriter<L> {
    pub(super) fn new(mapping: Arc<ClientMapping>) -> Self {
        Self { mapping, is_beta: false, seed: 0, count: 0, labels: L::default() }
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
        self.labels.add_fields(event, &mut fields);
        Some(Message::Text(fields.to_string()))
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
        self.labels.add_fields(event, &mut fields);
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
