//! Finds all errors of a TOML file, although a reader stops at the first: repairs each error in a copy and reads
//! the copy again.
//!
//! This module knows TOML and the readers' messages, but not the schema of any file. It adds and removes no
//! lines, so that later positions match the original file.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::{FileError, unquoted::UnquotedText};

/// Stop after this many errors.
const MAX_PROBLEMS: usize = 40;

/// Offset of the deepest existing key along `path`, in which the entries of a list have their index. `None` if the document
/// has not even the first key.
#[must_use]
pub fn offset_of(source: &str, path: &[&str]) -> Option<usize> {
    let document = DeTable::parse(source).ok()?;
    let (mut table, mut offset) = (document.get_ref(), None);
    let mut path = path.iter();
    while let Some(key) = path.next() {
        let Some((found, value)) = table.iter().find(|(known, _)| known.get_ref() == key) else { break };
        offset = Some(found.span().start);
        let mut value = value;
        if let DeValue::Array(items) = value.get_ref() {
            let Some(item) = path.next().and_then(|at| items.get(at.parse::<usize>().ok()?)) else { break };
            (offset, value) = (Some(item.span().start), item);
        }
        let DeValue::Table(inner) = value.get_ref() else { break };
        table = inner;
    }
    offset
}

/// All errors of a file, and a copy of it without them.
pub struct RepairedFile {
    /// Every error.
    pub errors: Vec<FileError>,
    /// The copy. It has the same lines as the file.
    pub text: String,
    guesses: Vec<Vec<String>>,
}

impl RepairedFile {
    /// True if the repair of this key, or of one beside it, was a guess.
    #[must_use]
    pub fn is_guessed(&self, path: &[String]) -> bool {
        is_near_guess(&self.guesses, path)
    }
}

/// True if a guess concerns the same command, field, section or the like.
fn is_near_guess(guesses: &[Vec<String>], path: &[String]) -> bool {
    guesses.iter().any(|guess| guess.iter().zip(path).take(2).all(|(guess, key)| guess == key))
}

/// Reports every error that `read` finds in `source`. `model` is a valid file of the same kind, which lends
/// values for repairs.
pub fn find_all(source: &str, model: &str, read: impl Fn(&str) -> Result<(), FileError>) -> RepairedFile {
    let mut copy = RepairedCopy { text: source.to_owned(), shifts: Vec::new(), guesses: Vec::new() };
    let mut found: Vec<FileError> = Vec::new();
    for _ in 0..MAX_PROBLEMS {
        let Err(problem) = read(&copy.text) else { break };
        let problems = problem.flatten();
        let new = problems.iter().filter(|problem| !copy.is_consequence(problem));
        let new =
            new.map(|problem| copy.original_position(problem)).filter(|problem| !found.contains(problem));
        let new: Vec<FileError> = new.collect();
        found.extend(new);
        if problems.len() > 1 || !copy.repair(&problems[0], model) {
            break;
        }
    }
    RepairedFile { errors: found, text: copy.text, guesses: copy.guesses }
}

/// Copy of a file with the errors found so far repaired.
struct RepairedCopy {
    text: String,
    /// Replacements so far: line, column, change in length in characters.
    shifts: Vec<(usize, usize, isize)>,
    /// Paths of the entries whose repair was a guess, which may be wrong for the rest of the file.
    guesses: Vec<Vec<String>>,
}

/// Key and value of a document.
struct DocumentEntry {
    path: Vec<String>,
    key: Range<usize>,
    value: Range<usize>,
    /// Ranges of the entry, including the tables in it.
    ranges: Vec<Range<usize>>,
}

impl RepairedCopy {
    /// Translates the position of an error back to the original file.
    fn original_position(&self, problem: &FileError) -> FileError {
        let mut problem = problem.clone();
        for (line, column, letters) in self.shifts.iter().rev() {
            if problem.line == *line && problem.column > *column {
                problem.column = problem.column.saturating_add_signed(-letters);
            }
        }
        problem
    }

    /// True if the error may follow from a guess: both are in one command, one field, one section or the like.
    fn is_consequence(&self, problem: &FileError) -> bool {
        let is_at_start = (problem.line, problem.column) == (1, 1);
        let entry = entry_at(&self.text, problem.offset(&self.text)).filter(|_| !is_at_start);
        let path = entry.map(|entry| entry.path).unwrap_or_default();
        is_near_guess(&self.guesses, &path)
    }

