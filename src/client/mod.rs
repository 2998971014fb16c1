//! Client codecs: frames of a client protocol to and from the neutral vocabulary.
//!
//! To change here: what a protocol needs beyond its mapping file. Not here: what a message leads to, which is
//! [`crate::session`]'s.
//!
//! A mapping file holds the spelling of a protocol, and [`mapped`] is its codec. Most protocols need no more. What a protocol
//! does beyond its file is a [`ClientCodec`]: [`realtime`] and [`live`] know what the messages of OpenAI's protocols contain,
//! [`numbered`] wraps the first for clients that number their input, and [`device_tools`] calls tools that the client has itself. A codec knows nothing of sessions.

mod device_tools;
pub(crate) mod json_text;
mod live;
mod mapped;
mod numbered;
mod realtime;
pub mod reference;
pub mod relay;
mod spell_request;

use std::sync::Arc;

pub use self::mapped::ConnectQuery;
pub(crate) use self::spell_request::{check_request, spell_request};
use self::{
    device_tools::DeviceTools,
    live::Live,
    mapped::{ClientCodec, MappedCodec, Plain, RequestHandler, error_close_frame},
    numbered::NumberedInput,
    realtime::{NoLabels, Realtime},
};
#[cfg(feature = "io")]
pub(crate) use self::{
    live::check_live_session, mapped::answer_headers, realtime::check_session, reference::decode_voice_sample,
};
use crate::{
    error::Error,
    spelling::ClientMapping,
    vocabulary::{
        ClientEvent, ClientRequest, CloseReason, EntryId, EventName, Frame, ListedTool, Message,
        RemoteServer, ServerCall, ServerCallResult, SpeechId,
    },
};

/// One connection's codec.
#[derive(Debug)]
pub struct Codec {
    mapped: MappedCodec,
    /// What the protocol does beyond its mapping file.
    protocol: Box<dyn ClientCodec>,
}

/// What a session can do, as far as it concerns the client's messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    /// The session answers requests. In full duplex, the model speaks unasked and takes no texts.
    pub(crate) takes_turns: bool,
    /// The model sees pictures.
    pub(crate) sees: bool,
    /// The session can transcribe the user.
    pub(crate) transcribes: bool,
    /// The profile calls tools.
    pub(crate) calls_tools: bool,
}

/// What the codec has to report beside requests.
#[derive(Debug, Default)]
struct Notes {
    /// Messages that answer the client's own at once.
    replies: Vec<Message>,
    /// Fields without effect.
    ignored: Vec<IgnoredField>,
    /// Orders for the driver, on tool servers of the client.
    tool_orders: Vec<ToolOrder>,
}

impl Notes {
    fn append(&mut self, others: &mut Self) {
        self.replies.append(&mut others.replies);
        self.ignored.append(&mut others.ignored);
        self.tool_orders.append(&mut others.tool_orders);
    }
}

/// Something to do on a tool server of the client.
#[derive(Debug)]
pub(crate) enum ToolOrder {
    /// Connect to it, under this number, and list its tools.
    Connect(EntryId, Box<RemoteServer>),
    /// Leave it.
    Leave(EntryId),
    /// Call one of its tools.
    Call(Box<ServerCall>),
}

/// An accepted field without effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnoredField {
    /// The command, or `connect` for a query parameter.
    pub command: String,
    /// The field.
    pub field: String,
    /// Reason why the field has no effect.
    pub because: String,
    /// The client cannot work as intended without it.
    pub is_needed: bool,
}

