//! Real speech engines for tests: their installation, and the word error rate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A directory with working engines, installed on first use (about 10 s and 240 MB; needs npm, pip and apt).
///
/// Safe to call from several tests and test programs at once.
///
/// # Panics
/// If the engines cannot be installed: a test that needs them cannot pass without them.
pub(crate) fn engines_dir() -> PathBuf {
    static READY: OnceLock<PathBuf> = OnceLock::new();
    READY.get_or_init(set_up).clone()
}

fn set_up() -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = project.join("target/engines");
    let setup = project.join("examples/engines/setup");
    let done = Command::new(&setup).arg(&dir).output().unwrap_or_else(|e| panic!("{}: {e}", setup.display()));
    assert!(
        done.status.success(),
        "the speech engines cannot be set up ({}):\n{}",
        done.status,
        String::from_utf8_lossy(&done.stderr)
    );
    dir
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