    /// Repairs an error: by the suggested spelling, by the model's value, or by blanking the entry. Returns
    /// false if it cannot.
    fn repair(&mut self, problem: &FileError, model: &str) -> bool {
        let offset = problem.offset(&self.text);
        if DeTable::parse(&self.text).is_err() {
            let Some(UnquotedText { range, .. }) = UnquotedText::at(&self.text, offset) else { return false };
            let quoted = format!("{:?}", &self.text[range.clone()]);
            self.replace(problem, range, &quoted);
            return true;
        }
        let Some(entry) = entry_at(&self.text, offset).filter(|_| problem.line > 0) else { return false };
        let hint = problem.message.rsplit_once("did you mean `").map(|(_, hint)| hint.trim_end_matches("`?"));
        match hint {
            Some(hint) if entry.key.contains(&offset) => self.replace(problem, entry.key, hint),
            Some(hint) if entry.value.contains(&offset) => {
                self.replace(problem, entry.value, &format!("{hint:?}"));
            }
            _ => {
                let value = value_at(model, &entry.path).filter(|_| entry.value.contains(&offset));
                let value = value.filter(|value| self.text.get(entry.value.clone()) != Some(value));
                self.guesses.push(entry.path);
                match value {
                    Some(value) => self.replace(problem, entry.value, &value),
                    None => entry.ranges.into_iter().for_each(|range| {
                        let range = widen_range(&self.text, range);
                        blank_out(&mut self.text, range);
                    }),
                }
            }
        }
        true
    }

    fn replace(&mut self, problem: &FileError, range: Range<usize>, new: &str) {
        let old = self.text.get(range.clone()).unwrap_or_default();
        let letters = new.chars().count() as isize - old.chars().count() as isize;
        self.shifts.push((problem.line, problem.column, letters));
        self.text.replace_range(range, new);
    }
}

/// The innermost entry at this offset.
fn entry_at(source: &str, offset: usize) -> Option<DocumentEntry> {
    entry_in_table(DeTable::parse(source).ok()?.get_ref(), offset)
}

fn entry_in_table(table: &DeTable<'_>, offset: usize) -> Option<DocumentEntry> {
    for (key, value) in table {
        let deeper = match value.get_ref() {
            DeValue::Table(inner) => entry_in_table(inner, offset),
            DeValue::Array(items) => {
                items.iter().find_map(|item| entry_in_table(item.get_ref().as_table()?, offset))
            }
            _ => None,
        };
        if let Some(mut entry) = deeper {
            entry.path.insert(0, key.get_ref().to_string());
            return Some(entry);
        }
        if key.span().contains(&offset) || value.span().contains(&offset) {
            let mut ranges = Vec::new();
            collect_ranges(key.span(), value.get_ref(), value.span(), &mut ranges);
            let path = vec![key.get_ref().to_string()];
            return Some(DocumentEntry { path, key: key.span(), value: value.span(), ranges });
        }
    }
    None
}

/// The value at this path, as written in the document.
fn value_at(source: &str, path: &[String]) -> Option<String> {
    let document = DeTable::parse(source).ok()?;
    let (last, tables) = path.split_last()?;
    let mut table = document.get_ref();
    for key in tables {
        table = table.get(key.as_str())?.get_ref().as_table()?;
    }
    source.get(table.get(last.as_str())?.span()).map(str::to_owned)
}

/// Collects all ranges of an entry; a table with its own header has entries elsewhere.
fn collect_ranges(
    key: Range<usize>,
    value: &DeValue<'_>,
    span: Range<usize>,
    ranges: &mut Vec<Range<usize>>,
) {
    ranges.push(key.start..key.end.max(span.end));
    let tables: Vec<&DeTable<'_>> = match value {
        DeValue::Table(table) => vec![table],
        DeValue::Array(items) => items.iter().filter_map(|item| item.get_ref().as_table()).collect(),
        _ => Vec::new(),
    };
    for (key, value) in tables.into_iter().flatten() {
        collect_ranges(key.span(), value.get_ref(), value.span(), ranges);
    }
}

