//! Reads tools and the choice among them, of `session.update` and `response.create`.

use serde_json::value::RawValue;

use super::fields::{read_array, read_object, read_small, read_text, wrong_type, wrong_value};
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

/// Changes an offer by one of [`TOOL_FIELDS`]. Tools of a kind that voxbridge does not know are left out: these are returned.
pub(super) fn update_offer(
    offer: &mut ToolOffer,
    key: &str,
    value: &RawValue,
    path: &str,
) -> Result<Vec<String>, Error> {
    let mut left_out = Vec::new();
    match key {
        "tools" if value.get() == "null" => offer.tools = [].into(),
        "tools" => offer.tools = read_tools(value, path, &mut left_out)?.into(),
        "tool_choice" => offer.choice = read_choice(value, path)?,
        _ => {
            offer.is_parallel = match read_small(value, path)? {
                serde_json::Value::Bool(is_parallel) => is_parallel,
                serde_json::Value::Null => true,
                other => return Err(wrong_type(path, "a boolean", &other)),
            };
        }
    }
    Ok(left_out)
}

/// Rejects the choice of a tool that is not offered, if this message gives it. A choice from before ends with its tool; returns
/// true if it did.
pub(super) fn settle_choice(offer: &mut ToolOffer, is_given: bool, path: &str) -> Result<bool, Error> {
    match &offer.choice {
        ToolChoice::Named(name) if offer.find(name).is_none() && is_given => {
            Err(wrong_value(path, "the name of one of the tools"))
        }
        ToolChoice::Named(name) if offer.find(name).is_none() => {
            offer.choice = ToolChoice::Auto;
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn read_tools(value: &RawValue, path: &str, left_out: &mut Vec<String>) -> Result<Vec<Tool>, Error> {
    if value.get().len() > TOOLS_MAX_BYTES {
        return Err(wrong_value(path, &format!("at most {TOOLS_MAX_BYTES} bytes of tools")));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for (at, tool) in read_array(value, path, TOOLS_MAX)?.into_iter().enumerate() {
        let path = format!("{path}[{at}]");
        let fields = read_object(tool, &path)?;
        let kind = fields.given("type").and_then(read_str);
        if let Some(kind) = kind.filter(|kind| kind != "function") {
            left_out.push(super::fields::shortened(&kind));
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

fn read_choice(value: &RawValue, path: &str) -> Result<ToolChoice, Error> {
    let choice = read_small(value, path)?;
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
