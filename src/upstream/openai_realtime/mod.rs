//! Needs of OpenAI's Realtime API beyond its mapping file: a request takes several messages, and audio has the rates that the
//! server grants.
//!
//! Sources: openai/types/realtime of the package openai 3.57.0; entrypoints/openai/realtime of the package vllm-omni 0.32.0rc1
//! (mappings/notes/openai-realtime-servers.md#session). To change here: how such servers behave. Not here: their names and fields,
//! which are in `mappings/upstream/openai-realtime.toml`.
//!
//! - The server opens the session by `session.created`, and answers the lane's settings by `session.updated`: then the lane is
//!   ready. One that transcribes has settings for each recording, and is ready when the session is open.
//! - A [`conversation`] hears and answers all the time; the server decides when the user's turn is over.
//! - A [`question`] sends its settings, the conversation as items, and the request for a response.
//! - A server may have neither transcripts of the user nor responses outside the conversation, as turn deployments of vLLM-Omni.
//!   A request that it refuses is sent again as one for a usual answer.
//! - Few errors end the server's session. The codec ends it, because the lane's request has failed.

mod conversation;
mod question;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Instant};

use self::conversation::Conversation;
use super::{
    Dialect,
    behaviour::{CodecAction, EventSink, LaneBehaviour},
    input_rate::InputRate,
    output_rate::OutputRate,
};
use crate::{
    audio::resample::check_rate,
    spelling::upstream::SendName,
    vocabulary::{
        EndKind, EntryPart, Frame, LaneEvent, LanePurpose, LaneRequest, Message, MessageMeta, Mode, Role,
        SlotValue, Sound, UnitInput, UpstreamEnd,
    },
};

/// Length of a conversation's units, ms. The server takes audio of any length, and learns of the end of the user's turn that much
/// later.
const UNIT_MS: u32 = 200;

/// Close code of a session that the codec ends (RFC 6455 §7.4.1).
const NORMAL_CLOSURE: u16 = 1000;

/// Ends a session at vLLM-Omni's duplex endpoint (mappings/notes/vllm-omni.md#messages-up).
const GOODBYE: &str = r#"{"type":"session.close"}"#;

/// Parts of the names of formats that are no PCM, in GA and in its beta.
const OTHER_FORMATS: [&str; 4] = ["pcmu", "pcma", "g711", "opus"];

/// Ids of the messages that stop a response, cut it, and name the voice. What is wrong with them ends no request: a server that
/// refuses a voice speaks in its own.
const MINOR_IDS: [&str; 3] = ["cancel", "truncate", "voice"];

/// Error code of a message that stops a response which has ended.
const NOT_ACTIVE: &str = "response_cancel_not_active";

/// Id of the message that asks for a transcript or for a text.
const REQUEST_ID: &str = "request";

/// Advice for a server that refuses a transcript or a text in each form.
const SPEAKS_NOT: &str =
    " (if the server speaks no given texts, another [[upstream]] must have `serves = [\"speak\"]`)";
const TRANSCRIBES_NOT: &str =
    " (if the server has no answers to audio, another [[upstream]] must have `serves = [\"transcribe\"]`)";

/// Ends an answer, and adds nothing to it.
const NOTHING_MORE: LaneEvent<'static> = LaneEvent::Done { text: None, audio: Sound::NONE };

/// Behaviour of one lane.
#[derive(Debug)]
pub(super) struct OpenaiRealtime {
    purpose: LanePurpose,
    opening: Opening,
    /// Rate of the audio that the server takes, Hz.
    input_rate_hz: u32,
    /// The server makes no item of audio that is committed: a question's audio is an item from the start.
    ignores_commits: bool,
    /// The server keeps a session whose connection has ended for a while, unless it is told that the session is over.
    keeps_sessions: bool,
    /// Rate of the audio that the server sends, Hz; `None` if it names none.
    output_rate_hz: Option<u32>,
    output: OutputRate,
    /// The session names a model, which can answer. One that only transcribes names none.
    has_model: bool,
    /// The server has answers and nothing else: see [`question::request`].
    is_plain: bool,
    /// The transcript or text in progress, if it can be asked for in another form.
    request: Option<LaneRequest>,
    /// First byte of a sample whose second one is in the next message.
    split_sample: Option<u8>,
    /// The last response that has ended. Output that comes after its end is dropped.
    ended_response: Option<Box<str>>,
    /// A response was asked for, and has not ended.
    is_answering: bool,
    is_cancelled: bool,
    /// For a lane that converses.
    conversation: Option<Conversation>,
    /// Converts the audio of a conversation.
    input: Option<InputRate>,
    actions: VecDeque<CodecAction>,
}

