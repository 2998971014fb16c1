//! Redacts traces: removes secrets always, and audio unless the trace keeps it.
//!
//! It edits the characters of a JSON text and leaves all others unchanged, so that a replay decodes the text as before. Text
//! that is not JSON is searched in the same way.

mod rewrite;
mod wav_head;

#[cfg(feature = "io")]
pub(crate) use self::rewrite::fnv1a;
pub use self::rewrite::fnv1a_digest;
pub(super) use self::{
    rewrite::{head_placeholder, is_base64, length_placeholder, split_data_url},
    wav_head::wav_head,
};

use self::{rewrite::redact_json, wav_head::is_base64_head};

/// Replacement of a secret.
pub const MASK: &str = "[masked]";
/// Maximum number of secrets that a session remembers to mask their echoes, and minimum length of one.
const SECRETS_MAX: usize = 32;
const SECRET_MIN_CHARS: usize = 6;
/// Length of a value that error messages quote.
const QUOTED_CHARS: usize = 40;
/// Maximum base64 characters of silence; no real message is longer.
const SILENCE_MAX_CHARS: usize = 256 << 20;

/// Audio that a trace keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AudioRetention {
    /// No audio, only lengths.
    #[default]
    None,
    /// Audio of the client; of the model, only lengths and the heads of WAV files.
    Client,
    /// Received audio of client and model, and digests of sent audio, which a replay creates again.
    All,
}

/// Treatment of long base64 strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AudioTreatment {
    Keep,
    /// Replace by the length.
    Measure,
    /// Replace by the length, and keep the head of a WAV file.
    KeepHead,
    /// Replace by length and digest.
    Digest,
}

/// Redacts the lines of one session. It remembers secrets to mask later echoes.
#[derive(Debug, Default)]
pub struct Redactor {
    pub(super) audio: AudioRetention,
    secrets: Vec<String>,
}

impl Redactor {
    /// Creates a redactor that keeps this audio.
    pub const fn new(audio: AudioRetention) -> Self {
        Self { audio, secrets: Vec::new() }
    }

    /// Masks the secrets of a query string.
    pub fn redact_query(&mut self, query: &str) -> String {
        let pairs = query.split('&').map(|pair| {
            let Some((name, value)) = form_urlencoded::parse(pair.as_bytes()).next() else {
                return pair.to_owned();
            };
            if value.is_empty() || !is_secret_name(&name) {
                return self.mask_echoes(pair);
            }
            self.remember_secret(&value);
            format!("{}={MASK}", pair.split('=').next().unwrap_or_default())
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Redacts a voice sample, a quoted base64 string: keeps it, or replaces it by its length.
    pub fn redact_voice_sample(&self, base64: &str) -> String {
        match self.audio {
            AudioRetention::All => base64.to_owned(),
            AudioRetention::Client | AudioRetention::None => {
                redact_json(base64, AudioTreatment::Measure, &mut |_| {})
            }
        }
    }

    pub(super) fn redact_text(&mut self, text: &str, treatment: AudioTreatment) -> String {
        let mut found_secrets = Vec::new();
        let redacted = redact_json(text, treatment, &mut |secret| found_secrets.push(secret.to_owned()));
        found_secrets.iter().for_each(|secret| self.remember_secret(secret));
        self.mask_echoes(&redacted)
    }

    fn remember_secret(&mut self, secret: &str) {
        let quoted: String = secret.chars().take(QUOTED_CHARS).collect();
        for secret in [secret, quoted.as_str()] {
            let is_new = secret.chars().count() >= SECRET_MIN_CHARS
                && !self.secrets.iter().any(|known| known == secret);
            if is_new && self.secrets.len() < SECRETS_MAX {
                self.secrets.push(secret.to_owned());
            }
        }
        // The longest first, because masking a shorter secret would leave a piece of a longer one.
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    fn mask_echoes(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), MASK),
            false => text,
        })
    }
}

/// True if a field of this name holds credentials: `token`, `X-Api-Key`, `clientSecret`, `headers`, but not `tokens` or `keywords`.
pub fn is_secret_name(name: &str) -> bool {
    const LAST_WORDS: [&str; 19] = [
        "token",
        "key",
        "apikey",
        "authorization",
        "auth",
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "credential",
        "credentials",
        "bearer",
        "jwt",
        "cookie",
        "signature",
        "sig",
        "authtoken",
        "headers",
    ];
    let (mut words, mut is_after_lowercase) = (vec![String::new()], false);
    for letter in name.chars() {
        if letter.is_uppercase() && is_after_lowercase {
            words.push(String::new());
        }
        is_after_lowercase = letter.is_lowercase();
        match words.last_mut() {
            Some(word) if letter.is_alphanumeric() => word.extend(letter.to_lowercase()),
            _ => words.push(String::new()),
        }
    }
    words.iter().rfind(|word| !word.is_empty()).is_some_and(|word| LAST_WORDS.contains(&word.as_str()))
}

