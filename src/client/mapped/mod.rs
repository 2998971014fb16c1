//! Codec of the protocols that mapping files describe, and what a protocol may do beyond its file: [`ClientCodec`].
//!
//! Audio is binary frames ([`framing`]) or base64 in a field ([`audio_input`]); commands become requests by the meanings of
//! their verbs and fields ([`decode`], [`field_values`]); events become messages by templates ([`encode`]), which [`slots`]
//! fill. Ids are remembered, generated or counted ([`values`]).

mod answer_words;
mod audio_input;
mod client_codec;
mod decode;
mod encode;
mod field_values;
mod framing;
mod messages;
mod query;
mod segments;
mod sentences;
mod slots;
mod spoken;
pub(super) mod tools;
mod user_words;
mod values;

use std::sync::Arc;

pub use self::query::ConnectQuery;
#[cfg(feature = "io")]
pub(crate) use self::values::answer_headers;
use self::{audio_input::AudioInput, encode::EventEncoder, messages::AddedEntries};
pub(super) use self::{
    client_codec::{ClientCodec, CommandMessage, Plain, RequestHandler, TurnSink},
    decode::invalid_error,
    encode::error_close_frame,
    messages::NO_TEXT,
};
use super::{Abilities, IgnoredField, Notes};
use crate::{
    spelling::{ClientMapping, client::Framing},
    vocabulary::{Setting, SlotValue, ToolCall, ToolResult},
};

/// Codec of one connection, as far as the mapping file describes its protocol.
#[derive(Debug)]
pub(super) struct MappedCodec {
    pub(super) mapping: Arc<ClientMapping>,
    /// Messages to the client.
    pub(super) events: EventEncoder,
    /// Audio from the client.
    audio: AudioInput,
    /// Texts and results from the client.
    entries: AddedEntries,
    /// A binary message may be a command.
    pub(super) has_binary_commands: bool,
    /// The audio comes by the track of a call.
    pub(super) is_call: bool,
    /// The model takes texts of the user.
    takes_text: bool,
    /// The profile calls tools.
    calls_tools: bool,
    pub(super) notes: Notes,
}

impl MappedCodec {
    /// A codec for one connection, opened at `opened_unix_s` seconds since 1970.
    pub(super) fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        Self {
            events: EventEncoder::new(mapping.clone(), opened_unix_s),
            audio: AudioInput::new(mapping.clone()),
            entries: AddedEntries::default(),
            has_binary_commands: mapping.has_binary_commands(mapping.framing),
            is_call: false,
            takes_text: true,
            calls_tools: true,
            notes: Notes::default(),
            mapping,
        }
    }

    /// Sets what the session can do.
    pub(super) const fn set_abilities(&mut self, abilities: Abilities) {
        self.takes_text = abilities.takes_turns;
        self.calls_tools = abilities.calls_tools;
    }

    /// Notes a setting that concerns messages to the client.
    const fn note_setting(&mut self, setting: &Setting) {
        match setting {
            Setting::OutputRateHz(rate_hz) => self.events.rate_out_hz = *rate_hz,
            Setting::SpokenAnswers(on) => self.events.answers.speaks = *on,
            _ => {}
        }
    }

    /// Sets how messages are framed.
    fn set_framing(&mut self, framing: Framing) {
        self.events.framing = framing;
        self.has_binary_commands = self.mapping.has_binary_commands(framing);
    }

    /// True if a remembered value is a flag that is set.
    pub(super) fn is_set(&self, value: usize) -> bool {
        matches!(self.events.slots.values.get(value), SlotValue::Bool(true))
    }

    /// Notes a call of the model that the protocol's own code passes on.
    pub(super) fn note_call(&mut self, segment_id: u32, call: &ToolCall) {
        self.events.calls.note(segment_id, call);
    }

    /// Passes on the result of a call, unless the model no longer waits for it.
    pub(super) fn pass_awaited_result(&mut self, result: ToolResult, handle: &mut RequestHandler<'_>) {
        let _ = self.entries.pass_results(vec![result], &mut self.events.calls, handle);
    }

    /// Length of the audio in the last message with audio in a field, bytes.
    pub(super) const fn last_audio_bytes(&self) -> usize {
        self.audio.decoded_bytes()
    }
}
