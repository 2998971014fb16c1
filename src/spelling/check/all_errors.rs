//! Finds all errors of a TOML file, although a reader stops at the first: takes each wrong entry out of the parsed file and
//! reads the rest again.
//!
//! This module knows TOML and the readers' messages, but not the schema of any file.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Document, FileError};

/// Stop after this many errors.
const MAX_PROBLEMS: usize = 40;

/// Path of an entry: each key, and the index if its value is a list.
type EntryPath = Vec<(String, Option<usize>)>;

/// All errors of a file, and the file without them.
pub struct CheckedDocument<'s> {
    /// Every error.
    pub errors: Vec<FileError>,
    /// The file without the errors.
    pub valid: Document<'s>,
    /// Keys of the entries that were replaced or removed, which may be wrong for the rest of the file.
    guesses: Vec<Vec<String>>,
    /// Entries whose first so many keys are the same may depend on each other.
    related_keys: usize,
}

/// Reports every error that `read` finds. `model` is a valid file of the same kind, which lends values for wrong ones. Entries whose
/// first `related_keys` keys are the same may depend on each other: an error in one may follow from another's.
pub fn find_all<'s>(
    document: &Document<'s>,
    model: &'s str,
    related_keys: usize,
    read: impl Fn(&Document<'s>) -> Result<(), FileError>,
) -> CheckedDocument<'s> {
    let valid = document.clone();
    let mut checked = CheckedDocument { errors: Vec::new(), valid, guesses: Vec::new(), related_keys };
    for _ in 0..MAX_PROBLEMS {
        let Err(problem) = read(&checked.valid) else { break };
        let problems = problem.flatten();
        for problem in &problems {
            if !checked.follows_from_guess(problem) && !checked.errors.contains(problem) {
                checked.errors.push(problem.clone());
            }
        }
        if problems.len() > 1 || !checked.mend(&problems[0], model) {
            break;
        }
    }
    checked
}

impl<'s> CheckedDocument<'s> {
    /// True if this key, or a related one, was replaced by a guess.
    #[must_use]
    pub fn is_guessed(&self, path: &[String]) -> bool {
        self.guesses
            .iter()
            .any(|guess| guess.iter().zip(path).take(self.related_keys).all(|(guess, key)| guess == key))
    }

    fn follows_from_guess(&self, problem: &FileError) -> bool {
        let is_at_start = (problem.line, problem.column) == (1, 1);
        let entry = self.entry_at(problem).filter(|_| !is_at_start);
        self.is_guessed(&keys(&entry.unwrap_or_default()))
    }

    /// The innermost entry at the position of an error.
    fn entry_at(&self, problem: &FileError) -> Option<EntryPath> {
        entry_in_table(self.valid.table.get_ref(), problem.offset(self.valid.source))
    }

    /// Mends a wrong entry by the suggested spelling or by the model's value, or removes it. Returns false if it cannot.
    fn mend(&mut self, problem: &FileError, model: &'s str) -> bool {
        let entry = self.entry_at(problem).filter(|_| problem.line > 0);
        let Some(((last, _), tables)) = entry.as_ref().and_then(|entry| entry.split_last()) else {
            return false;
        };
        let keys = keys(tables).into_iter().chain([last.clone()]).collect();
        let model = Some(model).filter(|_| !self.guesses.contains(&keys));
        let offset = problem.offset(self.valid.source);
        let Some((table, (key, value))) = table_at(self.valid.table.get_mut(), tables)
            .and_then(|table| table.remove_entry(last.as_str()).map(|entry| (table, entry)))
        else {
            return false;
        };
        let hint = problem.message.rsplit_once("did you mean `").map(|(_, hint)| hint.trim_end_matches("`?"));
        let value_span = value.span();
        let (is_key, is_value) = (key.span().contains(&offset), value_span.contains(&offset));
        match hint {
            Some(hint) if is_key => {
                table.insert(Spanned::new(key.span(), hint.to_owned().into()), value);
            }
            Some(hint) if is_value => {
                table.insert(key, Spanned::new(value_span, DeValue::String(hint.to_owned().into())));
            }
            _ => {
                let value = model.filter(|_| is_value).and_then(|model| value_at(model, &keys));
                if let Some(lent) = value {
                    // Its own position is in the model's text.
                    table.insert(key, Spanned::new(value_span, lent.into_inner()));
                }
                self.guesses.push(keys);
            }
        }
        true
    }
}

