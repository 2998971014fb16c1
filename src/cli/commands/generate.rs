//! `voxbridge completions` and `voxbridge man`: shell completions and manual pages, from the definitions of the arguments.

use clap::{
    Arg, Command, CommandFactory as _, ValueHint,
    builder::{PossibleValuesParser, Resettable},
};

use super::CommandError;
use crate::{
    cli::{
        Cli,
        args::{CompletionsArgs, ManArgs},
        output,
    },
    spelling::{MappingKind, embedded_names},
    suggestion::suggest_known,
};

pub(super) fn print_completions(args: &CompletionsArgs) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_values(Cli::command()), "voxbridge", &mut script);
    Ok(output::print(String::from_utf8_lossy(&script))?)
}

/// Adds the values that a shell should offer: names of mappings, and files only where the option takes a file.
fn with_values(command: Command) -> Command {
    command.mut_args(with_value).mut_subcommands(with_values)
}

fn with_value(argument: Arg) -> Arg {
    let names = argument.get_value_names().unwrap_or_default();
    let takes_file = names
        .iter()
        .any(|name| ["FILE", "DIR", "OUT", "WAV", "TRACE"].iter().any(|file| name.contains(file)));
    let kind = match argument.get_id().as_str() {
        "client" => MappingKind::Client,
        "dialect" | "upstream_dialect" | "upstream-dialect" => MappingKind::Upstream,
        "profile" => MappingKind::Profile,
        _ if takes_file || !argument.get_possible_values().is_empty() => return argument,
        _ if argument.get_action().takes_values() => return argument.value_hint(ValueHint::Other),
        _ => return argument,
    };
    // Configured mappings have other names, too: the names are only for completion.
    if takes_file { argument } else { argument.value_parser(PossibleValuesParser::new(embedded_names(kind))) }
}

pub(super) fn print_manual(args: &ManArgs) -> Result<(), CommandError> {
    // The long version describes this machine.
    let mut program = Cli::command().long_version(Resettable::Reset);
    // Gives the commands their full names.
    program.build();
    let command = match &args.command {
        None => &program,
        Some(name) => program.find_subcommand(name).ok_or_else(|| {
            let known = suggest_known(name, || program.get_subcommands().map(Command::get_name));
            CommandError::usage(format!("unknown command `{name}`{known}"))
        })?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(CommandError::failed)?;
    Ok(output::print(String::from_utf8_lossy(&page))?)
}
