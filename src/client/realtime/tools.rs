//! Reads tools and the choice among them, of `session.update` and `response.create`.

use serde_json::value::RawValue;

use super::{
    fields::{read_array, read_object, read_small, read_text, wrong_type, wrong_value},
    tool_servers::{DeclaredServer, MCP, SERVERS_MAX, ServerTool, chosen_of_server, read_server},
};
use crate::{
    client::{
        json_text::{JsonKind as _, read_str},
        mapped::tools::{NO_PARAMETERS, TOOL_NAME_MAX_BYTES, TOOLS_MAX, TOOLS_MAX_BYTES, is_tool_name},
    },
    error::Error,
    vocabulary::{Tool, ToolChoice, ToolOffer},
};

/// Fields that concern tools.
pub(super) const TOOL_FIELDS: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

/// Items of a list of tools that are no functions.
#[derive(Debug, Default)]
pub(super) struct ReadTools {
    /// Kinds of tools that voxbridge does not know.
    pub(super) left_out: Vec<String>,
    /// Tool servers that the client names.
    pub(super) servers: Vec<DeclaredServer>,
}

/// Changes an offer by one of [`TOOL_FIELDS`]. The choice may be one of these tools of servers.
pub(super) fn update_offer(
    offer: &mut ToolOffer,
    key: &str,
    value: &RawValue,
    path: &str,
    server_tools: &[ServerTool],
) -> Result<ReadTools, Error> {
    let mut read = ReadTools::default();
    match key {
        "tools" if value.get() == "null" => offer.tools = [].into(),
        "tools" => offer.tools = read_tools(value, path, &mut read)?.into(),
        "tool_choice" => offer.choice = read_choice(value, path, server_tools)?,
        _ => {
            offer.is_parallel = match read_small(value, path)? {
                serde_json::Value::Bool(is_parallel) => is_parallel,
                serde_json::Value::Null => true,
                other => return Err(wrong_type(path, "a boolean", &other)),
            };
        }
    }
    Ok(read)
}

/// Rejects the choice of a tool that is not offered, if this message gives it. A choice from before ends with its tool; returns
/// true if it did.
pub(super) fn settle_choice(
    offer: &mut ToolOffer,
    is_of_server: impl Fn(&str) -> bool,
    is_given: bool,
    path: &str,
) -> Result<bool, Error> {
    let is_offered = |name: &str| offer.find(name).is_some() || is_of_server(name);
    match &offer.choice {
        ToolChoice::Named(name) if !is_offered(name) && is_given => {
            Err(wrong_value(path, "the name of one of the tools"))
        }
        ToolChoice::Named(name) if !is_offered(name) => {
            offer.choice = ToolChoice::Auto;
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn read_tools(value: &RawValue, path: &str, read: &mut ReadTools) -> Result<Vec<Tool>, Error> {
    if value.get().len() > TOOLS_MAX_BYTES {
        return Err(wrong_value(path, &format!("at most {TOOLS_MAX_BYTES} bytes of tools")));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for (at, tool) in read_array(value, path, TOOLS_MAX)?.into_iter().enumerate() {
        let path = format!("{path}[{at}]");
        let fields = read_object(tool, &path)?;
        let kind = fields.given("type").and_then(read_str);
        if kind.as_deref() == Some(MCP) {
            let server = read_server(&fields, &path)?;
            if read.servers.iter().any(|known| known.server.label == server.server.label) {
                let path = format!("{path}.server_label");
                return Err(wrong_value(&path, "a label that no other server has"));
            }
            if read.servers.len() == SERVERS_MAX {
                return Err(wrong_value(&path, &format!("at most {SERVERS_MAX} servers")));
            }
            read.servers.push(server);
            continue;
        }
        if let Some(kind) = kind.filter(|kind| kind != "function") {
            read.left_out.push(super::fields::shortened(&kind));
            continue;
        }
        let name_path = format!("{path}.name");
        let name = fields.get("name").ok_or_else(|| super::fields::missing(&name_path))?;
        let name = read_text(name, &name_path, TOOL_NAME_MAX_BYTES)?;
        if !is_tool_name(&name) {
            return Err(wrong_value(&name_path, "letters, digits, '_', '-' and '.'"));
        }
        if tools.iter().any(|known| known.name == name) {
            return Err(wrong_value(&name_path, "a name that no other tool has"));
        }
        let description = fields.given("description");
        let description =
            description.map(|text| read_text(text, &format!("{path}.description"), TOOLS_MAX_BYTES));
        let parameters = match fields.given("parameters") {
            None => NO_PARAMETERS,
            Some(schema) if schema.kind() == "an object" => schema.get(),
            Some(other) => return Err(wrong_type(&format!("{path}.parameters"), "an object", other)),
        };
        tools.push(Tool { name, description: description.transpose()?, parameters: parameters.into() });
    }
    Ok(tools)
}

fn read_choice(value: &RawValue, path: &str, server_tools: &[ServerTool]) -> Result<ToolChoice, Error> {
    let choice = read_small(value, path)?;
    if choice["type"] == MCP {
        return chosen_of_server(&choice, server_tools)
            .ok_or_else(|| wrong_value(path, "a tool that the server with this label has listed"));
    }
    let named = choice["name"].as_str().filter(|_| choice["type"] == "function");
    match (choice.as_str(), named) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (None, Some(name)) => Ok(ToolChoice::Named(name.to_owned())),
        _ if choice.is_null() => Ok(ToolChoice::Auto),
        _ => Err(wrong_value(path, "'auto', 'none', 'required' or a function with its name")),
    }
}
