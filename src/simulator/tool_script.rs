//! Simulated use of tools, in Qwen3's format: the model calls a tool that the user's words name, and says what it returned.

use serde_json::{Map, Value, json};

/// Tags around the tools in a system prompt.
const TOOLS: [&str; 2] = ["<tools>\n", "\n</tools>"];
/// Tags around a call in an answer.
const CALL: [&str; 2] = ["<tool_call>", "</tool_call>"];
/// Tags around a result in a user's message.
const RESULT: [&str; 2] = ["<tool_response>", "</tool_response>"];

/// The answer of a model with tools: a result in words, or a call; `None` if it does not concern tools.
pub(super) fn simulated_answer(system_text: &str, user_text: &str) -> Option<String> {
    let has_question = !user_text.trim_end().ends_with(RESULT[1]);
    if let Some(result) = between(user_text, RESULT).filter(|_| !has_question) {
        return Some(format!("The tool says {}.", result.trim().trim_matches(['"', '.'])));
    }
    // The prompt explains the tags before it has them on lines of their own.
    let lines = between(system_text, TOOLS)?;
    let tools = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tool = tools.map(|tool| tool["function"].clone()).find(|tool| names(user_text, tool))?;
    let call = json!({"name": tool["name"], "arguments": arguments(&tool["parameters"], user_text)});
    Some(format!("{}\n{call}\n{}", CALL[0], CALL[1]))
}

/// A call of a function.
pub(super) struct FunctionCall {
    pub(super) name: String,
    /// JSON.
    pub(super) arguments: String,
}

/// The call in an answer.
pub(super) fn read_call(answer: &str) -> Option<FunctionCall> {
    let call: Value = serde_json::from_str(between(answer, CALL)?).ok()?;
    Some(FunctionCall { name: call["name"].as_str()?.to_owned(), arguments: call["arguments"].to_string() })
}

fn between<'t>(text: &'t str, [begin, end]: [&str; 2]) -> Option<&'t str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

/// True if the text has the last word of the tool's name.
fn names(text: &str, tool: &Value) -> bool {
    let name = tool["name"].as_str().unwrap_or_default();
    let noun = name.rsplit(['_', '-', '.']).next().unwrap_or(name).to_lowercase();
    !noun.is_empty() && text.to_lowercase().contains(&noun)
}

/// Arguments that fit the schema: the last word of the text, its first number, or the first value of an enum.
fn arguments(schema: &Value, text: &str) -> Map<String, Value> {
    let word = text
        .split_whitespace()
        .last()
        .unwrap_or_default()
        .trim_matches(|letter: char| !letter.is_alphanumeric());
    let number =
        text.split(|letter: char| !letter.is_ascii_digit()).find_map(|digits| digits.parse::<u32>().ok());
    let value = |property: &Value| match property["type"].as_str() {
        _ if property["enum"].is_array() => property["enum"][0].clone(),
        Some("number" | "integer") => number.unwrap_or(1).into(),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => word.into(),
    };
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.map(|key| (key.to_owned(), value(&schema["properties"][key]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_tool_is_called_and_its_result_is_said() {
        let tool = json!({"type": "function", "function": {"name": "get_weather", "parameters": {
            "required": ["city", "days", "unit"], "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["C", "F"]}}}}});
        let system = format!("Use <tools></tools>.\n<tools>\n{tool}\n</tools>");
        let call = simulated_answer(&system, "What will the weather be for 3 days in Rome?").unwrap();
        let json = between(&call, ["<tool_call>", "</tool_call>"]).unwrap();
        let expected = json!({"name": "get_weather", "arguments": {"city": "Rome", "days": 3, "unit": "C"}});
        assert_eq!(serde_json::from_str::<Value>(json).unwrap(), expected);
        assert_eq!(simulated_answer(&system, "Hello."), None);
        let result = "<tool_response>\nsunny.\n</tool_response>";
        assert_eq!(simulated_answer(&system, result).as_deref(), Some("The tool says sunny."));
    }
}
