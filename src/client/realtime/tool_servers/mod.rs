//! Tool servers that the client names, for the session in `session.update` or for one response in `response.create`: voxbridge
//! lists their tools and calls them for the model.
//!
//! Source: mappings/notes/openai-realtime.md#tool-servers. A call ends its response, the result becomes part of the conversation when
//! it comes, and the client asks for the next response.
//!
//! The driver connects and calls ([`ToolOrder`]). [`declared`] reads the entries of `tools`, [`calls`] has the calls and their approval,
//! [`items`] the items. Requests for responses that name servers wait in [`super::held_requests`].

mod calls;
mod declared;
mod items;

use serde_json::{Value, json};

pub(super) use self::{
    calls::MadeCall,
    declared::{DeclaredServer, MCP, SERVERS_MAX, read_server, without_secrets},
    items::ServerCallItem,
};
use self::{calls::RemoteCall, items::list_json};
use super::{Realtime, events::EventLabels, items::Item};
use crate::{
    client::{
        ToolOrder,
        mapped::{RequestHandler, tools},
    },
    spelling::client::RealtimeEvent,
    vocabulary::{ClientRequest, EntryId, ListedTool, Message, Setting, Tool, ToolChoice, writable_name},
};

/// Why a connector or a tunnel of OpenAI has no tools.
const HOSTED_BY_OPENAI: &str = "connectors and tunnels are servers of OpenAI, which voxbridge cannot reach: name the tool server's own URL in server_url";

/// Tool servers of one session's client.
#[derive(Debug, Default)]
pub(super) struct ToolServers {
    lists: Vec<ToolList>,
    calls: Vec<RemoteCall>,
}

/// Lists whose tools are offered.
#[derive(Debug)]
pub(super) enum ToolLists<'l> {
    OfSession,
    Of(&'l [EntryId]),
}

/// The tools of a server.
#[derive(Debug)]
struct ToolList {
    declared: DeclaredServer,
    /// Its item.
    number: EntryId,
    /// The session offers these tools; otherwise only responses that name the server do.
    is_of_session: bool,
    /// The client knows that it is being made.
    is_announced: bool,
    /// The server has answered, or has failed.
    is_complete: bool,
    /// Empty until they are listed.
    tools: Vec<ListedTool>,
}

/// A tool of a server that the client names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerTool {
    /// The tool under the name that the model knows.
    pub(super) offered: Tool,
    /// Its server.
    pub(super) label: String,
    /// The server's own name of the tool.
    name: String,
    list: EntryId,
    needs_approval: bool,
}

