//! Explanations as text for terminals, as Markdown, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::{ExplainRow, Explanation, MatrixCell, RowKind};
use crate::mapping::upstream::Mode;

/// A line of a terminal.
const COLUMNS: usize = 110;

/// Spelled for people; the words of one column.
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

/// Markdown: notes, two tables, and where it is served.
#[must_use]
pub fn markdown(explanation: &Explanation) -> String {
    let Explanation { client_title, dialect_title, profile, upstream_path, modes, .. } = explanation;
    let mut out = format!("# {client_title} on {dialect_title}, profile `{profile}`\n\n");
    if let Some(because) = &explanation.because {
        let _ = writeln!(out, "**They do not go together**: {because}.\n");
    }
    for note in &explanation.notes {
        let _ = writeln!(out, "- {note}");
    }
    out.push('\n');
    table(&mut out, "What the client sends", ["client", "becomes"], &explanation.sends);
    table(&mut out, "What the client gets", ["event", "comes from"], &explanation.gets);
    let paths = explanation.paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    let _ =
        writeln!(out, "Served at {paths}; upstream at `{upstream_path}`, mode {}.", mode_list(modes, "`"));
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

/// Plain text in columns.
#[must_use]
pub fn text(explanation: &Explanation) -> String {
    let Explanation { client_title, dialect_title, profile, upstream_path, modes, .. } = explanation;
    let mut out = format!("{client_title} on {dialect_title}, profile {profile}\n\n");
    if let Some(because) = &explanation.because {
        write_wrapped(&mut out, "", &format!("They do not go together: {because}."), 0);
        out.push('\n');
    }
    explanation.notes.iter().for_each(|note| write_wrapped(&mut out, "- ", note, 2));
    for (title, rows) in [
        ("The client sends, and it becomes", &explanation.sends),
        ("The client gets, and it comes from", &explanation.gets),
    ] {
        let _ = writeln!(out, "\n{title}:");
        let width = rows.iter().map(|row| label(row, "").chars().count()).max().unwrap_or(0).min(40);
        for row in rows {
            write_wrapped(&mut out, &format!("  {:width$}  ", label(row, "")), &row.becomes, width + 4);
        }
    }
    let _ = writeln!(
        out,
        "\nServed at {}; upstream at {upstream_path}, mode {}.",
        explanation.paths.join(", "),
        mode_list(modes, "")
    );
    out
}

/// Words after a head, the further lines indented.
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

/// The matrix in columns.
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

/// The matrix as a Markdown table.
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

/// Anything as JSON for programs.
#[must_use]
pub fn json(value: &impl Serialize) -> String {
    // Structs of strings: there is nothing in it that JSON has not.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
