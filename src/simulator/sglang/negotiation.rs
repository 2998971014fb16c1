//! A session's configuration: what a client may ask for, and what is granted (serve/realtime/negotiation.py).

use serde_json::{Map, Value, json};

use super::{
    decode_base64, pages,
    request::{ANY_NUMBER, Field, Form, Rejected, check_object, optional, required},
};
use crate::{audio::wav, messages::object};

/// Longest instructions (`max_history_chars`).
const INSTRUCTIONS_MAX_CHARS: usize = 64 << 10;

/// Longest voice sample.
const VOICE_MAX_DURATION: std::time::Duration = std::time::Duration::from_secs(30);

/// Largest voice file.
const VOICE_MAX_BYTES: usize = 1 << 20;

/// Kind of the output: a session has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OutputModality {
    #[default]
    Audio,
    Text,
}

/// Result of a negotiation.
#[derive(Debug, Clone, Default)]
pub(super) struct Negotiated {
    pub(super) output_modality: OutputModality,
    pub(super) frames_per_unit: usize,
    rejections: Vec<Value>,
}

const POSITIVE: Form = Form::Number { min: f64::MIN_POSITIVE, max: f64::INFINITY };
const NOT_NEGATIVE: Form = Form::Number { min: 0.0, max: f64::INFINITY };
const AT_LEAST_1: Form = Form::Number { min: 1.0, max: f64::INFINITY };
const TEMPERATURE: Form = Form::Number { min: 0.0, max: 2.0 };
const SHARE: Form = Form::Number { min: f64::MIN_POSITIVE, max: 1.0 };
const TOP_K: Form = Form::Number { min: -1.0, max: f64::INFINITY };
const FORMAT: Form = Form::Object(&[required("type", Form::Text), required("rate", Form::Integer)]);
const VOICE: Form =
    Form::Object(&[required("media_type", Form::Word(&["audio/wav"])), required("data", Form::Text)]);
const TURN_DETECTION: Form = Form::Nullable(&Form::Object(&[
    optional("type", Form::Text),
    optional("threshold", Form::Nullable(&ANY_NUMBER)),
    optional("prefix_padding_ms", Form::Nullable(&Form::Integer)),
    optional("silence_duration_ms", Form::Nullable(&Form::Integer)),
    optional("eagerness", Form::Nullable(&Form::Text)),
    optional("interrupt_response", Form::Boolean),
]));
/// The model's parameters, then those of other models.
const SAMPLING: &[Field] = &[
    optional("temperature", TEMPERATURE),
    optional("top_k", TOP_K),
    optional("top_p", SHARE),
    optional("repetition_penalty", AT_LEAST_1),
    optional("listen_prob_scale", NOT_NEGATIVE),
    optional("greedy", Form::Boolean),
    optional("force_listen_count", NOT_NEGATIVE),
    optional("max_new_tokens_per_unit", AT_LEAST_1),
    optional("repetition_window_size", AT_LEAST_1),
    optional("talker_temperature", TEMPERATURE),
    optional("talker_repetition_penalty", AT_LEAST_1),
    optional("talker_top_k", TOP_K),
    optional("talker_top_p", SHARE),
    optional("talker_max_new_tokens", AT_LEAST_1),
    optional("max_new_tokens", AT_LEAST_1),
    optional("seed", NOT_NEGATIVE),
];
const SESSION: &[Field] = &[
    optional("type", Form::Word(&["realtime", "transcription"])),
    optional("model", Form::Text),
    optional("instructions", Form::Text),
    optional("output_modalities", Form::Texts),
    optional(
        "audio",
        Form::Object(&[
            optional(
                "input",
                Form::Object(&[optional("format", FORMAT), optional("turn_detection", TURN_DETECTION)]),
            ),
            optional("output", Form::Object(&[optional("format", FORMAT)])),
        ]),
    ),
    optional(
        "sglang",
        Form::Object(&[
            optional("interaction", Form::Word(&["native", "turn_based"])),
            optional("tail_policy", Form::Word(&["flush", "pad", "reject"])),
            optional(
                "timebase",
                Form::Object(&[
                    optional("microturn_ms", Form::Nullable(&POSITIVE)),
                    optional("native_unit_ms", Form::Integer),
                ]),
            ),
            optional("sampling", Form::Object(SAMPLING)),
            optional("reference_audio", VOICE),
            optional("tts_reference_audio", VOICE),
            optional("max_slice_nums", AT_LEAST_1),
        ]),
    ),
];