/// Replaces the placeholders of audio by silence; returns the text and the number of placeholders.
pub fn fill_with_silence(text: &str) -> (String, usize) {
    const OPEN: &str = "[base64 ";
    let (mut out, mut rest, mut count) = (String::with_capacity(text.len()), text, 0);
    while let Some(at) = rest.find(OPEN) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let inside = found.find(']').map(|end| (&found[OPEN.len()..end], &found[end + 1..]));
        match inside.and_then(|(inside, behind)| Some((silence_base64(inside, out.len())?, behind))) {
            Some((silence, behind)) => {
                out.push_str(&silence);
                rest = behind;
                count += 1;
            }
            None => {
                out.push_str(OPEN);
                rest = &found[OPEN.len()..];
            }
        }
    }
    out.push_str(rest);
    (out, count)
}

/// Base64 of zeros, of the length in the placeholder, behind the head of a WAV file if it has one.
fn silence_base64(inside: &str, output_len: usize) -> Option<String> {
    let mut parts = inside.split(' ');
    let inside = parts.next()?;
    let head = parts.next().filter(|head| is_base64_head(head)).unwrap_or_default();
    let letters = inside.trim_end_matches('=');
    let padding = &inside[letters.len()..];
    let length_max = SILENCE_MAX_CHARS.saturating_sub(output_len);
    let length: usize = letters.parse().ok().filter(|length| *length <= length_max)?;
    let zeros = length.checked_sub(padding.len())?.checked_sub(head.len())?;
    Some(format!("{head}{}{padding}", "A".repeat(zeros)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redacted(text: &str) -> String {
        Redactor::new(AudioRetention::None).redact_text(text, AudioTreatment::Measure)
    }

    #[test]
    fn secret_names_are_recognized() {
        for name in [
            "token",
            "access_token",
            "X-Api-Key",
            "apiKey",
            "Authorization",
            "clientSecret",
            "PASSWORD",
            "key",
            "headers",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in
            ["tokens", "max_new_tokens", "keywords", "type", "text", "monkey", "key_term", "", "author"]
        {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn whole_value_of_a_secret_name_is_masked_and_nothing_behind_it() {
        for (text, masked) in [
            (r#"{"headers":{"a":"one"},"b":"two"}"#, r#"{"headers":{"a":"[masked]"},"b":"two"}"#),
            (r#"{"key":["one",{"b":2}],"c":[3],"d":4}"#, r#"{"key":["[masked]",{"b":0}],"c":[3],"d":4}"#),
            (r#"[{"token":{"a":{"b":"one"}}},"two"]"#, r#"[{"token":{"a":{"b":"[masked]"}}},"two"]"#),
        ] {
            assert_eq!(redacted(text), masked);
        }
    }

    #[test]
    fn redacted_audio_is_restored_as_silence_of_same_length() {
        let audio = "QUJD".repeat(100) + "QQ==";
        let text = format!(r#"{{"a":"{audio}","url":"data:audio/wav;base64,{audio}","token":5,"n":-1.5}}"#);
        let redacted_text = redacted(&text);
        assert_eq!(
            redacted_text,
            r#"{"a":"[base64 404==]","url":"data:audio/wav;base64,[base64 404==]","token":0,"n":-1.5}"#
        );
        let (restored, count) = fill_with_silence(&redacted_text);
        assert!(count == 2 && restored.len() == text.len() && restored.contains("AAAA"), "{restored}");
        let malformed = [
            "[base64 x]",
            "[base64 99999999999999999999]",
            "[base64 18446744073709551615]",
            "[base64 18446744073709551615==]",
            "a[base64 268435456]",
            "[base64 1==]",
            "[base64 4",
            "[base64 ]",
        ];
        for malformed in malformed {
            assert_eq!(fill_with_silence(malformed), (malformed.to_owned(), 0));
        }
    }

    #[test]
    fn head_of_a_wav_file_is_kept_and_its_samples_are_not() {
        for rate_hz in [16_000, 24_000] {
            let file = crate::audio::wav::write_s16(&[1000; 500], rate_hz);
            let mut audio = String::new();
            crate::audio::pcm::encode_base64(&file, &mut audio);
            let text = format!(r#"{{"a":"{audio}"}}"#);
            let redacted = Redactor::new(AudioRetention::Client).redact_text(&text, AudioTreatment::KeepHead);
            assert!(redacted.len() < 100, "{redacted}");
            let mut silent = String::new();
            crate::audio::pcm::encode_base64(&crate::audio::wav::write_s16(&[0; 500], rate_hz), &mut silent);
            assert_eq!(fill_with_silence(&redacted), (text.replace(&audio, &silent), 1));
        }
    }

    proptest! {
        #[test]
        fn redacting_keeps_other_text_and_valid_json(text in "[^=]*", name in "[a-z]{1,3}") {
            prop_assume!(!is_secret_name(&name));
            let json = serde_json::json!({name.clone(): text, "list": [text, {"deep": text}], "n": 1.5}).to_string();
            prop_assert_eq!(redacted(&json), json);
            let secret = serde_json::json!({"token": [text, {name: text}], "text": text}).to_string();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&redacted(&secret)).is_ok());
        }

        #[test]
        fn any_text_is_redacted_without_panic(text in any::<String>(), quoted in "[\"\\\\{}\\[\\]:,a= ]{0,40}") {
            let (_, _) = (fill_with_silence(&redacted(&text)), fill_with_silence(&redacted(&quoted)));
        }
    }
}
