//! A client protocol's file: paths, limits, commands, events, errors, closes. The schema is `mappings/README.md`.

mod parts;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use self::parts::{ErrorName, Place, fields, subprotocols};
use super::{
    check::{self, Problem, spelled},
    extract::{Node, Shape},
    field::{Field, FieldFile},
    relay::{RelayClient, RelayClientFile},
    template::Template,
};
use crate::{audio::encoding::Encoding, error::ErrorKind};

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
    /// Gathers text to speak.
    AppendText,
    /// Speaks what was gathered, after what is being spoken.
    Flush,
    /// Stops speaking and forgets what waits to be spoken.
    Clear,
    /// Ends the utterance now.
    Commit,
    /// Makes final what came so far, and tells it.
    Finalize,
    /// Ends the session when all that came is answered.
    Finish,
    /// Shows that the client is still there.
    KeepAlive,
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
    /// Nothing was said for as long as the client asked.
    UtteranceGap,
    /// Audio follows.
    SpeakingStarted,
    /// No more audio follows.
    SpeakingEnded,
    /// All that was gathered is spoken.
    Flushed,
    /// Nothing is spoken any more.
    Cleared,
    /// Settings were changed.
    Configured,
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
    pub const ALL: [Self; 16] = [
        Self::SessionCreated,
        Self::SpeechStarted,
        Self::TranscriptPartial,
        Self::TranscriptFinal,
        Self::SpeechEnded,
        Self::UtteranceGap,
        Self::SpeakingStarted,
        Self::SpeakingEnded,
        Self::Flushed,
        Self::Cleared,
        Self::Configured,
        Self::RateLimited,
        Self::FramesDropped,
        Self::RolledOver,
        Self::Error,
        Self::SessionClosed,
    ];

    /// The values every template may use, beside its own.
    pub const ALWAYS: [&'static str; 3] = ["session_id", "model", "opened_at"];

    /// The value that a template's hole of that number is for.
    #[must_use]
    pub fn slot(self, number: usize) -> &'static str {
        let own = self.slots();
        own.get(number).or_else(|| Self::ALWAYS.get(number - own.len())).copied().unwrap_or_default()
    }

    /// All values its template may use, as its holes are numbered.
    #[must_use]
    pub fn all_slots(self) -> Vec<&'static str> {
        self.slots().iter().copied().chain(Self::ALWAYS).collect()
    }

    /// The values its template may use, beside [`EventName::ALWAYS`].
    #[must_use]
    pub const fn slots(self) -> &'static [&'static str] {
        match self {
            Self::SessionCreated => &["language"],
            Self::SpeechStarted | Self::SpeechEnded => &["at_ms", "at_s", "unix_s"],
            Self::TranscriptPartial => &[
                "text",
                "segment_id",
                "at_ms",
                "from_s",
                "to_s",
                "duration_s",
                "speaker",
                "source",
                "unix_s",
            ],
            Self::UtteranceGap => &["last_s", "unix_s"],
            Self::Flushed | Self::Cleared => &["sequence", "unix_s"],
            Self::Configured => &["unix_s"],
            Self::TranscriptFinal => &[
                "text",
                "segment_id",
                "start_ms",
                "end_ms",
                "start_s",
                "end_s",
                "duration_s",
                "from_s",
                "to_s",
                "ended",
                "finalized",
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
            Self::SessionClosed => &["reason", "total_ms", "audio_s", "segments"],
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
    #[serde(default)]
    subprotocols: Vec<Spanned<String>>,
    command_key: Option<Spanned<String>>,
    #[serde(default)]
    lock_step: bool,
    #[serde(default)]
    query: BTreeMap<Spanned<String>, FieldFile>,
    audio_in: AudioIn,
    audio_out: AudioOut,
    commands: BTreeMap<Spanned<String>, CommandFile>,
    events: BTreeMap<EventName, Spanned<String>>,
    errors: BTreeMap<ErrorName, ErrorFile>,
    closes: BTreeMap<CloseName, CloseWords>,
    #[serde(default)]
    never: BTreeMap<String, String>,
}

/// Audio from the client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioIn {
    /// Encoding of binary frames.
    pub encoding: Encoding,
    /// Rate unless the client says otherwise, Hz.
    pub rate_hz: u32,
    /// The same for other encodings.
    #[serde(default)]
    pub rates_hz: BTreeMap<Encoding, u32>,
    /// Channels unless the client says otherwise; the first is taken.
    pub channels: u16,
    /// A larger binary frame is dropped with an error, bytes; 0 for a protocol without audio from the client.
    pub frame_max_bytes: usize,
    /// A larger WebSocket message ends the connection with close code 1009, bytes.
    pub message_max_bytes: usize,
    /// Faster than this many seconds of audio a second draws a `rate_limited` event; 0 for never.
    #[serde(deserialize_with = "check::rate")]
    pub rate_limit: f64,
    /// Audio further ahead of the clock than this is dropped and reported, ms; 0 for never.
    #[serde(deserialize_with = "check::ms")]
    pub ahead_max_ms: u64,
    /// The client is not read while more audio than this waits for words, ms; 0 for never. Then nothing is dropped.
    #[serde(default, deserialize_with = "check::ms")]
    pub hold_back_ms: u64,
    /// A session without a binary frame for this long is closed, ms; 0 for never.
    #[serde(deserialize_with = "check::ms")]
    pub idle_ms: u64,
}

/// Audio to the client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioOut {
    /// Encoding of binary frames.
    pub encoding: Encoding,
    /// Rate unless the client says otherwise, Hz.
    pub rate_hz: u32,
    /// The same for other encodings.
    #[serde(default)]
    pub rates_hz: BTreeMap<Encoding, u32>,
    /// Largest binary frame, bytes.
    pub frame_max_bytes: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandFile {
    verb: Verb,
    present: Option<Spanned<String>>,
    #[serde(default)]
    fields: BTreeMap<Spanned<String>, FieldFile>,
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
    /// The event that tells it.
    #[serde(default)]
    pub told_as: ToldAs,
}

/// How the end of a session is told before the close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToldAs {
    /// By [`EventName::SessionClosed`].
    #[default]
    SessionClosed,
    /// By [`EventName::Error`]: its code is the reason, its message the text of the close frame.
    Error,
    /// Not at all.
    Nothing,
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
    /// WebSocket subprotocols; the first that a client offers of them is agreed to.
    pub subprotocols: Vec<String>,
    /// JSON pointer to what names a command, and an event; empty where nothing does.
    pub command_key: String,
    /// Transcripts are told as answers alone: one to each binary frame, and one to what makes all final.
    pub lock_step: bool,
    /// Query parameters.
    pub query: Vec<Field>,
    /// Audio from the client.
    pub audio_in: AudioIn,
    /// Audio to the client.
    pub audio_out: AudioOut,
    /// Commands, by the value at the command key or by what is present.
    pub commands: Vec<Command>,
    /// Events of the protocol that voxbridge never sends, and why.
    pub never: BTreeMap<String, String>,
    /// What a protocol of the model's own kind is; of the rest only names, paths and the largest message then count.
    pub relay: Option<RelayClient>,
    /// Finds the command key (slot 0) and every field.
    pub(crate) shape: Shape,
    events: BTreeMap<EventName, Template>,
    errors: BTreeMap<ErrorName, ErrorWords>,
    closes: BTreeMap<CloseName, CloseWords>,
}

