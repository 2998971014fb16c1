//! Values of `[values]`: what a protocol remembers from the client's messages, generates or counts. Event templates use them
//! as slots. The values themselves belong to a connection's codec.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::conditions::{ConditionFile, Conditions};
use crate::{
    spelling::{
        check::{Document, FileError},
        template::{Template, TemplateError},
    },
    suggestion::suggest_known,
    vocabulary::{EventName, Slot, SlotValue},
};

/// A slot of an event's template: one of the event's own, or one of `[values]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSlot {
    /// A slot of the event.
    Event(Slot),
    /// Index into [`super::ClientMapping::values`].
    Value(usize),
}

/// A value of `[values]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRule {
    /// Name in the file, and of the slot.
    pub name: String,
    /// Where the value comes from.
    pub source: ValueSource,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ValueSource {
    /// From the client: the last value of the fields that `remember` it.
    Remembered {
        /// The value before that; `null` without it.
        default: Option<String>,
    },
    /// A random id.
    Generated {
        /// Text before the random part.
        #[serde(default)]
        prefix: String,
        /// The form of the random part.
        #[serde(default)]
        form: IdForm,
        /// How long a value is valid.
        per: ValueScope,
    },
    /// A number that grows by one.
    Counted {
        /// How long a value is valid.
        per: ValueScope,
        /// The first value.
        #[serde(default)]
        first: i64,
    },
}

/// Form of a random id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdForm {
    /// 16 hexadecimal digits.
    #[default]
    Hex,
    /// A random UUID (RFC 9562 §5.4).
    Uuid,
}

/// How long a generated or counted value is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueScope {
    /// As long as the session.
    Session,
    /// From one `speaking_started` to the next.
    Turn,
    /// From one `speech_started` to the next.
    Utterance,
    /// From one `flushed` or `cleared` to the next.
    Flush,
    /// For one message. Only messages that use the value count.
    Message,
}

impl ValueSource {
    /// How long a value is valid; `None` for a remembered one.
    #[must_use]
    pub const fn scope(&self) -> Option<ValueScope> {
        match self {
            Self::Remembered { .. } => None,
            Self::Generated { per, .. } | Self::Counted { per, .. } => Some(*per),
        }
    }
}

/// One message of an event.
#[derive(Debug)]
pub struct EventMessage {
    /// Its template.
    pub template: Template<EventSlot>,
    /// It is plain text, not JSON.
    pub is_text: bool,
    /// The values that get a new content before this message.
    pub renewed: Vec<usize>,
    /// The message is sent only if these hold.
    pub conditions: Conditions<EventSlot>,
}

impl EventMessage {
    /// Appends the message with these values to `out`.
    pub fn render<'v>(&self, out: &mut String, fill: impl Fn(EventSlot) -> SlotValue<'v>) {
        if self.is_text { self.template.render_line(out, fill) } else { self.template.render(out, fill) }
    }
}

/// The messages of an event: one, or several that are sent in this order.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a template in quotes, a table of `message` or `text` with `when` or `unless`, or a list of these"
)]
pub(super) enum EventFile {
    // First, because a table may also be written as a list of its values.
    Several(Vec<MessageFile>),
    One(MessageFile),
}

/// A message of an event in a file.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a template in quotes, or a table of `message` or `text` with `when` or `unless`"
)]
pub(super) enum MessageFile {
    /// A template of JSON.
    Json(String),
    /// Plain text.
    Plain(PlainText),
    /// A template of JSON, with a condition.
    Conditional(ConditionalMessage),
}

/// A message of plain text: its template, a condition that must hold, and one that must not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlainText {
    text: String,
    when: Option<ConditionFile>,
    unless: Option<ConditionFile>,
}

/// A message of JSON that is sent under a condition that must hold, and one that must not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConditionalMessage {
    message: String,
    when: Option<ConditionFile>,
    unless: Option<ConditionFile>,
}

impl MessageFile {
    /// The condition that must hold, and the one that must not.
    const fn conditions(&self) -> (Option<&ConditionFile>, Option<&ConditionFile>) {
        match self {
            Self::Json(_) => (None, None),
            Self::Plain(it) => (it.when.as_ref(), it.unless.as_ref()),
            Self::Conditional(it) => (it.when.as_ref(), it.unless.as_ref()),
        }
    }

    fn template(&self, slots: &[(&str, EventSlot)]) -> Result<Template<EventSlot>, TemplateError> {
        match self {
            Self::Json(json) => Template::compile_slots(json, slots),
            Self::Conditional(file) => Template::compile_slots(&file.message, slots),
            Self::Plain(plain) => Template::compile_line(&plain.text, slots),
        }
    }
}

