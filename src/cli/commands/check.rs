//! `voxbridge check`: the configuration and every mapping file, without serving.

use super::Failure;
use crate::{cli::args::CheckArgs, config::Config};

pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let mut config =
        args.config.as_deref().map(Config::read).transpose().map_err(Failure::usage)?.unwrap_or_default();
    config.mappings = args.mappings.clone().or(config.mappings);
    let library = config.library().map_err(Failure::usage)?;
    if args.config.is_some() {
        config.service().map_err(Failure::usage)?;
        let shown = toml::to_string_pretty(&config).map_err(Failure::failed)?;
        print!("{shown}");
        println!();
    }
    for (kind, name, file, _) in library.files() {
        println!("# ok: {} {name} ({file})", kind.name());
    }
    Ok(())
}
