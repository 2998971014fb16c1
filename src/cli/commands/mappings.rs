//! `voxbridge mappings`.

use super::Failure;
use crate::{
    cli::args::{MappingsArgs, MappingsCommand},
    config::Config,
    mapping::{
        check::{did_you_mean, listed},
        explain::explain,
    },
};

pub(super) fn run(args: MappingsArgs) -> Result<(), Failure> {
    let library =
        Config { mappings: args.mappings, ..Config::default() }.library().map_err(Failure::usage)?;
    match args.command {
        MappingsCommand::List => {
            for (kind, name, file, _) in library.files() {
                println!("{:<9} {name:<20} {file}", kind.name());
            }
        }
        MappingsCommand::Show { name } => {
            let found = library.files().find(|(_, known, ..)| *known == name);
            let (.., source) = found.ok_or_else(|| {
                let known = || library.files().map(|(_, known, ..)| known);
                let hint = did_you_mean(&name, known());
                Failure::usage(format!("there is no mapping `{name}`{hint}; there is {}", listed(known())))
            })?;
            print!("{source}");
        }
        MappingsCommand::Explain { client, profile, dialect } => {
            let client = library.client(&client).map_err(Failure::usage)?;
            let profile = library.profile(&profile).map_err(Failure::usage)?;
            let dialect = library.upstream(&dialect).map_err(Failure::usage)?;
            print!("{}", explain(&client, &profile, &dialect));
        }
    }
    Ok(())
}
