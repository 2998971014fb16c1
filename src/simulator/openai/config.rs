//! A session's configuration: what a client may ask for, and what is granted.

use serde_json::{Map, Value, json};

use super::{schema::wrong_word, turn_detector::DetectorConfig, wire::Rejected};
use crate::{RealtimeServer, messages::object};

/// Instructions of a session that has none of its own, as OpenAI shows them.
const INSTRUCTIONS: &str =
    "You are a helpful, witty, and friendly AI. Act like a human, but remember that you aren't a human.";

/// OpenAI's voices.
const VOICES: [&str; 10] =
    ["alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"];

/// Pause that ends the user's speech, in ms, by the eagerness of `semantic_vad`.
const SEMANTIC_PAUSES_MS: [(&str, u64); 3] = [("high", 300), ("low", 1000), ("", 500)];

/// Configuration of one session, as `session.created` shows it.
#[derive(Debug)]
pub(super) struct SessionConfig {
    server: RealtimeServer,
    session: Map<String, Value>,
}

/// Settings of one response: the session's, or its own.
#[derive(Debug, Clone)]
pub(super) struct ResponseConfig {
    pub(super) modalities: Value,
    pub(super) instructions: String,
    pub(super) max_output_tokens: Value,
    pub(super) tools: Vec<Value>,
    pub(super) tool_choice: Value,
    pub(super) metadata: Value,
    pub(super) output: Value,
}

impl SessionConfig {
    pub(super) fn new(server: RealtimeServer, is_transcription: bool) -> Self {
        let format = json!({"type": "audio/pcm", "rate": 24000});
        let detection = json!({
            "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500,
            "idle_timeout_ms": null, "create_response": true, "interrupt_response": true,
        });
        let input = json!({
            "format": format, "transcription": null, "noise_reduction": null,
            "turn_detection": if server == RealtimeServer::Openai { detection } else { Value::Null },
        });
        let session = match server {
            RealtimeServer::Openai if is_transcription => {
                json!({"type": "transcription", "audio": {"input": input}, "include": null})
            }
            RealtimeServer::Openai => json!({
                "type": "realtime", "model": super::pages::OPENAI_MODEL, "output_modalities": ["audio"],
                "instructions": INSTRUCTIONS, "tools": [], "tool_choice": "auto", "max_output_tokens": "inf",
                "tracing": null, "truncation": "auto", "prompt": null, "include": null,
                "audio": {"input": input, "output": {"format": format, "voice": "marin", "speed": 1.0}},
            }),
            RealtimeServer::VllmOmni => json!({
                "type": "realtime", "model": super::pages::VLLM_MODEL, "output_modalities": ["audio"],
                "max_output_tokens": "inf", "truncation": "auto",
                "audio": {"input": input, "output": {"format": format}},
            }),
        };
        Self { server, session: object(session) }
    }

    pub(super) fn is_transcription(&self) -> bool {
        self.session["type"] == "transcription"
    }

    /// The session of an event.
    pub(super) fn to_json(&self, id: &str, expires_at: u64) -> Value {
        let object =
            if self.is_transcription() { "realtime.transcription_session" } else { "realtime.session" };
        let mut session = self.session.clone();
        session.insert("object".to_owned(), object.into());
        session.insert("id".to_owned(), id.into());
        session.insert("expires_at".to_owned(), expires_at.into());
        session.into()
    }

    /// Takes over the patch of a `session.update`, or refuses it as a whole.
    pub(super) fn update(&mut self, patch: &Map<String, Value>, has_spoken: bool) -> Result<(), Rejected> {
        let mut session = self.session.clone();
        merge(&mut session, patch);
        match self.server {
            RealtimeServer::Openai => self.check_openai(&mut session, patch, has_spoken)?,
            RealtimeServer::VllmOmni => self.check_vllm(&mut session, patch)?,
        }
        self.session = session;
        Ok(())
    }

    fn check_openai(
        &self,
        session: &mut Map<String, Value>,
        patch: &Map<String, Value>,
        has_spoken: bool,
    ) -> Result<(), Rejected> {
        if session["type"] != self.session["type"] {
            let (given, own) = (&session["type"], &self.session["type"]);
            let words = format!("Passing a {given} session update event to a {own} session is not allowed.");
            return Err(Rejected::new("invalid_parameter", words.replace('"', "")));
        }
        if patch.get("model").is_some_and(|model| *model != self.session["model"]) {
            let words = "Cannot update the model of a session.";
            return Err(Rejected::new("invalid_value", words).at("session.model"));
        }
        let voice = |session: &Map<String, Value>| session["audio"]["output"]["voice"].clone();
        if has_spoken && voice(session) != voice(&self.session) {
            let words = "Cannot update a conversation's voice if assistant audio is present.";
            return Err(Rejected::new("cannot_update_voice", words));
        }
        if let Some(name) = voice(session).as_str().filter(|name| !VOICES.contains(name)) {
            return Err(wrong_word(name, &VOICES, "session.audio.output.voice"));
        }
        check_modalities(session.get("output_modalities"), "session.output_modalities")?;
        for direction in ["input", "output"] {
            let format = patch.get("audio").and_then(|audio| audio.get(direction)?.get("format"));
            check_format(format, &format!("session.audio.{direction}.format"))?;
        }
        complete_detection(&mut session["audio"]["input"]["turn_detection"]);
        Ok(())
    }

