//! Tools of protocols that mapping files describe: the client's offer, calls whose results are awaited, and the results.
//!
//! The bounds here also hold for protocols of OpenAI's kind.

use serde_json::Value;

use crate::{
    error::{Error, ErrorKind},
    spelling::field::{FieldRole, FieldValue, ListItem},
    vocabulary::{Setting, Tool, ToolCall, ToolChoice, ToolOffer, ToolResult},
};

/// Most tools (OpenAI's bound).
pub(in crate::client) const TOOLS_MAX: usize = 128;
/// All tools together, bytes: more than the model's context.
pub(in crate::client) const TOOLS_MAX_BYTES: usize = 64 * 1024;
/// Longest name of a tool, bytes (OpenAI's bound).
pub(in crate::client) const TOOL_NAME_MAX_BYTES: usize = 64;
/// Schema of a tool without arguments.
pub(in crate::client) const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;
/// Longest id of a call in an error, characters.
const SHOWN_ID_MAX_CHARS: usize = 64;
/// Types of JSON Schema. Google's APIs spell them in capitals.
const SCHEMA_TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// True for a name that the model can write without mistakes.
pub(in crate::client) fn is_tool_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"_-.".contains(&letter))
}

/// Calls whose results have not come.
#[derive(Debug, Default)]
pub(super) struct AwaitedCalls {
    /// The answer that made them.
    segment_id: Option<u32>,
    ids: Vec<String>,
}

/// The tools of a list, as the offer that replaces the one before.
pub(in crate::client) fn to_offer(items: &[ListItem]) -> Result<Setting, Error> {
    let invalid = |detail: String| Error::new(ErrorKind::Invalid, format!("tools: {detail}"));
    if items.len() > TOOLS_MAX {
        return Err(invalid(format!("{} tools (max {TOOLS_MAX})", items.len())));
    }
    // Schemas are read below, so that their size is checked first.
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let bytes: usize = items.iter().map(|item| length(&item.description) + length(&item.parameters)).sum();
    if bytes > TOOLS_MAX_BYTES {
        return Err(invalid(format!("{bytes} bytes of tools (max {TOOLS_MAX_BYTES})")));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for item in items {
        let name = item.name.clone().unwrap_or_default();
        if !is_tool_name(&name) || name.len() > TOOL_NAME_MAX_BYTES {
            let shown: String = name.chars().take(SHOWN_ID_MAX_CHARS).collect();
            return Err(invalid(format!(
                "name '{shown}': a name has letters, digits, '_', '-' and '.', at most {TOOL_NAME_MAX_BYTES} of them"
            )));
        }
        if tools.iter().any(|known| known.name == name) {
            return Err(invalid(format!("two have the name '{name}'")));
        }
        let parameters = item.parameters.as_deref().unwrap_or(NO_PARAMETERS);
        tools.push(Tool {
            name,
            description: item.description.clone(),
            parameters: to_json_schema(parameters).into(),
        });
    }
    let offer = ToolOffer { tools: tools.into(), choice: ToolChoice::Auto, is_parallel: true };
    match offer.bytes() {
        bytes if bytes > TOOLS_MAX_BYTES => {
            Err(invalid(format!("{bytes} bytes of tools (max {TOOLS_MAX_BYTES})")))
        }
        _ => Ok(Setting::Tools(offer)),
    }
}

/// The schema with the names of its types in lower case.
fn to_json_schema(schema: &str) -> String {
    let Ok(mut tree) = serde_json::from_str::<Value>(schema) else { return schema.to_owned() };
    if lower_types(&mut tree) { tree.to_string() } else { schema.to_owned() }
}

/// Writes the names of types in lower case. Returns true if there were others.
fn lower_types(schema: &mut Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let mut has_changed = false;
            for (key, value) in fields {
                let known = value.as_str().filter(|_| key == "type");
                let known = known.and_then(|name| {
                    SCHEMA_TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(name) && *known != name)
                });
                match known {
                    Some(name) => *value = name.into(),
                    None if !lower_types(value) => continue,
                    None => {}
                }
                has_changed = true;
            }
            has_changed
        }
        Value::Array(items) => {
            let mut changed = false;
            for item in items {
                changed |= lower_types(item);
            }
            changed
        }
        _ => false,
    }
}

