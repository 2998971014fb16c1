//! One-line summary of a JSON message: its type, its text or status, then its other fields in their original order, with audio as a
//! short note. Ids are left out.

use serde_json::value::RawValue;

use crate::client::json_text::{Fields, read_list, read_str};

/// Maximum length of a text; longer ones are truncated.
const TEXT_MAX_CHARS: usize = 60;

/// Minimum length of a base64 string; shorter ones may be words or ids.
const BASE64_MIN_CHARS: usize = 96;

/// Most elements of a list.
const LIST_MAX: usize = 64;

/// Deepest value that is shown.
const DEPTH_MAX: usize = 16;

/// Summarizes a message. Text that is not JSON is only truncated.
pub(super) fn summarize_json(message: &str) -> String {
    let Ok(json) = serde_json::from_str::<&RawValue>(message) else { return shorten(message) };
    let Some(fields) = Fields::read(json) else { return describe(json, 0, &mut Vec::new()) };
    let mut parts = Vec::new();
    parts.extend(fields.get("type").and_then(read_str).map(|name| shorten(&name)));
    let rest = describe_fields(&fields.without("type"), 0, &mut parts);
    parts.extend((!rest.is_empty()).then_some(rest));
    parts.join(" ")
}

/// Describes the fields of an object at this depth. Those that tell most go to `leading`: the text of the message, and the status
/// of what it contains.
fn describe_fields(fields: &Fields<'_>, depth: usize, leading: &mut Vec<String>) -> String {
    let mut shown = Vec::new();
    for (key, value) in fields.iter().filter(|(key, _)| *key != "id" && !key.ends_with("_id")) {
        let field = format!("{}={}", shorten(key), describe(value, depth + 1, leading));
        let is_leading = match depth {
            0 => matches!(key, "text" | "transcript" | "delta"),
            depth => depth == 1 && key == "status",
        };
        if is_leading { leading.push(field) } else { shown.push(field) }
    }
    shown.join(" ")
}

/// Describes a value at this depth.
fn describe(json: &RawValue, depth: usize, leading: &mut Vec<String>) -> String {
    if let Some(text) = read_str(json) {
        return describe_base64(&text).unwrap_or_else(|| format!("\"{}\"", shorten(&text)));
    }
    if depth > DEPTH_MAX {
        return "…".to_owned();
    }
    if let Some(items) = read_list(json, LIST_MAX) {
        let items: Vec<_> = items.into_iter().map(|item| describe(item, depth + 1, leading)).collect();
        return format!("[{}]", items.join(", "));
    }
    if let Some(fields) = Fields::read(json) {
        return format!("{{{}}}", describe_fields(&fields, depth, leading));
    }
    match json.get().parse::<f64>() {
        Ok(number) if json.get().contains(['.', 'e', 'E']) => {
            ((number * 1000.0).round() / 1000.0).to_string()
        }
        _ => shorten(json.get()),
    }
}

/// The text, truncated and without control characters.
fn shorten(text: &str) -> String {
    let mut chars = text.chars();
    let shown = chars.by_ref().take(TEXT_MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c });
    let shown: String = shown.collect();
    if chars.next().is_some() { shown + "…" } else { shown }
}

/// Describes a long base64 string by its beginning and length; `None` for other strings.
fn describe_base64(text: &str) -> Option<String> {
    let body = text.trim_end_matches('=');
    let is_base64 = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
    if text.len() < BASE64_MIN_CHARS
        || !text.len().is_multiple_of(4)
        || !body.as_bytes().iter().all(is_base64)
    {
        return None;
    }
    let bytes = body.len() * 3 / 4;
    Some(match body {
        _ if body.starts_with("UklGR") => format!("<WAV, {bytes} bytes>"),
        _ if body.starts_with("/9j/") => format!("<JPEG, {bytes} bytes>"),
        // MiniCPM-o sends all raw audio inside JSON as float32.
        _ if bytes.is_multiple_of(4) => format!("<{} samples f32>", bytes / 4),
        _ => format!("<{bytes} bytes>"),
    })
}

#[cfg(test)]
mod tests {
    use super::summarize_json;
    use crate::audio::pcm;

    #[test]
    fn summary_starts_with_type_and_keeps_field_order() {
        let message =
            r#"{"b":1,"type":"session.x","a":{"type":"t","l":[1,"z",null]},"n":0.12345,"e":{},"v":[]}"#;
        assert_eq!(
            summarize_json(message),
            r#"session.x b=1 a={type="t" l=[1, "z", null]} n=0.123 e={} v=[]"#
        );
        assert_eq!(summarize_json(r#"{"type":"tts.cancel"}"#), "tts.cancel");
        assert_eq!(summarize_json("[1]"), "[1]");
    }

    #[test]
    fn summary_starts_with_text_and_leaves_ids_out() {
        let message =
            r#"{"type":"x","id":"a","response_id":"resp_1","n":1,"text":"Hi","d":{"id":2,"e":3},"s_id":4}"#;
        assert_eq!(summarize_json(message), r#"x text="Hi" n=1 d={e=3}"#);
        assert_eq!(summarize_json(r#"{"type":"x","session_id":"s"}"#), "x");
        let done = r#"{"response":{"output":[{"status":"a"}],"status":"cancelled"},"type":"response.done"}"#;
        assert_eq!(
            summarize_json(done),
            r#"response.done status="cancelled" response={output=[{status="a"}]}"#
        );
        assert_eq!(summarize_json(r#"{"index":0,"delta":"Hel","type":"x"}"#), r#"x delta="Hel" index=0"#);
        assert_eq!(summarize_json(r#"{"text":"Hi","id":1}"#), r#"text="Hi""#);
    }

    #[test]
    fn summary_describes_audio_and_truncates_long_text() {
        let mut audio = String::new();
        pcm::encode_base64_f32(&[7; 16_000], &mut audio);
        let message = format!(r#"{{"type":"input.append","audio":"{audio}"}}"#);
        assert_eq!(summarize_json(&message), "input.append audio=<16000 samples f32>");
        let wav = format!(r#"{{"w":"UklGR{}"}}"#, "A".repeat(123));
        assert_eq!(summarize_json(&wav), "w=<WAV, 96 bytes>");
        let long = format!(r#"{{"text":"{}"}}"#, "so long ".repeat(20));
        assert!(summarize_json(&long).ends_with("so long so l…\""), "{}", summarize_json(&long));
    }

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(summarize_json("not\njson\u{1b}[2J"), "not json [2J");
        assert_eq!(summarize_json(r#"{"text":"a\nb"}"#), r#"text="a b""#);
    }
}
