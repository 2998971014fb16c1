//! The body of a request: a form with a recording, or a JSON object.
//!
//! A recording is kept in memory, because its fields may follow it; it counts in the memory of messages in transit. Some
//! clients, such as Open WebUI, can send it as base64 in JSON instead: `{"input_audio": {"data": "..."}}`.

use std::{str::FromStr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::{
    Request, StatusCode,
    body::{Body as _, Incoming},
    header::CONTENT_TYPE,
};
use multer::{Constraints, Field, Multipart, SizeLimit};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::style::Failure;
use crate::server::memory::MemoryShare;

/// Longest recording, bytes: OpenAI's and Macaw's limit.
pub(super) const RECORDING_MAX_BYTES: usize = 25 * 1024 * 1024;
/// Longest recording in JSON, bytes: base64 takes a third more.
const RECORDING_JSON_MAX_BYTES: usize = RECORDING_MAX_BYTES / 3 * 4 + 1024 * 1024;
/// Longest request to speak, bytes: a reference voice as base64 may be in it.
pub(super) const SPEECH_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Longest text field of a form, bytes.
const FIELD_MAX_BYTES: usize = 64 * 1024;
/// Most fields of a form.
const FIELDS_MAX: usize = 256;
/// A client that sends nothing for so long has stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a body: 25 MB over a slow mobile connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(900);

/// A form with a recording.
#[derive(Debug, Default)]
pub(super) struct Upload {
    /// The recording; `None` if the form has none.
    pub(super) file: Option<Bytes>,
    fields: Vec<(String, String)>,
}

impl Upload {
    /// Reads a form (RFC 7578) or a JSON object. The fields of a form may come in any order.
    pub(super) async fn read(request: Request<Incoming>, memory: &mut MemoryShare) -> Result<Self, Failure> {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if content_type.is_some_and(|value| value.trim_start().starts_with("application/json")) {
            return Self::of_json(&read_object(request, RECORDING_JSON_MAX_BYTES, memory).await?);
        }
        let boundary = multer::parse_boundary(content_type.unwrap_or_default()).map_err(|_| {
            Failure::invalid(
                "The body must be a form (Content-Type: multipart/form-data with a boundary) or JSON",
            )
        })?;
        let whole_max = RECORDING_MAX_BYTES + FIELDS_MAX * FIELD_MAX_BYTES;
        let limits = SizeLimit::new().whole_stream(whole_max as u64);
        let body = request.into_body().into_data_stream();
        let constraints = Constraints::new().size_limit(limits);
        let form = Multipart::with_constraints(body, boundary, constraints);
        timeout(BODY_TIMEOUT, Self::read_form(form, memory)).await.unwrap_or_else(|_| Err(too_slow()))
    }

    async fn read_form(mut form: Multipart<'_>, memory: &mut MemoryShare) -> Result<Self, Failure> {
        let mut upload = Self::default();
        let mut count = 0;
        while let Some(field) = in_time(form.next_field()).await? {
            count += 1;
            if count > FIELDS_MAX {
                return Err(Failure::invalid(format!("The form has more than {FIELDS_MAX} fields")));
            }
            upload.add(field, memory).await?;
        }
        Ok(upload)
    }

    fn of_json(body: &Map<String, Value>) -> Result<Self, Failure> {
        let file = match body.get("input_audio").map(|audio| audio["data"].as_str()) {
            None => None,
            Some(None) => return Err(Failure::parameter("input_audio", "Missing 'input_audio.data'.")),
            Some(Some(data)) => Some(STANDARD.decode(data).map_err(|error| {
                Failure::parameter("input_audio", format!("Invalid base64 in 'input_audio.data': {error}."))
            })?),
        };
        if file.as_ref().is_some_and(|file| file.len() > RECORDING_MAX_BYTES) {
            return Err(too_large(RECORDING_MAX_BYTES));
        }
        let texts = |(name, value): (&String, &Value)| -> Vec<(String, String)> {
            let values = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
            let texts = values.iter().filter_map(|value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
                _ => None,
            });
            texts.map(|text| (name.clone(), text)).collect()
        };
        Ok(Self { file: file.map(Bytes::from), fields: body.iter().flat_map(texts).collect() })
    }

    async fn add(&mut self, field: Field<'_>, memory: &mut MemoryShare) -> Result<(), Failure> {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            self.file = Some(read_field(field, RECORDING_MAX_BYTES, memory).await?);
            return Ok(());
        }
        let value = read_field(field, FIELD_MAX_BYTES, memory).await?;
        // Lists may be written with brackets.
        let name = name.strip_suffix("[]").unwrap_or(&name).to_owned();
        self.fields.push((name, String::from_utf8_lossy(&value).into_owned()));
        Ok(())
    }

    /// The field with this name; an empty one counts as missing.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All fields with this name that are not empty.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.fields.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The field with this name as another type.
    pub(super) fn parse<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let parsed = text.to_ascii_lowercase().parse();
        parsed
            .map(Some)
            .map_err(|_| Failure::parameter(name, format!("Invalid value for '{name}': must be {expected}.")))
    }
}

