//! Checks a configuration file as a whole: finds all of its mistakes, with their positions.

use std::{fs, path::Path};

use super::{Config, ConfigProblem};
use crate::mapping::{
    FileError,
    check::{
        all_errors::{RepairedFile, find_all, offset_of},
        did_you_mean, parse_toml,
    },
};

/// A configuration file.
#[derive(Debug)]
pub struct ConfigFile<'p> {
    path: &'p Path,
    name: String,
    source: String,
}

/// The valid part of a file, and its mistakes.
pub struct CheckedConfig {
    /// Mistakes in keys and types.
    pub errors: Vec<FileError>,
    /// The configuration without the mistakes.
    pub config: Config,
    name: String,
    repaired: RepairedFile,
}

impl<'p> ConfigFile<'p> {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(path: &'p Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let source =
            fs::read_to_string(path).map_err(|error| FileError::for_file(&name, error.to_string()))?;
        Ok(Self { path, name, source })
    }

    /// Parses the file. Relative paths in it are resolved against its directory.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(&self) -> Result<Config, FileError> {
        self.parse_text(&self.source)
    }

    /// Parses the file as far as possible.
    #[must_use]
    pub fn check(&self) -> CheckedConfig {
        let mut repaired = find_all(&self.source, "", |text| self.parse_text(text).map(drop));
        let errors = std::mem::take(&mut repaired.errors);
        let config = self.parse_text(&repaired.text).unwrap_or_default();
        CheckedConfig { errors, config, name: self.name.clone(), repaired }
    }

    /// True if the file sets this key.
    #[must_use]
    pub fn sets(&self, path: &[String]) -> bool {
        let Some((last, tables)) = path.split_last() else { return false };
        let Ok(document) = toml::from_str::<toml::Value>(&self.source) else { return false };
        let step = |value: &toml::Value, key: &String| match value {
            toml::Value::Array(items) => items.get(key.parse::<usize>().ok()?).cloned(),
            value => value.get(key).cloned(),
        };
        let table = tables.iter().try_fold(document, |value, key| step(&value, key));
        table.and_then(|table| step(&table, last)).is_some()
    }

    fn parse_text(&self, text: &str) -> Result<Config, FileError> {
        let config = parse_toml::<Config>(&self.name, text);
        let mut config = config.map_err(|error| with_place_of_key(error, text))?;
        config.resolve_paths(self.path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }
}

impl CheckedConfig {
    /// The mistake with its position, if the file has the key or the table that holds it.
    #[must_use]
    pub fn locate(&self, problem: &ConfigProblem) -> Option<FileError> {
        let path: Vec<&str> = problem.path.iter().map(String::as_str).collect();
        // Repairs leave the keys where they are.
        let text = &self.repaired.text;
        Some(FileError::at_offset(&self.name, text, offset_of(text, &path)?, problem.message.clone()))
    }

    /// True if the mistake may follow from another one in the file.
    #[must_use]
    pub fn is_consequence(&self, problem: &ConfigProblem) -> bool {
        self.repaired.is_guessed(&problem.path)
    }
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
        let file = ConfigFile { path: Path::new("t"), name: "t".into(), source: source.into() };
        let checked = file.check();
        let known = |problem: &ConfigProblem| !checked.is_consequence(problem);
        let problems = checked.config.find_problems().into_iter().filter(known);
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
            assert!(found.iter().any(|it| it.starts_with(words)), "{words}: {found:#?}");
        }
        assert_eq!(found.len(), 9, "{found:#?}");
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
