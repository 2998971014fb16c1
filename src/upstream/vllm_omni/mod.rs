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

mod answers;
mod input_format;
mod link;
mod outbox;
mod speech_gate;
mod units;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::{
    answers::HeldAudio,
    input_format::InputFormat,
    link::Link,
    outbox::Outbox,
    speech_gate::SpeechGate,
    units::{LEAD_SAMPLES, PendingUnit, UNIT_END},
};
use super::{
    Dialect,
    behaviour::{CodecAction, EventSink, LaneBehaviour},
    output_rate::OutputRate,
    played_answer::PlayedAnswer,
};
use crate::vocabulary::{DisconnectReason, LaneEvent, LaneRequest, Message, MessageMeta, Mode};

/// Length of a unit of MiniCPM-o, where the session names none.
const UNIT_MS: u32 = 1000;

/// Time without a message after which the server hears a heartbeat; that of its own client.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Id of every message that cancels an answer.
const CANCELLATION_ID: &str = "cancel";

/// Behaviour of one lane.
#[derive(Debug, Default)]
pub(super) struct VllmOmni {
    link: Link,
    outbox: Outbox,
    input_format: InputFormat,
    actions: VecDeque<CodecAction>,
    /// Number of the last event that was handled, and of the last that was acknowledged.
    last_sequence: u64,
    acknowledged: u64,
    /// Length of the model's units, where the session names one.
    unit_ms: Option<u32>,
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
                self.unit_ms = meta.unit_ms.filter(|ms| *ms > 0).or(self.unit_ms);
                match self.link.attach(session_id, meta.resume_token) {
                    true => self.continue_session(now),
                    false => {
                        self.gate = (self.unit_ms() < UNIT_MS).then(SpeechGate::default);
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

    fn unit_ms(&self) -> u32 {
        self.unit_ms.unwrap_or(UNIT_MS)
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