/// Merges a patch into the configuration and checks the result.
pub(super) fn negotiate(
    current: &Map<String, Value>,
    is_open: bool,
    patch: &Map<String, Value>,
) -> Result<(Map<String, Value>, Negotiated), Rejected> {
    let mut session = current.clone();
    merge(&mut session, patch);
    check_object(&session, SESSION, "session")
        .map_err(|rejected| Rejected { message: "invalid session configuration".to_owned(), ..rejected })?;
    check_voices(&session)?;
    if is_open && frozen(&session) != frozen(current) {
        return Err(Rejected::state("session field is frozen"));
    }
    let text = |key: &str| session.get(key).and_then(Value::as_str);
    if text("instructions").is_some_and(|text| text.chars().count() > INSTRUCTIONS_MAX_CHARS) {
        return Err(Rejected::request("instructions exceed context or have invalid type"));
    } else if text("model").is_some_and(|model| model != pages::MODEL) {
        return Err(Rejected::request("model differs from deployment"));
    } else if text("type").is_some_and(|name| name != "realtime") {
        return Err(Rejected::request("session type is unavailable"));
    }
    check_audio(&session)?;
    let negotiated = grant_modality(&session)?;
    let frames_per_unit = check_extension(&session)?;
    let rejections = rejected_microturn(&session).into_iter().chain(negotiated.rejections).collect();
    Ok((
        complete(session, negotiated.output_modality),
        Negotiated { frames_per_unit, rejections, ..negotiated },
    ))
}

fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match (into.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(value)) => merge(known, value),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Fields that stay fixed once the session is open.
fn frozen(session: &Map<String, Value>) -> Map<String, Value> {
    let mut fixed = session.clone();
    fixed.remove("output_modalities");
    if let Some(Value::Object(input)) = fixed.get_mut("audio").and_then(|audio| audio.get_mut("input")) {
        input.remove("turn_detection");
    }
    fixed
}

fn check_voices(session: &Map<String, Value>) -> Result<(), Rejected> {
    for field in ["reference_audio", "tts_reference_audio"] {
        let data = session.get("sglang").and_then(|extension| extension.get(field)?.get("data")?.as_str());
        if data.is_some_and(|data| read_voice(data).is_none()) {
            return Err(
                Rejected::request("invalid session configuration").at(format!("session.sglang.{field}.data"))
            );
        }
    }
    Ok(())
}

/// A voice sample: a WAV file of 16-bit samples, 8 to 48 kHz, at most 30 s and 1 MiB.
fn read_voice(data: &str) -> Option<Vec<f32>> {
    let bytes = decode_base64(data).filter(|bytes| bytes.len() <= VOICE_MAX_BYTES)?;
    let (samples, rate_hz) = wav::read(&bytes, VOICE_MAX_DURATION).ok()?;
    ((8_000..=48_000).contains(&rate_hz) && !samples.is_empty()).then_some(samples)
}

/// The voice of the session, for the record.
pub(super) fn voice(session: &Map<String, Value>) -> Option<Vec<f32>> {
    read_voice(session.get("sglang")?.get("reference_audio")?.get("data")?.as_str()?)
}

fn check_audio(session: &Map<String, Value>) -> Result<(), Rejected> {
    let audio = session.get("audio");
    for (direction, rate) in [("input", 16_000), ("output", 24_000)] {
        let format = audio.and_then(|audio| audio.get(direction)?.get("format"));
        if format.is_some_and(|format| *format != json!({"type": "audio/pcm", "rate": rate})) {
            let message = "unsupported PCM format or sample rate";
            return Err(Rejected::request(message).at(format!("session.audio.{direction}.format")));
        }
    }
    let detection = audio.and_then(|audio| audio.get("input")?.get("turn_detection"));
    if detection.is_some_and(|detection| !detection.is_null()) {
        return Err(not_applicable("VAD is only available for turn-based sessions"));
    }
    Ok(())
}

fn not_applicable(message: impl Into<String>) -> Rejected {
    Rejected { code: "not_applicable", ..Rejected::request(message) }
}