/// Progress of the session's opening.
#[derive(Debug, Clone, Copy)]
enum Opening {
    /// Neither side has said anything.
    Dialled,
    /// The server has opened its session.
    Greeted,
    /// The settings are sent. `is_greeted` if the server's next description of its session answers them.
    Asked { is_greeted: bool },
    /// The lane is ready.
    Ready,
}

impl OpenaiRealtime {
    /// Behaviour of a lane for this purpose, at a server that takes audio at this rate unless it says otherwise.
    pub(super) fn new(purpose: LanePurpose, input_rate_hz: u32) -> Self {
        Self {
            purpose,
            opening: Opening::Dialled,
            input_rate_hz,
            ignores_commits: false,
            keeps_sessions: false,
            output_rate_hz: None,
            output: OutputRate::default(),
            has_model: false,
            is_plain: false,
            request: None,
            split_sample: None,
            ended_response: None,
            is_answering: false,
            is_cancelled: false,
            conversation: (purpose == LanePurpose::Converse).then(Conversation::default),
            input: None,
            actions: VecDeque::new(),
        }
    }

    /// Sends the lane's settings, if it has any. They need not wait for the server: by its first message, a server of several
    /// protocols knows this one.
    fn open(&mut self, settings: Option<Message>, emit: &mut dyn FnMut(Message)) {
        let is_greeted = matches!(self.opening, Opening::Greeted);
        self.opening = match settings {
            Some(settings) => {
                emit(settings);
                Opening::Asked { is_greeted }
            }
            None if is_greeted => {
                self.actions.push_back(CodecAction::Event(LaneEvent::Ready { session_id: None }));
                Opening::Ready
            }
            None => Opening::Asked { is_greeted: true },
        };
    }

