//! Commands to the server as messages: the template of the mapping file, and the values of its slots.

use super::Dialect;
use crate::{
    audio::{SPEECH_RATE_HZ, pcm, wav},
    spelling::upstream::{CloseBy, SendName},
    vocabulary::{LaneRequest, Message, Mode, SlotValue, UnitInput, VoiceEncoding, VoiceSample},
};

/// Close code of a lane whose upstream takes no closing message (RFC 6455 §7.4.1).
const NORMAL_CLOSURE: u16 = 1000;

impl Dialect {
    /// Encoding in which the dialect takes this voice sample. A session with several dialects may have chosen one that this
    /// dialect lacks.
    fn encoding_of(&self, voice: &VoiceSample) -> VoiceEncoding {
        let encodings = &self.mapping.voice_encodings;
        if encodings.contains(&voice.encoding) { voice.encoding } else { encodings[0] }
    }

    /// True if the dialect takes this voice sample as a WAV file; over HTTP, it is one in a data URL.
    pub(super) fn takes_wav(&self, voice: &VoiceSample) -> bool {
        self.encoding_of(voice) != VoiceEncoding::F32le || self.mapping.is_http()
    }

    /// The settings of a new conversation that the upstream knows; `None` if it takes all.
    fn known_config(&self, command: &LaneRequest) -> Option<String> {
        let LaneRequest::InitConversation(opening) = command else { return None };
        let known = self.mapping.config_keys.as_ref()?;
        let mut config: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&opening.config).unwrap_or_default();
        config.retain(|key, _| known.contains(key));
        Some(serde_json::Value::Object(config).to_string())
    }

    /// Name of the message for a command; of [`SendName::Close`] for a command that has none.
    pub(super) fn message_name(&self, command: &LaneRequest) -> SendName {
        match command {
            LaneRequest::Init(None) => SendName::Init,
            LaneRequest::Init(Some(_)) => SendName::InitWithVoice,
            LaneRequest::Transcribe { prompt, .. }
                if prompt.translates && self.mapping.message(SendName::Translate).is_some() =>
            {
                SendName::Translate
            }
            LaneRequest::Transcribe { .. } => SendName::Transcribe,
            LaneRequest::Speak { voice: None, .. } => SendName::Speak,
            LaneRequest::Speak { voice: Some(_), .. } => SendName::SpeakWithVoice,
            LaneRequest::InitConversation(opening) if opening.voice.is_some() => SendName::ConverseWithVoice,
            LaneRequest::InitConversation(_) => SendName::Converse,
            LaneRequest::Append(UnitInput { frame: None, .. }) => SendName::Append,
            LaneRequest::Append(UnitInput { frame: Some(_), .. }) => SendName::AppendWithFrame,
            LaneRequest::Chat(turn) if turn.voice.is_some() => SendName::ChatWithVoice,
            LaneRequest::Chat(_) => SendName::Chat,
            LaneRequest::Close | LaneRequest::Cancel | LaneRequest::RawText(_) => SendName::Close,
        }
    }

    /// Encodes a command for a lane in this mode: a text message, or the end of the transport. `None` for a command that the
    /// upstream needs no message for.
    pub(super) fn message_for(&self, command: LaneRequest, mode: Mode) -> Option<Message> {
        Some(match command {
            LaneRequest::Cancel => return None,
            LaneRequest::Close if self.mapping.close_by == CloseBy::Socket => {
                Message::Close(NORMAL_CLOSURE, String::new())
            }
            LaneRequest::RawText(text) => Message::Text(text),
            command => Message::Text(self.encode(&command, mode)),
        })
    }

    /// Encodes a command as a text message, for a lane in this mode.
    pub fn encode(&self, command: &LaneRequest, mode: Mode) -> String {
        let voice = command.voice();
        // Some dialects have two places for the voice.
        let voice_chars = voice.map_or(0, |voice| 2 * pcm::base64_f32_len(voice.samples.len()));
        let name = self.message_name(command);
        let capacity = match command {
            LaneRequest::Init(_) => 256 + voice_chars,
            LaneRequest::Transcribe { audio, .. } => 1024 + pcm::base64_f32_len(audio.len()),
            LaneRequest::Speak { request, .. } => 1024 + request.len() + voice_chars,
            LaneRequest::InitConversation(opening) => {
                256 + opening.prompt.len() + opening.config.len() + voice_chars
            }
            LaneRequest::Append(UnitInput { frame, audio, .. }) => {
                let picture_chars = frame.as_ref().map_or(0, |frame| 40 + frame.0.len().div_ceil(3) * 4);
                160 + picture_chars + pcm::base64_f32_len(audio.len())
            }
            LaneRequest::Chat(turn) => return self.encode_chat(turn),
            LaneRequest::Close | LaneRequest::Cancel => 64,
            LaneRequest::RawText(text) => return text.clone(),
        };
        let is_http = self.mapping.is_http();
        let wav = voice.filter(|voice| self.takes_wav(voice)).map(to_wav);
        let is_url = is_http || voice.is_some_and(|voice| self.encoding_of(voice) == VoiceEncoding::WavUrl);
        let is_form = self.mapping.is_form(name);
        let config = self.known_config(command);
        let mut json = String::with_capacity(capacity);
        if let Some(template) = self.mapping.message(name) {
            template.render(&mut json, |slot| match (name.slots()[slot], &wav) {
                ("voice", Some(wav)) if is_url => SlotValue::DataUrl("audio/wav", wav),
                ("voice", Some(wav)) => SlotValue::Base64(wav),
                // It is the form's file.
                ("audio", _) if is_form => SlotValue::Null,
                ("config", _) if config.is_some() => {
                    config.as_deref().map_or(SlotValue::Null, SlotValue::Raw)
                }
                ("mode", _) => SlotValue::Str(self.mapping.mode_name(mode)),
                (slot, _) => match slot_value(command, slot) {
                    SlotValue::Audio(samples) if slot == "audio" => self.mapping.audio_value(samples),
                    value => value,
                },
            });
        }
        json
    }
}

