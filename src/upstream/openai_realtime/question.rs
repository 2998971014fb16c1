//! Messages of a question: its settings, the conversation as items, the user's new audio, and the request for the response.

use std::borrow::Cow;

use serde_json::json;

use super::message;
use crate::{
    audio::{SPEECH_RATE_HZ, pcm, wav},
    spelling::upstream::SendName,
    upstream::{Dialect, chat::write_list},
    vocabulary::{
        ChatMessage, ChatTurn, EntryPart, JsonWriter, Message, Role, SlotValue, Tool, ToolChoice, ToolOffer,
    },
};

/// Length of a piece of audio that is appended, ms.
const PIECE_MS: u32 = 1000;

/// Shortest audio that OpenAI commits, ms (mappings/notes/openai-realtime-servers.md#conversation). Shorter audio gets silence
/// behind it.
const COMMIT_MIN_MS: u32 = 100;

/// Sends a question to a server that takes audio at this rate, and perhaps ignores a commit.
pub(super) fn ask(
    dialect: &Dialect,
    turn: &ChatTurn,
    rate_hz: u32,
    ignores_commits: bool,
    emit: &mut dyn FnMut(Message),
) {
    emit(settings(dialect, turn));
    let (newest, earlier) = match turn.messages.split_last() {
        Some((last, earlier)) => (Some(last), earlier),
        None => (None, &[][..]),
    };
    for message in earlier {
        send_items(dialect, message.role, &message.parts, rate_hz, emit);
    }
    if let Some(ChatMessage { role, parts }) = newest {
        // Speech behind everything else is sent as from a microphone, which most servers take.
        match parts.split_last() {
            Some((EntryPart::Audio(audio), before)) if *role == Role::User && !ignores_commits => {
                send_items(dialect, *role, before, rate_hz, emit);
                append_and_commit(dialect, audio, rate_hz, emit);
            }
            _ => send_items(dialect, *role, parts, rate_hz, emit),
        }
    }
    emit(message(dialect, SendName::Respond));
}

