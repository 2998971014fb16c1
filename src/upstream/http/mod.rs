//! A lane without a WebSocket: each request of the session is one HTTP request, and its answer a stream or a whole.
//!
//! Three kinds of requests exist, which a mapping file spells: questions to a chat model, forms with a recording to
//! transcribe, and texts to speak (the API of OpenAI, as vLLM-Omni, SGLang-Omni and speaches have it). There is no session:
//! a lane is ready at once, and ends when the session leaves it. The driver sends the request and cuts the answer into
//! frames; a lane that is dropped drops its request, which stops the server.

mod audio_body;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Instant};

use serde_json::Value;

use self::audio_body::AudioBody;
pub(super) use self::audio_body::decode_base64_wav;
use super::{
    Dialect,
    behaviour::{CodecAction, EventSink, LaneBehaviour},
};
use crate::{
    audio::{SPEECH_RATE_HZ, wav},
    foreign::shortened,
    vocabulary::{
        AnswerPart, DisconnectReason, EndKind, Frame, HttpBody, HttpRequest, LaneEvent, LaneRequest, Message,
        MessageMeta, Mode, ReportedUsage, Sound, UpstreamEnd,
    },
};

/// Data of the event that ends a stream.
const END_OF_STREAM: &str = "[DONE]";

/// Advice for the operator when a server refuses every request.
const MISCONFIGURED: &str = " (check the upstream's `token`, `model` and URL)";

/// Media type of a stream.
const EVENT_STREAM: &str = "text/event-stream";

/// Types of errors in a request, as OpenAI's API and vLLM name them.
const REQUEST_ERRORS: [&str; 2] = ["invalid_request_error", "BadRequestError"];

/// Close code of a lane that the session leaves (RFC 6455 §7.4.1).
const NORMAL_CLOSURE: u16 = 1000;

/// Requests of one lane.
#[derive(Debug, Default)]
pub(super) struct HttpLane {
    /// The answer to the last request.
    answer: Option<Answer>,
    actions: VecDeque<CodecAction>,
}

/// The part of an answer that has come.
#[derive(Debug, Default)]
struct Answer {
    path: String,
    /// HTTP status; 0 before the head.
    status: u16,
    content_type: String,
    audio: Option<AudioBody>,
    /// The server's words about a failure.
    problem: String,
    is_done: bool,
    /// The answer had a message or audio with a meaning.
    has_meaning: bool,
    /// The answer had a message without a meaning.
    has_unknown: bool,
    /// Streams of the dialect end without a mark, so that one without an event is empty: speaches heard no words.
    may_be_empty: bool,
    /// Tokens of the request, which come with or without words of the answer.
    usage: Option<ReportedUsage>,
    hit_limit: bool,
}

impl HttpLane {
    /// Ends an answer that succeeded. A body without any known message or audio is not an empty answer, but a missing one.
    fn finish(&mut self, emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        let Some(answer) = &mut self.answer else { return };
        let problem = match answer.has_answer() {
            true => answer.finish(emit).err(),
            false => Some(format!("HTTP {} for {}, without an answer", answer.status, answer.path)),
        };
        if let Some(problem) = problem {
            self.fail(EndKind::Other, problem);
        }
    }

    /// Ends the lane because its request failed.
    fn fail(&mut self, kind: EndKind, detail: String) {
        self.actions.push_back(CodecAction::Event(LaneEvent::Closed(UpstreamEnd { kind, detail })));
        self.end();
    }

    /// Ends the lane, and its request.
    fn end(&mut self) {
        self.answer = None;
        let reason = DisconnectReason::Closed(NORMAL_CLOSURE, String::new());
        self.actions.push_back(CodecAction::End(reason));
    }
}

impl LaneBehaviour for HttpLane {
    fn encode(
        &mut self,
        _now: Instant,
        dialect: &Dialect,
        command: LaneRequest,
        mode: Mode,
        _emit: &mut dyn FnMut(Message),
    ) {
        match &command {
            LaneRequest::Init(_) => {
                self.actions.push_back(CodecAction::Event(LaneEvent::Ready { session_id: None }));
            }
            LaneRequest::Close | LaneRequest::Cancel => self.end(),
            command => match request(dialect, command, mode) {
                Ok(request) => {
                    let may_be_empty = !dialect.marks_ends_of_streams();
                    self.answer =
                        Some(Answer { path: request.path.clone(), may_be_empty, ..Answer::default() });
                    self.actions.push_back(CodecAction::Request(request));
                }
                Err(problem) => self.fail(EndKind::Misconfigured, problem),
            },
        }
    }

