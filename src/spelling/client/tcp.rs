//! `[tcp]`: where the messages of a protocol on bare TCP begin and end in the byte stream, and what they become. Without a
//! WebSocket, each connection to a `[[tcp]]` listener of the configuration is a session.
//!
//! The server reads and writes the stream by these rules. The rest of voxbridge sees text messages with JSON and binary messages
//! with audio, as from a WebSocket.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::{
    named_enum::named_enum,
    spelling::{
        check::{Document, FileError},
        template::Template,
    },
};

/// A compiled `[tcp]`.
#[derive(Debug)]
pub struct TcpProtocol {
    /// Name of the `[[tcp]]` listeners that serve the protocol. The first message distinguishes protocols of the same listener.
    pub listener: String,
    /// How messages are delimited.
    pub format: TcpFormat,
    /// Kind of service as which a listener can be announced (RFC 6763), such as `_wyoming._tcp`.
    pub service_kind: Option<String>,
}

/// How the messages of a stream are delimited.
#[derive(Debug)]
pub enum TcpFormat {
    /// A line of JSON, which may announce more JSON and bytes behind it.
    JsonLines(JsonLines),
    /// A byte with the kind, two bytes with the length (big-endian), then as many bytes.
    Records(Records),
}

/// Names of a protocol of JSON lines.
#[derive(Debug, Default)]
pub struct JsonLines {
    /// Member with the number of bytes of JSON behind the line, and the member that this JSON is merged into.
    pub more_json: Option<MoreJson>,
    /// Member with the number of bytes behind line and JSON, which are audio.
    pub bytes_length: Option<String>,
    /// Line before audio to the client; `None` for a protocol without audio to the client.
    pub audio: Option<Template<TcpSlot>>,
    /// Last line to a client whose connection is closed early.
    pub closed: Option<Template<TcpSlot>>,
}

/// JSON behind a line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoreJson {
    /// Member of the line with its length.
    pub length: String,
    /// Member that it is merged into.
    pub into: String,
}

/// The records of a protocol.
#[derive(Debug, Default)]
pub struct Records {
    /// The meaning of each kind.
    pub kinds: BTreeMap<u8, Record>,
    /// Kind of the last record to the client, without content.
    pub close: Option<u8>,
}

/// Meaning of a kind of record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Audio of this rate, Hz.
    Audio(u32),
    /// A message with this name at `/command`, and the content at `/content`.
    Command(String, RecordContent),
}

named_enum! {
    /// How the content of a record is written in its message.
    #[derive(Default)]
    pub enum RecordContent {
        /// Not at all.
        #[default]
        None = "none",
        /// As text.
        Text = "text",
        /// As a UUID.
        Uuid = "uuid",
        /// As hexadecimal digits.
        Hex = "hex",
    }
}

named_enum! {
    /// A value that a line of `[tcp]` can use.
    pub enum TcpSlot {
        /// Length of the audio behind the line, bytes.
        Bytes = "bytes",
        /// Why the connection is closed.
        Message = "message",
        /// The close code that a WebSocket would get.
        Code = "code",
    }
}

/// Longest name of a kind of service (RFC 6335, section 5.1).
const SERVICE_NAME_MAX: usize = 15;

/// Name of a record's message: the record's own.
pub const RECORD_COMMAND: &str = "command";
/// Member of a record's message with its content.
pub const RECORD_CONTENT: &str = "content";
/// Name of the message that says which rate the audio of the records has from now on.
pub const RECORD_RATE: &str = "audio";
/// Its member with the rate, Hz.
pub const RECORD_RATE_HZ: &str = "rate_hz";

