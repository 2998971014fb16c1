//! Tool servers that a `response.create` names for its response alone. The request waits until their tools are listed, and the
//! connections end when neither the response nor a call of it needs them.

use serde_json::{Value, value::RawValue};

use super::{DeclaredServer, MCP, ToolList, ToolServers, chosen_of_server};
use crate::{
    client::{
        ToolOrder,
        mapped::RequestHandler,
        realtime::{
            Realtime,
            events::EventLabels,
            fields::{read_small, wrong_value},
            response::RequestedResponse,
        },
    },
    error::Error,
    vocabulary::{AnswerRequest, ClientRequest, EntryId},
};

/// Most servers of a session and its responses together.
const LISTS_MAX: usize = 16;
/// Code of the error of a response whose `tool_choice` no server has.
const UNKNOWN_CHOICE: &str = "invalid_value";

/// Tool servers that a response names.
#[derive(Debug, Default)]
pub(in crate::client::realtime) struct ResponseServers {
    pub(in crate::client::realtime) declared: Vec<DeclaredServer>,
    /// `tool_choice`, if it chooses among the tools of these servers.
    choice: Option<Value>,
}

/// A request for a response that waits for lists of tools.
#[derive(Debug)]
pub(in crate::client::realtime) struct HeldRequest {
    request: AnswerRequest,
    requested: RequestedResponse,
    /// The lists of its servers.
    lists: Vec<EntryId>,
    choice: Option<Value>,
}

impl ResponseServers {
    /// Takes `tool_choice` if it chooses among the tools of servers that the response names: these are not listed yet. Returns
    /// false for another choice.
    ///
    /// # Errors
    /// The choice is of a server that the response does not name.
    pub(in crate::client::realtime) fn take_choice(
        &mut self,
        choice: &RawValue,
        path: &str,
    ) -> Result<bool, Error> {
        if self.declared.is_empty() {
            return Ok(false);
        }
        let choice = read_small(choice, path)?;
        if choice["type"] != MCP {
            return Ok(false);
        }
        let is_named = |server: &DeclaredServer| choice["server_label"] == server.server.label;
        if !self.declared.iter().any(is_named) {
            return Err(wrong_value(path, "the label of a server in tools"));
        }
        self.choice = Some(choice);
        Ok(true)
    }
}

impl ToolServers {
    /// Memory of the requests that wait, bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.iter().map(|held| held.requested.bytes).sum()
    }

    /// Requests that wait.
    pub(in crate::client::realtime) fn held_requests(&self) -> impl Iterator<Item = &RequestedResponse> {
        self.held.iter().map(|held| &held.requested)
    }

    /// True if a request that waits, or a call, needs this list.
    fn needs(&self, list: &ToolList) -> bool {
        self.held.iter().any(|held| held.lists.contains(&list.number))
            || self.calls.iter().any(|call| call.is_of(list.number))
    }
}

impl<L: EventLabels> Realtime<L> {
    /// Keeps a request until the tools of its servers are listed.
    ///
    /// # Errors
    /// Too many servers are named.
    pub(in crate::client::realtime) fn hold_request(
        &mut self,
        request: AnswerRequest,
        requested: RequestedResponse,
        ResponseServers { declared, choice }: ResponseServers,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let is_new =
            |server: &&DeclaredServer| self.tool_servers.lists.iter().all(|list| list.declared != **server);
        if self.tool_servers.lists.len() + declared.iter().filter(is_new).count() > LISTS_MAX {
            let bounds = format!("at most {LISTS_MAX} servers with those that are in use");
            return Err(wrong_value("response.tools", &bounds));
        }
        let (mut lists, mut messages) = (Vec::new(), Vec::new());
        for server in &declared {
            let at = self.find_or_begin_list(server);
            lists.push(self.tool_servers.lists[at].number);
            // The session's lists are announced with its settings.
            if !self.tool_servers.lists[at].is_of_session {
                self.announce_list(at, &mut |message| messages.push(message));
            }
        }
        self.add_replies(messages);
        self.tool_servers.held.push(HeldRequest { request, requested, lists, choice });
        self.release_requests(handle);
        Ok(())
    }

    /// Passes on the requests whose servers have all answered.
    pub(super) fn release_requests(&mut self, handle: &mut RequestHandler<'_>) {
        loop {
            let ToolServers { lists, held, .. } = &mut self.tool_servers;
            let awaits =
                |number: &EntryId| lists.iter().any(|list| list.number == *number && !list.is_complete);
            let Some(at) = held.iter().position(|held| !held.lists.iter().any(awaits)) else { break };
            let held = held.remove(at);
            self.ask_with_servers(held, handle);
        }
        self.leave_unused_servers();
    }

    /// Passes on a request with the tools of its servers.
    fn ask_with_servers(&mut self, held: HeldRequest, handle: &mut RequestHandler<'_>) {
        let HeldRequest { mut request, mut requested, lists, choice } = held;
        let mut offer = request.tools.take().unwrap_or_default();
        let named = self.tool_servers.named_tools(&offer.tools, |list| lists.contains(&list.number));
        offer.tools = offer.tools.iter().chain(named.iter().map(|tool| &tool.offered)).cloned().collect();
        if let Some(choice) = choice {
            let Some(chosen) = chosen_of_server(&choice, &named) else {
                let message = "No server has listed the tool of 'response.tool_choice'.";
                return self.fail_response(requested, UNKNOWN_CHOICE, message);
            };
            offer.choice = chosen;
        }
        request.tools = Some(offer);
        request.bytes = request.count_bytes();
        (requested.bytes, requested.server_tools) = (request.bytes, Some(named.into()));
        self.requests.push_back(requested);
        handle(ClientRequest::Answer(Box::new(request)));
    }

    /// Cancels the oldest request that waits. Returns false if there is none.
    pub(in crate::client::realtime) fn cancel_held_request(&mut self) -> bool {
        if self.tool_servers.held.is_empty() {
            return false;
        }
        let held = self.tool_servers.held.remove(0);
        self.reply_ended_response(held.requested, |response| response.set_status(true, true));
        self.leave_unused_servers();
        true
    }

    /// Leaves the servers that neither the session nor a response or a call needs.
    pub(in crate::client::realtime) fn leave_unused_servers(&mut self) {
        let waiting = self.requests.iter().map(|requested| &requested.server_tools);
        let responses = self.responses.iter().map(|response| &response.server_tools);
        let used: Vec<EntryId> =
            waiting.chain(responses).flatten().flat_map(|tools| tools.iter().map(|tool| tool.list)).collect();
        let servers = &self.tool_servers;
        let is_unused =
            |list: &&ToolList| !list.is_of_session && !used.contains(&list.number) && !servers.needs(list);
        let unused: Vec<EntryId> = servers.lists.iter().filter(is_unused).map(|list| list.number).collect();
        self.tool_servers.lists.retain(|list| {
            let is_left = unused.contains(&list.number);
            if is_left && !list.declared.is_hosted {
                self.notes.tool_orders.push(ToolOrder::Leave(list.number));
            }
            !is_left
        });
    }
}
