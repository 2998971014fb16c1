//! The first event of a call's session, which a connection that joins later gets as well.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Events that begin a session: of Realtime, and of Live.
const GREETINGS: [&str; 2] = ["session.created", "session.started"];
/// Event with changed settings.
const UPDATED: &str = "session.updated";

/// The greeting of a session, with its present settings.
#[derive(Debug, Default)]
pub(super) struct Greeting(Option<SessionEvent>);

#[derive(Debug, Serialize, Deserialize)]
struct SessionEvent {
    #[serde(rename = "type")]
    kind: String,
    event_id: String,
    session: Box<RawValue>,
}

impl Greeting {
    /// Takes note of an event of the session.
    pub(super) fn note(&mut self, event: &str) {
        // Most events are of other kinds, and need not be parsed.
        if !event.contains("\"session.") {
            return;
        }
        let Ok(event) = serde_json::from_str::<SessionEvent>(event) else { return };
        match &mut self.0 {
            None if GREETINGS.contains(&&*event.kind) => self.0 = Some(event),
            Some(greeting) if event.kind == UPDATED => greeting.session = event.session,
            _ => {}
        }
    }

    /// The greeting; `None` until the session has begun.
    pub(super) fn text(&self) -> Option<String> {
        serde_json::to_string(self.0.as_ref()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_is_the_first_event_with_the_latest_settings() {
        let mut greeting = Greeting::default();
        greeting.note(r#"{"type":"session.updated","event_id":"event_0","session":{}}"#);
        assert_eq!(greeting.text(), None, "the session has not begun");
        greeting.note(r#"{"session":{"voice":"a"},"type":"session.created","event_id":"event_1"}"#);
        greeting.note(r#"{"type":"response.done","event_id":"event_2","response":{"id":"session.updated"}}"#);
        let first = r#"{"type":"session.created","event_id":"event_1","session":{"voice":"a"}}"#;
        assert_eq!(greeting.text().as_deref(), Some(first));
        greeting.note(r#"{"type":"session.updated","event_id":"event_3","session":{"voice":"b"}}"#);
        assert_eq!(greeting.text().unwrap(), first.replace("\"a\"", "\"b\""));
    }
}
