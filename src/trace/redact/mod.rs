//! What nobody is to read in a trace: credentials never, and audio only where it was asked for.
//!
//! Works on the letters of a JSON text and leaves all others as they are: what is recorded must decode as it did. A text
//! that is no JSON is looked through all the same, as far as it looks like some.

mod rewrite;

pub(super) use self::rewrite::{is_base64, measured};

use self::rewrite::rewrite;
use super::record::{Came, Line};

/// What stands for a secret.
pub const MASK: &str = "[masked]";
/// How many secrets of a session are looked for where they might be echoed, and how long a piece of them.
const MOST_SECRETS: usize = 32;
const SECRET_MIN_CHARS: usize = 6;
/// Error messages quote as much of a value.
const QUOTED_CHARS: usize = 40;
/// What silence may stand in for, letters of base64: more is no message.
const LONGEST_RESTORED: usize = 256 << 20;

/// Whose audio a trace keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Nobody's: lengths alone.
    #[default]
    None,
    /// The client's, without which nothing can be heard again; of the model's, lengths alone.
    Client,
    /// Everybody's; what goes out is told by digests, for what came makes it again.
    All,
}

/// What becomes of long runs of base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sound {
    Kept,
    Measured,
    /// Told from others by a digest.
    Digested,
}

/// Cleans the lines of one session; it remembers the secrets it met, which may be echoed.
#[derive(Debug, Default)]
pub struct Cleaner {
    audio: Kept,
    secrets: Vec<String>,
}

impl Cleaner {
    /// Cleans everything but the audio that is to be kept.
    #[must_use]
    pub const fn new(audio: Kept) -> Self {
        Self { audio, secrets: Vec::new() }
    }

    /// A line without what nobody is to read.
    pub fn clean(&mut self, line: &mut Line) {
        let sound = match (self.audio, line.came) {
            (Kept::All, Some(_)) | (Kept::Client, Some(Came::Client)) => Sound::Kept,
            (Kept::All, None) => Sound::Digested,
            _ => Sound::Measured,
        };
        if let Some(text) = &line.text {
            line.text = Some(self.text(text, sound));
        }
        if let Some(words) = &line.words {
            line.words = Some(self.text(words, sound));
        }
    }

    /// A query string without secrets.
    #[must_use]
    pub fn query(&mut self, query: &str) -> String {
        let pairs = query.split('&').map(|pair| {
            let Some((name, value)) = form_urlencoded::parse(pair.as_bytes()).next() else {
                return pair.to_owned();
            };
            if value.is_empty() || !names_secret(&name) {
                return self.without_echoes(pair);
            }
            self.remember(&value);
            format!("{}={MASK}", pair.split('=').next().unwrap_or_default())
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    /// A sample in quotes as voices are kept, or its length.
    #[must_use]
    pub fn sample(&self, base64: &str) -> String {
        match self.audio {
            Kept::All => base64.to_owned(),
            Kept::Client | Kept::None => rewrite(base64, Sound::Measured, &mut |_| {}),
        }
    }

    fn text(&mut self, text: &str, sound: Sound) -> String {
        let mut met = Vec::new();
        let clean = rewrite(text, sound, &mut |secret| met.push(secret.to_owned()));
        met.iter().for_each(|secret| self.remember(secret));
        self.without_echoes(&clean)
    }

    fn remember(&mut self, secret: &str) {
        let quoted: String = secret.chars().take(QUOTED_CHARS).collect();
        for secret in [secret, quoted.as_str()] {
            let new =
                secret.chars().count() >= SECRET_MIN_CHARS && !self.secrets.iter().any(|it| it == secret);
            if new && self.secrets.len() < MOST_SECRETS {
                self.secrets.push(secret.to_owned());
            }
        }
        // The longest first, or a piece of it would stay.
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    fn without_echoes(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), MASK),
            false => text,
        })
    }
}

