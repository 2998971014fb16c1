//! Encodes a turn of a conversation in turns: every message of the conversation, then the request around them.

use std::borrow::Cow;

use serde_json::json;

use super::{Dialect, encode::to_wav, input_rate::at_rate};
use crate::{
    audio::pcm,
    spelling::upstream::{CodecName, SendName},
    vocabulary::{
        ChatMessage, ChatTurn, EntryPart, JsonWriter, Role, SlotValue, Tool, ToolChoice, ToolOffer,
    },
};

impl Dialect {
    /// Encodes a chat turn (mappings/notes/minicpm-o.md#chat).
    pub(super) fn encode_chat(&self, turn: &ChatTurn) -> String {
        let name = if turn.voice.is_some() { SendName::ChatWithVoice } else { SendName::Chat };
        self.encode_turn(name, turn)
    }

    /// Encodes a chat turn as this message: [`SendName::Chat`] leaves its voice sample out.
    pub(super) fn encode_turn(&self, name: SendName, turn: &ChatTurn) -> String {
        let sample = turn.voice.as_ref().filter(|_| name == SendName::ChatWithVoice);
        let wav = sample.filter(|voice| self.takes_wav(voice)).map(to_wav);
        let voice = match (sample, &wav) {
            (_, Some(wav)) if self.mapping.is_http() => SlotValue::DataUrl("audio/wav", wav),
            (_, Some(wav)) => SlotValue::Base64(wav),
            (Some(voice), None) => SlotValue::Audio(&voice.samples),
            (None, None) => SlotValue::Null,
        };
        let messages = |out: &mut String| {
            write_list(out, |out| {
                self.encode_system(turn, voice, out);
                for message in &turn.messages {
                    let parts = |out: &mut String| {
                        for part in &message.parts {
                            self.encode_part(message.role, part, self.mapping.input_rate_hz, out);
                        }
                    };
                    self.encode_message(message.role, &parts, out);
                }
            });
        };
        let ToolOffer { tools, choice, is_parallel } = &turn.tools;
        let offered = |out: &mut String| {
            write_list(out, |out| tools.iter().for_each(|tool| self.encode_tool(tool, out)));
        };
        let (choice, has_tools) = (choice_json(choice), !tools.is_empty());
        let voice_len = sample.map_or(0, |voice| 2 * pcm::base64_f32_len(voice.samples.len()));
        let has_messages = self.mapping.has_slot(&[name], "messages");
        let messages_len = turn.messages.iter().filter(|_| has_messages).map(message_len).sum::<usize>();
        let capacity = 1024 + turn.instructions.len() + turn.tools.bytes() + voice_len + messages_len;
        let mut json = String::with_capacity(capacity);
        self.render(name, &mut json, |slot| match slot {
            "messages" => SlotValue::Written(JsonWriter(&messages)),
            "instructions" => SlotValue::Str(&turn.instructions),
            "tools" if has_tools => SlotValue::Written(JsonWriter(&offered)),
            "tool_choice" if has_tools => SlotValue::Raw(&choice),
            // The default of every server.
            "parallel_calls" if has_tools && !is_parallel => SlotValue::Bool(false),
            "tools" | "tool_choice" | "parallel_calls" => SlotValue::Null,
            "speaks" => SlotValue::Bool(turn.speaks),
            "max_tokens" => SlotValue::Int(turn.max_tokens.into()),
            "temperature" => turn.temperature.map_or(SlotValue::Null, SlotValue::Float),
            // OpenAI's Realtime API has the words of audio in any case, and refuses both.
            "modalities" if turn.speaks && self.mapping.codec == CodecName::OpenaiRealtime => {
                SlotValue::Raw(r#"["audio"]"#)
            }
            "modalities" if turn.speaks => SlotValue::Raw(r#"["text","audio"]"#),
            "modalities" => SlotValue::Raw(r#"["text"]"#),
            _ => voice,
        });
        json
    }

    /// The system message: instructions, behind the voice sample if there is one (the order of the official prompts).
    fn encode_system(&self, turn: &ChatTurn, voice: SlotValue<'_>, out: &mut String) {
        // Over HTTP, the request itself has the voice.
        let has_voice = turn.voice.is_some() && !self.mapping.is_http();
        if !has_voice && turn.instructions.is_empty() {
            return;
        }
        let content = |out: &mut String| {
            if has_voice {
                self.encode_element(SendName::ChatText, SlotValue::Str(&turn.before_voice), out);
                self.encode_element(SendName::ChatAudio, voice, out);
            }
            if !turn.instructions.is_empty() {
                self.encode_element(SendName::ChatText, SlotValue::Str(&turn.instructions), out);
            }
        };
        self.encode_message(Role::System, &content, out);
    }

    /// A message with the elements that `content` writes, and a comma.
    fn encode_message(&self, role: Role, content: &dyn Fn(&mut String), out: &mut String) {
        let content = |out: &mut String| write_list(out, content);
        self.render(SendName::ChatMessage, out, |slot| match slot {
            "role" => SlotValue::Plain(role.name()),
            _ => SlotValue::Written(JsonWriter(&content)),
        });
        out.push(',');
    }

    /// A part of a message of this role, and a comma. Audio is sent at this rate.
    pub(super) fn encode_part(&self, role: Role, part: &EntryPart, rate_hz: u32, out: &mut String) {
        match part {
            EntryPart::Text(text) => {
                let is_answer =
                    role == Role::Assistant && self.mapping.message(SendName::ChatAnswerText).is_some();
                let name = if is_answer { SendName::ChatAnswerText } else { SendName::ChatText };
                self.encode_element(name, SlotValue::Str(text), out);
            }
            EntryPart::Audio(audio) => {
                let audio = at_rate(audio, rate_hz);
                self.encode_element(SendName::ChatAudio, self.mapping.audio_value(&audio), out);
            }
            EntryPart::Picture(file) if self.takes_data_urls() => {
                let media_type = if file.starts_with(b"\x89PNG") { "image/png" } else { "image/jpeg" };
                self.encode_element(SendName::ChatPicture, SlotValue::DataUrl(media_type, file), out);
            }
            EntryPart::Picture(file) => {
                self.encode_element(SendName::ChatPicture, SlotValue::Base64(file), out);
            }
            // The session has written them as text, or the codec sends them as items of their own.
            EntryPart::Call(_) | EntryPart::Result(_) => {}
        }
    }

    /// True if pictures are data URLs, as in OpenAI's APIs.
    fn takes_data_urls(&self) -> bool {
        matches!(self.mapping.codec, CodecName::Http | CodecName::OpenaiRealtime)
    }

    /// A tool that the model is offered, and a comma.
    fn encode_tool(&self, tool: &Tool, out: &mut String) {
        self.render(SendName::ChatTool, out, |slot| match slot {
            "name" => SlotValue::Str(&tool.name),
            "description" => tool.description.as_deref().into(),
            _ => SlotValue::Raw(&tool.parameters),
        });
        out.push(',');
    }

    /// An element of a list: a message with a single slot, and a comma.
    pub(super) fn encode_element(&self, name: SendName, value: SlotValue<'_>, out: &mut String) {
        self.render(name, out, |_| value);
        out.push(',');
    }

    /// A message whose slots have these values.
    pub(super) fn render_message<'v>(
        &self,
        name: SendName,
        capacity: usize,
        value: impl Fn(&'static str) -> SlotValue<'v>,
    ) -> String {
        let mut json = String::with_capacity(capacity + 256);
        self.render(name, &mut json, value);
        json
    }

    pub(super) fn render<'v>(
        &self,
        name: SendName,
        out: &mut String,
        value: impl Fn(&'static str) -> SlotValue<'v>,
    ) {
        if let Some(template) = self.mapping.message(name) {
            template.render(out, |slot| value(name.slots()[slot]));
        }
    }
}

/// Writes a list whose elements have a comma behind them.
pub(super) fn write_list(out: &mut String, write_elements: impl Fn(&mut String)) {
    out.push('[');
    write_elements(out);
    if out.ends_with(',') {
        out.pop();
    }
    out.push(']');
}

/// A choice of tools in OpenAI's form.
fn choice_json(choice: &ToolChoice) -> Cow<'static, str> {
    match choice {
        ToolChoice::Auto => r#""auto""#.into(),
        ToolChoice::None => r#""none""#.into(),
        ToolChoice::Required => r#""required""#.into(),
        ToolChoice::Named(name) => json!({"type": "function", "name": name}).to_string().into(),
    }
}

fn message_len(message: &ChatMessage) -> usize {
    let part_len = |part: &EntryPart| match part {
        EntryPart::Text(text) => text.len(),
        EntryPart::Audio(audio) => pcm::base64_f32_len(audio.len()),
        EntryPart::Picture(file) => file.len().div_ceil(3) * 4,
        EntryPart::Call(_) | EntryPart::Result(_) => 0,
    };
    64 + message.parts.iter().map(|part| 48 + part_len(part)).sum::<usize>()
}
