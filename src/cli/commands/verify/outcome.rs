//! The outcome of an acceptance run: the printed report, the page, and the comparison with another run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    super::{
        CommandError,
        replay::{draw_session, read_trace},
    },
    ledger::Ledger,
};
use crate::{
    cli::{
        ClientError,
        args::VerifyArgs,
        output::{print, print_line},
    },
    config::Config,
    secret::redacted_url,
    verify::{
        compare::{self, Compared, compare, format_table, has_new_failure},
        figure::{Figure, Section, all_pass},
        html::Page,
        report,
    },
};

/// The program that writes pages.
const MADE_BY: &str = concat!("voxbridge ", env!("BUILT_VERSION"));

/// A run that is over.
pub(super) struct Report<'r> {
    pub(super) args: &'r VerifyArgs,
    pub(super) config: &'r Config,
    pub(super) ledger: &'r Ledger,
    /// The sections that were asked for.
    pub(super) sections: &'r [Section],
}

impl Report<'_> {
    /// Prints the report and writes the page.
    ///
    /// # Errors
    /// A figure failed, something broke since the earlier run, or the report cannot be written.
    pub(super) fn finish(&self, earlier: Option<&Vec<Figure>>) -> Result<(), CommandError> {
        let (args, figures) = (self.args, &self.ledger.figures);
        // Sections that were not asked for this time are no loss.
        let was_asked =
            |figure: &&Figure| self.sections.iter().any(|section| section.name() == figure.section());
        let earlier: Option<Vec<Figure>> =
            earlier.map(|earlier| earlier.iter().filter(was_asked).cloned().collect());
        let compared = earlier.as_ref().map(|earlier| compare(earlier, figures));
        let servers: Vec<String> =
            self.config.upstream.iter().map(|upstream| redacted_url(&upstream.url)).collect();
        let servers = servers.join(", ");
        let earlier_name = args.compare.first().map(|path| path.display().to_string()).unwrap_or_default();
        let mut printed = match (&compared, args.json) {
            (None, true) => print_json(figures),
            (Some(compared), true) => print_compared(figures, compared),
            (_, false) => print(report::format_summary(figures)),
        };
        if let (Some(compared), false) = (&compared, args.json) {
            let table = format_table(compared, [&earlier_name, &servers]);
            printed = printed.and(print(format_args!("\n{table}")));
        }
        if let Some(path) = &args.html {
            let pictures = draw_failures(self.config, self.ledger);
            let compared = compared.as_deref().map(|compared| (earlier_name.as_str(), compared));
            write_page(
                path,
                &Page { servers: &servers, made_by: MADE_BY, figures, pictures: &pictures, compared },
            )?;
        }
        if all_pass(figures) && !compared.is_some_and(|compared| has_new_failure(&compared)) {
            printed.map_err(CommandError::from)
        } else {
            Err(CommandError::already_reported())
        }
    }
}

/// Compares two reports with each other.
pub(super) fn compare_reports(args: &VerifyArgs, reports: &[Vec<Figure>]) -> Result<(), CommandError> {
    let [first, second] = reports else {
        return Err(CommandError::usage(
            "--compare needs two reports, separated by a comma, or one report and --upstream",
        ));
    };
    check_writable(args.html.as_deref())?;
    let compared = compare(first, second);
    let names: Vec<String> = args.compare.iter().map(|path| path.display().to_string()).collect();
    let printed = match args.json {
        true => print_compared(second, &compared),
        false => print(format_table(&compared, [&names[0], &names[1]])),
    };
    if let Some(path) = &args.html {
        let compared = Some((names[0].as_str(), &compared[..]));
        let page = Page { servers: &names[1], made_by: MADE_BY, figures: second, pictures: &[], compared };
        write_page(path, &page)?;
    }
    if has_new_failure(&compared) {
        return Err(CommandError::already_reported());
    }
    printed.map_err(CommandError::from)
}

/// Prints the figures with their comparison as JSON.
fn print_compared(figures: &[Figure], compared: &[Compared<'_>]) -> Result<(), ClientError> {
    print_json(&json!({"figures": figures, "comparison": compare::to_json(compared)}))
}

fn print_json(value: &impl serde::Serialize) -> Result<(), ClientError> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print_line(text),
        Err(problem) => Err(ClientError::InvalidText(format!("the figures are no JSON: {problem}"))),
    }
}

/// Checks that the page can be written, before anything is asked.
pub(super) fn check_writable(page: Option<&Path>) -> Result<(), CommandError> {
    let Some(path) = page else { return Ok(()) };
    let is_new = !path.exists();
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| unwritable(path, &error))?;
    if is_new {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("--html {}: {error}", path.display()))
}

fn write_page(path: &Path, page: &Page<'_>) -> Result<(), CommandError> {
    fs::write(path, page.write()).map_err(|error| unwritable(path, &error))
}

/// Draws the sessions of the failures. A trace that cannot be drawn is left out.
fn draw_failures(config: &Config, ledger: &Ledger) -> Vec<(String, String)> {
    let draw = |(names, path): (String, PathBuf)| {
        let library = config.load_library().ok()?;
        let (_, mut picture) = draw_session(&read_trace(&path).ok()?, library).ok()?;
        Some((names, picture.draw_svg()))
    };
    ledger.failed_traces().into_iter().filter_map(draw).collect()
}

/// Reads the report of an earlier run.
pub(super) fn read_report(path: &Path) -> Result<Vec<Figure>, CommandError> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|reason| {
        CommandError::from(ClientError::UnreadableInput { source_name: name.to_string(), reason })
    })?;
    report::read_json(&text).map_err(|problem| ClientError::InvalidText(format!("{name}: {problem}")).into())
}
