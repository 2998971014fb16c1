//! Inputs and outputs of a bridge.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    session::{Observation, RecordedItem},
    vocabulary::{
        AnswerPart, ClientEvent, DisconnectReason, EntryId, FlowControl, Frame, HttpRequest, Lane,
        LanePurpose, ListedTool, Message, Mode, PauseId, RemoteServer, ServerCall, ServerCallResult,
        SpeechId, ToolServer,
    },
};

/// An input of a session: a frame, a change of a connection, an order, or the passing of time.
#[derive(Debug)]
pub enum Input<'a> {
    /// A frame from the client.
    Client(Frame<'a>),
    /// The client's transport is gone.
    ClientClosed,
    /// A lane waits at this position for a place at an upstream that has no queue of its own.
    LaneQueued(Lane, u32),
    /// A lane waits in its upstream's queue, and another upstream has room. The next [`Output::OpenLane`] goes there. Ignored if
    /// the session no longer needs the lane.
    PlaceFound(Lane),
    /// A lane goes to an upstream of this dialect, and not of the first of its session's. Comes before it opens.
    LaneDialect(Lane, &'a str),
    /// If the lane's upstream refuses every request because of its configuration, another upstream may serve them. Comes before
    /// the lane opens.
    LaneReplaceable(Lane),
    /// A lane's transport is up.
    LaneOpened(Lane),
    /// A frame from an upstream: a message, or a piece of the answer to an HTTP request.
    Lane(Lane, Frame<'a>),
    /// The beginning or the end of the answer to an HTTP request.
    Answer(Lane, AnswerPart),
    /// A lane's transport is gone, or never came up.
    LaneClosed(Lane, DisconnectReason),
    /// The driver's flow control has changed.
    Flow(FlowControl),
    /// Of the messages with this tag, so many bytes wait to be written to the client, of so many in all.
    Unwritten(SpeechId, u64, u64),
    /// The instant of the last [`Output::Wait`] has come.
    Timeout,
    /// voxbridge stops: finishes running utterances and turns within this time, and begins nothing new.
    Drain(Duration),
    /// An operator ends this session: finishes as for [`Input::Drain`].
    Close(Duration),
    /// The verdict on a pause in the user's speech: the probability that the user has finished, or `None` if the model is too
    /// busy or has failed.
    TurnJudged(PauseId, Option<f32>),
    /// The answer to [`Output::FindWorker`]: the lane may be used in this pause.
    WorkerFound(PauseId),
    /// An operator replaces the conversation's upstream session at the next quiet moment. Ignored without a conversation.
    Rollover,
    /// The tool servers that can be called from now on, in place of those before.
    ToolServers(Arc<[ToolServer]>),
    /// The end of an [`Output::CallTool`]: its number, and the result.
    ToolResult(EntryId, ServerCallResult),
    /// The answer to an [`Output::ConnectTools`]: its number, and the server's tools or why there are none.
    ToolList(EntryId, Result<Vec<ListedTool>, String>),
}

/// An output of a session: one thing for the driver to do.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Send this to the client; nothing follows a close frame. Audio is tagged with its text or turn.
    ToClient(Message, Option<SpeechId>),
    /// Give this to a client that takes events ([`super::Bridge::give_events`]). [`super::Bridge::spell_event`] has its messages for
    /// a trace.
    Event(ClientEvent),
    /// Discard what is still queued for the client with this tag.
    DropTurn {
        /// The cancelled text or turn.
        turn: SpeechId,
        /// Bytes of its audio that were given out, before base64: for the trace.
        audio_bytes: u64,
    },
    /// Connect to an upstream that serves this purpose, in this mode.
    OpenLane(Lane, Mode, LanePurpose),
    /// Connect a lane whose transport is gone to the same upstream again.
    ReopenLane(Lane, Mode, LanePurpose),
    /// Send this to an upstream.
    ToLane(Lane, Message),
    /// Send this request to an upstream that is reached by HTTP. It takes the place of a request that is not answered.
    Request(Lane, HttpRequest),
    /// Close the transport. Frames of this lane are no longer expected.
    CloseLane(Lane),
    /// Judge whether the user has finished, from the newest 8 s of this audio, int16 mono at 16 kHz, which ends in the pause.
    /// [`Input::TurnJudged`] is the answer. Another pause makes the question obsolete.
    JudgeTurn(PauseId, Arc<Vec<i16>>),
    /// Withdraw the last [`Output::JudgeTurn`]: nothing waits for the verdict.
    WithdrawJudgement,
    /// Answer with [`Input::WorkerFound`] if no one waits for the worker of this lane, and an upstream has a free worker for
    /// another answer.
    FindWorker(PauseId, Lane),
    /// Call a tool on a tool server. [`Input::ToolResult`] is the answer. The call goes on when the session ends.
    CallTool(Box<ServerCall>),
    /// A piece of the recording ([`super::Bridge::record`]).
    Record(Box<RecordedItem>),
    /// Connect to a tool server of the client, under this number, and list its tools. [`Input::ToolList`] is the answer.
    ConnectTools(EntryId, Box<RemoteServer>),
    /// Leave the tool server with this number. Calls in progress go on.
    LeaveTools(EntryId),
    /// For the log and the metrics.
    Observe(Observation),
    /// No more output. Call again after the next input or at this instant.
    Wait(Option<Instant>),
    /// The session is over and every lane is gone.
    Finished,
}

/// Outputs of one input above which the bridge is in an endless loop. The longest burst makes far fewer.
pub(super) const OUTPUTS_MAX: usize = 20_000;

/// The bridge gives outputs without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session produces outputs without end")]
pub struct EndlessOutputs;

/// Outputs that wait for the driver.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) ready: VecDeque<Output>,
    /// False once the client is gone or its close frame is out.
    pub(super) is_client_open: bool,
    /// Instant of the last input.
    pub(super) last_input_at: Instant,
}
