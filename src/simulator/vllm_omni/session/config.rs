//! The configuration of a session, read as the server reads it: members of the wrong type count as absent, formats and the
//! detection of turns are checked, and defaults are filled in (engine/duplex/config.py, turn_detection.py, and
//! protocol/realtime/formats.py).

use serde_json::{Map, Value, json};

use super::Refusal;
use crate::audio::{encoding::Encoding, pcm};

/// Spellings of audio formats, and the names by which the server knows them.
const FORMATS: [(&str, &[&str]); 5] = [
    ("pcm16", &["audio/pcm", "pcm", "audio/pcm16", "pcm16", "pcm_s16le", "s16le"]),
    ("wav", &["audio/wav", "wav"]),
    ("pcm_f32le", &["audio/pcm_f32le", "pcm_f32le", "f32le"]),
    ("g711_ulaw", &["audio/g711_ulaw", "g711_ulaw", "g711-ulaw", "ulaw", "mulaw"]),
    ("g711_alaw", &["audio/g711_alaw", "g711_alaw", "g711-alaw", "alaw"]),
];
const INPUT_FORMATS: [&str; 4] = ["pcm16", "pcm_f32le", "g711_ulaw", "g711_alaw"];
const OUTPUT_FORMATS: [&str; 4] = ["pcm16", "wav", "g711_ulaw", "g711_alaw"];

/// Members of `turn_detection`. Others are refused.
const DETECTION_MEMBERS: [&str; 7] = [
    "type",
    "threshold",
    "prefix_padding_ms",
    "silence_duration_ms",
    "create_response",
    "interrupt_response",
    "min_speech_duration_ms",
];

/// Members of `extra_body` that only the server sets (minicpmo_4_5/duplex/plugin.py).
const SERVER_OWNED: [&str; 15] = [
    "duplex_stage_sampling_params",
    "duplex_stage_max_tokens",
    "duplex_stage0_max_tokens",
    "duplex_scheduler_token_id",
    "duplex_vision_tile_pixels",
    "duplex_first_append_context_tokens",
    "ref_audio_data",
    "ref_audio_format",
    "ref_audio_sample_rate_hz",
    "initial_user_text",
    "duplex_window_config",
    "duplex_window_prefix_tokens",
    "duplex_window_suffix_token_ids",
    "duplex_window_previous_marker_token_ids",
    "duplex_window_special_token_ids",
];

/// Reads the configuration that a client asks for.
pub(super) fn read_config(asked: &Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let mut config = asked.clone();
    check_format(asked, "input", &INPUT_FORMATS)?;
    check_format(asked, "output", &OUTPUT_FORMATS)?;
    let modalities = [asked.get("modalities"), asked.get("output_modalities")];
    let modalities = modalities.into_iter().flatten().find(|list| !is_falsy(list)).and_then(Value::as_array);
    let modalities = modalities.filter(|list| list.iter().all(Value::is_string));
    config.insert("modalities".to_owned(), modalities.map_or(json!(["text", "audio"]), |list| json!(list)));
    for (key, is_right) in [
        ("instructions", Value::is_string as fn(&Value) -> bool),
        ("voice", Value::is_string),
        ("temperature", Value::is_number),
        ("speed", Value::is_number),
        ("idle_timeout_s", |value| value.as_f64().is_some_and(|seconds| seconds != 0.0)),
        ("overlap_policy", |value| {
            ["listen_only", "barge_in_on_speech"].iter().any(|policy| value == policy)
        }),
    ] {
        if config.get(key).is_some_and(|value| !is_right(value)) {
            config.remove(key);
        }
    }
    if let Some(seconds) = config.get("idle_timeout_s").and_then(Value::as_f64) {
        config.insert("idle_timeout_s".to_owned(), seconds.into());
    }
    read_detection(asked, &mut config)?;
    read_extra(&mut config)?;
    Ok(config)
}

/// The name of an audio format; its own if it is unknown.
pub(super) fn format_name(spelled: &str) -> &str {
    let lowercase = spelled.to_lowercase();
    let known = FORMATS.iter().find(|(_, spellings)| spellings.contains(&&*lowercase));
    known.map_or(spelled, |(name, _)| name)
}

/// The samples of an append in this format; `None` if it has no whole number of them.
pub(super) fn decode_samples(format: &str, bytes: &[u8]) -> Option<Vec<f32>> {
    let encoding = match format_name(format) {
        "pcm_f32le" => Encoding::F32le,
        "g711_ulaw" => Encoding::Mulaw,
        "g711_alaw" => Encoding::Alaw,
        _ => Encoding::S16le,
    };
    let is_whole = !bytes.is_empty() && bytes.len().is_multiple_of(encoding.bytes_per_sample());
    is_whole.then(|| encoding.decode_all(bytes).into_iter().map(pcm::to_f32).collect())
}

