//! A client protocol's file: paths, limits, commands, events, errors, closes. The schema is `mappings/README.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    check::{self, Problem, spelled},
    extract::Shape,
    field::{Field, FieldFile},
    template::Template,
};
use crate::error::ErrorKind;

/// What a command means in the bridge's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Changes settings.
    Configure,
    /// Speaks a text.
    Speak,
    /// Stops speaking.
    CancelSpeech,
    /// Ends the utterance now.
    Commit,
    /// Shows the model a picture.
    Frame,
    /// Ends the session.
    Close,
    /// Ends the session; spelled apart because some protocols answer it with another reason.
    CancelSession,
}

/// What a client can be told. Mapping files name these in snake case under `[events]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// The session is open.
    SessionCreated,
    /// The user began to speak.
    SpeechStarted,
    /// The user stopped.
    SpeechEnded,
    /// What was understood so far.
    TranscriptPartial,
    /// What was understood.
    TranscriptFinal,
    /// Audio follows.
    SpeakingStarted,
    /// No more audio follows.
    SpeakingEnded,
    /// Audio comes faster than real time.
    RateLimited,
    /// Audio was dropped.
    FramesDropped,
    /// The conversation went on in another upstream session.
    RolledOver,
    /// Something went wrong.
    Error,
    /// The session is over.
    SessionClosed,
}

impl EventName {
    /// Every event.
    pub const ALL: [Self; 12] = [
        Self::SessionCreated,
        Self::SpeechStarted,
        Self::TranscriptPartial,
        Self::TranscriptFinal,
        Self::SpeechEnded,
        Self::SpeakingStarted,
        Self::SpeakingEnded,
        Self::RateLimited,
        Self::FramesDropped,
        Self::RolledOver,
        Self::Error,
        Self::SessionClosed,
    ];

    /// The values its template may use.
    #[must_use]
    pub const fn slots(self) -> &'static [&'static str] {
        match self {
            Self::SessionCreated => &["session_id", "model", "language"],
            Self::SpeechStarted | Self::SpeechEnded => &["at_ms", "unix_s"],
            Self::TranscriptPartial => &["text", "segment_id", "at_ms", "speaker", "source", "unix_s"],
            Self::TranscriptFinal => &[
                "text",
                "segment_id",
                "start_ms",
                "end_ms",
                "start_s",
                "end_s",
                "duration_s",
                "language",
                "speaker",
                "source",
                "unix_s",
            ],
            Self::SpeakingStarted => &["request_id", "at_ms", "text", "unix_s"],
            Self::SpeakingEnded => &["request_id", "at_ms", "cancelled", "audio_ms", "unix_s"],
            Self::RateLimited => &["delay_ms"],
            Self::FramesDropped => &["dropped_ms"],
            Self::RolledOver => &["reason", "gap_ms", "standby", "kept_ms", "unix_s"],
            Self::Error => &["code", "message", "recoverable", "segment_id"],
            Self::SessionClosed => &["session_id", "reason", "total_ms", "segments"],
        }
    }
}

/// Why the bridge closes a client's session. Mapping files name these in snake case under `[closes]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseName {
    /// The client asked with [`Verb::Close`].
    ClientClose,
    /// The client asked with [`Verb::CancelSession`].
    ClientCancel,
    /// No audio for too long.
    Idle,
    /// voxbridge stops.
    Shutdown,
    /// The upstream is lost for good.
    Upstream,
}

impl CloseName {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::ClientClose, Self::ClientCancel, Self::Idle, Self::Shutdown, Self::Upstream];
}

/// The file, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientFile {
    kind: super::Kind,
    name: String,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    paths: Vec<String>,
    command_key: Spanned<String>,
    #[serde(default)]
    query: BTreeMap<String, FieldFile>,
    audio_in: AudioIn,
    audio_out: AudioOut,
    commands: BTreeMap<String, CommandFile>,
    events: BTreeMap<EventName, Spanned<String>>,
    errors: BTreeMap<ErrorKind, ErrorFile>,
    closes: BTreeMap<CloseName, CloseWords>,
    #[serde(default)]
    never: BTreeMap<String, String>,
}

