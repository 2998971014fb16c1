//! Calls on the client's tool servers: they wait for the client's approval where it wants that, run, and end with a result.

use std::time::Duration;

use serde_json::{json, value::RawValue};

use super::{
    ServerTool,
    items::{ServerCallItem, approval_json},
};
use crate::{
    client::{
        ToolOrder,
        json_text::{Fields, read_str},
        mapped::RequestHandler,
        realtime::{
            Realtime,
            events::EventLabels,
            fields::{missing, read_text, wrong_value},
            items::Item,
        },
    },
    error::Error,
    spelling::client::RealtimeEvent,
    vocabulary::{
        CallFailure, ClientRequest, Entry, EntryId, EntryPart, EntryPlace, Message, Role, ServerCall,
        ServerCallResult, ToolCall, ToolResult,
    },
};

/// Longest time of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Most calls that wait or run. Beyond it, the oldest that wait for approval are forgotten.
const CALLS_MAX: usize = 64;
/// Field with the id of the request that a decision answers.
const REQUEST: &str = "item.approval_request_id";
/// Longest reason of a decision, bytes.
const REASON_MAX_BYTES: usize = 1024;

/// A call of a response.
#[derive(Debug, Clone, Copy)]
pub(in crate::client::realtime) struct MadeCall<'r> {
    /// Its item and entry.
    pub(in crate::client::realtime) number: EntryId,
    pub(in crate::client::realtime) item_id: &'r str,
    pub(in crate::client::realtime) call: &'r ToolCall,
    pub(in crate::client::realtime) tool: &'r ServerTool,
    /// The response that made it, and the place there.
    pub(in crate::client::realtime) response_id: &'r str,
    pub(in crate::client::realtime) output_index: usize,
    /// The call is part of the conversation.
    pub(in crate::client::realtime) is_remembered: bool,
}

/// A call whose result has not come.
#[derive(Debug)]
pub(super) struct RemoteCall {
    /// Its item and entry.
    number: EntryId,
    item_id: String,
    call: ToolCall,
    tool: ServerTool,
    /// The response that made it, and the place there.
    response_id: String,
    output_index: usize,
    /// The call is part of the conversation.
    is_remembered: bool,
    /// Item of the request for approval.
    approval_id: Option<String>,
    state: CallState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    AwaitsApproval,
    /// Begins when its response is over.
    Ready,
    Running,
}

/// The client's decision on a call.
#[derive(Debug)]
pub(in crate::client::realtime) struct Decision {
    approval_id: String,
    is_approved: bool,
    reason: String,
}

impl RemoteCall {
    /// Memory of the call, bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.call.bytes() + self.tool.offered.parameters.len()
    }

    /// True if the tool is in this list.
    pub(super) fn is_of(&self, list: EntryId) -> bool {
        self.tool.list == list
    }

    fn json(&self, result: Option<&ServerCallResult>) -> String {
        let (approval_id, arguments) = (self.approval_id.as_deref(), self.call.arguments.as_str());
        ServerCallItem { id: &self.item_id, tool: &self.tool, arguments, approval_id, result }
            .json()
            .to_string()
    }
}

impl<L: EventLabels> Realtime<L> {
    /// Sends a call of a response, and asks for approval where that is needed.
    pub(in crate::client::realtime) fn send_server_call(
        &mut self,
        made: &MadeCall<'_>,
        send: &mut dyn FnMut(Message),
    ) {
        let tool = made.tool;
        let state = if tool.needs_approval { CallState::AwaitsApproval } else { CallState::Ready };
        let mut call = RemoteCall {
            number: made.number,
            item_id: made.item_id.to_owned(),
            call: made.call.clone(),
            tool: tool.clone(),
            response_id: made.response_id.to_owned(),
            output_index: made.output_index,
            is_remembered: made.is_remembered,
            approval_id: None,
            state,
        };
        let place = json!({ "response_id": call.response_id, "output_index": call.output_index });
        let empty = ServerCallItem::new(&call.item_id, tool, "").json().to_string();
        self.send_with(RealtimeEvent::OutputItemAdded, place.clone(), "item", &empty, send);
        let previous = self.items.last_id();
        self.items.add(Item::added(call.item_id.clone(), call.number, call.json(None)));
        let fields = json!({ "previous_item_id": previous });
        self.send_with(RealtimeEvent::ItemAdded, fields, "item", &empty, send);
        let arguments = call.call.arguments.as_str();
        let [mut delta, mut done] = [place.clone(), place];
        (delta["item_id"], delta["delta"]) = (call.item_id.as_str().into(), arguments.into());
        // One client's schema demands the padding that hides the length of deltas.
        delta["obfuscation"] = "".into();
        (done["item_id"], done["arguments"]) = (call.item_id.as_str().into(), arguments.into());
        self.send(RealtimeEvent::ServerCallArgumentsDelta, delta, send);
        self.send(RealtimeEvent::ServerCallArgumentsDone, done, send);
        if state == CallState::AwaitsApproval {
            call.approval_id = Some(self.ask_for_approval(&call, send));
        }
        let calls = &mut self.tool_servers.calls;
        if calls.len() >= CALLS_MAX
            && let Some(oldest) = calls.iter().position(|call| call.state == CallState::AwaitsApproval)
        {
            calls.remove(oldest);
        }
        calls.push(call);
    }