impl ToolServers {
    /// Memory of the lists and calls, bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_tool = |listed: &ListedTool| {
            let Tool { name, description, parameters } = &listed.tool;
            let texts = name.len() + description.as_ref().map_or(0, String::len) + parameters.len();
            size_of::<ListedTool>() + texts + listed.annotations.as_ref().map_or(0, |text| text.len())
        };
        let lists = self.lists.iter().flat_map(|list| &list.tools).map(of_tool);
        lists.sum::<usize>() + self.calls.iter().map(RemoteCall::bytes).sum::<usize>()
    }

    /// Number of lists.
    pub(super) const fn lists_count(&self) -> usize {
        self.lists.len()
    }

    /// True if the tools of this server are listed or being listed.
    pub(super) fn knows(&self, server: &DeclaredServer) -> bool {
        self.lists.iter().any(|list| list.declared == *server)
    }

    /// True if the server of a list has answered, or has failed.
    pub(super) fn is_complete(&self, number: EntryId) -> bool {
        self.lists.iter().all(|list| list.number != number || list.is_complete)
    }

    /// Removes the lists that neither the session nor a call needs, except these. Gives the numbers of those with a connection.
    pub(super) fn remove_unused(&mut self, used: &[EntryId]) -> Vec<EntryId> {
        let mut left = Vec::new();
        let Self { lists, calls } = self;
        lists.retain(|list| {
            let is_called = calls.iter().any(|call| call.is_of(list.number));
            let is_kept = list.is_of_session || is_called || used.contains(&list.number);
            if !is_kept && !list.declared.is_hosted {
                left.push(list.number);
            }
            is_kept
        });
        left
    }

    /// The tools in these lists under names that neither the client's functions nor other tools have. Where a name is taken, the
    /// server's label comes in front. A tool that finds no name or no room is left out.
    pub(super) fn named_tools(&self, functions: &[Tool], lists: &ToolLists<'_>) -> Vec<ServerTool> {
        let is_meant = |list: &&ToolList| match lists {
            ToolLists::OfSession => list.is_of_session,
            ToolLists::Of(numbers) => numbers.contains(&list.number),
        };
        let mut named: Vec<ServerTool> = Vec::new();
        let mut bytes: usize = functions.iter().map(tool_bytes).sum();
        for list in self.lists.iter().filter(is_meant) {
            let label = &list.declared.server.label;
            for listed in &list.tools {
                let is_free = |name: &String| {
                    functions.iter().all(|tool| tool.name != *name)
                        && named.iter().all(|tool| tool.offered.name != *name)
                };
                let name = &listed.tool.name;
                let names = [writable_name(name), writable_name(&format!("{label}_{name}"))];
                let Some(free) = names.into_iter().find(is_free) else { continue };
                let offered = Tool { name: free, ..listed.tool.clone() };
                bytes += tool_bytes(&offered);
                if functions.len() + named.len() < tools::TOOLS_MAX && bytes <= tools::TOOLS_MAX_BYTES {
                    named.push(ServerTool {
                        offered,
                        label: label.clone(),
                        name: name.clone(),
                        list: list.number,
                        needs_approval: list.declared.needs_approval(listed),
                    });
                }
            }
        }
        named
    }
}

impl ServerTool {
    /// The list that it is in.
    pub(super) const fn list(&self) -> EntryId {
        self.list
    }
}

/// Text of a tool, bytes.
fn tool_bytes(tool: &Tool) -> usize {
    tool.name.len() + tool.description.as_ref().map_or(0, String::len) + tool.parameters.len()
}

/// The choice of a tool of a server, or of any of its tools; `None` for one that is not listed.
pub(super) fn chosen_of_server(choice: &Value, server_tools: &[ServerTool]) -> Option<ToolChoice> {
    let mut of_server =
        server_tools.iter().filter(|tool| Some(tool.label.as_str()) == choice["server_label"].as_str());
    match choice["name"].as_str() {
        Some(name) => {
            let tool = of_server.find(|tool| tool.name == name)?;
            Some(ToolChoice::Named(tool.offered.name.clone()))
        }
        // The model may choose any tool then: calls cannot be bound to one server.
        None => of_server.next().map(|_| ToolChoice::Required),
    }
}

impl<L: EventLabels> Realtime<L> {
    /// Connects to the servers that the client has named for the session, and leaves those that it names no longer.
    pub(super) fn follow_declared_servers(&mut self) {
        let declared = &self.session.tool_servers;
        if declared.is_empty() && self.tool_servers.lists.is_empty() {
            return;
        }
        for list in &mut self.tool_servers.lists {
            list.is_of_session = declared.contains(&list.declared);
        }
        self.leave_unused_servers();
        for server in self.session.tool_servers.clone() {
            let at = self.find_or_begin_list(&server);
            self.tool_servers.lists[at].is_of_session = true;
        }
        self.name_server_tools();
    }

    /// Index of the list of a server's tools, which is begun if there is none.
    fn find_or_begin_list(&mut self, server: &DeclaredServer) -> usize {
        let lists = &mut self.tool_servers.lists;
        if let Some(at) = lists.iter().position(|list| list.declared == *server) {
            return at;
        }
        let number = self.items.allocate();
        if !server.is_hosted {
            self.notes.tool_orders.push(ToolOrder::Connect(number, Box::new(server.server.clone())));
        }
        lists.push(ToolList {
            declared: server.clone(),
            number,
            is_of_session: false,
            is_announced: false,
            is_complete: server.is_hosted,
            tools: Vec::new(),
        });
        lists.len() - 1
    }