impl AwaitedCalls {
    /// Notes a call that is reported to the client.
    pub(super) fn note(&mut self, segment_id: u32, call: &ToolCall) {
        self.segment_id = Some(segment_id);
        self.ids.push(call.call_id.clone());
    }

    /// True if the answer has calls whose results the model waits for.
    pub(super) fn are_of(&self, segment_id: u32) -> bool {
        self.segment_id == Some(segment_id)
    }

    /// True if no result is missing.
    pub(super) const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Forgets the calls of an answer, because another begins. Gives the ids of those without a result.
    pub(super) fn take_missing(&mut self) -> Vec<String> {
        std::mem::take(self).ids
    }

    /// Notes results.
    ///
    /// # Errors
    /// A result of no call. Then none is noted.
    pub(super) fn complete(&mut self, results: &[ToolResult]) -> Result<(), Error> {
        if let Some(unknown) = results.iter().find(|result| !self.ids.contains(&result.call_id)) {
            let shown: String = unknown.call_id.chars().take(SHOWN_ID_MAX_CHARS).collect();
            return Err(Error::new(ErrorKind::UnknownToolCall, shown));
        }
        self.ids.retain(|id| results.iter().all(|result| result.call_id != *id));
        Ok(())
    }
}

/// The results of a message: of a list, or the only one.
pub(super) fn to_results(values: Vec<(FieldRole, FieldValue)>) -> Vec<ToolResult> {
    let mut results = Vec::new();
    let (mut call_id, mut output) = (None, None);
    for (role, value) in values {
        match (role, value) {
            (FieldRole::ToolResults, FieldValue::Items(items)) => results.extend(items.iter().map(|item| {
                let text = |part: &Option<String>| part.clone().unwrap_or_default();
                ToolResult { call_id: text(&item.call_id), output: text(&item.output) }
            })),
            (FieldRole::CallId, FieldValue::Text(id)) => call_id = Some(id),
            (FieldRole::Output, FieldValue::Text(text)) => output = Some(text),
            _ => {}
        }
    }
    results.extend(call_id.map(|call_id| ToolResult { call_id, output: output.unwrap_or_default() }));
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, parameters: Option<&str>) -> ListItem {
        let parameters = parameters.map(str::to_owned);
        ListItem { name: Some(name.to_owned()), parameters, ..ListItem::default() }
    }

    #[test]
    fn types_in_capitals_become_json_schema() {
        let schema = r#"{"type":"OBJECT","properties":{"type":{"type":"STRING"},"on":{"anyOf":[{"type":"Boolean"}]}}}"#;
        let expected = r#"{"type":"object","properties":{"type":{"type":"string"},"on":{"anyOf":[{"type":"boolean"}]}}}"#;
        let sorted = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(sorted(&to_json_schema(schema)), sorted(expected));
        assert_eq!(to_json_schema(r#"{ "type" : "object" }"#), r#"{ "type" : "object" }"#, "as it was");
    }

    #[test]
    fn result_may_be_a_list_or_two_fields() {
        let item =
            ListItem { call_id: Some("a".to_owned()), output: Some("1".to_owned()), ..ListItem::default() };
        let text = |text: &str| FieldValue::Text(text.to_owned());
        let of_list = vec![(FieldRole::ToolResults, FieldValue::Items([item].into()))];
        let of_fields = vec![(FieldRole::Output, text("1")), (FieldRole::CallId, text("a"))];
        for values in [of_list, of_fields] {
            let expected = ToolResult { call_id: "a".to_owned(), output: "1".to_owned() };
            assert_eq!(to_results(values), [expected]);
        }
        assert_eq!(to_results(vec![(FieldRole::Output, text("1"))]), [], "a result of no call");
    }

    #[test]
    fn tools_with_bad_names_are_refused() {
        for (tools, words) in [
            (vec![tool("a b", None)], "name 'a b'"),
            (vec![tool("", None)], "name ''"),
            (vec![tool("a", None), tool("a", None)], "two have the name 'a'"),
            (vec![tool("a", Some(&format!(r#"{{"x":"{}"}}"#, "x".repeat(70_000))))], "bytes of tools"),
        ] {
            assert!(to_offer(&tools).unwrap_err().detail.contains(words), "{words}");
        }
        let Ok(Setting::Tools(offer)) = to_offer(&[tool("light.on", None)]) else { panic!("refused") };
        assert_eq!(&*offer.tools[0].parameters, NO_PARAMETERS);
    }
}
