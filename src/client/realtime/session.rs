//! The client's settings: what `session.update` changes, and what `session.created` and `session.updated` echo.

mod audio;
mod views;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, value::RawValue};

use super::{
    detection::Detection,
    fields::{NAME_MAX_BYTES, TEXT_MAX_BYTES, read_array, read_small, read_text, shortened, wrong_value},
    format::AudioFormat,
    shape::{MAX_OUTPUT_TOKENS, check_setting},
    tool_servers::{DeclaredServer, MCP, ServerTool, without_secrets},
    tools::{ReadTools, TOOL_FIELDS, settle_choice, update_offer},
    transcription::Transcription,
};
use crate::{
    client::json_text::{Fields, read_str},
    error::Error,
    vocabulary::ToolOffer,
};

/// Settings that are echoed as the client gave them. Of these, only those of tools and `temperature` have an effect.
const ECHOED: [&str; 9] = [
    "tools",
    "tool_choice",
    "temperature",
    "tracing",
    "truncation",
    "prompt",
    "include",
    "parallel_tool_calls",
    "reasoning",
];
/// Echoed settings together, bytes.
const ECHOED_MAX_BYTES: usize = 256 * 1024;

/// Settings of an update that have no effect.
pub(super) struct WithoutEffect<'m> {
    /// Reason by the setting's path.
    reasons: &'m BTreeMap<String, String>,
    /// The settings that the client gave, each with the reason.
    pub(super) found: Vec<(String, &'m str)>,
}

impl<'m> WithoutEffect<'m> {
    pub(super) const fn new(reasons: &'m BTreeMap<String, String>) -> Self {
        Self { reasons, found: Vec::new() }
    }

    /// Notes a setting, as the client gave it.
    pub(super) fn note(&mut self, path: &str, given: String) {
        let reason = self.reasons.get(path).map_or("voxbridge does not know it", String::as_str);
        self.found.push((given, reason));
    }
}

/// Settings of one connection.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct SessionConfig {
    /// The session only transcribes.
    pub(super) is_transcription: bool,
    pub(super) model: String,
    instructions: Option<String>,
    /// Answers are written, not spoken.
    is_text_only: bool,
    pub(in crate::client) input: AudioFormat,
    pub(in crate::client) output: AudioFormat,
    /// Rates of the protocol's linear audio, from the client and to it; `None` for OpenAI's.
    own_rates_hz: Option<(u32, u32)>,
    /// Types of `turn_detection` that mean the same as `semantic_vad`.
    pub(super) semantic_detection: Vec<String>,
    transcription: Option<Transcription>,
    noise_reduction: Value,
    turn_detection: Detection,
    voice: Value,
    speed: Value,
    max_output_tokens: Option<Value>,
    temperature: Option<f64>,
    /// Tools that the model may call.
    pub(super) tools: ToolOffer,
    /// The profile or the protocol has no calls.
    pub(super) refuses_tools: bool,
    /// The protocol has tool servers of clients.
    pub(super) takes_tool_servers: bool,
    /// Tool servers that the client names.
    pub(super) tool_servers: Vec<DeclaredServer>,
    /// Tools of these servers that the model may call.
    pub(super) server_tools: Arc<[ServerTool]>,
    /// Settings of [`ECHOED`], as their text.
    echoed: BTreeMap<&'static str, Box<RawValue>>,
}

impl SessionConfig {
    /// Sets the rates of linear audio for which the client gives no rate.
    pub(super) const fn set_own_rates(&mut self, input_hz: u32, output_hz: u32) {
        self.own_rates_hz = Some((input_hz, output_hz));
        self.input = AudioFormat::linear(input_hz);
        self.output = AudioFormat::linear(output_hz);
    }

    fn own_rate(&self, is_output: bool) -> Option<u32> {
        self.own_rates_hz.map(|(input_hz, output_hz)| if is_output { output_hz } else { input_hz })
    }

    /// True if the user's words are wanted.
    pub(super) const fn transcribes(&self) -> bool {
        self.is_transcription || self.transcription.is_some()
    }

    /// True if answers are spoken.
    pub(in crate::client) const fn speaks(&self) -> bool {
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
        self.max_output_tokens.clone().unwrap_or_else(|| "inf".into())
    }

