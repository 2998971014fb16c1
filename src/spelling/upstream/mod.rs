//! Upstream dialect files: connecting, modes, sent and received messages. The schema is `mappings/reference.md`.

mod dialects;
mod file;
mod names;
mod requirement;
mod sections;

use crate::vocabulary::{LanePurpose, Mode, SlotValue, VoiceEncoding};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    sync::Arc,
};

use serde::Deserialize;
use serde_json::Value;

use self::file::{UpstreamFile, duplex_limits, missing_messages, request_path_problems, voice_encodings};
use self::requirement::Requirement;
pub use self::{
    dialects::{Dialects, ServedDialect},
    names::{ReceiveName, SendName},
    sections::{DialectSign, DuplexLimits, FailureMeanings, SocketSign},
};
use super::{
    check::{self, Document, FileError},
    extract::Extractor,
    name_table::NameTable,
    template::Template,
};

/// Encoding of the samples in messages, mono, inside base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleEncoding {
    /// Little-endian float32.
    #[default]
    F32le,
    /// Little-endian int16.
    S16le,
    /// A WAV file. One that is received may have any rate; without a header, it is int16.
    Wav,
}

/// Behaviour of a dialect that a file cannot describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodecName {
    /// None: one message for each command, and the events of each message.
    #[default]
    Plain,
    /// No WebSocket: each request is an HTTP request, and its answer may be a stream.
    Http,
    /// vLLM-Omni: cancellation, heartbeats, playback reports, and sessions that outlast their transport.
    VllmOmni,
    /// SGLang-Omni: numbered units, pictures before their unit, and answers that end with their unit.
    SglangOmni,
    /// OpenAI Realtime: settings, items and requests for responses, each a message of its own.
    OpenaiRealtime,
}

/// How the bridge ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseBy {
    /// By the message `close`, which the upstream answers.
    #[default]
    Message,
    /// By a close frame of the WebSocket. The upstream takes no closing message.
    Socket,
}

/// A compiled upstream dialect.
#[derive(Debug)]
pub struct UpstreamMapping {
    /// Name.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Notes for readers, one line each.
    pub notes: Vec<String>,
    /// Command that starts such a server, for people.
    pub start: Option<String>,
    /// Default URL path.
    pub path: String,
    /// Query parameter that names the mode; `None` if only the messages name it.
    pub mode_key: Option<String>,
    /// Query parameter that names the upstream's model, if it is configured.
    pub model_key: Option<String>,
    /// Queries of lanes of these purposes, in place of the model's.
    pub queries: BTreeMap<LanePurpose, String>,
    /// Supported modes, with their spelling in the URL or in messages.
    pub modes: BTreeMap<Mode, String>,
    /// Most sessions at a time; `None` if the upstream queues further ones itself.
    pub sessions_max: Option<NonZero<u32>>,
    /// Behaviour of the dialect beyond its file.
    pub codec: CodecName,
    /// Paths of requests over HTTP, after the path of the URL.
    pub(crate) request_paths: BTreeMap<SendName, String>,
    /// Requests over HTTP that are sent as forms. Their audio is a file.
    pub(crate) form_requests: BTreeSet<SendName>,
    /// For requests over HTTP: the member `voice` of requests to speak, unless the upstream's configuration names another.
    pub default_voice: Option<String>,
    /// The upstream opens no session without a voice sample.
    pub voice_required: bool,
    /// Settings of a conversation that the upstream knows; `None` if it ignores the others.
    pub config_keys: Option<Vec<String>>,
    /// Largest picture, in bytes.
    pub picture_max_bytes: Option<usize>,
    /// How the bridge ends a session.
    pub close_by: CloseBy,
    /// Largest message in either direction, in bytes.
    pub message_max_bytes: usize,
    /// Longest audio of one utterance, in ms.
    pub audio_max_ms: u64,
    /// Rate of the audio it accepts, in Hz.
    pub input_rate_hz: u32,
    /// Rate of the audio it sends, in Hz.
    pub output_rate_hz: u32,
    /// Encoding of the audio it accepts.
    pub input_encoding: SampleEncoding,
    /// Encoding of the audio it sends.
    pub output_encoding: SampleEncoding,
    /// Encodings of voice samples to try, in order; at least one.
    pub voice_encodings: Arc<[VoiceEncoding]>,
    /// Texts that identify kinds of failure.
    pub meanings: FailureMeanings,
    /// Limits of its conversations.
    pub duplex: Arc<DuplexLimits>,
    /// It takes a sampling temperature for an answer.
    pub takes_temperature: bool,
    /// Ways in which a server shows that it speaks the dialect.
    pub detect: Vec<DialectSign>,
    pub(crate) extractor: Extractor,
    pub(crate) rules: Vec<ReceiveRule>,
    send: NameTable<Template>,
}

