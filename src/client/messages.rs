//! Messages of the client that become entries of the conversation: typed texts, and lists of messages.

use super::Codec;
use crate::{
    error::{Error, ErrorKind},
    spelling::client::{ProtocolCommand, Verb},
    vocabulary::{AnswerRequest, ClientRequest, Entry, EntryId, EntryPart, EntryPlace, EventName, Role},
};

/// Error text for a text of the user in full duplex.
pub(super) const NO_TEXT: &str = "the model of this profile takes no text; it hears only the microphone";

impl Codec {
    /// Refuses a text of the user that the model does not take, where the protocol can say so.
    pub(super) fn check_takes_text(&self, command: &ProtocolCommand) -> Result<(), Error> {
        let is_text = || command.verbs.iter().any(|it| matches!(it.verb, Verb::Ask | Verb::Tell));
        if !self.takes_text && !self.mapping.event(EventName::RequestFailed).is_empty() && is_text() {
            return Err(Error::new(ErrorKind::Invalid, format!("'{}': {NO_TEXT}", command.name)));
        }
        Ok(())
    }

    /// Adds a text of the user to the conversation. With `answer`, also asks for an answer, spoken or not.
    pub(super) fn pass_message(
        &mut self,
        text: String,
        answer: Option<Option<bool>>,
        handle: &mut impl FnMut(ClientRequest<'_>),
    ) {
        self.pass_messages(vec![(Role::User, vec![EntryPart::Text(text)])], answer, handle);
    }

    /// Adds messages to the conversation. With `answer`, also asks for an answer, spoken or not.
    pub(super) fn pass_messages(
        &mut self,
        messages: Vec<(Role, Vec<EntryPart>)>,
        answer: Option<Option<bool>>,
        handle: &mut impl FnMut(ClientRequest<'_>),
    ) {
        for (role, parts) in messages {
            let entry = Entry { id: self.next_entry_id(), role, parts };
            handle(ClientRequest::AddEntry(Box::new(entry), EntryPlace::End));
        }
        if let Some(speaks) = answer {
            let request = AnswerRequest { by_client: true, speaks, ..AnswerRequest::default() };
            handle(ClientRequest::Answer(Box::new(request)));
        }
    }

    /// Number of the next entry that the client adds.
    pub(super) const fn next_entry_id(&mut self) -> EntryId {
        let id = EntryId(EntryId::FIRST_ADDED.0.wrapping_add(self.asked));
        self.asked = self.asked.wrapping_add(1);
        id
    }
}
