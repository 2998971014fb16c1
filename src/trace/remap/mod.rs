//! What another mapping makes of a recorded session, message by message.
//!
//! Of a client protocol: what each frame of the client would have meant, and how each event would have been spelled; of a
//! dialect the same with the upstream. The session itself is not run again: it has no say in how things are spelled.

mod relayed;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{
    Line, Trace,
    record::{Came, Went},
    redact::restored,
    template_match::{Filled, put_together, taken_apart},
};
use crate::{
    bridge::Input,
    downstream::Codec,
    error::ErrorKind,
    event::{ClientEvent, CloseName, Frame, LaneEvent},
    mapping::{ClientMapping, Library, UpstreamMapping, client::EventName, upstream::SendName},
    upstream::Dialect,
};

/// Of a message, so much is shown.
const SHOWN_CHARS: usize = 300;

/// One message of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Since the session was opened, ns.
    pub ns: u64,
    /// Where it passed.
    pub place: String,
    /// What passed; a long message is cut.
    pub recorded: String,
    /// What the mapping makes of it: a line each.
    pub becomes: Vec<String>,
    /// The mapping can make nothing of it.
    pub trouble: bool,
}

/// What a client protocol makes of a recording.
///
/// # Errors
/// A mapping of the recording that is not there any more.
pub fn of_client(trace: &Trace, library: &Library, name: &str) -> Result<Vec<Step>, String> {
    let recorded = trace.start.library(Library::embedded().map_err(|problem| problem.to_string())?)?;
    let (from, to) = (recorded.client(&trace.start.client)?, library.client(name)?);
    match (&to.relay, from.relays()) {
        (Some(relay), true) => return relayed::of_relayed(trace, library, &to, relay),
        (None, false) => {}
        _ => {
            return Err(format!(
                "the recorded client {} and {} are of different kinds: one is relayed",
                from.name, to.name
            ));
        }
    }
    let opened = Duration::from_nanos(trace.start.opened_unix_ns).as_secs_f64();
    let mut codec = Codec::new(to.clone(), opened);
    let connect = codec.connect(&trace.start.query);
    let mut steps = vec![Step {
        ns: 0,
        place: "from the client".to_owned(),
        recorded: format!("?{}", trace.start.query),
        trouble: !connect.problems.is_empty() || connect.model.is_none(),
        becomes: [
            vec![format!("model {:?}, {:?}", connect.model, connect.settings)],
            connect.problems.iter().map(|it| format!("error: {it}")).collect(),
        ]
        .concat()
        .into_iter()
        .chain(ignored(&mut codec))
        .collect(),
    }];
    for line in &trace.lines {
        if line.came == Some(Came::Client) {
            steps.push(understood(line, &mut codec)?);
        } else if line.went == Some(Went::Client) {
            steps.push(said_to_client(line, &from, &to));
        }
    }
    Ok(steps)
}

/// What a dialect makes of a recording.
///
/// # Errors
/// A mapping of the recording that is not there any more.
pub fn of_upstream(trace: &Trace, library: &Library, name: &str) -> Result<Vec<Step>, String> {
    let recorded = trace.start.library(Library::embedded().map_err(|problem| problem.to_string())?)?;
    let (from, to) = (recorded.upstream(&trace.start.dialect)?, library.upstream(name)?);
    let mut dialect = Dialect::new(to.clone());
    let mut steps = Vec::new();
    for line in &trace.lines {
        if line.came == Some(Came::Lane) {
            steps.push(heard(line, &mut dialect)?);
        } else if let Some(mode) = line.mode {
            let known = to.modes.get(&mode);
            let becomes = known.map_or_else(
                || format!("error: no mode {mode:?}"),
                |word| format!("{}?{}={word}", to.path, to.mode_key),
            );
            steps.push(step(line, vec![becomes], known.is_none()));
        } else if line.went == Some(Went::Lane) {
            steps.push(said_to_lane(line, &from, &to));
        }
    }
    Ok(steps)
}