/// Reads a field of at most `max_bytes`.
async fn read_field(
    mut field: Field<'_>,
    max_bytes: usize,
    memory: &mut MemoryShare,
) -> Result<Bytes, Failure> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = in_time(field.chunk()).await? {
        append(&mut bytes, &chunk, max_bytes, memory)?;
    }
    Ok(bytes.freeze())
}

fn append(
    bytes: &mut BytesMut,
    chunk: &[u8],
    max_bytes: usize,
    memory: &mut MemoryShare,
) -> Result<(), Failure> {
    if bytes.len() + chunk.len() > max_bytes {
        return Err(too_large(max_bytes));
    }
    bytes.extend_from_slice(chunk);
    match memory.hold_incoming(bytes.len()) {
        true => Ok(()),
        false => {
            let message = "Out of memory, try again later";
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message))
        }
    }
}

fn too_large(max_bytes: usize) -> Failure {
    let limit = match max_bytes >> 20 {
        0 => format!("{} KiB", max_bytes >> 10),
        mebibytes => format!("{mebibytes} MiB"),
    };
    let message = format!("The upload exceeds the limit of {limit}");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "file_too_large", message)
}

/// Waits for the next part of a form.
async fn in_time<T>(part: impl Future<Output = multer::Result<T>>) -> Result<T, Failure> {
    match timeout(STALL_TIMEOUT, part).await {
        Ok(read) => read.map_err(|error| match error {
            multer::Error::StreamSizeExceeded { .. } => too_large(RECORDING_MAX_BYTES),
            other => Failure::invalid(format!("The form cannot be read: {other}")),
        }),
        Err(_) => Err(stalled()),
    }
}

fn stalled() -> Failure {
    let message = format!("No data came for {} s", STALL_TIMEOUT.as_secs());
    Failure::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

fn too_slow() -> Failure {
    let message = format!("The body was not complete within {} s", BODY_TIMEOUT.as_secs());
    Failure::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

/// Reads a body of at most `max_bytes`.
pub(super) async fn read_body(
    body: Incoming,
    max_bytes: usize,
    memory: &mut MemoryShare,
) -> Result<Bytes, Failure> {
    let read = timeout(BODY_TIMEOUT, read_to_end(body, max_bytes, memory));
    read.await.unwrap_or_else(|_| Err(too_slow()))
}

async fn read_to_end(
    mut body: Incoming,
    max_bytes: usize,
    memory: &mut MemoryShare,
) -> Result<Bytes, Failure> {
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    let mut bytes = BytesMut::new();
    loop {
        let frame = timeout(STALL_TIMEOUT, body.frame()).await.map_err(|_| stalled())?;
        let Some(frame) = frame else { return Ok(bytes.freeze()) };
        let frame = frame.map_err(|error| Failure::invalid(format!("The body cannot be read: {error}")))?;
        if let Some(chunk) = frame.data_ref() {
            append(&mut bytes, chunk, max_bytes, memory)?;
        }
    }
}

/// Reads a body that is a JSON object.
pub(super) async fn read_object(
    request: Request<Incoming>,
    max_bytes: usize,
    memory: &mut MemoryShare,
) -> Result<Map<String, Value>, Failure> {
    let body = read_body(request.into_body(), max_bytes, memory).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Failure::invalid(format!("The body is not a JSON object: {error}")))
}
