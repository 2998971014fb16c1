//! View of the demo: prints the messages on both sides of the bridge in two columns.
//!
//! The left column shows the client side, the right one the model side. An arrow to the right points towards the model.
//! On a narrow terminal, both sides share the whole width, and the model side is indented.
//! Each JSON message is one line. Consecutive binary audio frames share one line, because they would hide the rest.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use console::Term;

use crate::audio::MODEL_RATE_HZ;
use crate::server::tap::{Tap, TapFrame, TapPoint};

use super::json_summary::summarize_json;

const LEGEND: [&str; 3] = [
    "→ towards the model, ← towards the client; time in seconds",
    "… audio frames, put together on one line",
    "#1 an upstream session, by its number",
];

/// Width if the output is not a terminal; enough for both columns.
const DEFAULT_COLUMNS: usize = 160;

/// Minimum width; narrower columns would be unreadable.
const MIN_COLUMNS: usize = 40;

/// Minimum width for two columns. Half of a narrower terminal would cut the model's text off.
const TWO_COLUMNS_MIN: usize = 120;

/// Indentation of the model side on a narrow terminal.
const MODEL_INDENT: &str = "        ";

/// Width of the time before each message, with the space behind it.
const TIME_WIDTH: usize = 9;

/// Maximum audio of one direction on one line, so that long audio shows progress.
const AUDIO_LINE_MAX: Duration = Duration::from_secs(5);

/// Bytes per second of int16 mono towards the client.
const SPEAKER_BYTES_PER_SECOND: u32 = 2 * MODEL_RATE_HZ;

/// Separator of the columns.
const COLUMN_SEPARATOR: &str = " │ ";

/// [`Tap`] that prints two columns.
pub struct SideBySide {
    printer: Mutex<ColumnPrinter>,
}

impl SideBySide {
    /// Prints to standard output, with the width and the colours of the terminal. The client's audio is int16 mono at
    /// `microphone_hz`.
    pub fn stdout(microphone_hz: u32) -> Self {
        let columns = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        // `colors_enabled` honours NO_COLOR.
        let colour = columns.is_some() && console::colors_enabled();
        Self::new(io::stdout(), columns.unwrap_or(DEFAULT_COLUMNS), colour, microphone_hz)
    }

    /// Prints to any writer.
    pub fn new(out: impl Write + Send + 'static, columns: usize, colour: bool, microphone_hz: u32) -> Self {
        let columns = columns.max(MIN_COLUMNS);
        let printer = ColumnPrinter {
            out: Box::new(out),
            columns,
            colour,
            microphone_hz,
            started_at: None,
            now: Duration::ZERO,
            upward: AudioRun::default(),
            downward: AudioRun::default(),
        };
        Self { printer: Mutex::new(printer) }
    }

    /// Prints the legend and the names of the columns; call it before the first session.
    pub fn header(&self) {
        self.with_printer(|printer| {
            for line in LEGEND {
                printer.write_row("", line, "", "");
            }
            let (client, model) = ("client ⇄ voxbridge", "voxbridge ⇄ MiniCPM-o");
            match printer.has_two_columns() {
                true => printer.write_row("", client, COLUMN_SEPARATOR, model),
                false => {
                    printer.write_row("", client, "", "");
                    printer.write_row("", "", MODEL_INDENT, model);
                }
            }
        });
    }

    /// Prints pending audio lines; call it after the sessions.
    pub fn flush(&self) {
        self.with_printer(|printer| {
            printer.flush_all(printer.now);
        });
    }

