//! The client's settings: what `session.update` changes, and what `session.created` and `session.updated` echo.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value, json};

use super::{detection::Detection, format::AudioFormat, given, wrong_type, wrong_value};
use crate::{
    error::Error,
    event::{Setting, TurnDetection},
};

/// OpenAI's sessions end after an hour.
const SESSION_MAX_S: f64 = 3600.0;
/// Longest instructions, bytes: more than the model's context.
const TEXT_MAX_BYTES: usize = 64 * 1024;
/// Most items of `keywords`, and the longest of them.
const KEYWORDS_MAX: usize = 256;

/// Settings of an update that have no effect.
pub(super) struct WithoutEffect<'m> {
    /// Reason by the setting's path.
    reasons: &'m BTreeMap<String, String>,
    /// What the client gave, with the reason.
    pub(super) found: Vec<(String, &'m str)>,
}

impl<'m> WithoutEffect<'m> {
    pub(super) const fn new(reasons: &'m BTreeMap<String, String>) -> Self {
        Self { reasons, found: Vec::new() }
    }

    /// Notes a setting, as the client gave it.
    fn note(&mut self, path: &str, given: String) {
        let reason = self.reasons.get(path).map_or("voxbridge does not know it", String::as_str);
        self.found.push((given, reason));
    }
}

/// Settings of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionConfig {
    /// The session only transcribes.
    pub(super) is_transcription: bool,
    pub(super) model: String,
    instructions: Option<String>,
    /// Answers are written, not spoken.
    is_text_only: bool,
    pub(super) input: AudioFormat,
    pub(super) output: AudioFormat,
    transcription: Option<Map<String, Value>>,
    noise_reduction: Value,
    turn_detection: Detection,
    voice: Value,
    speed: Value,
    echoed: Map<String, Value>,
}

impl SessionConfig {
    /// True if the user's words are wanted.
    pub(super) const fn transcribes(&self) -> bool {
        self.is_transcription || self.transcription.is_some()
    }

    /// True if answers are spoken.
    pub(super) const fn speaks(&self) -> bool {
        !self.is_text_only
    }

    /// `voice` as the client gave it.
    pub(super) fn voice(&self) -> Value {
        if self.voice.is_null() { "alloy".into() } else { self.voice.clone() }
    }

    /// `voice` in a response, where clients expect its name or id.
    pub(super) fn voice_name(&self) -> Value {
        let voice = self.voice();
        if voice["id"].is_null() { voice } else { voice["id"].clone() }
    }

    /// Bound on an answer, in the client's spelling.
    pub(super) fn max_output_tokens(&self) -> Value {
        let own = ["max_output_tokens", "max_response_output_tokens"];
        own.iter().find_map(|key| self.echoed.get(*key)).cloned().unwrap_or_else(|| "inf".into())
    }

    /// Changes what the update names. On an error, nothing changes.
    pub(super) fn update(
        &mut self,
        update: &Map<String, Value>,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        let mut changed = self.clone();
        for (key, value) in update {
            changed.update_field(key, value, ignored)?;
        }
        *self = changed;
        Ok(())
    }

    fn update_field(
        &mut self,
        key: &str,
        value: &Value,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        match key {
            "type" => match value.as_str() {
                Some("realtime") => self.is_transcription = false,
                Some("transcription") => self.is_transcription = true,
                _ => return Err(wrong_value("session.type", "'realtime' or 'transcription'")),
            },
            "instructions" => self.instructions = read_text(value, "session.instructions")?,
            "output_modalities" | "modalities" => self.is_text_only = !read_modalities(value, &format!("session.{key}"))?,
            "audio" => self.update_audio(value, ignored)?,
            "voice" => self.set_voice(value, "session.voice")?,
            "input_audio_format" => self.input = AudioFormat::read(value, "session.input_audio_format")?,
            "output_audio_format" => self.output = AudioFormat::read(value, "session.output_audio_format")?,
            "input_audio_transcription" | "input_audio_noise_reduction" | "turn_detection" => {
                let path = format!("session.{key}");
                self.update_input(key.trim_start_matches("input_audio_"), value, &path, ignored)?;
            }
            "model" => {
                if let Some(model) = read_text(value, "session.model")?.filter(|model| *model != self.model) {
                    ignored.note(key, format!("model = {model:?}"));
                }
            }
            "id" | "object" | "client_secret" => {}
            _ => {
                if !is_empty(value) {
                    ignored.note(key, key.to_owned());
                }
                if ignored.reasons.contains_key(key) {
                    self.echoed.insert(key.to_owned(), value.clone());
                }
            }
        }
        Ok(())
    }

