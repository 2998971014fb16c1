//! JSON lines with JSON and bytes behind them.

use std::collections::VecDeque;

use bytes::{Buf as _, BytesMut};
use serde_json::{Map, Value};
use tokio_tungstenite::tungstenite::Message;

use super::{FramingProblem, Progress};
use crate::{
    spelling::client::tcp::{JsonLines, TcpSlot},
    vocabulary::SlotValue,
};

/// Longest line, with the JSON behind it, that is compared with the next one.
const KNOWN_MAX_BYTES: usize = 4096;

/// Bytes to read while the end of a line is not in sight.
const LINE_READ_BYTES: usize = 512;

/// A line whose JSON and bytes have not come completely.
#[derive(Debug)]
struct Line {
    /// Length with its end, bytes.
    length: usize,
    more: usize,
    bytes: usize,
    /// Its members; `None` if it is the line of the last bytes again.
    members: Option<Map<String, Value>>,
}

/// Reads lines. The line of the last bytes is known, so that a stream of audio takes no JSON parser.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    current: Option<Line>,
    /// Bytes without the end of a line.
    scanned: usize,
    /// The line of the last bytes with the JSON behind it; empty if another message came since.
    known_line: BytesMut,
    known_more: BytesMut,
    known_lengths: (usize, usize),
}

impl LineReader {
    /// Takes a message with its bytes out of `input`.
    pub(super) fn take(
        &mut self,
        rules: &JsonLines,
        input: &mut BytesMut,
        max: usize,
        ready: &mut VecDeque<Message>,
    ) -> Result<Progress, FramingProblem> {
        let line = match self.current.take() {
            Some(line) => line,
            None => match self.take_line(rules, input, max)? {
                Some(line) => line,
                None => return Ok(Progress::Missing(LINE_READ_BYTES)),
            },
        };
        let total = line.length + line.more + line.bytes;
        if input.len() < total {
            self.current = Some(line);
            return Ok(Progress::Missing(total - input.len()));
        }
        let text = input.split_to(line.length);
        let more = input.split_to(line.more);
        let bytes = input.split_to(line.bytes).freeze();
        let is_known = line.members.is_none() && more == self.known_more;
        if !is_known {
            let members = line.members.map_or_else(|| parse_object(&text, "the line"), Ok)?;
            ready.push_back(Message::text(merge(rules, members, &more)?));
        }
        if bytes.is_empty() || text.len() + more.len() > KNOWN_MAX_BYTES {
            (self.known_line, self.known_more) = (BytesMut::new(), BytesMut::new());
        } else if !is_known {
            // Copies: a part of the input would keep all of it.
            (self.known_line, self.known_more) = (text[..].into(), more[..].into());
            self.known_lengths = (line.more, line.bytes);
        }
        if !bytes.is_empty() {
            ready.push_back(Message::Binary(bytes));
        }
        Ok(Progress::Complete)
    }

    /// Finds the next line, and what follows it.
    fn take_line(
        &mut self,
        rules: &JsonLines,
        input: &mut BytesMut,
        max: usize,
    ) -> Result<Option<Line>, FramingProblem> {
        loop {
            let Some(end) = input[self.scanned..].iter().position(|byte| *byte == b'\n') else {
                self.scanned = input.len();
                return if input.len() > max { Err(FramingProblem::LongLine(max)) } else { Ok(None) };
            };
            let length = std::mem::take(&mut self.scanned) + end + 1;
            let text = &input[..length];
            if text.iter().all(u8::is_ascii_whitespace) {
                input.advance(length);
                continue;
            }
            if *text == *self.known_line {
                let (more, bytes) = self.known_lengths;
                return Ok(Some(Line { length, more, bytes, members: None }));
            }
            let members = parse_object(text, "the line")?;
            let more = rules.more_json.as_ref().map_or(Ok(0), |more| count(&members, &more.length))?;
            let bytes = rules.bytes_length.as_ref().map_or(Ok(0), |name| count(&members, name))?;
            let total = more.saturating_add(bytes).saturating_add(length as u64);
            if total > max as u64 {
                return Err(FramingProblem::TooLong(total, max));
            }
            let bounded = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            let (more, bytes) = (bounded(more), bounded(bytes));
            return Ok(Some(Line { length, more, bytes, members: Some(members) }));
        }
    }
}

fn parse_object(text: &[u8], what: &str) -> Result<Map<String, Value>, FramingProblem> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(FramingProblem::Invalid(format!("{what} is no JSON object"))),
        Err(error) => Err(FramingProblem::Invalid(format!("{what} is not JSON: {error}"))),
    }
}

/// A member that counts bytes; 0 if it is missing.
fn count(members: &Map<String, Value>, name: &str) -> Result<u64, FramingProblem> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => {
            value.as_u64().ok_or_else(|| FramingProblem::Invalid(format!("`{name}` is no number of bytes")))
        }
    }
}

/// The message of a line: without its counts, and with the JSON behind it.
fn merge(rules: &JsonLines, mut members: Map<String, Value>, more: &[u8]) -> Result<String, FramingProblem> {
    rules.bytes_length.iter().for_each(|name| drop(members.remove(name)));
    if let Some(names) = &rules.more_json {
        members.remove(&names.length);
        if !more.is_empty() {
            let further = parse_object(more, "the JSON behind a line")?;
            match members.get_mut(&names.into) {
                Some(Value::Object(own)) => own.extend(further),
                _ => drop(members.insert(names.into.clone(), Value::Object(further))),
            }
        }
    }
    Ok(Value::Object(members).to_string())
}

pub(super) fn write_line(json: &str, output: &mut Vec<u8>) {
    output.extend_from_slice(json.as_bytes());
    output.push(b'\n');
}

pub(super) fn write_audio(rules: &JsonLines, bytes: &[u8], output: &mut Vec<u8>) {
    let Some(line) = &rules.audio else { return };
    let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let mut json = String::with_capacity(128);
    line.render(&mut json, |slot| match slot {
        TcpSlot::Bytes => SlotValue::Int(length),
        TcpSlot::Message | TcpSlot::Code => SlotValue::Null,
    });
    output.reserve(json.len() + 1 + bytes.len());
    write_line(&json, output);
    output.extend_from_slice(bytes);
}

pub(super) fn write_closed(rules: &JsonLines, code: u16, message: &str, output: &mut Vec<u8>) {
    let Some(line) = &rules.closed else { return };
    let mut json = String::new();
    line.render(&mut json, |slot| match slot {
        TcpSlot::Message => SlotValue::Str(message),
        TcpSlot::Code => SlotValue::Int(code.into()),
        TcpSlot::Bytes => SlotValue::Null,
    });
    write_line(&json, output);
}
