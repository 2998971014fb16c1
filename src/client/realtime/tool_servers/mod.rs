//! Tool servers that the client names in `session.update`: voxbridge lists their tools and calls them for the model.
//!
//! Source: mappings/notes/openai-realtime.md#tool-servers. A call ends its response, the result becomes part of the conversation when
//! it comes, and the client asks for the next response.
//!
//! The driver connects and calls ([`ToolOrder`]). [`declared`] reads the entries of `tools`, [`calls`] has the calls and their approval,
//! [`items`] the items.

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

/// Tool servers of one session's client.
#[derive(Debug, Default)]
pub(super) struct ToolServers {
    lists: Vec<ToolList>,
    calls: Vec<RemoteCall>,
}

/// The tools of a server.
#[derive(Debug)]
struct ToolList {
    declared: DeclaredServer,
    /// Its item.
    number: EntryId,
    /// The client knows that it is being made.
    is_announced: bool,
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

    /// The tools of all servers under names that neither the client's functions nor other tools have. Where a name is taken, the
    /// server's label comes in front. A tool that finds no name or no room is left out.
    fn named_tools(&self, functions: &[Tool]) -> Vec<ServerTool> {
        let mut named: Vec<ServerTool> = Vec::new();
        let mut bytes: usize = functions.iter().map(tool_bytes).sum();
        for list in &self.lists {
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
    /// Connects to the servers that the client has named, and leaves those that it names no longer.
    pub(super) fn follow_declared_servers(&mut self) {
        let declared = &self.session.tool_servers;
        if declared.is_empty() && self.tool_servers.lists.is_empty() {
            return;
        }
        let orders = &mut self.notes.tool_orders;
        self.tool_servers.lists.retain(|list| {
            let is_kept = declared.contains(&list.declared);
            if !is_kept {
                orders.push(ToolOrder::Leave(list.number));
            }
            is_kept
        });
        for server in declared {
            if self.tool_servers.lists.iter().all(|list| list.declared != *server) {
                let number = self.items.allocate();
                orders.push(ToolOrder::Connect(number, Box::new(server.server.clone())));
                let declared = server.clone();
                self.tool_servers.lists.push(ToolList {
                    declared,
                    number,
                    is_announced: false,
                    tools: Vec::new(),
                });
            }
        }
        self.name_server_tools();
    }

    /// Offers the tools that are listed by now.
    fn name_server_tools(&mut self) {
        let named = self.tool_servers.named_tools(&self.session.tools.tools);
        self.session.set_server_tools(named.into());
    }

    /// Tells the client which lists of tools are being made. Clients ask for the item at once.
    pub(super) fn announce_lists(&mut self, send: &mut dyn FnMut(Message)) {
        for at in 0..self.tool_servers.lists.len() {
            let list = &mut self.tool_servers.lists[at];
            if std::mem::replace(&mut list.is_announced, true) {
                continue;
            }
            let number = list.number;
            let id = self.events.item_id(number);
            let json = list_json(&id, &list.declared.server.label, &[], None).to_string();
            let previous = self.items.last_id();
            self.items.add(Item::added(id.clone(), number, json.clone()));
            let fields = json!({ "previous_item_id": previous });
            self.send_with(RealtimeEvent::ItemAdded, fields, "item", &json, send);
            self.send(RealtimeEvent::ToolListStarted, json!({ "item_id": id }), send);
        }
    }

    /// Offers the tools of a server, or tells the client why there are none.
    pub(super) fn end_list(
        &mut self,
        number: EntryId,
        listed: Result<Vec<ListedTool>, String>,
        handle: &mut RequestHandler<'_>,
    ) {
        let Some(list) = self.tool_servers.lists.iter_mut().find(|list| list.number == number) else {
            return;
        };
        let problem = match listed {
            Ok(tools) => {
                list.tools = tools.into_iter().filter(|tool| list.declared.allows(tool)).collect();
                None
            }
            Err(problem) => Some(problem),
        };
        let id = self.events.item_id(number);
        let json = list_json(&id, &list.declared.server.label, &list.tools, problem.as_deref());
        self.items.replace(Item::added(id.clone(), number, json.to_string()));
        self.reply_item_done(number);
        match problem {
            None => self.reply(RealtimeEvent::ToolListCompleted, json!({ "item_id": id })),
            Some(problem) => {
                let error = json!({ "message": problem });
                self.reply(RealtimeEvent::ToolListFailed, json!({ "item_id": id, "error": error }));
            }
        }
        self.name_server_tools();
        handle(ClientRequest::Adjust(vec![Setting::Tools(self.session.offer())]));
    }

    /// Answers with a complete item.
    fn reply_item_done(&mut self, number: EntryId) {
        let mut messages = Vec::new();
        self.send_item_done(number, &mut |message| messages.push(message));
        self.add_replies(messages);
    }
}
