//! Strips long audio from text frames before queuing, so that it takes no memory while waiting for the disk.
//!
//! This runs on the session's thread, so it only handles long strings. [`super::redact`] redacts the rest later and replaces
//! audio by the same placeholders.

use super::redact::{head_placeholder, is_base64, is_secret_name, length_placeholder, split_data_url};

/// Minimum length. Shorter strings take little memory, and the redactor must still see credentials among them.
const LONG_STRING_CHARS: usize = 4096;

/// Replaces each long base64 string by the placeholder of its length, except the values of secret names. The placeholder may keep
/// the head of a WAV file.
pub(super) fn strip_audio(text: &str, keeps_heads: bool) -> String {
    let placeholder = if keeps_heads { head_placeholder } else { length_placeholder };
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while text.len() - at > LONG_STRING_CHARS
        && let Some(open) = text[at..].find('"').map(|open| at + open)
        && let Some(length) = text[open + 1..].find('"')
    {
        let close = open + 1 + length;
        at = close;
        if length > LONG_STRING_CHARS && is_audio_string(text, open, close) {
            let (prefix, body) = split_data_url(&text[open + 1..close]);
            out.push_str(&text[copied..=open]);
            out.push_str(prefix);
            out.push_str(&placeholder(body));
            copied = close;
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// True if the text between two quotes is a long base64 string and neither a name nor a secret.
fn is_audio_string(text: &str, open: usize, close: usize) -> bool {
    let (_, body) = split_data_url(&text[open + 1..close]);
    let is_quoted = !text[..open].ends_with('\\') && !body.ends_with('\\');
    is_quoted
        && body.len() > LONG_STRING_CHARS
        && is_base64(body)
        && !text[close + 1..].trim_start().starts_with(':')
        && !key_before(&text[..open]).is_some_and(is_secret_name)
}

/// Name of the JSON value that follows this text.
fn key_before(before: &str) -> Option<&str> {
    let name = before.trim_end().strip_suffix(':')?.trim_end().strip_suffix('"')?;
    Some(&name[name.rfind('"')? + 1..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::{AudioRetention, TraceRecord, TraceWriter};

    fn redacted(text: String) -> String {
        TraceWriter::new(AudioRetention::None)
            .format_record(TraceRecord { text: Some(text), ..TraceRecord::default() })
    }

    #[test]
    fn audio_is_removed_and_other_text_is_kept() {
        let audio = "QUJD".repeat(2000) + "QQ==";
        let text =
            format!(r#"{{"a":"{audio}","url":"data:audio/wav;base64,{audio}","list":["{audio}"],"n":1}}"#);
        assert_eq!(
            strip_audio(&text, false),
            r#"{"a":"[base64 8004==]","url":"data:audio/wav;base64,[base64 8004==]","list":["[base64 8004==]"],"n":1}"#
        );
        for unchanged in [
            format!(r#"{{"token" : "{audio}"}}"#),
            format!(r#"{{"{audio}": 1}}"#),
            format!(r#"{{"text":"\"{audio}\""}}"#),
            format!(r#"{{"text":"{audio} and more"}}"#),
            audio,
            "\"".repeat(9000),
        ] {
            assert_eq!(strip_audio(&unchanged, false), unchanged);
        }
    }

    proptest! {
        #[test]
        fn redacting_stripped_text_equals_redacting_original(
            parts in prop::collection::vec((r#"[a-z":{},\[\]\\é ]{0,9}"#, 0usize..3000), 0..6),
            texts in prop::collection::vec(("[a-z ]{0,9}|token|data:x;base64,", 0usize..3000), 0..6),
        ) {
            let anything: String = parts.iter().map(|(text, four)| text.clone() + &"QUJD".repeat(*four)).collect();
            let json = texts.iter().map(|(text, four)| serde_json::json!({text: text.clone() + &"QUJD".repeat(*four)}));
            for json in json {
                let json = json.to_string();
                prop_assert_eq!(redacted(strip_audio(&json, false)), redacted(json));
            }
            prop_assert!(strip_audio(&anything, false).len() <= anything.len());
        }
    }
}
