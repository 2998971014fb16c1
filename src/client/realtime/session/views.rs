//! The settings as the session knows them, and as the client gets them.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{SessionConfig, max_tokens};
use crate::{
    client::{json_text::write_field, realtime::detection::Detection},
    vocabulary::{Setting, SpeechModel, TurnDetection, TurnEnd},
};

/// OpenAI's sessions end after an hour.
const SESSION_MAX_S: f64 = 3600.0;

impl SessionConfig {
    /// The settings as the session knows them.
    pub(in crate::client::realtime) fn settings(&self) -> Vec<Setting> {
        let mut settings = vec![
            Setting::InputEncoding(self.input.encoding),
            Setting::InputRateHz(self.input.rate_hz),
            Setting::OutputEncoding(self.output.encoding),
            Setting::OutputRateHz(self.output.rate_hz),
            Setting::SpokenAnswers(self.speaks()),
            Setting::TranscribeUser(self.transcribes()),
            Setting::Tools(self.offer()),
            Setting::MaxTokens(self.max_output_tokens.as_ref().and_then(max_tokens)),
            Setting::Temperature(self.temperature),
        ];
        settings.extend(self.instructions.clone().map(Setting::Instructions));
        let voice = self.voice.as_str().or_else(|| self.voice["id"].as_str());
        settings.extend(voice.map(|voice| Setting::SpeakModel(SpeechModel::if_known(voice))));
        settings.extend(voice.map(|voice| Setting::Voice(voice.to_owned())));
        let flag =
            |fields: &Map<String, Value>, key: &str| fields.get(key).and_then(Value::as_bool).unwrap_or(true);
        let (is_automatic, answers, interrupts, turn_end) = match &self.turn_detection {
            Detection::Off => (false, false, false, TurnEnd::OfProfile),
            Detection::On { fields, turn_end, .. } => {
                (true, flag(fields, "create_response"), flag(fields, "interrupt_response"), *turn_end)
            }
        };
        let idle_timeout_ms = match &self.turn_detection {
            Detection::On { fields, .. } => fields.get("idle_timeout_ms").and_then(Value::as_u64),
            Detection::Off => None,
        };
        settings.push(Setting::TurnDetection(TurnDetection {
            idle_timeout: idle_timeout_ms.map(Duration::from_millis).filter(|_| self.own_rates_hz.is_none()),
            is_automatic,
            answers: answers && !self.is_transcription,
            interrupts,
            client_asks: !answers && !self.is_transcription,
            turn_end,
        }));
        if let Detection::On { end_silence_ms, sensitivity, .. } = &self.turn_detection {
            settings.push(Setting::EndSilenceMs(*end_silence_ms));
            settings.push(Setting::VadSensitivity(*sensitivity));
        }
        if let Some(transcription) = &self.transcription {
            let language = transcription.echoed.get("language").and_then(Value::as_str);
            settings.extend(language.map(|language| Setting::Language(language.to_owned())));
            settings.push(Setting::HotWords(transcription.hot_words.clone()));
        }
        settings
    }

    /// The whole session, as the client gets it.
    pub(in crate::client::realtime) fn to_text(&self, id: &str, opened_unix_s: f64, is_beta: bool) -> String {
        let mut text = String::new();
        let session = self.to_json(id, opened_unix_s, is_beta);
        for (key, value) in session.as_object().into_iter().flatten() {
            match self.echoed.get(key.as_str()) {
                Some(echoed) => write_field(&mut text, key, echoed.get()),
                None => write_field(&mut text, key, &value.to_string()),
            }
        }
        for key in ["parallel_tool_calls", "reasoning"] {
            if let Some(echoed) = self.echoed.get(key).filter(|_| !is_beta && !self.is_transcription) {
                write_field(&mut text, key, echoed.get());
            }
        }
        text.push('}');
        text
    }

    /// The session with the defaults of the echoed settings.
    fn to_json(&self, id: &str, opened_unix_s: f64, is_beta: bool) -> Value {
        let expires_at = (opened_unix_s + SESSION_MAX_S) as u64;
        let transcription = self.transcription.as_ref().map(|transcription| &transcription.echoed);
        let turn_detection = match &self.turn_detection {
            Detection::Off => Value::Null,
            Detection::On { fields, .. } => Value::Object(fields.clone()),
        };
        let instructions = self.instructions.as_deref().unwrap_or_default();
        let modalities = if self.is_text_only { json!(["text"]) } else { json!(["audio"]) };
        if is_beta {
            let modalities = if self.is_text_only { json!(["text"]) } else { json!(["text", "audio"]) };
            return json!({
                "id": id, "object": "realtime.session", "model": self.model, "expires_at": expires_at,
                "modalities": modalities, "instructions": instructions, "voice": self.voice(),
                "input_audio_format": self.input.to_json(true),
                "output_audio_format": self.output.to_json(true),
                "input_audio_transcription": transcription, "turn_detection": turn_detection,
                "input_audio_noise_reduction": self.noise_reduction,
                "tools": [], "tool_choice": "auto", "temperature": 0.8,
                "max_response_output_tokens": self.max_output_tokens(),
            });
        }
        let input = json!({
            "format": self.input.to_json(false), "transcription": transcription,
            "noise_reduction": self.noise_reduction, "turn_detection": turn_detection,
        });
        if self.is_transcription {
            return json!({
                "type": "transcription", "object": "realtime.transcription_session", "id": id,
                "expires_at": expires_at, "include": null, "audio": { "input": input },
            });
        }
        let speed = if self.speed.is_null() { json!(1.0) } else { self.speed.clone() };
        json!({
            "type": "realtime", "object": "realtime.session", "id": id, "model": self.model,
            "expires_at": expires_at, "output_modalities": modalities, "instructions": instructions,
            "audio": {
                "input": input,
                "output": { "format": self.output.to_json(false), "voice": self.voice(), "speed": speed },
            },
            "tools": [], "tool_choice": "auto", "max_output_tokens": self.max_output_tokens(),
            "tracing": null, "truncation": "auto", "prompt": null, "include": null,
        })
    }
}
