//! Checks a configuration file as a whole: finds all of its mistakes, with their positions.

use std::path::{Path, PathBuf};

use toml::Table;

use super::{Config, ConfigProblem, keys::KEYS, table_path};
use crate::{
    spelling::{
        FileError,
        check::{
            Document,
            all_errors::{CheckedDocument, find_all},
            quote_texts,
        },
    },
    suggestion::did_you_mean,
    telemetry::line_writer::LogTarget,
};

/// A configuration file.
#[derive(Debug)]
pub struct ConfigFile<'p> {
    path: &'p Path,
    name: String,
    /// Its text, with quotes where they were missing.
    source: String,
    /// The errors of its syntax.
    syntax_errors: Vec<FileError>,
}

/// The valid part of a file, and its mistakes.
pub struct CheckedConfig<'f> {
    /// Mistakes in keys and types.
    pub errors: Vec<FileError>,
    /// The file without the mistakes, as a layer.
    pub layer: Table,
    document: CheckedDocument<'f>,
    /// Lines with broken syntax. Other mistakes on these lines are only consequences.
    broken_lines: Vec<usize>,
}

impl<'p> ConfigFile<'p> {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(path: &'p Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let source = FileError::read_text(&name, path)?;
        let (syntax_errors, source) = quote_texts(&name, source);
        Ok(Self { path, name, source, syntax_errors })
    }

    /// Parses the file. Relative paths in it are resolved against its directory.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(&self) -> Result<Table, FileError> {
        if let Some(error) = self.syntax_errors.first() {
            return Err(error.clone());
        }
        self.read_document(&Document::parse(&self.name, &self.source)?)
    }

    /// Parses the file as far as possible.
    #[must_use]
    pub fn check(&self) -> CheckedConfig<'_> {
        let (document, broken) = Document::parse_recovered(&self.name, &self.source);
        let broken_lines: Vec<usize> = broken.iter().map(|error| error.line).collect();
        let document = find_all(&document, "", usize::MAX, |document| self.read_document(document).map(drop));
        let found = document.errors.iter().filter(|error| !broken_lines.contains(&error.line));
        let errors = self.syntax_errors.iter().chain(&broken).chain(found).cloned();
        let mut errors: Vec<FileError> = errors.collect();
        // A value that two parsers read has its error twice.
        errors.dedup_by_key(|error| (error.line, error.column, error.message.clone()));
        let layer = self.read_document(&document.valid).unwrap_or_default();
        CheckedConfig { errors, layer, document, broken_lines }
    }

    fn read_document(&self, document: &Document<'_>) -> Result<Table, FileError> {
        // A table has no positions, which the errors need.
        let checked = document.read::<Config>().map(drop);
        checked.map_err(|error| with_place_of_key(error, document.source))?;
        let mut layer = document.read()?;
        resolve_paths(&mut layer, self.path.parent().unwrap_or(Path::new("")))
            .map_err(|problem| FileError::for_file(&self.name, problem))?;
        Ok(layer)
    }
}

impl CheckedConfig<'_> {
    /// The mistake with its position, if the file has the key or the table that holds it.
    #[must_use]
    pub fn locate(&self, problem: &ConfigProblem) -> Option<FileError> {
        let path: Vec<&str> = problem.path.iter().map(String::as_str).collect();
        let document = &self.document.valid;
        let offset = document.offset_of(&path)?;
        Some(FileError::at_offset(document.file, document.source, offset, problem.message.clone()))
    }

    /// True if the mistake may follow from another one in the file.
    #[must_use]
    pub fn is_consequence(&self, problem: &ConfigProblem) -> bool {
        let is_in_broken_line = |problem: &ConfigProblem| {
            self.locate(problem).is_some_and(|error| self.broken_lines.contains(&error.line))
        };
        // A broken line may contain the key that seems to be missing.
        let may_be_missing = problem.path.is_empty() && !self.broken_lines.is_empty();
        // A misspelt key is checked further as if it were right, which may wait until it is.
        let is_at_error = self.locate(problem).is_some_and(|found| {
            self.errors.iter().any(|error| (error.line, error.column) == (found.line, found.column))
        });
        may_be_missing || is_at_error || is_in_broken_line(problem) || self.document.is_guessed(&problem.path)
    }
}