/// The first modality asked for that the deployment has; without a wish, audio.
fn grant_modality(session: &Map<String, Value>) -> Result<Negotiated, Rejected> {
    let both = json!(["audio", "text"]);
    let requested = session.get("output_modalities").unwrap_or(&both);
    let names = requested.as_array().into_iter().flatten().filter_map(Value::as_str);
    let output_modality = match names.into_iter().find(|name| ["audio", "text"].contains(name)) {
        Some("audio") => OutputModality::Audio,
        Some(_) => OutputModality::Text,
        None => return Err(Rejected::request("no supported output combination")),
    };
    let granted = output_modality.granted();
    let rejections = if *requested == granted {
        Vec::new()
    } else {
        vec![json!({
            "field": "output_modalities", "requested": requested, "reason": "deployment modalities",
            "granted": granted,
        })]
    };
    Ok(Negotiated { output_modality, frames_per_unit: 0, rejections })
}

impl OutputModality {
    fn granted(self) -> Value {
        json!([if self == Self::Audio { "audio" } else { "text" }])
    }
}

/// Checks `sglang`; returns the pictures that a unit may have.
fn check_extension(session: &Map<String, Value>) -> Result<usize, Rejected> {
    let extension = session.get("sglang");
    let member = |key: &str| extension.and_then(|extension| extension.get(key));
    let mut foreign: Vec<&str> = member("sampling")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|sampling| sampling.keys())
        .map(String::as_str)
        .filter(|key| !pages::SAMPLING_PARAMETERS.contains(key))
        .collect();
    foreign.sort_unstable();
    if !foreign.is_empty() {
        let message = format!("unsupported sampling parameters: {}", foreign.join(", "));
        return Err(not_applicable(message).at("session.sglang.sampling"));
    }
    let slices = member("max_slice_nums").and_then(Value::as_u64).unwrap_or(1);
    if slices > pages::SLICES_MAX {
        let message = "slice count exceeds deployment limit";
        return Err(Rejected::request(message).at("session.sglang.max_slice_nums"));
    } else if member("tail_policy").is_some_and(|policy| policy != "pad") {
        return Err(Rejected::request("tail policy is unavailable"));
    } else if member("timebase")
        .and_then(|timebase| timebase.get("native_unit_ms"))
        .is_some_and(|unit| *unit != 1000)
    {
        return Err(Rejected::request("native cadence is fixed"));
    }
    Ok(pages::frames_per_unit(slices))
}

fn rejected_microturn(session: &Map<String, Value>) -> Option<Value> {
    let requested = session.get("sglang")?.get("timebase")?.get("microturn_ms")?;
    (!requested.is_null()).then(|| {
        json!({
            "field": "sglang.timebase.microturn_ms", "requested": requested,
            "reason": "external chunks are variable length; no fixed external cadence", "granted": null,
        })
    })
}

/// Adds what the client left out.
fn complete(mut session: Map<String, Value>, modality: OutputModality) -> Map<String, Value> {
    let mut formats = Map::new();
    for (direction, rate) in [("input", 16_000), ("output", 24_000)] {
        formats.insert(direction.to_owned(), json!({"format": {"type": "audio/pcm", "rate": rate}}));
    }
    let patch = json!({
        "audio": formats, "model": pages::MODEL, "type": "realtime", "output_modalities": modality.granted(),
    });
    merge(&mut session, &object(patch));
    session
}

/// `session` of `session.updated`: the configuration without the voices, and what was granted.
pub(super) fn wire_session(session: &Map<String, Value>, negotiated: &Negotiated, id: &str) -> Value {
    let mut shown = session.clone();
    let mut extension = shown.remove("sglang").map(object).unwrap_or_default();
    extension.remove("reference_audio");
    extension.remove("tts_reference_audio");
    let mut granted = pages::capabilities();
    granted.insert("output_modalities".to_owned(), negotiated.output_modality.granted());
    granted.insert("microturn_ms".to_owned(), Value::Null);
    granted.insert("rejections".to_owned(), negotiated.rejections.clone().into());
    granted["input_image_format"]["max_frames_per_unit"] = negotiated.frames_per_unit.into();
    extension.insert("granted".to_owned(), granted.into());
    shown.insert("sglang".to_owned(), extension.into());
    shown.insert("id".to_owned(), id.into());
    shown.insert("object".to_owned(), "realtime.session".into());
    shown.into()
}
