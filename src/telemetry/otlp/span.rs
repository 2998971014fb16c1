//! A span of a distributed trace, and the values of its attributes, in the terms of OpenTelemetry's data model.

use std::{borrow::Cow, sync::Arc};

/// Longest text of an attribute, bytes: a long answer. The rest is cut.
const TEXT_MAX_BYTES: usize = 16 * 1024;
/// Most events of a span (`OTEL_SPAN_EVENT_COUNT_LIMIT` has the same default).
const EVENTS_MAX: usize = 128;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// Texts.
    Texts(Vec<String>),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// True or false.
    Bool(bool),
}

/// A name and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: Value,
}

impl Attribute {
    /// A name and its value.
    pub fn new(name: &'static str, value: impl Into<Value>) -> Self {
        Self { name, value: value.into() }
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(mut text: String) -> Self {
        if text.len() > TEXT_MAX_BYTES {
            text.truncate(text.floor_char_boundary(TEXT_MAX_BYTES));
            text.push('…');
        }
        Self::Text(text.into())
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(number.cast_signed())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

/// Which side of a call a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Neither.
    Internal,
    /// The side that is called.
    Server,
    /// The side that calls.
    Client,
}

/// Something that happened during a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// Its name.
    pub name: &'static str,
    /// Since 1970, ns.
    pub unix_ns: u64,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
}

/// A part of a session, with its begin and end.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Id of the trace.
    pub trace_id: u128,
    /// Id of the span.
    pub id: u64,
    /// Id of the span that it is a part of.
    pub parent: Option<u64>,
    /// `tracestate` of the client.
    pub trace_state: Option<Arc<str>>,
    /// Its name, of which there are few.
    pub name: Cow<'static, str>,
    /// Its kind.
    pub kind: SpanKind,
    /// Begin, ns since 1970.
    pub start_unix_ns: u64,
    /// End, ns since 1970.
    pub end_unix_ns: u64,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
    /// What happened during it.
    pub events: Vec<SpanEvent>,
    /// Number of events that there was no room for.
    pub dropped_events: u32,
    /// Why it failed.
    pub error: Option<Cow<'static, str>>,
}

impl Span {
    /// Sets an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        let value = value.into();
        match self.attributes.iter_mut().find(|attribute| attribute.name == name) {
            Some(attribute) => attribute.value = value,
            None => self.attributes.push(Attribute { name, value }),
        }
    }

    /// Sets an attribute whose value is known.
    pub fn set_if_known(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Adds an event, if there is room.
    pub fn add_event(&mut self, unix_ns: u64, name: &'static str, attributes: Vec<Attribute>) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(SpanEvent { name, unix_ns, attributes });
        } else {
            self.dropped_events += 1;
        }
    }

    /// True if the span has an event of this name.
    pub fn has_event(&self, name: &str) -> bool {
        self.events.iter().any(|event| event.name == name)
    }

    /// Notes that the span failed; `kind` is one of few words.
    pub fn fail(&mut self, kind: &'static str, words: impl Into<Cow<'static, str>>) {
        self.set("error.type", kind);
        self.error = Some(words.into());
    }
}
