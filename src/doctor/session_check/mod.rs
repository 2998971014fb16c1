//! Session of a check with one upstream, from the upgrade to the close; sans-IO.
//!
//! The check returns messages to send, deadlines and the outcome of each step. It always ends within a bounded time. If it
//! has a worker, or may have one, it closes the session and waits for the acknowledgement ([`closing`]). A queued session first
//! waits for its worker. [`steps`] are those that succeed.

mod closing;
mod steps;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    step::{CheckOutcome, DoctorStep, StepLimits},
    symptom::Symptom,
};
use crate::{
    foreign::shortened,
    spelling::UpstreamMapping,
    upstream::lane::{CodecAction, LaneCodec, LaneEnd, LaneOpening},
    vocabulary::{
        DisconnectReason, Frame, LaneEvent, LanePurpose, LaneRequest, Message, MessageMeta, Mode, UpstreamEnd,
    },
};

/// Limits of the stored messages, which serve to recognise the server.
const RECEIVED_MAX_MESSAGES: usize = 3;
const RECEIVED_MAX_BYTES: usize = 16 * 1024;

/// How far a check goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Until a worker is assigned.
    Queue,
    /// Until the worker is ready.
    Init,
    /// Until the model has answered.
    Answer,
}

/// Plan of a check: dialect, messages and limits.
#[derive(Debug, Clone)]
pub struct CheckPlan {
    /// Dialect of the upstream.
    pub dialect: Arc<UpstreamMapping>,
    /// Mode of the session.
    pub mode: Mode,
    /// Command that opens the session.
    pub init: LaneRequest,
    /// Command that the model answers.
    pub question: LaneRequest,
    /// How far to go.
    pub depth: Depth,
    /// The number of sessions that the server announces before one opens, in words.
    pub capacity: Option<String>,
    /// Time limits.
    pub limits: StepLimits,
}

/// Next action of the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum CheckAction {
    /// Send this text frame.
    Send(String),
    /// Wait for a frame, the end of the connection, or this instant.
    Wait(Instant),
    /// Send a close frame, then wait for the end of the connection or this instant.
    CloseAndWait(Instant),
    /// The check is finished.
    Finished,
}

#[derive(Debug)]
enum CheckPhase {
    Queued,
    Initialising,
    AwaitingAnswer,
    /// The close command is sent, or the socket closed in its place; the server should acknowledge it by then.
    Closing {
        until: Instant,
        by_socket: bool,
    },
    /// The check is over, but the session still waits in the queue, because a gateway loses the worker that it assigns to a
    /// client that has disconnected.
    LeavingQueue {
        until: Instant,
        is_close_sent: bool,
    },
    /// The server has ended the session and should close the connection by then.
    EndedByServer {
        until: Instant,
    },
    /// The check closes the connection.
    ClosingTransport {
        until: Instant,
    },
    Finished,
}

/// Check of one session.
#[derive(Debug)]
pub struct SessionCheck {
    codec: LaneCodec,
    plan: CheckPlan,
    phase: CheckPhase,
    /// Start of the current step.
    step_started_at: Instant,
    /// Commands that are not encoded yet, each with its instant.
    commands: VecDeque<(Instant, LaneRequest)>,
    outgoing: VecDeque<String>,
    outcomes: VecDeque<CheckOutcome>,
    /// Step at which the server ended the session, reported once the code of the close frame is known.
    unreported_end: Option<(DoctorStep, Duration, UpstreamEnd)>,
    /// True if the server has ended the session, so that no close is needed.
    has_server_left: bool,
    has_worker: bool,
    queue_position: Option<(Option<u32>, Option<u32>)>,
    questions_sent: u32,
    fastest_answer: Duration,
    unknown_message: Option<String>,
    received: Vec<String>,
    reached: Option<Depth>,
}

