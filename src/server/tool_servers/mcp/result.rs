//! The result of a call as the model gets it.

use rmcp::model::CallToolResult;

use crate::{
    tool_result::{pictures, to_output},
    vocabulary::{CallFailure, ServerCallResult},
};

/// Text and pictures of a result.
///
/// # Errors
/// The result cannot be read.
pub(super) fn to_result(result: &CallToolResult) -> Result<ServerCallResult, String> {
    let value = serde_json::to_value(result).map_err(|error| error.to_string())?;
    let has_content = value["content"].as_array().is_some_and(|content| !content.is_empty());
    let structured = Some(&value["structuredContent"]).filter(|value| !has_content && !value.is_null());
    let output = match structured {
        Some(structured) => structured.to_string(),
        None => to_output(&serde_json::json!({ "result": value })),
    };
    let failure = (value["isError"] == true).then_some(CallFailure::Tool);
    Ok(ServerCallResult { output, pictures: pictures(&value), failure })
}
