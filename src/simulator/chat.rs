//! Parser for chat requests, exactly as lenient and as strict as each back-end (mappings/notes/minicpm-o.md#chat,
//! mappings/notes/llama-cpp-omni.md#chat).

use serde_json::{Map, Value};

use super::{Backend, picture::check_picture, python, script};

/// One parsed chat request.
#[derive(Debug, Default)]
pub(super) struct ChatRequest {
    pub(super) streaming: bool,
    pub(super) speech_enabled: bool,
    pub(super) max_new_tokens: usize,
    /// Samples to transcribe, if the last user message has audio.
    pub(super) user_audio: Option<Vec<f32>>,
    /// The text of the last user message.
    pub(super) user_text: String,
    /// The system prompt that the model gets.
    pub(super) system_text: String,
    /// The request's own voice reference, which only PyTorch uses.
    pub(super) voice_reference: Option<Vec<f32>>,
    /// Echoed unchanged, by PyTorch only.
    pub(super) input_id: Option<Value>,
    pub(super) response_id: Option<String>,
    /// Estimated context positions of the prompt.
    pub(super) prompt_tokens: usize,
    /// The server reads calls out of the answer, and does not speak them.
    pub(super) calls_natively: bool,
}

/// Reason why an append ends the session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AppendRejection {
    /// PyTorch: `backend_error` with the exception text.
    Exception(String),
    /// C++: a specific reason, without diagnostic.
    Reason(&'static str),
    /// C++: the handler crashed; only the worker sends `session.closed`.
    Silent,
}

/// Context positions per second of audio (mappings/notes/minicpm-o-duplex.md#context).
const AUDIO_TOKENS_PER_SECOND: usize = 10;

/// Python's exception for base64 that is no text.
const NO_BYTES: &str = "argument should be a bytes-like object or ASCII string";

#[derive(Debug, Default)]
struct ChatMessage {
    role: String,
    text: String,
    audio: Vec<f32>,
}

impl ChatRequest {
    pub(super) fn parse(backend: Backend, input: &Map<String, Value>) -> Result<Self, AppendRejection> {
        match backend {
            Backend::Pytorch => Self::parse_pytorch(input).map_err(AppendRejection::Exception),
            Backend::Cpp => Self::parse_cpp(input),
        }
    }

    fn parse_pytorch(input: &Map<String, Value>) -> Result<Self, String> {
        let generation = optional_object(input, "generation")?;
        optional_object(input, "image")?;
        let tts = optional_object(input, "tts")?;
        let speech_enabled = tts.get("enabled").is_some_and(python::is_truthy);
        let reference = tts.get("ref_audio_data").filter(|value| speech_enabled && python::is_truthy(value));
        let voice_reference = reference.map(|value| decode_audio(Some(value))).transpose()?;
        let max_new_tokens = match generation.get("max_new_tokens") {
            None => Backend::Pytorch.default_max_new_tokens(),
            Some(value) => python_int(value)?,
        };
        let messages = parse_pytorch_messages(input)?;
        match messages.first().map(|message| message.role.as_str()) {
            None => return Err("list index out of range".to_owned()),
            Some("assistant") => return Err("The role of first msg should be user".to_owned()),
            Some(_) => {}
        }
        let response_id =
            input.get("response_id").filter(|value| python::is_truthy(value)).map(python::to_str);
        let input_id = input.get("input_id").filter(|value| !value.is_null()).cloned();
        let streaming = input.get("streaming").is_none_or(python::is_truthy);
        let request = Self::from_messages(messages, streaming, speech_enabled, max_new_tokens);
        Ok(Self { voice_reference, input_id, response_id, ..request })
    }

