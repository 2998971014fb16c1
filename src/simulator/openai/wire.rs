//! Events of the server as JSON: their ids, the order of their members, and errors.

use serde_json::{Map, Value, json};

use crate::{RealtimeServer, messages, session_context::SimContext};

/// Letters and digits of OpenAI's ids.
const ID_CHARS: usize = 21;

/// Error that the session survives.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rejected {
    kind: &'static str,
    code: &'static str,
    pub(super) message: String,
    param: Option<String>,
    /// The server's error names no event of the client.
    is_anonymous: bool,
}

impl Rejected {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        let kind = "invalid_request_error";
        Self { kind, code, message: message.into(), param: None, is_anonymous: false }
    }

    /// An error of the server itself.
    pub(super) fn server(message: impl Into<String>) -> Self {
        Self { kind: "server_error", ..Self::new("server_error", message) }
    }

    pub(super) fn at(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub(super) fn anonymous(self) -> Self {
        Self { is_anonymous: true, ..self }
    }

    /// `error` of an event about the client's event with this id.
    pub(super) fn to_json(&self, event_id: Option<&str>) -> Value {
        json!({
            "type": self.kind, "code": self.code, "message": self.message, "param": self.param,
            "event_id": event_id.filter(|_| !self.is_anonymous),
        })
    }
}

impl RealtimeServer {
    /// A new id of an object: `resp`, `item`, `call`, `sess` or `conv`.
    pub(super) fn new_id(self, prefix: &str, rng: &mut fastrand::Rng) -> String {
        match self {
            Self::Openai => {
                let letters: String = std::iter::repeat_with(|| rng.alphanumeric()).take(ID_CHARS).collect();
                format!("{prefix}_{letters}")
            }
            Self::VllmOmni => format!("{prefix}_{:024x}", rng.u128(..) >> 32),
        }
    }

    /// Sends an event. OpenAI names the type first, and writes null for what is absent; the package sorts the members and leaves
    /// it out, as pydantic does.
    pub(super) fn send(self, ctx: &mut SimContext<'_>, kind: &str, members: Value) {
        let Value::Object(mut members) = members else { return };
        let text = match self {
            Self::Openai => {
                let head = [("type", kind.into()), ("event_id", self.new_id("event", ctx.rng).into())];
                let rest = members.iter_mut().map(|(key, value)| (key.as_str(), value.take()));
                messages::to_json(head.into_iter().chain(rest))
            }
            Self::VllmOmni => {
                members.insert("type".to_owned(), kind.into());
                members.insert("event_id".to_owned(), self.new_id("evt", ctx.rng).into());
                // The handler writes these events itself.
                let previous = members.remove("previous_item_id");
                remove_nulls(&mut members);
                members.extend(previous.map(|id| ("previous_item_id".to_owned(), id)));
                Value::Object(members).to_string()
            }
        };
        ctx.send_text(text);
    }

    pub(super) fn send_error(self, ctx: &mut SimContext<'_>, rejected: &Rejected, event_id: Option<&str>) {
        self.send(ctx, "error", json!({"error": rejected.to_json(event_id)}));
    }
}

fn remove_nulls(members: &mut Map<String, Value>) {
    members.retain(|_, value| !value.is_null());
    for value in members.values_mut() {
        remove_inner_nulls(value);
    }
}

fn remove_inner_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => remove_nulls(members),
        Value::Array(items) => items.iter_mut().for_each(remove_inner_nulls),
        _ => {}
    }
}
