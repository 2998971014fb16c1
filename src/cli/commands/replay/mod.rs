//! `voxbridge replay`: plays traces and recordings again, and says where the time until the first audio goes.

mod latency;
pub(super) mod recording;

use std::{fs, path::Path, time::Duration};

use super::CommandError;
use crate::{
    bridge::{Input, Output},
    cli::{
        args::ReplayArgs,
        error::{EXIT_INVALID_DATA, EXIT_NO_INPUT},
        output,
        picture::SessionPicture,
        synthetic_session::replay_epoch,
    },
    config::Config,
    server::tap::TapPoint,
    spelling::{Library, MappingKind},
    trace::{
        Trace, TraceRecord,
        diff::Difference,
        replay::{ReplayOutcome, replay, replay_observed, replay_with_mapping},
    },
};

/// Maximum number of differences to print.
const DIFFERENCES_SHOWN: usize = 8;
/// Maximum length of a printed message.
const CONTENT_MAX_CHARS: usize = 400;

/// Replays a trace, or measures the latencies of several.
pub(super) fn run(args: &ReplayArgs) -> Result<(), CommandError> {
    if args.session.is_given() {
        return Err(CommandError::usage(
            "--upstream and --config are for --recording; a trace needs no server",
        ));
    }
    if args.profile.is_some() && args.svg.is_some() {
        return Err(CommandError::usage("--svg draws a trace as it is: leave --profile out"));
    }
    let library = Config { mappings: args.mappings.clone(), ..Config::default() }
        .load_library()
        .map_err(CommandError::usage)?;
    if args.latency {
        return latency::run(args, &library);
    }
    let [path] = &args.traces[..] else {
        return Err(CommandError::usage("replay takes one TRACE; several are for --latency"));
    };
    let trace = read_trace(path)?;
    let outcome = match (&args.profile, &args.svg) {
        (None, None) => replay(&trace, library, replay_epoch()).map_err(CommandError::failed)?,
        (None, Some(path)) => {
            let (outcome, mut picture) = draw_session(&trace, library)?;
            write_picture(path, &mut picture)?;
            output::print_message(format_args!("wrote {}", path.display()));
            outcome
        }
        (Some(name_or_file), _) => {
            let (library, profile) = library_with_profile(&trace, library, name_or_file)?;
            replay_with_mapping(&trace, &library, MappingKind::Profile, &profile, replay_epoch())
                .map_err(CommandError::failed)?
        }
    };
    let printed = output::print(format_outcome(&outcome));
    if outcome.is_same() {
        printed.map_err(CommandError::from)
    } else {
        Err(CommandError::already_reported())
    }
}

/// Replays a trace and draws the session. The trace has the inputs; the replay makes the outputs with their audio.
pub(super) fn draw_session(
    trace: &Trace,
    library: Library,
) -> Result<(ReplayOutcome, SessionPicture), CommandError> {
    let with_own = trace.header.library(library.clone()).map_err(CommandError::failed)?;
    let client = with_own.client(&trace.header.client).map_err(CommandError::failed)?;
    let mut picture = SessionPicture::new(&client);
    for record in trace.records.iter().filter(|record| record.input.is_some()) {
        let at = Duration::from_nanos(record.ns);
        let add = |input: Input<'_>| match input {
            Input::Client(frame) => picture.add(at, TapPoint::FromClient, frame.into()),
            Input::Lane(lane, frame) => picture.add(at, TapPoint::FromLane(lane), frame.into()),
            _ => {}
        };
        record.with_input(add).map_err(CommandError::failed)?;
    }
    let mut add = |at, output: &Output| match output {
        Output::ToClient(message, _) => picture.add(at, TapPoint::ToClient, message.into()),
        Output::ToLane(lane, message) => picture.add(at, TapPoint::ToLane(*lane), message.into()),
        _ => {}
    };
    let outcome = replay_observed(trace, library, replay_epoch(), &mut add).map_err(CommandError::failed)?;
    Ok((outcome, picture))
}

