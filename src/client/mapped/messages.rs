//! Messages of the client that become entries of the conversation: typed texts, lists of messages, and results of tools.

use super::{RequestHandler, tools::AwaitedCalls};
use crate::{
    error::Error,
    vocabulary::{AnswerRequest, ClientRequest, Entry, EntryId, EntryPart, EntryPlace, Role, ToolResult},
};

/// Error text for a text of the user in full duplex.
pub(in crate::client) const NO_TEXT: &str =
    "the model of this profile takes no text; it hears only the microphone";

/// A message of the client for the conversation.
#[derive(Debug)]
pub(super) struct AddedMessage {
    pub(super) role: Role,
    pub(super) parts: Vec<EntryPart>,
}

/// Entries of the conversation that the client has added.
#[derive(Debug, Default)]
pub(super) struct AddedEntries {
    count: u32,
}

impl AddedEntries {
    /// Adds a text of the user to the conversation. With `answer`, also asks for an answer.
    pub(super) fn pass_text(
        &mut self,
        text: String,
        answer: Option<AnswerRequest>,
        handle: &mut RequestHandler<'_>,
    ) {
        let message = AddedMessage { role: Role::User, parts: vec![EntryPart::Text(text)] };
        self.pass_messages([message], answer, handle);
    }

    /// Adds messages to the conversation. With `answer`, also asks for an answer.
    pub(super) fn pass_messages(
        &mut self,
        messages: impl IntoIterator<Item = AddedMessage>,
        answer: Option<AnswerRequest>,
        handle: &mut RequestHandler<'_>,
    ) {
        for AddedMessage { role, parts } in messages {
            let entry = Entry { id: self.next_id(), role, parts };
            handle(ClientRequest::AddEntry(Box::new(entry), EntryPlace::End));
        }
        if let Some(request) = answer {
            handle(ClientRequest::Answer(Box::new(request)));
        }
    }

    /// Adds results of tools. Asks for the model's answer once it has the results of all calls.
    ///
    /// # Errors
    /// A result of no call.
    pub(super) fn pass_results(
        &mut self,
        results: Vec<ToolResult>,
        calls: &mut AwaitedCalls,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        calls.complete(&results)?;
        let answer = (calls.is_empty() && !results.is_empty()).then(|| answer_request(None));
        let to_message = |result| AddedMessage { role: Role::User, parts: vec![EntryPart::Result(result)] };
        self.pass_messages(results.into_iter().map(to_message), answer, handle);
        Ok(())
    }

    /// Number of the next entry.
    const fn next_id(&mut self) -> EntryId {
        let id = EntryId(EntryId::FIRST_ADDED.0.wrapping_add(self.count));
        self.count = self.count.wrapping_add(1);
        id
    }
}

/// The client's request for an answer, spoken or not.
pub(super) fn answer_request(speaks: Option<bool>) -> AnswerRequest {
    AnswerRequest { by_client: true, speaks, ..AnswerRequest::default() }
}
