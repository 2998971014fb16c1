//! Measurements of a session, for metrics and logs: durations, the session's state, its audio totals, its end reason.
//!
//! Measurements decide nothing, and traces leave them out. Durations come from the instants that the bridge is given.

use std::time::Duration;

use super::input::speech_input::pause::TurnDecision;
use crate::{
    named_enum::named_enum,
    vocabulary::{CloseReason, Lane, LanePurpose, relay::RelayEndReason},
};

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurement {
    /// A lane is about to be dialled.
    LaneDialled {
        /// The lane.
        lane: Lane,
        /// Its purpose.
        purpose: LanePurpose,
    },
    /// The upstream assigned a worker to a lane.
    LaneGranted {
        /// The lane.
        lane: Lane,
        /// Time since the lane was connected.
        after: Duration,
    },
    /// A lane is initialised.
    LaneInitialised {
        /// The lane.
        lane: Lane,
        /// Time since the worker was assigned.
        after: Duration,
    },
    /// A lane answered a question, or a unit of a conversation.
    LaneAnswered {
        /// The lane.
        lane: Lane,
    },
    /// The client got the first words of an utterance after the user had ended it.
    FirstTranscript {
        /// Time since the utterance's end was detected.
        after: Duration,
    },
    /// The client got the first audio of a text or of an answer.
    FirstAudio {
        /// The request that the audio answers.
        origin: AudioOrigin,
        /// Time since the request, or since the user's last speech.
        after: Duration,
    },
    /// A model has processed one unit of a conversation.
    UnitProcessed {
        /// The lane.
        lane: Lane,
        /// Processing time.
        took: Duration,
        /// Length of the unit's audio.
        unit: Duration,
    },
    /// The model's context in use, as reported by the upstream.
    ContextUsage {
        /// The lane.
        lane: Lane,
        /// Tokens in use.
        tokens: u32,
    },
    /// A barge-in reached its next stage.
    BargeIn {
        /// The stage.
        stage: BargeInStage,
        /// Time since the event that [`BargeInStage`] names for this stage.
        after: Duration,
    },
    /// A pause in the user's speech was judged, or not.
    TurnDecided(TurnDecision),
    /// The model was asked before the user's turn was certain to be over, or what came of it.
    EarlyQuestion(EarlyQuestionResult),
    /// The session starts to close, for this reason.
    SessionEnding(EndReason),
}

named_enum! {
    /// Outcome of an early question.
    pub enum EarlyQuestionResult {
        /// The model was asked.
        Asked = "asked",
        /// The turn was over, and the client gets the answer.
        Used = "used",
        /// The user went on, and no one hears the answer.
        Withdrawn = "withdrawn",
    }
}

named_enum! {
    /// The request that audio answers.
    pub enum AudioOrigin {
        /// A text that the client sent to be spoken.
        Text = "text",
        /// The user's speech.
        Utterance = "utterance",
    }
}

named_enum! {
    /// Stage of a barge-in.
    pub enum BargeInStage {
        /// The user's speech counts as a barge-in; measured from the start of that speech.
        Noticed = "noticed",
        /// The client was notified that playback has ended; measured from the arrival of the deciding frame.
        ClientNotified = "client_notified",
        /// The model acknowledged that it listens; measured from the barge-in decision.
        ModelYielded = "model_yielded",
    }
}

named_enum! {
    /// State of a session.
    #[derive(Default)]
    pub enum SessionState {
        /// No model is connected yet.
        #[default]
        Opening = "opening",
        /// A lane waits in an upstream's queue.
        Queued = "queued",
        /// No one speaks and no answer is pending.
        Idle = "idle",
        /// The user speaks.
        Listening = "listening",
        /// An upstream is producing a transcript or speech.
        Answering = "answering",
        /// The client plays speech.
        Speaking = "speaking",
        /// The upstream session is being replaced.
        RollingOver = "rolling_over",
        /// The session is closing.
        Ending = "ending",
    }
}

named_enum! {
    /// Reason for which a session ended.
    pub enum EndReason {
        /// The client closed the session, or its connection with code 1000, 1001 or none.
        ClientClose = "client_close",
        /// The client cancelled the session.
        ClientCancel = "client_cancel",
        /// The client's connection was lost, or closed with another code.
        ClientGone = "client_gone",
        /// The client made an error that is fatal in its protocol.
        ClientError = "client_error",
        /// The client sent nothing for too long.
        Idle = "idle",
        /// voxbridge shuts down.
        Shutdown = "shutdown",
        /// An operator ended the session.
        Operator = "operator",
        /// The session reached its longest permitted duration.
        TimeLimit = "time_limit",
        /// The upstream's time limit or context was used up.
        UpstreamExhausted = "upstream_exhausted",
        /// The upstream was lost permanently.
        Upstream = "upstream",
        /// The session, or its last speech or answer, was cut off: voxbridge had no time left, or failed. Overrides
        /// [`EndReason::Shutdown`].
        CutOff = "cut_off",
    }
}

impl EndReason {
    /// The side that caused the end: `client`, `bridge` or `upstream`.
    #[must_use]
    pub const fn side(self) -> &'static str {
        match self {
            Self::ClientClose | Self::ClientCancel | Self::ClientGone | Self::ClientError => "client",
            Self::Idle | Self::Shutdown | Self::Operator | Self::TimeLimit | Self::CutOff => "bridge",
            Self::UpstreamExhausted | Self::Upstream => "upstream",
        }
    }
}

impl From<CloseReason> for EndReason {
    fn from(name: CloseReason) -> Self {
        match name {
            CloseReason::ClientClose => Self::ClientClose,
            CloseReason::ClientCancel => Self::ClientCancel,
            CloseReason::Idle => Self::Idle,
            CloseReason::Shutdown => Self::Shutdown,
            CloseReason::Operator => Self::Operator,
            CloseReason::TimeLimit => Self::TimeLimit,
            CloseReason::Upstream => Self::Upstream,
        }
    }
}

impl From<RelayEndReason> for EndReason {
    fn from(name: RelayEndReason) -> Self {
        match name {
            RelayEndReason::ClientClose => Self::ClientClose,
            RelayEndReason::Idle => Self::Idle,
            RelayEndReason::Shutdown => Self::Shutdown,
            RelayEndReason::Operator => Self::Operator,
            RelayEndReason::Timeout | RelayEndReason::ContextFull => Self::UpstreamExhausted,
            RelayEndReason::Failed => Self::Upstream,
        }
    }
}

/// Totals of a session's audio, as durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AudioTotals {
    /// Received from the client, in total.
    pub received: Duration,
    /// Part of `received`: muted while the client played speech.
    pub muted: Duration,
    /// Part of `received`: replaced by silence for the model while the client played a text.
    pub silenced: Duration,
    /// Part of `received`: dropped because it arrived too fast.
    pub dropped_too_fast: Duration,
    /// Part of `received`: dropped because too much waited for an upstream.
    pub dropped_backlog: Duration,
    /// Part of `received`: sent to a conversation's model.
    pub appended: Duration,
    /// Part of `received`: waiting for an upstream now.
    pub waiting: Duration,
    /// Sent to the client.
    pub sent: Duration,
}