/// Compiled rule for one kind of received message: its conditions, then the extractor slots of its parts.
#[derive(Debug)]
pub(crate) struct ReceiveRule {
    pub(crate) when: Vec<(usize, Vec<String>)>,
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
    pub(crate) sequence: Option<usize>,
    pub(crate) resume_token: Option<usize>,
    pub(crate) unit_ms: Option<usize>,
    pub(crate) input_rate_hz: Option<usize>,
    pub(crate) output_rate_hz: Option<usize>,
    pub(crate) item_id: Option<usize>,
    pub(crate) transcriber: Option<usize>,
    pub(crate) turn_detector: Option<usize>,
    pub(crate) call_id: Option<usize>,
    pub(crate) name: Option<usize>,
    pub(crate) arguments: Option<usize>,
    pub(crate) usage: Option<usize>,
    pub(crate) finish: Option<usize>,
    pub(crate) retryable: Option<usize>,
    pub(crate) retry_after: Option<usize>,
    /// Requirements that the session must meet.
    pub(crate) require: Vec<Requirement>,
}

impl UpstreamMapping {
    pub(super) fn compile(document: &Document<'_>) -> Result<Self, FileError> {
        let read: UpstreamFile = document.read()?;
        super::check_kind(document, read.kind, super::MappingKind::Upstream)?;
        let mut extractor = Extractor::default();
        let mut problems = request_path_problems(document, &read);
        let rules = read.receive.into_iter().map(|rule| rule.compile(&mut extractor)).collect();
        let send = read.send.iter().map(|(name, text)| (*name, document.template(text, name.slots())));
        let send: BTreeMap<SendName, Template> = check::collect_compiled(send, &mut problems);
        let send: NameTable<_> = send.into_iter().map(|(name, template)| (name as usize, template)).collect();
        let is_http = read.codec == CodecName::Http;
        for (missing, mode) in missing_messages(&read.send, &read.modes).filter(|_| !is_http) {
            if missing == SendName::Close && read.close_by == CloseBy::Socket {
                continue;
            }
            let (missing, mode) = (missing.name(), mode.name());
            let message = format!("[send] has no `{missing}`, which mode `{mode}` of [modes] needs");
            problems.push(document.problem_at_key(&["send"], message));
        }
        let voice_encodings = voice_encodings(document, read.voice_encodings);
        problems.extend(voice_encodings.as_ref().err().cloned());
        let duplex = duplex_limits(document, read.duplex, &read.modes);
        problems.extend(duplex.as_ref().err().cloned());
        FileError::combine(problems)?;
        let takes_temperature = has_slot(&send, &[SendName::Chat, SendName::ChatWithVoice], "temperature");
        Ok(Self {
            name: read.name,
            title: read.title,
            notes: read.notes,
            start: read.start,
            path: read.path,
            mode_key: read.mode_key,
            model_key: read.model_key,
            queries: read.queries,
            modes: read.modes,
            sessions_max: read.sessions_max,
            codec: read.codec,
            request_paths: read.request_paths,
            form_requests: read.form_requests,
            default_voice: read.default_voice,
            voice_required: read.voice_required,
            config_keys: read.config_keys,
            picture_max_bytes: read.picture_max_bytes,
            close_by: read.close_by,
            message_max_bytes: read.message_max_bytes,
            audio_max_ms: read.audio_max_ms,
            input_rate_hz: read.input_rate_hz,
            output_rate_hz: read.output_rate_hz,
            input_encoding: read.input_encoding,
            output_encoding: read.output_encoding,
            voice_encodings: voice_encodings?,
            meanings: read.meanings,
            duplex: Arc::new(duplex?),
            takes_temperature,
            detect: read.detect.map_or_else(Vec::new, Vec::from),
            extractor,
            rules,
            send,
        })
    }

    /// True if some or all servers of the dialect open no session without a voice sample.
    #[must_use]
    pub fn may_require_voice(&self) -> bool {
        self.voice_required || self.meanings.refused.iter().any(|code| code == "ref_audio_required")
    }

    /// The template of a message, if the dialect has one.
    #[must_use]
    pub fn message(&self, name: SendName) -> Option<&Template> {
        self.send.get(name as usize)
    }

    /// True if one of these messages has this slot.
    #[must_use]
    pub fn has_slot(&self, names: &[SendName], slot: &str) -> bool {
        has_slot(&self.send, names, slot)
    }

