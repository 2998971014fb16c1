//! Events that the data channel of a call may carry (`client.data_channel` of OpenAI's Live API): an application restricts a page that
//! it does not trust. Other connections to the call are not restricted.

#![cfg_attr(not(feature = "webrtc"), allow(dead_code, reason = "there are no calls"))]

use serde::Deserialize;
use serde_json::{Value, json};

/// Most events in one list, and the longest name of one, bytes.
const EVENTS_MAX: usize = 64;
const NAME_MAX_BYTES: usize = 128;

/// Events that may pass; all by default.
#[derive(Debug, Default)]
pub(crate) struct ChannelRules {
    /// From the client.
    client: Option<Vec<String>>,
    /// To the client.
    server: Option<Vec<String>>,
}

/// The beginning of an event.
#[derive(Deserialize, Default)]
struct Head {
    #[serde(rename = "type", default)]
    kind: String,
    event_id: Option<String>,
}

impl Head {
    fn of(event: &str) -> Self {
        serde_json::from_str(event).unwrap_or_default()
    }
}

impl ChannelRules {
    /// All events may pass.
    pub(crate) const ALL: Self = Self { client: None, server: None };

    /// Reads the `client` of a session.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(crate) fn read(client: &Value) -> Result<Self, &'static str> {
        let channel = &client["data_channel"];
        if !client.is_null() && !channel.is_object() {
            return Err("session.client.data_channel");
        }
        let client = read_list(&channel["allowed_client_events"], |event| Some(event.as_str()?.to_owned()));
        let server =
            read_list(&channel["allowed_server_events"], |event| Some(event["type"].as_str()?.to_owned()));
        Ok(Self {
            client: client.ok_or("session.client.data_channel.allowed_client_events")?,
            server: server.ok_or("session.client.data_channel.allowed_server_events")?,
        })
    }

    /// True if an event of the session may reach the client.
    pub(crate) fn permits_to_client(&self, event: &str) -> bool {
        self.server.as_ref().is_none_or(|permitted| permitted.contains(&Head::of(event).kind))
    }

    /// The error that answers an event of the client which it may not send; `None` for any other.
    pub(crate) fn refusal(&self, event: &str) -> Option<String> {
        let permitted = self.client.as_ref()?;
        let Head { kind, event_id } = Head::of(event);
        if permitted.contains(&kind) {
            return None;
        }
        let shown: String = kind.chars().take(NAME_MAX_BYTES).collect();
        let mut error = json!({
            "type": "invalid_request_error", "code": "event_not_permitted", "param": "type",
            "message": format!("The session does not permit '{shown}' on the data channel."),
        });
        if let Some(id) = event_id.filter(|id| id.len() <= NAME_MAX_BYTES) {
            error["client_event_id"] = id.into();
        }
        Some(json!({ "type": "error", "event_id": "event_not_permitted", "error": error }).to_string())
    }
}

/// Reads a list of events, none for `all` and without one. `None` for another value.
fn read_list(list: &Value, name: impl Fn(&Value) -> Option<String>) -> Option<Option<Vec<String>>> {
    match list {
        Value::Null => Some(None),
        Value::String(all) if all == "all" => Some(None),
        Value::Array(events) if events.len() <= EVENTS_MAX => {
            let names = events.iter().map(|event| name(event).filter(|name| name.len() <= NAME_MAX_BYTES));
            names.collect::<Option<Vec<_>>>().map(Some)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_events_pass() {
        let rules = ChannelRules::read(&json!({"data_channel": {
            "allowed_client_events": ["session.close"],
            "allowed_server_events": [{"type": "session.started"}, {"type": "error"}]}}))
        .unwrap();
        assert_eq!(rules.refusal(r#"{"type": "session.close"}"#), None);
        for event in [r#"{"type": "session.update", "event_id": "e"}"#, "{}", "no JSON"] {
            let error: Value = serde_json::from_str(&rules.refusal(event).unwrap()).unwrap();
            assert_eq!(error["error"]["code"], "event_not_permitted");
            assert!(rules.permits_to_client(&error.to_string()));
        }
        assert!(!rules.permits_to_client(r#"{"type": "info"}"#));
        let error = rules.refusal(r#"{"type": "session.update", "event_id": "e"}"#).unwrap();
        assert!(error.contains(r#""client_event_id":"e""#), "{error}");
    }

    #[test]
    fn rules_are_lists_or_all() {
        for (client, is_right) in [
            (json!(null), true),
            (json!({"data_channel": {"allowed_client_events": "all"}}), true),
            (json!({"data_channel": {"allowed_client_events": []}}), true),
            (json!({}), false),
            (json!({"data_channel": {"allowed_client_events": "some"}}), false),
            (json!({"data_channel": {"allowed_client_events": [1]}}), false),
            (json!({"data_channel": {"allowed_server_events": ["session.started"]}}), false),
            (json!({"data_channel": {"allowed_client_events": vec!["x"; 65]}}), false),
        ] {
            let rules = ChannelRules::read(&client);
            assert_eq!(rules.is_ok(), is_right, "{client}");
        }
        let none = ChannelRules::read(&json!({"data_channel": {"allowed_client_events": []}})).unwrap();
        assert!(none.refusal(r#"{"type": "session.close"}"#).is_some());
        assert!(ChannelRules::default().refusal("{}").is_none());
    }
}