    /// Handles the server's description of its session: `session.created` and `session.updated`.
    fn handle_session(&mut self, event: LaneEvent<'_>, meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        if matches!(self.opening, Opening::Dialled | Opening::Asked { is_greeted: false }) {
            // speech-to-speech alone names neither (mappings/notes/openai-realtime-servers.md#speech-to-speech).
            self.ignores_commits = meta.backend.is_none() && meta.input_rate_hz.is_none();
            self.keeps_sessions = meta.resume_token.is_some();
        }
        self.has_model |= meta.backend.is_some();
        let answers_settings = matches!(self.opening, Opening::Asked { is_greeted: true } | Opening::Ready);
        if let Some(format) = other_format(meta).filter(|_| answers_settings) {
            let detail = format!(
                "the server grants audio as {format}, and not as the 16-bit PCM that it was asked for"
            );
            return self.fail(UpstreamEnd { kind: EndKind::Misconfigured, detail }, meta, emit);
        }
        let is_other_rate = meta.input_rate_hz.is_some_and(|rate_hz| rate_hz != self.input_rate_hz);
        self.note_rates(meta);
        self.opening = match self.opening {
            Opening::Dialled | Opening::Greeted => Opening::Greeted,
            // vLLM-Omni's duplex endpoint, opened by the URL's model, first describes its own settings twice.
            Opening::Asked { is_greeted: false } => {
                Opening::Asked { is_greeted: !(self.keeps_sessions && is_other_rate) }
            }
            Opening::Asked { is_greeted: true } => {
                // Its own detector would end the turn and answer it as soon as the audio is appended.
                self.ignores_commits |= self.conversation.is_none() && meta.turn_detector.is_some();
                let unit_ms = self.conversation.is_some().then_some(UNIT_MS);
                emit(event, MessageMeta { held_samples: self.held_samples(), unit_ms, ..meta });
                Opening::Ready
            }
            Opening::Ready => {
                let lacks_transcripts = meta.input_rate_hz.is_some() && meta.transcriber.is_none();
                self.is_plain |= self.purpose == LanePurpose::Transcribe
                    && (lacks_transcripts || meta.turn_detector.is_some());
                Opening::Ready
            }
        };
    }

    /// Notes the rates that the server grants. Unusual ones are ignored, as if it had named none.
    fn note_rates(&mut self, meta: MessageMeta<'_>) {
        let granted = meta.input_rate_hz.and_then(|hz| check_rate(hz).ok());
        self.input_rate_hz = granted.unwrap_or(self.input_rate_hz);
        self.output_rate_hz = meta.output_rate_hz.or(self.output_rate_hz);
    }

    /// Emits text or audio, unless it belongs to a response that was interrupted.
    fn emit_output(
        &mut self,
        now: Instant,
        output: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        let samples = match &output {
            LaneEvent::Text("") | LaneEvent::Audio(Sound::NONE) => return,
            LaneEvent::Audio(samples) => samples.len(),
            _ => 0,
        };
        let is_heard = match &mut self.conversation {
            Some(conversation) => conversation.note_output(now, samples, meta, emit),
            None => true,
        };
        if is_heard {
            emit(output, meta);
        }
    }

    /// Ends a response, behind the rest of its audio.
    fn end_response(
        &mut self,
        now: Instant,
        event: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        let rest = self.output.finish();
        if !rest.is_empty() {
            self.emit_output(now, LaneEvent::Audio(Sound::Samples(&rest)), meta, emit);
        }
        (self.is_answering, self.is_cancelled, self.request) = (false, false, None);
        self.ended_response = meta.response_id.map(Into::into);
        match &mut self.conversation {
            Some(conversation) => conversation.end_response(meta, emit),
            None => emit(event, meta),
        }
    }

    /// Sends a unit of a conversation, its picture first, and what it interrupts.
    fn append(&mut self, now: Instant, dialect: &Dialect, unit: &UnitInput, emit: &mut dyn FnMut(Message)) {
        let Some(conversation) = &mut self.conversation else { return };
        let interrupted = conversation.end_unit(now, &unit.input_id, unit.force_listen, &mut self.actions);
        if interrupted.cancels {
            self.is_cancelled = true;
            emit(message(dialect, SendName::Cancel));
        }
        if let Some((item, heard_ms)) = interrupted.heard {
            emit(Message::Text(dialect.render_message(SendName::Truncate, 0, |slot| match slot {
                "item_id" => SlotValue::Str(&item),
                _ => SlotValue::Int(heard_ms.cast_signed()),
            })));
        }
        if let Some(picture) = &unit.frame {
            let picture = EntryPart::Picture(picture.0.clone());
            question::send_items(dialect, Role::User, &[picture], 0, emit);
        }
        if self.input.is_none() {
            self.input = InputRate::aligned(self.input_rate_hz);
        }
        if let Some(input) = &mut self.input {
            question::append(dialect, &input.convert::<i16>(&unit.audio), input.rate_hz, emit);
        }
    }

    /// Samples of a conversation that its converter keeps until the next unit.
    fn held_samples(&self) -> usize {
        InputRate::aligned(self.input_rate_hz).map_or(0, |input| input.held_samples())
    }

    /// Stops the response. A transcript cannot be stopped, and is not waited for.
    fn cancel(&mut self, dialect: &Dialect, emit: &mut dyn FnMut(Message)) {
        if !self.is_answering || std::mem::replace(&mut self.is_cancelled, true) {
            return;
        }
        match self.purpose {
            LanePurpose::Transcribe => self.actions.push_back(CodecAction::Event(NOTHING_MORE)),
            _ => emit(message(dialect, SendName::Cancel)),
        }
    }

    /// The end of a session that the server would keep.
    fn goodbye(&self) -> Option<Message> {
        self.keeps_sessions.then(|| Message::Text(GOODBYE.to_owned()))
    }

    /// Ends the server's session, whose request has failed. The server keeps it open after most errors.
    fn fail(&mut self, end: UpstreamEnd, meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        let (kind, advice) = match (self.purpose, end.kind) {
            (LanePurpose::Speak, EndKind::Refused | EndKind::RefusedForGood) => {
                (EndKind::Misconfigured, SPEAKS_NOT)
            }
            (LanePurpose::Transcribe, EndKind::Refused | EndKind::RefusedForGood) if self.is_plain => {
                (EndKind::Misconfigured, TRANSCRIBES_NOT)
            }
            (_, kind) => (kind, ""),
        };
        emit(LaneEvent::Closed(UpstreamEnd { kind, detail: end.detail + advice }), meta);
        self.close();
    }

    /// True if a request that the server refuses in its usual form may be sent in another.
    fn may_ask_otherwise(&self, refusal: &UpstreamEnd) -> bool {
        match &self.request {
            Some(LaneRequest::Speak { .. }) => refusal.kind == EndKind::Refused,
            // vLLM-Omni's words are those of a failure.
            Some(_) => self.has_model && matches!(refusal.kind, EndKind::Refused | EndKind::Other),
            None => false,
        }
    }

    fn close(&mut self) {
        self.actions.extend(self.goodbye().map(CodecAction::Send));
        self.actions.push_back(CodecAction::Send(Message::Close(NORMAL_CLOSURE, String::new())));
    }
}