impl SessionCheck {
    /// Starts a check on an open WebSocket.
    pub fn new(now: Instant, plan: CheckPlan) -> Self {
        let mut check = Self {
            codec: plan.new_codec(),
            plan,
            phase: CheckPhase::Queued,
            step_started_at: now,
            commands: VecDeque::new(),
            outgoing: VecDeque::new(),
            outcomes: VecDeque::new(),
            unreported_end: None,
            has_server_left: false,
            has_worker: false,
            queue_position: None,
            questions_sent: 0,
            fastest_answer: Duration::MAX,
            unknown_message: None,
            received: Vec::new(),
            reached: None,
        };
        if check.codec.handle_opened(now) == LaneOpening::Granted {
            check.handle_granted(now);
        }
        check
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> CheckAction {
        while let Some((at, command)) = self.commands.pop_front() {
            self.encode(at, command);
        }
        if let Some(text) = self.outgoing.pop_front() {
            return CheckAction::Send(text);
        }
        match self.phase {
            CheckPhase::Queued | CheckPhase::Initialising | CheckPhase::AwaitingAnswer => {
                CheckAction::Wait(self.step_started_at + self.plan.limits.step_timeout)
            }
            CheckPhase::Closing { until, by_socket: false }
            | CheckPhase::LeavingQueue { until, .. }
            | CheckPhase::EndedByServer { until } => CheckAction::Wait(until),
            CheckPhase::Closing { until, by_socket: true } | CheckPhase::ClosingTransport { until } => {
                CheckAction::CloseAndWait(until)
            }
            CheckPhase::Finished => CheckAction::Finished,
        }
    }

    /// Returns the outcome of the next completed step.
    pub fn next_outcome(&mut self) -> Option<CheckOutcome> {
        self.outcomes.pop_front()
    }

    /// Depth reached so far.
    pub const fn reached(&self) -> Option<Depth> {
        self.reached
    }

    /// True while the check only waits for its turn in the queue, to close its session.
    pub const fn is_leaving_queue(&self) -> bool {
        matches!(self.phase, CheckPhase::LeavingQueue { .. })
    }

    /// First messages of the server, unparsed.
    pub fn received(&self) -> &[String] {
        &self.received
    }

    /// Handles a frame from the server.
    pub fn handle_frame(&mut self, now: Instant, frame: Frame<'_>) {
        if let (Frame::Text(text), true) = (frame, self.received.len() < RECEIVED_MAX_MESSAGES) {
            self.received.extend((text.len() <= RECEIVED_MAX_BYTES).then(|| text.to_owned()));
        }
        // Decoded events borrow from the codec, so it cannot stay in `self` during decoding. Commands wait meanwhile.
        let mut codec = std::mem::replace(&mut self.codec, self.plan.new_codec());
        codec.decode(now, frame, |event, meta| self.handle_event(now, &event, meta));
        self.codec = codec;
        self.take_codec_actions(now);
    }

    fn handle_event(&mut self, now: Instant, event: &LaneEvent<'_>, meta: MessageMeta<'_>) {
        match (&self.phase, event) {
            (
                CheckPhase::Finished | CheckPhase::EndedByServer { .. } | CheckPhase::ClosingTransport { .. },
                _,
            ) => {}
            (_, LaneEvent::Closed(end)) => self.handle_closed(now, end),
            (_, LaneEvent::Unknown(detail)) => {
                self.unknown_message.get_or_insert_with(|| detail.clone());
            }
            (CheckPhase::Closing { .. }, LaneEvent::Queued { .. }) if !self.has_worker => {
                self.leave_queue(now, true);
            }
            (CheckPhase::LeavingQueue { is_close_sent, .. }, LaneEvent::Granted) => {
                self.handle_late_grant(now, *is_close_sent);
            }
            (CheckPhase::Queued, LaneEvent::Queued { position, length, .. }) => {
                self.queue_position = Some((*position, *length));
            }
            (CheckPhase::Queued, LaneEvent::Granted) => self.handle_granted(now),
            (CheckPhase::Queued, LaneEvent::Ready { .. }) => {
                self.fail(now, Symptom::UnrequestedSession);
            }
            (CheckPhase::Initialising, LaneEvent::Ready { session_id }) => {
                let backend = meta.backend.map(|backend| format!("back-end {backend}"));
                let session = session_id.map(|id| shortened(id).to_owned());
                let capacity = self.announced_sessions().map(|count| format!("at most {count} sessions"));
                let note = [backend, session, capacity].into_iter().flatten().collect::<Vec<_>>().join(", ");
                self.handle_ready(now, note);
            }
            (CheckPhase::Initialising | CheckPhase::AwaitingAnswer, LaneEvent::RecoverableError(detail)) => {
                self.fail(now, Symptom::RecoverableError((*detail).to_owned()));
            }
            (CheckPhase::AwaitingAnswer, LaneEvent::Done { .. }) => self.handle_answer(now),
            // In a conversation these events answer the unit; in a chat they only begin the answer.
            (CheckPhase::AwaitingAnswer, LaneEvent::Listen | LaneEvent::Audio(_))
                if self.is_conversation() =>
            {
                self.handle_answer(now);
            }
            _ => {}
        }
    }

    /// Handles the end of the connection.
    pub fn handle_disconnect(&mut self, now: Instant, reason: DisconnectReason) {
        let took = now - self.step_started_at;
        if let LaneEnd::Over(Some(end)) = self.codec.handle_end(now, &reason) {
            self.handle_event(now, &LaneEvent::Closed(end), MessageMeta::default());
        }
        match (&self.phase, self.unreported_end.take()) {
            (CheckPhase::Finished, _) => return,
            (_, Some((step, took, end))) => {
                let code = match reason {
                    DisconnectReason::Closed(code, _) => Some(code),
                    _ => None,
                };
                self.report_session_ended(step, took, end, code);
            }
            (CheckPhase::Closing { by_socket: true, .. }, None) => {
                let limit = self.plan.limits.close_timeout;
                self.outcomes.push_back(CheckOutcome::completed(DoctorStep::Close, took, limit, ""));
            }
            (CheckPhase::Closing { .. }, None) => {
                self.outcomes.push_back(CheckOutcome::failed(
                    DoctorStep::Close,
                    took,
                    Symptom::CloseNotAcknowledged(reason.to_string()),
                ));
            }
            (CheckPhase::LeavingQueue { .. }, None) => self.mark_server_left(),
            (CheckPhase::EndedByServer { .. } | CheckPhase::ClosingTransport { .. }, None) => {}
            (_, None) => {
                let step = self.current_step();
                self.outcomes.push_back(CheckOutcome::failed(step, took, Symptom::Disconnected(reason)));
                self.mark_server_left();
            }
        }
        self.finish();
    }

    /// Handles a deadline.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = now >= self.step_started_at + self.plan.limits.step_timeout;
        let waited = now - self.step_started_at;
        match self.phase {
            CheckPhase::Queued if is_due => {
                let symptom = match (self.queue_position, &self.unknown_message) {
                    (Some((position, length)), _) => Symptom::StillQueued { position, length, waited },
                    (None, Some(detail)) => Symptom::UnknownMessage(detail.clone()),
                    (None, None) => Symptom::NoAnswer { waited },
                };
                self.fail(now, symptom);
                self.note_capacity();
            }
            CheckPhase::AwaitingAnswer if is_due => {
                // Such as the refusal of audio for which the server has no room.
                let said = self.unknown_message.take().map(Symptom::RecoverableError);
                self.fail(now, said.unwrap_or(Symptom::NoAnswer { waited }));
            }
            CheckPhase::Initialising if is_due => self.fail(now, Symptom::NoAnswer { waited }),
            CheckPhase::Closing { until, .. } if now >= until => {
                let detail = "no answer to session.close".to_owned();
                self.outcomes.push_back(CheckOutcome::failed(
                    DoctorStep::Close,
                    waited,
                    Symptom::CloseNotAcknowledged(detail),
                ));
                self.close_transport(now);
            }
            CheckPhase::LeavingQueue { until, .. } if now >= until => self.give_up_in_queue(now),
            CheckPhase::EndedByServer { until } if now >= until => {
                // A server of another dialect may continue after a message that ends the session in this dialect.
                match self.unreported_end.take() {
                    Some((step, took, end)) if self.has_worker => {
                        self.outcomes.push_back(CheckOutcome::failed(
                            step,
                            took,
                            self.session_ended_symptom(end, None),
                        ));
                        self.start_closing(now, now);
                    }
                    Some((step, took, end)) => {
                        self.report_session_ended(step, took, end, None);
                        self.close_transport(now);
                    }
                    None => self.close_transport(now),
                }
            }
            CheckPhase::ClosingTransport { until } if now >= until => self.finish(),
            _ => {}
        }
    }

