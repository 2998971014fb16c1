//! Where values of the configuration come from: an option, an environment variable, or neither.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command, parser::ValueSource};

/// Names of options in [`super::ConfigArgs`], and the keys of the configuration that they set; `*` is an index.
const KEYS: [(&str, &str); 20] = [
    ("listen", "listen"),
    ("profile", "profile"),
    ("mappings", "mappings"),
    ("language", "language"),
    ("idle_timeout_ms", "idle_timeout_ms"),
    ("sessions_max", "sessions_max"),
    ("workers", "workers"),
    ("turn_model", "turn_model"),
    ("upstream", "upstream.*.url"),
    ("upstream_ca", "upstream.*.ca"),
    ("upstream_dialect", "upstream.*.dialect"),
    ("tls_cert", "tls.cert"),
    ("tls_key", "tls.key"),
    ("keys", "access.keys"),
    ("trace", "trace.dir"),
    ("trace_audio", "trace.audio"),
    ("admin", "admin.listen"),
    ("admin_token_file", "admin.token_file"),
    ("level", "log.level"),
    ("format", "log.format"),
];

/// The options and variables that set keys of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionSources(BTreeMap<&'static str, String>);

impl OptionSources {
    /// Sources of the options of a command.
    pub(super) fn of(command: &Command, matches: &ArgMatches) -> Self {
        let source = |(id, key): &(&'static str, &'static str)| {
            let argument = command.get_arguments().find(|argument| argument.get_id() == id)?;
            let name = match matches.value_source(id)? {
                ValueSource::CommandLine => format!("--{}", argument.get_long()?),
                ValueSource::EnvVariable => argument.get_env()?.to_string_lossy().into_owned(),
                _ => return None,
            };
            Some((*key, name))
        };
        Self(KEYS.iter().filter_map(source).collect())
    }

    /// The option or variable that sets this key.
    pub(crate) fn find(&self, path: &[String]) -> Option<&str> {
        let is_index = |key: &&String| key.bytes().all(|byte| byte.is_ascii_digit());
        let keys: Vec<&str> =
            path.iter().map(|key| if is_index(&key) { "*" } else { key.as_str() }).collect();
        self.0.get(keys.join(".").as_str()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn options_and_variables_are_told_apart() {
        let command = Cli::command();
        let names: Vec<&str> = KEYS.iter().map(|(id, _)| *id).collect();
        let check = command.find_subcommand("check").unwrap();
        for name in names {
            assert!(check.get_arguments().any(|argument| argument.get_id() == name), "{name}");
        }
        let matches = Cli::command().get_matches_from(["voxbridge", "check", "--upstream", "ws://a"]);
        let (_, matches) = matches.subcommand().unwrap();
        let sources = OptionSources::of(check, matches);
        let find = |path: &[&str]| {
            let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
            sources.find(&path).map(str::to_owned)
        };
        assert_eq!(find(&["upstream", "0", "url"]).as_deref(), Some("--upstream"));
        assert_eq!(find(&["profile"]), None);
    }
}
