//! Items of tool servers: lists of tools, calls, and requests for approval.

use serde_json::{Value, json};

use super::ServerTool;
use crate::vocabulary::{CallFailure, ListedTool, ServerCallResult};

/// Code of JSON-RPC for an error without one of its own.
const INTERNAL_ERROR: i32 = -32603;

/// The item of a list of tools. A problem is said in a field of its own, which OpenAI has in lists of its other API.
pub(super) fn list_json(id: &str, label: &str, tools: &[ListedTool], problem: Option<&str>) -> Value {
    // One client fails without a description.
    let tool = |listed: &ListedTool| {
        json!({
            "name": listed.tool.name, "description": listed.tool.description.as_deref().unwrap_or_default(),
            "input_schema": parsed(&listed.tool.parameters),
            "annotations": listed.annotations.as_deref().map(parsed),
        })
    };
    let mut item = json!({
        "id": id, "object": "realtime.item", "type": "mcp_list_tools", "server_label": label,
        "tools": tools.iter().map(tool).collect::<Vec<_>>(),
    });
    if let Some(problem) = problem {
        item["error"] = problem.into();
    }
    item
}

/// The value of a text that was made of one.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// The item of a request for approval.
pub(super) fn approval_json(id: &str, tool: &ServerTool, arguments: &str) -> Value {
    json!({
        "id": id, "object": "realtime.item", "type": "mcp_approval_request", "server_label": tool.label,
        "name": tool.name, "arguments": arguments,
    })
}

/// The item of a call.
#[derive(Debug)]
pub(in crate::client::realtime) struct ServerCallItem<'c> {
    pub(super) id: &'c str,
    pub(super) tool: &'c ServerTool,
    pub(super) arguments: &'c str,
    pub(super) approval_id: Option<&'c str>,
    pub(super) result: Option<&'c ServerCallResult>,
}

impl<'c> ServerCallItem<'c> {
    /// A call without a result, and without a request for approval.
    pub(in crate::client::realtime) const fn new(
        id: &'c str,
        tool: &'c ServerTool,
        arguments: &'c str,
    ) -> Self {
        Self { id, tool, arguments, approval_id: None, result: None }
    }

    /// The item as JSON. Clients expect the key `output` before there is a result.
    pub(in crate::client::realtime) fn json(&self) -> Value {
        let output = self.result.filter(|result| result.failure.is_none()).map(|result| &result.output);
        json!({
            "id": self.id, "object": "realtime.item", "type": "mcp_call", "server_label": self.tool.label,
            "name": self.tool.name, "arguments": self.arguments, "approval_request_id": self.approval_id,
            "output": output, "error": self.result.and_then(error_json),
        })
    }
}

/// The error of a result; `None` for a good one.
fn error_json(result: &ServerCallResult) -> Option<Value> {
    let message = result.error_words();
    Some(match result.failure? {
        CallFailure::Tool => json!({ "type": "tool_execution_error", "message": message }),
        CallFailure::Call => json!({ "type": "protocol_error", "code": INTERNAL_ERROR, "message": message }),
    })
}
