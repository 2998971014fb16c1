//! Whole traces: taken from a bridge, written as text, read again.

use std::time::Instant;

use super::{
    Line, Start, VERSION,
    record::Went,
    redact::{Cleaner, Kept},
};
use crate::bridge::{Input, Output};

/// Sees a bridge's inputs and outputs and says each as a [`Line`], at once and cheaply.
#[derive(Debug)]
pub struct Watch {
    opened: Instant,
    audio: Kept,
    drained: bool,
}

impl Watch {
    /// Watches a bridge opened at this instant, for a trace that keeps this audio.
    #[must_use]
    pub const fn new(opened: Instant, audio: Kept) -> Self {
        Self { opened, audio, drained: false }
    }

    /// What the bridge is about to take.
    pub fn input(&mut self, now: Instant, input: &Input<'_>) -> Line {
        let in_a_row = !std::mem::replace(&mut self.drained, false);
        Line { in_a_row, ..Line::of_input(self.since(now), input, self.audio) }
    }

    /// What the bridge gave; waiting makes no line.
    pub fn output(&mut self, now: Instant, output: &Output) -> Option<Line> {
        self.drained |= matches!(output, Output::Wait(_) | Output::Finished);
        Line::of_output(self.since(now), output, self.audio)
    }

    fn since(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.opened).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Turns lines into text that may be kept.
#[derive(Debug)]
pub struct Recorder {
    cleaner: Cleaner,
    audio: Kept,
}

impl Recorder {
    /// A recorder that keeps this audio.
    #[must_use]
    pub const fn new(audio: Kept) -> Self {
        Self { cleaner: Cleaner::new(audio), audio }
    }

    /// The first line, with its end.
    #[must_use]
    pub fn start(&mut self, mut start: Start) -> String {
        start.clean(self.audio, &mut self.cleaner);
        text_of(&start)
    }

    /// Any other line, with its end.
    #[must_use]
    pub fn line(&mut self, mut line: Line) -> String {
        self.cleaner.clean(&mut line);
        text_of(&line)
    }
}

fn text_of(line: &impl serde::Serialize) -> String {
    // Strings, numbers and maps with strings for keys: there is nothing in it that JSON has not.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

/// A trace in memory.
#[derive(Debug)]
pub struct Tape {
    watch: Watch,
    recorder: Recorder,
    /// What is on it so far.
    pub text: String,
}

impl Tape {
    /// Begins a trace of a bridge opened at this instant.
    #[must_use]
    pub fn new(opened: Instant, start: Start, audio: Kept) -> Self {
        let mut recorder = Recorder::new(audio);
        let text = recorder.start(start);
        Self { watch: Watch::new(opened, audio), recorder, text }
    }

    /// To be called before the bridge takes it.
    pub fn input(&mut self, now: Instant, input: &Input<'_>) {
        let line = self.watch.input(now, input);
        self.text.push_str(&self.recorder.line(line));
    }

    /// To be called with all that the bridge gives.
    pub fn output(&mut self, now: Instant, output: &Output) {
        if let Some(line) = self.watch.output(now, output) {
            self.text.push_str(&self.recorder.line(line));
        }
    }
}

/// A trace that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Its first line.
    pub start: Start,
    /// The inputs and outputs, in order.
    pub lines: Vec<Line>,
    /// It breaks off: the recording ended before the session did.
    pub broken_off: bool,
    /// Lines that were lost in recording.
    pub lost: u64,
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {words}")]
pub struct NoTrace {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub words: String,
}

impl Trace {
    /// Reads a trace. A last line that breaks off is what a crash leaves, and no mistake.
    ///
    /// # Errors
    /// The first line that is none of a trace.
    pub fn read(text: &str) -> Result<Self, NoTrace> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let start = read_start(first).map_err(|words| NoTrace { line: 1, words })?;
        let mut trace = Self { start, lines: Vec::new(), broken_off: false, lost: 0 };
        for (at, written) in rest.split_inclusive('\n').enumerate() {
            match serde_json::from_str::<Line>(written) {
                Ok(line) => trace.take(line),
                Err(_) if !written.ends_with('\n') => trace.broken_off = true,
                Err(error) => return Err(NoTrace { line: at + 2, words: error.to_string() }),
            }
        }
        trace.broken_off |= trace.lines.last().is_none_or(|last| last.went != Some(Went::Finished));
        Ok(trace)
    }

    fn take(&mut self, line: Line) {
        self.lost += line.lost.unwrap_or(0);
        if line.came.is_some() || line.went.is_some() {
            self.lines.push(line);
        }
    }
}

fn read_start(line: &str) -> Result<Start, String> {
    #[derive(serde::Deserialize)]
    struct Head {
        trace: u32,
    }
    let Head { trace } = serde_json::from_str(line).map_err(|error| {
        format!("a trace begins with its format, {{\"trace\":{VERSION},…}}, as `serve --trace` writes it ({error})")
    })?;
    if trace != VERSION {
        return Err(format!("the trace has format {trace}; this version reads format {VERSION}"));
    }
    serde_json::from_str(line).map_err(|error| error.to_string())
}
