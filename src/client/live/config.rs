//! Configuration of a session of OpenAI's Live protocol: `session` of `session.start` and `session.update`, and what follows from
//! who does the work that the model delegates. MiniCPM-o delegates none.

use std::{borrow::Cow, time::Duration};

use serde_json::{Map, Value, value::RawValue};

use crate::{
    audio::encoding::Encoding,
    client::json_text::{Fields, read_str},
    error::{Error, ErrorKind},
    named_enum::named_enum,
    vocabulary::{Setting, SpeechModel},
};

/// Longest `session`, bytes: more than the model's context.
const SESSION_MAX_BYTES: usize = 64 * 1024;
/// Longest `audio` in it, bytes.
const AUDIO_MAX_BYTES: usize = 1024;
/// Length of OpenAI's sessions, s.
const SESSION_MAX_S: u64 = 3600;
/// Fields that MiniCPM-o has no use for.
const WITHOUT_EFFECT: [&str; 4] = ["delegation", "input", "store", "triggers"];
/// Fields that only sessions by WebRTC have.
const OF_CALLS: [&str; 3] = ["client", "idle_timeout_s", "wake_policy"];

named_enum! {
    /// The one who does the work that the model delegates.
    enum Delegation {
        Client = "client",
        Responses = "responses",
        Decisions = "decisions",
    }
}

impl Delegation {
    /// Reads the `delegation` of a session; the client's application without one.
    fn of(delegation: Option<&RawValue>) -> Result<Self, Error> {
        let Some(delegation) = delegation else { return Ok(Self::Client) };
        let fields = Fields::read(delegation);
        let name = fields.as_ref().and_then(|fields| fields.given("type")).and_then(read_str);
        Self::ALL.into_iter().find(|kind| name.as_deref() == Some(kind.name())).ok_or_else(|| {
            let detail =
                "Invalid value for 'session.delegation.type': expected client, responses or decisions.";
            Error::new(ErrorKind::Invalid, detail).of_field("session.delegation.type")
        })
    }
}

/// Configuration of one session.
#[derive(Debug)]
pub(super) struct LiveConfig {
    /// `session` as JSON.
    json: Box<str>,
    delegation: Delegation,
    /// Encoding of the client's audio.
    pub(super) encoding: Encoding,
    /// Fields that were given and have no effect.
    pub(super) without_effect: Vec<&'static str>,
    /// The client gave instructions.
    pub(super) has_instructions: bool,
}

impl LiveConfig {
    /// Reads the first configuration, and what it sets.
    ///
    /// # Errors
    /// A value that the protocol does not have, or a field of another transport.
    pub(super) fn read(session: &RawValue, is_call: bool) -> Result<(Self, Vec<Setting>), Error> {
        let json = session.get();
        let fields = Fields::read(session).ok_or_else(|| invalid("'session' must be an object"))?;
        let audio = fields.given("audio").map_or("null", RawValue::get);
        if json.len() > SESSION_MAX_BYTES || audio.len() > AUDIO_MAX_BYTES {
            return Err(invalid("'session' is longer than 65536 bytes, or 'session.audio' than 1024 bytes"));
        }
        let audio: Value = serde_json::from_str(audio).unwrap_or_default();
        let stray = OF_CALLS.into_iter().find(|key| !is_call && fields.get(key).is_some());
        let stray = stray.or_else(|| Some("audio.format").filter(|_| is_call && !audio["format"].is_null()));
        if let Some(key) = stray {
            return Err(unknown_field(key));
        }
        let delegation = Delegation::of(fields.given("delegation"))?;
        let (encoding, mut settings) = audio_settings(&audio["format"], is_call)?;
        let voice = &audio["output"]["voice"];
        let voice = voice.as_str().or_else(|| voice["id"].as_str());
        settings.extend(voice.map(|voice| Setting::SpeakModel(SpeechModel::if_known(voice))));
        settings.extend(voice.map(|voice| Setting::Voice(voice.to_owned())));
        let instructions =
            fields.get("instructions").and_then(read_str).filter(|text| !text.trim().is_empty());
        let has_instructions = instructions.is_some();
        settings.extend(instructions.map(|text| Setting::Instructions(text.into_owned())));
        settings.push(Setting::TranscribeUser(true));
        let pause = read_idle_pause(&fields)?;
        settings.extend(pause.map(Setting::IdlePause));
        let has_effect = |key: &str| match key {
            "delegation" => delegation != Delegation::Client,
            key => !matches!(fields.given(key).map(RawValue::get), None | Some("false" | "[]")),
        };
        let mut without_effect: Vec<_> = WITHOUT_EFFECT.into_iter().filter(|key| has_effect(key)).collect();
        without_effect
            .extend(Some("idle_timeout_s").filter(|key| pause.is_none() && fields.given(key).is_some()));
        without_effect.extend(
            fields
                .given("wake_policy")
                .and_then(Fields::read)
                .and_then(|wake| wake.given("vad_threshold").map(|_| "wake_policy.vad_threshold")),
        );
        Ok((Self { json: json.into(), delegation, encoding, without_effect, has_instructions }, settings))
    }

