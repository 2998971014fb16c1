//! `[[tested_with]]` of a client file: stock clients that the tests run against the protocol, unmodified. Data for
//! `mappings explain`, the pages and the tests; no session reads it.

use serde::{Deserialize, Deserializer, de::Error as _};

use super::check::{Document, FileError};
use crate::named_enum::named_enum;

/// A stock client and what it was tested for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestedClient {
    /// Name, version and language of the client.
    #[serde(deserialize_with = "deserialize_name")]
    pub client: String,
    /// File in `tests/families` that drives it, in each of the cells; for Rust, a folder with a project. A word may follow, which selects
    /// one of the file's clients.
    #[serde(default, deserialize_with = "deserialize_script")]
    pub script: Option<String>,
    /// Without a script: the tests that drive it, as `cargo test` names them, behind the test program.
    #[serde(default, deserialize_with = "deserialize_tests")]
    pub tests: Vec<String>,
    /// Actions of the client in the tests.
    #[serde(deserialize_with = "deserialize_cells")]
    pub cells: Vec<TestCell>,
    /// Changes to make in an application, for people.
    #[serde(deserialize_with = "deserialize_name")]
    pub change: String,
    /// Profile, if it is not the protocol's default.
    pub profile: Option<String>,
    /// The client connects by TLS only.
    #[serde(default)]
    pub tls: bool,
}

named_enum! {
    /// Something that a stock client does in a test.
    pub enum TestCell {
        /// The client sends speech and gets its words.
        Transcription = "transcription",
        /// The client sends a text and hears it.
        Speech = "speech",
        /// The client speaks and hears an answer.
        Conversation = "conversation",
        /// The client speaks during an answer, or cancels a text, which stops.
        Interruption = "interruption",
        /// The client makes a mistake and gets an error.
        Error = "error",
        /// The client ends the session.
        Close = "close",
    }
}

impl TestedClient {
    /// One line for people.
    #[must_use]
    pub fn description(&self) -> String {
        let cells: Vec<_> = self.cells.iter().map(|cell| cell.name()).collect();
        let profile = self.profile.as_ref().map_or_else(String::new, |name| format!(", profile {name}"));
        format!("Tested with {}{profile}: {}. {}", self.client, cells.join(", "), self.change)
    }
}

/// Checks that each client has either a script or tests.
///
/// # Errors
/// The first client with both or neither.
pub(super) fn check_drivers(tested: &[TestedClient], document: &Document<'_>) -> Result<(), FileError> {
    match tested.iter().position(|entry| entry.script.is_some() != entry.tests.is_empty()) {
        None => Ok(()),
        Some(at) => Err(document.problem_at_key(
            &["tested_with", &at.to_string()],
            "a stock client has either a `script`, a file of tests/families, or `tests`, a list of names",
        )),
    }
}

fn deserialize_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    match text.trim().is_empty() {
        true => Err(D::Error::custom("this text must not be empty")),
        false => Ok(text),
    }
}

fn deserialize_script<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let script = String::deserialize(from)?;
    let (file, chosen) = script.split_once(' ').unwrap_or((&script, "any"));
    let (stem, extension) = file.rsplit_once('.').unwrap_or_default();
    let is_name = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    // Scripts that share a list of packages have its name before the first dot.
    match stem.split('.').all(is_name) && is_name(chosen) && ["py", "cjs", "rs"].contains(&extension) {
        true => Ok(Some(script)),
        false => Err(D::Error::custom(format!(
            "{script:?} is no script of tests/families, such as \"vosk.py\" or \"vosk.cjs\""
        ))),
    }
}

fn deserialize_tests<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let tests = Vec::<String>::deserialize(from)?;
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_test = |test: &&String| test.split("::").count() > 2 && test.split("::").all(is_word);
    match tests.iter().find(|test| !is_test(test)) {
        Some(wrong) => Err(D::Error::custom(format!(
            "{wrong:?} is no test, such as \"speech::client_libraries::vosk_clients_receive_words\""
        ))),
        None => Ok(tests),
    }
}

fn deserialize_cells<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TestCell>, D::Error> {
    let cells = Vec::<TestCell>::deserialize(from)?;
    let repeated = cells.iter().enumerate().find(|(at, cell)| cells[..*at].contains(cell));
    match repeated {
        _ if cells.is_empty() => {
            Err(D::Error::custom("`cells` must not be empty, such as [\"transcription\"]"))
        }
        Some((_, cell)) => Err(D::Error::custom(format!("`{}` stands twice", cell.name()))),
        None => Ok(cells),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;

    fn vosk_tested_with(table: &str) -> Result<Vec<TestedClient>, String> {
        let source = include_str!("../../mappings/client/vosk.toml");
        let own = source.split("[[tested_with]]").next().unwrap_or_default();
        let mut library = Library::default();
        library
            .add("vosk.toml", &format!("{own}\n[[tested_with]]\n{table}"))
            .map_err(|error| error.to_string())?;
        library.client("vosk").map(|client| client.tested_with.clone())
    }

    #[test]
    fn stock_clients_are_described_and_checked() {
        let table = "client = \"vosk 0.3 (Python)\"\nscript = \"vosk.py\"\ncells = [\"transcription\", \"close\"]\nchange = \"The URL.\"";
        let tested = vosk_tested_with(&format!("{table}\nprofile = \"live\"")).unwrap();
        assert_eq!(
            tested[0].description(),
            "Tested with vosk 0.3 (Python), profile live: transcription, close. The URL."
        );
        let chosen = vosk_tested_with(&table.replace("vosk.py", "engines.py vosk_small")).unwrap();
        assert_eq!(chosen[0].script.as_deref(), Some("engines.py vosk_small"));
        for (old, new, words) in [
            ("vosk.py", "../vosk.py", "is no script"),
            ("vosk.py", "vosk.sh", "is no script"),
            ("vosk.py", "vosk.py ../kaldi", "is no script"),
            ("vosk.py", "vosk.py kaldi small", "is no script"),
            ("vosk.py", "vosk..py", "is no script"),
            ("\"close\"", "\"clos\"", "did you mean `close`"),
            ("\"close\"", "\"transcription\"", "stands twice"),
            ("[\"transcription\", \"close\"]", "[]", "must not be empty"),
            ("\"The URL.\"", "\" \"", "must not be empty"),
            ("script =", "scrpt =", "did you mean `script`"),
            ("script = \"vosk.py\"\n", "", "either a `script`"),
            ("script =", "tests = [\"a::b::c\"]\nscript =", "either a `script`"),
            ("script = \"vosk.py\"", "tests = [\"vosk.py\"]", "is no test"),
        ] {
            let problem = vosk_tested_with(&table.replace(old, new)).unwrap_err();
            assert!(problem.contains(words) && problem.starts_with("vosk.toml:"), "{new}: {problem}");
        }
    }
}
