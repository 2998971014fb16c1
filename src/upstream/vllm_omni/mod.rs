//! Needs of vLLM-Omni's duplex endpoint beyond its mapping file: units and their answers, cancellation, playback reports,
//! heartbeats, a slower pace on request, and sessions that outlast their transport.
//!
//! Source: entrypoints/duplex and engine/duplex of the package vllm-omni 0.30.0, as they answer without a model
//! (tests/servers/vllm_omni_server.py). To change here: how that server behaves. Not here: its names and fields, which are in
//! `mappings/upstream/vllm-omni.toml`.
//!
//! - The server confirms no append, and names none in its answers. A unit counts as answered by the first output or `listen`
//!   after it was sent. A model that listens during its own answer says nothing: the unit then ends with its second.
//! - The user's unit is one append, so that it arrives whole or not at all. [`LEAD_SAMPLES`] stay in the server's buffer.
//! - A forced `listen` is `response.cancel`. Output until its answer belongs to the cancelled epoch and is dropped.
//! - [`Link`] resumes a session whose transport is gone; [`Outbox`] keeps what cannot be sent yet; [`InputFormat`] and
//!   [`OutputRate`] serve models that take and send audio of rates of their own.
//! - A model with shorter units than MiniCPM-o's sends audio all the time, and decides itself when it is interrupted: a new request
//!   would make it forget the conversation. [`SpeechGate`] finds its answers, and an interrupted one is dropped here.

mod input_format;
mod link;
mod outbox;
mod speech_gate;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::{
    input_format::InputFormat,
    link::Link,
    outbox::Outbox,
    speech_gate::{Activity, SpeechGate},
};
use super::{
    Dialect,
    behaviour::{CodecAction, EventSink, LaneBehaviour},
    output_rate::OutputRate,
    played_answer::PlayedAnswer,
};
use crate::{
    audio::SPEECH_RATE_HZ,
    vocabulary::{
        DisconnectReason, LaneEvent, LaneRequest, Message, MessageMeta, Mode, RefusedPart, Sound, UnitInput,
    },
};

/// Silence before a session's first unit. As long as some audio waits for the rest of its unit, the server adds no silence of
/// its own while the model speaks (`_real_input_waiting` in session/runner.py).
const LEAD_SAMPLES: usize = SPEECH_RATE_HZ as usize / 50;

/// Length of a unit of MiniCPM-o, where the session names none.
const UNIT_MS: u32 = 1000;

/// Time after which the unit in flight ends while the model says nothing in the middle of its answer.
const QUIET_UNIT: Duration = Duration::from_secs(1);

/// Time without output after which an answer no longer excuses missing answers to units.
const ANSWER_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Time without a message after which the server hears a heartbeat; that of its own client.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Id of every message that cancels an answer.
const CANCELLATION_ID: &str = "cancel";

/// Ends a unit, and adds nothing to the answer.
const UNIT_END: LaneEvent<'static> = LaneEvent::Done { text: None, audio: Sound::NONE };

/// Unit that the server has not answered.
#[derive(Debug)]
struct PendingUnit {
    id: Box<str>,
    sent_at: Instant,
    /// It was sent in pieces.
    is_split: bool,
    /// It was sent before the transport broke, so that the server may not know it.
    is_doubtful: bool,
}

impl PendingUnit {
    /// The part of it that an error refuses: an error that names no message means the last one.
    fn refused_part(&self, input_id: Option<&str>) -> Option<RefusedPart> {
        match (self.is_split, input_id) {
            (false, None) => Some(RefusedPart::Whole),
            (false, Some(id)) => (*self.id == *id).then_some(RefusedPart::Whole),
            (true, id) => (id? == format!("{}.0", self.id)).then_some(RefusedPart::Piece),
        }
    }
}

/// Audio that waits for its words, which follow it.
#[derive(Debug, Default)]
struct HeldAudio {
    response_id: Box<str>,
    samples: Vec<f32>,
}

impl HeldAudio {
    /// Adds the end of an answer's audio.
    fn end_with(&mut self, response_id: &str, samples: Vec<f32>) {
        if !samples.is_empty() {
            self.response_id = response_id.into();
            self.samples.extend(samples);
        }
    }
}