    /// Changes the delegation or the triggers, the only fields that may change. Omitted settings stay.
    ///
    /// # Errors
    /// Another field, or another owner of delegated work.
    pub(super) fn update(&mut self, update: &RawValue) -> Result<(), Error> {
        let update = Fields::read(update).ok_or_else(|| invalid("'session' must be an object"))?;
        let mut session = self.fields();
        for (key, value) in update.iter() {
            match key {
                _ if value.get().len() > SESSION_MAX_BYTES => return Err(too_long()),
                "triggers" => drop(session.insert(key.to_owned(), parse(value))),
                "delegation" if value.get() == "null" => {}
                "delegation" => {
                    if Delegation::of(Some(value))? != self.delegation {
                        let detail = "'session.delegation.type' cannot change";
                        return Err(invalid(detail).of_field("session.delegation.type"));
                    }
                    merge(&mut session["delegation"], parse(value), true);
                }
                key => return Err(unknown_field(key)),
            }
        }
        let json = Value::Object(session).to_string();
        if json.len() > SESSION_MAX_BYTES {
            return Err(too_long());
        }
        self.json = json.into();
        Ok(())
    }

    /// The configuration with its defaults.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut session: Map<String, Value> = serde_json::from_str(&self.json).unwrap_or_default();
        session.entry("model").or_insert_with(|| "gpt-live-1".into());
        let delegation = session.entry("delegation").or_insert(Value::Null);
        if delegation.is_null() {
            *delegation = serde_json::json!({ "type": self.delegation.name() });
        }
        session
    }

    /// Checks a text for the model. No text belongs to delegated work, because the model delegates none.
    ///
    /// # Errors
    /// No text, or the id of a delegation.
    pub(super) fn check_append(&self, message: &Fields<'_>) -> Result<(), Error> {
        if message.given("content").and_then(read_str).is_none() {
            return Err(invalid("Missing required parameter: 'content'.").of_field("content"));
        }
        let Some(id) = message.given("delegation_id") else { return Ok(()) };
        let detail = match self.delegation {
            Delegation::Responses => "'delegation_id' must be null with Responses delegation".to_owned(),
            _ => format!("There is no delegation {}", id.get().chars().take(64).collect::<String>()),
        };
        Err(invalid(detail).of_field("delegation_id"))
    }

    /// The error of a command for the model to which work is delegated.
    pub(super) fn backend_error(&self, command: &str) -> Error {
        let owner =
            if command.starts_with("decision.") { Delegation::Decisions } else { Delegation::Responses };
        let detail = match owner {
            _ if owner == self.delegation => {
                format!("{command}: the session has no backend model, because MiniCPM-o delegates no work.")
            }
            Delegation::Decisions => format!("{command} requires Decisions delegation."),
            _ => format!("{command} requires Responses delegation."),
        };
        invalid(detail).of_field("type")
    }
}

/// Time without speech after which the session is paused, until the user speaks; `None` for never.
fn read_idle_pause(session: &Fields<'_>) -> Result<Option<Duration>, Error> {
    let wakes_by_speech = match session.given("wake_policy") {
        None => false,
        Some(policy) => {
            let kind = Fields::read(policy)
                .and_then(|policy| policy.given("type").and_then(read_str).map(Cow::into_owned));
            if kind.as_deref() != Some("speech") {
                let detail = "Invalid value for 'session.wake_policy.type': expected speech.";
                return Err(invalid(detail).of_field("session.wake_policy.type"));
            }
            true
        }
    };
    let Some(idle) = session.given("idle_timeout_s") else { return Ok(None) };
    let seconds =
        serde_json::from_str(idle.get()).ok().filter(|seconds| (1..=SESSION_MAX_S).contains(seconds));
    let wrong = || {
        let detail = "Invalid value for 'session.idle_timeout_s': expected whole seconds from 1.";
        invalid(detail).of_field("session.idle_timeout_s")
    };
    let pause = Duration::from_secs(seconds.ok_or_else(wrong)?);
    Ok(Some(pause).filter(|_| wakes_by_speech))
}

/// The encoding of the client's audio, and the settings of this format. A call has agreed on its own.
fn audio_settings(format: &Value, is_call: bool) -> Result<(Encoding, Vec<Setting>), Error> {
    let (encoding, rate_hz) = match (format["type"].as_str(), format["rate"].as_u64()) {
        (None, None) => (Encoding::S16le, 24_000),
        (Some("audio/pcm"), Some(rate @ (16_000 | 24_000))) => (Encoding::S16le, rate as u32),
        (Some("audio/pcmu"), _) => (Encoding::Mulaw, 8000),
        (Some("audio/pcma"), _) => (Encoding::Alaw, 8000),
        _ => {
            let detail = "Invalid value for 'session.audio.format': expected audio/pcm at 16000 or 24000 Hz, audio/pcmu or audio/pcma.";
            return Err(invalid(detail).of_field("session.audio.format"));
        }
    };
    let settings = vec![
        Setting::InputEncoding(encoding),
        Setting::InputRateHz(rate_hz),
        Setting::OutputEncoding(encoding),
        Setting::OutputRateHz(rate_hz),
    ];
    Ok((encoding, if is_call { Vec::new() } else { settings }))
}