    /// Memory of the texts that the client gave, bytes.
    pub(super) fn bytes(&self) -> usize {
        let servers = self.tool_servers.iter().map(|declared| declared.server.bytes());
        self.instructions.as_ref().map_or(0, String::len)
            + self.echoed_bytes()
            + self.tools.bytes()
            + servers.sum::<usize>()
    }

    fn echoed_bytes(&self) -> usize {
        self.echoed.values().map(|value| value.get().len()).sum()
    }

    /// Changes what the update names. On an error, nothing changes.
    pub(super) fn update(
        &mut self,
        update: &Fields<'_>,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        let mut changed = self.clone();
        for (key, value) in update.iter() {
            changed.update_field(key, value, ignored)?;
        }
        let gives_choice = update.given("tool_choice").is_some();
        let is_of_server = |name: &str| changed.server_tools.iter().any(|tool| tool.offered.name == name);
        if settle_choice(&mut changed.tools, is_of_server, gives_choice, "session.tool_choice")? {
            changed.echoed.remove("tool_choice");
        }
        *self = changed;
        Ok(())
    }

    fn update_field(
        &mut self,
        key: &str,
        value: &RawValue,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        match key {
            "type" => match read_str(value).as_deref() {
                Some("realtime") => self.is_transcription = false,
                Some("transcription") => self.is_transcription = true,
                _ => return Err(wrong_value("session.type", "'realtime' or 'transcription'")),
            },
            "instructions" => {
                self.instructions = read_optional(value, "session.instructions", TEXT_MAX_BYTES)?;
            }
            "output_modalities" | "modalities" => {
                self.is_text_only = !read_modalities(value, &format!("session.{key}"))?;
            }
            "audio" => self.update_audio(value, ignored)?,
            "voice" => self.set_voice(value, "session.voice")?,
            "input_audio_format" => {
                self.input = AudioFormat::read(value, "session.input_audio_format", self.own_rate(false))?;
            }
            "output_audio_format" => {
                self.output = AudioFormat::read(value, "session.output_audio_format", self.own_rate(true))?;
            }
            "input_audio_transcription" | "input_audio_noise_reduction" | "turn_detection" => {
                let path = format!("session.{key}");
                self.update_input(key.trim_start_matches("input_audio_"), value, &path, ignored)?;
            }
            "model" => {
                let model = read_optional(value, "session.model", NAME_MAX_BYTES)?;
                if let Some(model) = model.filter(|model| *model != self.model) {
                    ignored.note(key, format!("model = {model:?}"));
                }
            }
            "max_output_tokens" | "max_response_output_tokens" => {
                let path = format!("session.{key}");
                self.check_range(&MAX_OUTPUT_TOKENS, value, &path)?;
                self.max_output_tokens = Some(read_small(value, &path)?).filter(|max| !max.is_null());
            }
            "temperature" => {
                self.temperature = read_temperature(value, "session.temperature")?;
                self.echo(key, value, "session.temperature")?;
            }
            // vLLM-Omni's, and Alibaba's.
            "sample_rate_hz" => self.input = self.input.with_rate(value, "session.sample_rate_hz")?,
            "sample_rate" if self.own_rates_hz.is_some() => {
                self.input = self.input.with_rate(value, "session.sample_rate")?;
            }
            "id" | "object" | "client_secret" => {}
            _ if TOOL_FIELDS.contains(&key) && !self.refuses_tools => {
                self.update_tools(key, value, ignored)?;
            }
            _ => return self.update_without_effect(key, value, ignored),
        }
        Ok(())
    }

    fn update_tools(
        &mut self,
        key: &str,
        value: &RawValue,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        let path = format!("session.{key}");
        let ReadTools { left_out, servers } =
            update_offer(&mut self.tools, key, value, &path, &self.server_tools)?;
        for kind in left_out {
            ignored.note("tools", format!("{path} of type {kind:?}"));
        }
        if key != "tools" {
            return self.echo(key, value, &path);
        }
        if !self.takes_tool_servers && !servers.is_empty() {
            ignored.note("tools", format!("{path} of type {MCP:?}"));
        } else {
            self.tool_servers = servers;
        }
        self.echo(key, &without_secrets(value, &path)?, &path)
    }

