//! Who else a server might be, by what it said: one that client protocols are made for.
//!
//! Recognised through the mappings, as everything is: a message is an event of a protocol if it has the event's name and
//! all of its keys.

use serde_json::Value;

use crate::mapping::{ClientMapping, Library, client::EventName, template::SlotValue};

/// The title of the client protocol that all of these messages belong to.
#[must_use]
pub fn recognize_client_protocol(library: &Library, messages: &[String]) -> Option<String> {
    let messages: Vec<Value> =
        messages.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>().ok()?;
    let matches_all_messages = |client: &&std::sync::Arc<ClientMapping>| {
        messages
            .iter()
            .all(|message| EventName::ALL.into_iter().any(|event| is_event_of(client, event, message)))
    };
    let found = library
        .clients()
        .filter(|client| !client.is_relayed() && !client.command_key.is_empty())
        .find(matches_all_messages);
    found.filter(|_| !messages.is_empty()).map(|client| client.title.clone())
}

fn is_event_of(client: &ClientMapping, event: EventName, message: &Value) -> bool {
    let Some(template) = client.event(event) else { return false };
    let mut json = String::new();
    template.render(&mut json, |_| SlotValue::Null);
    let Ok(Value::Object(sample)) = serde_json::from_str(&json) else { return false };
    let event_name_of = |value: &Value| value.pointer(&client.command_key).cloned();
    let name = event_name_of(&Value::Object(sample.clone()));
    name.is_some() && event_name_of(message) == name && sample.keys().all(|key| message.get(key).is_some())
}