    fn parse_cpp(input: &Map<String, Value>) -> Result<Self, AppendRejection> {
        let Some(Value::Array(raw)) = input.get("messages") else {
            return Err(AppendRejection::Reason("mode_mismatch"));
        };
        if raw.is_empty() {
            return Err(AppendRejection::Reason("empty_messages"));
        }
        let messages = raw.iter().map(parse_cpp_message).collect::<Result<Vec<_>, _>>()?;
        let flag = |fields: &Map<String, Value>, key| fields.get(key).and_then(Value::as_bool);
        let object = |key| input.get(key).and_then(Value::as_object);
        let enabled = object("tts").and_then(|tts| flag(tts, "enabled")).unwrap_or(false);
        let speech_enabled = enabled || flag(input, "use_tts_template").unwrap_or(false);
        let max_new_tokens =
            object("generation").and_then(|generation| generation.get("max_new_tokens")?.as_i64());
        let max_new_tokens = max_new_tokens.map_or(Backend::Cpp.default_max_new_tokens(), at_least_one);
        let streaming = flag(input, "streaming").unwrap_or(true);
        let mut request = Self::from_messages(messages, streaming, speech_enabled, max_new_tokens);
        if speech_enabled {
            // A fixed persona replaces the client's prompt (mappings/notes/llama-cpp-omni.md#chat).
            request.system_text.clear();
        }
        // Without text or audio there is nothing to prefill but the system prompt.
        if request.user_text.is_empty() && request.user_audio.is_none() {
            return Err(AppendRejection::Reason("prefill_failed"));
        }
        Ok(request)
    }

    fn from_messages(
        messages: Vec<ChatMessage>,
        streaming: bool,
        speech_enabled: bool,
        max_new_tokens: usize,
    ) -> Self {
        let is_system = |message: &&ChatMessage| message.role == "system";
        let system: Vec<&str> = messages.iter().filter(is_system).map(|message| &*message.text).collect();
        let system_text = system.join("\n");
        let prompt_tokens = messages
            .iter()
            .map(|message| {
                let audio = message.audio.len() * AUDIO_TOKENS_PER_SECOND / 16_000;
                4 + script::estimate_tokens(&message.text) + audio
            })
            .sum();
        let last = messages.into_iter().rfind(|message| message.role == "user").unwrap_or_default();
        Self {
            streaming,
            speech_enabled,
            max_new_tokens,
            user_audio: (!last.audio.is_empty()).then_some(last.audio),
            user_text: last.text,
            system_text,
            voice_reference: None,
            input_id: None,
            response_id: None,
            prompt_tokens,
            calls_natively: false,
        }
    }
}

/// Decodes the voice reference of `session.init`; `None` if there is none. An error ends the session.
pub(super) fn decode_init_voice(
    backend: Backend,
    payload: &Map<String, Value>,
) -> Result<Option<Vec<f32>>, String> {
    let nested = payload.get("voice").and_then(Value::as_object);
    let keys = ["ref_audio_base64", "ref_audio", "tts_ref_audio_base64", "tts_ref_audio"];
    let field = |key: &str| match backend {
        Backend::Pytorch => payload.get(key).or_else(|| nested?.get(key)),
        Backend::Cpp => nested?.get(key),
    };
    let mut first = None;
    for text in keys.iter().filter_map(|key| field(key)?.as_str()).filter(|text| !text.is_empty()) {
        let samples = match backend {
            Backend::Pytorch => python::decode_float32(text)?,
            Backend::Cpp => decode_cpp_audio(text)
                .ok()
                .filter(|samples| !samples.is_empty())
                .ok_or("voice_audio_decode_failed")?,
        };
        first = first.or(Some(samples));
    }
    Ok(first)
}

fn optional_object<'a>(
    input: &'a Map<String, Value>,
    key: &str,
) -> Result<std::borrow::Cow<'a, Map<String, Value>>, String> {
    use std::borrow::Cow;
    match input.get(key) {
        Some(Value::Object(fields)) => Ok(Cow::Borrowed(fields)),
        Some(value) if python::is_truthy(value) => Err(format!("chat.request {key} must be an object")),
        _ => Ok(Cow::Owned(Map::new())),
    }
}