/// Widens the range to the rest of a header's line, or to the comma behind it.
fn widen_range(source: &str, range: Range<usize>) -> Range<usize> {
    let line = source[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
    if source[line..].starts_with('[') {
        let end = source[range.start..].find('\n').map_or(source.len(), |newline| range.start + newline);
        return line..end;
    }
    let rest = &source[range.end..];
    let gap = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    if rest[gap..].starts_with(',') { range.start..range.end + gap + 1 } else { range }
}

fn blank_out(source: &mut String, range: Range<usize>) {
    let Some(old) = source.get(range.clone()) else { return };
    let spaces = old.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect::<String>();
    source.replace_range(range, &spaces);
}

#[cfg(test)]
mod tests {
    use crate::mapping::{FileError, Library};

    fn problems(source: &str) -> Vec<FileError> {
        let problem = Library::default().add("f.toml", source).unwrap_err();
        problem.flatten()
    }

    fn line_of(source: &str, start: &str) -> usize {
        1 + source.lines().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}"))
    }

    #[test]
    fn every_error_of_a_file_is_reported_with_its_position() {
        let mut source = include_str!("../../../mappings/client/macaw.toml").to_owned();
        for (from, to) in [
            ("command_key = ", "comand_key = "),
            ("idle_ms = 60000", "idle_ms = \"long\""),
            ("verb = \"commit\"", "verb = \"comit\""),
            ("speech_started = ", "speech_startd = "),
            ("unknown_voice = {", "unknwon_voice = {"),
            ("language = { to = \"language\"", "language = { too = \"language\""),
            ("[audio_out]", "[audio_output]"),
        ] {
            assert!(source.contains(from), "{from}");
            source = source.replacen(from, to, 1);
        }
        let found = problems(&source);
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        for (start, hint) in [
            ("comand_key", "did you mean `command_key`?"),
            ("idle_ms = \"long\"", "expected a whole number, 0 or more, not \"long\""),
            ("verb = \"comit\"", "did you mean `commit`?"),
            ("speech_startd", "did you mean `speech_started`?"),
            ("unknwon_voice", "did you mean `unknown_voice`?"),
            ("language = { too", "did you mean `to`?"),
            ("[audio_output]", "did you mean `audio_out`?"),
        ] {
            let place = format!("f.toml:{}:", line_of(&source, start));
            assert!(told.iter().any(|it| it.starts_with(&place) && it.contains(hint)), "{start}: {told:#?}");
        }
        assert_eq!(found.len(), 7, "an error was reported that only follows from another: {told:#?}");
    }

    #[test]
    fn one_mistake_gives_one_message() {
        let client = crate::mapping::scaffold::generate(
            &Library::embedded().unwrap(),
            crate::mapping::MappingKind::Client,
            "mine",
        );
        let client = client.unwrap();
        for (from, to, words) in [
            ("verb = \"speak\"", "verb = \"zzz\"", "unknown value `zzz`; known are `audio`"),
            (
                "verb = \"speak\"",
                "verb = 5",
                "expected a verb, a table with a verb, or a list of these, not 5",
            ),
            ("verb = \"speak\"", "verb = { verb = \"speak\", when = 5 }", "a JSON pointer, or a table"),
            ("encoding = \"s16le\"", "encoding = \"opusss\"", "unknown value `opusss`; known are"),
            ("channels = 1", "channels = \"1\"", "from 0 to 65535, not \"1\": remove the quotes"),
            (
                "recoverable = true",
                "recoverable = \"true\"",
                "expected true or false, not \"true\": remove the quotes",
            ),
            ("rate_hz = 16000", "rate_hz = -1", "not -1"),
            ("type = \"text\", required", "type = \"zzz\", required", "unknown value `zzz`"),
            ("text = { to = \"text\", type = \"text\", ", "text = { to = \"text\", ", "`type` is missing"),
            ("to = \"partials\"", "to = \"nonsense\"", "unknown value `nonsense`"),
            (
                "speech_ended = '{\"type\": \"speech\", \"on\": false, \"at_ms\": ${at_ms}}'",
                "speech_ended = 5",
                "a template in quotes",
            ),
            (
                "other = { code = \"failed\", recoverable = true }",
                "other = \"failed\"",
                "expected a table, not \"failed\"",
            ),
            (
                "idle = { reason = \"silence\", code = 1000, text = \"silence\" }",
                "idle = 1000",
                "expected a table, not 1000",
            ),
            ("code = 1008, text = \"no model\"", "code = 1006, text = \"no model\"", "close code 1006"),
            ("paths = [\"/mine\"]", "paths = \"/mine\"", "write [\"/mine\"]"),
            ("title = \"mine\"", "title = 5", "expected text in quotes, not 5: write \"5\""),
        ] {
            assert!(client.contains(from), "{from}");
            let source = client.replacen(from, to, 1);
            let found = problems(&source);
            let told: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert!(told.len() == 1 && told[0].contains(words), "{to}: {told:#?}");
        }
    }

    #[test]
    fn semantic_errors_are_reported_with_their_position() {
        let client = include_str!("../../../mappings/client/macaw.toml");
        let without = |source: &str, starts: &[&str]| {
            let kept = source.lines().filter(|line| !starts.iter().any(|start| line.starts_with(start)));
            kept.collect::<Vec<_>>().join("\n")
        };
        let source = without(client, &["queue_full", "bad_setting", "shutdown = "])
            .replace(
                "type = \"flag\", because = \"MiniCPM-o chooses",
                "type = \"flag\", values = [\"MiniCPM-o chooses",
            )
            .replace("own number format\" }", "own number format\"] }")
            .replace("\"delay_ms\": ${delay_ms}", "\"delay_ms\": ${delay}");
        let told: Vec<String> = problems(&source).iter().map(ToString::to_string).collect();
        for (start, words) in [
            ("[errors]", "`queue_full`"),
            ("[errors]", "`bad_setting`"),
            ("[closes]", "`shutdown`"),
            ("enable_itn", "neither `to`, `remember` nor `because`"),
            ("rate_limited = ", "did you mean `delay_ms`?"),
        ] {
            let place = format!("f.toml:{}:", line_of(&source, start));
            assert!(told.iter().any(|it| it.starts_with(&place) && it.contains(words)), "{start}: {told:#?}");
        }
        let upstream = include_str!("../../../mappings/upstream/minicpm-o.toml");
        let source = without(upstream, &["close = ", "init = "]);
        let told: Vec<String> = problems(&source).iter().map(ToString::to_string).collect();
        assert!(
            told.iter().all(|it| it.starts_with(&format!("f.toml:{}:", line_of(&source, "[send]")))),
            "{told:#?}"
        );
        assert!(told.len() == 2 && told[0].contains("`init`") && told[1].contains("`close`"), "{told:#?}");
    }
}
