//! Outbox of a session: handlers append actions, the bridge takes them in order and encodes them. What leaves for the upstreams
//! is in [`super::lanes`].

pub(crate) mod completions;
mod describe;
pub(crate) mod lane_outbox;
pub(crate) mod lockstep;
pub(crate) mod numbered;
pub(crate) mod recorded;

use std::sync::Arc;

use super::{
    measurement::Measurement,
    outbox::{
        completions::Completions,
        lane_outbox::{LaneAction, LaneOutbox},
        lockstep::{AwaitedReply, Lockstep},
        numbered::{Numbered, Numbers},
        recorded::RecordedItem,
    },
};
use crate::{
    error::Error,
    vocabulary::{ClientEvent, CloseReason, Lane, Message, PauseId, RolloverReason, ServerCall, SpeechId},
};

/// One action of a session.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Send an event to the client.
    ToClient(ClientEvent),
    /// Discard unsent audio of a text or turn; events are kept. The number counts its bytes sent or queued.
    DropTurn(SpeechId, u64),
    /// Send a message to the client that is encoded already.
    RawToClient(Message),
    /// Close the client's connection. No message follows.
    CloseClient(CloseReason),
    /// Do this on a lane.
    Lane(LaneAction),
    /// Judge whether the user has finished, from the audio of the utterance up to this pause.
    JudgeTurn(PauseId, Arc<Vec<i16>>),
    /// Withdraw the question about the last pause: nothing waits for the verdict.
    WithdrawJudgement,
    /// Find out in this pause whether no one waits for this lane's worker, and another worker is free.
    FindWorker(PauseId, Lane),
    /// Call a tool on a tool server.
    CallTool(Box<ServerCall>),
    /// Give this to the recording.
    Record(Box<RecordedItem>),
    /// Report to the log and the metrics.
    Observe(Observation),
}

/// Event of a session that operators see.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// A connection attempt of a lane failed; another follows.
    LaneRetry {
        /// The lane.
        lane: Lane,
        /// The cause, as text.
        words: String,
        /// Delay before the next attempt, ms.
        pause_ms: u64,
        /// The upstream works, but has no place for the session.
        is_busy: bool,
    },
    /// A lane was lost because its upstream failed.
    LaneFailed {
        /// The lane.
        lane: Lane,
        /// The cause, as text.
        words: String,
    },
    /// An upstream refused a request. Its session is over.
    LaneRefused {
        /// The lane.
        lane: Lane,
        /// The refusal, as text.
        words: String,
        /// The upstream refuses every request: its configuration is wrong.
        by_configuration: bool,
    },
    /// A lane is initialised.
    LaneReady {
        /// The lane.
        lane: Lane,
        /// The upstream's id of the session.
        session_id: Option<String>,
        /// Time since the first dial, ms.
        waited_ms: u64,
    },
    /// A lane waits in the upstream's queue.
    LaneQueued {
        /// The lane.
        lane: Lane,
        /// Position in the queue, from 1, if the upstream reports one.
        position: Option<u32>,
        /// Description, as text.
        words: String,
    },
    /// Nothing needs a lane that waits in the upstream's queue. It closes once a worker is assigned.
    LaneUnneeded {
        /// The lane.
        lane: Lane,
        /// Position in the queue, from 1, if the upstream reports one.
        position: Option<u32>,
    },
    /// A conversation continues in another upstream session.
    RolledOver {
        /// The cause.
        reason: RolloverReason,
        /// Time in which no audio reached a model, ms.
        gap_ms: u64,
        /// True if the next session was on standby.
        standby: bool,
        /// Audio buffered in that time, ms.
        kept_ms: u64,
        /// Lines of the conversation that the prompt of the next session has.
        known_lines: u64,
        /// Lines that it lacks: said after it was initialised, or too old for its length.
        missing_lines: u64,
    },
    /// The user, the client or a text to speak interrupted the model.
    Interrupted,
    /// The upstream took longer for a unit than the unit lasts: too slow for real time.
    SlowStep {
        /// Processing time, ms.
        step_ms: u64,
        /// Number of slow units in this upstream session so far.
        count: u64,
    },
    /// The client's playout ran dry in the middle of a text.
    Underrun,
    /// The upstream of a relay was lost and is replaced.
    RelayResumed {
        /// Time without an upstream, ms.
        gap_ms: u64,
        /// Messages held for the new upstream.
        kept: u64,
        /// Messages dropped because too many were held.
        dropped: u64,
    },
    /// An upstream sent a message that voxbridge does not know.
    UnknownFromLane {
        /// The lane.
        lane: Lane,
        /// Description, as text.
        words: String,
    },
    /// An upstream reported an error after which its session continues.
    LaneTrouble {
        /// The lane.
        lane: Lane,
        /// The upstream's text.
        words: String,
    },
    /// An error was sent to the client.
    ErrorTold(Error),
    /// A request is repeated because the upstream failed on it; the cause, as text.
    AskedAgain(String),
    /// The model's answer could not be used. The reason, as text, may quote the model or the client's tools.
    ModelMistake(String),
    /// A client's setting or command was accepted without effect; the reason, as text.
    NoEffect(String),
    /// How a setting of the client acts, as text.
    Note(String),
    /// The client relies on something that voxbridge does not have; the reason, as text.
    Unsupported(String),
    /// A measurement, for metrics only; traces leave it out.
    Measured(Measurement),
}