fn python_int(value: &Value) -> Result<usize, String> {
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

fn parse_pytorch_messages(input: &Map<String, Value>) -> Result<Vec<ChatMessage>, String> {
    let raw = match input.get("messages") {
        None => return Ok(Vec::new()),
        Some(Value::Array(raw)) => raw,
        Some(Value::Null) => return Err("'NoneType' object is not iterable".to_owned()),
        Some(_) => return Err("string indices must be integers, not 'str'".to_owned()),
    };
    let messages: Vec<_> = raw.iter().map(parse_pytorch_message).collect::<Result<_, _>>()?;
    Ok(messages.into_iter().flatten().collect())
}

/// Drops a message if all its items are skipped (mappings/notes/minicpm-o.md#rejections).
fn parse_pytorch_message(raw: &Value) -> Result<Option<ChatMessage>, String> {
    let Some(raw) = raw.as_object() else {
        return Err("string indices must be integers, not 'str'".to_owned());
    };
    let role = raw.get("role").ok_or("'role'")?;
    let role = match role.as_str() {
        Some(role @ ("system" | "user" | "assistant")) => role.to_owned(),
        _ => return Err(format!("{} is not a valid Role", python::to_repr(role))),
    };
    match raw.get("content").ok_or("'content'")? {
        Value::String(text) => Ok(Some(ChatMessage { role, text: text.clone(), audio: Vec::new() })),
        Value::Array(items) => parse_pytorch_items(role, items),
        _ => Err("1 validation error for Message\ncontent\n  Input should be a valid string".to_owned()),
    }
}

fn parse_pytorch_items(role: String, items: &[Value]) -> Result<Option<ChatMessage>, String> {
    let (mut texts, mut audio, mut has_content) = (Vec::new(), Vec::new(), false);
    for item in items {
        let non_empty = |key| item.get(key).filter(|value| python::is_truthy(value));
        match (item.get("type").and_then(Value::as_str), non_empty("text"), non_empty("data")) {
            (Some("text"), Some(text), _) => texts.push(python::to_str(text)),
            (Some("audio"), _, Some(data)) => audio.append(&mut decode_audio(Some(data))?),
            (Some("image"), _, Some(data)) => check_picture(&decode_bytes(data)?)?,
            (Some("video"), _, Some(_)) => {}
            _ => continue,
        }
        has_content = true;
    }
    Ok(has_content.then(|| ChatMessage { role, text: texts.join("\n"), audio }))
}

fn decode_bytes(value: &Value) -> Result<Vec<u8>, String> {
    python::decode_base64(value.as_str().ok_or(NO_BYTES)?)
}

fn decode_audio(value: Option<&Value>) -> Result<Vec<f32>, String> {
    let text = value.and_then(Value::as_str);
    python::decode_float32(text.ok_or(NO_BYTES)?)
}

/// Like the C++ parser, accepts any role and uses only the first audio item of a message.
fn parse_cpp_message(raw: &Value) -> Result<ChatMessage, AppendRejection> {
    let role = raw.get("role").and_then(Value::as_str).unwrap_or("user").to_owned();
    let mut message = ChatMessage { role, ..ChatMessage::default() };
    match raw.get("content") {
        Some(Value::String(text)) => message.text.clone_from(text),
        Some(Value::Array(items)) => {
            let item_text = |item: &Value| {
                let is_text = item.get("type")?.as_str()? == "text";
                item.get("text")?.as_str().filter(|text| is_text && !text.is_empty()).map(str::to_owned)
            };
            message.text = items.iter().filter_map(item_text).collect::<Vec<_>>().join("\n");
            let first = items.iter().find_map(cpp_audio_text).filter(|_| message.role == "user");
            message.audio = first.map_or(Ok(Vec::new()), decode_cpp_audio)?;
        }
        _ => {}
    }
    Ok(message)
}

fn cpp_audio_text(item: &Value) -> Option<&str> {
    if item.get("type")?.as_str()? != "audio" {
        return None;
    }
    let keys = ["data", "base64", "audio_base64", "audio_data"];
    keys.iter().find_map(|key| item.get(key)?.as_str().filter(|text| !text.is_empty()))
}

/// Decodes base64 to samples. Trailing bytes are ignored; invalid base64 is an error.
pub(super) fn decode_cpp_audio(text: &str) -> Result<Vec<f32>, AppendRejection> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let bytes = STANDARD.decode(strip_data_url_prefix(text)).map_err(|_| AppendRejection::Silent)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// Strips the `data:` prefix from base64, as C++ does.
pub(super) fn strip_data_url_prefix(text: &str) -> &str {
    match text.split_once(',') {
        Some((prefix, payload)) if prefix.contains("base64") => payload,
        _ => text,
    }
}
