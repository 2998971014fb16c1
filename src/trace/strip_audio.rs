//! Text frames without the audio in them, before they wait for the disk: nobody is to hold what nobody is to keep.
//!
//! Cheap, for it is done on the session's way, and only long strings count. What it leaves is still to be cleaned by
//! [`super::redact`], which says the same of the same audio.

use super::redact::{is_base64, measured, names_secret};

/// Shorter strings are left: a credential is remembered by who cleans, and they weigh nothing.
const LONG: usize = 4096;

/// The text with the length of each long string of base64 in its place, as who cleans says it; what is called a secret
/// is left.
pub(super) fn brief(text: &str) -> String {
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while text.len() - at > LONG
        && let Some(open) = text[at..].find('"').map(|open| at + open)
        && let Some(length) = text[open + 1..].find('"')
    {
        let close = open + 1 + length;
        at = close;
        if length > LONG && is_audio(text, open, close) {
            let body = &text[open + 1..close];
            let data = body.find(";base64,").filter(|_| body.starts_with("data:")).map_or(0, |at| at + 8);
            out.push_str(&text[copied..open + 1 + data]);
            out.push_str(&measured(&body[data..]));
            copied = close;
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// Whether what stands between two quotes is a string of base64, neither a name nor a secret.
fn is_audio(text: &str, open: usize, close: usize) -> bool {
    let body = &text[open + 1..close];
    let body =
        body.strip_prefix("data:").and_then(|url| url.split_once(";base64,")).map_or(body, |(_, data)| data);
    let is_quoted = !text[..open].ends_with('\\') && !body.ends_with('\\');
    is_quoted
        && body.len() > LONG
        && is_base64(body)
        && !text[close + 1..].trim_start().starts_with(':')
        && !name_of(&text[..open]).is_some_and(names_secret)
}

/// The name that the value behind this text belongs to.
fn name_of(before: &str) -> Option<&str> {
    let name = before.trim_end().strip_suffix(':')?.trim_end().strip_suffix('"')?;
    Some(&name[name.rfind('"')? + 1..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::{Kept, Line, Recorder};

    fn cleaned(text: String) -> String {
        Recorder::new(Kept::None).line(Line { text: Some(text), ..Line::default() })
    }

    #[test]
    fn audio_is_gone_and_all_else_is_there() {
        let audio = "QUJD".repeat(2000) + "QQ==";
        let text =
            format!(r#"{{"a":"{audio}","url":"data:audio/wav;base64,{audio}","list":["{audio}"],"n":1}}"#);
        assert_eq!(
            brief(&text),
            r#"{"a":"[base64 8004==]","url":"data:audio/wav;base64,[base64 8004==]","list":["[base64 8004==]"],"n":1}"#
        );
        for same in [
            format!(r#"{{"token" : "{audio}"}}"#),
            format!(r#"{{"{audio}": 1}}"#),
            format!(r#"{{"text":"\"{audio}\""}}"#),
            format!(r#"{{"text":"{audio} and more"}}"#),
            audio,
            "\"".repeat(9000),
        ] {
            assert_eq!(brief(&same), same);
        }
    }

    proptest! {
        #[test]
        fn who_cleans_says_the_same_of_it(
            parts in prop::collection::vec((r#"[a-z":{},\[\]\\é ]{0,9}"#, 0usize..3000), 0..6),
            texts in prop::collection::vec(("[a-z ]{0,9}|token|data:x;base64,", 0usize..3000), 0..6),
        ) {
            let anything: String = parts.iter().map(|(text, four)| text.clone() + &"QUJD".repeat(*four)).collect();
            let json = texts.iter().map(|(text, four)| serde_json::json!({text: text.clone() + &"QUJD".repeat(*four)}));
            for json in json {
                let json = json.to_string();
                prop_assert_eq!(cleaned(brief(&json)), cleaned(json));
            }
            prop_assert!(brief(&anything).len() <= anything.len());
        }
    }
}
