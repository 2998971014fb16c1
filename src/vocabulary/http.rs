//! Requests to an upstream that is reached by HTTP, and what of their answers is no frame.

use bytes::Bytes;

/// One request (POST). The driver adds what only the configuration of the upstream knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Path after the path of the upstream's URL.
    pub path: String,
    /// Body.
    pub body: HttpBody,
}

/// Body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpBody {
    /// A JSON object.
    Json(String),
    /// A form (RFC 7578): texts, and a WAV file with the name of its field.
    Form {
        /// Names and values of the texts.
        fields: Vec<(String, String)>,
        /// Name of the file's field.
        file_field: String,
        /// The file.
        file: Bytes,
    },
}

/// Part of an answer. Its body comes as frames: a text for each event of an event stream, one text for another body of
/// text, and binary frames for audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerPart {
    /// The beginning.
    Head {
        /// HTTP status.
        status: u16,
        /// Media type of the body; empty if unknown.
        content_type: String,
    },
    /// The answer is complete.
    End,
}

impl HttpBody {
    /// Bytes to send with `members` added to the body, and their media type.
    #[must_use]
    pub fn into_bytes(self, members: &[(String, String)]) -> (String, Bytes) {
        match self {
            Self::Json(json) => ("application/json".to_owned(), with_members(json, members).into()),
            Self::Form { fields, file_field, file } => {
                let fields: Vec<_> = fields.iter().chain(members).collect();
                let boundary = unused_boundary(&fields, &file);
                let body = form_bytes(&boundary, &fields, &file_field, &file);
                (format!("multipart/form-data; boundary={boundary}"), body.into())
            }
        }
    }
}

/// Adds members to a JSON object.
fn with_members(mut json: String, members: &[(String, String)]) -> String {
    for (name, value) in members {
        let Some(end) = json.rfind('}') else { continue };
        let comma = if json[..end].trim_end().ends_with('{') { "" } else { "," };
        let member = format!("{comma}{}:{}", serde_json::json!(name), serde_json::json!(value));
        json.insert_str(end, &member);
    }
    json
}

/// A boundary that occurs in no part of the form.
fn unused_boundary(fields: &[&(String, String)], file: &[u8]) -> String {
    let mut boundary = "voxbridge-form-part".to_owned();
    let is_used = |boundary: &str| {
        let contains = |bytes: &[u8]| memchr::memmem::find(bytes, boundary.as_bytes()).is_some();
        contains(file) || fields.iter().any(|(_, value)| contains(value.as_bytes()))
    };
    while is_used(&boundary) {
        boundary.push('x');
    }
    boundary
}

fn form_bytes(boundary: &str, fields: &[&(String, String)], file_field: &str, file: &[u8]) -> Vec<u8> {
    let mut head = String::new();
    for (name, value) in fields {
        head.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        ));
    }
    head.push_str(&format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{file_field}\"; filename=\"speech.wav\"\r\n\
         Content-Type: audio/wav\r\n\r\n"
    ));
    [head.as_bytes(), file, format!("\r\n--{boundary}--\r\n").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(value: &str) -> [(String, String); 1] {
        [("model".to_owned(), value.to_owned())]
    }

    #[test]
    fn members_are_added_to_json() {
        let body = |json: &str| HttpBody::Json(json.to_owned());
        for (json, with_model) in
            [("{\"a\":{}}", "{\"a\":{},\"model\":\"m \\\"x\\\"\"}"), ("{}", "{\"model\":\"m \\\"x\\\"\"}")]
        {
            let (media_type, bytes) = body(json).into_bytes(&member("m \"x\""));
            assert_eq!((media_type.as_str(), bytes.as_ref()), ("application/json", with_model.as_bytes()));
            assert_eq!(body(json).into_bytes(&[]).1, json);
        }
    }

    #[test]
    fn boundary_occurs_in_no_part_of_a_form() {
        let fields = vec![("prompt".to_owned(), "--voxbridge-form-part--".to_owned())];
        let body = HttpBody::Form { fields, file_field: "file".to_owned(), file: "RIFF".into() };
        let (media_type, bytes) = body.into_bytes(&member("m"));
        assert_eq!(media_type, "multipart/form-data; boundary=voxbridge-form-partx");
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(
            text.starts_with("--voxbridge-form-partx\r\n")
                && text.ends_with("\r\n--voxbridge-form-partx--\r\n")
        );
        assert_eq!(text.matches("--voxbridge-form-partx").count(), 4);
    }
}
