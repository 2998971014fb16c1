//! `voxbridge mappings`.

use std::{fmt::Write as _, fs, io::Write as _, path::Path};

use super::{
    Failure,
    replay::{epoch, read, told},
};
use crate::{
    cli::args::{ExplainFormat, KindArg, MappingsArgs, MappingsCommand, TryFormat},
    config::Config,
    mapping::{
        Kind, Library,
        check::{did_you_mean, listed},
        explain::{
            explanation, matrix,
            render::{self, json},
        },
        scaffold::{begin, begin_from},
    },
    trace::{
        remap::{Step, of_client, of_upstream},
        replay::replay_as,
    },
};

pub(super) fn run(args: MappingsArgs) -> Result<(), Failure> {
    let library =
        Config { mappings: args.mappings, ..Config::default() }.library().map_err(Failure::usage)?;
    match args.command {
        MappingsCommand::List => print!("{}", list(&library)),
        MappingsCommand::Show { name, kind } => print!("{}", find(&library, kind.map(kind_of), &name)?.1),
        MappingsCommand::Explain { client, profile, dialect, format } => {
            let names = [client, profile, dialect];
            print!("{}", explain(&library, names.each_ref().map(Option::as_deref), format)?);
        }
        MappingsCommand::New { name, kind, from, output, force } => {
            let source = new(&library, kind, from.as_deref(), &name)?;
            match output {
                None => print!("{source}"),
                Some(path) => write(&path, &source, force)?,
            }
        }
        MappingsCommand::Try { file, trace, format } => {
            print!("{}", attempt(library, &file, &trace, format)?);
        }
    }
    Ok(())
}

/// Every mapping and where it comes from.
fn list(library: &Library) -> String {
    let mut out = String::new();
    for (kind, name, file, _) in library.files() {
        let replaces =
            if library.replaces_embedded(kind, name) { " (replaces the built-in one)" } else { "" };
        let _ = writeln!(out, "{:<9} {name:<20} {file}{replaces}", kind.name());
    }
    out
}

/// A mapping by name, of any kind unless one is given: its kind and text.
fn find<'l>(library: &'l Library, kind: Option<Kind>, name: &str) -> Result<(Kind, &'l str), Failure> {
    let found =
        library.files().filter(|(of, known, ..)| *known == name && kind.is_none_or(|kind| kind == *of));
    let found: Vec<_> = found.map(|(kind, .., source)| (kind, source)).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => {
            let known = || library.files().map(|(_, known, ..)| known);
            let hint = did_you_mean(name, known());
            Err(Failure::usage(format!("there is no mapping `{name}`{hint}; there is {}", listed(known()))))
        }
        several => {
            let kinds = listed(several.iter().map(|(kind, _)| kind.name()));
            Err(Failure::usage(format!("`{name}` is the name of several: {kinds}; say which with --kind")))
        }
    }
}

fn explain(library: &Library, names: [Option<&str>; 3], format: ExplainFormat) -> Result<String, Failure> {
    let [client, profile, dialect] = names;
    let (Some(client), Some(profile), Some(dialect)) = (client, profile, dialect) else {
        let cells = matrix(library, client, profile).map_err(Failure::usage)?;
        return Ok(match format {
            ExplainFormat::Text => render::matrix_text(&cells),
            ExplainFormat::Markdown => render::matrix_markdown(&cells),
            ExplainFormat::Json => json(&cells),
        });
    };
    let client = library.client(client).map_err(Failure::usage)?;
    let profile = library.profile(profile).map_err(Failure::usage)?;
    let dialect = library.upstream(dialect).map_err(Failure::usage)?;
    let explained = explanation(&client, &profile, &dialect);
    Ok(match format {
        ExplainFormat::Text => render::text(&explained),
        ExplainFormat::Markdown => render::markdown(&explained),
        ExplainFormat::Json => json(&explained),
    })
}

const fn kind_of(kind: KindArg) -> Kind {
    match kind {
        KindArg::Client => Kind::Client,
        KindArg::Upstream => Kind::Upstream,
        KindArg::Profile => Kind::Profile,
    }
}

fn new(library: &Library, kind: Option<KindArg>, from: Option<&str>, name: &str) -> Result<String, Failure> {
    let kind = kind.map(kind_of);
    let begun = match from {
        None => begin(library, kind.unwrap_or(Kind::Client), name),
        Some(from) => begin_from(library, find(library, kind, from)?.0, from, name),
    };
    begun.map_err(Failure::usage)
}

fn write(path: &Path, source: &str, force: bool) -> Result<(), Failure> {
    let bad = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} is there already; --force overwrites it", path.display()))
        }
        _ => Failure::failed(format!("{}: {error}", path.display())),
    };
    let mut options = fs::OpenOptions::new();
    options.write(true).truncate(true).create(force).create_new(!force);
    let mut file = options.open(path).map_err(bad)?;
    file.write_all(source.as_bytes()).map_err(bad)?;
    eprintln!(
        "{} is written; `voxbridge check --mappings DIR` checks the directory it is in",
        path.display()
    );
    Ok(())
}

/// What a mapping file makes of a recording.
fn attempt(library: Library, file: &Path, trace: &Path, format: TryFormat) -> Result<String, Failure> {
    let (name, trace) = (file.display().to_string(), read(trace)?);
    let source =
        fs::read_to_string(file).map_err(|error| Failure::of(super::NO_INPUT, format!("{name}: {error}")))?;
    let mut library = trace.start.library(library).map_err(Failure::failed)?;
    let (kind, mapping) = library.add_named(&name, &source).map_err(Failure::usage)?;
    let steps = match kind {
        Kind::Client => of_client(&trace, &library, &mapping),
        Kind::Upstream => of_upstream(&trace, &library, &mapping),
        Kind::Profile => {
            let outcome = replay_as(&trace, &library, &mapping, epoch()).map_err(Failure::failed)?;
            return Ok(match format {
                TryFormat::Text => told(&outcome),
                TryFormat::Json => json(&outcome),
            });
        }
    };
    let steps = steps.map_err(Failure::failed)?;
    Ok(match format {
        TryFormat::Text => steps_in_words(&steps),
        TryFormat::Json => json(&steps),
    })
}

fn steps_in_words(steps: &[Step]) -> String {
    let mut out = String::new();
    for Step { ns, place, recorded, becomes, trouble } in steps {
        let mark = if *trouble { "!" } else { " " };
        let _ = writeln!(out, "{mark}{:>8.3} s  {place}  {recorded}", *ns as f64 / 1e9);
        becomes.iter().for_each(|words| {
            let _ = writeln!(out, "             → {words}");
        });
    }
    let troubles = steps.iter().filter(|step| step.trouble).count();
    let _ = writeln!(out, "{} messages; the mapping can make nothing of {troubles}", steps.len());
    out
}
