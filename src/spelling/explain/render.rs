//! Renders explanations as terminal text, Markdown or JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::{ExplainRow, Explanation, MatrixCell, RowKind};
use crate::vocabulary::Mode;

/// Width of a terminal line.
const COLUMNS: usize = 110;

/// Display name of a row.
fn label(row: &ExplainRow, quote: &str) -> String {
    match row.is {
        RowKind::Audio => "binary frame".to_owned(),
        RowKind::Query => format!("?{}=", row.name),
        RowKind::Command | RowKind::Event => format!("{quote}{}{quote}", row.name),
        RowKind::Field => format!("— {quote}{}{quote}", row.name),
    }
}

fn mode_list(modes: &[Mode], quote: &str) -> String {
    modes.iter().map(|mode| format!("{quote}{}{quote}", mode.name())).collect::<Vec<_>>().join(", ")
}

/// Renders Markdown: notes, two tables, and the paths.
#[must_use]
pub fn markdown(explanation: &Explanation) -> String {
    let Explanation { client_title, dialect_title, profile, upstream_path, modes, .. } = explanation;
    let mut out = format!("# {client_title} on {dialect_title}, profile `{profile}`\n\n");
    if let Some(because) = &explanation.because {
        let _ = writeln!(out, "**They do not work together**: {because}.\n");
    }
    for note in &explanation.notes {
        let _ = writeln!(out, "- {note}");
    }
    out.push('\n');
    table(&mut out, "What the client sends", ["client", "effect"], &explanation.sends);
    table(&mut out, "What the client receives", ["event", "origin"], &explanation.gets);
    let _ = writeln!(
        out,
        "Served {}; upstream at `{upstream_path}`, mode {}.",
        place_list(&explanation.paths, "`"),
        mode_list(modes, "`")
    );
    if let Some(start) = &explanation.start {
        let _ = writeln!(out, "\nThe upstream is started by `{start}`.");
    }
    out
}

fn table(out: &mut String, title: &str, heads: [&str; 2], rows: &[ExplainRow]) {
    let _ = writeln!(out, "## {title}\n");
    let rows: Vec<[String; 2]> = rows.iter().map(|row| [label(row, "`"), row.becomes.clone()]).collect();
    let width = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0).max(heads[0].len());
    let _ = writeln!(out, "| {:width$} | {} |", heads[0], heads[1]);
    let _ = writeln!(out, "|{:-<1$}|---|", "", width + 2);
    for [left, right] in rows {
        let _ = writeln!(out, "| {left:width$} | {right} |");
    }
    out.push('\n');
}

/// Renders plain text in columns.
#[must_use]
pub fn text(explanation: &Explanation) -> String {
    let Explanation { client_title, dialect_title, profile, upstream_path, modes, .. } = explanation;
    let mut out = format!("{client_title} on {dialect_title}, profile {profile}\n\n");
    if let Some(because) = &explanation.because {
        write_wrapped(&mut out, "", &format!("They do not work together: {because}."), 0);
        out.push('\n');
    }
    explanation.notes.iter().for_each(|note| write_wrapped(&mut out, "- ", note, 2));
    for (title, rows) in [
        ("What the client sends, and its effect", &explanation.sends),
        ("What the client receives, and its origin", &explanation.gets),
    ] {
        let _ = writeln!(out, "\n{title}:");
        let width = rows.iter().map(|row| label(row, "").chars().count()).max().unwrap_or(0).min(40);
        for row in rows {
            write_wrapped(&mut out, &format!("  {:width$}  ", label(row, "")), &row.becomes, width + 4);
        }
    }
    let _ = writeln!(
        out,
        "\nServed {}; upstream at {upstream_path}, mode {}.",
        place_list(&explanation.paths, ""),
        mode_list(modes, "")
    );
    if let Some(start) = &explanation.start {
        let _ = writeln!(out, "The upstream is started by: {start}");
    }
    out
}

/// Where the protocol is served, with its paths in quotation marks.
fn place_list(paths: &[String], mark: &str) -> String {
    let paths: Vec<String> = paths.iter().map(|path| format!("{mark}{path}{mark}")).collect();
    if paths.is_empty() { "to REST requests".to_owned() } else { format!("at {}", paths.join(", ")) }
}

/// Writes a head and words after it, wrapped at [`COLUMNS`] and indented from the second line on.
fn write_wrapped(out: &mut String, head: &str, words: &str, indent: usize) {
    out.push_str(head);
    let mut column = head.chars().count();
    for (at, word) in words.split(' ').enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > COLUMNS {
            let _ = write!(out, "\n{:indent$}", "");
            column = indent;
        } else if at > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

/// Renders the matrix in columns.
#[must_use]
pub fn matrix_text(cells: &[MatrixCell]) -> String {
    let width = |name: fn(&MatrixCell) -> &String| {
        cells.iter().map(|cell| name(cell).chars().count()).max().unwrap_or(0)
    };
    let (client, profile, dialect) = (
        width(|cell| &cell.client).max(6),
        width(|cell| &cell.profile).max(7),
        width(|cell| &cell.dialect).max(7),
    );
    let mut out = format!("{:client$}  {:profile$}  {:dialect$}  works\n", "client", "profile", "dialect");
    for cell in cells {
        let head = format!("{:client$}  {:profile$}  {:dialect$}  ", cell.client, cell.profile, cell.dialect);
        let indent = head.chars().count();
        write_wrapped(&mut out, &head, &works_text(cell), indent);
    }
    out
}

/// Renders the matrix as a Markdown table.
#[must_use]
pub fn matrix_markdown(cells: &[MatrixCell]) -> String {
    let mut out = "| client | profile | dialect | works |\n|---|---|---|---|\n".to_owned();
    for cell in cells {
        let _ = writeln!(
            out,
            "| `{}` | `{}` | `{}` | {} |",
            cell.client,
            cell.profile,
            cell.dialect,
            works_text(cell)
        );
    }
    out
}

fn works_text(cell: &MatrixCell) -> String {
    cell.because.as_ref().map_or_else(|| "yes".to_owned(), |because| format!("no: {because}"))
}

/// Renders data as JSON for programs.
#[must_use]
pub fn json(value: &impl Serialize) -> String {
    // Cannot fail: the data are structs of strings and lists.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
