//! `voxbridge check`: checks and prints the configuration and lists all mapping files, without serving.

use std::fmt::Write as _;

use super::{CommandError, config_layers::load_config};
use crate::{
    cli::{args::ConfigArgs, output},
    config::Config,
    mapping::Library,
    telemetry,
};

pub(super) fn run(args: ConfigArgs) -> Result<(), CommandError> {
    let config = load_config(args)?;
    // Reports an invalid log filter.
    telemetry::init(&config.log).map_err(CommandError::usage)?;
    let library = config.load_library().map_err(CommandError::usage)?;
    config.check().map_err(CommandError::usage)?;
    output::print_line(toml::to_string_pretty(&config).map_err(CommandError::failed)?)?;
    output::print(format_remarks(&config, &library))?;
    Ok(())
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
    for warning in config.warnings() {
        let _ = writeln!(out, "# warning: {warning}");
    }
    if config.upstream.is_empty() {
        let _ = writeln!(out, "# no upstream is configured; serve needs at least one");
    }
    out
}
