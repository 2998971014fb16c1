//! Parser for full-duplex `input.append`, with every spelling that the back-ends accept
//! (mappings/notes/minicpm-o.md#commands, mappings/notes/llama-cpp-omni.md#input).

use serde_json::{Map, Value};

use super::super::{
    Backend,
    chat::{AppendRejection, decode_cpp_audio, strip_data_url_prefix},
    picture::check_picture,
    python,
};

/// One append, decoded like the back-end does.
#[derive(Debug, Clone, PartialEq)]
pub struct DuplexUnit {
    /// Samples of any number, float32 at 16 kHz.
    pub samples: Vec<f32>,
    /// True if the client forces the model to listen.
    pub force_listen: bool,
    /// Number of video frames. PyTorch takes them in `mode=audio`, too.
    pub frame_count: usize,
    /// The client's id of the append.
    pub input_id: Option<Value>,
}

/// An append and the response id requested with it.
#[derive(Debug)]
pub(super) struct DuplexAppend {
    pub(super) unit: DuplexUnit,
    /// Used at the start of a turn, by PyTorch only (mappings/notes/minicpm-o.md#events).
    pub(super) response_id: Option<String>,
}

impl DuplexAppend {
    pub(super) fn parse(
        backend: Backend,
        has_video: bool,
        input: &Map<String, Value>,
    ) -> Result<Self, AppendRejection> {
        let samples = decode_samples(backend, input)?;
        let takes_frames = has_video || backend == Backend::Pytorch;
        let frames = if takes_frames { frame_values(input) } else { Vec::new() };
        for frame in &frames {
            check_frame(backend, frame)?;
        }
        let pytorch_field = |key: &str| input.get(key).filter(|_| backend == Backend::Pytorch);
        let response_id =
            pytorch_field("response_id").filter(|value| python::is_truthy(value)).map(python::to_str);
        let input_id = pytorch_field("input_id").filter(|value| !value.is_null()).cloned();
        let unit = DuplexUnit {
            samples,
            force_listen: has_force_listen(backend, input),
            frame_count: frames.len(),
            input_id,
        };
        Ok(Self { unit, response_id })
    }
}

fn decode_samples(backend: Backend, input: &Map<String, Value>) -> Result<Vec<f32>, AppendRejection> {
    match (backend, audio_text(input)) {
        (Backend::Pytorch, Some(text)) => python::decode_float32(text).map_err(AppendRejection::Exception),
        (Backend::Pytorch, None) => {
            Err(AppendRejection::Exception("full_duplex input requires audio".to_owned()))
        }
        (Backend::Cpp, Some(text)) => Some(decode_cpp_audio(text)?)
            .filter(|samples| !samples.is_empty())
            .ok_or(AppendRejection::Reason("missing_audio")),
        (Backend::Cpp, None) if input.contains_key("messages") => {
            Err(AppendRejection::Reason("mode_mismatch"))
        }
        (Backend::Cpp, None) => Err(AppendRejection::Reason("missing_audio")),
    }
}

/// Finds the audio text: a non-empty string or a field of an object.
fn audio_text(input: &Map<String, Value>) -> Option<&str> {
    ["audio", "audio_base64", "audio_data"].iter().find_map(|key| nested_text(input.get(*key)?))
}

fn nested_text(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => {
            ["data", "base64", "audio_base64"].iter().find_map(|key| non_empty_text(fields.get(*key)?))
        }
        other => non_empty_text(other),
    }
}

fn non_empty_text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn frame_values(input: &Map<String, Value>) -> Vec<&Value> {
    let keys = ["video_frames", "frame_base64_list", "frames"];
    let list = keys.iter().find_map(|key| input.get(*key)?.as_array().filter(|list| !list.is_empty()));
    list.into_iter().flatten().collect()
}

fn check_frame(backend: Backend, frame: &Value) -> Result<(), AppendRejection> {
    let text = frame.as_str().or_else(|| ["data", "base64"].iter().find_map(|key| frame.get(key)?.as_str()));
    let bytes = match (text, backend) {
        (Some(text), Backend::Pytorch) => python::decode_base64(text),
        (Some(text), Backend::Cpp) => python::decode_base64(strip_data_url_prefix(text)),
        (None, _) => Err("argument should be a bytes-like object or ASCII string".to_owned()),
    };
    bytes.and_then(|bytes| check_picture(&bytes)).map_err(|reason| match backend {
        Backend::Pytorch => AppendRejection::Exception(reason),
        Backend::Cpp => AppendRejection::Reason("video_decode_failed"),
    })
}

/// Reads `force_listen` from the top level or from `hints`.
fn has_force_listen(backend: Backend, input: &Map<String, Value>) -> bool {
    let hint = input.get("hints").and_then(|hints| hints.get("force_listen"));
    input.get("force_listen").or(hint).is_some_and(|value| match backend {
        Backend::Pytorch => python::is_truthy(value),
        Backend::Cpp => value == &Value::Bool(true),
    })
}
