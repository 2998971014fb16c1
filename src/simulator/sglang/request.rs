//! Form of a client's events: known types, no missing, unknown or mistyped field (serve/realtime/schema.py).

use serde_json::{Map, Value};

pub(super) use crate::form_field::{optional, required};
use crate::{form_field, messages::object};

/// Longest `event_id`.
const EVENT_ID_MAX_CHARS: usize = 256;

const TYPES: [&str; 10] = [
    "session.update",
    "input_audio_buffer.append",
    "sglang.input_image.append",
    "conversation.item.truncate",
    "input_audio_buffer.clear",
    "sglang.input_audio.end",
    "session.close",
    "input_audio_buffer.commit",
    "response.create",
    "response.cancel",
];

/// A client's event.
#[derive(Debug)]
pub(super) enum Request {
    Update(Map<String, Value>),
    Audio {
        audio: String,
        seq: i64,
        t_start_ms: Option<f64>,
    },
    Image {
        image: String,
        t_ms: f64,
    },
    Clear,
    End,
    Close,
    /// A command that this deployment does not have.
    Refused {
        code: &'static str,
        message: &'static str,
    },
}

/// Error that the session survives.
#[derive(Debug, PartialEq)]
pub(super) struct Rejected {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) param: Option<String>,
}

impl Rejected {
    pub(super) fn request(message: impl Into<String>) -> Self {
        Self { code: "invalid_request", message: message.into(), param: None }
    }

    pub(super) fn state(message: &str) -> Self {
        Self { code: "invalid_state", ..Self::request(message) }
    }

    pub(super) fn overflow(message: &str) -> Self {
        Self { code: "buffer_overflow", ..Self::request(message) }
    }

    pub(super) fn at(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }
}

/// Form of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Text,
    EventId,
    Integer,
    Number {
        min: f64,
        max: f64,
    },
    Boolean,
    /// One of these texts.
    Word(&'static [&'static str]),
    Texts,
    AnyObject,
    Object(&'static [Field]),
    /// Null is also allowed.
    Nullable(&'static Self),
}

/// Member of an object.
pub(super) type Field = form_field::Field<Form>;

pub(super) const ANY_NUMBER: Form = Form::Number { min: f64::NEG_INFINITY, max: f64::INFINITY };

const UPDATE: &[Field] = &[required("session", Form::AnyObject)];
const AUDIO: &[Field] = &[
    required("audio", Form::Text),
    required(
        "sglang",
        Form::Object(&[required("seq", Form::Integer), optional("t_start_ms", Form::Nullable(&ANY_NUMBER))]),
    ),
];
const IMAGE: &[Field] =
    &[required("image", Form::Text), required("sglang", Form::Object(&[required("t_ms", ANY_NUMBER)]))];
const TRUNCATE: &[Field] = &[
    required("item_id", Form::Text),
    required("content_index", Form::Integer),
    required("audio_end_ms", ANY_NUMBER),
];

/// Parses an event; returns its id, if it has one that may be named in an error.
pub(super) fn parse(text: &str) -> (Option<String>, Result<Request, Rejected>) {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return (None, Err(Rejected::request("invalid JSON")));
    };
    let Value::Object(mut event) = value else {
        let message = "Input should be a valid dictionary or object to extract fields from";
        return (None, Err(Rejected::request(message).at("")));
    };
    let event_id = event.get("event_id").and_then(Value::as_str).map(str::to_owned);
    let event_id = event_id.filter(|id| (1..=EVENT_ID_MAX_CHARS).contains(&id.chars().count()));
    let request = check_event(&event).map(|name| take(name, &mut event));
    (event_id, request)
}

fn check_event(event: &Map<String, Value>) -> Result<&'static str, Rejected> {
    let Some(name) = event.get("type") else {
        return Err(Rejected::request("Unable to extract tag using discriminator 'type'").at(""));
    };
    let Some(known) = TYPES.into_iter().find(|known| name.as_str() == Some(known)) else {
        let tags = TYPES.map(|name| format!("'{name}'")).join(", ");
        let given = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        let message =
            format!("Input tag '{given}' found using 'type' does not match any of the expected tags: {tags}");
        return Err(Rejected { code: "not_supported", ..Rejected::request(message).at("") });
    };
    let own: &[Field] = match known {
        "session.update" => UPDATE,
        "input_audio_buffer.append" => AUDIO,
        "sglang.input_image.append" => IMAGE,
        "conversation.item.truncate" => TRUNCATE,
        _ => &[],
    };
    let common = [required("event_id", Form::EventId), required("type", Form::Text)];
    let fields: Vec<Field> = common.iter().chain(own).copied().collect();
    check_object(event, &fields, known)?;
    Ok(known)
}

