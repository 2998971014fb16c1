//! The demo's view: both wires of a session side by side, as they pass.
//!
//! Left is the client's wire, right the model's; an arrow to the right goes towards the model. One line per JSON
//! message; binary audio is summed up, or it would hide everything else.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use console::Term;

use crate::audio::{MODEL_RATE_HZ, SPEECH_RATE_HZ};
use crate::server::tap::{Tap, TapFrame, TapPoint};

use super::json_summary::summarize_json;

/// Where the output is no terminal: wide enough for both columns.
const DEFAULT_COLUMNS: usize = 160;

/// Below this the columns would say nothing.
const MIN_COLUMNS: usize = 40;

/// So much audio of one direction makes a line even if nothing else happens, so that the view does not seem stuck.
const AUDIO_LINE_MAX: Duration = Duration::from_secs(5);

/// Bytes per second of int16 mono towards voxbridge and towards the client.
const MICROPHONE_BYTES_PER_SECOND: u32 = 2 * SPEECH_RATE_HZ;
const SPEAKER_BYTES_PER_SECOND: u32 = 2 * MODEL_RATE_HZ;

/// Between the columns.
const COLUMN_SEPARATOR: &str = " │ ";

/// A [`Tap`] that prints two columns.
pub struct SideBySide {
    printer: Mutex<ColumnPrinter>,
}

impl SideBySide {
    /// On standard output, as wide and as colourful as it is.
    #[must_use]
    pub fn stdout() -> Self {
        let columns = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        // console knows terminals and NO_COLOR.
        let colour = columns.is_some() && console::colors_enabled();
        Self::new(io::stdout(), columns.unwrap_or(DEFAULT_COLUMNS), colour)
    }

    /// On anything else.
    #[must_use]
    pub fn new(out: impl Write + Send + 'static, columns: usize, colour: bool) -> Self {
        let columns = columns.max(MIN_COLUMNS);
        let printer = ColumnPrinter {
            out: Box::new(out),
            columns,
            colour,
            started_at: None,
            upward: AudioRun::default(),
            downward: AudioRun::default(),
        };
        Self { printer: Mutex::new(printer) }
    }

    /// The names of the columns; call it before the first session.
    pub fn header(&self) {
        self.with_printer(|printer| {
            printer.write_row("", Column::Left, "client ⇄ voxbridge", Some("voxbridge ⇄ MiniCPM-o"))
        });
    }

    /// Prints audio that is still being summed up; call it when the sessions are over.
    pub fn flush(&self) {
        self.with_printer(|printer| {
            printer.flush(Direction::Up);
            printer.flush(Direction::Down);
        });
    }

    fn with_printer(&self, action: impl FnOnce(&mut ColumnPrinter)) {
        // A view that panicked half-way through a line is still a view.
        action(&mut self.printer.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Tap for SideBySide {
    fn on_frame(&self, _session_id: &str, at: Instant, point: TapPoint, frame: TapFrame<'_>) {
        // Long messages are read before the lock is taken: sessions do not wait for each other's.
        let text = match frame {
            TapFrame::Text(text) => summarize_json(text),
            TapFrame::Binary(bytes) => format!("<{} bytes>", bytes.len()),
            TapFrame::Close(Some(code)) => format!("closed with {code}"),
            TapFrame::Close(None) => "closed".to_owned(),
        };
        self.with_printer(|printer| {
            let after = at.saturating_duration_since(*printer.started_at.get_or_insert(at));
            match (point, frame) {
                (TapPoint::FromClient, TapFrame::Binary(bytes)) => {
                    printer.add_audio(Direction::Up, after, bytes.len())
                }
                (TapPoint::ToClient, TapFrame::Binary(bytes)) => {
                    printer.add_audio(Direction::Down, after, bytes.len())
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

/// Audio frames of one direction that make one line.
#[derive(Debug, Clone, Copy, Default)]
struct AudioRun {
    frames: usize,
    bytes: usize,
    /// When the last of them passed.
    at: Duration,
}

struct ColumnPrinter {
    out: Box<dyn Write + Send>,
    columns: usize,
    colour: bool,
    started_at: Option<Instant>,
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
        // On the client's wire the order of messages and audio means something.
        if column == Column::Left {
            self.flush(Direction::Up);
            self.flush(Direction::Down);
        }
        self.write_line(at, column, direction, &line);
    }

    fn add_audio(&mut self, direction: Direction, at: Duration, bytes: usize) {
        let run = self.audio_run(direction);
        run.frames += 1;
        run.bytes += bytes;
        run.at = at;
        if audio_duration(run.bytes, direction) >= AUDIO_LINE_MAX {
            self.flush(direction);
        }
    }

    fn flush(&mut self, direction: Direction) {
        let run = std::mem::take(self.audio_run(direction));
        if run.frames == 0 {
            return;
        }
        let arrow = if direction == Direction::Up { '→' } else { '←' };
        let frames = if run.frames == 1 { "frame" } else { "frames" };
        let seconds = audio_duration(run.bytes, direction).as_secs_f64();
        let text = format!("{arrow} … {} {frames}, {seconds:.1} s of audio", run.frames);
        self.write_line(run.at, Column::Left, direction, &text);
    }

    fn audio_run(&mut self, direction: Direction) -> &mut AudioRun {
        match direction {
            Direction::Up => &mut self.upward,
            Direction::Down => &mut self.downward,
        }
    }

    fn write_line(&mut self, at: Duration, column: Column, direction: Direction, text: &str) {
        let at = format!("{:8.2} ", at.as_secs_f64());
        let width = self.column_width(at.len());
        let truncated = console::truncate_str(text, width, "…");
        let coloured = if self.colour { colourize(&truncated, direction) } else { truncated.into_owned() };
        self.write_row(&at, column, &coloured, None);
    }

    /// Writes a line whole, so that sessions do not mix within it.
    fn write_row(&mut self, at: &str, column: Column, text: &str, right_text: Option<&str>) {
        const TIME_WIDTH: usize = 9;
        let width = self.column_width(TIME_WIDTH);
        let (left, right) = match column {
            Column::Left => (text, right_text.unwrap_or_default()),
            Column::Right => ("", text),
        };
        let left = console::pad_str(left, width, console::Alignment::Left, None);
        let mut line = String::with_capacity(self.columns * 2);
        let _ = write!(line, "{at:TIME_WIDTH$}{left}{COLUMN_SEPARATOR}{right}");
        line.truncate(line.trim_end().len());
        line.push('\n');
        // Nobody reads any more: the session goes on without the view.
        let _ = self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush());
    }

    /// Of one column, beside the time.
    fn column_width(&self, time_width: usize) -> usize {
        (self.columns - time_width - 3) / 2
    }
}

/// How long audio lasts.
fn audio_duration(bytes: usize, direction: Direction) -> Duration {
    let per_second =
        if direction == Direction::Up { MICROPHONE_BYTES_PER_SECOND } else { SPEAKER_BYTES_PER_SECOND };
    Duration::from_secs_f64(bytes as f64 / f64::from(per_second))
}

fn colourize(text: &str, direction: Direction) -> String {
    let style = console::Style::new().force_styling(true);
    let style = if direction == Direction::Up { style.cyan() } else { style.green() };
    style.apply_to(text).to_string()
}

#[cfg(test)]
mod tests;
