//! Report of an acceptance run as text.

use std::fmt::Write as _;

use serde::Deserialize;

use super::figure::{Figure, Verdict};

/// Width of the names.
const NAME_WIDTH: usize = 36;
const VALUE_WIDTH: usize = 12;

/// Formats a figure as one line: verdict, name, value, expectation, note.
#[must_use]
pub fn format_line(figure: &Figure) -> String {
    let expected = match figure.verdict {
        Verdict::Skipped => String::new(),
        _ => figure.expected.to_string(),
    };
    let (verdict, value) = (figure.verdict.name(), figure.display_value());
    let line = format!(
        "  {verdict:<8} {:<NAME_WIDTH$} {value:>VALUE_WIDTH$}  {expected:<9} {}",
        figure.name, figure.note
    );
    line.trim_end().to_owned()
}

/// Formats what to try for each failure, and the count of all verdicts.
#[must_use]
pub fn format_summary(figures: &[Figure]) -> String {
    let mut text = String::new();
    for figure in figures.iter().filter(|figure| figure.verdict == Verdict::Fail) {
        let _ = writeln!(text, "\n{}: {}", figure.name, figure.advice.as_deref().unwrap_or_default());
        if let Some(trace) = &figure.trace {
            let _ = writeln!(text, "  trace: {trace}");
        }
    }
    let _ = writeln!(text, "\n{}", count_verdicts(figures));
    text
}

/// The count of all verdicts, in words.
#[must_use]
pub fn count_verdicts(figures: &[Figure]) -> String {
    let count = |verdict| figures.iter().filter(|figure| figure.verdict == verdict).count();
    let (passed, failed, skipped) = (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Skipped));
    format!("{} figures: {passed} passed, {failed} failed, {skipped} skipped", figures.len())
}

/// Reads the JSON of an earlier report: a list of figures, or an object that has them beside a comparison.
///
/// # Errors
/// What is wrong with it, and where.
pub fn read_json(text: &str) -> Result<Vec<Figure>, String> {
    #[derive(Deserialize)]
    struct WithComparison {
        figures: Vec<Figure>,
    }
    let read = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map(|read: WithComparison| read.figures),
        false => serde_json::from_str(text),
    };
    read.map_err(|error| format!("not a report of verify --json: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::figure::Expectation;

    #[test]
    fn failures_are_listed_with_trace_and_advice() {
        let mut failed = Figure::measured("speech.first_audio", 3.0, "s", Expectation::AtMost(2.0))
            .with_note("plain text");
        failed.set_trace(std::path::Path::new("traces/a.jsonl"));
        let figures = [failed, Figure::skipped("tools", "the server has no chat")];
        let line = format_line(&figures[0]);
        assert!(line.starts_with("  fail     speech.first_audio"), "{line}");
        assert!(line.contains("3 s  <= 2") && line.ends_with("plain text"), "{line}");
        assert!(format_line(&figures[1]).ends_with("-            the server has no chat"));
        let summary = format_summary(&figures);
        assert!(
            summary.contains("\nspeech.first_audio: Check that") && summary.contains("trace: traces/a.jsonl")
        );
        assert!(summary.ends_with("2 figures: 0 passed, 1 failed, 1 skipped\n"), "{summary}");
    }

    #[test]
    fn json_of_something_else_is_rejected_with_its_place() {
        assert!(read_json("{}").unwrap_err().contains("line 1"));
        let json = serde_json::to_string(&[Figure::skipped("tools", "no")]).unwrap();
        assert_eq!(read_json(&json).unwrap(), [Figure::skipped("tools", "no")]);
        let compared = format!(r#"{{"figures": {json}, "comparison": []}}"#);
        assert_eq!(read_json(&compared).unwrap(), [Figure::skipped("tools", "no")]);
    }
}