    fn with_printer(&self, action: impl FnOnce(&mut ColumnPrinter)) {
        // A panic while printing leaves at most half a line behind, so the printer remains usable.
        action(&mut self.printer.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Tap for SideBySide {
    fn on_frame(&self, _session_id: &str, at: Instant, point: TapPoint, frame: TapFrame<'_>) {
        // Summarizes long messages before it takes the lock, so that sessions do not wait for each other.
        let text = match frame {
            TapFrame::Text(text) => summarize_json(text),
            TapFrame::Binary(bytes) => format!("<{} bytes>", bytes.len()),
            TapFrame::Close(Some(code)) => format!("closed with {code}"),
            TapFrame::Close(None) => "closed".to_owned(),
        };
        self.with_printer(|printer| {
            let after = at.saturating_duration_since(*printer.started_at.get_or_insert(at));
            // Sessions run side by side, so that a frame may come late.
            let after = after.max(printer.now);
            printer.now = after;
            match (point, frame) {
                (TapPoint::FromClient, TapFrame::Binary(bytes)) => {
                    printer.add_audio(Direction::Up, after, bytes.len());
                }
                (TapPoint::ToClient, TapFrame::Binary(bytes)) => {
                    printer.add_audio(Direction::Down, after, bytes.len());
                }
                _ => printer.print_message(after, point, &text),
            }
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Left,
    Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Towards the model.
    Up,
    /// Towards the client.
    Down,
}

/// Consecutive audio frames of one direction, printed as one line.
#[derive(Debug, Clone, Copy, Default)]
struct AudioRun {
    frames: usize,
    bytes: usize,
    /// Times of the first and the last frame.
    from: Duration,
    to: Duration,
}

struct ColumnPrinter {
    out: Box<dyn Write + Send>,
    columns: usize,
    colour: bool,
    microphone_hz: u32,
    started_at: Option<Instant>,
    /// Time of the last frame. Lines never go back behind it.
    now: Duration,
    upward: AudioRun,
    downward: AudioRun,
}

impl ColumnPrinter {
    fn print_message(&mut self, at: Duration, point: TapPoint, text: &str) {
        let (column, direction, line) = match point {
            TapPoint::FromClient => (Column::Left, Direction::Up, format!("→ {text}")),
            TapPoint::ToClient => (Column::Left, Direction::Down, format!("← {text}")),
            TapPoint::ToLane(lane) => (Column::Right, Direction::Up, format!("→ #{} {text}", lane.0)),
            TapPoint::FromLane(lane) => (Column::Right, Direction::Down, format!("← #{} {text}", lane.0)),
        };
        // On the client side, the order of messages and audio is significant.
        if column == Column::Left {
            self.flush_all(at);
        }
        self.write_line(at, column, direction, &line);
    }

    fn add_audio(&mut self, direction: Direction, at: Duration, bytes: usize) {
        let run = self.audio_run(direction);
        if run.frames == 0 {
            run.from = at;
        }
        run.frames += 1;
        run.bytes += bytes;
        run.to = at;
        let bytes = run.bytes;
        if self.audio_duration(bytes, direction) >= AUDIO_LINE_MAX {
            self.flush(direction, at);
        }
    }

    fn flush_all(&mut self, now: Duration) {
        self.flush(Direction::Up, now);
        self.flush(Direction::Down, now);
    }

    /// Prints pending audio. The line has the present time, so that times never run backwards, and says when the audio came.
    fn flush(&mut self, direction: Direction, now: Duration) {
        let run = std::mem::take(self.audio_run(direction));
        if run.frames == 0 {
            return;
        }
        let arrow = if direction == Direction::Up { '→' } else { '←' };
        let frames = if run.frames == 1 { "frame" } else { "frames" };
        let seconds = self.audio_duration(run.bytes, direction).as_secs_f64();
        let (from, to) = (run.from.as_secs_f64(), run.to.as_secs_f64());
        let text =
            format!("{arrow} … {} {frames}, {seconds:.1} s of audio, at {from:.2} to {to:.2}", run.frames);
        self.write_line(now, Column::Left, direction, &text);
    }

    fn audio_run(&mut self, direction: Direction) -> &mut AudioRun {
        match direction {
            Direction::Up => &mut self.upward,
            Direction::Down => &mut self.downward,
        }
    }

    fn write_line(&mut self, at: Duration, column: Column, direction: Direction, text: &str) {
        let at = format!("{:8.2} ", at.as_secs_f64());
        let (width, separator) = match (self.has_two_columns(), column) {
            (true, _) => (self.column_width(), COLUMN_SEPARATOR),
            (false, Column::Left) => (self.columns - TIME_WIDTH, ""),
            (false, Column::Right) => (self.columns - TIME_WIDTH - MODEL_INDENT.len(), MODEL_INDENT),
        };
        let truncated = console::truncate_str(text, width, "…");
        let coloured = if self.colour { colourize(&truncated, direction) } else { truncated.into_owned() };
        match column {
            Column::Left => self.write_row(&at, &coloured, separator, ""),
            Column::Right => self.write_row(&at, "", separator, &coloured),
        }
    }

    /// Writes a whole line at once, so that sessions do not mix within a line.
    fn write_row(&mut self, at: &str, left: &str, separator: &str, right: &str) {
        let width = if self.has_two_columns() { self.column_width() } else { 0 };
        let left = console::pad_str(left, width, console::Alignment::Left, None);
        let mut line = String::with_capacity(self.columns * 2);
        let _ = write!(line, "{at:TIME_WIDTH$}{left}{separator}{right}");
        line.truncate(line.trim_end().len());
        line.push('\n');
        // After a write error, the session continues without the view.
        let _ = self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush());
    }

    /// Duration of audio in this direction.
    fn audio_duration(&self, bytes: usize, direction: Direction) -> Duration {
        let per_second =
            if direction == Direction::Up { 2 * self.microphone_hz } else { SPEAKER_BYTES_PER_SECOND };
        Duration::from_secs_f64(bytes as f64 / f64::from(per_second))
    }

    const fn has_two_columns(&self) -> bool {
        self.columns >= TWO_COLUMNS_MIN
    }

    /// Width of one of two columns.
    fn column_width(&self) -> usize {
        (self.columns - TIME_WIDTH - 3) / 2
    }
}

fn colourize(text: &str, direction: Direction) -> String {
    let style = console::Style::new().force_styling(true);
    let style = if direction == Direction::Up { style.cyan() } else { style.green() };
    style.apply_to(text).to_string()
}

#[cfg(test)]
mod tests;