impl LaneBehaviour for OpenaiRealtime {
    fn decode(&mut self, now: Instant, dialect: &Dialect, frame: Frame<'_>, emit: &mut EventSink<'_>) {
        let mut split = self.split_sample.take();
        let mut is_over = false;
        dialect.decode_after(&mut split, frame, |event, meta| {
            is_over |= matches!(event, LaneEvent::Done { .. });
            self.handle_event(now, event, meta, emit);
        });
        self.split_sample = split.filter(|_| !is_over);
        if self.is_plain
            && let Some(request) = self.request.take()
        {
            let mut send = |message| self.actions.push_back(CodecAction::Send(message));
            question::request(dialect, &request, self.input_rate_hz, true, &mut send);
        }
    }

    fn handle_event(
        &mut self,
        now: Instant,
        event: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        match event {
            // A response begins. Servers may use an id again.
            LaneEvent::Ignored if meta.response_id.is_some() => self.ended_response = None,
            _ if meta.response_id.is_some() && meta.response_id == self.ended_response.as_deref() => {}
            LaneEvent::Ready { .. } => self.handle_session(event, meta, emit),
            LaneEvent::Audio(samples) => {
                let samples = self.output.convert(&samples, self.output_rate_hz);
                self.emit_output(now, LaneEvent::Audio(Sound::Samples(&samples)), meta, emit);
            }
            LaneEvent::Text(_) => self.emit_output(now, event, meta, emit),
            LaneEvent::Done { .. } => self.end_response(now, event, meta, emit),
            // The response had ended before the server read its cancellation.
            event if self.is_cancelled && concerns_control(&event, meta) => {
                self.end_response(now, NOTHING_MORE, MessageMeta::default(), emit);
            }
            LaneEvent::RecoverableError(words) => note(words, emit),
            LaneEvent::Closed(end) if MINOR_IDS.map(Some).contains(&meta.input_id) => {
                let id = meta.input_id.unwrap_or_default();
                note(&format!("the server refuses the message `{id}`: {}", end.detail), emit);
            }
            LaneEvent::Closed(end) if meta.input_id == Some(REQUEST_ID) && self.may_ask_otherwise(&end) => {
                self.is_plain = true;
            }
            LaneEvent::Closed(end) => self.fail(end, meta, emit),
            LaneEvent::Ignored => {}
            LaneEvent::AnswerDue => {
                self.conversation.iter_mut().for_each(|conversation| conversation.await_answer(now));
            }
            LaneEvent::Listen => {
                self.conversation.iter_mut().for_each(|conversation| conversation.note_user_speaks(now));
            }
            event => emit(event, meta),
        }
    }

