//! A dialect's file as it is written, and the checks that need more than one of its keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    sync::Arc,
};

use serde::Deserialize;
use toml::Spanned;

use super::{
    CloseBy, CodecName, DuplexLimits, FailureMeanings, ReceiveName, ReceiveRule, SampleEncoding, SendName,
    requirement::RequirementFile, sections::DialectSigns,
};
use crate::{
    spelling::{
        MappingKind,
        check::{self, Document, FileError},
        extract::Extractor,
    },
    vocabulary::{LanePurpose, Mode, VoiceEncoding},
};

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamFile {
    pub(super) kind: MappingKind,
    pub(super) name: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    pub(super) start: Option<String>,
    pub(super) path: String,
    #[serde(default)]
    pub(super) mode_key: Option<String>,
    pub(super) model_key: Option<String>,
    #[serde(default)]
    pub(super) queries: BTreeMap<LanePurpose, String>,
    pub(super) modes: BTreeMap<Mode, String>,
    #[serde(default)]
    pub(super) sessions_max: Option<NonZero<u32>>,
    #[serde(default)]
    pub(super) codec: CodecName,
    #[serde(default)]
    pub(super) request_paths: BTreeMap<SendName, String>,
    #[serde(default)]
    pub(super) form_requests: BTreeSet<SendName>,
    pub(super) default_voice: Option<String>,
    pub(super) config_keys: Option<Vec<String>>,
    #[serde(default)]
    pub(super) picture_max_bytes: Option<usize>,
    #[serde(default)]
    pub(super) voice_required: bool,
    #[serde(default)]
    pub(super) close_by: CloseBy,
    pub(super) message_max_bytes: usize,
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub(super) audio_max_ms: u64,
    pub(super) input_rate_hz: u32,
    pub(super) output_rate_hz: u32,
    #[serde(default)]
    pub(super) input_encoding: SampleEncoding,
    #[serde(default)]
    pub(super) output_encoding: SampleEncoding,
    #[serde(default)]
    pub(super) voice_encodings: Option<Spanned<Vec<VoiceEncoding>>>,
    pub(super) send: BTreeMap<SendName, Spanned<String>>,
    pub(super) receive: Vec<RuleFile>,
    #[serde(default)]
    pub(super) meanings: FailureMeanings,
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
    #[serde(default)]
    take: TakeFile,
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

/// JSON pointers to the parts of a received message.
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
    sequence: Option<String>,
    resume_token: Option<String>,
    unit_ms: Option<String>,
    input_rate_hz: Option<String>,
    output_rate_hz: Option<String>,
    item_id: Option<String>,
    transcriber: Option<String>,
    turn_detector: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    usage: Option<String>,
    finish: Option<String>,
    retryable: Option<String>,
    retry_after: Option<String>,
}

/// Messages that a supported mode needs but `send` does not define.
pub(super) fn missing_messages<T>(
    send: &BTreeMap<SendName, T>,
    modes: &BTreeMap<Mode, String>,
) -> impl Iterator<Item = (SendName, Mode)> {
    let absent = SendName::ALL.into_iter().filter(|name| !send.contains_key(name));
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
    let requests = [SendName::Transcribe, SendName::Speak, SendName::Chat];
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
        let usage = self.take.usage.map(|pointer| extractor.add_raw(&pointer));
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
            sequence: slot(self.take.sequence),
            resume_token: slot(self.take.resume_token),
            unit_ms: slot(self.take.unit_ms),
            input_rate_hz: slot(self.take.input_rate_hz),
            output_rate_hz: slot(self.take.output_rate_hz),
            item_id: slot(self.take.item_id),
            transcriber: slot(self.take.transcriber),
            turn_detector: slot(self.take.turn_detector),
            call_id: slot(self.take.call_id),
            name: slot(self.take.name),
            arguments: slot(self.take.arguments),
            usage,
            finish: slot(self.take.finish),
            retryable: slot(self.take.retryable),
            retry_after: slot(self.take.retry_after),
            require,
        }
    }
}
