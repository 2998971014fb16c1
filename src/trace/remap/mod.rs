//! Translates the messages of a recorded session with another mapping.
//!
//! For a client mapping, it decodes each frame of the client and encodes each event with the new mapping; for a dialect, it
//! does so on the upstream side. It does not run the session again, because mappings do not depend on the session.

mod relayed;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{
    Trace, TraceRecord,
    record::{InputKind, OutputKind},
    redact::fill_with_silence,
    template_match::{SlotValues, extract_slots, render_slots},
};
use crate::{
    bridge::Input,
    downstream::Codec,
    error::ErrorKind,
    event::{ClientEvent, CloseReason, Frame, LaneEvent},
    mapping::{
        ClientMapping, Library, UpstreamMapping,
        check::snake_case_name,
        client::{EventMessage, EventName, EventSlot, Slot},
        upstream::SendName,
    },
    upstream::Dialect,
};

/// Maximum length of a shown message.
const CONTENT_MAX_CHARS: usize = 300;

/// Recorded message and its translation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemappedMessage {
    /// Time since the start of the session, ns.
    pub ns: u64,
    /// Direction and connection of the message.
    pub place: String,
    /// Recorded message, truncated.
    pub recorded: String,
    /// Translation, one line each.
    pub becomes: Vec<String>,
    /// True if the mapping cannot translate the message.
    pub trouble: bool,
}

/// Translates the client messages of a trace with the client mapping `name`.
///
/// # Errors
/// A mapping is missing, or only one of the two client protocols is relayed.
pub fn remap_client(trace: &Trace, library: &Library, name: &str) -> Result<Vec<RemappedMessage>, String> {
    let recorded_library =
        trace.header.library(Library::embedded().map_err(|problem| problem.to_string())?)?;
    let (from, to) = (recorded_library.client(&trace.header.client)?, library.client(name)?);
    match (&to.relay, from.is_relayed()) {
        (Some(relay), true) => return relayed::remap_relayed(trace, library, &to, relay),
        (None, false) => {}
        _ => {
            return Err(format!(
                "cannot compare the recorded client {} with {}: only one of them is relayed",
                from.name, to.name
            ));
        }
    }
    let opened_unix_s = Duration::from_nanos(trace.header.opened_unix_ns).as_secs_f64();
    let mut codec = Codec::new(to.clone(), opened_unix_s);
    let connect = codec.decode_query(&trace.header.query);
    let mut steps = vec![RemappedMessage {
        ns: 0,
        place: "from the client".to_owned(),
        recorded: format!("?{}", trace.header.query),
        trouble: !connect.problems.is_empty() || connect.model.is_none(),
        becomes: [
            vec![format!("model: {}", connect.model.as_deref().unwrap_or("none"))],
            vec![ClientEvent::Configure(connect.settings).to_string()],
            connect.problems.iter().map(|it| format!("error: {it}")).collect(),
        ]
        .concat()
        .into_iter()
        .chain(ignored_fields(&mut codec))
        .collect(),
    }];
    for record in &trace.records {
        if record.input == Some(InputKind::Client) {
            steps.push(remap_client_frame(record, &mut codec)?);
        } else if record.output == Some(OutputKind::Client) {
            steps.push(remap_client_output(record, &from, &to));
        }
    }
    Ok(steps)
}

/// Translates the upstream messages of a trace with the dialect `name`.
///
/// # Errors
/// A mapping is missing.
pub fn remap_upstream(trace: &Trace, library: &Library, name: &str) -> Result<Vec<RemappedMessage>, String> {
    let recorded_library =
        trace.header.library(Library::embedded().map_err(|problem| problem.to_string())?)?;
    let (from, to) = (recorded_library.upstream(&trace.header.dialect)?, library.upstream(name)?);
    let dialect = Dialect::new(to.clone());
    let mut steps = Vec::new();
    for record in &trace.records {
        if record.input == Some(InputKind::Lane) {
            steps.push(remap_lane_frame(record, &dialect)?);
        } else if let Some(mode) = record.mode {
            let known = to.modes.get(&mode);
            let becomes = known.map_or_else(
                || format!("error: no mode {}", mode.name()),
                |word| match &to.mode_key {
                    Some(key) => format!("{}?{key}={word}", to.path),
                    None => to.path.clone(),
                },
            );
            steps.push(remapped(record, vec![becomes], known.is_none()));
        } else if record.output == Some(OutputKind::Lane) {
            steps.push(remap_lane_output(record, &from, &to));
        }
    }
    Ok(steps)
}

fn remapped(record: &TraceRecord, becomes: Vec<String>, trouble: bool) -> RemappedMessage {
    let becomes = becomes.iter().map(|words| truncate_text(words)).collect();
    RemappedMessage {
        ns: record.ns,
        place: record.description(),
        recorded: truncate_text(&record.content()),
        becomes,
        trouble,
    }
}

fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(CONTENT_MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Replaces the missing audio of a record by silence.
fn with_silence(record: &TraceRecord) -> TraceRecord {
    TraceRecord { text: record.text.as_ref().map(|text| fill_with_silence(text).0), ..record.clone() }
}

fn remap_client_frame(record: &TraceRecord, codec: &mut Codec) -> Result<RemappedMessage, String> {
    let (mut becomes, mut trouble) = (Vec::new(), false);
    with_silence(record).with_input(|input| {
        let Input::Client(frame) = input else { return };
        let decoded = codec.decode(frame, |event| {
            becomes.push(event.to_string());
        });
        if let Err(error) = decoded {
            trouble = true;
            becomes.push(format!("error: {error}"));
        }
    })?;
    becomes.extend(ignored_fields(codec));
    Ok(remapped(record, becomes, trouble))
}

fn ignored_fields(codec: &mut Codec) -> Vec<String> {
    let ignored = codec.take_ignored_fields().into_iter();
    ignored.map(|it| format!("without effect: {}.{}: {}", it.command, it.field, it.because)).collect()
}

fn remap_lane_frame(record: &TraceRecord, dialect: &Dialect) -> Result<RemappedMessage, String> {
    let (mut becomes, mut trouble) = (Vec::new(), false);
    with_silence(record).with_input(|input| {
        let Input::Lane(_, frame @ (Frame::Text(_) | Frame::Binary(_))) = input else { return };
        dialect.decode(frame, |event, _| {
            trouble |= matches!(event, LaneEvent::Unknown(_));
            becomes.push(event.to_string());
        });
    })?;
    Ok(remapped(record, becomes, trouble))
}

fn remap_client_output(record: &TraceRecord, from: &ClientMapping, to: &ClientMapping) -> RemappedMessage {
    if let Some(code) = record.code {
        return remapped(
            record,
            vec![remap_close(code, record.words.as_deref().unwrap_or_default(), from, to)],
            false,
        );
    }
    let Some(text) = &record.text else {
        return remapped(record, vec!["audio, unchanged".to_owned()], false);
    };
    let message: Value = serde_json::from_str(text).unwrap_or_default();
    let found = EventName::ALL.into_iter().find_map(|name| Some((name, match_event(from, name, &message)?)));
    let Some((name, mut slot_values)) = found else {
        return remapped(record, vec!["not an event of the recorded protocol".to_owned()], true);
    };
    translate_codes(name, &mut slot_values, from, to);
    let spell =
        |it: &EventMessage| render_slots(&it.template, &slot_names(name), slot_number(name), &slot_values);
    let mut spelled: Vec<String> = to.event(name).iter().map(spell).collect();
    if spelled.is_empty() {
        spelled.push(format!("nothing: the protocol has no event {}", snake_case_name(&name)));
    }
    remapped(record, spelled, false)
}

/// Values of the slots of a message that is this event of the protocol; `None` if it is not.
pub(crate) fn match_event(client: &ClientMapping, name: EventName, message: &Value) -> Option<SlotValues> {
    let extract =
        |it: &EventMessage| extract_slots(&it.template, &slot_names(name), slot_number(name), message);
    client.event(name).iter().find_map(extract)
}

fn slot_names(name: EventName) -> Vec<&'static str> {
    name.slots().map(Slot::name).collect()
}

fn slot_number(name: EventName) -> impl Fn(EventSlot) -> usize {
    move |slot| name.slots().position(|known| EventSlot::Event(known) == slot).unwrap_or(usize::MAX)
}

/// Translates error codes and close reasons, which differ between protocols.
fn translate_codes(name: EventName, slot_values: &mut SlotValues, from: &ClientMapping, to: &ClientMapping) {
    let slot_text = |slot_values: &SlotValues, slot: &str| {
        slot_values.get(slot).and_then(Value::as_str).map(str::to_owned)
    };
    if name == EventName::Error {
        let code = slot_text(slot_values, "code");
        let kind = ErrorKind::SESSION_KINDS
            .into_iter()
            .find(|kind| from.error(*kind).map(|words| words.code.clone()) == code);
        if let Some(words) = kind.and_then(|kind| to.error(kind)) {
            slot_values.insert("code".to_owned(), words.code.clone().into());
            slot_values.insert("recoverable".to_owned(), words.recoverable.into());
        }
    }
    if name == EventName::SessionClosed {
        let reason = slot_text(slot_values, "reason");
        let close_reason = CloseReason::ALL
            .into_iter()
            .find(|name| from.close(*name).map(|words| words.reason.clone()) == reason);
        if let Some(words) = close_reason.and_then(|name| to.close(name)) {
            slot_values.insert("reason".to_owned(), words.reason.clone().into());
        }
    }
}

fn remap_close(code: u16, text: &str, from: &ClientMapping, to: &ClientMapping) -> String {
    let is_same =
        |name: &CloseReason| from.close(*name).is_some_and(|words| words.code == code && words.text == text);
    match CloseReason::ALL.into_iter().find(is_same).and_then(|name| to.close(name)) {
        Some(words) => format!("{} {}", words.code, words.text),
        None => format!("{code} {text}"),
    }
}

fn remap_lane_output(record: &TraceRecord, from: &UpstreamMapping, to: &UpstreamMapping) -> RemappedMessage {
    let message: Value =
        record.text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let found = SendName::ALL.iter().find_map(|name| {
        Some((*name, extract_slots(from.message(*name)?, name.slots(), |slot| slot, &message)?))
    });
    let Some((name, slot_values)) = found else {
        return remapped(record, vec!["not a message of the recorded dialect".to_owned()], true);
    };
    let spelled =
        to.message(name).map(|template| render_slots(template, name.slots(), |slot| slot, &slot_values));
    let trouble = spelled.is_none();
    remapped(
        record,
        vec![spelled.unwrap_or_else(|| format!("nothing: the dialect has no message {}", name.name()))],
        trouble,
    )
}
