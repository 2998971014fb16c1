//! Real speech engines for tests: their installation, and the word error rate.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use voxbridge::simulator::process::EngineProcess;
use voxbridge_test_support::programs::{installed, set_up};

use crate::client_programs::{installed_clients, project};

/// A directory with working engines, installed on first use (about 10 s and 240 MB; needs npm, pip and apt). `None` skips
/// the test.
///
/// Safe to call from several tests and test programs at once.
pub(crate) fn engines_dir() -> Option<PathBuf> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        let dir = project().join("target/engines");
        set_up(Command::new(project().join("examples/engines/setup")).arg(&dir))?;
        Ok(dir)
    });
    installed(ready).cloned()
}

/// Running engines; `None` skips the test.
pub(crate) async fn start_engines() -> Option<EngineProcess> {
    Some(EngineProcess::start(&engines_dir()?).await.unwrap())
}

/// Running engines, for a test that needs the clients, too.
pub(crate) async fn start_engines_for_clients() -> Option<Arc<EngineProcess>> {
    installed_clients()?;
    start_engines().await.map(Arc::new)
}

/// Word error rate: replaced, missing and added words over the words of the reference. May exceed 1.
pub(crate) fn word_error_rate(reference: &str, hypothesis: &str) -> f64 {
    let (words, heard) = (normalise(reference), normalise(hypothesis));
    word_errors(&words, &heard) as f64 / words.len().max(1) as f64
}

/// Number of replaced, missing and added words: the edit distance, row by row.
pub(crate) fn word_errors(reference: &[String], hypothesis: &[String]) -> usize {
    let mut row: Vec<usize> = (0..=hypothesis.len()).collect();
    for (i, word) in reference.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, heard) in hypothesis.iter().enumerate() {
            let replaced = diagonal + usize::from(word != heard);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[hypothesis.len()]
}

/// Normalised words: lower case, no punctuation, one spelling for each spoken word.
pub(crate) fn normalise(text: &str) -> Vec<String> {
    let spaced: String = text
        .to_lowercase()
        .chars()
        .filter(|c| !matches!(c, '\'' | '’'))
        .map(|c| if c.is_alphanumeric() { c } else { ' ' })
        .collect();
    spaced.split_whitespace().map(|word| canonical_spelling(word).to_owned()).collect()
}

/// The canonical spelling of words for which Moonshine has several.
fn canonical_spelling(word: &str) -> &str {
    match word {
        "mr" => "mister",
        "10" => "ten",
        "metre" => "meter",
        "metres" => "meters",
        other => other,
    }
}