    /// Asks the client for its approval of a call. Gives the id of the item that asks.
    fn ask_for_approval(&mut self, call: &RemoteCall, send: &mut dyn FnMut(Message)) -> String {
        let number = self.items.allocate();
        let id = self.events.item_id(number);
        let json = approval_json(&id, &call.tool, &call.call.arguments).to_string();
        self.items.add(Item::added(id.clone(), number, json.clone()));
        let fields = json!({ "previous_item_id": call.item_id });
        self.send_with(RealtimeEvent::ItemAdded, fields, "item", &json, send);
        self.send_item_done(number, send);
        id
    }

    /// Begins the calls that need no approval. Their response is over.
    pub(in crate::client::realtime) fn start_ready_calls(&mut self, send: &mut dyn FnMut(Message)) {
        let is_ready = |call: &RemoteCall| call.state == CallState::Ready;
        while let Some(at) = self.tool_servers.calls.iter().position(is_ready) {
            self.start_call(at, send);
        }
    }

    fn start_call(&mut self, at: usize, send: &mut dyn FnMut(Message)) {
        let call = &mut self.tool_servers.calls[at];
        call.state = CallState::Running;
        self.notes.tool_orders.push(ToolOrder::Call(Box::new(ServerCall {
            id: call.number,
            list: Some(call.tool.list),
            server: call.tool.label.clone(),
            tool: call.tool.name.clone(),
            arguments: call.call.arguments.clone(),
            timeout: CALL_TIMEOUT,
        })));
        let fields = json!({ "item_id": call.item_id, "output_index": call.output_index });
        self.send(RealtimeEvent::ServerCallStarted, fields, send);
    }

    /// Reads the client's decision on a call, if the item that it adds is one.
    ///
    /// # Errors
    /// The item answers no request for approval.
    pub(in crate::client::realtime) fn read_decision(
        &self,
        fields: &Fields<'_>,
    ) -> Result<Option<Decision>, Error> {
        if fields.given("type").and_then(read_str).as_deref() != Some("mcp_approval_response") {
            return Ok(None);
        }
        let id = fields.given("approval_request_id").ok_or_else(|| missing(REQUEST))?;
        let approval_id = read_text(id, REQUEST, REASON_MAX_BYTES)?;
        let awaits = |call: &RemoteCall| {
            call.state == CallState::AwaitsApproval && call.approval_id.as_ref() == Some(&approval_id)
        };
        if !self.tool_servers.calls.iter().any(awaits) {
            return Err(wrong_value(REQUEST, "the id of a request for approval that is not answered yet"));
        }
        let is_approved = match fields.get("approve").map(RawValue::get) {
            Some("true") => true,
            Some("false") => false,
            None => return Err(missing("item.approve")),
            Some(_) => return Err(wrong_value("item.approve", "a boolean")),
        };
        let reason = fields.given("reason").map(|text| read_text(text, "item.reason", REASON_MAX_BYTES));
        Ok(Some(Decision { approval_id, is_approved, reason: reason.transpose()?.unwrap_or_default() }))
    }

    /// Begins a call that the client approves, or ends one that it does not.
    pub(in crate::client::realtime) fn follow_decision(
        &mut self,
        decision: Decision,
        handle: &mut RequestHandler<'_>,
    ) {
        let is_meant = |call: &RemoteCall| call.approval_id.as_ref() == Some(&decision.approval_id);
        let Some(at) = self.tool_servers.calls.iter().position(is_meant) else { return };
        if decision.is_approved {
            let mut messages = Vec::new();
            self.start_call(at, &mut |message| messages.push(message));
            return self.add_replies(messages);
        }
        let mut problem = "the user has not approved this call".to_owned();
        if !decision.reason.trim().is_empty() {
            problem = format!("{problem}: {}", decision.reason.trim());
        }
        let call = self.tool_servers.calls.remove(at);
        let result =
            ServerCallResult { failure: Some(CallFailure::Tool), ..ServerCallResult::failed(&problem) };
        self.complete_call(&call, result, handle);
    }

    /// Takes the end of a call. Gives the result of a call back that is none of these.
    pub(in crate::client::realtime) fn end_call(
        &mut self,
        number: EntryId,
        result: ServerCallResult,
        handle: &mut RequestHandler<'_>,
    ) -> Option<ServerCallResult> {
        let is_meant = |call: &RemoteCall| call.number == number && call.state == CallState::Running;
        let Some(at) = self.tool_servers.calls.iter().position(is_meant) else { return Some(result) };
        let call = self.tool_servers.calls.remove(at);
        self.complete_call(&call, result, handle);
        None
    }

    /// Reports the end of a call, and adds its result to the conversation.
    fn complete_call(
        &mut self,
        call: &RemoteCall,
        result: ServerCallResult,
        handle: &mut RequestHandler<'_>,
    ) {
        let json = call.json(Some(&result));
        self.items.replace(Item::added(call.item_id.clone(), call.number, json.clone()));
        let event = match result.failure {
            None => RealtimeEvent::ServerCallCompleted,
            Some(_) => RealtimeEvent::ServerCallFailed,
        };
        self.reply(event, json!({ "item_id": call.item_id, "output_index": call.output_index }));
        let place = json!({ "response_id": call.response_id, "output_index": call.output_index });
        self.reply_item(RealtimeEvent::OutputItemDone, place, &json);
        if call.is_remembered {
            let output = ToolResult { call_id: call.call.call_id.clone(), output: result.output };
            let mut parts = vec![EntryPart::Result(output)];
            parts.extend(result.pictures.into_iter().map(EntryPart::Picture));
            let entry = Entry { id: self.items.allocate(), role: Role::User, parts };
            handle(ClientRequest::AddEntry(Box::new(entry), EntryPlace::After(call.number)));
        }
        // Clients ask for the next response now.
        self.reply_item_done(call.number);
        self.leave_unused_servers();
    }
}
