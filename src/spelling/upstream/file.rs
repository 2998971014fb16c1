//! A dialect's file as it is written, and the checks that need more than one of its keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    sync::Arc,
};

use serde::{Deserialize, de::IgnoredAny};
use toml::Spanned;

use super::{
    CloseBy, CodecName, DuplexLimits, FailureMeanings, ReceiveName, ReceiveRule, SampleEncoding, SendName,
    parts::MessageParts, requirement::RequirementFile, sections::DialectSigns,
};
use crate::{
    spelling::{
        check::{self, Document, FileError},
        extract::Extractor,
    },
    vocabulary::{LanePurpose, Mode, VoiceEncoding},
};

/// A dialect's file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamFile {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    /// Name.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Notes for readers, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Command that starts such a server, for people.
    pub start: Option<String>,
    /// Default URL path.
    pub path: String,
    /// Query parameter that names the mode; `None` if only the messages name it.
    #[serde(default)]
    pub mode_key: Option<String>,
    /// Query parameter that names the upstream's model, if it is configured.
    pub model_key: Option<String>,
    /// Queries of lanes of these purposes, in place of the model's.
    #[serde(default)]
    pub queries: BTreeMap<LanePurpose, String>,
    /// Supported modes, with their spelling in the URL or in messages.
    pub modes: BTreeMap<Mode, String>,
    /// Most sessions at a time; `None` if the upstream queues further ones itself.
    #[serde(default)]
    pub sessions_max: Option<NonZero<u32>>,
    /// Behaviour of the dialect beyond its file.
    #[serde(default)]
    pub codec: CodecName,
    /// Paths of requests over HTTP, after the path of the URL.
    #[serde(default)]
    pub(crate) request_paths: BTreeMap<SendName, String>,
    /// Requests over HTTP that are sent as forms. Their audio is a file.
    #[serde(default)]
    pub(crate) form_requests: BTreeSet<SendName>,
    /// For requests over HTTP: the member `voice` of requests to speak, unless the upstream's configuration names another.
    pub default_voice: Option<String>,
    /// Settings of a conversation that the upstream knows; `None` if it ignores the others.
    pub config_keys: Option<Vec<String>>,
    /// Largest picture, in bytes.
    #[serde(default)]
    pub picture_max_bytes: Option<usize>,
    /// The upstream opens no session without a voice sample.
    #[serde(default)]
    pub voice_required: bool,
    /// How the bridge ends a session.
    #[serde(default)]
    pub close_by: CloseBy,
    /// Largest message in either direction, in bytes.
    pub message_max_bytes: usize,
    /// Longest audio of one utterance, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub audio_max_ms: u64,
    /// Rate of the audio it accepts, in Hz.
    pub input_rate_hz: u32,
    /// Rate of the audio it sends, in Hz.
    pub output_rate_hz: u32,
    /// Encoding of the audio it accepts.
    #[serde(default)]
    pub input_encoding: SampleEncoding,
    /// Encoding of the audio it sends.
    #[serde(default)]
    pub output_encoding: SampleEncoding,
    #[serde(default)]
    pub(super) voice_encodings: Option<Spanned<Vec<VoiceEncoding>>>,
    pub(super) send: BTreeMap<SendName, Spanned<String>>,
    pub(super) receive: Vec<RuleFile>,
    /// Texts that identify kinds of failure.
    #[serde(default)]
    pub meanings: FailureMeanings,
    #[serde(default)]
    pub(super) duplex: Option<DuplexLimits>,
    #[serde(default)]
    pub(super) detect: Option<DialectSigns>,
}

/// A rule of `[[receive]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleFile {
    #[serde(rename = "match")]
    when: BTreeMap<String, OneOrMore>,
    event: ReceiveName,
    /// JSON pointers to the parts of the message.
    #[serde(default)]
    take: MessageParts<String>,
    #[serde(default)]
    require: Vec<RequirementFile>,
}

/// Value of a condition, or several; one must match.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Messages that a supported mode needs but `send` does not define.
pub(super) fn missing_messages<T>(
    send: &BTreeMap<SendName, T>,
    modes: &BTreeMap<Mode, String>,
) -> impl Iterator<Item = (SendName, Mode)> {
    let absent = SendName::OWN.into_iter().filter(|name| !send.contains_key(name));
    absent.filter_map(|name| {
        let mode = name.modes().iter().find(|mode| modes.contains_key(mode))?;
        Some((name, *mode))
    })
}

/// Problems with the requests of a dialect over HTTP: each needs a path, and only such a dialect has paths.
pub(super) fn request_path_problems(document: &Document<'_>, read: &UpstreamFile) -> Vec<FileError> {
    if read.codec != CodecName::Http {
        let keys = [
            ("request_paths", read.request_paths.is_empty()),
            ("form_requests", read.form_requests.is_empty()),
            ("default_voice", read.default_voice.is_none()),
        ];
        let unused = keys.into_iter().filter(|(_, is_empty)| !is_empty);
        return unused
            .map(|(key, _)| document.problem_at_key(&[key], format!("`{key}` needs `codec = \"http\"`")))
            .collect();
    }
    let requests = [SendName::Transcribe, SendName::Translate, SendName::Speak, SendName::Chat];
    let needs_path = |name: &&SendName| requests.contains(name) && !read.request_paths.contains_key(name);
    let problem = |name: &SendName| {
        let message = format!("[request_paths] has no `{0}`, but [send] has a message `{0}`", name.name());
        document.problem_at_key(&["send", name.name()], message)
    };
    read.send.keys().filter(needs_path).map(problem).collect()
}

/// Limits of conversations, which a dialect without conversations need not have.
pub(super) fn duplex_limits(
    document: &Document<'_>,
    read: Option<DuplexLimits>,
    modes: &BTreeMap<Mode, String>,
) -> Result<DuplexLimits, FileError> {
    match read {
        Some(limits) => Ok(limits),
        None if modes.keys().all(|mode| *mode == Mode::Chat) => Ok(DuplexLimits::default()),
        None => {
            Err(document.problem_at_key(&["modes"], "[duplex] is missing: conversations need its limits"))
        }
    }
}

/// Checks the encodings in the file; defaults to raw samples.
pub(super) fn voice_encodings(
    document: &Document<'_>,
    read: Option<Spanned<Vec<VoiceEncoding>>>,
) -> Result<Arc<[VoiceEncoding]>, FileError> {
    let Some(read) = read else { return Ok([VoiceEncoding::F32le].into()) };
    let (start, encodings) = (read.span().start, read.into_inner());
    let repeated = encodings.iter().enumerate().any(|(at, one)| encodings[..at].contains(one));
    if encodings.is_empty() || repeated {
        let words = "voice_encodings: list `f32le`, `wav` or `wav_url`, each at most once";
        return Err(document.problem(start, words));
    }
    Ok(encodings.into())
}

impl RuleFile {
    pub(super) fn compile(self, extractor: &mut Extractor) -> ReceiveRule {
        let values = |value| match value {
            OneOrMore::One(value) => vec![value],
            OneOrMore::More(values) => values,
        };
        let when =
            self.when.into_iter().map(|(pointer, value)| (extractor.add(&pointer), values(value))).collect();
        let require = self.require.into_iter().map(|requirement| requirement.compile(extractor)).collect();
        let mut take = self.take;
        let usage = take.usage.take().map(|pointer| extractor.add_raw(&pointer));
        let take = MessageParts { usage, ..take.map(|pointer| extractor.add(&pointer)) };
        ReceiveRule { when, event: self.event, take, require }
    }
}