/// Replaces the fields that are given; with `deep` those of the objects in them, too.
fn merge(into: &mut Value, from: Value, deep: bool) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key).filter(|_| deep) {
                    Some(old) => merge(old, value, false),
                    None => drop(into.insert(key, value)),
                }
            }
        }
        (into, from) => *into = from,
    }
}

fn parse(json: &RawValue) -> Value {
    serde_json::from_str(json.get()).unwrap_or_default()
}

fn invalid(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, detail)
}

fn too_long() -> Error {
    invalid("'session' is longer than 65536 bytes").of_field("session")
}

fn unknown_field(key: &str) -> Error {
    let path = format!("session.{}", key.chars().take(64).collect::<String>());
    Error::new(ErrorKind::UnknownField, &path).of_field(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(session: &Value, is_call: bool) -> Result<LiveConfig, Error> {
        let text = session.to_string();
        LiveConfig::read(serde_json::from_str(&text).unwrap(), is_call).map(|(config, _)| config)
    }

    fn update(config: &mut LiveConfig, update: &Value) -> Result<(), Error> {
        let text = update.to_string();
        config.update(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn update_keeps_omitted_settings_and_the_owner_of_delegated_work() {
        let tools = json!([{"type": "web_search"}]);
        let delegation =
            json!({"type": "responses", "responses": {"model": "m", "tools": tools, "tool_choice": "auto"}});
        let mut config = read(&json!({"instructions": "i", "delegation": delegation}), false).unwrap();
        let change = json!({"type": "responses", "responses": {"tools": [], "tool_choice": "required"}});
        update(&mut config, &json!({"delegation": change, "triggers": []})).unwrap();
        let session = config.fields();
        let expected =
            json!({"type": "responses", "responses": {"model": "m", "tools": [], "tool_choice": "required"}});
        assert_eq!(session["delegation"], expected);
        assert_eq!((&session["instructions"], &session["triggers"]), (&json!("i"), &json!([])));
        for (refused, param) in [
            (json!({"delegation": {"type": "client"}}), "session.delegation.type"),
            (json!({"instructions": "other"}), "session.instructions"),
        ] {
            assert_eq!(update(&mut config, &refused).unwrap_err().param.as_deref(), Some(param));
            assert_eq!(config.fields(), session, "a refused update changes nothing");
        }
        let long = json!({"triggers": ["x".repeat(SESSION_MAX_BYTES - 200)]});
        update(&mut config, &json!({"delegation": {"type": "responses", "more": "x".repeat(1000)}})).unwrap();
        assert!(update(&mut config, &long).is_err(), "the sum has the bound of the first configuration");
    }

    #[test]
    fn fields_of_another_transport_are_unknown() {
        for (session, is_call, param) in [
            (json!({"idle_timeout_s": 5}), false, Some("session.idle_timeout_s")),
            (json!({"wake_policy": {"type": "speech"}}), false, Some("session.wake_policy")),
            (json!({"idle_timeout_s": 5, "wake_policy": {"type": "speech"}}), true, None),
            (json!({"idle_timeout_s": 0}), true, Some("session.idle_timeout_s")),
            (json!({"idle_timeout_s": 1.5}), true, Some("session.idle_timeout_s")),
            (json!({"wake_policy": {"type": "other"}}), true, Some("session.wake_policy.type")),
            (json!({"audio": {"format": {"type": "audio/pcmu"}}}), true, Some("session.audio.format")),
            (json!({"audio": {"format": {"type": "audio/pcmu"}}}), false, None),
            (json!({"delegation": {"type": "other"}}), false, Some("session.delegation.type")),
        ] {
            let error = read(&session, is_call).err();
            assert_eq!(error.and_then(|error| error.param).as_deref(), param, "{session}");
        }
    }

    #[test]
    fn fields_without_effect_are_known() {
        let session = json!({"store": false, "input": [], "triggers": [{"type": "decisions"}],
            "delegation": {"type": "responses", "responses": {}}});
        assert_eq!(read(&session, false).unwrap().without_effect, ["delegation", "triggers"]);
        let session = json!({"idle_timeout_s": 9});
        assert_eq!(read(&session, true).unwrap().without_effect, ["idle_timeout_s"]);
        let session = json!({"idle_timeout_s": 9, "wake_policy": {"type": "speech", "vad_threshold": 0.7}});
        assert_eq!(read(&session, true).unwrap().without_effect, ["wake_policy.vad_threshold"]);
        let session = json!({"store": true, "input": [{"role": "user"}], "delegation": {"type": "client"}});
        assert_eq!(read(&session, false).unwrap().without_effect, ["input", "store"]);
    }
}
