//! Needs of OpenAI's Realtime API beyond its mapping file: a request takes several messages, and audio has the rates that the
//! server grants.
//!
//! Sources: openai/types/realtime of the package openai 3.57.0; entrypoints/openai/realtime of the package vllm-omni 0.32.0rc1
//! (mappings/notes/openai-realtime-servers.md). To change here: how such servers behave. Not here: their names and fields, which
//! are in `mappings/upstream/openai-realtime.toml`.
//!
//! - The server opens the session by `session.created`, and answers the lane's settings by `session.updated`: then the lane is
//!   ready. One that transcribes has settings for each recording, and is ready when the session is open.
//! - A [`question`] sends its settings, the conversation as items, and the request for a response.
//! - Few errors end the server's session. The codec ends it, because the lane's request has failed.

mod question;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Instant};

use super::{
    Dialect,
    behaviour::{CodecAction, EventSink, LaneBehaviour},
};
use crate::{
    audio::{MODEL_RATE_HZ, resample::Resampler},
    spelling::upstream::SendName,
    vocabulary::{
        EndKind, LaneEvent, LanePurpose, LaneRequest, Message, MessageMeta, Mode, SlotValue, Sound,
        UpstreamEnd,
    },
};

/// Close code of a session that the codec ends (RFC 6455 §7.4.1).
const NORMAL_CLOSURE: u16 = 1000;

/// Advice for a server that refuses to speak a given text.
const SPEAKS_NOT: &str = " (if it has no responses outside the conversation, another [[upstream]] must have `serves = [\"speak\"]`)";

/// Problem with a server that has no transcripts of the user.
const TRANSCRIBES_NOT: &str =
    "the server does not transcribe the user: another [[upstream]] must have `serves = [\"transcribe\"]`";

/// Ends an answer, and adds nothing to it.
const NOTHING_MORE: LaneEvent<'static> = LaneEvent::Done { text: None, audio: Sound::NONE };

