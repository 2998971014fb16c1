//! Prompts of an answer that may have calls: the offer in the system prompt, and earlier calls and results as text.

use std::borrow::Cow;

use crate::{
    spelling::profile::ToolRules,
    vocabulary::{ChatMessage, EntryPart, ToolCall, ToolChoice, ToolOffer},
};

/// The system prompt with the offer.
pub(super) fn instructions_with(rules: &ToolRules, offer: &ToolOffer, instructions: &str) -> String {
    let line = |tool: &crate::vocabulary::Tool| {
        spaced(&rules.tool(&tool.name, tool.description.as_deref(), &tool.parameters))
    };
    let lines: Vec<String> = offer.tools.iter().map(line).collect();
    let mut prompt = instructions.trim_end().to_owned();
    let demand = match &offer.choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Required => Some(rules.required.clone()),
        ToolChoice::Named(name) => Some(rules.named(name)),
    };
    let single = (!offer.is_parallel).then(|| rules.single.clone());
    for part in [Some(rules.prompt(&lines.join("\n"))), demand, single].into_iter().flatten() {
        prompt.push_str(if prompt.is_empty() { "" } else { "\n\n" });
        prompt.push_str(&part);
    }
    prompt
}

/// Writes calls and results as text, because no known server takes them as such. Without rules they are left out.
pub(in crate::session::assistant) fn write_calls(rules: Option<&ToolRules>, messages: &mut Vec<ChatMessage>) {
    for message in messages.iter_mut() {
        message.parts.retain_mut(|part| {
            let text = match part {
                EntryPart::Call(ToolCall { name, arguments, .. }) => {
                    rules.map(|rules| written_call(rules, name, arguments))
                }
                EntryPart::Result(result) => rules.map(|rules| rules.result(&result.output)),
                _ => return true,
            };
            let is_written = text.is_some();
            text.into_iter().for_each(|text| *part = EntryPart::Text(text));
            is_written
        });
    }
    messages.retain(|message| !message.parts.is_empty());
}

/// A call as the model writes it.
fn written_call(rules: &ToolRules, name: &str, arguments: &str) -> String {
    let json = spaced(&rules.call(name, &json_of(arguments)));
    format!("{}\n{json}\n{}", rules.call_begin, rules.call_end)
}

/// Arguments as JSON, also those of a client that are none.
fn json_of(arguments: &str) -> Cow<'_, str> {
    match serde_json::from_str::<serde::de::IgnoredAny>(arguments) {
        Ok(_) => arguments.into(),
        Err(_) => serde_json::Value::from(arguments).to_string().into(),
    }
}

/// JSON in one line with a space behind commas and colons, as the model was shown it in training.
fn spaced(json: &str) -> String {
    let (mut line, mut in_string, mut is_escaped) = (String::with_capacity(json.len() + 16), false, false);
    for letter in json.chars() {
        if !in_string && letter.is_whitespace() {
            continue;
        }
        line.push(letter);
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if in_string => is_escaped = true,
            '"' => in_string = !in_string,
            ',' | ':' if !in_string => line.push(' '),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_becomes_one_line() {
        assert_eq!(spaced("{\n \"a\":[1,2],\t\"b , \\\" : c\" : {} }"), r#"{"a": [1, 2], "b , \" : c": {}}"#);
        assert_eq!(json_of("no JSON"), r#""no JSON""#);
    }
}
