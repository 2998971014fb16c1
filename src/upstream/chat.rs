//! Encodes a turn of a conversation in turns: every message of the conversation, then the request around them.

use super::{Dialect, encode::to_wav};
use crate::{
    audio::pcm,
    spelling::upstream::SendName,
    vocabulary::{ChatMessage, ChatTurn, EntryPart, JsonWriter, Role, SlotValue},
};

impl Dialect {
    /// Encodes a chat turn (mappings/notes/minicpm-o.md#chat).
    pub(super) fn encode_chat(&self, turn: &ChatTurn) -> String {
        let wav = turn.voice.as_ref().filter(|voice| self.takes_wav(voice)).map(to_wav);
        let voice = match (&turn.voice, &wav) {
            (_, Some(wav)) if self.mapping.is_http() => SlotValue::DataUrl("audio/wav", wav),
            (_, Some(wav)) => SlotValue::Base64(wav),
            (Some(voice), None) => SlotValue::Audio(&voice.samples),
            (None, None) => SlotValue::Null,
        };
        let messages = |out: &mut String| {
            write_list(out, |out| {
                self.encode_system(turn, voice, out);
                for message in &turn.messages {
                    let parts =
                        |out: &mut String| message.parts.iter().for_each(|part| self.encode_part(part, out));
                    self.encode_message(message.role, &parts, out);
                }
            });
        };
        let name = if turn.voice.is_some() { SendName::ChatWithVoice } else { SendName::Chat };
        let voice_len = turn.voice.as_ref().map_or(0, |voice| 2 * pcm::base64_f32_len(voice.samples.len()));
        let messages_len = turn.messages.iter().map(message_len).sum::<usize>();
        let mut json = String::with_capacity(1024 + turn.instructions.len() + voice_len + messages_len);
        self.render(name, &mut json, |slot| match slot {
            "messages" => SlotValue::Written(JsonWriter(&messages)),
            "speaks" => SlotValue::Bool(turn.speaks),
            "max_tokens" => SlotValue::Int(turn.max_tokens.into()),
            "temperature" => turn.temperature.map_or(SlotValue::Null, SlotValue::Float),
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

    fn encode_part(&self, part: &EntryPart, out: &mut String) {
        match part {
            EntryPart::Text(text) => self.encode_element(SendName::ChatText, SlotValue::Str(text), out),
            EntryPart::Audio(audio) => {
                self.encode_element(SendName::ChatAudio, self.mapping.audio_value(audio), out);
            }
            EntryPart::Picture(file) if self.mapping.is_http() => {
                let media_type = if file.starts_with(b"\x89PNG") { "image/png" } else { "image/jpeg" };
                self.encode_element(SendName::ChatPicture, SlotValue::DataUrl(media_type, file), out);
            }
            EntryPart::Picture(file) => {
                self.encode_element(SendName::ChatPicture, SlotValue::Base64(file), out);
            }
            // The session has written them as text.
            EntryPart::Call(_) | EntryPart::Result(_) => {}
        }
    }

    /// An element of a list: a message with a single slot, and a comma.
    pub(super) fn encode_element(&self, name: SendName, value: SlotValue<'_>, out: &mut String) {
        self.render(name, out, |_| value);
        out.push(',');
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

fn message_len(message: &ChatMessage) -> usize {
    let part_len = |part: &EntryPart| match part {
        EntryPart::Text(text) => text.len(),
        EntryPart::Audio(audio) => pcm::base64_f32_len(audio.len()),
        EntryPart::Picture(file) => file.len().div_ceil(3) * 4,
        EntryPart::Call(_) | EntryPart::Result(_) => 0,
    };
    64 + message.parts.iter().map(|part| 48 + part_len(part)).sum::<usize>()
}