    /// The dialect's name of a mode; empty if it lacks the mode.
    #[must_use]
    pub fn mode_name(&self, mode: Mode) -> &str {
        self.modes.get(&mode).map_or("", String::as_str)
    }

    /// Samples for the slot `audio`, encoded as the upstream accepts them.
    #[must_use]
    pub const fn audio_value<'a>(&self, samples: &'a [i16]) -> SlotValue<'a> {
        match self.input_encoding {
            SampleEncoding::F32le => SlotValue::Audio(samples),
            SampleEncoding::S16le => SlotValue::Pcm16(samples),
            SampleEncoding::Wav => SlotValue::Wav(samples),
        }
    }

    /// True if a lane of this purpose and mode finds its messages.
    #[must_use]
    pub fn can(&self, purpose: LanePurpose, mode: Mode) -> bool {
        let needed: &[SendName] = match purpose {
            LanePurpose::Transcribe => &[SendName::Transcribe],
            LanePurpose::Speak => &[SendName::Speak],
            LanePurpose::Answer => &SendName::CHAT,
            LanePurpose::Converse => &[SendName::Converse],
            LanePurpose::Relay if !self.can_relay() => return false,
            LanePurpose::Relay => &[],
        };
        self.modes.contains_key(&mode) && needed.iter().all(|name| self.message(*name).is_some())
    }

    /// True if the dialect's lanes can serve a client's own upstream session.
    const fn can_relay(&self) -> bool {
        !matches!(self.codec, CodecName::Http | CodecName::OpenaiRealtime)
    }

    /// True if tools are offered to the model in messages, and calls come as such. Otherwise the model is prompted for them.
    #[must_use]
    pub fn calls_tools(&self) -> bool {
        SendName::CALLS.iter().all(|name| self.message(*name).is_some())
    }

    /// True if relays fill the dialect's own templates. In others, they send the commands of a conversation.
    #[must_use]
    pub fn has_relay_messages(&self) -> bool {
        [SendName::RelayOpen, SendName::RelayAppend].iter().all(|name| self.message(*name).is_some())
    }

    /// Path of a request over HTTP, after the path of the URL. A request with a voice has the path of the one without.
    #[must_use]
    pub fn request_path(&self, name: SendName) -> Option<&str> {
        let name = match name {
            SendName::SpeakWithVoice => SendName::Speak,
            SendName::ChatWithVoice => SendName::Chat,
            name => name,
        };
        self.request_paths.get(&name).map(String::as_str)
    }

    /// True if a request over HTTP is sent as a form, with its audio as a file.
    #[must_use]
    pub fn is_form(&self, name: SendName) -> bool {
        self.form_requests.contains(&name)
    }

    /// True if the file says all about the dialect.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self.codec, CodecName::Plain)
    }

    /// True if the upstream is reached by HTTP requests instead of a WebSocket.
    #[must_use]
    pub const fn is_http(&self) -> bool {
        matches!(self.codec, CodecName::Http)
    }

    /// True if a request, or the URL, names a model.
    #[must_use]
    pub const fn names_models(&self) -> bool {
        self.is_http() || self.model_key.is_some()
    }

    /// True if the upstream assigns workers itself. Without a queue, a lane may send as soon as it is connected.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        self.rules.iter().any(|rule| rule.event == ReceiveName::Granted)
    }

    /// An example of the first message with this meaning, with this text and base64 audio where the message has them;
    /// `None` if the dialect has no such message.
    #[must_use]
    pub fn example(&self, event: ReceiveName, text: &str, audio: &str) -> Option<String> {
        let rule = self.rules.iter().find(|rule| rule.event == event)?;
        let conditions = rule
            .when
            .iter()
            .filter_map(|(slot, values)| Some((*slot, Value::from(values.first()?.as_str()))));
        let parts = [(rule.text, text.into()), (rule.audio, audio.into()), (rule.end_of_turn, true.into())];
        let parts = parts.into_iter().filter_map(|(slot, value)| Some((slot?, value)));
        Some(self.extractor.compose(&conditions.chain(parts).collect()).to_string())
    }
}

/// True if one of these messages has this slot.
fn has_slot(send: &NameTable<Template>, names: &[SendName], slot: &str) -> bool {
    names.iter().any(|name| {
        let at = name.slots().iter().position(|known| *known == slot);
        at.zip(send.get(*name as usize)).is_some_and(|(at, template)| template.uses_slot(at))
    })
}

#[cfg(test)]
mod tests;