/// Behaviour of one lane.
#[derive(Debug)]
pub(super) struct OpenaiRealtime {
    purpose: LanePurpose,
    opening: Opening,
    /// Rate of the audio that the server takes, Hz; `None` for the dialect's.
    input_rate_hz: Option<u32>,
    /// Converts audio of a server that sends it at another rate than [`MODEL_RATE_HZ`].
    output: Option<Resampler>,
    /// A response was asked for, and has not ended.
    is_answering: bool,
    is_cancelled: bool,
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
    /// Behaviour of a lane for this purpose.
    pub(super) const fn new(purpose: LanePurpose) -> Self {
        Self {
            purpose,
            opening: Opening::Dialled,
            input_rate_hz: None,
            output: None,
            is_answering: false,
            is_cancelled: false,
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
        self.note_rates(meta);
        self.opening = match self.opening {
            Opening::Dialled | Opening::Greeted => Opening::Greeted,
            Opening::Asked { is_greeted: false } => Opening::Asked { is_greeted: true },
            Opening::Asked { is_greeted: true } => {
                emit(event, meta);
                Opening::Ready
            }
            Opening::Ready => {
                let names_audio = meta.input_rate_hz.is_some();
                if self.purpose == LanePurpose::Transcribe && names_audio && meta.transcriber.is_none() {
                    let detail = TRANSCRIBES_NOT.to_owned();
                    self.fail(UpstreamEnd { kind: EndKind::Misconfigured, detail }, meta, emit);
                }
                Opening::Ready
            }
        };
    }

    /// Notes the rates that the server grants. Unusual ones are ignored, as if it had named none.
    fn note_rates(&mut self, meta: MessageMeta<'_>) {
        let is_usual = |hz: &u32| crate::audio::resample::SUPPORTED_HZ.contains(hz);
        self.input_rate_hz = meta.input_rate_hz.filter(is_usual).or(self.input_rate_hz);
        if let Some(rate_hz) = meta.output_rate_hz {
            self.output = Resampler::new(rate_hz, MODEL_RATE_HZ).ok().filter(|_| rate_hz != MODEL_RATE_HZ);
        }
    }

    /// Emits audio at the model's rate.
    fn emit_audio(&mut self, samples: &[f32], meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        let Some(resampler) = &mut self.output else {
            return emit(LaneEvent::Audio(Sound::Samples(samples)), meta);
        };
        let mut converted = Vec::new();
        resampler.push(samples, &mut converted);
        emit(LaneEvent::Audio(Sound::Samples(&converted)), meta);
    }

    /// Ends a response, behind the rest of its audio.
    fn end_response(&mut self, event: LaneEvent<'_>, meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        let mut rest = Vec::new();
        if let Some(resampler) = &mut self.output {
            resampler.flush(&mut rest);
            *resampler = resampler.renewed();
        }
        if !rest.is_empty() {
            emit(LaneEvent::Audio(Sound::Samples(&rest)), meta);
        }
        (self.is_answering, self.is_cancelled) = (false, false);
        emit(event, meta);
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

    /// Ends the server's session, whose request has failed. The server keeps it open after most errors.
    fn fail(&mut self, end: UpstreamEnd, meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        let end = match (self.purpose, end.kind) {
            (LanePurpose::Speak, EndKind::Refused | EndKind::RefusedForGood) => {
                UpstreamEnd { kind: EndKind::Misconfigured, detail: end.detail + SPEAKS_NOT }
            }
            _ => end,
        };
        emit(LaneEvent::Closed(end), meta);
        self.actions.push_back(CodecAction::Send(Message::Close(NORMAL_CLOSURE, String::new())));
    }

    /// Rate of the audio that the server takes, Hz.
    fn input_rate_hz(&self, dialect: &Dialect) -> u32 {
        self.input_rate_hz.unwrap_or(dialect.mapping().input_rate_hz)
    }
}

impl LaneBehaviour for OpenaiRealtime {
    fn handle_event(
        &mut self,
        _now: Instant,
        event: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        match event {
            LaneEvent::Ready { .. } => self.handle_session(event, meta, emit),
            LaneEvent::Audio(samples) => self.emit_audio(&samples, meta, emit),
            LaneEvent::Done { .. } => self.end_response(event, meta, emit),
            // The response had ended before the server read the cancellation.
            LaneEvent::RecoverableError(_) if self.is_cancelled => {
                self.end_response(NOTHING_MORE, meta, emit);
            }
            LaneEvent::RecoverableError(words) => {
                emit(LaneEvent::Unknown(words.to_owned()), MessageMeta::default());
            }
            LaneEvent::Closed(end) => self.fail(end, meta, emit),
            LaneEvent::Ignored => {}
            event => emit(event, meta),
        }
    }

    fn encode(
        &mut self,
        _now: Instant,
        dialect: &Dialect,
        command: LaneRequest,
        mode: Mode,
        emit: &mut dyn FnMut(Message),
    ) {
        let rate_hz = self.input_rate_hz(dialect);
        match &command {
            LaneRequest::Init(_) if self.purpose == LanePurpose::Transcribe => return self.open(None, emit),
            LaneRequest::Init(_) => return self.open(dialect.message_for(command, mode), emit),
            LaneRequest::Chat(turn) => question::ask(dialect, turn, rate_hz, emit),
            LaneRequest::Transcribe { audio, .. } => {
                emit(Message::Text(dialect.encode(&command, mode)));
                question::append_and_commit(dialect, audio, rate_hz, emit);
            }
            LaneRequest::Cancel => return self.cancel(dialect, emit),
            LaneRequest::Speak { .. } => emit(Message::Text(dialect.encode(&command, mode))),
            _ => return dialect.message_for(command, mode).into_iter().for_each(emit),
        }
        (self.is_answering, self.is_cancelled) = (true, false);
    }

    fn pop_action(&mut self) -> Option<CodecAction> {
        self.actions.pop_front()
    }
}

/// A message without values.
fn message(dialect: &Dialect, name: SendName) -> Message {
    let mut json = String::new();
    dialect.render(name, &mut json, |_| SlotValue::Null);
    Message::Text(json)
}