pub(super) fn compile_values(
    files: BTreeMap<Spanned<String>, ValueSource>,
    document: &Document<'_>,
) -> Result<Vec<ValueRule>, FileError> {
    let mut problems = Vec::new();
    let compiled = files.into_iter().map(|(name, source)| {
        let at = name.span().start;
        let name = name.into_inner();
        if EventName::ALL.into_iter().flat_map(EventName::slots).any(|slot| slot.name() == name) {
            let message = format!("`{name}` is a slot of events already; choose another name");
            problems.push(document.problem(at, message));
        }
        if matches!(source, ValueSource::Counted { per: ValueScope::Session, .. }) {
            let message =
                format!("`{name}` would always be its first value; count `per` turn, utterance or message");
            problems.push(document.problem(at, message));
        }
        ValueRule { name, source }
    });
    let values = compiled.collect();
    FileError::combine(problems).map(|()| values)
}

/// Index of a value that a field remembers.
pub(super) fn find_remembered(values: &[ValueRule], name: &str) -> Result<usize, String> {
    let remembered = |value: &&ValueRule| matches!(value.source, ValueSource::Remembered { .. });
    let names = || values.iter().filter(remembered).map(|value| value.name.as_str());
    values
        .iter()
        .position(|value| value.name == name && remembered(&value))
        .ok_or_else(|| format!("[values] has no remembered value `{name}`{}", suggest_known(name, names)))
}

pub(super) fn compile_event(
    name: EventName,
    file: &Spanned<EventFile>,
    values: &[ValueRule],
    document: &Document<'_>,
) -> Result<Vec<EventMessage>, FileError> {
    let is_element =
        matches!(name, EventName::TranscriptWord | EventName::TranscriptSegment | EventName::VoiceEntry);
    compile_messages(name.slots(), is_element, file, values, document)
}

/// Compiles the messages that answer a command at once.
pub(super) fn compile_reply(
    file: &Spanned<EventFile>,
    values: &[ValueRule],
    document: &Document<'_>,
) -> Result<Vec<EventMessage>, FileError> {
    compile_messages(Slot::OF_REPLIES.into_iter(), false, file, values, document)
}

fn compile_messages(
    slots: impl Iterator<Item = Slot>,
    is_element: bool,
    file: &Spanned<EventFile>,
    values: &[ValueRule],
    document: &Document<'_>,
) -> Result<Vec<EventMessage>, FileError> {
    let own = slots.map(|slot| (slot.name(), EventSlot::Event(slot)));
    let shared = values.iter().enumerate().map(|(at, value)| (value.name.as_str(), EventSlot::Value(at)));
    let slots: Vec<_> = own.chain(shared).collect();
    let texts = match file.get_ref() {
        EventFile::One(text) => std::slice::from_ref(text),
        EventFile::Several(texts) => texts,
    };
    let problem = |message: String| document.problem(file.span().start, message);
    if texts.is_empty() {
        return Err(problem("a list without messages is left out, not empty".to_owned()));
    }
    if is_element && matches!(file.get_ref(), EventFile::Several(_)) {
        return Err(problem(
            "it is one element of JSON, not a list; write its template in quotes".to_owned(),
        ));
    }
    let find_slot = |slot: &str| {
        let known = || slots.iter().map(|(name, _)| *name);
        let found = slots.iter().find(|(name, _)| *name == slot);
        found.map(|(_, found)| *found).ok_or_else(|| {
            problem(format!(
                "the condition `{slot}` is no slot of this message{}",
                suggest_known(slot, known)
            ))
        })
    };
    let compile = |file: &MessageFile| {
        let (when, unless) = file.conditions();
        if is_element && !matches!(file, MessageFile::Json(_)) {
            return Err(problem("it is an element of JSON; write its template in quotes".to_owned()));
        }
        let template = file.template(&slots).map_err(|error| problem(error.to_string()))?;
        let per_message = |at: &usize| values[*at].source.scope() == Some(ValueScope::Message);
        let renewed = (0..values.len()).filter(per_message);
        let renewed = renewed.filter(|at| template.uses_slot(EventSlot::Value(*at))).collect();
        Ok(EventMessage {
            template,
            is_text: matches!(file, MessageFile::Plain(_)),
            renewed,
            conditions: Conditions::compile(when, unless, ConditionFile::on_slots, find_slot)?,
        })
    };
    texts.iter().map(compile).collect()
}
