//! The settings in the body of a setup page's request, as query parameters of the URL that the page answers: a client of Gladia's
//! sends them there once, and none to the socket.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    client::Codec,
    spelling::{ClientMapping, client::SetupPage},
};

/// Longest query that is made of the settings: with a key and a host, the request's head must stay below 8 KiB.
const QUERY_MAX_BYTES: usize = 4096;

/// The query for the settings in a body of JSON, after the request's own query.
///
/// # Errors
/// What is wrong with the body or with a setting, for the client.
pub(super) fn with_settings(
    client: &Arc<ClientMapping>,
    page: &SetupPage,
    query: &str,
    body: &[u8],
) -> Result<String, String> {
    if page.parameters.is_empty() {
        return Ok(query.to_owned());
    }
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let body: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    if !body.is_object() {
        return Err("the body is JSON, but not an object".to_owned());
    }
    let mut pairs = form_urlencoded::Serializer::new(query.to_owned());
    for (name, pointer) in &page.parameters {
        let value = match body.pointer(pointer) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            // Lists stay JSON; a `list` of [query] with `split` reads them.
            Some(other) => other.to_string(),
        };
        pairs.append_pair(name, &value);
    }
    let query = pairs.finish();
    if query.len() > QUERY_MAX_BYTES {
        return Err(format!("the settings take {} bytes in a URL, more than {QUERY_MAX_BYTES}", query.len()));
    }
    let problems = Codec::new(client.clone(), 0.0).decode_query(&query).problems;
    match problems.into_iter().next() {
        Some(problem) => Err(problem.detail),
        None => Ok(query),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;

    fn query_of(body: &str) -> Result<String, String> {
        let client = Library::embedded().unwrap().client("gladia").unwrap();
        let page = client.setup_page.as_ref().unwrap();
        with_settings(&client, page, "region=eu-west", body.as_bytes())
    }

    #[test]
    fn settings_become_parameters_and_wrong_ones_are_refused() {
        let body = r#"{"sample_rate": 8000, "encoding": "wav/ulaw", "language_config": {"languages": ["en"]},
            "messages_config": {"receive_acknowledgments": true}, "unknown": [1]}"#;
        let query = query_of(body).unwrap();
        for part in ["region=eu-west&", "sample_rate=8000", "encoding=wav%2Fulaw", "acknowledgments=true"] {
            assert!(query.contains(part), "{part}: {query}");
        }
        assert!(!query.contains("unknown"), "{query}");
        assert_eq!(query_of(" "), Ok("region=eu-west".to_owned()));
        for (wrong, words) in [
            ("{", "the body is not JSON"),
            ("[]", "not an object"),
            (r#"{"sample_rate": "fast"}"#, "sample_rate"),
            (r#"{"encoding": "mp3"}"#, "encoding"),
        ] {
            let problem = query_of(wrong).unwrap_err();
            assert!(problem.contains(words), "{wrong}: {problem}");
        }
        let long = format!(r#"{{"model": "{}"}}"#, "m".repeat(QUERY_MAX_BYTES));
        assert!(query_of(&long).unwrap_err().contains("more than 4096"));
    }
}