/// Behaviour of one lane.
#[derive(Debug)]
pub(super) struct VllmOmni {
    link: Link,
    outbox: Outbox,
    input_format: InputFormat,
    actions: VecDeque<CodecAction>,
    /// Number of the last event that was handled, and of the last that was acknowledged.
    last_sequence: u64,
    acknowledged: u64,
    unit_ms: u32,
    has_appended: bool,
    unit: Option<PendingUnit>,
    /// Unit that asked for the cancellation whose answer is due.
    cancelling: Option<Box<str>>,
    answer: Option<PlayedAnswer>,
    held: HeldAudio,
    output_rate: OutputRate,
    /// For a model that sends audio all the time.
    gate: Option<SpeechGate>,
    last_sent_at: Option<Instant>,
}

impl Default for VllmOmni {
    fn default() -> Self {
        Self {
            link: Link::default(),
            outbox: Outbox::default(),
            input_format: InputFormat::default(),
            actions: VecDeque::new(),
            last_sequence: 0,
            acknowledged: 0,
            unit_ms: UNIT_MS,
            has_appended: false,
            unit: None,
            cancelling: None,
            answer: None,
            held: HeldAudio::default(),
            output_rate: OutputRate::default(),
            gate: None,
            last_sent_at: None,
        }
    }
}

impl VllmOmni {
    fn handle_other(
        &mut self,
        now: Instant,
        event: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        match event {
            // The lane was closed before the server had opened its session.
            LaneEvent::Ready { .. } if self.link.is_over() => {}
            LaneEvent::Ready { session_id } => {
                self.unit_ms = meta.unit_ms.filter(|ms| *ms > 0).unwrap_or(self.unit_ms);
                match self.link.attach(session_id, meta.resume_token) {
                    true => self.continue_session(now),
                    false => {
                        self.gate = (self.unit_ms < UNIT_MS).then(SpeechGate::default);
                        emit(event, MessageMeta { held_samples: LEAD_SAMPLES, ..meta });
                    }
                }
            }
            LaneEvent::Listen if meta.response_id.is_some() => self.end_answer(meta, emit),
            LaneEvent::Listen => self.answer_unit(LaneEvent::Listen, None, emit),
            LaneEvent::RecoverableError(words) => self.handle_error(now, words, meta, emit),
            LaneEvent::Ignored => {}
            LaneEvent::Closed(_) => {
                self.link.close();
                emit(event, meta);
            }
            event => emit(event, meta),
        }
    }

    /// Keeps audio until its words are known, so that the session gets the words first, as from other servers.
    fn hold_audio(&mut self, now: Instant, samples: &[f32], meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        self.emit_held(now, emit);
        self.held =
            HeldAudio { response_id: meta.response_id.unwrap_or_default().into(), samples: samples.to_vec() };
    }

    fn emit_held(&mut self, now: Instant, emit: &mut EventSink<'_>) {
        if !self.held.samples.is_empty() {
            let id = self.held.response_id.clone();
            self.speak(now, "", Some(&id), emit);
        }
    }

    /// Emits words of the model and the audio that came before them.
    fn speak(&mut self, now: Instant, text: &str, response_id: Option<&str>, emit: &mut EventSink<'_>) {
        let samples = std::mem::take(&mut self.held).samples;
        let Some(gate) = &mut self.gate else {
            return self.emit_speech(now, text, &samples, response_id, emit);
        };
        let activity = gate.note(text, &samples);
        let id = gate.answer_id();
        match activity {
            Activity::Speaks => self.emit_speech(now, text, &samples, Some(&id), emit),
            Activity::Stops => {
                self.end_answer(MessageMeta { response_id: Some(&id), ..MessageMeta::default() }, emit);
            }
            Activity::Listens => self.answer_unit(LaneEvent::Listen, None, emit),
        }
    }

    fn emit_speech(
        &mut self,
        now: Instant,
        text: &str,
        samples: &[f32],
        response_id: Option<&str>,
        emit: &mut EventSink<'_>,
    ) {
        self.answer_unit(UNIT_END, None, emit);
        self.note_output(now, response_id.unwrap_or_default(), samples.len());
        let meta = MessageMeta { response_id, ..MessageMeta::default() };
        if !text.is_empty() {
            emit(LaneEvent::Text(text), meta);
        }
        if !samples.is_empty() {
            emit(LaneEvent::Audio(Sound::Samples(samples)), meta);
        }
    }