/// Queue of actions, oldest first. Filters and holds events as this client's protocol wants them.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    queue: Numbered<Action>,
    /// The client turned off the events for start and end of speech.
    pub(super) mutes_speech_events: bool,
    /// The client knows of a start of speech, and not of its end.
    is_speech_reported: bool,
    /// Held transcripts of a client in lock step.
    lockstep: Option<Box<Lockstep>>,
    /// Requests of the client to complete what it sent.
    pub(super) completions: Completions,
    /// The audio of both sides is recorded.
    pub(super) records_audio: bool,
}

impl Actions {
    /// An empty outbox, whose actions are numbered with those of the lanes.
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self {
            queue: Numbered::new(numbers),
            mutes_speech_events: false,
            is_speech_reported: false,
            lockstep: None,
            completions: Completions::default(),
            records_audio: false,
        }
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.queue.push(action);
    }

    pub(crate) fn push_client(&mut self, event: ClientEvent) {
        // A client that turns the events off in the middle of speech still gets its end.
        let is_muted = match event {
            ClientEvent::SpeechStarted { .. } => {
                self.is_speech_reported = !self.mutes_speech_events;
                self.mutes_speech_events
            }
            ClientEvent::SpeechEnded { .. } => !std::mem::take(&mut self.is_speech_reported),
            _ => false,
        };
        if is_muted {
            return;
        }
        let now_due = match &mut self.lockstep {
            Some(lockstep) => lockstep.hold_transcript(event),
            None => Some(event),
        };
        if let Some(event) = now_due {
            self.send(event);
        }
    }

    /// Records audio, if audio is recorded.
    pub(crate) fn record_audio(&mut self, item: impl FnOnce() -> RecordedItem) {
        if self.records_audio {
            self.queue.push(Action::Record(Box::new(item())));
        }
    }

    /// Sends an event if there is one.
    pub(crate) fn push_if_any(&mut self, event: Option<ClientEvent>) {
        if let Some(event) = event {
            self.push_client(event);
        }
    }

    /// Sends a message, and those that are due after it.
    fn send(&mut self, event: ClientEvent) {
        let complete = self.completions.note(&event);
        self.queue.push(Action::ToClient(event));
        (0..complete).for_each(|_| self.queue.push(Action::ToClient(ClientEvent::Completed)));
    }

    /// Sends transcripts only as replies from now on. With `reports_parts`, each one that is held is also reported as a part.
    /// The finals that the client waits for become replies.
    pub(super) fn hold_transcripts(&mut self, reports_parts: bool) {
        if self.lockstep.is_none() {
            let mut lockstep = Box::new(Lockstep::new(reports_parts));
            for _ in 0..self.completions.pending_finals() {
                lockstep.await_reply(AwaitedReply::Final);
            }
            self.lockstep = Some(lockstep);
        }
    }

    /// Sends transcripts as they come. Of those that the client asked for, `finals_to_come` are not settled yet.
    pub(super) fn release_transcripts(&mut self, finals_to_come: usize) {
        let replies = self.lockstep.take().map(|lockstep| lockstep.into_replies(finals_to_come));
        replies.into_iter().flatten().for_each(|reply| self.send(reply));
    }

    /// Records that a client in lock step waits for a reply. Returns false if it waits for too many, and `None` if it is not in
    /// lock step.
    pub(super) fn await_reply(&mut self, reply: AwaitedReply) -> Option<bool> {
        self.lockstep.as_mut().map(|lockstep| lockstep.await_reply(reply))
    }

    /// True if a client in lock step waits for a final transcript.
    pub(super) fn awaits_final(&self) -> bool {
        self.lockstep.as_ref().is_some_and(|lockstep| lockstep.awaits_final())
    }

    /// Sends the replies that are available. `all_settled` means that all audio so far has its final transcript.
    pub(super) fn push_replies(&mut self, all_settled: bool) {
        while let Some(reply) = self.lockstep.as_mut().and_then(|lockstep| lockstep.next_reply(all_settled)) {
            self.send(reply);
        }
    }

    /// Sends a message that is encoded already, if there is one.
    pub(crate) fn push_raw(&mut self, message: Option<Message>) {
        message.into_iter().for_each(|message| self.queue.push(Action::RawToClient(message)));
    }

    pub(crate) fn push_error(&mut self, error: Error) {
        self.observe(Observation::ErrorTold(error.clone()));
        self.push_client(ClientEvent::Error(error));
    }

    /// Sends an error whose last words only the client gets, because they may quote the model or the client.
    pub(crate) fn push_quoting_error(&mut self, error: Error, quoted: &str) {
        self.observe(Observation::ErrorTold(error.clone()));
        let detail = format!("{}: {quoted}", error.detail);
        self.push_client(ClientEvent::Error(Error { detail, ..error }));
    }

    pub(crate) fn observe(&mut self, observation: Observation) {
        self.queue.push(Action::Observe(observation));
    }

    pub(crate) fn measure(&mut self, measurement: Measurement) {
        self.queue.push(Action::Observe(Observation::Measured(measurement)));
    }

    /// Reports a measurement if there is one.
    pub(crate) fn measure_if_any(&mut self, measurement: Option<Measurement>) {
        measurement.into_iter().for_each(|measurement| self.measure(measurement));
    }

    /// Takes the oldest action, of the lanes' outbox or this one.
    pub(crate) fn pop(&mut self, of_lanes: &mut LaneOutbox) -> Option<Action> {
        of_lanes.pop_before(&self.queue).map(Action::Lane).or_else(|| self.queue.pop_before(of_lanes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