    /// Begins the list of a server that a response names, and tells the client. A list that there is already serves as well; the
    /// session's are announced with its settings.
    pub(super) fn begin_list_of_response(
        &mut self,
        server: &DeclaredServer,
        send: &mut dyn FnMut(Message),
    ) -> EntryId {
        let at = self.find_or_begin_list(server);
        let ToolList { number, is_of_session, .. } = self.tool_servers.lists[at];
        if !is_of_session {
            self.announce_list(at, send);
        }
        number
    }

    /// Offers the session's tools that are listed by now.
    fn name_server_tools(&mut self) {
        let functions = &self.session.tools.tools;
        let named = self.tool_servers.named_tools(functions, &ToolLists::OfSession);
        self.session.set_server_tools(named.into());
    }

    /// Tells the client which lists of the session's tools are being made. Clients ask for the item at once.
    pub(super) fn announce_lists(&mut self, send: &mut dyn FnMut(Message)) {
        for at in 0..self.tool_servers.lists.len() {
            self.announce_list(at, send);
        }
    }

    /// Tells the client, once, that a list is being made.
    fn announce_list(&mut self, at: usize, send: &mut dyn FnMut(Message)) {
        let list = &mut self.tool_servers.lists[at];
        if std::mem::replace(&mut list.is_announced, true) {
            return;
        }
        let (number, is_hosted) = (list.number, list.declared.is_hosted);
        let id = self.events.item_id(number);
        let json = list_json(&id, &list.declared.server.label, &[], None).to_string();
        let previous = self.items.last_id();
        self.items.add(Item::added(id.clone(), number, json.clone()));
        let fields = json!({ "previous_item_id": previous });
        self.send_with(RealtimeEvent::ItemAdded, fields, "item", &json, send);
        self.send(RealtimeEvent::ToolListStarted, json!({ "item_id": id }), send);
        if is_hosted {
            self.send_list_end(at, Some(HOSTED_BY_OPENAI), send);
        }
    }

    /// Offers the tools of a server, or tells the client why there are none.
    pub(super) fn end_list(
        &mut self,
        number: EntryId,
        listed: Result<Vec<ListedTool>, String>,
        handle: &mut RequestHandler<'_>,
    ) {
        let Some(at) = self.tool_servers.lists.iter().position(|list| list.number == number) else {
            return;
        };
        let list = &mut self.tool_servers.lists[at];
        list.is_complete = true;
        let problem = match listed {
            Ok(tools) => {
                list.tools = tools.into_iter().filter(|tool| list.declared.allows(tool)).collect();
                None
            }
            Err(problem) => Some(problem),
        };
        let is_of_session = list.is_of_session;
        let mut messages = Vec::new();
        self.send_list_end(at, problem.as_deref(), &mut |message| messages.push(message));
        self.add_replies(messages);
        if is_of_session {
            self.name_server_tools();
            handle(ClientRequest::Adjust(vec![Setting::Tools(self.session.offer())]));
        }
        self.release_requests(handle);
    }

    /// Sends a list that is complete, or why there is none.
    fn send_list_end(&mut self, at: usize, problem: Option<&str>, send: &mut dyn FnMut(Message)) {
        let list = &self.tool_servers.lists[at];
        let (number, id) = (list.number, self.events.item_id(list.number));
        let json = list_json(&id, &list.declared.server.label, &list.tools, problem);
        self.items.replace(Item::added(id.clone(), number, json.to_string()));
        self.send_item_done(number, send);
        match problem {
            None => self.send(RealtimeEvent::ToolListCompleted, json!({ "item_id": id }), send),
            Some(problem) => {
                let fields = json!({ "item_id": id, "error": { "message": problem } });
                self.send(RealtimeEvent::ToolListFailed, fields, send);
            }
        }
    }

    /// Answers with a complete item.
    fn reply_item_done(&mut self, number: EntryId) {
        let mut messages = Vec::new();
        self.send_item_done(number, &mut |message| messages.push(message));
        self.add_replies(messages);
    }
}
