//! The model's prompt: the end of a conversation, the instructions, and the tools in the model's own format.

use serde_json::{Value, json};

use super::{config::ResponseConfig, conversation::Item};
use crate::{chat::ChatRequest, script};

/// Prompt of a session without instructions.
const NO_INSTRUCTIONS: &str = "You are a helpful assistant.";

/// Context positions per second of audio.
const AUDIO_TOKENS_PER_SECOND: usize = 10;

/// Request for an answer to these items.
pub(super) fn answer_request(config: &ResponseConfig, items: &[Item]) -> ChatRequest {
    // The last question: what follows the assistant's last words.
    let start = items.iter().rposition(|item| item.has_role("assistant") || item.is_of("function_call"));
    let question = &items[start.map_or(0, |at| at + 1)..];
    let texts: Vec<String> = question.iter().filter_map(words).collect();
    let heard = question.last().filter(|item| !item.is_of("function_call_output"));
    // A question without words for a text and for no call is one for a transcript, which has no instructions of a conversation.
    let transcribes = texts.is_empty() && !config.speaks() && config.tool_choice == "none";
    let max_new_tokens = config.max_output_tokens.as_u64().map_or(usize::MAX, |limit| limit as usize);
    ChatRequest {
        streaming: true,
        speech_enabled: config.speaks(),
        max_new_tokens,
        user_audio: heard.map(|item| item.audio.clone()).filter(|audio| !audio.is_empty()),
        user_text: texts.join("\n"),
        system_text: if transcribes { String::new() } else { system_text(config) },
        calls_natively: true,
        prompt_tokens: items.iter().map(tokens).sum::<usize>()
            + script::estimate_tokens(&config.instructions),
        ..ChatRequest::default()
    }
}

/// Request for the words of audio.
pub(super) fn transcript_request(audio: Vec<f32>) -> ChatRequest {
    ChatRequest {
        streaming: true,
        max_new_tokens: usize::MAX,
        prompt_tokens: audio.len() * AUDIO_TOKENS_PER_SECOND / 16_000,
        user_audio: Some(audio),
        ..ChatRequest::default()
    }
}

/// Instructions, and the tools as the model's template writes them.
fn system_text(config: &ResponseConfig) -> String {
    let given = config.instructions.as_str();
    let instructions = if given.trim().is_empty() { NO_INSTRUCTIONS } else { given };
    let tools: Vec<String> = config.tools.iter().filter(|_| config.tool_choice != "none").map(tool).collect();
    if tools.is_empty() {
        return instructions.to_owned();
    }
    format!("{instructions}\n\n<tools>\n{}\n</tools>", tools.join("\n"))
}

fn tool(tool: &Value) -> String {
    let function = json!({
        "name": tool["name"], "description": tool["description"], "parameters": tool["parameters"],
    });
    json!({"type": "function", "function": function}).to_string()
}

/// Words of a user's message, or a tool's result.
fn words(item: &Item) -> Option<String> {
    if item.is_of("function_call_output") {
        let output = item.wire["output"].as_str().unwrap_or_default();
        return Some(format!("<tool_response>\n{output}\n</tool_response>"));
    }
    Some(item.text()).filter(|text| item.has_role("user") && !text.is_empty())
}

fn tokens(item: &Item) -> usize {
    4 + script::estimate_tokens(&item.text()) + item.audio.len() * AUDIO_TOKENS_PER_SECOND / 16_000
}