    fn check_vllm(
        &self,
        session: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), Rejected> {
        // The handler reads `audio.output` of a session that has none.
        if session["type"] == "transcription" && patch.contains_key("audio") {
            return Err(Rejected::server("Internal server error"));
        }
        session.insert("model".to_owned(), self.session["model"].clone());
        if let Some(Value::Array(tools)) = session.get_mut("tools") {
            tools.retain(|tool| tool["type"] != "mcp");
        }
        // Accepted without effect.
        let input = &mut session["audio"]["input"];
        (input["transcription"], input["noise_reduction"]) = (Value::Null, Value::Null);
        session["audio"]["output"].as_object_mut().map(|output| output.remove("speed"));
        for (direction, words) in [("input", "input"), ("output", "output")] {
            if session["audio"][direction]["format"]["type"] != "audio/pcm" {
                let words = format!("Only 24 kHz PCM16 {words} audio is supported");
                return Err(Rejected::new("unsupported_audio_format", words));
            }
        }
        if session["audio"]["input"]["turn_detection"]["type"] == "semantic_vad" {
            let words = "Only server_vad turn detection is supported";
            return Err(Rejected::new("unsupported_turn_detection", words));
        }
        Ok(())
    }

    /// How the server finds turns; `None` if the client ends them.
    pub(super) fn detector(&self) -> Option<DetectorConfig> {
        let detection = self.session["audio"]["input"]["turn_detection"].as_object()?;
        let number = |key: &str| detection.get(key).and_then(Value::as_u64);
        let flag = |key: &str| detection.get(key).and_then(Value::as_bool).unwrap_or(true);
        let eagerness = detection.get("eagerness").and_then(Value::as_str).unwrap_or_default();
        let known = SEMANTIC_PAUSES_MS.into_iter().find(|(name, _)| *name == eagerness || name.is_empty());
        Some(DetectorConfig {
            prefix_ms: number("prefix_padding_ms").unwrap_or(300),
            silence_ms: number("silence_duration_ms").unwrap_or(known.map_or(500, |(_, pause)| pause)),
            creates_response: flag("create_response") && !self.is_transcription(),
            interrupts_response: flag("interrupt_response"),
        })
    }

    /// True if the words of the user's audio are asked for.
    pub(super) fn transcribes(&self) -> bool {
        self.session["audio"]["input"]["transcription"].is_object()
    }

    /// Settings of a response, with those of its own.
    pub(super) fn response(&self, own: &Map<String, Value>) -> Result<ResponseConfig, Rejected> {
        let setting = |key: &str| {
            let own = own.get(key).filter(|value| !value.is_null());
            own.or_else(|| self.session.get(key)).cloned().unwrap_or_default()
        };
        let own_output = own.get("audio").and_then(|audio| audio.get("output"));
        let mut output = self.session["audio"]["output"].clone();
        if let (Some(Value::Object(own)), Value::Object(output)) = (own_output, &mut output) {
            check_format(own.get("format"), "response.audio.output.format").map_err(|rejected| {
                let words = "Only 24 kHz PCM16 output audio is supported";
                if self.server == RealtimeServer::Openai {
                    rejected
                } else {
                    Rejected::new("unsupported_audio_format", words)
                }
            })?;
            merge(output, own);
        }
        let modalities = setting("output_modalities");
        if self.server == RealtimeServer::Openai {
            check_modalities(Some(&modalities), "response.output_modalities")?;
        }
        Ok(ResponseConfig {
            modalities,
            instructions: setting("instructions").as_str().unwrap_or_default().to_owned(),
            max_output_tokens: setting("max_output_tokens"),
            tools: setting("tools").as_array().cloned().unwrap_or_default(),
            tool_choice: setting("tool_choice"),
            metadata: own.get("metadata").cloned().unwrap_or_default(),
            output,
        })
    }
}

impl ResponseConfig {
    pub(super) fn speaks(&self) -> bool {
        self.modalities.as_array().is_some_and(|modalities| modalities.iter().any(|name| name == "audio"))
    }
}

/// OpenAI gives audio with its words, or text.
fn check_modalities(modalities: Option<&Value>, path: &str) -> Result<(), Rejected> {
    let Some(modalities) = modalities else { return Ok(()) };
    if *modalities == json!(["audio"]) || *modalities == json!(["text"]) {
        return Ok(());
    }
    let words =
        format!("Invalid modalities: {modalities}. Supported combinations are: ['text'] and ['audio'].");
    Err(Rejected::new("invalid_value", words.replace('"', "'")).at(path))
}

/// OpenAI demands the rate of PCM. The simulator makes no other audio.
fn check_format(format: Option<&Value>, path: &str) -> Result<(), Rejected> {
    let Some(format) = format else { return Ok(()) };
    if format["type"] != "audio/pcm" {
        return Err(Rejected::new("invalid_value", "The simulator has audio/pcm only.").at(path));
    }
    if format.get("rate").is_none() {
        let words = format!("Missing required parameter: '{path}.rate'.");
        return Err(Rejected::new("missing_required_parameter", words).at(format!("{path}.rate")));
    }
    Ok(())
}

/// Adds the defaults that OpenAI shows.
fn complete_detection(detection: &mut Value) {
    let defaults = match detection["type"].as_str() {
        Some("server_vad") => json!({
            "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500, "idle_timeout_ms": null,
            "create_response": true, "interrupt_response": true,
        }),
        Some(_) => json!({"eagerness": "auto", "create_response": true, "interrupt_response": true}),
        None => return,
    };
    for (key, value) in object(defaults) {
        if detection.get(&key).is_none() {
            detection[key] = value;
        }
    }
}

/// Merges a patch: what is absent stays, and objects of another type are replaced.
fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match (into.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(value))
                if known.get("type") == value.get("type") && key != "tool_choice" =>
            {
                merge(known, value);
            }
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}
