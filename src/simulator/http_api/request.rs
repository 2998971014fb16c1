//! Requests of the HTTP API: read as strictly as each server, and translated into the input of a chat session.

use serde_json::{Map, Value, json};
use std::time::Duration;

use super::{MODEL, failure, not_found};
use crate::{
    HttpApi, HttpPage, READ_ALOUD_PROMPT,
    audio::{SPEECH_RATE_HZ, pcm, wav},
};

/// Longest recording that the model takes.
const AUDIO_MAX: Duration = Duration::from_secs(30);

/// A request, as the input of a chat session.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) input: Value,
    pub(super) form: AnswerForm,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// A chat completion.
    Chat { is_stream: bool },
    /// A transcript.
    Transcript { is_stream: bool },
    /// A file of speech.
    Speech,
}

/// Reads a request. Fails with the server's answer.
pub(super) fn read(api: HttpApi, path: &str, content_type: &str, body: &[u8]) -> Result<Question, HttpPage> {
    match (path, api) {
        ("/v1/chat/completions", HttpApi::VllmOmni | HttpApi::SglangOmni) => chat(api, &json_object(body)?),
        ("/v1/audio/transcriptions", HttpApi::SglangOmni | HttpApi::OpenaiAudio) => {
            transcription(api, &form_fields(content_type, body)?)
        }
        // The simulated model has one text for an utterance.
        ("/v1/audio/translations", HttpApi::OpenaiAudio) => {
            transcription(api, &form_fields(content_type, body)?)
        }
        ("/v1/audio/speech", HttpApi::SglangOmni | HttpApi::OpenaiAudio) => speech(api, &json_object(body)?),
        _ => Err(not_found()),
    }
}

fn bad(words: &str) -> HttpPage {
    failure(400, words)
}

/// FastAPI's page for a field that is missing.
fn missing(field: &str) -> HttpPage {
    let problem = json!({"type": "missing", "loc": ["body", field], "msg": "Field required", "input": null});
    HttpPage { status: 422, json: json!({"detail": [problem]}).to_string() }
}

/// FastAPI's page for a field of the wrong type, or outside its range.
fn invalid(field: &str, kind: &str, words: &str) -> HttpPage {
    let problem = json!({"type": kind, "loc": ["body", field], "msg": words});
    HttpPage { status: 422, json: json!({"detail": [problem]}).to_string() }
}

/// Checks the types of fields as SGLang-Omni's models have them (`serve/protocol.py`). Unknown fields are ignored.
fn check_types(body: &Map<String, Value>) -> Result<(), HttpPage> {
    let texts = ["model", "input", "voice", "response_format", "language", "instructions", "ref_audio"];
    for (name, value) in body.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            name if texts.contains(&name) && !value.is_string() => {
                return Err(invalid(name, "string_type", "Input should be a valid string"));
            }
            "stream" if value.is_array() || value.is_object() => {
                return Err(invalid(name, "bool_type", "Input should be a valid boolean"));
            }
            "messages" if !value.is_array() => {
                return Err(invalid(name, "list_type", "Input should be a valid list"));
            }
            "messages" if value.as_array().is_some_and(Vec::is_empty) => {
                let words = "messages must not be empty without audios, images or videos";
                return Err(invalid(name, "value_error", words));
            }
            "modalities" if !value.as_array().is_some_and(|all| all.iter().all(Value::is_string)) => {
                return Err(invalid(name, "list_type", "Input should be a valid list"));
            }
            "audio" if !value.is_object() => {
                return Err(invalid(name, "dict_type", "Input should be a valid dictionary"));
            }
            "max_tokens" if value.as_f64().is_some_and(|count| count < 1.0) => {
                let words = "Input should be greater than or equal to 1";
                return Err(invalid(name, "greater_than_equal", words));
            }
            _ => {}
        }
    }
    Ok(())
}

fn json_object(body: &[u8]) -> Result<Map<String, Value>, HttpPage> {
    serde_json::from_slice(body).map_err(|error| bad(&format!("the body is no JSON object: {error}")))
}

/// Checks the name of the model, which speaches needs and the others may lack.
fn check_model(api: HttpApi, model: Option<&str>) -> Result<(), HttpPage> {
    match (api, model) {
        (HttpApi::OpenaiAudio, None) => Err(missing("model")),
        (HttpApi::VllmOmni, Some(model)) if model != MODEL => {
            Err(failure(404, &format!("The model `{model}` does not exist.")))
        }
        _ => Ok(()),
    }
}

