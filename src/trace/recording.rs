//! Whole traces: recorded at a bridge, formatted as text, and parsed.

use std::time::Instant;

use super::{
    TraceHeader, TraceRecord, VERSION,
    record::OutputKind,
    redact::{AudioRetention, Redactor},
};
use crate::bridge::{Input, Output};

/// Converts inputs and outputs of a bridge to [`TraceRecord`]s. Runs on the session's thread, so it must be cheap.
#[derive(Debug)]
pub struct TraceTap {
    opened_at: Instant,
    audio: AudioRetention,
    is_drained: bool,
}

impl TraceTap {
    /// Creates a tap of a bridge opened at this instant, for a trace that keeps this audio.
    pub const fn new(opened_at: Instant, audio: AudioRetention) -> Self {
        Self { opened_at, audio, is_drained: false }
    }

    /// Records an input; call it before the bridge handles the input.
    pub fn record_input(&mut self, now: Instant, input: &Input<'_>) -> TraceRecord {
        let in_a_row = !std::mem::replace(&mut self.is_drained, false);
        TraceRecord { in_a_row, ..TraceRecord::from_input(self.ns_since_open(now), input, self.audio) }
    }

    /// Records an output; `None` for waiting and for measurements.
    pub fn record_output(&mut self, now: Instant, output: &Output) -> Option<TraceRecord> {
        self.is_drained |= matches!(output, Output::Wait(_) | Output::Finished);
        TraceRecord::from_output(self.ns_since_open(now), output, self.audio)
    }

    fn ns_since_open(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.opened_at).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Redacts records and formats them as JSON lines.
#[derive(Debug)]
pub struct TraceWriter {
    redactor: Redactor,
    audio: AudioRetention,
}

impl TraceWriter {
    /// Creates a writer that keeps this audio.
    pub const fn new(audio: AudioRetention) -> Self {
        Self { redactor: Redactor::new(audio), audio }
    }

    /// Formats the header, with its line break.
    pub fn format_header(&mut self, mut header: TraceHeader) -> String {
        header.redact(self.audio, &mut self.redactor);
        json_line(&header)
    }

    /// Formats a record, with its line break.
    pub fn format_record(&mut self, mut record: TraceRecord) -> String {
        record.redact(&mut self.redactor);
        json_line(&record)
    }
}

fn json_line(value: &impl serde::Serialize) -> String {
    // Cannot fail: the value has only strings, numbers and maps with string keys.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Trace in memory.
#[derive(Debug)]
pub struct TraceBuffer {
    tap: TraceTap,
    writer: TraceWriter,
    /// Text so far.
    pub text: String,
}

impl TraceBuffer {
    /// Starts a trace of a bridge opened at this instant.
    pub fn new(opened_at: Instant, header: TraceHeader, audio: AudioRetention) -> Self {
        let mut writer = TraceWriter::new(audio);
        let text = writer.format_header(header);
        Self { tap: TraceTap::new(opened_at, audio), writer, text }
    }

    /// Records an input; call it before the bridge handles the input.
    pub fn record_input(&mut self, now: Instant, input: &Input<'_>) {
        let record = self.tap.record_input(now, input);
        self.text.push_str(&self.writer.format_record(record));
    }

    /// Records an output; call it with every output of the bridge.
    pub fn record_output(&mut self, now: Instant, output: &Output) {
        if let Some(record) = self.tap.record_output(now, output) {
            self.text.push_str(&self.writer.format_record(record));
        }
    }
}

/// Parsed trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// First line.
    pub header: TraceHeader,
    /// Inputs and outputs, in order.
    pub records: Vec<TraceRecord>,
    /// True if the recording ended before the session.
    pub is_truncated: bool,
    /// Number of lines lost during recording.
    pub lost_records: u64,
}

/// Error of a text that is not a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line_number}: {message}")]
pub struct TraceParseError {
    /// Line number, from 1.
    pub line_number: usize,
    /// Problem of the line.
    pub message: String,
}

impl Trace {
    /// Parses a trace. An incomplete last line is accepted, because a crash leaves one behind.
    ///
    /// # Errors
    /// The first malformed line.
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
        format!(
            "a trace from `serve --trace` begins with its format version, {{\"trace\":{VERSION},…}} ({error})"
        )
    })?;
    if !(1..=VERSION).contains(&trace) {
        return Err(format!(
            "the trace has format version {trace}; this voxbridge reads versions 1 to {VERSION}"
        ));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}