/// The session's settings for a question.
fn settings(dialect: &Dialect, turn: &ChatTurn) -> Message {
    let ToolOffer { tools, choice, is_parallel } = &turn.tools;
    let offered = |out: &mut String| {
        write_list(out, |out| tools.iter().for_each(|tool| write_tool(dialect, tool, out)));
    };
    let (choice, has_tools) = (choice_json(choice), !tools.is_empty());
    let mut json = String::with_capacity(512 + turn.instructions.len() + turn.tools.bytes());
    dialect.render(SendName::Chat, &mut json, |slot| match slot {
        "instructions" => SlotValue::Str(&turn.instructions),
        "modalities" if turn.speaks => SlotValue::Raw(r#"["audio"]"#),
        "modalities" => SlotValue::Raw(r#"["text"]"#),
        "max_tokens" => SlotValue::Int(turn.max_tokens.into()),
        "temperature" => turn.temperature.map_or(SlotValue::Null, SlotValue::Float),
        "tools" if has_tools => SlotValue::Written(JsonWriter(&offered)),
        "tool_choice" if has_tools => SlotValue::Raw(&choice),
        // The default of every server.
        "parallel_calls" if has_tools && !is_parallel => SlotValue::Bool(false),
        _ => SlotValue::Null,
    });
    Message::Text(json)
}

fn write_tool(dialect: &Dialect, tool: &Tool, out: &mut String) {
    dialect.render(SendName::ChatTool, out, |slot| match slot {
        "name" => SlotValue::Str(&tool.name),
        "description" => tool.description.as_deref().into(),
        _ => SlotValue::Raw(&tool.parameters),
    });
    out.push(',');
}

fn choice_json(choice: &ToolChoice) -> Cow<'static, str> {
    match choice {
        ToolChoice::Auto => r#""auto""#.into(),
        ToolChoice::None => r#""none""#.into(),
        ToolChoice::Required => r#""required""#.into(),
        ToolChoice::Named(name) => json!({"type": "function", "name": name}).to_string().into(),
    }
}

/// Sends a message of the conversation: calls and results are items of their own, and the parts between them share one.
pub(super) fn send_items(
    dialect: &Dialect,
    role: Role,
    parts: &[EntryPart],
    rate_hz: u32,
    emit: &mut dyn FnMut(Message),
) {
    let concerns_tools = |part: &EntryPart| matches!(part, EntryPart::Call(_) | EntryPart::Result(_));
    for group in parts.chunk_by(|part, next| !concerns_tools(part) && !concerns_tools(next)) {
        let mut json = String::new();
        match group {
            [EntryPart::Call(call)] => dialect.render(SendName::ChatCall, &mut json, |slot| match slot {
                "call_id" => SlotValue::Str(&call.call_id),
                "name" => SlotValue::Str(&call.name),
                _ => SlotValue::Str(&call.arguments),
            }),
            [EntryPart::Result(result)] => {
                dialect.render(SendName::ChatResult, &mut json, |slot| match slot {
                    "call_id" => SlotValue::Str(&result.call_id),
                    _ => SlotValue::Str(&result.output),
                });
            }
            parts => {
                let content = |out: &mut String| {
                    write_list(out, |out| {
                        parts.iter().for_each(|part| write_part(dialect, role, part, rate_hz, out));
                    });
                };
                dialect.render(SendName::ChatMessage, &mut json, |slot| match slot {
                    "role" => SlotValue::Plain(role.name()),
                    _ => SlotValue::Written(JsonWriter(&content)),
                });
            }
        }
        emit(Message::Text(json));
    }
}

fn write_part(dialect: &Dialect, role: Role, part: &EntryPart, rate_hz: u32, out: &mut String) {
    match part {
        EntryPart::Text(text) => {
            let name = if role == Role::Assistant { SendName::ChatAnswerText } else { SendName::ChatText };
            dialect.encode_element(name, SlotValue::Str(text), out);
        }
        EntryPart::Audio(audio) => {
            let audio = at_rate(audio, rate_hz);
            dialect.encode_element(SendName::ChatAudio, dialect.mapping().audio_value(&audio), out);
        }
        EntryPart::Picture(file) => {
            let media_type = if file.starts_with(b"\x89PNG") { "image/png" } else { "image/jpeg" };
            dialect.encode_element(SendName::ChatPicture, SlotValue::DataUrl(media_type, file), out);
        }
        EntryPart::Call(_) | EntryPart::Result(_) => {}
    }
}

/// Sends audio as from a microphone, and ends it: it is the conversation's next item.
pub(super) fn append_and_commit(
    dialect: &Dialect,
    audio: &[i16],
    rate_hz: u32,
    emit: &mut dyn FnMut(Message),
) {
    let missing = samples_of(COMMIT_MIN_MS, SPEECH_RATE_HZ).saturating_sub(audio.len());
    append(dialect, &at_rate(&[audio, &vec![0; missing]].concat(), rate_hz), rate_hz, emit);
    emit(message(dialect, SendName::Commit));
}

/// Sends audio at the server's rate, as from a microphone.
pub(super) fn append(dialect: &Dialect, audio: &[i16], rate_hz: u32, emit: &mut dyn FnMut(Message)) {
    for piece in audio.chunks(samples_of(PIECE_MS, rate_hz)) {
        let mut json = String::with_capacity(64 + piece.len() * 2 / 3 * 4);
        dialect.render(SendName::Append, &mut json, |_| dialect.mapping().audio_value(piece));
        emit(Message::Text(json));
    }
}

const fn samples_of(ms: u32, rate_hz: u32) -> usize {
    (rate_hz as u64 * ms as u64 / 1000) as usize
}

/// Audio of the user, at the server's rate.
fn at_rate(audio: &[i16], rate_hz: u32) -> Cow<'_, [i16]> {
    if rate_hz == SPEECH_RATE_HZ {
        return audio.into();
    }
    let samples: Vec<f32> = audio.iter().map(|sample| pcm::to_f32(*sample)).collect();
    // The rate was checked when the server granted it.
    let converted = wav::resample_all(&samples, SPEECH_RATE_HZ, rate_hz).unwrap_or_default();
    converted.into_iter().map(pcm::to_i16).collect()
}
