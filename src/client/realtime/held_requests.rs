//! Requests for responses that name tool servers of their own (`response.create` with tools of type `mcp`): each waits until these
//! tools are listed. The connections end when neither a response nor a call of it needs them.

use serde_json::{Value, value::RawValue};

use super::{
    Realtime,
    events::EventLabels,
    fields::{read_small, wrong_value},
    response::RequestedResponse,
    tool_servers::{DeclaredServer, MCP, ServerTool, ToolLists, chosen_of_server},
};
use crate::{
    client::{ToolOrder, mapped::RequestHandler},
    error::Error,
    vocabulary::{AnswerRequest, ClientRequest, EntryId},
};

/// Most servers of a session and its responses together.
const LISTS_MAX: usize = 16;
/// Code of the error of a response whose `tool_choice` no server has.
const UNKNOWN_CHOICE: &str = "invalid_value";

/// Tool servers that a response names.
#[derive(Debug, Default)]
pub(super) struct ResponseServers {
    pub(super) declared: Vec<DeclaredServer>,
    /// `tool_choice`, if it chooses among the tools of these servers.
    choice: Option<Value>,
}

/// A request for a response that waits for lists of tools.
#[derive(Debug)]
pub(super) struct HeldRequest {
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
    pub(super) fn take_choice(&mut self, choice: &RawValue, path: &str) -> Result<bool, Error> {
        if self.declared.is_empty() {
            return Ok(false);
        }
        let choice = read_small(choice, path)?;
        if choice["type"] != MCP {
            return Ok(false);
        }
        if !self.declared.iter().any(|declared| choice["server_label"] == declared.server.label) {
            return Err(wrong_value(path, "the label of a server in tools"));
        }
        self.choice = Some(choice);
        Ok(true)
    }
}

impl HeldRequest {
    /// The fields that the response repeats.
    pub(super) const fn requested(&self) -> &RequestedResponse {
        &self.requested
    }
}

impl<L: EventLabels> Realtime<L> {
    /// Keeps a request until the tools of its servers are listed.
    ///
    /// # Errors
    /// Too many servers are named.
    pub(super) fn hold_request(
        &mut self,
        request: AnswerRequest,
        requested: RequestedResponse,
        ResponseServers { declared, choice }: ResponseServers,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let new = declared.iter().filter(|server| !self.tool_servers.knows(server)).count();
        if self.tool_servers.lists_count() + new > LISTS_MAX {
            let bounds = format!("at most {LISTS_MAX} servers with those that are in use");
            return Err(wrong_value("response.tools", &bounds));
        }
        let (mut lists, mut messages) = (Vec::new(), Vec::new());
        for server in &declared {
            lists.push(self.begin_list_of_response(server, &mut |message| messages.push(message)));
        }
        self.add_replies(messages);
        self.held_requests.push(HeldRequest { request, requested, lists, choice });
        self.release_requests(handle);
        Ok(())
    }

    /// Passes on the requests whose servers have all answered.
    pub(super) fn release_requests(&mut self, handle: &mut RequestHandler<'_>) {
        loop {
            let is_listed = |number: &EntryId| self.tool_servers.is_complete(*number);
            let is_ready = |held: &HeldRequest| held.lists.iter().all(is_listed);
            let Some(at) = self.held_requests.iter().position(is_ready) else { break };
            let held = self.held_requests.remove(at);
            self.ask_with_servers(held, handle);
        }
        self.leave_unused_servers();
    }

    /// Passes on a request with the tools of its servers.
    fn ask_with_servers(&mut self, held: HeldRequest, handle: &mut RequestHandler<'_>) {
        let HeldRequest { mut request, mut requested, lists, choice } = held;
        let mut offer = request.tools.take().unwrap_or_default();
        let named = self.tool_servers.named_tools(&offer.tools, &ToolLists::Of(&lists));
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
    pub(super) fn cancel_held_request(&mut self) -> bool {
        if self.held_requests.is_empty() {
            return false;
        }
        let held = self.held_requests.remove(0);
        self.reply_ended_response(held.requested, |response| response.set_status(true, true));
        self.leave_unused_servers();
        true
    }

    /// Leaves the servers that neither the session nor a response or a call needs.
    pub(super) fn leave_unused_servers(&mut self) {
        let waiting = self.requests.iter().map(|requested| &requested.server_tools);
        let responses = self.responses.iter().map(|response| &response.server_tools);
        let offered = waiting.chain(responses).flatten().flat_map(|tools| tools.iter().map(ServerTool::list));
        let held = self.held_requests.iter().flat_map(|held| held.lists.iter().copied());
        let used: Vec<EntryId> = offered.chain(held).collect();
        let left = self.tool_servers.remove_unused(&used);
        self.notes.tool_orders.extend(left.into_iter().map(ToolOrder::Leave));
    }
}