/// `[tcp]` in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpFile {
    format: FormatName,
    listener: Option<String>,
    service_kind: Option<Spanned<String>>,
    more_json: Option<MoreJson>,
    bytes_length: Option<String>,
    audio: Option<Spanned<String>>,
    closed: Option<Spanned<String>>,
    #[serde(default)]
    records: BTreeMap<Spanned<String>, RecordFile>,
    close_record: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormatName {
    JsonLines,
    Records,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordFile {
    audio_hz: Option<u32>,
    command: Option<String>,
    #[serde(default)]
    content: RecordContent,
}

impl TcpFile {
    /// Compiles the section of the protocol with this name.
    pub(super) fn compile(self, protocol: &str, document: &Document<'_>) -> Result<TcpProtocol, FileError> {
        let of_lines = [
            ("more_json", self.more_json.is_some()),
            ("bytes_length", self.bytes_length.is_some()),
            ("audio", self.audio.is_some()),
            ("closed", self.closed.is_some()),
        ];
        let of_records =
            [("records", !self.records.is_empty()), ("close_record", self.close_record.is_some())];
        let (foreign, other) = match self.format {
            FormatName::JsonLines => (&of_records[..], "records"),
            FormatName::Records => (&of_lines[..], "json_lines"),
        };
        if let Some((key, _)) = foreign.iter().find(|(_, is_set)| *is_set) {
            let message = format!("`{key}` is for `format = \"{other}\"`");
            return Err(document.problem_at_key(&["tcp", key], message));
        }
        let listener = self.listener.unwrap_or_else(|| protocol.to_owned());
        let line = |text: Option<Spanned<String>>, slots: &[TcpSlot]| {
            let slots: Vec<_> = slots.iter().map(|slot| (slot.name(), *slot)).collect();
            let compile = |text: Spanned<String>| {
                let compiled = Template::compile_slots(text.get_ref(), &slots);
                compiled.map_err(|error| document.problem(text.span().start, error.to_string()))
            };
            text.map(compile).transpose()
        };
        let format = match self.format {
            FormatName::JsonLines => TcpFormat::JsonLines(JsonLines {
                more_json: self.more_json,
                bytes_length: self.bytes_length,
                audio: line(self.audio, &[TcpSlot::Bytes])?,
                closed: line(self.closed, &[TcpSlot::Message, TcpSlot::Code])?,
            }),
            FormatName::Records => {
                let kinds = self.records.into_iter().map(|(kind, record)| {
                    let number = parse_kind(&kind, document)?;
                    let record =
                        record.compile().map_err(|text| document.problem(kind.span().start, text))?;
                    Ok((number, record))
                });
                TcpFormat::Records(Records {
                    kinds: kinds.collect::<Result<_, FileError>>()?,
                    close: self.close_record.map(|kind| parse_kind(&kind, document)).transpose()?,
                })
            }
        };
        let service_kind = self.service_kind.map(|kind| check_kind_of_service(kind, document)).transpose()?;
        Ok(TcpProtocol { listener, format, service_kind })
    }
}

impl RecordFile {
    fn compile(self) -> Result<Record, String> {
        match (self.audio_hz, self.command) {
            (Some(rate_hz), None) if self.content == RecordContent::None => Ok(Record::Audio(rate_hz)),
            (None, Some(command)) => Ok(Record::Command(command, self.content)),
            _ => Err("a record has `audio_hz`, or `command` and perhaps `content`".to_owned()),
        }
    }
}

/// The kind of a service: `_NAME._tcp`.
fn check_kind_of_service(kind: Spanned<String>, document: &Document<'_>) -> Result<String, FileError> {
    let name = kind.get_ref().strip_prefix('_').and_then(|rest| rest.strip_suffix("._tcp"));
    let is_name = |name: &str| {
        (1..=SERVICE_NAME_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && name.contains(|letter: char| letter.is_ascii_alphabetic())
            && !(name.starts_with('-') || name.ends_with('-') || name.contains("--"))
    };
    if !name.is_some_and(is_name) {
        let message =
            format!("`{}` is no kind of service; write one such as \"_wyoming._tcp\"", kind.get_ref());
        return Err(document.problem(kind.span().start, message));
    }
    Ok(kind.into_inner())
}

/// The number of a kind: `0x10` or `16`.
fn parse_kind(kind: &Spanned<String>, document: &Document<'_>) -> Result<u8, FileError> {
    let text = kind.get_ref();
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u8::from_str_radix(hex, 16));
    parsed.map_err(|_| {
        let message = format!("`{text}` is no kind of record: one is a byte such as 0x10 or 16");
        document.problem(kind.span().start, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(toml: &str) -> Result<TcpProtocol, String> {
        let document = Document::parse("own.toml", toml).unwrap();
        #[derive(Deserialize)]
        struct Outer {
            tcp: TcpFile,
        }
        let read = document.read::<Outer>().map_err(|error| error.to_string())?;
        read.tcp.compile("own", &document).map_err(|error| error.to_string())
    }

    #[test]
    fn both_formats_compile() {
        let lines = compile(
            "[tcp]\nformat = \"json_lines\"\nlistener = \"other\"\nbytes_length = \"n\"\naudio = '{\"n\": ${bytes}}'",
        );
        let lines = lines.unwrap();
        assert_eq!(lines.listener, "other");
        let TcpFormat::JsonLines(JsonLines { audio: Some(_), closed: None, .. }) = lines.format else {
            panic!("{lines:?}");
        };
        let records = compile(
            "[tcp]\nformat = \"records\"\nclose_record = \"0\"\nrecords.0x10 = { audio_hz = 8000 }\n\
             records.3 = { command = \"dtmf\", content = \"text\" }",
        );
        let records = records.unwrap();
        assert_eq!(records.listener, "own");
        let TcpFormat::Records(Records { kinds, close }) = records.format else { panic!() };
        assert_eq!(kinds[&16], Record::Audio(8000));
        assert_eq!(kinds[&3], Record::Command("dtmf".into(), RecordContent::Text));
        assert_eq!(close, Some(0));
    }

    #[test]
    fn mistakes_are_reported_with_their_position() {
        for (toml, words) in [
            ("[tcp]\nformat = \"records\"\naudio = '{}'", "own.toml:3:1"),
            ("[tcp]\nformat = \"json_lines\"\nclose_record = \"0\"", "`close_record` is for"),
            ("[tcp]\nformat = \"records\"\nrecords.0x110 = { audio_hz = 8000 }", "no kind of record"),
            ("[tcp]\nformat = \"records\"\nrecords.1 = {}", "a record has `audio_hz`"),
            ("[tcp]\nformat = \"json_lines\"\naudio = '{\"n\": ${length}}'", "unknown slot"),
            ("[tcp]\nformat = \"lines\"", "json_lines"),
            ("[tcp]\nformat = \"json_lines\"\nservice_kind = \"wyoming\"", "own.toml:3:16"),
        ] {
            let problem = compile(toml).unwrap_err();
            assert!(problem.contains(words), "{toml}: {problem}");
        }
    }
}
