//! Recognises a server for clients, such as Macaw or voxbridge itself, by its messages.
//!
//! A message is an event of a client protocol if it has the name and all keys of the event in the mapping.

use std::sync::Arc;

use serde_json::Value;

use super::experiments::Clue;
use crate::{
    spelling::{ClientMapping, Library, client::EventSlot, template::Template},
    vocabulary::{EventName, SlotValue},
};

/// Recognises a server by its messages: its dialect, or only a client protocol that all of them belong to. `None` without
/// messages.
pub fn recognize_server(library: &Library, messages: &[String]) -> Option<Clue> {
    let client = recognize_client_protocol(library, messages)?;
    // Some protocols are spoken by servers of models, too.
    Some(match library.upstream(&client.name) {
        Ok(dialect) => Clue::OtherDialect(dialect.name.clone(), dialect.title.clone()),
        Err(_) => Clue::SpeaksClientProtocol(client.title.clone()),
    })
}

fn recognize_client_protocol<'l>(
    library: &'l Library,
    messages: &[String],
) -> Option<&'l Arc<ClientMapping>> {
    let messages: Vec<Value> =
        messages.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>().ok()?;
    let matches_all_messages = |client: &&Arc<ClientMapping>| {
        messages
            .iter()
            .all(|message| EventName::ALL.into_iter().any(|event| is_event_of(client, event, message)))
    };
    let found = library
        .clients()
        .filter(|client| !client.is_relayed() && !client.command_key.is_empty())
        .find(matches_all_messages);
    found.filter(|_| !messages.is_empty())
}

fn is_event_of(client: &ClientMapping, event: EventName, message: &Value) -> bool {
    client.event(event).iter().any(|spelled| is_rendered_by(&spelled.template, client, message))
}

fn is_rendered_by(template: &Template<EventSlot>, client: &ClientMapping, message: &Value) -> bool {
    let mut json = String::new();
    template.render(&mut json, |_| SlotValue::Null);
    let Ok(Value::Object(sample)) = serde_json::from_str(&json) else { return false };
    let event_name_of = |value: &Value| value.pointer(&client.command_key).cloned();
    let name = event_name_of(&Value::Object(sample.clone()));
    name.is_some() && event_name_of(message) == name && sample.keys().all(|key| message.get(key).is_some())
}
