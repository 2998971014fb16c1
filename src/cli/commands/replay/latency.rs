//! `voxbridge replay --latency`: prints where the time until the first audio of an answer goes.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use super::{CommandError, read_trace};
use crate::{
    cli::{args::ReplayArgs, inputs::FolderFiles, output, synthetic_session::replay_epoch},
    spelling::Library,
    trace::first_audio::{
        SessionLatencies, Trigger, measure,
        table::{LatencyRow, Percentiles, rows},
    },
};

/// The report for programs.
#[derive(Serialize)]
struct Report {
    rows: Vec<LatencyRow>,
    notes: Vec<Note>,
}

/// Why figures of some traces are missing or may be wrong.
#[derive(Serialize)]
struct Note {
    note: String,
    traces: usize,
}

/// Measures the answers of all traces, and prints the table.
pub(super) fn run(args: &ReplayArgs, library: &Library) -> Result<(), CommandError> {
    let folder_files = FolderFiles { endings: &["jsonl"], is_recursive: true };
    let mut sessions = Vec::new();
    for input in folder_files.expand(&args.traces)? {
        let trace = read_trace(&input.path)?;
        let named = |problem| CommandError::failed(format!("{}: {problem}", input.path.display()));
        sessions.push(measure(&trace, library.clone(), replay_epoch()).map_err(named)?);
    }
    let report = Report { rows: rows(&sessions), notes: notes(&sessions) };
    match args.json {
        true => output::print_line(serde_json::to_string(&report).map_err(CommandError::failed)?)?,
        false => output::print(format_report(&report, sessions.len()))?,
    }
    Ok(())
}

fn notes(sessions: &[SessionLatencies]) -> Vec<Note> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for note in sessions.iter().flat_map(|session| &session.notes) {
        *counts.entry(note).or_default() += 1;
    }
    counts.into_iter().map(|(note, traces)| Note { note: note.to_owned(), traces }).collect()
}

fn format_report(report: &Report, traces: usize) -> String {
    let mut text = String::new();
    for row in &report.rows {
        text.push_str(&format_row(row));
        text.push('\n');
    }
    if report.rows.is_empty() {
        let _ = writeln!(text, "no audio of an answer or a text in {traces} traces");
    }
    for Note { note, traces: concerned } in &report.notes {
        let _ = writeln!(text, "{concerned} of {traces} traces: {note}");
    }
    text
}

/// The table of one profile and server.
fn format_row(row: &LatencyRow) -> String {
    let answers = match (row.trigger, row.answers) {
        (Trigger::Speech, 1) => "1 answer to speech".to_owned(),
        (Trigger::Speech, count) => format!("{count} answers to speech"),
        (Trigger::Request, 1) => "1 answer on request".to_owned(),
        (Trigger::Request, count) => format!("{count} answers on request"),
        (Trigger::Text, 1) => "1 text".to_owned(),
        (Trigger::Text, count) => format!("{count} texts"),
    };
    let title = format!("{} by {}: {answers}", row.profile, row.server);
    let mut text = format!("{title:<68}{:>10}{:>10}\n", "p50", "p90");
    for stage in &row.stages {
        add_line(&mut text, stage.stage.name(), stage.stage.description(), stage.time);
    }
    let begin = match row.trigger {
        Trigger::Speech => "from the arrival of the last sound to the first audio",
        Trigger::Request | Trigger::Text => "from the request to the first audio",
    };
    add_line(&mut text, "total", begin, row.total);
    add_line(&mut text, "beyond", "of it, all but verdict, model and voice", row.beyond_model);
    if row.trigger == Trigger::Speech {
        add_line(&mut text, "frame", "before it: length of the message with the last sound", row.frame);
    }
    text
}

fn add_line(text: &mut String, name: &str, description: &str, time: Percentiles) {
    let Percentiles { p50_ms, p90_ms } = time;
    let _ = writeln!(text, "  {name:<9}{description:<57}{p50_ms:>7.1} ms{p90_ms:>7.1} ms");
}
