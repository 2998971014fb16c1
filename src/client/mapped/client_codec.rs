//! Behaviour of a client protocol that its mapping file cannot say.

use std::fmt;

use super::{Abilities, MappedCodec, Notes};
use crate::{
    error::Error,
    spelling::{
        client::{ProtocolCommand, Verb},
        extract::ExtractedValues,
        field::FieldRole,
    },
    vocabulary::{
        ClientEvent, ClientRequest, EntryId, Frame, ListedTool, Message, ServerCallResult, Setting, SpeechId,
    },
};

/// Takes the requests of a message.
pub(in crate::client) type RequestHandler<'h> = dyn FnMut(ClientRequest<'_>) + 'h;

/// Takes the messages of an event, each with the turn that it belongs to.
pub(in crate::client) type TurnSink<'s> = dyn FnMut(Message, Option<SpeechId>) + 's;

/// Part of a codec that knows more of its protocol than the mapping file says. Each method that is not given leaves the work to
/// [`MappedCodec`].
pub(in crate::client) trait ClientCodec: fmt::Debug + Send + Sync {
    /// Reads one frame and passes its requests on.
    ///
    /// # Errors
    /// The mistake in the frame.
    fn decode(
        &mut self,
        mapped: &mut MappedCodec,
        frame: Frame<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        mapped.decode(frame, self, handle)
    }

    /// Reads a message whose command is known. Called by [`MappedCodec::decode`].
    ///
    /// # Errors
    /// The mistake in the message.
    fn decode_command(
        &mut self,
        mapped: &mut MappedCodec,
        message: &CommandMessage<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        mapped.pass_command(message, handle)
    }

    /// Encodes an event that is sent `at_s` seconds after the session opened. A message with a turn is discarded when the user
    /// interrupts that turn.
    fn encode(&mut self, mapped: &mut MappedCodec, event: &ClientEvent, at_s: f64, send: &mut TurnSink<'_>) {
        let turn = event.turn();
        mapped.events.encode(event, at_s, &mut |message| send(message, turn));
    }

    /// Takes a query parameter with this role: `shape`, `session`, `transport` or `intent`. Gives the settings in it.
    ///
    /// # Errors
    /// The mistake in the parameter.
    fn apply_parameter(
        &mut self,
        _mapped: &mut MappedCodec,
        _role: FieldRole,
        _value: &str,
    ) -> Result<Vec<Setting>, Error> {
        Ok(Vec::new())
    }

    /// Settings of a new connection that differ from those of other protocols.
    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// Sets what the session can do.
    fn set_abilities(&mut self, _abilities: Abilities) {}

    /// Sets the session's id and model, and the seed of generated ids.
    fn begin_session(&mut self, _session_id: &str, _model: &str, _seed: u64) {}

    /// Moves the replies and fields without effect to the other notes.
    fn take_notes(&mut self, _notes: &mut Notes) {}

    /// Takes the tools of a client's server, or why there are none.
    fn take_tool_list(
        &mut self,
        _number: EntryId,
        _list: Result<Vec<ListedTool>, String>,
        _handle: &mut RequestHandler<'_>,
    ) {
    }

    /// Takes the end of a call on a client's server. Gives the result of any other call back.
    fn take_tool_result(
        &mut self,
        _call: EntryId,
        result: ServerCallResult,
        _handle: &mut RequestHandler<'_>,
    ) -> Option<ServerCallResult> {
        Some(result)
    }

    /// Memory of what the client gave and the codec keeps, bytes.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// Forgets the conversation, because the client has left.
    fn forget(&mut self) {}
}

/// A protocol whose mapping file says everything.
#[derive(Debug)]
pub(in crate::client) struct Plain;

impl ClientCodec for Plain {}

/// A message of the client, and its command.
#[derive(Debug)]
pub(in crate::client) struct CommandMessage<'m> {
    pub(in crate::client) command: &'m ProtocolCommand,
    pub(in crate::client) text: &'m str,
    pub(super) found: &'m ExtractedValues<'m>,
}

impl CommandMessage<'_> {
    /// The first meaning of the command.
    pub(in crate::client) fn first_verb(&self) -> Option<Verb> {
        self.command.verbs.first().map(|spelled| spelled.verb)
    }
}