/// Resolves the relative paths of a file against its directory.
///
/// # Errors
/// A path is no UTF-8.
fn resolve_paths(file: &mut Table, directory: &Path) -> Result<(), String> {
    let mut result = Ok(());
    for key in KEYS.iter().filter(|key| key.is_path) {
        table_path::for_each(file, key.path, &mut |_, value| {
            let Some(path) = value.as_str().map(Path::new) else { return };
            let is_stream =
                key.path == "access_log.path" && !matches!(LogTarget::from_path(path), LogTarget::File(_));
            if !is_stream {
                match path_text(directory.join(path)) {
                    Ok(text) => *value = text.into(),
                    Err(problem) => result = Err(format!("{}: {problem}", key.path)),
                }
            }
        });
    }
    result
}

/// A path as a value of a layer.
///
/// # Errors
/// The path is no UTF-8, which TOML cannot hold.
pub fn path_text(path: PathBuf) -> Result<String, String> {
    path.into_os_string().into_string().map_err(|path| format!("the path {} is not UTF-8", path.display()))
}

/// Says where an unknown key belongs, if it is valid elsewhere. TOML assigns each key to the section above it.
fn with_place_of_key(mut error: FileError, text: &str) -> FileError {
    let Some(key) = error.message.strip_prefix("unknown key `").and_then(|rest| rest.split('`').next())
    else {
        return error;
    };
    let is_header = |line: &&str| line.trim_start().starts_with('[');
    let section = text.lines().take(error.line.saturating_sub(1)).filter(is_header).last();
    let top = keys_of("");
    let message = match section {
        Some(section) if top.iter().any(|known| known == key) => {
            format!("key `{key}` does not belong in {}: move it up, before the first section", section.trim())
        }
        _ => {
            let headers = top.iter().flat_map(|name| [format!("[{name}]"), format!("[[{name}]]")]);
            let has_key = |header: &String| keys_of(header).iter().any(|known| known == key);
            let Some(header) = headers.into_iter().find(has_key) else { return error };
            // The suggested spelling is the better advice.
            let is_misspelt = !did_you_mean(key, top.iter().map(String::as_str)).is_empty();
            if section.is_none() && is_misspelt {
                return error;
            }
            format!("key `{key}` belongs in {header}")
        }
    };
    error.message = message;
    error
}