/// A voice sample as a WAV file whose length is never a multiple of four bytes. A server that expects raw float32 then
/// rejects the file instead of playing noise (mappings/notes/minicpm-o.md#voices).
pub(super) fn to_wav(voice: &VoiceSample) -> Vec<u8> {
    let mut samples = voice.samples.to_vec();
    if samples.len().is_multiple_of(2) {
        samples.push(0);
    }
    wav::write_s16(&samples, SPEECH_RATE_HZ)
}

/// Value of a slot. The names are those of [`SendName::slots`].
fn slot_value<'v>(command: &'v LaneRequest, slot: &str) -> SlotValue<'v> {
    match (command, slot) {
        (_, "voice") => command.voice().map_or(SlotValue::Null, |voice| SlotValue::Audio(&voice.samples)),
        (LaneRequest::Transcribe { prompt, .. }, "prompt") => SlotValue::Str(&prompt.instruction),
        (LaneRequest::Transcribe { prompt, .. }, "language") => known_text(&prompt.language),
        (LaneRequest::Transcribe { prompt, .. }, "hints") => known_text(&prompt.hints),
        (LaneRequest::Transcribe { audio, .. }, "audio") => SlotValue::Audio(audio),
        // Without a voice sample the prompt is the second half alone.
        (LaneRequest::Speak { after_voice, .. }, "system" | "after_voice") => SlotValue::Str(after_voice),
        (LaneRequest::Speak { before_voice, .. }, "before_voice") => SlotValue::Str(before_voice),
        (LaneRequest::Speak { request, .. }, "text") => SlotValue::Str(request),
        (LaneRequest::Speak { text, .. }, "words") => SlotValue::Str(text),
        (LaneRequest::InitConversation(opening), "prompt") => SlotValue::Str(&opening.prompt),
        (LaneRequest::InitConversation(opening), "config") => SlotValue::Raw(&opening.config),
        (LaneRequest::Append(append), "audio") => SlotValue::Audio(&append.audio),
        (LaneRequest::Append(append), "input_id") => SlotValue::Str(&append.input_id),
        (LaneRequest::Append(append), "force_listen") => SlotValue::Bool(append.force_listen),
        (LaneRequest::Append(append), "frame") => {
            append.frame.as_ref().map_or(SlotValue::Null, |frame| SlotValue::Base64(&frame.0))
        }
        (LaneRequest::Close, "reason") => SlotValue::Str("turn_done"),
        _ => SlotValue::Null,
    }
}

fn known_text(text: &str) -> SlotValue<'_> {
    Some(text).filter(|text| !text.is_empty()).into()
}