/// Whether what goes by this name is a credential: `token`, `X-Api-Key`, `clientSecret`, but not `tokens` or `keywords`.
#[must_use]
pub fn names_secret(name: &str) -> bool {
    const LAST_WORDS: [&str; 18] = [
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
    ];
    let (mut words, mut was_small) = (vec![String::new()], false);
    for letter in name.chars() {
        if letter.is_uppercase() && was_small {
            words.push(String::new());
        }
        was_small = letter.is_lowercase();
        match words.last_mut() {
            Some(word) if letter.is_alphanumeric() => word.extend(letter.to_lowercase()),
            _ => words.push(String::new()),
        }
    }
    words.iter().rfind(|word| !word.is_empty()).is_some_and(|word| LAST_WORDS.contains(&word.as_str()))
}

/// What was cleaned, with silence where audio was; how many runs of audio that were.
#[must_use]
pub fn restored(text: &str) -> (String, usize) {
    const OPEN: &str = "[base64 ";
    let (mut out, mut rest, mut count) = (String::with_capacity(text.len()), text, 0);
    while let Some(at) = rest.find(OPEN) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let inside = found.find(']').map(|end| (&found[OPEN.len()..end], &found[end + 1..]));
        match inside.and_then(|(inside, behind)| Some((silence(inside, out.len())?, behind))) {
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

/// Base64 of zeros, as long as the placeholder says.
fn silence(inside: &str, so_far: usize) -> Option<String> {
    let inside = inside.split(' ').next()?;
    let letters = inside.trim_end_matches('=');
    let padding = &inside[letters.len()..];
    let length: usize = letters.parse().ok().filter(|length| length + so_far <= LONGEST_RESTORED)?;
    Some("A".repeat(length.checked_sub(padding.len())?) + padding)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cleaned(text: &str) -> String {
        Cleaner::new(Kept::None).text(text, Sound::Measured)
    }

    #[test]
    fn credentials_are_known_by_their_names() {
        for name in [
            "token",
            "access_token",
            "X-Api-Key",
            "apiKey",
            "Authorization",
            "clientSecret",
            "PASSWORD",
            "key",
        ] {
            assert!(names_secret(name), "{name}");
        }
        for name in
            ["tokens", "max_new_tokens", "keywords", "type", "text", "monkey", "key_term", "", "author"]
        {
            assert!(!names_secret(name), "{name}");
        }
    }

    #[test]
    fn audio_is_measured_and_silence_of_its_length_stands_in_for_it() {
        let audio = "QUJD".repeat(100) + "QQ==";
        let text = format!(r#"{{"a":"{audio}","url":"data:audio/wav;base64,{audio}","token":5,"n":-1.5}}"#);
        let clean = cleaned(&text);
        assert_eq!(
            clean,
            r#"{"a":"[base64 404==]","url":"data:audio/wav;base64,[base64 404==]","token":0,"n":-1.5}"#
        );
        let (restored, count) = restored(&clean);
        assert!(count == 2 && restored.len() == text.len() && restored.contains("AAAA"), "{restored}");
        for strange in
            ["[base64 x]", "[base64 99999999999999999999]", "[base64 1==]", "[base64 4", "[base64 ]"]
        {
            assert_eq!(super::restored(strange), (strange.to_owned(), 0));
        }
    }

    proptest! {
        #[test]
        fn other_text_stays_as_it_is_and_json_stays_json(text in "[^=]*", name in "[a-z]{1,3}") {
            let json = serde_json::json!({name.clone(): text, "list": [text, {"deep": text}], "n": 1.5}).to_string();
            prop_assert_eq!(cleaned(&json), json);
            let secret = serde_json::json!({"token": [text, {name: text}], "text": text}).to_string();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&cleaned(&secret)).is_ok());
        }

        #[test]
        fn any_text_can_be_cleaned(text in any::<String>(), quoted in "[\"\\\\{}\\[\\]:,a= ]{0,40}") {
            let (_, _) = (restored(&cleaned(&text)), restored(&cleaned(&quoted)));
        }
    }
}
