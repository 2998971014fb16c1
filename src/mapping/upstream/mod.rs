//! An upstream dialect's file: connecting, modes, what is sent, what is received. The schema is `mappings/README.md`.

mod names;

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use self::names::{ReceiveName, SendName};
use super::{
    check::{self, FileError},
    extract::Extractor,
    template::Template,
};

/// The upstream's modes of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One question, one answer.
    Chat,
    /// Full-duplex audio.
    Audio,
    /// Full-duplex audio and video.
    Video,
}

impl Mode {
    /// As the files spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }
}

/// How a voice sample is written, in base64 either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoiceEncoding {
    /// Raw little-endian float32, 16 kHz mono.
    F32le,
    /// A WAV file, int16, 16 kHz mono.
    Wav,
}

/// The file, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpstreamFile {
    kind: super::MappingKind,
    name: String,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    path: String,
    mode_key: String,
    modes: BTreeMap<Mode, String>,
    message_max_bytes: usize,
    #[serde(deserialize_with = "check::deserialize_ms")]
    audio_max_ms: u64,
    input_rate_hz: u32,
    output_rate_hz: u32,
    #[serde(default)]
    voice_encodings: Option<Spanned<Vec<VoiceEncoding>>>,
    send: BTreeMap<SendName, Spanned<String>>,
    receive: Vec<RuleFile>,
    meanings: FailureMeanings,
    duplex: DuplexLimits,
}

/// What bounds a conversation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DuplexLimits {
    /// The upstream ends a session after this long, by mode, ms; a mode that is absent has no limit.
    pub session_max_ms: BTreeMap<Mode, u32>,
    /// Positions of the model's context.
    pub context_max_tokens: u32,
    /// What a unit of silence takes of it, where the upstream does not say.
    pub idle_unit_tokens: u32,
    /// What a unit of speech takes, the user's or the model's.
    pub busy_unit_tokens: u32,
    /// What a picture takes.
    pub frame_tokens: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(rename = "match")]
    when: BTreeMap<String, String>,
    event: ReceiveName,
    #[serde(default)]
    take: TakeFile,
}

/// Where the parts of a received message stand, as JSON pointers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeFile {
    position: Option<String>,
    length: Option<String>,
    wait_s: Option<String>,
    session_id: Option<String>,
    text: Option<String>,
    audio: Option<String>,
    end_of_turn: Option<String>,
    reason: Option<String>,
    detail: Option<String>,
    code: Option<String>,
    response_id: Option<String>,
    input_id: Option<String>,
    context_tokens: Option<String>,
    ticket: Option<String>,
    backend: Option<String>,
}

/// Words by which a dialect's failures are told apart.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureMeanings {
    /// In the detail of a closed session: the answer was empty, nothing went wrong.
    pub empty_answer: Vec<String>,
    /// Error codes: the queue takes nobody.
    pub queue_full: Vec<String>,
    /// Reasons of a closed session: its time or the model's context was used up, nothing went wrong.
    pub limit_reached: Vec<String>,
    /// Reasons of a closed session, for those who are told: we asked for it.
    #[serde(default)]
    pub client_close: Vec<String>,
    /// Its time was used up.
    #[serde(default)]
    pub timeout: Vec<String>,
    /// The model's context was.
    #[serde(default)]
    pub context_full: Vec<String>,
    /// The server stops.
    #[serde(default)]
    pub shutdown: Vec<String>,
    /// Those of them after which the connection stays, and with it the worker, until it is told goodbye.
    #[serde(default)]
    pub stays_open: Vec<String>,
    /// Error codes that do not end the session.
    #[serde(default)]
    pub non_fatal: Vec<String>,
}

/// An upstream dialect, compiled.
#[derive(Debug)]
pub struct UpstreamMapping {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// What a reader should know, a line each.
    pub notes: Vec<String>,
    /// URL path when the configured URL has none.
    pub path: String,
    /// Query parameter that names the mode.
    pub mode_key: String,
    /// The modes it has.
    pub modes: BTreeMap<Mode, String>,
    /// Largest message either way, bytes.
    pub message_max_bytes: usize,
    /// Longest audio of one utterance, ms.
    pub audio_max_ms: u64,
    /// Rate of audio it takes, Hz.
    pub input_rate_hz: u32,
    /// Rate of audio it sends, Hz.
    pub output_rate_hz: u32,
    /// How it takes voice samples, in the order in which that is tried; at least one.
    pub voice_encodings: Arc<[VoiceEncoding]>,
    /// How its failures are told apart.
    pub meanings: FailureMeanings,
    /// What bounds its conversations.
    pub duplex: DuplexLimits,
    pub(crate) extractor: Extractor,
    pub(crate) rules: Vec<ReceiveRule>,
    send: BTreeMap<SendName, Template>,
}

