//! What a session wants done. Handlers append; the bridge takes them out in order and spells them on the wires.

pub(crate) mod lockstep;

use std::collections::VecDeque;

use super::{
    measurement::Measurement,
    outbox::lockstep::{AwaitedReply, Lockstep},
};
use crate::{
    error::Error,
    event::{ClientCommand, CloseReason, Lane, LaneCommand, Message, Mode, RolloverReason, TurnTag},
};

/// One thing to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Tell the client.
    ToClient(ClientCommand),
    /// Discard unsent audio of a text or turn, of which this many bytes were sent or queued; events are kept.
    DropTurn(TurnTag, u64),
    /// Tell the client what is spelled already.
    RawToClient(Message),
    /// Close the client's connection for this reason; nothing is told after it.
    CloseClient(CloseReason),
    /// Connect to an upstream.
    OpenLane(Lane, Mode),
    /// Tell an upstream.
    ToLane(Lane, LaneCommand),
    /// Drop the transport; nothing of this lane is heard afterwards.
    DropLane(Lane),
    /// For the log and the metrics.
    Observe(Observation),
}

/// What operators want to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// A lane's attempt failed and another follows.
    LaneRetry {
        /// Which.
        lane: Lane,
        /// Why, in words.
        words: String,
        /// Pause before the next attempt, ms.
        pause_ms: u64,
    },
    /// A lane was lost to its upstream's failure.
    LaneFailed {
        /// Which.
        lane: Lane,
        /// Why, in words.
        words: String,
    },
    /// A lane is initialised.
    LaneReady {
        /// Which.
        lane: Lane,
        /// The upstream's name for it.
        session_id: Option<String>,
        /// Since it was first dialled, ms.
        waited_ms: u64,
    },
    /// A lane waits in the upstream's queue.
    LaneQueued {
        /// Which.
        lane: Lane,
        /// Its place, from 1, where the upstream tells it.
        position: Option<u32>,
        /// In words.
        words: String,
    },
    /// A conversation goes on in another upstream session.
    RolledOver {
        /// Why.
        reason: RolloverReason,
        /// How long no audio reached a model, ms.
        gap_ms: u64,
        /// The next session had been made ready beforehand.
        standby: bool,
        /// Audio that was kept meanwhile, ms.
        kept_ms: u64,
    },
    /// The user, the client or a text interrupted the model.
    Interrupted,
    /// A unit took longer than it lasts: the upstream is too slow for real time.
    SlowStep {
        /// How long, ms.
        step_ms: u64,
        /// How many in this upstream session so far.
        count: u64,
    },
    /// The client ran out of audio in the middle of a text.
    Underrun,
    /// The upstream of a relay was lost and is replaced.
    RelayResumed {
        /// How long there was none, ms.
        gap_ms: u64,
        /// Messages that waited for it.
        kept: u64,
        /// Messages that were dropped because too many waited.
        dropped: u64,
    },
    /// An upstream said something this bridge does not know.
    UnknownFromLane {
        /// Which.
        lane: Lane,
        /// In words.
        words: String,
    },
    /// An upstream said that something went wrong; its session goes on.
    LaneTrouble {
        /// Which.
        lane: Lane,
        /// In the upstream's own words.
        words: String,
    },
    /// The client was told of an error.
    ErrorTold(Error),
    /// What an upstream died on is asked again; why, in words.
    AskedAgain(String),
    /// Something was accepted that does nothing.
    NoEffect(String),
    /// Something was measured; for metrics alone, and in no trace.
    Measured(Measurement),
}

/// The things to do, oldest first; and what of them this client wants to be told, and when.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    queue: VecDeque<Action>,
    /// It does not want to know when speech begins and ends.
    pub(super) mutes_speech_events: bool,
    /// It is told transcripts as answers only.
    lockstep: Option<Box<Lockstep>>,
}

impl Actions {
    pub(crate) fn push(&mut self, action: Action) {
        self.queue.push_back(action);
    }

    pub(crate) fn push_client(&mut self, command: ClientCommand) {
        let is_speech_event =
            matches!(command, ClientCommand::SpeechStarted { .. } | ClientCommand::SpeechEnded { .. });
        if is_speech_event && self.mutes_speech_events {
            return;
        }
        let now_due = match &mut self.lockstep {
            Some(lockstep) => lockstep.hold_transcript(command),
            None => Some(command),
        };
        self.queue.extend(now_due.map(Action::ToClient));
    }

    /// From now on transcripts are told as answers only.
    pub(super) fn enable_lockstep(&mut self) {
        self.lockstep = Some(Box::default());
    }

    /// The client waits for an answer, where it is told in lock step.
    pub(super) fn await_reply(&mut self, reply: AwaitedReply) {
        if let Some(lockstep) = &mut self.lockstep {
            lockstep.await_reply(reply);
        }
    }

    /// Whether the client waits for what is not final yet.
    pub(super) fn awaits_final(&self) -> bool {
        self.lockstep.as_ref().is_some_and(|lockstep| lockstep.awaits_final())
    }

    /// Gives the answers that can be given; `all_settled` says that all that came is final.
    pub(super) fn push_replies(&mut self, all_settled: bool) {
        let Some(lockstep) = &mut self.lockstep else { return };
        while let Some(reply) = lockstep.next_reply(all_settled) {
            self.queue.push_back(Action::ToClient(reply));
        }
    }

    /// Tells the client what is spelled already, if it is told at all.
    pub(crate) fn push_raw(&mut self, message: Option<Message>) {
        self.queue.extend(message.map(Action::RawToClient));
    }

    pub(crate) fn push_error(&mut self, error: Error) {
        self.observe(Observation::ErrorTold(error.clone()));
        self.push_client(ClientCommand::Error(error));
    }

    pub(crate) fn observe(&mut self, observation: Observation) {
        self.push(Action::Observe(observation));
    }

    pub(crate) fn measure(&mut self, measurement: Measurement) {
        self.observe(Observation::Measured(measurement));
    }

    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.queue.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
