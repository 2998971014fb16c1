//! Reading one `input.append` of full duplex, with every spelling the back-ends take (field notes §1.4, §1.5, §1.7).

use serde_json::{Map, Value};

use super::super::{
    Backend,
    chat::{Refusal, cpp_audio, cpp_payload},
    python,
};

/// One append as the back-end decoded it.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// The samples as they came, float32 at 16 kHz, however many they are.
    pub samples: Vec<f32>,
    /// Whether the client forced the model to listen.
    pub forced: bool,
    /// The frames that are looked at; none in `mode=audio`.
    pub frames: usize,
    /// The client's own name for it.
    pub input_id: Option<Value>,
}

/// A unit, and what names its answer.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) unit: Unit,
    /// Taken at the start of a turn, by PyTorch only (field notes §1.3).
    pub(super) response_id: Option<String>,
}

/// What Pillow says of bytes that are no picture, less the address it adds.
const NO_PICTURE: &str = "cannot identify image file <_io.BytesIO object>";

/// How JPEG and PNG begin.
const PICTURES: [&[u8]; 2] = [b"\xFF\xD8\xFF", b"\x89PNG"];

impl Append {
    pub(super) fn parse(backend: Backend, sees: bool, input: &Map<String, Value>) -> Result<Self, Refusal> {
        let samples = samples(backend, input)?;
        let frames = if sees { frames(input) } else { Vec::new() };
        for frame in &frames {
            check_frame(backend, frame)?;
        }
        let python = |key: &str| input.get(key).filter(|_| backend == Backend::Pytorch);
        let response_id = python("response_id").filter(|value| python::truthy(value)).map(python::text_of);
        let input_id = python("input_id").filter(|value| !value.is_null()).cloned();
        let unit = Unit { samples, forced: forced(backend, input), frames: frames.len(), input_id };
        Ok(Self { unit, response_id })
    }
}

fn samples(backend: Backend, input: &Map<String, Value>) -> Result<Vec<f32>, Refusal> {
    match (backend, audio_text(input)) {
        (Backend::Pytorch, Some(text)) => python::float32(text).map_err(Refusal::Exception),
        (Backend::Pytorch, None) => Err(Refusal::Exception("full_duplex input requires audio".to_owned())),
        (Backend::Cpp, Some(text)) => Some(cpp_audio(text)?)
            .filter(|samples| !samples.is_empty())
            .ok_or(Refusal::Reason("missing_audio")),
        (Backend::Cpp, None) if input.contains_key("messages") => Err(Refusal::Reason("mode_mismatch")),
        (Backend::Cpp, None) => Err(Refusal::Reason("missing_audio")),
    }
}

/// A string, or an object around one; empty ones do not count.
fn audio_text(input: &Map<String, Value>) -> Option<&str> {
    ["audio", "audio_base64", "audio_data"].iter().find_map(|key| inside(input.get(*key)?))
}

fn inside(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => {
            ["data", "base64", "audio_base64"].iter().find_map(|key| filled(fields.get(*key)?))
        }
        other => filled(other),
    }
}

fn filled(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn frames(input: &Map<String, Value>) -> Vec<&Value> {
    let keys = ["video_frames", "frame_base64_list", "frames"];
    let list = keys.iter().find_map(|key| input.get(*key)?.as_array().filter(|list| !list.is_empty()));
    list.into_iter().flatten().collect()
}

fn check_frame(backend: Backend, frame: &Value) -> Result<(), Refusal> {
    let text = frame.as_str().or_else(|| ["data", "base64"].iter().find_map(|key| frame.get(key)?.as_str()));
    let bytes = match (text, backend) {
        (Some(text), Backend::Pytorch) => python::base64(text),
        (Some(text), Backend::Cpp) => python::base64(cpp_payload(text)),
        (None, _) => Err("argument should be a bytes-like object or ASCII string".to_owned()),
    };
    let picture = |bytes: Vec<u8>| {
        let known = PICTURES.iter().any(|start| bytes.starts_with(start));
        if known { Ok(()) } else { Err(NO_PICTURE.to_owned()) }
    };
    bytes.and_then(picture).map_err(|why| match backend {
        Backend::Pytorch => Refusal::Exception(why),
        Backend::Cpp => Refusal::Reason("video_decode_failed"),
    })
}

/// At the top, or under `hints`.
fn forced(backend: Backend, input: &Map<String, Value>) -> bool {
    let hinted = input.get("hints").and_then(|hints| hints.get("force_listen"));
    input.get("force_listen").or(hinted).is_some_and(|value| match backend {
        Backend::Pytorch => python::truthy(value),
        Backend::Cpp => value == &Value::Bool(true),
    })
}