fn check_format(asked: &Map<String, Value>, direction: &str, known: &[&str]) -> Result<(), Refusal> {
    let key = format!("{direction}_audio_format");
    let nested = asked.get("audio").map(|audio| &audio[direction]["format"]);
    let Some(given) = [asked.get(&key), nested].into_iter().flatten().find(|format| !format.is_null()) else {
        return Ok(());
    };
    let spelled = given.as_str().or_else(|| given["type"].as_str());
    if spelled.is_some_and(|spelled| known.contains(&format_name(spelled))) {
        return Ok(());
    }
    let shown = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
    Err(Refusal::new("invalid_session_config", format!("Unsupported {key}: {shown}")))
}

/// Checks the detection of turns, fills in its defaults, and derives what follows from it.
fn read_detection(asked: &Map<String, Value>, config: &mut Map<String, Value>) -> Result<(), Refusal> {
    let refuse = |words: String| Err(Refusal::new("invalid_session_config", words));
    let nested = asked.get("audio").and_then(|audio| audio["input"].get("turn_detection"));
    let policy = asked.get("overlap_policy").and_then(Value::as_str);
    let (field, given) = match (nested, asked.get("turn_detection")) {
        (Some(nested), _) => ("audio.input.turn_detection", nested),
        (None, Some(given)) => ("turn_detection", given),
        (None, None) if policy == Some("barge_in_on_speech") => {
            return refuse(
                "overlap_policy='barge_in_on_speech' requires turn_detection.type='server_vad' on the Realtime endpoint"
                    .to_owned(),
            );
        }
        (None, None) => return Ok(()),
    };
    let detection = match given {
        Value::Null => None,
        Value::Object(detection) => Some(detection),
        _ => return refuse(format!("{field} must be null or an object with type='server_vad'")),
    };
    if let Some(detection) = detection {
        check_detection(field, detection).or_else(refuse)?;
    }
    let expected = if detection.is_some() { "barge_in_on_speech" } else { "listen_only" };
    if let Some(policy) = policy.filter(|policy| *policy != expected) {
        return refuse(format!(
            "overlap_policy='{policy}' conflicts with turn_detection; expected '{expected}'"
        ));
    }
    config.insert("overlap_policy".to_owned(), expected.into());
    let mut filled = Value::Null;
    if let Some(detection) = detection {
        filled = json!({
            "type": "server_vad", "interrupt_response": true, "threshold": 0.5, "prefix_padding_ms": 300,
            "silence_duration_ms": 500, "min_speech_duration_ms": 96,
        });
        detection.iter().for_each(|(key, value)| filled[key] = value.clone());
    }
    config.insert("turn_detection".to_owned(), filled);
    Ok(())
}

fn check_detection(field: &str, detection: &Map<String, Value>) -> Result<(), String> {
    if detection.get("type").is_none_or(|kind| kind != "server_vad") {
        return Err(format!("{field}.type must be 'server_vad'"));
    }
    let mut unknown: Vec<&str> = detection.keys().map(String::as_str).collect();
    unknown.retain(|key| !DETECTION_MEMBERS.contains(key));
    unknown.sort_unstable();
    if !unknown.is_empty() {
        return Err(format!("Unknown {field} field(s): {}", unknown.join(", ")));
    }
    for key in ["prefix_padding_ms", "silence_duration_ms", "min_speech_duration_ms"] {
        let is_wrong = |value: &Value| value.as_f64().is_none_or(|number| number < 0.0);
        if detection.get(key).is_some_and(|value| !value.is_null() && is_wrong(value)) {
            return Err(format!("{field}.{key} must be a non-negative number"));
        }
    }
    if detection.get("interrupt_response").is_some_and(|value| value != true) {
        return Err(format!(
            "{field}.interrupt_response=false is unsupported; use turn_detection=null for model-owned listen/speak"
        ));
    }
    Ok(())
}

/// Reads `extra_body`: a voice may be in it, and members of the server are refused.
fn read_extra(config: &mut Map<String, Value>) -> Result<(), Refusal> {
    let Some(extra) = config.get("extra_body").and_then(Value::as_object).cloned() else { return Ok(()) };
    let mut owned: Vec<&str> = SERVER_OWNED.into_iter().filter(|key| extra.contains_key(*key)).collect();
    owned.sort_unstable();
    if !owned.is_empty() {
        let words = format!("duplex runtime configuration is server-owned: {}", owned.join(", "));
        return Err(Refusal::new("invalid_duplex_runtime_config", words));
    }
    let voice = ["ref_audio", "tts_ref_audio"]
        .iter()
        .find_map(|key| extra.get(*key))
        .filter(|voice| voice.is_string());
    if let (Some(voice), false) = (voice, config.get("ref_audio").is_some_and(Value::is_string)) {
        config.insert("ref_audio".to_owned(), voice.clone());
    }
    Ok(())
}

/// True for a value that is false in Python.
fn is_falsy(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false))
        || value.as_str().is_some_and(str::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
}
