//! Settings of audio: formats, voice, speed, transcription and ends of turns.

use serde_json::{Value, value::RawValue};

use super::{SessionConfig, WithoutEffect};
use crate::{
    client::{
        json_text::JsonKind as _,
        realtime::{
            detection::Detection,
            fields::{NAME_MAX_BYTES, read_object, read_small, wrong_type, wrong_value},
            format::AudioFormat,
            shape::{NOISE_REDUCTION, SPEED, Shape, TURN_DETECTION},
            transcription::Transcription,
        },
    },
    error::Error,
};

impl SessionConfig {
    /// `audio.input` and `audio.output`.
    pub(super) fn update_audio(
        &mut self,
        audio: &RawValue,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        let audio = read_object(audio, "session.audio")?;
        if let Some(input) = audio.given("input") {
            for (key, value) in read_object(input, "session.audio.input")?.iter() {
                self.update_input(key, value, &format!("session.audio.input.{key}"), ignored)?;
            }
        }
        let Some(output) = audio.given("output") else { return Ok(()) };
        for (key, value) in read_object(output, "session.audio.output")?.iter() {
            match key {
                "format" if value.get() != "null" => {
                    self.output =
                        AudioFormat::read(value, "session.audio.output.format", self.own_rate(true))?;
                }
                "sample_rate_hz" => {
                    self.output = self.output.with_rate(value, "session.audio.output.sample_rate_hz")?;
                }
                "voice" => self.set_voice(value, "session.audio.output.voice")?,
                "speed" => {
                    self.check_range(&SPEED, value, "session.audio.output.speed")?;
                    let speed = read_small(value, "session.audio.output.speed")?;
                    if speed.as_f64().is_some_and(|speed| speed != 1.0) {
                        ignored.note("audio.output.speed", "audio.output.speed".to_owned());
                    }
                    self.speed = speed;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn update_input(
        &mut self,
        key: &str,
        value: &RawValue,
        path: &str,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        match key {
            "format" if value.get() != "null" => {
                self.input = AudioFormat::read(value, path, self.own_rate(false))?;
            }
            "sample_rate_hz" => self.input = self.input.with_rate(value, path)?,
            "transcription" => {
                self.transcription = match value.kind() {
                    "null" => None,
                    "an object" => Some(Transcription::read(&read_object(value, path)?, path)?),
                    _ => return Err(wrong_type(path, "an object or null", value)),
                }
            }
            "noise_reduction" => {
                self.check_range(&NOISE_REDUCTION, value, path)?;
                self.noise_reduction = read_small(value, path)?;
                if !self.noise_reduction.is_null() {
                    ignored.note("audio.input.noise_reduction", path.to_owned());
                }
            }
            "turn_detection" => {
                self.check_range(&TURN_DETECTION, value, path)?;
                self.turn_detection = match read_small(value, path)? {
                    Value::Null => Detection::Off,
                    Value::Object(fields) => {
                        self.turn_detection.updated(&fields, path, &self.semantic_detection)?
                    }
                    other => return Err(wrong_type(path, "an object or null", &other)),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks a setting against OpenAI's type and range. Alibaba's settings have other ranges.
    pub(super) fn check_range(&self, shape: &Shape, value: &RawValue, path: &str) -> Result<(), Error> {
        if self.own_rates_hz.is_some() { Ok(()) } else { shape.check(value, path) }
    }

    pub(super) fn set_voice(&mut self, value: &RawValue, path: &str) -> Result<(), Error> {
        let voice = read_small(value, path)?;
        let name = voice.as_str().or_else(|| voice["id"].as_str());
        if !voice.is_null() && name.is_none() {
            return Err(wrong_type(path, "a string or an object with an id", value));
        }
        if name.is_some_and(|name| name.len() > NAME_MAX_BYTES) {
            return Err(wrong_value(path, &format!("a name of at most {NAME_MAX_BYTES} bytes")));
        }
        self.voice = voice;
        Ok(())
    }
}