fn chat(api: HttpApi, body: &Map<String, Value>) -> Result<Question, HttpPage> {
    if api == HttpApi::SglangOmni {
        check_types(body)?;
    }
    check_model(api, body.get("model").and_then(Value::as_str))?;
    let messages = body.get("messages").and_then(Value::as_array).ok_or_else(|| missing("messages"))?;
    let messages = messages.iter().map(chat_message).collect::<Result<Vec<_>, _>>()?;
    let modalities: Vec<&str> = body
        .get("modalities")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if let Some(unknown) = modalities.iter().find(|name| !["text", "audio"].contains(name)) {
        return Err(bad(&format!("Unsupported output modalities {unknown} for this model.")));
    }
    let format = body.get("audio").and_then(|audio| audio["format"].as_str()).unwrap_or("wav");
    let speaks = modalities.contains(&"audio");
    if speaks && format != "wav" {
        return Err(bad(&format!("Invalid audio format '{format}'.")));
    }
    let voice = match api {
        HttpApi::VllmOmni => body.get("ref_audio"),
        _ => body.get("audio").and_then(|audio| audio.get("ref_audio")),
    };
    let max_tokens = body.get("max_tokens").and_then(Value::as_u64).unwrap_or(2048);
    let is_stream = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let input = chat_input(messages, speaks, voice, max_tokens)?;
    Ok(Question { input, form: AnswerForm::Chat { is_stream } })
}

fn chat_message(message: &Value) -> Result<Value, HttpPage> {
    let role = message["role"].as_str().ok_or_else(|| missing("role"))?;
    let content = match &message["content"] {
        Value::String(text) => json!(text),
        Value::Array(parts) => parts.iter().map(chat_part).collect::<Result<Vec<_>, _>>()?.into(),
        _ => return Err(bad("Chat content must be a string or ordered parts")),
    };
    Ok(json!({"role": role, "content": content}))
}

fn chat_part(part: &Value) -> Result<Value, HttpPage> {
    match part["type"].as_str() {
        Some("text") => Ok(json!({"type": "text", "text": part["text"]})),
        Some("input_audio") => {
            let (data, format) = (&part["input_audio"]["data"], &part["input_audio"]["format"]);
            let (Some(data), Some("wav")) = (data.as_str(), format.as_str()) else {
                return Err(bad("input_audio requires base64 data and format"));
            };
            Ok(json!({"type": "audio", "data": float_base64(&decode_base64(data)?)?}))
        }
        Some("image_url") => {
            let url = part["image_url"]["url"].as_str().and_then(|url| url.split_once(";base64,"));
            let (_, data) = url.ok_or_else(|| bad("image_url requires a media URL"))?;
            Ok(json!({"type": "image", "data": data}))
        }
        other => Err(bad(&format!("Unsupported MiniCPM-o content type: {other:?}"))),
    }
}

/// Input of a chat session, with a voice in a data URL.
fn chat_input(
    messages: Vec<Value>,
    speaks: bool,
    voice: Option<&Value>,
    max_tokens: u64,
) -> Result<Value, HttpPage> {
    let mut tts = json!({"enabled": speaks});
    if let Some(voice) = voice {
        let url = voice.as_str().and_then(|url| url.strip_prefix("data:audio/")?.split_once(";base64,"));
        let (_, data) = url.ok_or_else(|| bad("MiniCPM-o ref_audio must be a base64 data URI"))?;
        tts["ref_audio_data"] = float_base64(&decode_base64(data)?)?.into();
    }
    Ok(json!({
        "messages": messages, "streaming": true, "generation": {"max_new_tokens": max_tokens}, "tts": tts,
        "use_tts_template": speaks,
    }))
}

fn transcription(api: HttpApi, fields: &[(String, Vec<u8>)]) -> Result<Question, HttpPage> {
    let field =
        |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice());
    let text = |name: &str| field(name).map(String::from_utf8_lossy);
    check_model(api, text("model").as_deref())?;
    let file = field("file").ok_or_else(|| missing("file"))?;
    if file.is_empty() {
        return Err(bad("Uploaded audio file is empty"));
    }
    let format = text("response_format").unwrap_or("json".into());
    if format != "json" {
        return Err(bad(&format!("Unsupported response_format for /v1/audio/transcriptions: '{format}'")));
    }
    let content = json!([
        {"type": "text", "text": "Please listen to the audio snippet carefully and transcribe the content."},
        {"type": "audio", "data": float_base64(file)?},
    ]);
    let input = chat_input(vec![json!({"role": "user", "content": content})], false, None, 512)?;
    let is_stream = text("stream").is_some_and(|stream| stream == "true");
    Ok(Question { input, form: AnswerForm::Transcript { is_stream } })
}