/// One kind of received message, compiled: conditions first, then the slots of its parts.
#[derive(Debug)]
pub(crate) struct ReceiveRule {
    pub(crate) when: Vec<(usize, String)>,
    pub(crate) event: ReceiveName,
    pub(crate) position: Option<usize>,
    pub(crate) length: Option<usize>,
    pub(crate) wait_s: Option<usize>,
    pub(crate) session_id: Option<usize>,
    pub(crate) text: Option<usize>,
    pub(crate) audio: Option<usize>,
    pub(crate) end_of_turn: Option<usize>,
    pub(crate) reason: Option<usize>,
    pub(crate) detail: Option<usize>,
    pub(crate) code: Option<usize>,
    pub(crate) response_id: Option<usize>,
    pub(crate) input_id: Option<usize>,
    pub(crate) context_tokens: Option<usize>,
    pub(crate) ticket: Option<usize>,
    pub(crate) backend: Option<usize>,
}

impl UpstreamMapping {
    pub(super) fn compile(file: &str, source: &str) -> Result<Self, FileError> {
        let read: UpstreamFile = check::parse_toml(file, source)?;
        super::check_kind(file, source, read.kind, super::MappingKind::Upstream)?;
        let mut extractor = Extractor::default();
        let rules = read.receive.into_iter().map(|rule| rule.compile(&mut extractor)).collect();
        let template = |name: SendName, text: &Spanned<String>| {
            Template::compile(text.get_ref(), name.slots())
                .map_err(|error| FileError::at_offset(file, source, text.span().start, error.to_string()))
        };
        let mut problems = Vec::new();
        let send = read.send.iter().map(|(name, text)| (*name, template(*name, text)));
        let send: BTreeMap<SendName, Template> = check::collect_compiled(send, &mut problems);
        for (missing, mode) in missing_messages(&read.send, &read.modes) {
            let (missing, mode) = (check::snake_case_name(&missing), mode.name());
            let message =
                format!("[send] says nothing about `{missing}`, which mode `{mode}` of [modes] needs");
            problems.push(FileError::at_key(file, source, &["send"], message));
        }
        let voice_encodings = voice_encodings(file, source, read.voice_encodings);
        problems.extend(voice_encodings.as_ref().err().cloned());
        FileError::combine(problems)?;
        Ok(Self {
            name: read.name,
            title: read.title,
            notes: read.notes,
            path: read.path,
            mode_key: read.mode_key,
            modes: read.modes,
            message_max_bytes: read.message_max_bytes,
            audio_max_ms: read.audio_max_ms,
            input_rate_hz: read.input_rate_hz,
            output_rate_hz: read.output_rate_hz,
            voice_encodings: voice_encodings?,
            meanings: read.meanings,
            duplex: read.duplex,
            extractor,
            rules,
            send,
        })
    }

    /// The template of a message.
    #[must_use]
    pub fn message(&self, name: SendName) -> Option<&Template> {
        self.send.get(&name)
    }
}

/// Messages that one of the modes needs and that are not there.
fn missing_messages<T>(
    send: &BTreeMap<SendName, T>,
    modes: &BTreeMap<Mode, String>,
) -> impl Iterator<Item = (SendName, Mode)> {
    let absent = SendName::ALL.into_iter().filter(|name| !send.contains_key(name));
    absent.filter_map(|name| {
        let mode = name.modes().iter().find(|mode| modes.contains_key(mode))?;
        Some((name, *mode))
    })
}

/// Those of the file; raw samples unless it says otherwise.
fn voice_encodings(
    file: &str,
    source: &str,
    read: Option<Spanned<Vec<VoiceEncoding>>>,
) -> Result<Arc<[VoiceEncoding]>, FileError> {
    let Some(read) = read else { return Ok([VoiceEncoding::F32le].into()) };
    let (start, encodings) = (read.span().start, read.into_inner());
    let repeated = encodings.iter().enumerate().any(|(at, one)| encodings[..at].contains(one));
    if encodings.is_empty() || repeated {
        let words = "voice_encodings: name at least one of `f32le` and `wav`, and each once";
        return Err(FileError::at_offset(file, source, start, words));
    }
    Ok(encodings.into())
}

impl RuleFile {
    fn compile(self, extractor: &mut Extractor) -> ReceiveRule {
        let when = self.when.into_iter().map(|(pointer, value)| (extractor.add(&pointer), value)).collect();
        let mut slot = |pointer: Option<String>| pointer.map(|pointer| extractor.add(&pointer));
        ReceiveRule {
            when,
            event: self.event,
            position: slot(self.take.position),
            length: slot(self.take.length),
            wait_s: slot(self.take.wait_s),
            session_id: slot(self.take.session_id),
            text: slot(self.take.text),
            audio: slot(self.take.audio),
            end_of_turn: slot(self.take.end_of_turn),
            reason: slot(self.take.reason),
            detail: slot(self.take.detail),
            code: slot(self.take.code),
            response_id: slot(self.take.response_id),
            input_id: slot(self.take.input_id),
            context_tokens: slot(self.take.context_tokens),
            ticket: slot(self.take.ticket),
            backend: slot(self.take.backend),
        }
    }
}

#[cfg(test)]
mod tests;