    /// Sets the tools of the client's servers. A choice of a tool that is gone ends.
    pub(super) fn set_server_tools(&mut self, tools: Arc<[ServerTool]>) {
        self.server_tools = tools;
        let is_of_server = |name: &str| self.server_tools.iter().any(|tool| tool.offered.name == name);
        // Never an error, because the choice was good when it was given.
        _ = settle_choice(&mut self.tools, is_of_server, false, "session.tool_choice");
    }

    /// The tools that the model may call: the client's, and behind them those of its servers.
    pub(super) fn offer(&self) -> ToolOffer {
        let mut offer = self.tools.clone();
        if !self.server_tools.is_empty() {
            let of_servers = self.server_tools.iter().map(|tool| &tool.offered);
            offer.tools = offer.tools.iter().chain(of_servers).cloned().collect();
        }
        offer
    }

    /// Notes a setting without effect, and keeps it if it is echoed.
    fn update_without_effect(
        &mut self,
        key: &str,
        value: &RawValue,
        ignored: &mut WithoutEffect<'_>,
    ) -> Result<(), Error> {
        let path = format!("session.{}", shortened(key));
        if key == "tool_choice" {
            check_tool_choice(value, &path)?;
        }
        check_setting(key, value, &path)?;
        if !is_empty(value) {
            ignored.note(key, shortened(key));
        }
        self.echo(key, value, &path)
    }

    /// Keeps a setting if it is echoed.
    fn echo(&mut self, key: &str, value: &RawValue, path: &str) -> Result<(), Error> {
        if let Some(key) = ECHOED.into_iter().find(|echoed| *echoed == key) {
            self.echoed.insert(key, value.to_owned());
            if self.echoed_bytes() > ECHOED_MAX_BYTES {
                let bounds = format!("at most {ECHOED_MAX_BYTES} bytes of such settings");
                return Err(wrong_value(path, &bounds));
            }
        }
        Ok(())
    }
}

/// Reads a text of at most `max_bytes`, or null.
fn read_optional(value: &RawValue, path: &str, max_bytes: usize) -> Result<Option<String>, Error> {
    (value.get() != "null").then(|| read_text(value, path, max_bytes)).transpose()
}

/// A bound on an answer, in tokens; `None` for `inf`.
pub(super) fn max_tokens(bound: &Value) -> Option<u32> {
    bound.as_u64().map(|max| u32::try_from(max).unwrap_or(u32::MAX).max(1))
}

/// Reads a sampling temperature, or null.
pub(super) fn read_temperature(value: &RawValue, path: &str) -> Result<Option<f64>, Error> {
    match read_small(value, path)? {
        Value::Null => Ok(None),
        number => match number.as_f64().filter(|temperature| (0.0..=2.0).contains(temperature)) {
            Some(temperature) => Ok(Some(temperature)),
            None => Err(wrong_value(path, "a number from 0 to 2")),
        },
    }
}

/// Rejects a choice that requires a tool call, where none can be made.
pub(super) fn check_tool_choice(choice: &RawValue, path: &str) -> Result<(), Error> {
    match read_small(choice, path)?.as_str() {
        Some("auto" | "none") => Ok(()),
        None if choice.get() == "null" => Ok(()),
        _ => Err(wrong_value(path, "'auto' or 'none', because the model calls no tools here")),
    }
}

/// True if the modalities include audio.
pub(super) fn read_modalities(value: &RawValue, path: &str) -> Result<bool, Error> {
    let names = read_array(value, path, 2)?.into_iter().map(read_str);
    let names: Option<Vec<_>> = names.collect();
    let is_known =
        |names: &Vec<_>| !names.is_empty() && names.iter().all(|name| name == "audio" || name == "text");
    let names = names.filter(is_known).ok_or_else(|| wrong_value(path, "['audio'] or ['text']"))?;
    Ok(names.iter().any(|name| name == "audio"))
}

/// True for values that ask for nothing.
fn is_empty(value: &RawValue) -> bool {
    matches!(value.get(), "null" | "[]" | r#""auto""# | r#""inf""# | r#""none""#)
}
