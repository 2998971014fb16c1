//! What events say about the client's input.

use serde_json::{Value, json};

use super::input::UNIT_MS;
use crate::{
    client::realtime::{EventLabels, ExtraField},
    spelling::client::RealtimeEvent,
};

/// Name of the field that SGLang-Omni adds to messages.
pub(super) const EXTRA_FIELD: &str = "sglang";
/// What events say about the input.
#[derive(Debug, Default)]
pub(super) struct InputLabels {
    /// The first second whose end was not reported.
    pub(super) unit: u64,
    /// Events of this second so far.
    unit_events: u64,
    /// The client's name for its last message.
    pub(super) event_id: String,
}

impl InputLabels {
    /// Begins the second behind this one.
    pub(super) const fn end_unit(&mut self) {
        (self.unit, self.unit_events) = (self.unit + 1, 0);
    }

    /// Position of an event in the input, as JSON.
    fn position(&mut self) -> String {
        let (unit, event) = (self.unit, self.unit_events);
        self.unit_events += 1;
        format!(
            r#"{{"unit_id":"unit_{unit}","chunk_seq":{event},"media_time":{{"t_start_ms":{}.0,"duration_ms":{UNIT_MS}.0}}}}"#,
            unit * UNIT_MS
        )
    }
}

impl EventLabels for InputLabels {
    fn audio_field(&mut self) -> Option<ExtraField> {
        Some(ExtraField { key: EXTRA_FIELD, json: self.position() })
    }

    /// Adds the position in the client's input, and the client's name for the message that an event answers.
    fn add_fields(&mut self, event: RealtimeEvent, fields: &mut Value) {
        if event.is_output()
            && let Ok(position) = serde_json::from_str(&self.position())
        {
            fields[EXTRA_FIELD] = position;
        }
        if event.is_answer() && fields["client_event_id"].is_null() {
            fields["client_event_id"] = self.event_id.as_str().into();
        }
    }

    fn add_error_fields(&self, is_fatal: bool, fields: &mut Value) {
        fields[EXTRA_FIELD] = json!({ "fatal": is_fatal });
    }
}
