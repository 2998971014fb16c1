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
use crate::server::tap::{Passed, Tap, Wire};

use super::json_summary::brief;

/// Where the output is no terminal: wide enough for both columns.
const DEFAULT_COLUMNS: usize = 160;

/// Below this the columns would say nothing.
const LEAST_COLUMNS: usize = 40;

/// So much audio of one direction makes a line even if nothing else happens, so that the view does not seem stuck.
const MOST_AUDIO: Duration = Duration::from_secs(5);

/// Bytes per second of int16 mono towards voxbridge and towards the client.
const MICROPHONE_BYTES: u32 = 2 * SPEECH_RATE_HZ;
const SPEAKER_BYTES: u32 = 2 * MODEL_RATE_HZ;

/// Between the columns.
const GAP: &str = " │ ";

/// A [`Tap`] that prints two columns.
pub struct SideBySide {
    view: Mutex<View>,
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
        let columns = columns.max(LEAST_COLUMNS);
        let view = View {
            out: Box::new(out),
            columns,
            colour,
            began: None,
            up: Run::default(),
            down: Run::default(),
        };
        Self { view: Mutex::new(view) }
    }

    /// The names of the columns; call it before the first session.
    pub fn header(&self) {
        self.with(|view| view.put("", Side::Left, "client ⇄ voxbridge", Some("voxbridge ⇄ MiniCPM-o")));
    }

    /// Prints audio that is still being summed up; call it when the sessions are over.
    pub fn flush(&self) {
        self.with(|view| {
            view.flush(Direction::Up);
            view.flush(Direction::Down);
        });
    }

    fn with(&self, act: impl FnOnce(&mut View)) {
        // A view that panicked half-way through a line is still a view.
        act(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Tap for SideBySide {
    fn passed(&self, _session_id: &str, at: Instant, wire: Wire, frame: Passed<'_>) {
        // Long messages are read before the lock is taken: sessions do not wait for each other's.
        let words = match frame {
            Passed::Text(text) => brief(text),
            Passed::Binary(bytes) => format!("<{} bytes>", bytes.len()),
            Passed::Close(Some(code)) => format!("closed with {code}"),
            Passed::Close(None) => "closed".to_owned(),
        };
        self.with(|view| {
            let after = at.saturating_duration_since(*view.began.get_or_insert(at));
            match (wire, frame) {
                (Wire::FromClient, Passed::Binary(bytes)) => view.sum(Direction::Up, after, bytes.len()),
                (Wire::ToClient, Passed::Binary(bytes)) => view.sum(Direction::Down, after, bytes.len()),
                _ => view.message(after, wire, &words),
            }
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
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
struct Run {
    frames: usize,
    bytes: usize,
    /// When the last of them passed.
    at: Duration,
}

struct View {
    out: Box<dyn Write + Send>,
    columns: usize,
    colour: bool,
    began: Option<Instant>,
    up: Run,
    down: Run,
}

impl View {
    fn message(&mut self, at: Duration, wire: Wire, words: &str) {
        let (side, direction, line) = match wire {
            Wire::FromClient => (Side::Left, Direction::Up, format!("→ {words}")),
            Wire::ToClient => (Side::Left, Direction::Down, format!("← {words}")),
            Wire::ToLane(lane) => (Side::Right, Direction::Up, format!("→ #{} {words}", lane.0)),
            Wire::FromLane(lane) => (Side::Right, Direction::Down, format!("← #{} {words}", lane.0)),
        };
        // On the client's wire the order of messages and audio means something.
        if side == Side::Left {
            self.flush(Direction::Up);
            self.flush(Direction::Down);
        }
        self.line(at, side, direction, &line);
    }

    fn sum(&mut self, direction: Direction, at: Duration, bytes: usize) {
        let run = self.run(direction);
        run.frames += 1;
        run.bytes += bytes;
        run.at = at;
        if lasts(run.bytes, direction) >= MOST_AUDIO {
            self.flush(direction);
        }
    }

    fn flush(&mut self, direction: Direction) {
        let run = std::mem::take(self.run(direction));
        if run.frames == 0 {
            return;
        }
        let arrow = if direction == Direction::Up { '→' } else { '←' };
        let frames = if run.frames == 1 { "frame" } else { "frames" };
        let seconds = lasts(run.bytes, direction).as_secs_f64();
        let words = format!("{arrow} … {} {frames}, {seconds:.1} s of audio", run.frames);
        self.line(run.at, Side::Left, direction, &words);
    }

    fn run(&mut self, direction: Direction) -> &mut Run {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    fn line(&mut self, at: Duration, side: Side, direction: Direction, words: &str) {
        let at = format!("{:8.2} ", at.as_secs_f64());
        let width = self.width(at.len());
        let cut = console::truncate_str(words, width, "…");
        let coloured = if self.colour { paint(&cut, direction) } else { cut.into_owned() };
        self.put(&at, side, &coloured, None);
    }

    /// Writes a line whole, so that sessions do not mix within it.
    fn put(&mut self, at: &str, side: Side, words: &str, beside: Option<&str>) {
        const TIME: usize = 9;
        let width = self.width(TIME);
        let (left, right) = match side {
            Side::Left => (words, beside.unwrap_or_default()),
            Side::Right => ("", words),
        };
        let left = console::pad_str(left, width, console::Alignment::Left, None);
        let mut line = String::with_capacity(self.columns * 2);
        let _ = write!(line, "{at:TIME$}{left}{GAP}{right}");
        line.truncate(line.trim_end().len());
        line.push('\n');
        // Nobody reads any more: the session goes on without the view.
        let _ = self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush());
    }

    /// Of one column, beside the time.
    fn width(&self, time: usize) -> usize {
        (self.columns - time - 3) / 2
    }
}

/// How long audio lasts.
fn lasts(bytes: usize, direction: Direction) -> Duration {
    let per_second = if direction == Direction::Up { MICROPHONE_BYTES } else { SPEAKER_BYTES };
    Duration::from_secs_f64(bytes as f64 / f64::from(per_second))
}

fn paint(words: &str, direction: Direction) -> String {
    let style = console::Style::new().force_styling(true);
    let style = if direction == Direction::Up { style.cyan() } else { style.green() };
    style.apply_to(words).to_string()
}

#[cfg(test)]
mod tests;
