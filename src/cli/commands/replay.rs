//! `voxbridge replay`.

use std::{fs, path::Path, time::Instant};

use super::{Failure, NO_DATA, NO_INPUT};
use crate::{
    cli::args::ReplayArgs,
    config::Config,
    mapping::{Kind, Library},
    trace::{
        Line, Trace,
        diff::Difference,
        replay::{Outcome, replay, replay_as},
    },
};

/// Differences that are shown.
const SHOWN: usize = 8;
/// Of what a message says.
const SHOWN_CHARS: usize = 400;

pub(super) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let trace = read(&args.trace)?;
    let library =
        Config { mappings: args.mappings.clone(), ..Config::default() }.library().map_err(Failure::usage)?;
    let outcome = match &args.profile {
        None => replay(&trace, library, epoch()).map_err(Failure::failed)?,
        Some(named) => {
            let (library, profile) = with_profile(&trace, library, named)?;
            replay_as(&trace, &library, &profile, epoch()).map_err(Failure::failed)?
        }
    };
    print!("{}", told(&outcome));
    if outcome.is_same() { Ok(()) } else { Err(Failure::silent()) }
}

/// Reads a trace.
///
/// # Errors
/// The file cannot be read, or is no trace.
pub(super) fn read(path: &Path) -> Result<Trace, Failure> {
    let name = path.display();
    let bytes = fs::read(path).map_err(|error| Failure::of(NO_INPUT, format!("{name}: {error}")))?;
    // What a crash cut off may end within a letter.
    let text = String::from_utf8_lossy(&bytes);
    Trace::read(&text).map_err(|no_trace| Failure::of(NO_DATA, format!("{name}: {no_trace}")))
}

/// The library of a trace with a profile more, by name or file; and the profile's name.
pub(super) fn with_profile(
    trace: &Trace,
    library: Library,
    named: &str,
) -> Result<(Library, String), Failure> {
    let mut library = trace.start.library(library).map_err(Failure::failed)?;
    let Ok(source) = fs::read_to_string(named) else {
        library.profile(named).map_err(|words| {
            Failure::usage(format!(
                "{words}; a profile of your own is named by its file, and there is no file {named}"
            ))
        })?;
        return Ok((library, named.to_owned()));
    };
    let (kind, name) = library.add_named(named, &source).map_err(Failure::usage)?;
    if kind != Kind::Profile {
        return Err(Failure::usage(format!("{named}: this is a {} file, not a profile file", kind.name())));
    }
    Ok((library, name))
}

/// Any instant will do: only differences count.
#[expect(clippy::disallowed_methods, reason = "an instant has no other source")]
pub(super) fn epoch() -> Instant {
    Instant::now()
}

/// An outcome in words.
pub(super) fn told(outcome: &Outcome) -> String {
    let Outcome { differences, inputs, outputs, lasted_ms, not_judged } = outcome;
    let seconds = *lasted_ms as f64 / 1000.0;
    let of = format!("{inputs} inputs and {outputs} outputs in {seconds:.3} s");
    let mut words = match differences.count {
        0 => format!("same: {of}\n"),
        count => format!("{count} outputs differ, of {of}; the first:\n"),
    };
    differences.first.iter().take(SHOWN).for_each(|difference| words.push_str(&shown(difference)));
    not_judged.iter().for_each(|note| words.push_str(&format!("not judged: {note}\n")));
    words
}

fn shown(difference: &Difference) -> String {
    let line = |what: &str, line: &Option<Line>| match line {
        None => format!("  {what} nothing\n"),
        Some(line) => format!("  {what} {}\n", cut(&line.content())),
    };
    let some = difference.expected.as_ref().or(difference.got.as_ref());
    let (at, place) = some.map_or((0.0, String::new()), |line| (line.ns as f64 / 1e9, line.place()));
    let (expected, got) = (line("expected", &difference.expected), line("got     ", &difference.got));
    format!("{at:>9.3} s  {place}\n{expected}{got}")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