/// One command, compiled.
#[derive(Debug)]
pub struct Command {
    /// The value at the command key; only a name where [`Command::present`] tells it.
    pub name: String,
    /// What it means.
    pub verb: Verb,
    /// The slot that has something in it in this command.
    pub present: Option<usize>,
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
        if RelayClientFile::is_one(file, source)? {
            return Self::compile_relay(file, source);
        }
        let read: ClientFile = check::parse_toml(file, source)?;
        super::expect_kind(file, source, read.kind, super::Kind::Client)?;
        let place = Place { file, source };
        let mut shape = Shape::default();
        let command_key = read.command_key.as_ref().map_or("", |key| key.get_ref().as_str());
        shape.add(command_key);
        let commands = read.commands.into_iter();
        let commands = commands.map(|(name, command)| command.compile(name, command_key, &mut shape, place));
        let commands = commands.collect::<Result<_, Problem>>()?;
        let template = |name: EventName, text: &Spanned<String>| {
            Template::compile(text.get_ref(), &name.all_slots())
                .map_err(|error| place.problem(text.span().start, error.to_string()))
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
            subprotocols: subprotocols(read.subprotocols, place)?,
            command_key: command_key.to_owned(),
            lock_step: read.lock_step,
            query: fields(read.query, &mut Shape::default(), true, place)?,
            audio_in: read.audio_in,
            audio_out: read.audio_out,
            commands,
            never: read.never,
            relay: None,
            shape,
            events,
            errors: check::good(errors, &mut problems),
            closes: read.closes,
        };
        problems.extend(mapping.check(file, source).err());
        Problem::of(problems.into_iter().flat_map(Problem::each))?;
        Ok(mapping)
    }

    fn compile_relay(file: &str, source: &str) -> Result<Self, Problem> {
        let mut read: RelayClientFile = check::parse_toml(file, source)?;
        super::expect_kind(file, source, read.kind, super::Kind::Client)?;
        if read.paths.is_empty() {
            return Err(Problem::whole(file, "`paths` must not be empty"));
        }
        Ok(Self {
            name: std::mem::take(&mut read.name),
            title: std::mem::take(&mut read.title),
            notes: std::mem::take(&mut read.notes),
            paths: std::mem::take(&mut read.paths),
            subprotocols: Vec::new(),
            lock_step: false,
            command_key: read.command_key.clone(),
            query: Vec::new(),
            audio_in: AudioIn { message_max_bytes: read.message_max_bytes, ..AudioIn::default() },
            audio_out: AudioOut::default(),
            commands: Vec::new(),
            never: std::mem::take(&mut read.never),
            relay: Some(read.compile(file, source)?),
            shape: Shape::default(),
            events: BTreeMap::new(),
            errors: BTreeMap::new(),
            closes: BTreeMap::new(),
        })
    }

    /// Whether its sessions are relayed: one upstream session each, message by message. Such a client needs a profile that
    /// relays, and any other client one that does not.
    #[must_use]
    pub const fn relays(&self) -> bool {
        self.relay.is_some()
    }

    /// What the types cannot say.
    fn check(&self, file: &str, source: &str) -> Result<(), Problem> {
        let within = |path: &[&str], message: String| Problem::within(file, source, path, message);
        let mut problems = Vec::new();
        for kind in ErrorKind::ALL.iter().filter(|kind| self.error(**kind).is_none()) {
            let message = format!(
                "[errors] says nothing about `{}`, nor about `other`; every kind needs words",
                spelled(kind)
            );
            problems.push(within(&["errors"], message));
        }
        for name in CloseName::ALL.iter().filter(|name| !self.closes.contains_key(name)) {
            let message = format!("[closes] says nothing about `{}`", spelled(name));
            problems.push(within(&["closes"], message));
        }
        if self.audio_in.hold_back_ms > 0 && self.audio_in.ahead_max_ms > 0 {
            let message =
                "`hold_back_ms` keeps all audio and `ahead_max_ms` drops some; one of them must be 0"
                    .to_owned();
            problems.push(within(&["audio_in", "hold_back_ms"], message));
        }
        let speaks = |command: &Command| matches!(command.verb, Verb::Speak | Verb::AppendText);
        let speaks = self.commands.iter().any(speaks);
        let most = self.audio_out.frame_max_bytes;
        if most < Encoding::MAX_BYTES && (most > 0 || speaks) {
            let none = if speaks { "" } else { ", or be 0 for a protocol that sends none" };
            let message =
                format!("`frame_max_bytes` must hold a sample: {} or more{none}", Encoding::MAX_BYTES);
            problems.push(within(&["audio_out", "frame_max_bytes"], message));
        }
        if self.paths.is_empty() {
            problems
                .push(within(&["paths"], "`paths` must not be empty, such as [\"/v1/realtime\"]".to_owned()));
        }
        Problem::of(problems)
    }

    /// Whether this protocol has a query parameter.
    #[must_use]
    pub fn has_parameter(&self, name: &str) -> bool {
        let of_relay = self.relay.as_ref().is_some_and(|relay| relay.mode.key == name);
        of_relay || self.query.iter().any(|field| field.name == name)
    }

    /// Whether query parameters or commands can tell the two apart.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        self.words() != other.words()
    }

    /// What its clients are recognised by: query parameters and commands.
    fn words(&self) -> BTreeSet<&str> {
        let query = self.query.iter().map(|field| field.name.as_str());
        let commands = self.commands.iter().map(|command| command.name.as_str());
        let relay = self.relay.iter().flat_map(|relay| {
            relay.commands.iter().map(|command| command.name.as_str()).chain([relay.mode.key.as_str()])
        });
        query.chain(commands).chain(relay).collect()
    }

    /// Whether a text frame is a command of this protocol, whatever else is wrong with it.
    #[must_use]
    pub fn has_command(&self, text: &str) -> bool {
        if let Some(relay) = &self.relay {
            return relay.has_command(text);
        }
        let Ok(found) = self.shape.extract(text) else { return false };
        let name = found.get(0).and_then(Node::as_str);
        self.commands.iter().any(|command| match command.present {
            Some(slot) => found.get(slot).is_some(),
            None => Some(command.name.as_str()) == name,
        })
    }

    /// The template of an event; `None` for what this protocol does not tell its clients.
    #[must_use]
    pub fn event(&self, name: EventName) -> Option<&Template> {
        self.events.get(&name)
    }

    /// How an error is spelled.
    #[must_use]
    pub fn error(&self, kind: ErrorKind) -> Option<&ErrorWords> {
        self.errors.get(&ErrorName::Kind(kind)).or_else(|| self.errors.get(&ErrorName::Other))
    }

    /// How an end is spelled.
    #[must_use]
    pub fn close(&self, name: CloseName) -> Option<&CloseWords> {
        self.closes.get(&name)
    }
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

