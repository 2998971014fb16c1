//! The result of a call as the model gets it.

use rmcp::model::CallToolResult;
use serde_json::Value;

use crate::{
    client::{decode_picture, tool_output},
    vocabulary::ServerCallResult,
};

/// Most pictures of a result.
const PICTURES_MAX: usize = 4;
/// Largest picture, bytes in base64.
const PICTURE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Text and pictures of a result.
///
/// # Errors
/// The result cannot be read.
pub(super) fn to_result(result: &CallToolResult) -> Result<ServerCallResult, String> {
    let value = serde_json::to_value(result).map_err(|error| error.to_string())?;
    let content = value["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let pictures = content.iter().filter_map(picture).take(PICTURES_MAX).collect();
    let structured = Some(&value["structuredContent"]).filter(|value| content.is_empty() && !value.is_null());
    let output = match structured {
        Some(structured) => structured.to_string(),
        None => tool_output(&serde_json::json!({ "result": value })),
    };
    Ok(ServerCallResult { output, pictures })
}

/// A picture that the model can take: a JPEG or PNG file.
fn picture(part: &Value) -> Option<bytes::Bytes> {
    let is_picture = part["type"] == "image";
    let data = part["data"].as_str().filter(|data| is_picture && data.len() <= PICTURE_MAX_BYTES)?;
    decode_picture(data).ok().map(|picture| picture.0)
}
