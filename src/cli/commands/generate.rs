//! `voxbridge completions` and `voxbridge man`: shell completions and manual pages, from the definitions of the arguments.

use clap::{CommandFactory as _, builder::Resettable};

use super::CommandError;
use crate::{
    cli::{
        Cli,
        args::{CompletionsArgs, ManArgs},
        output,
    },
    mapping::check::suggest_known,
};

pub(super) fn print_completions(args: &CompletionsArgs) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "voxbridge", &mut script);
    Ok(output::print(String::from_utf8_lossy(&script))?)
}

pub(super) fn print_manual(args: &ManArgs) -> Result<(), CommandError> {
    // The long version describes this machine.
    let mut program = Cli::command().long_version(Resettable::Reset);
    // Gives the commands their full names.
    program.build();
    let command = match &args.command {
        None => &program,
        Some(name) => program.find_subcommand(name).ok_or_else(|| {
            let known = suggest_known(name, || program.get_subcommands().map(clap::Command::get_name));
            CommandError::usage(format!("unknown command `{name}`{known}"))
        })?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(CommandError::failed)?;
    Ok(output::print(String::from_utf8_lossy(&page))?)
}
