//! What a session measures of itself, for operators: durations, where it is, where its audio went, why it ended.
//!
//! Nothing here decides anything, and traces do not hold it: the same session measured otherwise is the same session.
//! Durations come from the instants that the bridge is given.

use std::time::Duration;

use crate::{
    event::{CloseReason, Lane},
    mapping::relay::RelayEndReason,
};

/// One thing that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurement {
    /// A lane is about to be dialled.
    LaneDialled {
        /// Which.
        lane: Lane,
        /// What for.
        purpose: LanePurpose,
    },
    /// A lane got a worker.
    LaneGranted {
        /// Which.
        lane: Lane,
        /// Since it was connected.
        after: Duration,
    },
    /// A lane is initialised.
    LaneInitialised {
        /// Which.
        lane: Lane,
        /// Since it got its worker.
        after: Duration,
    },
    /// The first words of an utterance were told after the user had ended it.
    FirstTranscript {
        /// Since the utterance's end was decided.
        after: Duration,
    },
    /// The first audio of a text or of an answer was sent.
    FirstAudio {
        /// What was asked for.
        origin: AudioOrigin,
        /// Since the request, or since the user was last heard to speak.
        after: Duration,
    },
    /// A model has worked on a unit of a conversation.
    UnitProcessed {
        /// Which.
        lane: Lane,
        /// How long it took.
        took: Duration,
        /// How long the unit's audio is.
        unit: Duration,
    },
    /// How full the model's context is, as far as that is known.
    ContextUsage {
        /// Which.
        lane: Lane,
        /// Positions in use.
        tokens: u32,
    },
    /// The model was interrupted; how far that has come.
    BargeIn {
        /// How far.
        stage: BargeInStage,
        /// Since the stage before it: see [`BargeInStage`].
        after: Duration,
    },
    /// The session begins to end.
    SessionEnding(EndReason),
}

/// What a lane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LanePurpose {
    /// Utterances become words.
    Transcribe,
    /// A text is spoken.
    Speak,
    /// A conversation.
    Converse,
    /// A client's own upstream session.
    Relay,
}

impl LanePurpose {
    /// Every purpose.
    pub const ALL: [Self; 4] = [Self::Transcribe, Self::Speak, Self::Converse, Self::Relay];

    /// As metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transcribe => "transcribe",
            Self::Speak => "speak",
            Self::Converse => "converse",
            Self::Relay => "relay",
        }
    }
}

/// What audio answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AudioOrigin {
    /// A text that the client wanted to be spoken.
    Text,
    /// What the user has said.
    Utterance,
}

impl AudioOrigin {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Text, Self::Utterance];

    /// As metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Utterance => "utterance",
        }
    }
}

/// How far an interruption has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BargeInStage {
    /// It was taken for one; since the user began to speak.
    Noticed,
    /// The client was told that the speech has ended; since the frame that decided it came.
    ClientNotified,
    /// The model has acknowledged that it listens; since it was decided.
    ModelYielded,
}

impl BargeInStage {
    /// Every stage, in order.
    pub const ALL: [Self; 3] = [Self::Noticed, Self::ClientNotified, Self::ModelYielded];

    /// As metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::ClientNotified => "client_notified",
            Self::ModelYielded => "model_yielded",
        }
    }
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// No model is there yet.
    Opening,
    /// It waits in an upstream's queue.
    Queued,
    /// Nobody speaks and nobody waits.
    Idle,
    /// The user speaks.
    Listening,
    /// Words or speech are being made.
    Answering,
    /// The client hears speech.
    Speaking,
    /// Its upstream session is being replaced.
    RollingOver,
    /// It ends.
    Ending,
}

impl SessionState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Opening,
        Self::Queued,
        Self::Idle,
        Self::Listening,
        Self::Answering,
        Self::Speaking,
        Self::RollingOver,
        Self::Ending,
    ];

    /// As metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Queued => "queued",
            Self::Idle => "idle",
            Self::Listening => "listening",
            Self::Answering => "answering",
            Self::Speaking => "speaking",
            Self::RollingOver => "rolling_over",
            Self::Ending => "ending",
        }
    }
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The client said goodbye.
    ClientClose,
    /// The client gave it up.
    ClientCancel,
    /// The client's connection was gone, or closed without a word.
    ClientGone,
    /// The client did what its protocol ends a session for.
    ClientError,
    /// The client sent nothing for too long.
    Idle,
    /// voxbridge stops.
    Shutdown,
    /// An operator has ended it.
    Operator,
    /// It has lasted as long as it may.
    TimeLimit,
    /// The upstream's time or context was used up.
    UpstreamExhausted,
    /// The upstream was lost for good.
    Upstream,
    /// It was cut off before it began to end: voxbridge had no time left, or failed.
    CutOff,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::ClientClose,
        Self::ClientCancel,
        Self::ClientGone,
        Self::ClientError,
        Self::Idle,
        Self::Shutdown,
        Self::Operator,
        Self::TimeLimit,
        Self::UpstreamExhausted,
        Self::Upstream,
        Self::CutOff,
    ];

    /// As metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientClose => "client_close",
            Self::ClientCancel => "client_cancel",
            Self::ClientGone => "client_gone",
            Self::ClientError => "client_error",
            Self::Idle => "idle",
            Self::Shutdown => "shutdown",
            Self::Operator => "operator",
            Self::TimeLimit => "time_limit",
            Self::UpstreamExhausted => "upstream_exhausted",
            Self::Upstream => "upstream",
            Self::CutOff => "cut_off",
        }
    }

    /// Whose doing it is: `client`, `bridge` or `upstream`.
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

/// Where a session's audio went so far, as lengths of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AudioTotals {
    /// Came from the client, all of it.
    pub received: Duration,
    /// Of that: not listened to while speech was heard.
    pub muted: Duration,
    /// Of that: heard as silence by the model, because the client heard a text.
    pub silenced: Duration,
    /// Of that: dropped, because it came too fast.
    pub dropped_too_fast: Duration,
    /// Of that: dropped, because too much waited for an upstream.
    pub dropped_backlog: Duration,
    /// Of that: sent to a conversation's model.
    pub appended: Duration,
    /// Of that: waits for an upstream now.
    pub waiting: Duration,
    /// Sent to the client.
    pub sent: Duration,
}