fn keys(path: &[(String, Option<usize>)]) -> Vec<String> {
    path.iter().map(|(key, _)| key.clone()).collect()
}

fn entry_in_table(table: &DeTable<'_>, offset: usize) -> Option<EntryPath> {
    for (key, value) in table {
        let deeper = match value.get_ref() {
            DeValue::Table(inner) => entry_in_table(inner, offset).map(|path| (None, path)),
            DeValue::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                Some((Some(index), entry_in_table(item.get_ref().as_table()?, offset)?))
            }),
            _ => None,
        };
        if let Some((index, path)) = deeper {
            return Some([(key.get_ref().to_string(), index)].into_iter().chain(path).collect());
        }
        if key.span().contains(&offset) || value.span().contains(&offset) {
            return Some(vec![(key.get_ref().to_string(), None)]);
        }
    }
    None
}

/// The table at this path.
fn table_at<'t, 's>(
    table: &'t mut DeTable<'s>,
    path: &[(String, Option<usize>)],
) -> Option<&'t mut DeTable<'s>> {
    path.iter().try_fold(table, |table, (key, index)| {
        let value = match (table.get_mut(key.as_str())?.get_mut(), index) {
            (DeValue::Array(items), Some(index)) => items.get_mut(*index)?.get_mut(),
            (value, _) => value,
        };
        match value {
            DeValue::Table(inner) => Some(inner),
            _ => None,
        }
    })
}

/// The value at this path.
fn value_at<'s>(source: &'s str, path: &[String]) -> Option<Spanned<DeValue<'s>>> {
    let mut table = DeTable::parse(source).ok()?.into_inner();
    let (last, tables) = path.split_last()?;
    for key in tables {
        table = match table.remove(key.as_str())?.into_inner() {
            DeValue::Table(inner) => inner,
            _ => return None,
        };
    }
    table.remove(last.as_str())
}

#[cfg(test)]
mod tests {
    use crate::spelling::{FileError, Library};

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
            assert!(
                told.iter().any(|error| error.starts_with(&place) && error.contains(hint)),
                "{start}: {told:#?}"
            );
        }
        assert_eq!(found.len(), 7, "an error was reported that only follows from another: {told:#?}");
    }

    #[test]
    fn one_mistake_gives_one_message() {
        let client = crate::spelling::scaffold::generate(
            &Library::embedded().unwrap(),
            crate::spelling::MappingKind::Client,
            "mine",
            true,
        );
        let client = client.unwrap();
        for (from, to, words) in [
            ("verb = \"speak\"", "verb = \"zzz\"", "unknown value `zzz`; known are `audio`"),
            (
                "verb = \"speak\"",
                "verb = 5",
                "expected a verb, a table with a verb, or a list of these, not 5",
            ),
            (
                "verb = \"speak\"",
                "verb = { verb = \"speak\", when = 5 }",
                "a JSON pointer or the name of a slot",
            ),
            ("encoding = \"s16le\"", "encoding = \"flac\"", "unknown value `flac`; known are"),
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
            ("enable_itn", "neither `to`, `remember`, `same_as` nor `because`"),
            ("rate_limited = ", "did you mean `delay_ms`?"),
        ] {
            let place = format!("f.toml:{}:", line_of(&source, start));
            assert!(
                told.iter().any(|error| error.starts_with(&place) && error.contains(words)),
                "{start}: {told:#?}"
            );
        }
        let upstream = include_str!("../../../mappings/upstream/minicpm-o.toml");
        let source = without(upstream, &["close = ", "init = "]);
        let told: Vec<String> = problems(&source).iter().map(ToString::to_string).collect();
        assert!(
            told.iter().all(|error| error.starts_with(&format!("f.toml:{}:", line_of(&source, "[send]")))),
            "{told:#?}"
        );
        assert!(told.len() == 2 && told[0].contains("`init`") && told[1].contains("`close`"), "{told:#?}");
    }
}
