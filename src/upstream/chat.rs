//! Encodes a turn of a conversation in turns: every message of the conversation, then the request around them.

use super::{Dialect, to_wav};
use crate::{
    audio::pcm,
    event::{ChatMessage, ChatTurn, EntryPart, Role, VoiceEncoding},
    mapping::{template::SlotValue, upstream::SendName},
};

impl Dialect {
    /// Encodes a chat turn (field notes minicpm-o.md §2).
    pub(super) fn encode_chat(&self, turn: &ChatTurn) -> String {
        let wav = turn.voice.as_ref().filter(|voice| voice.encoding == VoiceEncoding::Wav).map(to_wav);
        let voice = match (&turn.voice, &wav) {
            (_, Some(wav)) => SlotValue::Base64(wav),
            (Some(voice), None) => SlotValue::Audio(&voice.samples),
            (None, None) => SlotValue::Null,
        };
        let mut messages = String::with_capacity(256 + turn.messages.iter().map(message_len).sum::<usize>());
        messages.push('[');
        self.encode_system(turn, voice, &mut messages);
        for message in &turn.messages {
            let mut content = String::from("[");
            message.parts.iter().for_each(|part| self.encode_part(part, &mut content));
            self.encode_message(message.role, close_list(content), &mut messages);
        }
        let messages = close_list(messages);
        let name = if turn.voice.is_some() { SendName::ChatWithVoice } else { SendName::Chat };
        let mut json = String::with_capacity(256 + messages.len());
        self.render(name, &mut json, |slot| match slot {
            "messages" => SlotValue::Raw(&messages),
            "speaks" => SlotValue::Bool(turn.speaks),
            "max_tokens" => SlotValue::Int(turn.max_tokens.into()),
            _ => voice,
        });
        json
    }

    /// The system message: instructions, behind the voice sample if there is one (the order of the official prompts).
    fn encode_system(&self, turn: &ChatTurn, voice: SlotValue<'_>, out: &mut String) {
        let mut content = String::from("[");
        if turn.voice.is_some() {
            self.encode_element(SendName::ChatText, SlotValue::Str(&turn.before_voice), &mut content);
            self.encode_element(SendName::ChatAudio, voice, &mut content);
        }
        if !turn.instructions.is_empty() {
            self.encode_element(SendName::ChatText, SlotValue::Str(&turn.instructions), &mut content);
        }
        if content.len() > 1 {
            self.encode_message(Role::System, close_list(content), out);
        }
    }

    fn encode_message(&self, role: Role, content: String, out: &mut String) {
        self.render(SendName::ChatMessage, out, |slot| match slot {
            "role" => SlotValue::Plain(role.name()),
            _ => SlotValue::Raw(&content),
        });
        out.push(',');
    }

    fn encode_part(&self, part: &EntryPart, out: &mut String) {
        match part {
            EntryPart::Text(text) => self.encode_element(SendName::ChatText, SlotValue::Str(text), out),
            EntryPart::Audio(audio) => self.encode_element(SendName::ChatAudio, SlotValue::Audio(audio), out),
            EntryPart::Picture(file) => {
                self.encode_element(SendName::ChatPicture, SlotValue::Base64(file), out);
            }
        }
    }

    /// An element of a list: a message with a single slot, and a comma.
    fn encode_element(&self, name: SendName, value: SlotValue<'_>, out: &mut String) {
        self.render(name, out, |_| value);
        out.push(',');
    }

    fn render<'v>(&self, name: SendName, out: &mut String, value: impl Fn(&'static str) -> SlotValue<'v>) {
        if let Some(template) = self.mapping.message(name) {
            template.render(out, |slot| value(name.slots()[slot]));
        }
    }
}

/// Replaces the comma behind the last element by the end of the list.
fn close_list(mut list: String) -> String {
    if list.ends_with(',') {
        list.pop();
    }
    list.push(']');
    list
}

fn message_len(message: &ChatMessage) -> usize {
    let part_len = |part: &EntryPart| match part {
        EntryPart::Text(text) => text.len(),
        EntryPart::Audio(audio) => pcm::base64_f32_len(audio.len()),
        EntryPart::Picture(file) => file.len().div_ceil(3) * 4,
    };
    64 + message.parts.iter().map(|part| 48 + part_len(part)).sum::<usize>()
}