    /// Counts the unit in flight as answered, by this event.
    fn answer_unit(&mut self, event: LaneEvent<'_>, response_id: Option<&str>, emit: &mut EventSink<'_>) {
        if let Some(unit) = self.unit.take() {
            self.outbox.note_accepted();
            self.input_format.note_accepted();
            emit(event, MessageMeta { input_id: Some(&unit.id), response_id, ..MessageMeta::default() });
        }
    }

    fn note_output(&mut self, now: Instant, id: &str, samples: usize) {
        if self.answer.as_ref().is_none_or(|answer| *answer.response_id != *id) {
            self.report_playback(now);
            self.answer = Some(PlayedAnswer::new(now, id));
        }
        if let Some(answer) = &mut self.answer {
            answer.push(now, samples);
        }
    }

    /// The server has ended an answer: the model has, or a cancellation.
    fn end_answer(
        &mut self,
        MessageMeta { response_id, hit_limit, .. }: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        self.gate.iter_mut().for_each(SpeechGate::stop);
        let cancelled_by = self.cancelling.take();
        let hit_limit = hit_limit && cancelled_by.is_none();
        if let Some(answer) = &mut self.answer {
            answer.is_complete = true;
        }
        let unit = self.unit.take();
        let input_id = cancelled_by.or(unit.map(|unit| unit.id));
        emit(
            LaneEvent::Listen,
            MessageMeta { input_id: input_id.as_deref(), response_id, hit_limit, ..MessageMeta::default() },
        );
    }

    /// Handles an error that does not end the session. Those of messages that the session knows nothing of stay here.
    fn handle_error(&mut self, now: Instant, words: &str, meta: MessageMeta<'_>, emit: &mut EventSink<'_>) {
        let input_id = meta.input_id;
        let code = words.split(':').next().unwrap_or_default();
        match code {
            "input_backpressure" => {
                if !self.outbox.has_refused() {
                    emit(LaneEvent::Unknown(words.to_owned()), MessageMeta::default());
                }
                self.outbox.put_back_refused(now, input_id);
            }
            // The model had ended its answer before the server read the cancellation.
            "response_not_active" if self.cancelling.is_some() => {
                self.end_answer(MessageMeta::default(), emit);
            }
            "journal_overflow" => self.link.forget_token(),
            "invalid_event_ack" | "barge_in_unsupported" => {}
            _ if self.handle_rate_refusal(now, words) => {}
            _ if input_id == Some(CANCELLATION_ID) || code.starts_with("playback_") => {}
            // The opening or a unit was refused. Errors of its other pieces add nothing.
            _ => {
                self.outbox.forget_sent(input_id);
                let is_failure = code.starts_with("runtime_") || code == "internal_error";
                let unit = self.unit.take();
                let is_first = unit.is_some() || !self.has_appended;
                let refused =
                    unit.and_then(|unit| unit.refused_part(input_id)).filter(|_| meta.refused.is_some());
                emit(
                    match is_first || is_failure {
                        true => LaneEvent::RecoverableError(words),
                        false => LaneEvent::Unknown(words.to_owned()),
                    },
                    MessageMeta { refused, ..MessageMeta::default() },
                );
            }
        }
    }

    /// Ends the session. Without a transport the lane ends at once: nothing takes the message, and no goodbye comes.
    fn close(&mut self, text: String, mut emit: impl FnMut(String)) {
        if self.link.is_cut() {
            let reason = DisconnectReason::Lost("it was closed before it could be resumed".to_owned());
            self.actions.push_back(CodecAction::End(reason));
        } else {
            emit(text);
        }
        self.link.close();
    }

    /// The unit with the silence before a session's first one.
    fn with_lead(&mut self, unit: &UnitInput) -> UnitInput {
        let lead = if std::mem::replace(&mut self.has_appended, true) { 0 } else { LEAD_SAMPLES };
        let audio = Arc::new([&vec![0; lead][..], &unit.audio].concat());
        UnitInput { audio, force_listen: false, ..unit.clone() }
    }