/// Takes the content of an event whose form was checked.
fn take(name: &'static str, event: &mut Map<String, Value>) -> Request {
    let mut text = |key: &str| match event.remove(key) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    match name {
        "input_audio_buffer.append" => {
            let audio = text("audio");
            let extension = &event["sglang"];
            Request::Audio {
                audio,
                seq: extension["seq"].as_i64().unwrap_or(i64::MAX),
                t_start_ms: extension["t_start_ms"].as_f64(),
            }
        }
        "sglang.input_image.append" => Request::Image {
            image: text("image"),
            t_ms: event["sglang"]["t_ms"].as_f64().unwrap_or_default(),
        },
        "session.update" => Request::Update(event.remove("session").map(object).unwrap_or_default()),
        "input_audio_buffer.clear" => Request::Clear,
        "sglang.input_audio.end" => Request::End,
        "session.close" => Request::Close,
        "response.cancel" => {
            Request::Refused { code: "not_supported", message: "this session does not cancel responses" }
        }
        "conversation.item.truncate" => {
            Request::Refused { code: "not_supported", message: "this session does not truncate responses" }
        }
        _ => Request::Refused { code: "not_applicable", message: "manual turn commands are not granted" },
    }
}

/// Checks the members of an object. The error is that of the first bad member, or of an unknown one; it names the path.
pub(super) fn check_object(
    object: &Map<String, Value>,
    fields: &[Field],
    path: &str,
) -> Result<(), Rejected> {
    for field in fields {
        let path = format!("{path}.{}", field.name);
        match object.get(field.name) {
            Some(value) => check(value, field.form, &path)?,
            None if field.is_required => return Err(Rejected::request("Field required").at(path)),
            None => {}
        }
    }
    match object.keys().find(|key| fields.iter().all(|field| field.name != *key)) {
        Some(unknown) => {
            Err(Rejected::request("Extra inputs are not permitted").at(format!("{path}.{unknown}")))
        }
        None => Ok(()),
    }
}

fn check(value: &Value, form: Form, path: &str) -> Result<(), Rejected> {
    let message = match (form, value) {
        (Form::Nullable(_), Value::Null)
        | (Form::Text | Form::EventId, Value::String(_))
        | (Form::Boolean, Value::Bool(_))
        | (Form::AnyObject, Value::Object(_)) => match (form, value.as_str()) {
            (Form::EventId, Some("")) => "String should have at least 1 character",
            (Form::EventId, Some(id)) if id.chars().count() > EVENT_ID_MAX_CHARS => {
                "String should have at most 256 characters"
            }
            _ => return Ok(()),
        },
        (Form::Nullable(form), value) => return check(value, *form, path),
        (Form::Object(fields), Value::Object(object)) => return check_object(object, fields, path),
        (Form::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => return Ok(()),
        (Form::Number { min, max }, Value::Number(number)) => {
            let number = number.as_f64().unwrap_or_default();
            if (min..=max).contains(&number) {
                return Ok(());
            }
            "Input is out of range"
        }
        (Form::Word(words), Value::String(word)) if words.contains(&word.as_str()) => return Ok(()),
        (Form::Texts, Value::Array(items)) => match items.iter().position(|item| !item.is_string()) {
            Some(at) => {
                return Err(Rejected::request("Input should be a valid string").at(format!("{path}.{at}")));
            }
            None => return Ok(()),
        },
        (Form::Text | Form::EventId | Form::Word(_), _) => "Input should be a valid string",
        (Form::Integer, _) => "Input should be a valid integer",
        (Form::Number { .. }, _) => "Input should be a valid number",
        (Form::Boolean, _) => "Input should be a valid boolean",
        (Form::Texts, _) => "Input should be a valid list",
        (Form::AnyObject, _) => "Input should be a valid dictionary",
        (Form::Object(_), _) => "Input should be a valid dictionary or instance of AppendMetadata",
    };
    Err(Rejected::request(message).at(path))
}