    fn encode(
        &mut self,
        now: Instant,
        dialect: &Dialect,
        command: LaneRequest,
        mode: Mode,
        emit: &mut dyn FnMut(Message),
    ) {
        let rate_hz = self.input_rate_hz;
        let voice = voice_message(dialect, &command).into_iter();
        match &command {
            LaneRequest::Init(_) if self.purpose == LanePurpose::Transcribe => return self.open(None, emit),
            LaneRequest::Append(unit) => return self.append(now, dialect, unit, emit),
            LaneRequest::Init(_) | LaneRequest::InitConversation(_) => {
                self.open(dialect.message_for(command, mode), emit);
                // The server's first answer is that to the settings.
                return voice.for_each(emit);
            }
            LaneRequest::Chat(turn) => {
                voice.for_each(&mut *emit);
                question::ask(dialect, turn, rate_hz, self.ignores_commits, emit);
            }
            LaneRequest::Transcribe { .. } | LaneRequest::Speak { .. } => {
                voice.for_each(&mut *emit);
                // A model for transcripts does not translate.
                self.is_plain |=
                    matches!(&command, LaneRequest::Transcribe { prompt, .. } if prompt.translates);
                question::request(dialect, &command, rate_hz, self.is_plain, emit);
                self.request = Some(command).filter(|_| !self.is_plain);
            }
            LaneRequest::Cancel => return self.cancel(dialect, emit),
            LaneRequest::Close => {
                self.goodbye().into_iter().for_each(&mut *emit);
                return dialect.message_for(command, mode).into_iter().for_each(emit);
            }
            _ => return dialect.message_for(command, mode).into_iter().for_each(emit),
        }
        (self.is_answering, self.is_cancelled) = (true, false);
    }

    fn deadline(&self) -> Option<Instant> {
        self.conversation.as_ref().and_then(Conversation::deadline)
    }

    fn handle_timeout(&mut self, now: Instant, _dialect: &Dialect) {
        let Some(conversation) = &mut self.conversation else { return };
        if let Some(end) = conversation.handle_timeout(now, &mut self.actions) {
            self.actions.push_back(CodecAction::Event(LaneEvent::Closed(end)));
            self.close();
        }
    }

    fn pop_action(&mut self) -> Option<CodecAction> {
        self.actions.pop_front()
    }
}

/// The format that the server grants in place of PCM.
fn other_format<'m>(meta: MessageMeta<'m>) -> Option<&'m str> {
    let mut granted = [meta.input_format, meta.output_format].into_iter().flatten();
    granted.find(|name| OTHER_FORMATS.iter().any(|other| name.contains(other)))
}

/// True for an error about a cancellation or a truncation.
fn concerns_control(event: &LaneEvent<'_>, meta: MessageMeta<'_>) -> bool {
    match event {
        LaneEvent::RecoverableError(words) => words.starts_with(NOT_ACTIVE),
        LaneEvent::Closed(_) => matches!(meta.input_id, Some("cancel" | "truncate")),
        _ => false,
    }
}

/// Notes an error for the log. The request goes on.
fn note(words: &str, emit: &mut EventSink<'_>) {
    emit(LaneEvent::Unknown(words.to_owned()), MessageMeta::default());
}

/// The message that names the voice of a request, if it has one by name.
fn voice_message(dialect: &Dialect, request: &LaneRequest) -> Option<Message> {
    let name = request.voice_name()?;
    Some(Message::Text(dialect.render_message(SendName::Voice, 0, |_| SlotValue::Str(name))))
}

/// A message without values.
fn message(dialect: &Dialect, name: SendName) -> Message {
    Message::Text(dialect.render_message(name, 0, |_| SlotValue::Null))
}