    /// Cuts a unit into pieces that the model takes at once, with their ids. The picture goes with the first.
    fn split_unit(
        &mut self,
        unit: &UnitInput,
        encode: impl Fn(UnitInput) -> String,
    ) -> Vec<(Box<str>, String)> {
        if let Some(appends) = self.input_format.appends(unit, self.unit_ms) {
            return appends.into_iter().map(|(id, append)| (id, message(&append))).collect();
        }
        let piece = (u64::from(SPEECH_RATE_HZ) * u64::from(self.unit_ms) / 1000).max(1) as usize;
        let appends: Vec<(Box<str>, String)> = if piece + LEAD_SAMPLES >= unit.audio.len() {
            vec![(unit.input_id.clone(), encode(unit.clone()))]
        } else {
            let pieces = unit.audio.chunks(piece).enumerate().map(|(at, audio)| UnitInput {
                audio: Arc::new(audio.to_vec()),
                input_id: format!("{}.{at}", unit.input_id).into(),
                force_listen: false,
                frame: unit.frame.clone().filter(|_| at == 0),
            });
            pieces.map(|piece| (piece.input_id.clone(), encode(piece))).collect()
        };
        self.input_format.note_sent(unit.clone(), appends.len());
        appends
    }

    /// Sends the unit in flight again if this error names the rate that the model takes. True if that is all it means.
    fn handle_rate_refusal(&mut self, now: Instant, words: &str) -> bool {
        let Some(refused) = self.input_format.take_refusal(words) else { return false };
        let Some(unit) = refused else { return true };
        // Every append so far is refused.
        self.outbox.note_accepted();
        for (id, append) in self.input_format.appends(&unit, self.unit_ms).unwrap_or_default() {
            if let Some(text) = self.outbox.admit(id, message(&append), self.link.is_up()) {
                self.send(now, text);
            }
        }
        if let Some(unit) = &mut self.unit {
            (unit.sent_at, unit.is_split) = (now, true);
        }
        true
    }

    /// Stops the model. The server may have begun an answer that has not arrived, so that the message names none.
    fn cancel_answer(&mut self, now: Instant, unit: &str, emit: &mut impl FnMut(String)) {
        if let Some(gate) = &mut self.gate {
            self.held = HeldAudio::default();
            return gate.interrupt();
        }
        if let Some(report) = self.take_playback_report(now) {
            self.outbox.admit_control(report, self.link.is_up()).into_iter().for_each(&mut *emit);
        }
        self.held = HeldAudio::default();
        self.output_rate = OutputRate::default();
        if self.cancelling.replace(unit.into()).is_none() {
            self.outbox.admit_control(cancellation(), self.link.is_up()).into_iter().for_each(emit);
        }
    }

    /// Tells the server how much of the answer was heard. It keeps in its history only that, and frees the rest.
    fn report_playback(&mut self, now: Instant) {
        if let Some(report) = self.take_playback_report(now)
            && let Some(report) = self.outbox.admit_control(report, self.link.is_up())
        {
            self.send(now, report);
        }
    }

    fn take_playback_report(&mut self, now: Instant) -> Option<String> {
        let answer = self.answer.take().filter(|answer| answer.samples > 0 && self.gate.is_none())?;
        let heard_ms = answer.heard_ms(now);
        Some(message(&json!({
            "type": "playback.ack", "response_id": answer.response_id, "item_id": format!("item_{}", answer.response_id),
            "played_ms": heard_ms, "committed_ms": heard_ms,
        })))
    }

    /// The server continues the session on a new transport. Whether it got the unit in flight is not known; it is not sent
    /// again, because it must not be heard twice.
    fn continue_session(&mut self, now: Instant) {
        if let Some(unit) = &mut self.unit {
            (unit.sent_at, unit.is_doubtful) = (now, true);
        }
        // Whether the server got the cancellation is not known either. A second one does no harm.
        if self.cancelling.is_some() {
            self.send(now, cancellation());
        }
        for text in self.outbox.release_all() {
            self.send(now, text);
        }
    }

    fn send(&mut self, now: Instant, text: String) {
        self.last_sent_at = Some(now);
        self.actions.push_back(CodecAction::Send(Message::Text(text)));
    }

    fn heartbeat_at(&self) -> Option<Instant> {
        Some(self.last_sent_at.filter(|_| self.link.has_session())? + HEARTBEAT_INTERVAL)
    }

    /// When the answer has been played, as far as the clock can tell.
    fn played_at(&self) -> Option<Instant> {
        self.answer.as_ref().filter(|answer| answer.is_complete).map(PlayedAnswer::ends_at)
    }

    /// When the unit in flight ends without an answer: the model does not answer every unit while it speaks, and cannot answer
    /// one that was lost.
    fn quiet_unit_ends_at(&self) -> Option<Instant> {
        let unit = self.unit.as_ref().filter(|_| self.outbox.is_empty())?;
        let ends_at = unit.sent_at + QUIET_UNIT;
        let speaks = self
            .answer
            .as_ref()
            .is_some_and(|answer| !answer.is_complete && ends_at < answer.last_output_at + ANSWER_PAUSE_MAX);
        (speaks || unit.is_doubtful).then_some(ends_at)
    }
}