/// Audio from the client.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioIn {
    /// Encoding of binary frames.
    pub encoding: Encoding,
    /// Rate unless the client says otherwise, Hz.
    pub rate_hz: u32,
    /// Channels unless the client says otherwise; the first is taken.
    pub channels: u16,
    /// A larger binary frame is dropped with an error, bytes.
    pub frame_max_bytes: usize,
    /// A larger WebSocket message ends the connection with close code 1009, bytes.
    pub message_max_bytes: usize,
    /// Faster than this many seconds of audio a second draws a `rate_limited` event; 0 for never.
    #[serde(deserialize_with = "check::rate")]
    pub rate_limit: f64,
    /// Audio further ahead of the clock than this is dropped and reported, ms; 0 for never.
    #[serde(deserialize_with = "check::ms")]
    pub ahead_max_ms: u64,
    /// A session without a binary frame for this long is closed, ms; 0 for never.
    #[serde(deserialize_with = "check::ms")]
    pub idle_ms: u64,
}

/// Audio to the client.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioOut {
    /// Encoding of binary frames.
    pub encoding: Encoding,
    /// Rate unless the client says otherwise, Hz.
    pub rate_hz: u32,
    /// Largest binary frame, bytes.
    pub frame_max_bytes: usize,
}

/// Encodings of binary audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Signed 16-bit little endian, channels interleaved.
    S16le,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandFile {
    verb: Verb,
    #[serde(default)]
    fields: BTreeMap<String, FieldFile>,
}

/// How a protocol spells an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorFile {
    code: String,
    recoverable: bool,
    message: Option<Spanned<String>>,
    close: Option<CloseFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CloseFile {
    code: u16,
    text: Spanned<String>,
}

/// How a protocol spells the end of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseWords {
    /// The `reason` of its last event.
    pub reason: String,
    /// WebSocket close code (RFC 6455 §7.4).
    pub code: u16,
    /// WebSocket close reason.
    #[serde(default)]
    pub text: String,
}

/// A client protocol, compiled.
#[derive(Debug)]
pub struct ClientMapping {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// What a reader should know, a line each.
    pub notes: Vec<String>,
    /// URL paths it is served at.
    pub paths: Vec<String>,
    /// JSON pointer to what names a command, and an event.
    pub command_key: String,
    /// Query parameters.
    pub query: Vec<Field>,
    /// Audio from the client.
    pub audio_in: AudioIn,
    /// Audio to the client.
    pub audio_out: AudioOut,
    /// Commands by the value at the command key.
    pub commands: Vec<Command>,
    /// Events of the protocol that voxbridge never sends, and why.
    pub never: BTreeMap<String, String>,
    /// Finds the command key (slot 0) and every field.
    pub(crate) shape: Shape,
    events: BTreeMap<EventName, Template>,
    errors: BTreeMap<ErrorKind, ErrorWords>,
    closes: BTreeMap<CloseName, CloseWords>,
}

/// One command, compiled.
#[derive(Debug)]
pub struct Command {
    /// The value at the command key.
    pub name: String,
    /// What it means.
    pub verb: Verb,
    /// Its fields.
    pub fields: Vec<Field>,
}

/// How a protocol spells an error, compiled. Both templates know the slot `detail`.
#[derive(Debug)]
pub struct ErrorWords {
    /// Its code.
    pub code: String,
    /// Whether the session goes on.
    pub recoverable: bool,
    /// The message; the detail alone when absent.
    pub message: Option<Template>,
    /// Close code and reason, for errors that end the connection.
    pub close: Option<(u16, Template)>,
}