/// Writes the picture of a session to a file.
pub(super) fn write_picture(path: &Path, picture: &mut SessionPicture) -> Result<(), CommandError> {
    write_svg(path, &picture.draw_svg())
}

/// Writes a picture to a file.
pub(super) fn write_svg(path: &Path, svg: &str) -> Result<(), CommandError> {
    fs::write(path, svg).map_err(|error| CommandError::failed(format!("{}: {error}", path.display())))
}

/// Reads a trace.
///
/// # Errors
/// The file cannot be read or is not a trace.
pub(super) fn read_trace(path: &Path) -> Result<Trace, CommandError> {
    let name = path.display();
    let bytes =
        fs::read(path).map_err(|error| CommandError::with_code(EXIT_NO_INPUT, format!("{name}: {error}")))?;
    // A crash may have cut the file off within a UTF-8 sequence.
    let text = String::from_utf8_lossy(&bytes);
    Trace::parse(&text)
        .map_err(|parse_error| CommandError::with_code(EXIT_INVALID_DATA, format!("{name}: {parse_error}")))
}

/// A profile given by name or file.
pub(super) struct GivenProfile {
    pub(super) name: String,
    /// Contents of its file.
    pub(super) source: Option<String>,
}

/// Extends the library of a trace by a profile given by name or file; returns the library and the profile's name.
pub(super) fn library_with_profile(
    trace: &Trace,
    library: Library,
    name_or_file: &str,
) -> Result<(Library, String), CommandError> {
    let mut library = trace.header.library(library).map_err(CommandError::failed)?;
    let GivenProfile { name, .. } = add_profile(&mut library, name_or_file)?;
    Ok((library, name))
}

/// Adds a profile to the library, if it is given by a file.
pub(super) fn add_profile(library: &mut Library, name_or_file: &str) -> Result<GivenProfile, CommandError> {
    let Ok(source) = fs::read_to_string(name_or_file) else {
        library.profile(name_or_file).map_err(|error| {
            CommandError::usage(format!(
                "{error}; for your own profile, name its file (no file {name_or_file} was found)"
            ))
        })?;
        return Ok(GivenProfile { name: name_or_file.to_owned(), source: None });
    };
    let (kind, name) = library.add_and_identify(name_or_file, &source).map_err(CommandError::usage)?;
    if kind != MappingKind::Profile {
        return Err(CommandError::usage(format!(
            "{name_or_file}: this is a {} file, not a profile file",
            kind.name()
        )));
    }
    Ok(GivenProfile { name, source: Some(source) })
}

/// Formats the outcome of a replay.
pub(super) fn format_outcome(outcome: &ReplayOutcome) -> String {
    let ReplayOutcome { differences, inputs, outputs, lasted_ms, not_judged } = outcome;
    let seconds = *lasted_ms as f64 / 1000.0;
    let summary = format!("{inputs} inputs and {outputs} outputs in {seconds:.3} s");
    let mut text = match differences.count {
        0 => format!("same: {summary}\n"),
        count => format!("{count} outputs differ ({summary}); the first differences:\n"),
    };
    differences
        .first
        .iter()
        .take(DIFFERENCES_SHOWN)
        .for_each(|difference| text.push_str(&format_difference(difference)));
    not_judged.iter().for_each(|note| text.push_str(&format!("not compared: {note}\n")));
    text
}

fn format_difference(difference: &Difference) -> String {
    let side = |label: &str, record: &Option<TraceRecord>| match record {
        None => format!("  {label} nothing\n"),
        Some(record) => format!("  {label} {}\n", truncate_text(&record.content())),
    };
    let record = difference.expected.as_ref().or(difference.got.as_ref());
    let (seconds, description) =
        record.map_or((0.0, String::new()), |record| (record.ns as f64 / 1e9, record.description()));
    let (expected, got) = (side("expected", &difference.expected), side("got     ", &difference.got));
    format!("{seconds:>9.3} s  {description}\n{expected}{got}")
}

fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(CONTENT_MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