impl LaneBehaviour for VllmOmni {
    fn handle_event(
        &mut self,
        now: Instant,
        event: LaneEvent<'_>,
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        // The server repeats events after a resumption.
        if meta.sequence.is_some_and(|sequence| sequence <= self.last_sequence) {
            return;
        }
        self.last_sequence = meta.sequence.unwrap_or(self.last_sequence);
        match event {
            LaneEvent::Audio(_) | LaneEvent::Text(_) if self.cancelling.is_some() => {}
            LaneEvent::Audio(samples) => {
                let samples = self.output_rate.convert(&samples, meta.output_rate_hz);
                self.hold_audio(now, &samples, meta, emit);
            }
            LaneEvent::Text(text) => self.speak(now, text, meta.response_id, emit),
            event => {
                if matches!(event, LaneEvent::Listen)
                    && let Some(id) = meta.response_id
                {
                    self.held.end_with(id, self.output_rate.finish());
                }
                self.emit_held(now, emit);
                self.handle_other(now, event, meta, emit);
            }
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
        let (command, encode) = (&command, |command: &LaneRequest| dialect.encode(command, mode));
        let mut emit = |text| emit(Message::Text(text));
        self.last_sent_at = Some(now);
        let unit = match command {
            LaneRequest::Append(unit) => unit,
            LaneRequest::Cancel => return,
            LaneRequest::Close => return self.close(encode(command), emit),
            command => return emit(encode(command)),
        };
        if self.last_sequence > self.acknowledged && self.link.is_up() {
            self.acknowledged = self.last_sequence;
            emit(message(&json!({"type": "session.event_ack", "server_event_seq": self.last_sequence})));
        }
        if unit.force_listen {
            self.cancel_answer(now, &unit.input_id, &mut emit);
        }
        let unit = self.with_lead(unit);
        let appends = self.split_unit(&unit, |piece| encode(&LaneRequest::Append(piece)));
        let is_split = appends.len() > 1;
        for (id, text) in appends {
            if let Some(text) = self.outbox.admit(id, text, self.link.is_up()) {
                emit(text);
            }
        }
        self.unit = Some(PendingUnit { id: unit.input_id, sent_at: now, is_split, is_doubtful: false });
    }

    fn handle_opened(&mut self, now: Instant) -> bool {
        let Some(resume) = self.link.resume_message(self.last_sequence) else { return false };
        self.send(now, message(&resume));
        true
    }

    fn handle_lost(&mut self, now: Instant, reason: &DisconnectReason) -> bool {
        let resumes = self.link.handle_lost(now, reason);
        if self.link.take_due_redial(now) {
            self.actions.push_back(CodecAction::Redial);
        }
        resumes
    }

    fn pop_action(&mut self) -> Option<CodecAction> {
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let on_line =
            [self.heartbeat_at(), self.quiet_unit_ends_at(), self.outbox.release_at(), self.played_at()];
        let on_line = on_line.into_iter().flatten().filter(|_| self.link.is_up());
        on_line.chain(self.link.deadline()).min()
    }

    fn handle_timeout(&mut self, now: Instant, _dialect: &Dialect) {
        if self.link.take_due_redial(now) {
            self.actions.push_back(CodecAction::Redial);
        }
        if let Some(reason) = self.link.take_given_up(now) {
            self.actions.push_back(CodecAction::End(reason));
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if !self.link.is_up() {
            return;
        }
        if is_due(self.quiet_unit_ends_at()) {
            self.actions.extend(self.unit.take().map(|_| CodecAction::Event(UNIT_END)));
        }
        if is_due(self.outbox.release_at())
            && let Some(text) = self.outbox.release_next(now)
        {
            self.send(now, text);
        }
        if is_due(self.played_at()) {
            self.report_playback(now);
        }
        if is_due(self.heartbeat_at()) {
            self.send(now, message(&json!({"type": "session.heartbeat"})));
        }
    }
}

fn cancellation() -> String {
    message(&json!({"type": "response.cancel", "event_id": CANCELLATION_ID}))
}

fn message(json: &Value) -> String {
    json.to_string()
}

#[cfg(test)]
mod tests;
