//! Neutral vocabulary between N client protocols and M upstream dialects: requests go up, events come down.
//!
//! To change here: a row or a variant for something new that a client can ask for, set or get. Not here: names and fields of
//! a protocol, which its codec and mapping file have.
//!
//! A `…Request` goes towards the model and an `…Event` towards the client: [`ClientRequest`] and [`ClientEvent`] between a client and
//! its session, [`LaneRequest`] and [`LaneEvent`] between a session and its upstreams. The types hold no state and know no wire
//! format.

use bytes::Bytes;

mod answer;
mod describe;
mod events;
mod field_value;
mod flow;
mod http;
mod lane;
mod lane_kind;
mod node;
mod reasons;
pub mod relay;
mod requests;
mod settings;
mod slot;
mod slot_value;
mod tool;
mod turn_end;
pub(crate) mod usage;

pub(crate) use self::answer::needs_no_spaces;
pub use self::answer::{
    AnswerRequest, ChatMessage, ChatTurn, Entry, EntryId, EntryPart, EntryPlace, Role, TurnDetection,
    heard_words,
};
pub use self::describe::describe_queue;
pub(crate) use self::events::seconds;
pub use self::events::{ClientAudio, ClientEvent, EventName, SpeechId, ToolCall};
pub use self::field_value::{FieldValue, ListItem};
pub use self::flow::FlowControl;
pub use self::http::{AnswerPart, HttpBody, HttpRequest};
pub use self::lane::{
    ConversationInit, DisconnectReason, EndKind, LaneEvent, LaneRequest, MessageMeta, RefusedPart, Sound,
    TranscribePrompt, UnitInput, UpstreamEnd,
};
pub use self::lane_kind::{LanePurpose, Mode, VoiceEncoding};
pub use self::node::Node;
pub use self::reasons::{CloseReason, EndCause, RolloverReason, Speaker};
pub use self::requests::{ClientRequest, SpeakRequest, VideoFrame, VoiceSample};
pub use self::settings::{ClientSettings, FieldRole, MicrophoneMode, Setting, SpeechModel};
pub use self::slot::Slot;
pub use self::slot_value::{JsonWriter, SlotValue};
pub(crate) use self::tool::writable_name;
pub use self::tool::{
    CallFailure, ListedTool, RemoteServer, ServerCall, ServerCallResult, Tool, ToolChoice, ToolOffer,
    ToolResult, ToolServer,
};
pub use self::turn_end::{Eagerness, JudgedEnd, PauseId, TurnEnd, TurnEndRule};
pub use self::usage::{ReportedUsage, TokenDetails, TokenUsage};
/// One upstream connection of a session. A session never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

/// Received WebSocket message.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'a> {
    /// Text message.
    Text(&'a str),
    /// Binary message.
    Binary(&'a [u8]),
}

/// WebSocket message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Text message.
    Text(String),
    /// Binary message.
    Binary(Bytes),
    /// Close frame: code and reason. Nothing follows it.
    Close(u16, String),
}
