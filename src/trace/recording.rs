//! Whole traces: taken from a bridge, written as text, read again.

use std::time::Instant;

use super::{
    TraceHeader, TraceRecord, VERSION,
    record::OutputKind,
    redact::{AudioRetention, Redactor},
};
use crate::bridge::{Input, Output};

/// Sees a bridge's inputs and outputs and says each as a [`TraceRecord`], at once and cheaply.
#[derive(Debug)]
pub struct TraceTap {
    opened_at: Instant,
    audio: AudioRetention,
    is_drained: bool,
}

impl TraceTap {
    /// Watches a bridge opened at this instant, for a trace that keeps this audio.
    #[must_use]
    pub const fn new(opened_at: Instant, audio: AudioRetention) -> Self {
        Self { opened_at, audio, is_drained: false }
    }

    /// What the bridge is about to take.
    pub fn record_input(&mut self, now: Instant, input: &Input<'_>) -> TraceRecord {
        let in_a_row = !std::mem::replace(&mut self.is_drained, false);
        TraceRecord { in_a_row, ..TraceRecord::from_input(self.ns_since_open(now), input, self.audio) }
    }

    /// What the bridge gave; waiting makes no line.
    pub fn record_output(&mut self, now: Instant, output: &Output) -> Option<TraceRecord> {
        self.is_drained |= matches!(output, Output::Wait(_) | Output::Finished);
        TraceRecord::from_output(self.ns_since_open(now), output, self.audio)
    }

    fn ns_since_open(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.opened_at).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Turns lines into text that may be kept.
#[derive(Debug)]
pub struct TraceWriter {
    redactor: Redactor,
    audio: AudioRetention,
}

impl TraceWriter {
    /// A recorder that keeps this audio.
    #[must_use]
    pub const fn new(audio: AudioRetention) -> Self {
        Self { redactor: Redactor::new(audio), audio }
    }

    /// The first line, with its end.
    #[must_use]
    pub fn format_header(&mut self, mut header: TraceHeader) -> String {
        header.redact(self.audio, &mut self.redactor);
        json_line(&header)
    }

    /// Any other line, with its end.
    #[must_use]
    pub fn format_record(&mut self, mut record: TraceRecord) -> String {
        self.redactor.redact(&mut record);
        json_line(&record)
    }
}

fn json_line(value: &impl serde::Serialize) -> String {
    // Strings, numbers and maps with strings for keys: there is nothing in it that JSON has not.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

/// A trace in memory.
#[derive(Debug)]
pub struct TraceBuffer {
    tap: TraceTap,
    writer: TraceWriter,
    /// What is on it so far.
    pub text: String,
}

impl TraceBuffer {
    /// Begins a trace of a bridge opened at this instant.
    #[must_use]
    pub fn new(opened_at: Instant, header: TraceHeader, audio: AudioRetention) -> Self {
        let mut writer = TraceWriter::new(audio);
        let text = writer.format_header(header);
        Self { tap: TraceTap::new(opened_at, audio), writer, text }
    }

    /// To be called before the bridge takes it.
    pub fn record_input(&mut self, now: Instant, input: &Input<'_>) {
        let record = self.tap.record_input(now, input);
        self.text.push_str(&self.writer.format_record(record));
    }

    /// To be called with all that the bridge gives.
    pub fn record_output(&mut self, now: Instant, output: &Output) {
        if let Some(record) = self.tap.record_output(now, output) {
            self.text.push_str(&self.writer.format_record(record));
        }
    }
}

/// A trace that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Its first line.
    pub header: TraceHeader,
    /// The inputs and outputs, in order.
    pub records: Vec<TraceRecord>,
    /// It breaks off: the recording ended before the session did.
    pub is_truncated: bool,
    /// Lines that were lost in recording.
    pub lost_records: u64,
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line_number}: {message}")]
pub struct TraceParseError {
    /// The line, from 1.
    pub line_number: usize,
    /// What is wrong with it.
    pub message: String,
}

impl Trace {
    /// Reads a trace. A last line that breaks off is what a crash leaves, and no mistake.
    ///
    /// # Errors
    /// The first line that is none of a trace.
    pub fn parse(text: &str) -> Result<Self, TraceParseError> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let header = parse_header(first).map_err(|message| TraceParseError { line_number: 1, message })?;
        let mut trace = Self { header, records: Vec::new(), is_truncated: false, lost_records: 0 };
        for (at, line) in rest.split_inclusive('\n').enumerate() {
            match serde_json::from_str::<TraceRecord>(line) {
                Ok(record) => trace.push_record(record),
                Err(_) if !line.ends_with('\n') => trace.is_truncated = true,
                Err(error) => {
                    return Err(TraceParseError { line_number: at + 2, message: error.to_string() });
                }
            }
        }
        trace.is_truncated |=
            trace.records.last().is_none_or(|last| last.output != Some(OutputKind::Finished));
        Ok(trace)
    }

    fn push_record(&mut self, record: TraceRecord) {
        self.lost_records += record.lost.unwrap_or(0);
        if record.input.is_some() || record.output.is_some() {
            self.records.push(record);
        }
    }
}

fn parse_header(text: &str) -> Result<TraceHeader, String> {
    #[derive(serde::Deserialize)]
    struct FormatVersion {
        trace: u32,
    }
    let FormatVersion { trace } = serde_json::from_str(text).map_err(|error| {
        format!("a trace begins with its format, {{\"trace\":{VERSION},…}}, as `serve --trace` writes it ({error})")
    })?;
    if trace != VERSION {
        return Err(format!("the trace has format {trace}; this version reads format {VERSION}"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}
