//! Two sessions of the same user side by side: their turns as a table, or as JSON.

use std::fmt::Write as _;

use console::Term;
use serde::Serialize;

use super::saved::SavedRecording;
use crate::{
    cli::{commands::CommandError, output::printable},
    recording::turns::{RecordedTurn, TurnPair, pair_turns, turns_of},
};

/// Width if the output is not a terminal, and the least one.
const DEFAULT_COLUMNS: usize = 120;
const MIN_COLUMNS: usize = 60;
/// Width of the time and the name in front of a row.
const LABEL_WIDTH: usize = 17;
const SEPARATOR: &str = " │ ";
const SEPARATOR_WIDTH: usize = 3;

/// A recording, and its turns.
#[derive(Debug, Serialize)]
pub(super) struct RecordingSummary {
    audio: String,
    session: String,
    client: String,
    profile: String,
    opened: String,
    duration_ms: u64,
    complete: bool,
    /// Median of all turns.
    first_transcript_ms: Option<u64>,
    first_audio_ms: Option<u64>,
    #[serde(skip)]
    turns: Vec<RecordedTurn>,
}

/// Two recordings side by side.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    then: RecordingSummary,
    now: RecordingSummary,
    turns: Vec<TurnPair>,
}

impl RecordingSummary {
    pub(super) fn of(SavedRecording { document, audio, .. }: &SavedRecording) -> Self {
        let turns = turns_of(&document.events);
        let (session, end) = (&document.session, &document.end);
        Self {
            audio: audio.display().to_string(),
            session: session.session.clone(),
            client: session.client.clone(),
            profile: session.profile.clone(),
            opened: document.opened.clone(),
            duration_ms: end.duration_ms,
            complete: end.complete,
            first_transcript_ms: median(turns.iter().filter_map(|turn| turn.first_transcript_ms)),
            first_audio_ms: median(turns.iter().filter_map(|turn| turn.first_audio_ms)),
            turns,
        }
    }
}

fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

impl Comparison {
    pub(super) fn new(mut then: RecordingSummary, mut now: RecordingSummary) -> Self {
        let turns = pair_turns(std::mem::take(&mut then.turns), std::mem::take(&mut now.turns));
        Self { then, now, turns }
    }

    pub(super) fn to_json(&self) -> Result<String, CommandError> {
        serde_json::to_string(self).map_err(CommandError::failed)
    }

    pub(super) fn to_text(&self) -> String {
        let columns = Term::stdout().size_checked().map_or(DEFAULT_COLUMNS, |(_, columns)| columns.into());
        self.to_table(columns)
    }

    fn to_table(&self, columns: usize) -> String {
        let mut table = Table::new(columns);
        table.row("", ["then", "now"].map(str::to_owned));
        let sides = [&self.then, &self.now];
        table.row("recording", sides.map(|side| side.audio.clone()));
        table.row("profile", sides.map(|side| side.profile.clone()));
        table.row("began", sides.map(|side| side.opened.clone()));
        table.row("length", sides.map(|side| seconds(Some(side.duration_ms))));
        for pair in &self.turns {
            table.end_group();
            table.turn(pair);
        }
        table.end_group();
        table.row("median words", sides.map(|side| seconds(side.first_transcript_ms)));
        table.row("median audio", sides.map(|side| seconds(side.first_audio_ms)));
        table.text
    }
}

fn seconds(ms: Option<u64>) -> String {
    ms.map_or_else(String::new, |ms| format!("{:.2} s", ms as f64 / 1000.0))
}

/// A table of two columns.
struct Table {
    text: String,
    /// Width of a column.
    width: usize,
}

impl Table {
    fn new(columns: usize) -> Self {
        let width = (columns.max(MIN_COLUMNS) - LABEL_WIDTH - SEPARATOR_WIDTH) / 2;
        Self { text: String::new(), width }
    }

