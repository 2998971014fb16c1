//! `voxbridge mappings`: lists, prints, explains, creates and tries mapping files.

use std::{fmt::Write as _, fs, io::Write as _, path::Path};

use super::{
    CommandError,
    replay::{format_outcome, read_trace},
};
use crate::{
    cli::{
        args::{ExplainFormat, KindArg, MappingsArgs, MappingsCommand, TryFormat},
        error::EXIT_NO_INPUT,
        output,
        synthetic_session::replay_epoch,
    },
    config::Config,
    spelling::{
        Library, MappingKind,
        explain::{
            build_explanation, matrix, page,
            render::{self, json},
        },
        scaffold::{generate, generate_from},
    },
    suggestion::{quoted_list, suggest_known},
    trace::replay::replay_with_mapping,
};

pub(super) fn run(args: MappingsArgs) -> Result<(), CommandError> {
    let library = Config { mappings: args.mappings, ..Config::default() }
        .load_library()
        .map_err(CommandError::usage)?;
    match args.command {
        MappingsCommand::List => output::print(list_mappings(&library))?,
        MappingsCommand::Show { name, kind } => {
            output::print(find_mapping(&library, kind.map(mapping_kind), &name)?.1)?;
        }
        MappingsCommand::Explain { client, profile, dialect, format } => {
            let names = [client, profile, dialect];
            output::print(explain(&library, names.each_ref().map(Option::as_deref), format)?)?;
        }
        MappingsCommand::Page { client: None } => {
            output::print(page::clients_page(library.clients().map(AsRef::as_ref)))?;
        }
        MappingsCommand::Page { client: Some(name) } => {
            let client = library.client(&name).map_err(CommandError::usage)?;
            output::print(page::client_page(&client))?;
        }
        MappingsCommand::New { name, kind, from, no_speech, output, force } => {
            let source = new_mapping(&library, kind, from.as_deref(), &name, !no_speech)?;
            match output {
                None => output::print(source)?,
                Some(path) => write_mapping(&path, &source, force)?,
            }
        }
        MappingsCommand::Try { file, trace, format } => {
            output::print(try_mapping(library, &file, &trace, format)?)?;
        }
    }
    Ok(())
}

/// Formats one line per mapping: kind, name and file.
fn list_mappings(library: &Library) -> String {
    let mut out = String::new();
    for (kind, name, file, _) in library.files() {
        let replaces =
            if library.replaces_embedded(kind, name) { " (replaces the built-in one)" } else { "" };
        let _ = writeln!(out, "{:<9} {name:<20} {file}{replaces}", kind.name());
    }
    out
}

/// Finds a mapping by name and optional kind; returns its kind and source.
fn find_mapping<'l>(
    library: &'l Library,
    kind: Option<MappingKind>,
    name: &str,
) -> Result<(MappingKind, &'l str), CommandError> {
    let found =
        library.files().filter(|(of, known, ..)| *known == name && kind.is_none_or(|kind| kind == *of));
    let found: Vec<_> = found.map(|(kind, .., source)| (kind, source)).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => {
            let known = suggest_known(name, || library.files().map(|(_, known, ..)| known));
            Err(CommandError::usage(format!("unknown mapping `{name}`{known}")))
        }
        several => {
            let kinds = quoted_list(several.iter().map(|(kind, _)| kind.name()));
            Err(CommandError::usage(format!(
                "several mappings are named `{name}`: {kinds}; choose one with --kind"
            )))
        }
    }
}

fn explain(
    library: &Library,
    names: [Option<&str>; 3],
    format: ExplainFormat,
) -> Result<String, CommandError> {
    let [client, profile, dialect] = names;
    let (Some(client), Some(profile), Some(dialect)) = (client, profile, dialect) else {
        let cells = matrix(library, client, profile).map_err(CommandError::usage)?;
        return Ok(match format {
            ExplainFormat::Text => render::matrix_text(&cells),
            ExplainFormat::Markdown => render::matrix_markdown(&cells),
            ExplainFormat::Json => json(&cells),
        });
    };
    let client = library.client(client).map_err(CommandError::usage)?;
    let profile = library.profile(profile).map_err(CommandError::usage)?;
    let dialect = library.upstream(dialect).map_err(CommandError::usage)?;
    let explained = build_explanation(&client, &profile, &dialect);
    Ok(match format {
        ExplainFormat::Text => render::text(&explained),
        ExplainFormat::Markdown => render::markdown(&explained),
        ExplainFormat::Json => json(&explained),
    })
}

const fn mapping_kind(kind: KindArg) -> MappingKind {
    match kind {
        KindArg::Client => MappingKind::Client,
        KindArg::Upstream => MappingKind::Upstream,
        KindArg::Profile => MappingKind::Profile,
    }
}

fn new_mapping(
    library: &Library,
    kind: Option<KindArg>,
    from: Option<&str>,
    name: &str,
    has_speech: bool,
) -> Result<String, CommandError> {
    let kind = kind.map(mapping_kind);
    let source = match from {
        None => generate(library, kind.unwrap_or(MappingKind::Client), name, has_speech),
        Some(from) => generate_from(library, find_mapping(library, kind, from)?.0, from, name),
    };
    source.map_err(CommandError::usage)
}

fn write_mapping(path: &Path, source: &str, force: bool) -> Result<(), CommandError> {
    let write_error = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            CommandError::usage(format!("{} already exists; use --force to overwrite it", path.display()))
        }
        _ => CommandError::failed(format!("{}: {error}", path.display())),
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(write_error)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).truncate(true).create(force).create_new(!force);
    let mut file = options.open(path).map_err(write_error)?;
    file.write_all(source.as_bytes()).map_err(write_error)?;
    output::print_message(format_args!(
        "wrote {}; run `voxbridge check --mappings DIR` to check its directory",
        path.display()
    ));
    Ok(())
}

/// Replays a recorded session with a mapping file and formats the result.
fn try_mapping(
    library: Library,
    file: &Path,
    trace: &Path,
    format: TryFormat,
) -> Result<String, CommandError> {
    let (name, trace) = (file.display().to_string(), read_trace(trace)?);
    let source = fs::read_to_string(file)
        .map_err(|error| CommandError::with_code(EXIT_NO_INPUT, format!("{name}: {error}")))?;
    let mut library = trace.header.library(library).map_err(CommandError::failed)?;
    let (kind, mapping) = library.add_and_identify(&name, &source).map_err(CommandError::usage)?;
    let outcome = replay_with_mapping(&trace, &library, kind, &mapping, replay_epoch())
        .map_err(CommandError::failed)?;
    Ok(match format {
        TryFormat::Text => format_outcome(&outcome),
        TryFormat::Json => json(&outcome),
    })
}