    const fn current_step(&self) -> DoctorStep {
        match self.phase {
            CheckPhase::Queued => DoctorStep::Queue,
            CheckPhase::Initialising => DoctorStep::Init,
            CheckPhase::AwaitingAnswer => DoctorStep::Answer,
            CheckPhase::Closing { .. }
            | CheckPhase::LeavingQueue { .. }
            | CheckPhase::EndedByServer { .. }
            | CheckPhase::ClosingTransport { .. }
            | CheckPhase::Finished => DoctorStep::Close,
        }
    }

    /// Fails the current step and closes the session.
    fn fail(&mut self, now: Instant, symptom: Symptom) {
        let (step, took) = (self.current_step(), now - self.step_started_at);
        self.outcomes.push_back(CheckOutcome::failed(step, took, symptom));
        self.start_closing(now, now);
    }

    fn send(&mut self, now: Instant, command: LaneRequest) {
        self.commands.push_back((now, command));
    }

    fn encode(&mut self, now: Instant, command: LaneRequest) {
        self.codec.encode(now, command, |message| {
            if let Message::Text(text) = message {
                self.outgoing.push_back(text);
            }
        });
        self.take_codec_actions(now);
    }

    /// Sends what the codec sends by itself, and handles its own events. A check neither resumes a session nor asks over HTTP.
    fn take_codec_actions(&mut self, now: Instant) {
        while let Some(action) = self.codec.pop_action() {
            match action {
                CodecAction::Send(Message::Text(text)) => self.outgoing.push_back(text),
                CodecAction::Event(LaneEvent::Done { .. }) if self.is_conversation() => {
                    self.handle_unit_end(now);
                }
                _ => {}
            }
        }
    }
}

impl CheckPlan {
    fn new_codec(&self) -> LaneCodec {
        let purpose = if self.mode == Mode::Chat { LanePurpose::Speak } else { LanePurpose::Converse };
        LaneCodec::new(self.dialect.clone(), self.mode, purpose)
    }
}
