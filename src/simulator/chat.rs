//! Reading one chat request, as leniently and as strictly as each back-end does (field notes §1.5, §1.7, §2).

use serde_json::{Map, Value};

use super::{Backend, python, script};

/// One turn to be answered.
#[derive(Debug)]
pub(super) struct ChatRequest {
    pub(super) streaming: bool,
    pub(super) speaks: bool,
    pub(super) max_new_tokens: usize,
    /// The samples to be recognised, if the last user message has audio.
    pub(super) heard: Option<Vec<f32>>,
    /// The text of the last user message.
    pub(super) user_text: String,
    /// The request's own voice reference; only PyTorch uses it.
    pub(super) voice: Option<Vec<f32>>,
    /// Echoed as it came; only PyTorch does.
    pub(super) input_id: Option<Value>,
    pub(super) response_id: Option<String>,
    /// About what the prompt costs of the context.
    pub(super) prompt_tokens: usize,
}

/// Why a request ends the session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// PyTorch: `backend_error` with the exception's text.
    Exception(String),
    /// C++: a reason of its own, without diagnostic.
    Reason(&'static str),
    /// C++: the handler fell over, so only the worker has a word to say.
    Silent,
}

/// Positions of the context that a second of audio takes (field notes §7).
const AUDIO_TOKENS_PER_SECOND: usize = 10;

#[derive(Debug, Default)]
struct Message {
    role: String,
    text: String,
    audio: Vec<f32>,
}

impl ChatRequest {
    pub(super) fn parse(backend: Backend, input: &Map<String, Value>) -> Result<Self, Refusal> {
        match backend {
            Backend::Pytorch => Self::pytorch(input).map_err(Refusal::Exception),
            Backend::Cpp => Self::cpp(input),
        }
    }

    fn pytorch(input: &Map<String, Value>) -> Result<Self, String> {
        let generation = section(input, "generation")?;
        section(input, "image")?;
        let tts = section(input, "tts")?;
        let speaks = tts.get("enabled").is_some_and(python::truthy);
        let reference = tts.get("ref_audio_data").filter(|value| speaks && python::truthy(value));
        let voice = reference.map(|value| audio_of(Some(value))).transpose()?;
        let max_new_tokens = match generation.get("max_new_tokens") {
            None => Backend::Pytorch.default_max_new_tokens(),
            Some(value) => integer(value)?,
        };
        let messages = pytorch_messages(input)?;
        match messages.first().map(|message| message.role.as_str()) {
            None => return Err("list index out of range".to_owned()),
            Some("assistant") => return Err("The role of first msg should be user".to_owned()),
            Some(_) => {}
        }
        let response_id = input.get("response_id").filter(|value| python::truthy(value)).map(python::text_of);
        let input_id = input.get("input_id").filter(|value| !value.is_null()).cloned();
        let streaming = input.get("streaming").is_none_or(python::truthy);
        let request = Self::of(messages, streaming, speaks, max_new_tokens);
        Ok(Self { voice, input_id, response_id, ..request })
    }

    fn cpp(input: &Map<String, Value>) -> Result<Self, Refusal> {
        let Some(Value::Array(raw)) = input.get("messages") else {
            return Err(Refusal::Reason("mode_mismatch"));
        };
        if raw.is_empty() {
            return Err(Refusal::Reason("empty_messages"));
        }
        let messages = raw.iter().map(cpp_message).collect::<Result<Vec<_>, _>>()?;
        let flag = |fields: &Map<String, Value>, key| fields.get(key).and_then(Value::as_bool);
        let object = |key| input.get(key).and_then(Value::as_object);
        let enabled = object("tts").and_then(|tts| flag(tts, "enabled")).unwrap_or(false);
        let speaks = enabled || flag(input, "use_tts_template").unwrap_or(false);
        let limit = object("generation").and_then(|generation| generation.get("max_new_tokens")?.as_i64());
        let limit = limit.map_or(Backend::Cpp.default_max_new_tokens(), at_least_one);
        let streaming = flag(input, "streaming").unwrap_or(true);
        let request = Self::of(messages, streaming, speaks, limit);
        // Nothing to prefill but the system prompt.
        if request.user_text.is_empty() && request.heard.is_none() {
            return Err(Refusal::Reason("prefill_failed"));
        }
        Ok(request)
    }

    fn of(messages: Vec<Message>, streaming: bool, speaks: bool, max_new_tokens: usize) -> Self {
        let prompt_tokens = messages
            .iter()
            .map(|message| {
                let audio = message.audio.len() * AUDIO_TOKENS_PER_SECOND / 16_000;
                4 + script::tokens(&message.text) + audio
            })
            .sum();
        let last = messages.into_iter().rfind(|message| message.role == "user").unwrap_or_default();
        Self {
            streaming,
            speaks,
            max_new_tokens,
            heard: (!last.audio.is_empty()).then_some(last.audio),
            user_text: last.text,
            voice: None,
            input_id: None,
            response_id: None,
            prompt_tokens,
        }
    }
}

/// The samples of a voice reference in `session.init`, or `None` when there is none; `Err` when it kills the session.
pub(super) fn init_voice(backend: Backend, payload: &Map<String, Value>) -> Result<Option<Vec<f32>>, String> {
    let nested = payload.get("voice").and_then(Value::as_object);
    let keys = ["ref_audio_base64", "ref_audio", "tts_ref_audio_base64", "tts_ref_audio"];
    let given = |key: &str| match backend {
        Backend::Pytorch => payload.get(key).or_else(|| nested?.get(key)),
        Backend::Cpp => nested?.get(key),
    };
    let mut first = None;
    for text in keys.iter().filter_map(|key| given(key)?.as_str()).filter(|text| !text.is_empty()) {
        let samples = match backend {
            Backend::Pytorch => python::float32(text)?,
            Backend::Cpp => cpp_audio(text)
                .ok()
                .filter(|samples| !samples.is_empty())
                .ok_or("voice_audio_decode_failed")?,
        };
        first = first.or(Some(samples));
    }
    Ok(first)
}

