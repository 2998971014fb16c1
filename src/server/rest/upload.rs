//! A recording to transcribe and its fields: a form, or a JSON object.
//!
//! A recording is kept in memory, because its fields may follow it. Some clients, such as Open WebUI, can send it as base64 in
//! JSON instead: `{"input_audio": {"data": "..."}}`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hyper::header::CONTENT_TYPE;
use serde_json::json;

use super::{
    super::accept::request_body::{ReceivedRequest, RequestBody},
    body::{BodyReader, read_body, too_large},
    form::{self, Part},
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
/// Longest name of a field in an error, characters.
const SHOWN_NAME_MAX_CHARS: usize = 64;
/// The fields that count; the others are skipped.
const FIELDS: [&str; 17] = [
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
    "model_id",
    "language_code",
    "timestamps_granularity",
    "keyterms",
    "cloud_storage_url",
    "source_url",
];

/// A form with a recording.
#[derive(Debug, Default)]
pub(super) struct Upload {
    /// The recording; `None` if the form has none.
    pub(super) file: Option<Bytes>,
    fields: Vec<(&'static str, String)>,
    /// Name of a field that looks like the recording, but is not called `file`.
    misnamed_file: Option<String>,
}

/// Macaw's type and words of the error in a field.
struct FieldMistake {
    kind: &'static str,
    words: &'static str,
}

/// The parts of a form.
pub(super) struct Form {
    pub(super) parts: Vec<Part>,
    /// Length of the body that they are parts of.
    pub(super) body_bytes: usize,
}

impl Upload {
    /// Reads a form (RFC 7578) or a JSON object. The fields of a form may come in any order.
    pub(super) async fn read(
        request: ReceivedRequest,
        memory: &mut MemoryShare,
        server: &ServerContext,
    ) -> Result<Self, Failure> {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().trim().to_owned();
        let (body, threads) = (request.into_body(), &server.codec_threads);
        let upload = if content_type.starts_with("application/json") {
            let body = read_body(body, RECORDING_JSON_MAX_BYTES, memory, &server.bodies).await?;
            let needed = body.len() * JSON_PARSING_LENGTHS;
            parse(body, needed, memory, threads, |body| Self::of_json(&body)).await?
        } else {
            Self::of_form(read_form(body, &content_type, memory, server).await?.parts)?
        };
        // A recording in a form is part of the body.
        let kept = upload.file.as_ref().map_or(0, Bytes::len);
        memory.hold(Held::Incoming, kept);
        Ok(upload)
    }

    fn of_form(parts: Vec<Part>) -> Result<Self, Failure> {
        let mut upload = Self::default();
        for Part { name, file_name, contents } in parts {
            // Lists may be written with brackets.
            let base = name.strip_suffix("[]").unwrap_or(&name);
            match FIELDS.into_iter().find(|known| *known == base) {
                _ if name == "file" && contents.len() > RECORDING_MAX_BYTES => {
                    return Err(too_large(RECORDING_MAX_BYTES));
                }
                _ if name == "file" => upload.file = Some(contents),
                Some(name) if contents.len() > FIELD_MAX_BYTES => return Err(long_field(name)),
                Some(name) => upload.fields.push((name, String::from_utf8_lossy(&contents).into_owned())),
                None if file_name.is_some() || contents.len() > FIELD_MAX_BYTES => {
                    upload.misnamed_file = Some(name);
                }
                None => {}
            }
        }
        Ok(upload)
    }

    /// The error of an upload without `file`, with the name that the recording seems to have instead.
    pub(super) fn missing_file(&self) -> Failure {
        let mut missing = Failure::missing("file");
        if let Some(name) = &self.misnamed_file {
            let name: String = name.chars().take(SHOWN_NAME_MAX_CHARS).collect();
            missing.message += &format!(" The upload came as '{name}'; it must be named 'file'.");
        }
        missing
    }

    fn of_json(body: &[u8]) -> Result<Self, Failure> {
        let mut members = Members::read(body, &FIELDS)?;
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
        Ok(Self { file: file.map(Bytes::from), fields: members.into_texts(), misnamed_file: None })
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

    /// The field with this name as a flag, in the spellings of pydantic.
    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, Failure> {
        let macaws = FieldMistake {
            kind: "bool_parsing",
            words: "Input should be a valid boolean, unable to interpret input",
        };
        self.parse(name, "true or false", macaws, |text| match text {
            "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
            _ => None,
        })
    }

    /// The field with this name as a number.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<f64>, Failure> {
        let macaws = FieldMistake {
            kind: "float_parsing",
            words: "Input should be a valid number, unable to parse string as a number",
        };
        self.parse(name, "a number", macaws, |text| text.parse().ok())
    }

    /// The field with this name as another type; otherwise the error, also as Macaw has it.
    fn parse<T>(
        &self,
        name: &'static str,
        expected: &str,
        macaws: FieldMistake,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        read(&text.to_ascii_lowercase()).map(Some).ok_or_else(|| {
            Failure::parameter(name, format!("Invalid value for '{name}': must be {expected}."))
                .with_field_error(macaws.kind, macaws.words, json!(text), None)
        })
    }
}

/// Reads a form (RFC 7578) of a recording's length at most, and finds its parts.
pub(super) async fn read_form(
    body: RequestBody,
    content_type: &str,
    memory: &mut MemoryShare,
    server: &ServerContext,
) -> Result<Form, Failure> {
    let boundary = form::boundary_of(content_type).ok_or_else(no_form)?;
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
    let body_bytes = body.len();
    let find = move |body: Bytes| scan.finish(&body).map_err(broken_form);
    let parts = parse(body, body_bytes, memory, &server.codec_threads, find).await?;
    Ok(Form { parts, body_bytes })
}

/// HTTP 400: a text field is too long.
fn long_field(name: &'static str) -> Failure {
    let limit = FIELD_MAX_BYTES >> 10;
    Failure::parameter(name, format!("Invalid value for '{name}': longer than {limit} KiB."))
}

fn no_form() -> Failure {
    let message = "The body must be a form (Content-Type: multipart/form-data with a boundary) or JSON";
    Failure::invalid(message).with_missing_field("file")
}

fn broken_form(problem: String) -> Failure {
    Failure::invalid(format!("The form cannot be read: {problem}"))
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    fn read(parts: &[(&str, &str, usize)]) -> Result<Upload, Failure> {
        let part = |(name, kind, length): &(&str, &str, usize)| {
            let contents = "x".repeat(*length);
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{kind}\r\n\r\n{contents}\r\n")
        };
        let body = Bytes::from(parts.iter().map(part).collect::<String>() + "--b--");
        let mut scan = form::FormScan::new("b");
        scan.advance(&body).unwrap();
        Upload::of_form(scan.finish(&body).map_err(broken_form)?)
    }

    #[test]
    fn recording_under_another_name_is_named_in_the_error() {
        const FILE: &str = "; filename=\"a.wav\"";
        for (name, kind, length) in
            [("audio_file", FILE, 300_000), ("file[]", FILE, 10), ("audio", "", 300_000), ("File", FILE, 1)]
        {
            let failure = read(&[("model", "", 3), (name, kind, length)]).ok().unwrap().missing_file();
            assert_eq!((failure.status, failure.parameter), (StatusCode::BAD_REQUEST, Some("file")));
            assert!(failure.message.contains(&format!("'{name}'")), "{}", failure.message);
        }
        let absent = read(&[("note", "", 10)]).ok().unwrap().missing_file();
        assert_eq!(absent.message, "Missing required parameter: 'file'.");
        let both = read(&[("cover", FILE, 100_000), ("file", FILE, 7)]).ok().unwrap();
        assert_eq!(both.file.unwrap().len(), 7, "other files do not matter");
    }

    #[test]
    fn long_text_field_is_named_with_its_limit() {
        for field in ["prompt", "language", "timestamp_granularities[]"] {
            let failure = read(&[(field, "", FIELD_MAX_BYTES + 1)]).err().unwrap();
            let name = field.trim_end_matches("[]");
            assert_eq!((failure.status, failure.parameter), (StatusCode::BAD_REQUEST, Some(name)));
            assert!(failure.message.contains("64 KiB"), "{}", failure.message);
        }
        assert!(read(&[("prompt", "", FIELD_MAX_BYTES)]).is_ok());
    }

    #[test]
    fn flags_are_spelled_as_in_pydantic() {
        let flag = |text: &str| {
            Upload { fields: vec![("stream", text.to_owned())], ..Upload::default() }.flag("stream").ok()
        };
        for (texts, value) in
            [(["1", "true", "T", "Yes", "y", "ON"], true), (["0", "False", "f", "no", "N", "off"], false)]
        {
            assert!(texts.into_iter().all(|text| flag(text) == Some(Some(value))), "{texts:?}");
        }
        assert_eq!(flag(" "), Some(None), "an empty field counts as missing");
        assert!(["2", "maybe", "truee", "-1", "01"].into_iter().all(|text| flag(text).is_none()));
    }
}
