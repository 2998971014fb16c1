//! A recording to transcribe and its fields: a form, or a JSON object.
//!
//! A recording is kept in memory, because its fields may follow it. Some clients, such as Open WebUI, can send it as base64 in
//! JSON instead: `{"input_audio": {"data": "..."}}`.

use std::str::FromStr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hyper::{Request, body::Incoming, header::CONTENT_TYPE};
use serde_json::json;

use super::{
    body::{BodyReader, read_body, too_large},
    form,
    members::{Member, Members},
    parse::parse,
    style::Failure,
};
use crate::server::{
    ServerContext,
    memory::{Held, MemoryShare},
};

/// Longest recording, bytes: OpenAI's and Macaw's limit.
pub(super) const RECORDING_MAX_BYTES: usize = 25 * 1024 * 1024;
/// Longest form, bytes: nearly a mebibyte of other fields.
const FORM_MAX_BYTES: usize = RECORDING_MAX_BYTES + 1024 * 1024 - 1;
/// Bytes of a form that are looked at together while it comes.
const FORM_STEP_BYTES: usize = 32 * 1024;
/// Longest recording in JSON, bytes: base64 takes a third more.
const RECORDING_JSON_MAX_BYTES: usize = RECORDING_MAX_BYTES / 3 * 4 + 1024 * 1024;
/// Memory for parsing JSON, in lengths of the body: itself, a text without its escapes, and the decoded recording.
const JSON_PARSING_LENGTHS: usize = 3;
/// Longest text field of a form, bytes.
const FIELD_MAX_BYTES: usize = 64 * 1024;
/// The fields that count; the others are skipped.
const FIELDS: [&str; 11] = [
    "input_audio",
    "model",
    "language",
    "prompt",
    "response_format",
    "stream",
    "temperature",
    "timestamp_granularities",
    "keywords",
    "hotwords",
    "hot_words",
];

/// A form with a recording.
#[derive(Debug, Default)]
pub(super) struct Upload {
    /// The recording; `None` if the form has none.
    pub(super) file: Option<Bytes>,
    fields: Vec<(&'static str, String)>,
}

impl Upload {
    /// Reads a form (RFC 7578) or a JSON object. The fields of a form may come in any order.
    pub(super) async fn read(
        request: Request<Incoming>,
        memory: &mut MemoryShare,
        server: &ServerContext,
    ) -> Result<Self, Failure> {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().trim().to_owned();
        let (body, threads) = (request.into_body(), &server.codec_threads);
        let upload = if content_type.starts_with("application/json") {
            let body = read_body(body, RECORDING_JSON_MAX_BYTES, (memory, &server.bodies)).await?;
            let needed = body.len() * JSON_PARSING_LENGTHS;
            parse(body, needed, (memory, threads), |body| Self::of_json(&body)).await?
        } else {
            let boundary = form::boundary_of(&content_type).ok_or_else(no_form)?;
            let mut reader = BodyReader::new(body, FORM_MAX_BYTES, memory, &server.bodies)?;
            let mut scan = form::FormScan::new(&boundary);
            let mut wanted = form::START_BYTES;
            loop {
                let received = reader.fill(wanted).await?;
                scan.advance(received).map_err(broken_form)?;
                if received.len() < wanted {
                    break;
                }
                wanted = received.len() + FORM_STEP_BYTES;
            }
            let body = reader.finish().await?;
            let needed = body.len();
            parse(body, needed, (memory, threads), move |body| Self::of_form(&body, scan)).await?
        };
        // A recording in a form is part of the body.
        let kept = upload.file.as_ref().map_or(0, Bytes::len);
        memory.hold(Held::Incoming, kept);
        Ok(upload)
    }

    fn of_form(body: &Bytes, scan: form::FormScan) -> Result<Self, Failure> {
        let mut upload = Self::default();
        for form::Part { name, contents } in scan.finish(body).map_err(broken_form)? {
            let max_bytes = if name == "file" { RECORDING_MAX_BYTES } else { FIELD_MAX_BYTES };
            if contents.len() > max_bytes {
                return Err(too_large(max_bytes));
            }
            if name == "file" {
                upload.file = Some(contents);
                continue;
            }
            // Lists may be written with brackets.
            let name = name.strip_suffix("[]").unwrap_or(&name);
            if let Some(name) = FIELDS.into_iter().find(|known| *known == name) {
                upload.fields.push((name, String::from_utf8_lossy(&contents).into_owned()));
            }
        }
        Ok(upload)
    }

    fn of_json(body: &[u8]) -> Result<Self, Failure> {
        let mut members = Members::read(body, &FIELDS).map_err(|error| Failure::json(&error))?;
        let missing = || Failure::parameter("input_audio", "Missing 'input_audio.data'.");
        let file = match members.take("input_audio") {
            Member::Missing => None,
            Member::Object(data) => {
                let decoded = STANDARD.decode(data.ok_or_else(missing)?.as_bytes());
                Some(decoded.map_err(|error| {
                    Failure::parameter(
                        "input_audio",
                        format!("Invalid base64 in 'input_audio.data': {error}."),
                    )
                })?)
            }
            _ => return Err(missing()),
        };
        if file.as_ref().is_some_and(|file| file.len() > RECORDING_MAX_BYTES) {
            return Err(too_large(RECORDING_MAX_BYTES));
        }
        Ok(Self { file: file.map(Bytes::from), fields: members.into_texts() })
    }

    /// The field with this name; an empty one counts as missing.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All fields with this name that are not empty.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.fields.iter().filter(move |(known, _)| *known == name);
        named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The field with this name as a flag.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, Failure> {
        let macaws = ("bool_parsing", "Input should be a valid boolean, unable to interpret input");
        self.parse(name, "true or false", macaws)
    }

    /// The field with this name as a number.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<f64>, Failure> {
        let macaws = ("float_parsing", "Input should be a valid number, unable to parse string as a number");
        self.parse(name, "a number", macaws)
    }

    /// The field with this name as another type; otherwise Macaw's type and words of the error.
    fn parse<T: FromStr>(
        &self,
        name: &'static str,
        expected: &str,
        (kind, words): (&'static str, &str),
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let parsed = text.to_ascii_lowercase().parse();
        parsed.map(Some).map_err(|_| {
            Failure::parameter(name, format!("Invalid value for '{name}': must be {expected}."))
                .with_field_error(kind, words, json!(text), None)
        })
    }
}

fn no_form() -> Failure {
    let message = "The body must be a form (Content-Type: multipart/form-data with a boundary) or JSON";
    Failure::invalid(message).with_missing_field("file")
}

fn broken_form(problem: String) -> Failure {
    Failure::invalid(format!("The form cannot be read: {problem}"))
}