#[cfg(test)]
mod tests {
    use crate::mapping::Library;

    const LISTEN: &str = include_str!("../../mappings/client/deepgram-listen.toml");
    const VOSK: &str = include_str!("../../mappings/client/vosk.toml");

    #[test]
    fn nonsense_is_refused_where_it_stands() {
        for (source, old, new, place, words) in [
            (VOSK, "present = \"/eof\"", "", "[commands.eof]", "needs `present`"),
            (VOSK, "present = \"/eof\"", "present = \"eof\"", "present = \"eof\"", "begins with `/`"),
            (VOSK, "present = \"/eof\"", "presnt = \"/eof\"", "presnt", "did you mean `present`"),
            (VOSK, "at = \"/config/words\"", "at = \"config/words\"", "words =", "no JSON pointer"),
            (VOSK, "verb = \"finish\"", "verb = \"finsh\"", "verb = \"finsh\"", "did you mean `finish`"),
            (LISTEN, "mulaw = \"mulaw\"", "mulaw = \"ulaw\"", "encoding = {", "did you mean `mulaw`"),
            (LISTEN, "default = \"false\" }", "default = \"never\" }", "interim_results", "refuse itself"),
            (LISTEN, "[\"token\", ", "[\"a token\", ", "subprotocols", "subprotocol"),
            (LISTEN, "rates_hz = { mulaw", "rates_hz = { ulaw", "rates_hz", "did you mean `mulaw`"),
            (
                LISTEN,
                "keyterms = { to",
                "keyterms = { default = \"a\", to",
                "keyterms =",
                "is for query parameters",
            ),
            (
                LISTEN,
                "features = { type",
                "features = { means = { a = \"b\" }, type",
                "features",
                "cannot have",
            ),
        ] {
            assert!(source.contains(old), "{old}");
            let source = source.replacen(old, new, 1);
            let problem = Library::default().add("f.toml", &source).unwrap_err();
            let line = source.lines().position(|line| line.starts_with(place)).map(|at| at + 1);
            assert!(problem.message.contains(words), "{new}: {problem}");
            assert_eq!(Some(problem.line), line, "{new}: {problem}");
        }
    }

    #[test]
    fn what_keeps_all_audio_cannot_drop_some() {
        let both = LISTEN.replace("ahead_max_ms = 0", "ahead_max_ms = 1");
        let problem = Library::default().add("f.toml", &both).unwrap_err();
        assert!(problem.message.contains("one of them must be 0"), "{problem}");
    }
}
