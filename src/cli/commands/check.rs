//! `voxbridge check`: checks and prints the configuration and lists all mapping files, without serving.

use super::{CommandError, config_layers::load_config};
use crate::{cli::args::ConfigArgs, telemetry};

pub(super) fn run(args: ConfigArgs) -> Result<(), CommandError> {
    let config = load_config(args)?;
    // Reports an invalid log filter.
    telemetry::init(&config.log).map_err(CommandError::usage)?;
    let library = config.load_library().map_err(CommandError::usage)?;
    config.check().map_err(CommandError::usage)?;
    println!("{}", toml::to_string_pretty(&config).map_err(CommandError::failed)?);
    for (kind, name, file, _) in library.files() {
        println!("# ok: {} {name} ({file})", kind.name());
        if library.replaces_embedded(kind, name) {
            println!("# {file} replaces the built-in {} {name}", kind.name());
        }
    }
    for note in config.notes() {
        println!("# note: {note}");
    }
    for warning in config.warnings() {
        println!("# warning: {warning}");
    }
    if config.upstream.is_empty() {
        println!("# no upstream is configured; serve needs at least one");
    }
    Ok(())
}