    /// `audio.input` and `audio.output`.
    fn update_audio(&mut self, audio: &Value, ignored: &mut WithoutEffect<'_>) -> Result<(), Error> {
        let audio = audio.as_object().ok_or_else(|| wrong_type("session.audio", "an object", audio))?;
        if let Some(input) = given(audio, "input") {
            let fields =
                input.as_object().ok_or_else(|| wrong_type("session.audio.input", "an object", input))?;
            for (key, value) in fields {
                self.update_input(key, value, &format!("session.audio.input.{key}"), ignored)?;
            }
        }
        let Some(output) = given(audio, "output") else { return Ok(()) };
        let fields =
            output.as_object().ok_or_else(|| wrong_type("session.audio.output", "an object", output))?;
        for (key, value) in fields {
            match key.as_str() {
                "format" if !value.is_null() => {
                    self.output = AudioFormat::read(value, "session.audio.output.format")?;
                }
                "voice" => self.set_voice(value, "session.audio.output.voice")?,
                "speed" => {
                    if value.as_f64().is_some_and(|speed| speed != 1.0) {
                        ignored.note("audio.output.speed", "audio.output.speed".to_owned());
                    }
                    self.speed = value.clone();
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn update_input(
        &mut self,
        key: &str,
        value: &Value,
        path: &str,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        match key {
            "format" if !value.is_null() => self.input = AudioFormat::read(value, path)?,
            "transcription" => {
                self.transcription = match value {
                    Value::Null => None,
                    Value::Object(fields) => Some(read_transcription(fields, path)?),
                    other => return Err(wrong_type(path, "an object or null", other)),
                }
            }
            "noise_reduction" => {
                if !value.is_null() {
                    ignored.note("audio.input.noise_reduction", path.to_owned());
                }
                self.noise_reduction = value.clone();
            }
            "turn_detection" => {
                self.turn_detection = match value {
                    Value::Null => Detection::Off,
                    Value::Object(fields) => self.turn_detection.updated(fields, path)?,
                    other => return Err(wrong_type(path, "an object or null", other)),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn set_voice(&mut self, value: &Value, path: &str) -> Result<(), Error> {
        if !value.is_null() && !value.is_string() && !value["id"].is_string() {
            return Err(wrong_type(path, "a string or an object with an id", value));
        }
        self.voice = value.clone();
        Ok(())
    }

    /// The settings as the session knows them.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let mut settings = vec![
            Setting::InputEncoding(self.input.encoding),
            Setting::InputRate(self.input.rate_hz),
            Setting::OutputEncoding(self.output.encoding),
            Setting::OutputRate(self.output.rate_hz),
            Setting::SpokenAnswers(self.speaks()),
            Setting::TranscribeUser(self.transcribes()),
        ];
        settings.extend(self.instructions.clone().map(Setting::Instructions));
        let voice = self.voice.as_str().or_else(|| self.voice["id"].as_str());
        settings.extend(voice.map(|voice| Setting::SpeakModelIfKnown(voice.to_owned())));
        let flag =
            |fields: &Map<String, Value>, key: &str| fields.get(key).and_then(Value::as_bool).unwrap_or(true);
        settings.push(Setting::TurnDetection(match &self.turn_detection {
            Detection::Off => TurnDetection { is_automatic: false, answers: false, interrupts: false },
            Detection::On { fields, .. } => TurnDetection {
                is_automatic: true,
                answers: flag(fields, "create_response") && !self.is_transcription,
                interrupts: flag(fields, "interrupt_response"),
            },
        }));
        if let Detection::On { end_silence_ms, sensitivity, .. } = &self.turn_detection {
            settings.push(Setting::EndSilence(Duration::from_millis(*end_silence_ms)));
            settings.push(Setting::VadSensitivity(*sensitivity));
        }
        if let Some(transcription) = &self.transcription {
            let text = |key: &str| transcription.get(key).and_then(Value::as_str).map(str::to_owned);
            settings.extend(text("language").map(Setting::Language));
            settings.push(Setting::HotWords(hot_words(transcription)));
        }
        settings
    }

    /// The whole session, as the client gets it.
    pub(super) fn to_json(&self, id: &str, opened_unix_s: f64, is_beta: bool) -> Value {
        let expires_at = (opened_unix_s + SESSION_MAX_S) as u64;
        let transcription = self.transcription.as_ref().map(|fields| {
            let known =
                |(key, _): &(&String, &Value)| ["model", "language", "prompt"].contains(&key.as_str());
            let fields = fields.iter().filter(known).map(|(key, value)| (key.clone(), value.clone()));
            Value::Object(fields.collect())
        });
        let turn_detection = match &self.turn_detection {
            Detection::Off => Value::Null,
            Detection::On { fields, .. } => Value::Object(fields.clone()),
        };
        let echo = |key: &str, default: Value| self.echoed.get(key).cloned().unwrap_or(default);
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
                "tools": echo("tools", json!([])), "tool_choice": echo("tool_choice", "auto".into()),
                "temperature": echo("temperature", json!(0.8)),
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
                "expires_at": expires_at, "include": echo("include", Value::Null), "audio": { "input": input },
            });
        }
        let speed = if self.speed.is_null() { json!(1.0) } else { self.speed.clone() };
        let mut session = json!({
            "type": "realtime", "object": "realtime.session", "id": id, "model": self.model,
            "expires_at": expires_at, "output_modalities": modalities, "instructions": instructions,
            "audio": {
                "input": input,
                "output": { "format": self.output.to_json(false), "voice": self.voice(), "speed": speed },
            },
            "tools": echo("tools", json!([])), "tool_choice": echo("tool_choice", "auto".into()),
            "max_output_tokens": self.max_output_tokens(), "tracing": echo("tracing", Value::Null),
            "truncation": echo("truncation", "auto".into()), "prompt": echo("prompt", Value::Null),
            "include": echo("include", Value::Null),
        });
        for key in ["parallel_tool_calls", "reasoning"] {
            if let Some(value) = self.echoed.get(key) {
                session[key] = value.clone();
            }
        }
        session
    }
}

fn read_text(value: &Value, path: &str) -> Result<Option<String>, Error> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.len() > TEXT_MAX_BYTES => {
            Err(wrong_value(path, &format!("at most {TEXT_MAX_BYTES} bytes")))
        }
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(wrong_type(path, "a string", other)),
    }
}

/// True if the modalities include audio.
pub(super) fn read_modalities(value: &Value, path: &str) -> Result<bool, Error> {
    let names = value.as_array().ok_or_else(|| wrong_type(path, "an array", value))?;
    let is_known = |name: &Value| matches!(name.as_str(), Some("audio" | "text"));
    if names.is_empty() || !names.iter().all(is_known) {
        return Err(wrong_value(path, "['audio'] or ['text']"));
    }
    Ok(names.iter().any(|name| name == "audio"))
}

/// Checks `transcription`: its texts are texts.
fn read_transcription(fields: &Map<String, Value>, path: &str) -> Result<Map<String, Value>, Error> {
    for key in ["model", "language", "prompt"] {
        if let Some(value) = given(fields, key).filter(|value| !value.is_string()) {
            return Err(wrong_type(&format!("{path}.{key}"), "a string", value));
        }
    }
    Ok(fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect())
}

/// Words that the user may say: `keywords`, and `prompt`, which is a list of words too with OpenAI's whisper.
fn hot_words(transcription: &Map<String, Value>) -> Vec<String> {
    let prompt = transcription.get("prompt").and_then(Value::as_str).filter(|prompt| !prompt.is_empty());
    let keywords = transcription.get("keywords").and_then(Value::as_array);
    let keywords = keywords.into_iter().flatten().filter_map(Value::as_str);
    let words = prompt.into_iter().chain(keywords).take(KEYWORDS_MAX);
    words.map(|word| word.chars().take(KEYWORDS_MAX).collect()).collect()
}

/// True for values that ask for nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => matches!(text.as_str(), "auto" | "inf" | "none"),
        _ => false,
    }
}
