//! Upstream codec for relays: relay messages to templates. Audio passes as base64 text and is not decoded.

use super::{Dialect, without_data_prefix};
use crate::{
    event::{
        Mode,
        relay::{RelayInput, RelayOpening},
    },
    mapping::{extract::Node, template::SlotValue, upstream::SendName},
};

impl Dialect {
    /// Encodes the message that opens a session in this mode.
    pub fn encode_relay_opening(&self, opening: &RelayOpening<'_>, mode: Mode) -> String {
        let capacity = [opening.prompt, opening.config, opening.voice, opening.speech_voice];
        let capacity = capacity.iter().flatten().map(|text| text.len()).sum::<usize>();
        self.render_message(SendName::RelayOpen, capacity, |slot| match slot {
            "prompt" => opening.prompt.into(),
            "config" => opening.config.map_or(SlotValue::Null, SlotValue::Raw),
            "voice" => opening.voice.into(),
            "speech_voice" => opening.speech_voice.into(),
            "slice_max" => opening.slice_max.map_or(SlotValue::Null, SlotValue::Int),
            "mode" => SlotValue::Str(self.mapping().mode_name(mode)),
            _ => SlotValue::Null,
        })
    }

    /// Encodes the input of one step.
    pub fn encode_relay_append(&self, input: &RelayInput<'_>) -> String {
        let frames = input.frames.iter().copied().flatten().filter_map(Node::as_str).map(str::len);
        let capacity = input.audio.map_or(0, str::len) + frames.sum::<usize>();
        self.render_message(SendName::RelayAppend, capacity, |slot| match slot {
            "audio" => input.audio.map(without_data_prefix).map_or(SlotValue::Null, base64_fill),
            "frames" => input.frames.map_or(SlotValue::Null, SlotValue::List),
            "force_listen" => input.force_listen.map_or(SlotValue::Null, SlotValue::Bool),
            "slice_max" => input.slice_max.map_or(SlotValue::Null, SlotValue::Int),
            "input_id" => input.input_id.into(),
            "response_id" => input.response_id.into(),
            _ => SlotValue::Null,
        })
    }

    /// Encodes the message that closes a session.
    pub fn encode_relay_close(&self, reason: Option<&str>) -> String {
        self.render_message(SendName::Close, 64, |_| SlotValue::Str(reason.unwrap_or("user_stop")))
    }

    fn render_message<'v>(
        &self,
        name: SendName,
        capacity: usize,
        fill: impl Fn(&str) -> SlotValue<'v>,
    ) -> String {
        let mut json = String::with_capacity(capacity + 256);
        if let Some(template) = self.mapping().message(name) {
            template.render(&mut json, |slot| fill(name.slots()[slot]));
        }
        json
    }
}

/// Fills a slot with base64. Valid base64 needs no JSON escapes; text that only claims to be base64 may need them.
fn base64_fill(text: &str) -> SlotValue<'_> {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) { SlotValue::Plain(text) } else { SlotValue::Str(text) }
}
