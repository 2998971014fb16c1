//! One line of a trace: an input or an output of the bridge, as a flat object that suits `jq` and `grep`.

mod describe;
mod read;
mod write;

use serde::{Deserialize, Serialize};

use super::redact::{AudioRetention, AudioTreatment, Redactor};
use crate::vocabulary::{CallFailure, Mode};

/// Line after the header. It has either `in` or `out`, which determines its other fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRecord {
    /// Time since the start of the session, ns. A replay is exact only if the time is, too.
    pub ns: u64,
    /// Kind of an input.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub input: Option<InputKind>,
    /// Flow control of the driver: whether the client's audio is held back, and whether lanes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<(bool, bool)>,
    /// Kind of an output.
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputKind>,
    /// Upstream connection of the input or output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u32>,
    /// Position at which the lane waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Mode in which the lane is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Text frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Length of a binary frame or of discarded audio, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Received binary frame, if the trace keeps its audio. With `bytes`, only its beginning: the head of a WAV file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Digest of a sent binary frame, if the trace keeps all audio. The frame itself is not needed, because a replay
    /// creates it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why a connection ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<DisconnectKind>,
    /// Close code, or HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Close reason, or another text or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// Why a call of a tool has no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<CallFailure>,
    /// Pause in the user's speech.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<u32>,
    /// Time limit for finishing the session, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// True if the bridge got this input before the outputs of the previous one were drained.
    #[serde(skip_serializing_if = "is_false")]
    pub in_a_row: bool,
    /// Number of lines lost before this one, because the disk was slower than the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Size limit of the trace, bytes, at which the recording ended before the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Defines the kinds of records, each with its description, in which `{lane}` stands for the lane.
macro_rules! record_kinds {
    ($(#[$attribute:meta])* $Kind:ident { $($(#[$doc:meta])* $Variant:ident = $text:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $Kind {
            $($(#[$doc])* $Variant,)+
        }

        impl $Kind {
            const fn description(self) -> &'static str {
                match self {
                    $(Self::$Variant => $text,)+
                }
            }
        }
    };
}

record_kinds! {
    /// Kind of an input.
    InputKind {
        /// Frame from the client.
        Client = "from the client",
        /// The client disconnected.
        ClientClosed = "client disconnected",
        /// A lane waits for a place at an upstream without a queue.
        LaneQueued = "waits for a place:{lane}",
        /// A lane's dialect.
        LaneDialect = "dialect:{lane}",
        /// Another upstream may serve a lane's requests.
        LaneReplaceable = "another upstream may serve:{lane}",
        /// A lane connected.
        LaneOpened = "connected:{lane}",
        /// Frame from a lane.
        Lane = "from{lane}",
        /// Beginning of the answer to an HTTP request, with its status; the end has none.
        Answer = "answer:{lane}",
        /// A lane disconnected.
        LaneClosed = "disconnected:{lane}",
        /// A timer expired.
        Timeout = "timeout",
        /// voxbridge shuts down.
        Drain = "drain",
        /// An operator closes the session.
        Close = "close requested by an operator",
        /// An operator requests a new upstream session.
        Rollover = "rollover requested by an operator",
        /// The end-of-turn model's verdict; without a number there is none.
        TurnJudged = "the end-of-turn model's verdict",
        /// A worker is free in a pause.
        WorkerFound = "a worker is free",
        /// The driver's flow control has changed.
        Flow = "flow control",
        /// Part of a speech's messages that waits to be written to the client: its number, the bytes that wait, and all.
        Unwritten = "speech, and its bytes that wait for the client, of all",
        /// Another upstream has room for a lane that waits in a queue.
        PlaceFound = "another upstream has room:{lane}",
        /// The tool servers that can be called, as JSON.
        ToolServers = "tool servers",
        /// Result of a call on a tool server, with the number of the call. Pictures are not recorded.
        ToolResult = "result of a tool",
        /// Tools of a client's server as JSON, with the number of their list.
        ToolList = "tools of a client's server",
    }
}

record_kinds! {
    /// Kind of an output.
    OutputKind {
        /// Frame to the client.
        Client = "to the client",
        /// Discard audio queued for the client.
        DropAudio = "discard audio for the client",
        /// Open a lane.
        OpenLane = "open{lane}",
        /// Connect a lane again.
        ReopenLane = "reopen{lane}",
        /// Frame to a lane.
        Lane = "to{lane}",
        /// HTTP request to a lane.
        Request = "to{lane}",
        /// Close a lane.
        CloseLane = "close{lane}",
        /// Ask the end-of-turn model.
        JudgeTurn = "ask the end-of-turn model",
        /// Withdraw the question to the end-of-turn model.
        WithdrawJudgement = "withdraw the question to the end-of-turn model",
        /// Find out whether a worker is free.
        FindWorker = "look for a free worker",
        /// Call a tool: its number, server and name, and the arguments.
        CallTool = "call a tool",
        /// Connect to a tool server of the client: the number of its list and its label.
        ConnectTools = "connect to a client's tool server",
        /// Leave a tool server of the client: the number of its list.
        LeaveTools = "leave a client's tool server",
        /// Observation for the log.
        Observe = "observation",
        /// End of the session.
        Finished = "end of session",
    }
}

/// Kind of a [`DisconnectReason`](crate::vocabulary::DisconnectReason).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisconnectKind {
    /// The connection failed.
    Unreachable,
    /// The server rejected the upgrade.
    Refused,
    /// The peer sent a close frame.
    Closed,
    /// The connection broke.
    Lost,
}

impl TraceRecord {
    /// Removes secrets, and audio that the trace does not keep.
    pub fn redact(&mut self, redactor: &mut Redactor) {
        let treatment = match (redactor.audio, self.input) {
            (AudioRetention::All, Some(_)) | (AudioRetention::Client, Some(InputKind::Client)) => {
                AudioTreatment::Keep
            }
            (AudioRetention::All, None) => AudioTreatment::Digest,
            (_, Some(InputKind::Lane)) => AudioTreatment::KeepHead,
            _ => AudioTreatment::Measure,
        };
        for text in [&mut self.text, &mut self.words].into_iter().flatten() {
            *text = redactor.redact_text(text, treatment);
        }
    }

    /// Approximate memory of the record while it waits to be written, bytes.
    pub fn memory_bytes(&self) -> usize {
        let texts = [&self.text, &self.base64, &self.words];
        128 + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}