fn section<'a>(
    input: &'a Map<String, Value>,
    key: &str,
) -> Result<std::borrow::Cow<'a, Map<String, Value>>, String> {
    use std::borrow::Cow;
    match input.get(key) {
        Some(Value::Object(fields)) => Ok(Cow::Borrowed(fields)),
        Some(value) if python::truthy(value) => Err(format!("chat.request {key} must be an object")),
        _ => Ok(Cow::Owned(Map::new())),
    }
}

fn integer(value: &Value) -> Result<usize, String> {
    match value {
        Value::Number(number) => Ok(at_least_one(number.as_f64().unwrap_or(0.0) as i64)),
        Value::Bool(flag) => Ok(usize::from(*flag).max(1)),
        Value::String(text) => text
            .trim()
            .parse()
            .map(at_least_one)
            .map_err(|_| format!("invalid literal for int() with base 10: '{text}'")),
        _ => Err("int() argument must be a string, a bytes-like object or a real number".to_owned()),
    }
}

fn at_least_one(count: i64) -> usize {
    usize::try_from(count).unwrap_or(1).max(1)
}

fn pytorch_messages(input: &Map<String, Value>) -> Result<Vec<Message>, String> {
    let raw = match input.get("messages") {
        None => return Ok(Vec::new()),
        Some(Value::Array(raw)) => raw,
        Some(Value::Null) => return Err("'NoneType' object is not iterable".to_owned()),
        Some(_) => return Err("string indices must be integers, not 'str'".to_owned()),
    };
    let messages: Vec<_> = raw.iter().map(pytorch_message).collect::<Result<_, _>>()?;
    Ok(messages.into_iter().flatten().collect())
}

/// A message whose items are all skipped is dropped (field notes §1.5).
fn pytorch_message(raw: &Value) -> Result<Option<Message>, String> {
    let Some(raw) = raw.as_object() else {
        return Err("string indices must be integers, not 'str'".to_owned());
    };
    let role = raw.get("role").ok_or("'role'")?;
    let role = match role.as_str() {
        Some(role @ ("system" | "user" | "assistant")) => role.to_owned(),
        _ => return Err(format!("{} is not a valid Role", python::repr(role))),
    };
    match raw.get("content").ok_or("'content'")? {
        Value::String(text) => Ok(Some(Message { role, text: text.clone(), audio: Vec::new() })),
        Value::Array(items) => pytorch_items(role, items),
        _ => Err("1 validation error for Message\ncontent\n  Input should be a valid string".to_owned()),
    }
}

fn pytorch_items(role: String, items: &[Value]) -> Result<Option<Message>, String> {
    let (mut texts, mut audio, mut kept) = (Vec::new(), Vec::new(), false);
    for item in items {
        let filled = |key| item.get(key).filter(|value| python::truthy(value));
        match (item.get("type").and_then(Value::as_str), filled("text"), filled("data")) {
            (Some("text"), Some(text), _) => texts.push(python::text_of(text)),
            (Some("audio"), _, Some(data)) => audio.append(&mut audio_of(Some(data))?),
            (Some("image" | "video"), _, Some(_)) => {}
            _ => continue,
        }
        kept = true;
    }
    Ok(kept.then(|| Message { role, text: texts.join("\n"), audio }))
}

fn audio_of(value: Option<&Value>) -> Result<Vec<f32>, String> {
    let text = value.and_then(Value::as_str);
    python::float32(text.ok_or("argument should be a bytes-like object or ASCII string")?)
}

/// The C++ parser takes nearly anything: roles are not checked, only the first audio of a message counts.
fn cpp_message(raw: &Value) -> Result<Message, Refusal> {
    let role = raw.get("role").and_then(Value::as_str).unwrap_or("user").to_owned();
    let mut message = Message { role, ..Message::default() };
    match raw.get("content") {
        Some(Value::String(text)) => message.text.clone_from(text),
        Some(Value::Array(items)) => {
            let text = |item: &Value| {
                let wanted = item.get("type")?.as_str()? == "text";
                item.get("text")?.as_str().filter(|text| wanted && !text.is_empty()).map(str::to_owned)
            };
            message.text = items.iter().filter_map(text).collect::<Vec<_>>().join("\n");
            let first = items.iter().find_map(cpp_audio_item).filter(|_| message.role == "user");
            message.audio = first.map_or(Ok(Vec::new()), cpp_audio)?;
        }
        _ => {}
    }
    Ok(message)
}

fn cpp_audio_item(item: &Value) -> Option<&str> {
    if item.get("type")?.as_str()? != "audio" {
        return None;
    }
    let keys = ["data", "base64", "audio_base64", "audio_data"];
    keys.iter().find_map(|key| item.get(key)?.as_str().filter(|text| !text.is_empty()))
}

/// Left-over bytes are ignored; text that is no base64 throws.
pub(super) fn cpp_audio(text: &str) -> Result<Vec<f32>, Refusal> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let bytes = STANDARD.decode(cpp_payload(text)).map_err(|_| Refusal::Silent)?;
    Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
}

/// The base64 without the `data:` prefix that C++ takes off.
pub(super) fn cpp_payload(text: &str) -> &str {
    match text.split_once(',') {
        Some((prefix, payload)) if prefix.contains("base64") => payload,
        _ => text,
    }
}
