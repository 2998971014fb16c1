//! Upstream dialect files: connecting, modes, sent and received messages. The schema is `mappings/reference.md`.

mod dialects;
mod file;
mod names;
mod parts;
mod requirement;
mod sections;

use crate::vocabulary::{LanePurpose, Mode, SlotValue, VoiceEncoding};
use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

use self::file::{UpstreamFile, duplex_limits, missing_messages, request_path_problems, voice_encodings};
pub use self::{
    dialects::{Dialects, ServedDialect},
    names::{ReceiveName, SendName},
    sections::{DialectSign, DuplexLimits, FailureMeanings, SocketSign},
};
use self::{parts::MessageParts, requirement::Requirement};
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

/// A compiled upstream dialect: its file, and what was made of the file.
#[derive(Debug)]
pub struct UpstreamMapping {
    file: UpstreamFile,
    /// Encodings of voice samples to try, in order; at least one.
    pub voice_encodings: Arc<[VoiceEncoding]>,
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
    pub(crate) take: MessageParts<usize>,
    /// Requirements that the session must meet.
    pub(crate) require: Vec<Requirement>,
}

impl Deref for UpstreamMapping {
    type Target = UpstreamFile;

    fn deref(&self) -> &UpstreamFile {
        &self.file
    }
}

impl UpstreamMapping {
    pub(super) fn compile(document: &Document<'_>) -> Result<Self, FileError> {
        let mut read: UpstreamFile = document.read()?;
        let mut extractor = Extractor::default();
        let mut problems = request_path_problems(document, &read);
        let rules =
            std::mem::take(&mut read.receive).into_iter().map(|rule| rule.compile(&mut extractor)).collect();
        let sent = std::mem::take(&mut read.send);
        let send = sent.iter().map(|(name, text)| (*name, document.template(text, name.slots())));
        let send: BTreeMap<SendName, Template> = check::collect_compiled(send, &mut problems);
        let send: NameTable<_> = send.into_iter().map(|(name, template)| (name as usize, template)).collect();
        let is_http = read.codec == CodecName::Http;
        for (missing, mode) in missing_messages(&sent, &read.modes).filter(|_| !is_http) {
            if missing == SendName::Close && read.close_by == CloseBy::Socket {
                continue;
            }
            let (missing, mode) = (missing.name(), mode.name());
            let message = format!("[send] has no `{missing}`, which mode `{mode}` of [modes] needs");
            problems.push(document.problem_at_key(&["send"], message));
        }
        let voice_encodings = voice_encodings(document, read.voice_encodings.take());
        problems.extend(voice_encodings.as_ref().err().cloned());
        let duplex = duplex_limits(document, read.duplex.take(), &read.modes);
        problems.extend(duplex.as_ref().err().cloned());
        FileError::combine(problems)?;
        let takes_temperature = has_slot(&send, &[SendName::Chat, SendName::ChatWithVoice], "temperature");
        Ok(Self {
            voice_encodings: voice_encodings?,
            duplex: Arc::new(duplex?),
            takes_temperature,
            detect: read.detect.take().map_or_else(Vec::new, Vec::from),
            file: read,
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
    pub fn audio_value<'a>(&self, samples: &'a [i16]) -> SlotValue<'a> {
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
    fn can_relay(&self) -> bool {
        !matches!(self.codec, CodecName::Http | CodecName::OpenaiRealtime)
    }

    /// True if an utterance can be translated: by a request of its own, or by the instruction in `transcribe`.
    pub(crate) fn can_translate(&self) -> bool {
        self.message(SendName::Translate).is_some() || has_slot(&self.send, &[SendName::Transcribe], "prompt")
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
    pub fn is_plain(&self) -> bool {
        matches!(self.codec, CodecName::Plain)
    }

    /// True if the upstream is reached by HTTP requests instead of a WebSocket.
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.codec, CodecName::Http)
    }

    /// True if a request, or the URL, names a model.
    #[must_use]
    pub fn names_models(&self) -> bool {
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
        let parts = [
            (rule.take.text, text.into()),
            (rule.take.audio, audio.into()),
            (rule.take.end_of_turn, true.into()),
        ];
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