    fn decode(&mut self, _now: Instant, dialect: &Dialect, frame: Frame<'_>, emit: &mut EventSink<'_>) {
        let Some(answer) = self.answer.as_mut().filter(|answer| !answer.is_done) else { return };
        match frame {
            Frame::Text(text) if !answer.is_success() => answer.problem = problem_in(text),
            Frame::Text(END_OF_STREAM) => self.finish(emit),
            Frame::Text(text) => {
                // A message without a meaning may be the report of a failure.
                let mut meaning = None;
                let Answer { is_done, has_meaning, has_unknown, usage, hit_limit, .. } = &mut *answer;
                dialect.decode(Frame::Text(text), |event, meta| match event {
                    LaneEvent::Unknown(words) => {
                        *has_unknown = true;
                        meaning = Some(words);
                    }
                    event => {
                        *has_meaning = true;
                        *usage = meta.usage.or(*usage);
                        *hit_limit |= meta.hit_limit;
                        if event == LaneEvent::Text("") {
                            return;
                        }
                        *is_done |= matches!(event, LaneEvent::Done { .. });
                        emit(event, meta);
                    }
                });
                match (failure_in(text), meaning) {
                    (Some((kind, problem)), _) => self.fail(kind, problem),
                    (None, Some(words)) => emit(LaneEvent::Unknown(words), MessageMeta::default()),
                    (None, None) => {}
                }
            }
            Frame::Binary(bytes) => {
                let mut samples = Vec::new();
                match answer.push_audio(bytes, dialect.mapping().output_rate_hz, &mut samples) {
                    Ok(()) if samples.is_empty() => {}
                    Ok(()) => emit(LaneEvent::Audio(Sound::Samples(&samples)), MessageMeta::default()),
                    Err(problem) => self.fail(EndKind::Other, problem),
                }
            }
        }
    }

    fn handle_answer(&mut self, part: AnswerPart, emit: &mut EventSink<'_>) {
        let Some(answer) = self.answer.as_mut().filter(|answer| !answer.is_done) else { return };
        match part {
            AnswerPart::Head { status, content_type } => {
                (answer.status, answer.content_type) = (status, content_type);
            }
            AnswerPart::End if answer.is_success() => self.finish(emit),
            AnswerPart::End => {
                let kind = EndKind::of_status(answer.status);
                let hint = if kind == EndKind::Misconfigured { MISCONFIGURED } else { "" };
                let (colon, problem) =
                    if answer.problem.is_empty() { ("", "") } else { (": ", &*answer.problem) };
                let words = format!("HTTP {} for {}{colon}{problem}{hint}", answer.status, answer.path);
                self.fail(kind, words);
            }
        }
    }

    fn pop_action(&mut self) -> Option<CodecAction> {
        self.actions.pop_front()
    }
}

impl Dialect {
    /// True if every stream of the dialect says that it is over. The messages of some servers have no type, and their streams no
    /// end.
    fn marks_ends_of_streams(&self) -> bool {
        self.mapping().rules.iter().all(|rule| !rule.when.is_empty())
    }
}

impl Answer {
    /// False if the server sent nothing that answers the request.
    fn has_answer(&self) -> bool {
        let is_empty_stream = self.content_type.starts_with(EVENT_STREAM) && !self.has_unknown;
        self.has_meaning || self.may_be_empty && is_empty_stream
    }

    const fn is_success(&self) -> bool {
        matches!(self.status, 200..300)
    }

    fn push_audio(&mut self, bytes: &[u8], rate_hz: u32, samples: &mut Vec<f32>) -> Result<(), String> {
        let body = match &mut self.audio {
            Some(body) => body,
            none => none.insert(AudioBody::new(&self.content_type, rate_hz)?),
        };
        self.has_meaning |= !bytes.is_empty();
        body.push(bytes, samples)
    }