impl Codec {
    /// A codec for one connection, opened at `opened_unix_s` seconds since 1970.
    #[must_use]
    pub fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        let protocol: Box<dyn ClientCodec> = match &mapping.realtime {
            Some(names) if names.numbers_input() => {
                Box::new(NumberedInput::new(mapping.clone(), opened_unix_s))
            }
            Some(_) => Box::new(Realtime::<NoLabels>::new(mapping.clone(), opened_unix_s)),
            None if mapping.is_live => Box::new(Live::new(opened_unix_s)),
            None if mapping.device_tools.is_some() => Box::new(DeviceTools::new(mapping.clone())),
            None => Box::new(Plain),
        };
        Self { mapped: MappedCodec::new(mapping, opened_unix_s), protocol }
    }

    /// Sets the session id and model for later events, and the seed of generated ids.
    pub fn set_session(&mut self, session_id: &str, model: &str, seed: u64) {
        self.mapped.events.slots.begin_session(session_id, model, seed);
        self.protocol.begin_session(session_id, model, seed);
    }

    /// Sets what the session can do. A session that says nothing can do everything but see.
    pub(crate) fn set_abilities(&mut self, abilities: Abilities) {
        self.mapped.set_abilities(abilities);
        self.protocol.set_abilities(abilities);
    }

    /// Sets the configured voices, for protocols that list them.
    pub(crate) fn set_voices<'v>(&mut self, names: impl Iterator<Item = &'v str>) {
        self.mapped.events.slots.set_voices(names);
    }

    /// Reads the query string (percent-encoded, without `?`). Unknown parameters are ignored, as clients expect, and noted.
    #[must_use]
    pub fn decode_query(&mut self, query: &str) -> ConnectQuery {
        self.mapped.decode_query(query, &mut *self.protocol)
    }

    /// Reads one frame and passes its requests on, in their order. A frame may have several, or none.
    ///
    /// # Errors
    /// The mistake in the frame. The session continues unless the protocol ends it.
    pub fn decode(
        &mut self,
        frame: Frame<'_>,
        mut handle: impl FnMut(ClientRequest<'_>),
    ) -> Result<(), Error> {
        self.protocol.decode(&mut self.mapped, frame, &mut handle)
    }

    /// Encodes an event that is sent `at_s` seconds after the session opened, and passes its messages on. A protocol has
    /// one message for an event, several, or none. A message with a turn is discarded when the user interrupts that turn.
    pub fn encode(
        &mut self,
        event: &ClientEvent,
        at_s: f64,
        mut send: impl FnMut(Message, Option<SpeechId>),
    ) {
        self.protocol.encode(&mut self.mapped, event, at_s, &mut send);
    }

    /// True for an event that the protocol has. Audio needs no template.
    pub(crate) fn has_event(&self, event: &ClientEvent) -> bool {
        event.name() == EventName::Audio || !self.mapping().event(event.name()).is_empty()
    }

    /// The close frame that ends the session for this reason.
    #[must_use]
    pub fn close_frame(&self, why: CloseReason) -> Message {
        match self.mapping().close(why) {
            Some(spelling) => Message::Close(spelling.code, spelling.text.clone()),
            None => Message::Close(1000, String::new()),
        }
    }

    /// The close frame after an error that ends the connection; `None` for one that does not.
    #[must_use]
    pub fn error_close_frame(&self, error: &Error) -> Option<Message> {
        let spelling = self.mapping().error(error.kind)?;
        let (code, reason) = error_close_frame(spelling.close.as_ref()?, &error.detail);
        Some(Message::Close(code, reason))
    }

    /// Memory of what the client gave and the codec keeps, bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.mapped.events.kept_bytes() + self.protocol.kept_bytes()
    }

    /// Forgets the conversation, because the client has left.
    pub(crate) fn forget(&mut self) {
        self.protocol.forget();
    }

    /// True if a binary message may be a command, or end the audio.
    pub(crate) const fn has_binary_commands(&self) -> bool {
        self.mapped.has_binary_commands
    }

    /// Mapping of the protocol.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<ClientMapping> {
        &self.mapped.mapping
    }

    /// Takes the fields without effect since the last call.
    pub fn take_ignored_fields(&mut self) -> Vec<IgnoredField> {
        std::mem::take(&mut self.mapped.notes.ignored)
    }

    /// Takes what the driver does on tool servers of the client since the last call.
    pub(crate) fn take_tool_orders(&mut self) -> Vec<ToolOrder> {
        std::mem::take(&mut self.mapped.notes.tool_orders)
    }

    /// Collects what encoding has left to report.
    pub(crate) fn collect_notes(&mut self) {
        self.protocol.take_notes(&mut self.mapped.notes);
    }

    /// Takes the tools of a client's server, or why there are none.
    pub(crate) fn take_tool_list(
        &mut self,
        number: EntryId,
        list: Result<Vec<ListedTool>, String>,
        handle: &mut RequestHandler<'_>,
    ) {
        self.protocol.take_tool_list(number, list, handle);
        self.protocol.take_notes(&mut self.mapped.notes);
    }

    /// Takes the end of a call on a client's server. Gives the result of any other call back.
    pub(crate) fn take_tool_result(
        &mut self,
        call: EntryId,
        result: ServerCallResult,
        handle: &mut RequestHandler<'_>,
    ) -> Option<ServerCallResult> {
        let result = self.protocol.take_tool_result(call, result, handle);
        self.protocol.take_notes(&mut self.mapped.notes);
        result
    }

    /// Takes the codec's own answers to the client's messages since the last call.
    pub fn take_replies(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.mapped.notes.replies)
    }
}

#[cfg(test)]
mod tests;