/// The valid keys below this header, from the message about a key that is not valid.
fn keys_of(header: &str) -> Vec<String> {
    let error = toml::from_str::<Config>(&format!("{header}\n\"?\" = 1")).err();
    let message = error.map(|error| error.message().to_owned()).unwrap_or_default();
    let known = message.strip_prefix("unknown field `?`").unwrap_or_default();
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str) -> Vec<String> {
        let file = quote_texts("t", source.into());
        let file =
            ConfigFile { path: Path::new("t"), name: "t".into(), source: file.1, syntax_errors: file.0 };
        let checked = file.check();
        let known = |problem: &ConfigProblem| !checked.is_consequence(problem);
        let config: Config = checked.layer.clone().try_into().unwrap();
        let problems = config.find_problems().into_iter().filter(known);
        let located = problems.map(|problem| {
            checked.locate(&problem).unwrap_or_else(|| FileError::for_file("?", problem.message)).to_string()
        });
        checked.errors.iter().map(ToString::to_string).chain(located).collect()
    }

    #[test]
    fn every_mistake_of_a_file_is_reported_with_its_position() {
        let source = "profil = \"speech\"\nlisten = 0.0.0.0:8000\nlanguage = \"xx\"\nsessions_max = \"7\"\n\
             idle_timeout_ms = 5\n\n[limits]\nhandshakes_max = 0\n\n\
             [[upstream]]\nurl = \"http://gpu:8006\"\n\n[[upstream]]\nurl = \"ws://a\"\n\n[[upstream]]\nurl = \"ws://a\"\n\n\
             [[route]]\nmodel = \"x\"\nprofile = \"speach\"\n";
        let found = check(source);
        for words in [
            "t:1:1: unknown key `profil`, did you mean `profile`?",
            "t:2:10: a text needs quotes: write listen = \"0.0.0.0:8000\"",
            "t:4:16: expected a whole number, 0 or more, not \"7\": remove the quotes",
            "t:3:1: language: profile",
            "t:5:1: idle_timeout_ms: must be",
            "t:8:1: limits.handshakes_max: must be",
            "t:11:1: upstream: \"http://gpu:8006\"",
            "t:17:1: [[upstream]]: two upstreams are named \"a\"",
            "t:21:1: unknown profile `speach`, did you mean `speech`?",
        ] {
            assert!(found.iter().any(|error| error.starts_with(words)), "{words}: {found:#?}");
        }
        assert_eq!(found.len(), 9, "{found:#?}");
    }

    #[test]
    fn wrong_value_of_a_tool_server_hides_no_misspelt_key_beside_it() {
        let source = "[[upstream]]\nurl = \"ws://a\"\n\n[mcp.a]\ntimout_ms = 500\ncalls_max = \"a\"\n";
        let found = check(source);
        for words in [
            "t:5:1: unknown key `timout_ms`, did you mean `timeout_ms`?",
            "t:6:13: expected a whole number, 0 or more, not \"a\"",
        ] {
            assert!(found.iter().any(|error| error.starts_with(words)), "{words}: {found:#?}");
        }
        assert_eq!(found.len(), 2, "{found:#?}");
    }

    #[test]
    fn mistakes_beside_broken_syntax_and_beside_each_other_in_a_section_are_reported() {
        let source = "listen = \"127.0.0.1:8000\nprofile = \"speach\"\n\n\
             [[upstream]]\nurl = \"http://a\"\nurl = \"http://b\"\nca = \"/nowhere/ca.pem\"\n\n\
             [[upstream]]\nurl = \"ftp://c\"\ndialect = \"unknown\"\n\n\
             [tls]\ncert = \"/nowhere/cert.pem\"\nkey = \"/nowhere/key.pem\"\n\n\
             [[route]]\nclient = \"no-client\"\nprofile = \"speach\"\nprotocol = \"no-protocol\"\n";
        let found = check(source);
        for words in [
            "t:1:",
            "t:2:1: unknown profile `speach`",
            "t:5:1: upstream: \"http://a\"",
            "t:6:1: duplicate key",
            "t:7:1: upstream: ca /nowhere/ca.pem: ",
            "t:10:1: upstream: \"ftp://c\"",
            "t:11:1: unknown upstream dialect `unknown`",
            "t:14:1: tls: /nowhere/cert.pem: ",
            "t:15:1: tls: /nowhere/key.pem: ",
            "t:18:1: [[route]] client: ",
            "t:19:1: unknown profile `speach`",
            "t:20:1: [[route]] protocol: ",
        ] {
            assert!(found.iter().any(|error| error.starts_with(words)), "{words}: {found:#?}");
        }
        assert_eq!(found.len(), 12, "{found:#?}");
    }

    #[test]
    fn misplaced_and_renamed_keys_are_said_to_be() {
        let upstream = "[[upstream]]\nurl = \"ws://a\"\n";
        for (source, message) in [
            (
                format!("{upstream}listen = 8000\n"),
                "t:3:1: key `listen` does not belong in [[upstream]]: move it up, before the first section",
            ),
            (format!("keys = \"k\"\n{upstream}"), "t:1:1: key `keys` belongs in [access]"),
            (format!("{upstream}[limits]\nkeys = \"k\"\n"), "t:4:1: key `keys` belongs in [access]"),
            (
                format!("[limits]\nconnections_max = 5\n{upstream}"),
                "t:2:1: unknown key `connections_max`: it was renamed, did you mean `handshakes_max`?",
            ),
            (format!("lisen = 8000\n{upstream}"), "t:1:1: unknown key `lisen`, did you mean `listen`?"),
        ] {
            assert_eq!(check(&source), [message], "{source}");
        }
    }
}