    /// Ends the answer where its messages did not.
    ///
    /// # Errors
    /// Audio is missing.
    fn finish(&mut self, mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) -> Result<(), String> {
        let mut samples = Vec::new();
        if let Some(body) = &mut self.audio {
            body.finish(&mut samples)?;
        }
        (self.is_done, self.audio) = (true, None);
        if !samples.is_empty() {
            emit(LaneEvent::Audio(Sound::Samples(&samples)), MessageMeta::default());
        }
        let Self { usage, hit_limit, .. } = *self;
        let meta = MessageMeta { usage, hit_limit, ..MessageMeta::default() };
        emit(LaneEvent::Done { text: None, audio: Sound::NONE }, meta);
        Ok(())
    }
}

/// The request for a command.
fn request(dialect: &Dialect, command: &LaneRequest, mode: Mode) -> Result<HttpRequest, String> {
    let (mapping, name) = (dialect.mapping(), dialect.message_name(command));
    if matches!(command, LaneRequest::Transcribe { prompt, .. } if prompt.translates)
        && !mapping.can_translate()
    {
        return Err(format!(
            "the dialect {0} has no request `translate`: add it to [send] and [request_paths], or name an upstream of another dialect for transcripts",
            mapping.name
        ));
    }
    let path = mapping.request_path(name).filter(|_| mapping.message(name).is_some());
    let path =
        path.ok_or_else(|| format!("the dialect {} has no request `{}`", mapping.name, name.name()))?;
    let json = dialect.encode(command, mode);
    let body = match command {
        LaneRequest::Transcribe { audio, .. } if mapping.is_form(name) => form(&json, audio),
        _ => HttpBody::Json(json),
    };
    Ok(HttpRequest { path: path.to_owned(), body })
}

/// A form with the members of a JSON object as its fields. The one that is null is the file.
fn form(json: &str, audio: &[i16]) -> HttpBody {
    let members: serde_json::Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
    let (mut fields, mut file_field) = (Vec::new(), "file".to_owned());
    for (name, value) in members {
        match value {
            Value::Null => file_field = name,
            Value::String(text) => fields.push((name, text)),
            other => fields.push((name, other.to_string())),
        }
    }
    HttpBody::Form { fields, file_field, file: wav::write_s16(audio, SPEECH_RATE_HZ).into() }
}

/// Meaning of a message that reports a failure, and the server's words; `None` for another message.
fn failure_in(text: &str) -> Option<(EndKind, String)> {
    memchr::memmem::find(text.as_bytes(), b"\"error\"")?;
    let json: Value = serde_json::from_str(text).ok()?;
    json.get("error").filter(|error| !error.is_null())?;
    Some((failure_kind(&json), problem_in_json(&json, text)))
}

/// Meaning of a failure in the middle of a stream: vLLM writes the status that it would have had as its code.
fn failure_kind(json: &Value) -> EndKind {
    let status =
        json.pointer("/error/code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let kind = json.pointer("/error/type").and_then(Value::as_str);
    match status {
        Some(status) => EndKind::of_status(status),
        None if kind.is_some_and(|kind| REQUEST_ERRORS.contains(&kind)) => EndKind::Refused,
        None => EndKind::Other,
    }
}

/// The server's words in the body of a failed answer.
fn problem_in(text: &str) -> String {
    problem_in_json(&serde_json::from_str(text).unwrap_or_default(), text)
}

/// The words about a failure as OpenAI's API and FastAPI have them, or the whole text.
fn problem_in_json(json: &Value, text: &str) -> String {
    let known = ["/error/message", "/error", "/detail", "/detail/0/msg", "/message"];
    let words = known.into_iter().find_map(|pointer| json.pointer(pointer)?.as_str());
    let words = shortened(words.unwrap_or(text).trim()).to_owned();
    match json.pointer("/detail/0/loc").and_then(Value::as_array) {
        Some(place) => {
            let place: Vec<&str> = place.iter().filter_map(Value::as_str).collect();
            format!("{words} ({})", shortened(&place.join(".")))
        }
        None => words,
    }
}
