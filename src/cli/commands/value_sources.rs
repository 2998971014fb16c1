//! Where each value of a configuration comes from: an option, a variable, the file, or a default.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    config::{Config, Layers},
    spelling::Library,
};

/// A configuration without mistakes.
pub(super) struct CheckedSettings {
    pub(super) config: Config,
    pub(super) library: Library,
    pub(super) layers: Layers,
}

impl CheckedSettings {
    /// Where each value comes from: an option, a variable, the file, or a default.
    pub(super) fn sources(&self) -> BTreeMap<String, String> {
        let toml = toml::to_string_pretty(&self.config.with_defaults()).unwrap_or_default();
        let paths = keys_of_lines(&toml).into_iter().flatten();
        paths.map(|path| (path.join("."), self.layers.source_of(&path).to_owned())).collect()
    }

    /// The configuration as TOML, with the source of each value as a comment.
    pub(super) fn annotated_toml(&self) -> Result<String, toml::ser::Error> {
        let toml = toml::to_string_pretty(&self.config.with_defaults())?;
        let mut out = String::new();
        for (line, path) in toml.lines().zip(keys_of_lines(&toml)) {
            match path {
                Some(path) => {
                    let _ = writeln!(out, "{line}  # {}", self.layers.source_of(&path));
                }
                None => {
                    let _ = writeln!(out, "{line}");
                }
            }
        }
        Ok(out)
    }
}

/// The path of the key that each line of a TOML document sets. The document has been serialized: values of several lines are
/// lists, whose further lines are indented.
fn keys_of_lines(toml: &str) -> Vec<Option<Vec<String>>> {
    let mut section: Vec<String> = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let key_of = |line: &str| {
        if let Some(list) = line.strip_prefix("[[").and_then(|line| line.strip_suffix("]]")) {
            let index = counts.entry(list.to_owned()).and_modify(|count| *count += 1).or_insert(0);
            section = vec![list.to_owned(), index.to_string()];
        } else if let Some(table) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = table.split('.').map(str::to_owned).collect();
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with(' ')) {
            let key = key.trim_matches('"').to_owned();
            return Some(section.iter().cloned().chain([key]).collect());
        }
        None
    };
    toml.lines().map(key_of).collect()
}