fn speech(api: HttpApi, body: &Map<String, Value>) -> Result<Question, HttpPage> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    if api == HttpApi::SglangOmni {
        check_types(body)?;
    }
    check_model(api, text("model"))?;
    if !body.contains_key("input") {
        return Err(missing("input"));
    }
    let speed = body.get("speed").and_then(Value::as_f64).unwrap_or(1.0);
    if !(0.25..=4.0).contains(&speed) {
        return Err(bad("speed must be between 0.25 and 4.0"));
    }
    let Some(words) = text("input").filter(|words| !words.trim().is_empty()) else {
        return Err(bad("input must be a non-empty string"));
    };
    if text("voice").is_none() && api == HttpApi::OpenaiAudio {
        return Err(missing("voice"));
    }
    if text("response_format").is_some_and(|format| format != "wav") {
        return Err(bad("the simulator speaks WAV only"));
    }
    if body.get("stream").and_then(Value::as_bool) == Some(true) {
        return Err(bad("MiniCPM-o speech output does not stream"));
    }
    let voice = body.get("ref_audio").filter(|_| api == HttpApi::SglangOmni);
    let message = json!({"role": "user", "content": format!("{READ_ALOUD_PROMPT} {words}")});
    let input = chat_input(vec![message], true, voice, 2048)?;
    Ok(Question { input, form: AnswerForm::Speech })
}

fn decode_base64(data: &str) -> Result<Vec<u8>, HttpPage> {
    let mut bytes = Vec::new();
    pcm::decode_base64(data, &mut bytes).map_err(|_| bad("Incorrect padding"))?;
    Ok(bytes)
}

/// A WAV file as float32 at 16 kHz in base64.
fn float_base64(file: &[u8]) -> Result<String, HttpPage> {
    let (samples, rate_hz) = wav::read(file, AUDIO_MAX).map_err(|error| bad(&error.to_string()))?;
    let samples =
        wav::resample_all(&samples, rate_hz, SPEECH_RATE_HZ).map_err(|error| bad(&error.to_string()))?;
    let mut base64 = String::new();
    pcm::encode_base64_samples(&samples, &mut base64);
    Ok(base64)
}

/// Names and values of a form's fields.
fn form_fields(content_type: &str, body: &[u8]) -> Result<Vec<(String, Vec<u8>)>, HttpPage> {
    let boundary = content_type.split_once("boundary=").map(|(_, boundary)| boundary.trim_matches('"'));
    let boundary = boundary.ok_or_else(|| bad("the body is no form"))?;
    let body = [b"\r\n", body].concat();
    let delimiter = format!("\r\n--{boundary}");
    let starts: Vec<usize> = memchr::memmem::find_iter(&body, delimiter.as_bytes()).collect();
    let parts = starts.windows(2).map(|pair| &body[pair[0] + delimiter.len()..pair[1]]);
    let field = |part: &[u8]| {
        let head = memchr::memmem::find(part, b"\r\n\r\n")?;
        let words = String::from_utf8_lossy(&part[..head]).into_owned();
        let (name, _) = words.split_once("name=\"")?.1.split_once('"')?;
        Some((name.to_owned(), part[head + 4..].to_vec()))
    };
    Ok(parts.filter_map(field).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status and words of the refusal; 200 for a request that is taken.
    fn answer(api: HttpApi, path: &str, body: &Value) -> (u16, String) {
        let answer = read(api, path, "application/json", body.to_string().as_bytes());
        answer.map_or_else(|page| (page.status, page.json), |_| (200, String::new()))
    }

    #[test]
    fn fields_that_the_servers_refuse_are_named() {
        let hello = json!([{"role": "user", "content": "Hello"}]);
        let (chat, speech) = ("/v1/chat/completions", "/v1/audio/speech");
        for (path, body, status, words) in [
            (chat, json!({"messages": hello}), 200, ""),
            (chat, json!({}), 422, "messages"),
            (chat, json!({"messages": []}), 422, "must not be empty"),
            (chat, json!({"messages": "Hello"}), 422, "messages"),
            (chat, json!({"messages": hello, "max_tokens": 0}), 422, "max_tokens"),
            (chat, json!({"messages": hello, "modalities": "text"}), 422, "modalities"),
            (chat, json!({"messages": hello, "stream": []}), 422, "stream"),
            (chat, json!({"messages": hello, "audio": "wav"}), 422, "audio"),
            (chat, json!({"messages": hello, "unknown": 1}), 200, ""),
            (speech, json!({"input": "Yes."}), 200, ""),
            (speech, json!({}), 422, "input"),
            (speech, json!({"input": " "}), 400, "non-empty"),
            (speech, json!({"input": "Yes.", "voice": 1}), 422, "voice"),
            (speech, json!({"input": "Yes.", "speed": 9}), 400, "speed"),
            (speech, json!({"input": "Yes.", "stream": true}), 400, "stream"),
        ] {
            let given = answer(HttpApi::SglangOmni, path, &body);
            assert!(given.0 == status && given.1.contains(words), "{body}: {given:?}");
        }
        let (status, words) = answer(HttpApi::OpenaiAudio, speech, &json!({"model": "x", "input": "Yes."}));
        assert!(status == 422 && words.contains("voice"), "{words}");
    }
}
