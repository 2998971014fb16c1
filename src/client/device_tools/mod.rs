//! Tools of the device that is the client: it is a server of the Model Context Protocol, whose JSON-RPC messages are the
//! `payload` of its messages `mcp`, both ways.
//!
//! Sources: docs/mcp-protocol.md and main/mcp_server.cc of xiaozhi-esp32; mcp.py of the package xiaozhi-sdk 0.5.1
//! (mappings/notes/clients.md#xiaozhi). To change here: how a device's tools are listed and called. Not here: the functions of
//! clients that describe them in a message ([`super::mapped`]).
//!
//! - Devices answer only requests with a number as their id.
//! - The tools come in pages. The model gets them when the last page is there, at most [`TOOLS_MAX`].
//! - A tool that the model could not write is left out; the others are offered.
//! - A result of a call that is no longer awaited is dropped: the user has spoken again.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Abilities,
    mapped::{
        ClientCodec, CommandMessage, MappedCodec, RequestHandler, TurnSink,
        tools::{TOOLS_MAX, TOOLS_MAX_BYTES, to_offer},
    },
};
use crate::{
    error::{Error, ErrorKind},
    spelling::{ClientMapping, client::MCP_COMMAND, field::ListItem},
    tool_result::to_output,
    vocabulary::{ClientEvent, ClientRequest, Message, ToolCall, ToolResult},
};

/// Version of the protocol that devices speak.
const PROTOCOL_VERSION: &str = "2024-11-05";
/// Most pages of tools. Firmware has 8 kB a page.
const PAGES_MAX: usize = 32;
/// Most calls whose results are awaited.
const CALLS_MAX: usize = 64;

/// Codec of one connection whose client may have tools.
#[derive(Debug)]
pub(super) struct DeviceTools {
    mapping: Arc<ClientMapping>,
    session_id: String,
    /// The profile calls tools.
    calls_tools: bool,
    /// Id of the last request to the device.
    last_id: u64,
    awaited: Vec<(u64, Awaited)>,
    /// Tools of the pages so far.
    tools: Vec<ListItem>,
    pages: usize,
}

/// Kind of the answer to a request to the device.
#[derive(Debug)]
enum Awaited {
    Initialized,
    Tools,
    /// The result of the model's call with this id.
    Call(String),
}

impl DeviceTools {
    pub(super) const fn new(mapping: Arc<ClientMapping>) -> Self {
        Self {
            mapping,
            session_id: String::new(),
            calls_tools: true,
            last_id: 0,
            awaited: Vec::new(),
            tools: Vec::new(),
            pages: 0,
        }
    }

