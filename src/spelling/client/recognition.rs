//! Recognises the messages of a protocol's clients, and tells its clients from those of others.

use std::collections::BTreeSet;

use super::{
    ClientMapping, CommandSyntax, ExactMessage, Framing, ProtocolCommand,
    conditions::Condition,
    signs::ClientSigns,
    verbs::{Place, find_place, is_given, value_at},
};
use crate::{
    spelling::{
        check::{Document, FileError},
        extract::{ExtractError, ExtractedValues, Extractor},
    },
    vocabulary::{Node, SlotValue},
};

/// A condition on the first message of a client.
#[derive(Debug)]
pub(super) struct FirstMessage {
    condition: Condition<Place>,
    /// The condition for people.
    text: String,
}

impl FirstMessage {
    pub(super) fn compile(
        signs: &mut ClientSigns,
        extractor: &mut Extractor,
        document: &Document<'_>,
    ) -> Result<Option<Self>, FileError> {
        let Some(file) = signs.first_message.take() else { return Ok(None) };
        let (at, text) = (file.span().start, file.get_ref().to_string());
        let condition = file.get_ref().compile(|spelled| find_place(spelled, extractor, &[]));
        let condition = condition.map_err(|problem| document.problem(at, problem))?;
        Ok(Some(Self { condition, text }))
    }
}

impl ClientMapping {
    /// True if query parameters or commands tell the two protocols apart.
    pub(in crate::spelling) fn is_distinguishable_from(&self, other: &Self) -> bool {
        self.identifying_names() != other.identifying_names()
    }

    /// True if its clients speak first, and their first message tells the protocol.
    #[must_use]
    pub const fn is_told_by_first_message(&self) -> bool {
        self.first_message.is_some()
    }

    /// Names that identify a client of the protocol: query parameters, commands and the first message.
    fn identifying_names(&self) -> BTreeSet<&str> {
        let query = self.query.iter().map(|field| field.name.as_str());
        let commands = self.commands.iter().map(|command| command.name.as_str());
        let relay = self.relay.iter().flat_map(|relay| {
            relay.commands.iter().map(|command| command.name.as_str()).chain([relay.mode.key.as_str()])
        });
        let first_message = self.first_message.iter().map(|first| first.text.as_str());
        query.chain(commands).chain(relay).chain(first_message).collect()
    }

    /// True if a text frame names a command of this protocol, even with invalid fields; for a protocol recognised by its
    /// first message, true if this is one.
    #[must_use]
    pub fn has_command(&self, text: &str) -> bool {
        if let Some(relay) = &self.relay {
            return relay.has_command(text);
        }
        if self.exact_text(text).is_some() {
            return true;
        }
        let Ok(found) = self.extract(text) else { return false };
        if let Some(first) = &self.first_message {
            return first.condition.holds(&|place| value_at(place, &found, |_| SlotValue::Null), is_given);
        }
        let name = found.get(0).and_then(Node::as_str);
        self.commands.iter().any(|command| match command.present {
            Some(slot) => found.get(slot).is_some(),
            None => command.exactly.is_none() && Some(command.name.as_str()) == name,
        })
    }

    /// Finds the values of a text message.
    ///
    /// # Errors
    /// The message is no JSON object, nor a line of words in a protocol with these.
    pub fn extract<'t>(&self, text: &'t str) -> Result<ExtractedValues<'t>, ExtractError> {
        match self.command_syntax {
            CommandSyntax::Words if !text.trim_start().starts_with('{') => {
                Ok(self.extractor.extract_words(text))
            }
            CommandSyntax::Words | CommandSyntax::Json => self.extractor.extract(text),
        }
    }

    /// Index of the command that is this whole text message.
    #[must_use]
    pub fn exact_text(&self, text: &str) -> Option<usize> {
        let is_it = |exact: &ExactMessage| matches!(exact, ExactMessage::Text(own) if own == text);
        (text.len() <= self.exact_max_bytes).then(|| self.find_exact(is_it)).flatten()
    }

    /// Index of the command that is this whole binary message.
    #[must_use]
    pub fn exact_binary(&self, bytes: &[u8]) -> Option<usize> {
        let is_it =
            |exact: &ExactMessage| matches!(exact, ExactMessage::Binary(own) if own.as_bytes() == bytes);
        (bytes.len() <= self.exact_max_bytes).then(|| self.find_exact(is_it)).flatten()
    }

    /// True if a binary message may be a command, or end the audio, with this framing.
    pub(crate) fn has_binary_commands(&self, framing: Framing) -> bool {
        let is_binary = |exact: &ExactMessage| matches!(exact, ExactMessage::Binary(_));
        !matches!(framing, Framing::None | Framing::WebRtc) || self.find_exact(is_binary).is_some()
    }

    fn find_exact(&self, is_it: impl Fn(&ExactMessage) -> bool) -> Option<usize> {
        self.commands.iter().position(|command| command.exactly.as_ref().is_some_and(&is_it))
    }
}

/// Length of the longest message that is a command as a whole, bytes; 0 without one.
pub(super) fn longest_exact_message(commands: &[ProtocolCommand]) -> usize {
    commands.iter().filter_map(|command| command.exactly.as_ref()).map(ExactMessage::bytes).max().unwrap_or(0)
}
