//! `turn_detection`: what the client asked for, and the voice activity detection that stands for it.

use serde_json::{Map, Value, json};

use super::fields::{wrong_type, wrong_value};
use crate::{
    audio::vad::Sensitivity,
    error::Error,
    vocabulary::{Eagerness, TurnEnd},
};

/// `turn_detection`.
#[derive(Debug, Clone)]
pub(super) enum Detection {
    /// The client commits its audio.
    Off,
    On {
        fields: Map<String, Value>,
        /// Rule that ends an utterance. Until the client names a rule, the profile's does.
        turn_end: TurnEnd,
        end_silence_ms: u64,
        sensitivity: Sensitivity,
    },
}

impl Default for Detection {
    fn default() -> Self {
        let fields = json!({
            "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500,
            "idle_timeout_ms": null, "create_response": true, "interrupt_response": true,
        });
        let fields = fields.as_object().cloned().unwrap_or_default();
        let turn_end = TurnEnd::OfProfile;
        Self::On { fields, turn_end, end_silence_ms: 500, sensitivity: Sensitivity::Normal }
    }
}

impl Detection {
    /// The detection after an update of some of its fields. Another type begins with its own defaults. `semantic` are the protocol's
    /// own names of `semantic_vad`.
    pub(super) fn updated(
        &self,
        update: &Map<String, Value>,
        path: &str,
        semantic: &[String],
    ) -> Result<Self, Error> {
        let (earlier, earlier_end) = match self {
            Self::On { fields, turn_end, .. } => (fields.clone(), *turn_end),
            Self::Off => (Map::new(), TurnEnd::OfProfile),
        };
        let kind = match update.get("type").or_else(|| earlier.get("type")) {
            None => "server_vad",
            Some(Value::String(kind)) if kind == "server_vad" || kind == "semantic_vad" => &kind.clone(),
            Some(Value::String(kind)) if semantic.contains(kind) => &kind.clone(),
            Some(_) => return Err(wrong_value(&format!("{path}.type"), "'server_vad' or 'semantic_vad'")),
        };
        let is_semantic = kind != "server_vad";
        let is_same = earlier.get("type").and_then(Value::as_str) == Some(kind);
        let given = earlier.into_iter().filter(|_| is_same).chain(update.clone());
        let fields = Self::merged(Self::defaults(kind, is_semantic), given, path, is_semantic)?;
        let number = |key: &str, default: f64| fields.get(key).and_then(Value::as_f64).unwrap_or(default);
        let eagerness = match fields.get("eagerness").and_then(Value::as_str) {
            Some("low") => Eagerness::Low,
            Some("high") => Eagerness::High,
            _ => Eagerness::Medium,
        };
        let end_silence_ms = match (is_semantic, eagerness) {
            (false, _) => number("silence_duration_ms", 500.0).clamp(50.0, 60_000.0) as u64,
            (true, Eagerness::Low) => 1200,
            (true, Eagerness::Medium) => 700,
            (true, Eagerness::High) => 400,
        };
        let names_rule = ["type", "silence_duration_ms"].iter().any(|key| update.contains_key(*key));
        let turn_end = match is_semantic {
            true => TurnEnd::Semantic(eagerness),
            false if names_rule => TurnEnd::Fixed,
            false => earlier_end,
        };
        let sensitivity = match number("threshold", 0.5) {
            threshold if threshold < 0.4 => Sensitivity::High,
            threshold if threshold > 0.65 => Sensitivity::Low,
            _ => Sensitivity::Normal,
        };
        Ok(Self::On { fields, turn_end, end_silence_ms, sensitivity })
    }

    fn defaults(kind: &str, is_semantic: bool) -> Map<String, Value> {
        let defaults = match is_semantic {
            true => {
                json!({ "type": kind, "eagerness": "auto", "create_response": true, "interrupt_response": true })
            }
            false => match Self::default() {
                Self::On { fields, .. } => Value::Object(fields),
                Self::Off => Value::Null,
            },
        };
        defaults.as_object().cloned().unwrap_or_default()
    }

    /// The fields with those that the client gave, which are checked. Unknown ones are left out.
    fn merged(
        mut fields: Map<String, Value>,
        given: impl Iterator<Item = (String, Value)>,
        path: &str,
        is_semantic: bool,
    ) -> Result<Map<String, Value>, Error> {
        for (key, value) in given {
            match key.as_str() {
                "create_response" | "interrupt_response" if value.is_null() => continue,
                "create_response" | "interrupt_response" if !value.is_boolean() => {
                    return Err(wrong_type(&format!("{path}.{key}"), "a boolean", &value));
                }
                "threshold" | "prefix_padding_ms" | "silence_duration_ms" if value.is_null() => continue,
                "threshold" | "prefix_padding_ms" | "silence_duration_ms" if !value.is_number() => {
                    return Err(wrong_type(&format!("{path}.{key}"), "a number", &value));
                }
                // The setting belongs to server_vad only.
                "idle_timeout_ms" if is_semantic => {}
                "type"
                | "create_response"
                | "interrupt_response"
                | "threshold"
                | "prefix_padding_ms"
                | "silence_duration_ms"
                | "idle_timeout_ms"
                | "eagerness" => drop(fields.insert(key, value)),
                _ => {}
            }
        }
        Ok(fields)
    }
}