    /// Writes a request, and notes the kind of its answer.
    fn request(&mut self, method: &str, params: &Value, awaited: Awaited) -> Message {
        self.last_id += 1;
        self.awaited.truncate(CALLS_MAX);
        self.awaited.insert(0, (self.last_id, awaited));
        self.message(&json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }))
    }

    fn message(&self, payload: &Value) -> Message {
        let message = json!({ "type": MCP_COMMAND, "session_id": self.session_id, "payload": payload });
        Message::Text(message.to_string())
    }

    /// The first request. Devices read where pictures are described; there is no such place here.
    fn initialize(&mut self) -> Message {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION, "capabilities": { "vision": { "url": "", "token": "" } },
            "clientInfo": { "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") },
        });
        self.request("initialize", &params, Awaited::Initialized)
    }

    fn list_tools(&mut self, cursor: &str) -> Message {
        self.request("tools/list", &json!({ "cursor": cursor }), Awaited::Tools)
    }

    fn call(&mut self, call: &ToolCall) -> Message {
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let params: Value = json!({ "name": call.name, "arguments": arguments });
        self.request("tools/call", &params, Awaited::Call(call.call_id.clone()))
    }

    /// Handles the device's answer to a request.
    fn handle_answer(
        &mut self,
        mapped: &mut MappedCodec,
        answer: &Value,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        let id = answer["id"].as_u64();
        let Some(at) = self.awaited.iter().position(|(known, _)| Some(*known) == id) else { return Ok(()) };
        match self.awaited.remove(at).1 {
            Awaited::Initialized if answer["result"].is_object() => {
                let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
                let replies = [self.message(&initialized), self.list_tools("")];
                mapped.notes.replies.extend(replies);
            }
            Awaited::Tools => self.take_page(mapped, &answer["result"], handle)?,
            Awaited::Call(call_id) => {
                let output = to_output(answer);
                mapped.pass_awaited_result(ToolResult { call_id, output }, handle);
            }
            Awaited::Initialized => {}
        }
        Ok(())
    }

    /// Takes a page of tools. Asks for the next one, or offers the tools to the model.
    fn take_page(
        &mut self,
        mapped: &mut MappedCodec,
        page: &Value,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        self.pages += 1;
        for item in page["tools"].as_array().into_iter().flatten().filter_map(to_item) {
            let is_new = self.tools.iter().all(|known| known.name != item.name);
            if is_new && self.tools.len() < TOOLS_MAX && to_offer(std::slice::from_ref(&item)).is_ok() {
                self.tools.push(item);
            }
        }
        match page["nextCursor"].as_str().filter(|cursor| !cursor.is_empty() && self.pages < PAGES_MAX) {
            Some(cursor) => {
                let next = self.list_tools(cursor);
                mapped.notes.replies.push(next);
            }
            None => {
                let tools = self.take_tools();
                if !tools.is_empty() {
                    handle(ClientRequest::Adjust(vec![to_offer(&tools)?]));
                }
            }
        }
        Ok(())
    }

    /// The tools of all pages, as many as the model takes.
    fn take_tools(&mut self) -> Vec<ListItem> {
        let mut tools = std::mem::take(&mut self.tools);
        while to_offer(&tools).is_err() && tools.pop().is_some() {}
        tools
    }
}

impl ClientCodec for DeviceTools {
    fn decode_command(
        &mut self,
        mapped: &mut MappedCodec,
        message: &CommandMessage<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        mapped.pass_command(message, handle)?;
        if message.command.name != MCP_COMMAND {
            return Ok(());
        }
        let malformed = |error: serde_json::Error| Error::new(ErrorKind::MalformedJson, error.to_string());
        let answer: Value = serde_json::from_str(message.text).map_err(malformed)?;
        self.handle_answer(mapped, &answer["payload"], handle)
    }

    fn encode(&mut self, mapped: &mut MappedCodec, event: &ClientEvent, at_s: f64, send: &mut TurnSink<'_>) {
        let turn = event.turn();
        mapped.events.encode(event, at_s, &mut |message| send(message, turn));
        match event {
            ClientEvent::Configured { .. } if self.calls_tools && self.last_id == 0 => {
                let has_tools = self.mapping.device_tools.is_some_and(|at| mapped.is_set(at));
                if has_tools {
                    send(self.initialize(), None);
                }
            }
            ClientEvent::ToolCalled { segment_id, call, .. } => {
                mapped.note_call(*segment_id, call);
                send(self.call(call), None);
            }
            _ => {}
        }
    }

    fn set_abilities(&mut self, abilities: Abilities) {
        self.calls_tools = abilities.calls_tools;
    }

    fn begin_session(&mut self, session_id: &str, _model: &str, _seed: u64) {
        session_id.clone_into(&mut self.session_id);
    }

    fn kept_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.tools
            .iter()
            .map(|tool| text(&tool.description) + text(&tool.parameters))
            .sum::<usize>()
            .min(TOOLS_MAX_BYTES)
    }

    fn forget(&mut self) {
        self.awaited.clear();
        self.tools.clear();
    }
}

/// A tool of a page; `None` without a name.
fn to_item(tool: &Value) -> Option<ListItem> {
    let schema = Some(&tool["inputSchema"]).filter(|schema| schema.is_object());
    Some(ListItem {
        name: Some(tool["name"].as_str()?.to_owned()),
        description: tool["description"].as_str().map(str::to_owned),
        parameters: schema.map(Value::to_string),
        ..ListItem::default()
    })
}
