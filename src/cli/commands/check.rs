//! `voxbridge check`: checks and prints the configuration and lists all mapping files, without serving.

use std::{fmt::Write as _, sync::Arc};

use serde_json::{Value, json};

use super::{CommandError, config_layers::load_config, replay::replay_epoch};
use crate::{
    cli::{
        args::{CheckArgs, ConfigArgs},
        output,
        synthetic_session::SyntheticSession,
    },
    config::{Config, UpstreamConfig},
    mapping::{FileError, Library, MappingKind, UpstreamMapping, compatibility::check_compatible},
};

pub(super) fn run(args: CheckArgs) -> Result<(), CommandError> {
    let checked = check(args.config);
    match (args.json, checked) {
        (false, checked) => {
            let (config, library) = checked.map_err(CommandError::usage)?;
            output::print_line(toml::to_string_pretty(&config).map_err(CommandError::failed)?)?;
            output::print(format_remarks(&config, &library))?;
            Ok(())
        }
        (true, Ok((config, library))) => {
            let mut report = config.effective_json(&library);
            report["ok"] = json!(true);
            report["notes"] = json!(config.notes());
            report["warnings"] = json!(all_warnings(&config, &library));
            Ok(output::print_line(format_args!("{report:#}"))?)
        }
        (true, Err(error)) => {
            output::print_line(format_args!("{:#}", json!({"ok": false, "errors": error.to_json()})))?;
            Err(CommandError::usage(""))
        }
    }
}

/// Reads and checks everything that `serve` reads.
fn check(args: ConfigArgs) -> Result<(Config, Library), CheckError> {
    // On its own first, for the positions of its errors.
    args.config.as_deref().map(Config::read).transpose().map_err(CheckError::File)?;
    let config = load_config(args).map_err(|error| CheckError::Setting(error.message))?;
    // Reports an invalid log filter.
    config.log.start_log().map_err(CheckError::Setting)?;
    let library = config.load_library().map_err(CheckError::File)?;
    config.check().map_err(CheckError::Setting)?;
    Ok((config, library))
}

/// The mistake that the check found.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    /// Mistakes in a file.
    #[error("{0}")]
    File(FileError),
    /// A mistake in a setting, wherever it comes from.
    #[error("{0}")]
    Setting(String),
}

impl CheckError {
    /// One object for each mistake. File and position are null if unknown.
    fn to_json(&self) -> Vec<Value> {
        let known = |number: usize| (number > 0).then_some(number);
        match self {
            Self::Setting(message) => {
                vec![json!({"file": null, "line": null, "column": null, "message": message})]
            }
            Self::File(error) => {
                let object = |error: FileError| {
                    json!({
                        "file": error.file, "line": known(error.line), "column": known(error.column),
                        "message": error.message
                    })
                };
                error.clone().flatten().into_iter().map(object).collect()
            }
        }
    }
}

/// Warnings about the configuration, and what does not work in synthetic sessions with its mappings.
fn all_warnings(config: &Config, library: &Library) -> Vec<String> {
    let warnings_of = |session: SyntheticSession| {
        let problems = session.find_problems(replay_epoch()).into_iter();
        problems.map(move |problem| format!("{session} does not work: {problem}"))
    };
    let sessions = sessions_to_try(config, library);
    config.warnings().into_iter().chain(sessions.into_iter().flat_map(warnings_of)).collect()
}

/// The combinations of a client, a profile and a dialect that need a try: those with a file that is not built in. The rest
/// of a combination is what the upstreams and routes of the configuration lead to.
fn sessions_to_try(config: &Config, library: &Library) -> Vec<SyntheticSession> {
    let is_own = |kind, name: &str| !library.is_embedded(kind, name);
    let dialect_is_used = |dialect: &&Arc<UpstreamMapping>| match config.upstream.as_slice() {
        [] => dialect.name == UpstreamConfig::with_default_dialect().dialect,
        upstreams => upstreams.iter().any(|upstream| upstream.dialect == dialect.name),
    };
    let clients = library.clients().filter(|client| !client.is_relayed());
    let mut sessions = Vec::new();
    for (client, profile) in clients.flat_map(|client| library.profiles().map(move |it| (client, it))) {
        let pair_is_own = is_own(MappingKind::Client, &client.name) || {
            let mut chain = library.inheritance_chain(&profile.name).into_iter();
            chain.any(|name| is_own(MappingKind::Profile, &name))
        };
        let dialects = library.upstreams().filter(|dialect| {
            let dialect_is_own = is_own(MappingKind::Upstream, &dialect.name);
            (dialect_is_own || pair_is_own && dialect_is_used(dialect))
                && check_compatible(client, profile, dialect).is_ok()
        });
        sessions.extend(dialects.map(|dialect| SyntheticSession {
            client: client.clone(),
            profile: profile.clone(),
            dialect: dialect.clone(),
        }));
    }
    sessions
}

/// Formats the mapping files, notes and warnings as comments of the configuration.
fn format_remarks(config: &Config, library: &Library) -> String {
    let mut out = String::new();
    for (kind, name, file, _) in library.files() {
        let _ = writeln!(out, "# ok: {} {name} ({file})", kind.name());
        if library.replaces_embedded(kind, name) {
            let _ = writeln!(out, "# {file} replaces the built-in {} {name}", kind.name());
        }
    }
    for note in config.notes() {
        let _ = writeln!(out, "# note: {note}");
    }
    for warning in all_warnings(config, library) {
        let _ = writeln!(out, "# warning: {warning}");
    }
    if config.upstream.is_empty() {
        let _ = writeln!(out, "# no upstream is configured; serve needs at least one");
    }
    out
}