impl ClientMapping {
    pub(super) fn compile(file: &str, source: &str) -> Result<Self, Problem> {
        let read: ClientFile = check::parse_toml(file, source)?;
        super::expect_kind(file, source, read.kind, super::Kind::Client)?;
        let mut shape = Shape::default();
        shape.add(read.command_key.get_ref());
        let commands = read.commands.into_iter().map(|(name, command)| Command {
            name,
            verb: command.verb,
            fields: fields(command.fields, &mut shape),
        });
        let commands = commands.collect();
        let template = |name: EventName, text: &Spanned<String>| {
            Template::compile(text.get_ref(), name.slots())
                .map_err(|error| Problem::at(file, source, text.span().start, error.to_string()))
        };
        let mut problems = Vec::new();
        let events = read.events.iter().map(|(name, text)| (*name, template(*name, text)));
        let events = check::good(events, &mut problems);
        let errors = read.errors.into_iter().map(|(kind, words)| (kind, words.compile(file, source)));
        let mapping = Self {
            name: read.name,
            title: read.title,
            notes: read.notes,
            paths: read.paths,
            command_key: read.command_key.into_inner(),
            query: fields(read.query, &mut Shape::default()),
            audio_in: read.audio_in,
            audio_out: read.audio_out,
            commands,
            never: read.never,
            shape,
            events,
            errors: check::good(errors, &mut problems),
            closes: read.closes,
        };
        problems.extend(mapping.check(file, source).err());
        Problem::of(problems.into_iter().flat_map(Problem::each))?;
        Ok(mapping)
    }

    /// What the types cannot say.
    fn check(&self, file: &str, source: &str) -> Result<(), Problem> {
        let within = |path: &[&str], message: String| Problem::within(file, source, path, message);
        let mut problems = Vec::new();
        for kind in ErrorKind::ALL.iter().filter(|kind| !self.errors.contains_key(kind)) {
            let message = format!("[errors] says nothing about `{}`; every kind needs words", spelled(kind));
            problems.push(within(&["errors"], message));
        }
        for name in CloseName::ALL.iter().filter(|name| !self.closes.contains_key(name)) {
            let message = format!("[closes] says nothing about `{}`", spelled(name));
            problems.push(within(&["closes"], message));
        }
        let idle = |field: &&Field| field.file.to.is_none() && field.file.because.is_none();
        let message = |field: &Field| format!("field `{}` has neither `to` nor `because`", field.name);
        for field in self.query.iter().filter(idle) {
            problems.push(within(&["query", &field.name], message(field)));
        }
        for command in &self.commands {
            let fields = command.fields.iter().filter(idle);
            let path =
                |field: &Field| within(&["commands", &command.name, "fields", &field.name], message(field));
            problems.extend(fields.map(path));
        }
        if self.audio_out.frame_max_bytes < 2 {
            let message = "`frame_max_bytes` must hold a sample: 2 or more".to_owned();
            problems.push(within(&["audio_out", "frame_max_bytes"], message));
        }
        if self.paths.is_empty() {
            problems
                .push(within(&["paths"], "`paths` must not be empty, such as [\"/v1/realtime\"]".to_owned()));
        }
        Problem::of(problems)
    }

    /// The template of an event; `None` for what this protocol does not tell its clients.
    #[must_use]
    pub fn event(&self, name: EventName) -> Option<&Template> {
        self.events.get(&name)
    }

    /// How an error is spelled.
    #[must_use]
    pub fn error(&self, kind: ErrorKind) -> Option<&ErrorWords> {
        self.errors.get(&kind)
    }

    /// How an end is spelled.
    #[must_use]
    pub fn close(&self, name: CloseName) -> Option<&CloseWords> {
        self.closes.get(&name)
    }
}

fn fields(files: BTreeMap<String, FieldFile>, shape: &mut Shape) -> Vec<Field> {
    let compiled = files.into_iter().map(|(name, file)| {
        let slot = shape.add(&file.at.clone().unwrap_or_else(|| format!("/{name}")));
        Field { name, slot, file }
    });
    compiled.collect()
}

impl ErrorFile {
    fn compile(self, file: &str, source: &str) -> Result<ErrorWords, Problem> {
        let plain = |text: &Spanned<String>| {
            Template::compile_plain(text.get_ref(), &["detail"])
                .map_err(|error| Problem::at(file, source, text.span().start, error.to_string()))
        };
        Ok(ErrorWords {
            message: self.message.as_ref().map(plain).transpose()?,
            close: self.close.as_ref().map(|close| Ok((close.code, plain(&close.text)?))).transpose()?,
            code: self.code,
            recoverable: self.recoverable,
        })
    }
}