    fn turn(&mut self, TurnPair { then, now }: &TurnPair) {
        let sides = [then.as_ref(), now.as_ref()];
        let from_ms = sides.iter().flatten().map(|turn| turn.from_ms).min().unwrap_or_default();
        let of = |text: fn(&RecordedTurn) -> String| sides.map(|turn| turn.map(text).unwrap_or_default());
        self.row(&format!("{:>8.1} s  user", from_ms as f64 / 1000.0), of(|turn| turn.user.clone()));
        self.row_if_any("tools", of(|turn| turn.tools.join("; ")));
        self.row_if_any("model", of(model_words));
        self.row_if_any("errors", of(|turn| turn.errors.join(", ")));
        self.row_if_any("first words", of(|turn| seconds(turn.first_transcript_ms)));
        self.row_if_any("first audio", of(|turn| seconds(turn.first_audio_ms)));
    }

    fn row_if_any(&mut self, label: &str, sides: [String; 2]) {
        if sides.iter().any(|side| !side.is_empty()) {
            self.row(label, sides);
        }
    }

    /// Writes a row; long texts take several lines.
    fn row(&mut self, label: &str, sides: [String; 2]) {
        let [then, now] = sides.map(|side| wrap(&printable(&side), self.width));
        for line in 0..then.len().max(now.len()).max(1) {
            let label = if line == 0 { label } else { "" };
            let [then, now] = [&then, &now].map(|lines| lines.get(line).map_or("", String::as_str));
            let then = console::pad_str(then, self.width, console::Alignment::Left, None);
            let row = format!("{label:<LABEL_WIDTH$}{then}{SEPARATOR}{now}");
            let _ = writeln!(self.text, "{}", row.trim_end());
        }
    }

    fn end_group(&mut self) {
        self.text.push('\n');
    }
}

fn model_words(turn: &RecordedTurn) -> String {
    match (turn.interrupted, turn.model.is_empty()) {
        (true, true) => "(interrupted)".to_owned(),
        (true, false) => format!("{} (interrupted)", turn.model),
        (false, _) => turn.model.clone(),
    }
}

/// Lines of at most this width, which end between words. A longer word is cut off.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = console::truncate_str(word, width, "…");
        match lines.last_mut() {
            Some(line)
                if console::measure_text_width(line) + 1 + console::measure_text_width(&word) <= width =>
            {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word.into_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(turns: Vec<RecordedTurn>) -> RecordingSummary {
        RecordingSummary {
            audio: "a.wav".to_owned(),
            session: "s".to_owned(),
            client: "macaw".to_owned(),
            profile: "assistant".to_owned(),
            opened: String::new(),
            duration_ms: 4_000,
            complete: true,
            first_transcript_ms: None,
            first_audio_ms: median(turns.iter().filter_map(|turn| turn.first_audio_ms)),
            turns,
        }
    }

    #[test]
    fn turns_stand_side_by_side_and_long_texts_take_several_lines() {
        let turn = |model: &str, first_audio_ms| RecordedTurn {
            from_ms: 1_000,
            to_ms: 2_000,
            user: "Hello".to_owned(),
            model: model.to_owned(),
            first_audio_ms: Some(first_audio_ms),
            ..RecordedTurn::default()
        };
        let then = summary(vec![turn("one two three four five six seven", 1_500)]);
        let now = RecordedTurn { interrupted: true, ..turn("好", 900) };
        let table = Comparison::new(then, summary(vec![now])).to_table(60);
        for line in [
            "     1.0 s  user Hello                │ Hello",
            "model            one two three four   │ 好 (interrupted)",
            "                 five six seven       │",
            "first audio      1.50 s               │ 0.90 s",
            "median audio     1.50 s               │ 0.90 s",
        ] {
            assert!(table.lines().any(|found| found == line), "{line:?}:\n{table}");
        }
        assert!(!table.contains("tools") && !table.contains("errors"), "{table}");
    }
}