fn step(line: &Line, becomes: Vec<String>, trouble: bool) -> Step {
    let becomes = becomes.iter().map(|words| cut(words)).collect();
    Step { ns: line.ns, place: line.place(), recorded: cut(&line.content()), becomes, trouble }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A line with silence where its audio was left out.
fn with_silence(line: &Line) -> Line {
    Line { text: line.text.as_ref().map(|text| restored(text).0), ..line.clone() }
}

fn understood(line: &Line, codec: &mut Codec) -> Result<Step, String> {
    let (mut becomes, mut trouble) = (Vec::new(), false);
    with_silence(line).give(|input| {
        let Input::Client(frame) = input else { return };
        match codec.decode(frame) {
            Ok(ClientEvent::Audio(bytes)) => becomes.push(format!("audio, {} bytes", bytes.len())),
            Ok(event) => becomes.push(format!("{event:?}")),
            Err(error) => {
                trouble = true;
                becomes.push(format!("error: {error}"));
            }
        }
    })?;
    becomes.extend(ignored(codec));
    Ok(step(line, becomes, trouble))
}

fn ignored(codec: &mut Codec) -> Vec<String> {
    let without = codec.take_ignored().into_iter();
    without.map(|it| format!("without effect: {}.{}: {}", it.command, it.field, it.because)).collect()
}

fn heard(line: &Line, dialect: &mut Dialect) -> Result<Step, String> {
    let (mut becomes, mut trouble) = (Vec::new(), false);
    with_silence(line).give(|input| {
        let Input::Lane(_, frame @ (Frame::Text(_) | Frame::Binary(_))) = input else { return };
        dialect.decode(frame, |event, _| {
            trouble |= matches!(event, LaneEvent::Unknown(_));
            becomes.push(match event {
                LaneEvent::Audio(samples) => format!("Audio, {} samples", samples.len()),
                LaneEvent::Done { text, audio } => format!("Done, text {text:?}, {} samples", audio.len()),
                event => format!("{event:?}"),
            });
        });
    })?;
    Ok(step(line, becomes, trouble))
}

fn said_to_client(line: &Line, from: &ClientMapping, to: &ClientMapping) -> Step {
    if let Some(code) = line.code {
        return step(line, vec![close(code, line.words.as_deref().unwrap_or_default(), from, to)], false);
    }
    let Some(text) = &line.text else { return step(line, vec!["audio, as it is".to_owned()], false) };
    let message: Value = serde_json::from_str(text).unwrap_or_default();
    let found = EventName::ALL
        .iter()
        .find_map(|name| Some((*name, taken_apart(from.event(*name)?, &name.all_slots(), &message)?)));
    let Some((name, mut filled)) = found else {
        return step(line, vec!["no event of the protocol it was recorded with".to_owned()], true);
    };
    reword(name, &mut filled, from, to);
    let spelled = to.event(name).map(|template| put_together(template, &name.all_slots(), &filled));
    step(line, vec![spelled.unwrap_or_else(|| format!("not told ({name:?})"))], false)
}

/// Codes and reasons are words of a protocol, too.
fn reword(name: EventName, filled: &mut Filled, from: &ClientMapping, to: &ClientMapping) {
    let said = |filled: &Filled, slot: &str| filled.get(slot).and_then(Value::as_str).map(str::to_owned);
    if name == EventName::Error {
        let code = said(filled, "code");
        let kind =
            ErrorKind::ALL.into_iter().find(|kind| from.error(*kind).map(|words| words.code.clone()) == code);
        if let Some(words) = kind.and_then(|kind| to.error(kind)) {
            filled.insert("code".to_owned(), words.code.clone().into());
            filled.insert("recoverable".to_owned(), words.recoverable.into());
        }
    }
    if name == EventName::SessionClosed {
        let reason = said(filled, "reason");
        let why = CloseName::ALL
            .into_iter()
            .find(|why| from.close(*why).map(|words| words.reason.clone()) == reason);
        if let Some(words) = why.and_then(|why| to.close(why)) {
            filled.insert("reason".to_owned(), words.reason.clone().into());
        }
    }
}

fn close(code: u16, text: &str, from: &ClientMapping, to: &ClientMapping) -> String {
    let same =
        |why: &CloseName| from.close(*why).is_some_and(|words| words.code == code && words.text == text);
    match CloseName::ALL.into_iter().find(same).and_then(|why| to.close(why)) {
        Some(words) => format!("{} {}", words.code, words.text),
        None => format!("{code} {text}"),
    }
}

fn said_to_lane(line: &Line, from: &UpstreamMapping, to: &UpstreamMapping) -> Step {
    let message: Value =
        line.text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let found = SendName::ALL
        .iter()
        .find_map(|name| Some((*name, taken_apart(from.message(*name)?, name.slots(), &message)?)));
    let Some((name, filled)) = found else {
        return step(line, vec!["no message of the dialect it was recorded with".to_owned()], true);
    };
    let spelled = to.message(name).map(|template| put_together(template, name.slots(), &filled));
    let trouble = spelled.is_none();
    step(line, vec![spelled.unwrap_or_else(|| format!("nothing: the dialect has no {name:?}"))], trouble)
}
