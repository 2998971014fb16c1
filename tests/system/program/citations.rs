//! Sources that comments cite: sections of the notes and recorded exchanges, by their paths.

use super::*;

/// Begins a citation of a section, which goes on with a file, `#` and an anchor. In two pieces, because this file is read too.
const NOTES: &str = concat!("mappings/", "notes/");
/// Begins the path of a recorded exchange.
const GOLDEN: &str = concat!("tests/", "golden/");
/// Words that would cite a source without its path.
const WITHOUT_PATH: [&str; 3] =
    [concat!("field", " notes"), concat!("golden", " c0"), concat!("golden", " c1")];

/// The anchor of a heading, as GitHub derives it.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Paths of all files below a folder of the repository, without what tests build or fetch there.
pub(crate) fn files_below(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(in_repository(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().display());
        if !entry.file_type().unwrap().is_dir() {
            files.push(path);
        } else if !path.ends_with("/target") && !path.ends_with("/node_modules") {
            files.extend(files_below(&path));
        }
    }
    files
}

/// The texts that may cite sources, with their paths. Files in other encodings are recordings.
fn citing_texts() -> Vec<(String, String)> {
    let mut files = ["README.md", "Cargo.toml"].map(str::to_owned).to_vec();
    for folder in ["src", "tests", "mappings", "examples", ".github"] {
        files.extend(files_below(folder));
    }
    let text = |path: &str| String::from_utf8(fs::read(in_repository(path)).unwrap()).ok();
    files.into_iter().filter_map(|path| text(&path).map(|text| (path, text))).collect()
}

/// The paths in a text that begin like this, without a full stop behind them.
fn cited<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let path = |at: usize| {
        let rest = &text[at..];
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && !"-_./#".contains(letter));
        rest[..end.unwrap_or(rest.len())].trim_end_matches('.')
    };
    text.match_indices(start).map(|(at, _)| path(at)).collect()
}

/// A text in one line, without the marks of comments and in small letters.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!', '#']).trim());
    lines.collect::<Vec<_>>().join(" ").to_lowercase()
}

#[test]
fn cited_sections_of_the_notes_exist() {
    let mut count = 0;
    for (path, text) in citing_texts().iter().filter(|(path, _)| !path.ends_with(".md")) {
        for citation in cited(text, NOTES) {
            let (file, section) = citation.split_once('#').unwrap_or((citation, ""));
            let note = fs::read_to_string(in_repository(file)).unwrap_or_default();
            let has_section = note.lines().any(|line| line.starts_with('#') && anchor(line) == section);
            assert!(has_section, "{path}: {citation} does not exist");
            count += 1;
        }
    }
    assert!(count > 200, "found only {count} citations");
}

#[test]
fn cited_recordings_exist() {
    for (path, text) in citing_texts() {
        for citation in cited(&text, GOLDEN) {
            assert!(in_repository(citation).exists(), "{path}: {citation} does not exist");
        }
    }
}

#[test]
fn sources_are_cited_by_their_paths() {
    for (path, text) in citing_texts() {
        let text = in_one_line(&text);
        let vague = WITHOUT_PATH.iter().find(|words| text.contains(**words));
        assert_eq!(vague, None, "{path}: cite a source by its path");
    }
}
