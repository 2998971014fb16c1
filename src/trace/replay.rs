//! Replays a trace: feeds its inputs to a new bridge and compares the outputs.
//!
//! With the recorded mappings, the bridge gets all inputs at the recorded instants and must produce the same bytes. With
//! another mapping, the bridge gets the timeouts that it requests. Client and upstream still send the recorded messages at
//! the recorded instants, because they cannot react to other outputs.

use std::time::{Duration, Instant};

use super::{
    Trace, TraceHeader, TraceRecord, VERSION,
    diff::{Differences, compare},
    record::{InputKind, OutputKind},
    redact::{AudioRetention, MASK, Redactor, fill_with_silence},
};
use crate::{
    bridge::{Bridge, EventTap, Input, Output},
    session::{Observation, RecordOptions},
    spelling::{Library, MappingKind},
};

/// Maximum outputs after one input, and maximum consecutive timeouts; a bridge that exceeds it loops.
const STEPS_MAX: usize = 100_000;

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ReplayOutcome {
    /// Differences of the outputs.
    pub differences: Differences,
    /// Number of inputs.
    pub inputs: usize,
    /// Number of compared outputs.
    pub outputs: usize,
    /// Duration of the session, ms.
    pub lasted_ms: u64,
    /// Reasons why parts could not be compared, one sentence each.
    pub not_judged: Vec<String>,
}

impl ReplayOutcome {
    /// True if there are no differences.
    pub const fn is_same(&self) -> bool {
        self.differences.count == 0
    }
}

/// Replays a trace with the recorded mappings.
///
/// # Errors
/// A mapping is missing, or an input is malformed.
pub fn replay(trace: &Trace, embedded: Library, epoch: Instant) -> Result<ReplayOutcome, String> {
    replay_observed(trace, embedded, epoch, &mut |_, _| ())
}

/// Like [`replay`], and shows each output of the new bridge, with the time since the start of the session.
///
/// # Errors
/// As [`replay`].
pub fn replay_observed(
    trace: &Trace,
    embedded: Library,
    epoch: Instant,
    observe: &mut dyn FnMut(Duration, &Output),
) -> Result<ReplayOutcome, String> {
    let library = trace.header.library(embedded)?;
    ReplayRun::new(&trace.header, &library, epoch, observe)?.replay_all(trace)
}

/// Like [`replay_observed`], and shows the tap all requests and events. The user's audio is among the outputs, as it is recorded.
///
/// # Errors
/// As [`replay`].
pub fn replay_tapped(
    trace: &Trace,
    embedded: Library,
    epoch: Instant,
    tap: Box<dyn EventTap>,
    observe: &mut dyn FnMut(Duration, &Output),
) -> Result<ReplayOutcome, String> {
    let library = trace.header.library(embedded)?;
    let mut run = ReplayRun::new(&trace.header, &library, epoch, observe)?;
    run.bridge = run.bridge.tap_events(tap).record(RecordOptions { audio: true, events: false });
    run.replay_all(trace)
}

/// Replays a trace with another mapping of this library in place of the recorded one.
///
/// # Errors
/// As [`replay`].
pub fn replay_with_mapping(
    trace: &Trace,
    library: &Library,
    kind: MappingKind,
    name: &str,
    epoch: Instant,
) -> Result<ReplayOutcome, String> {
    let mut header = trace.header.clone();
    let recorded = match kind {
        MappingKind::Client => &mut header.client,
        MappingKind::Upstream => &mut header.dialect,
        MappingKind::Profile => {
            header.language.clone_from(&library.profile(name)?.hear.language);
            &mut header.profile
        }
    };
    name.clone_into(recorded);
    let observe = &mut |_, _: &Output| ();
    let mut run = ReplayRun::new(&header, library, epoch, observe)?;
    run.drain_outputs(0)?;
    for record in
        trace.records.iter().filter(|record| record.input.is_some_and(|kind| kind != InputKind::Timeout))
    {
        run.run_timeouts_until(record.ns)?;
        run.feed_input(record)?;
        run.drain_outputs(record.ns)?;
    }
    let mut outcome =
        run.into_outcome(trace, |expected, got| without_numbers(expected) == without_numbers(got));
    outcome.not_judged.push(
        "client and upstream send what they sent with the recorded mappings; times, counts and audio contents are not compared"
            .to_owned(),
    );
    Ok(outcome)
}

/// Removes the numbers of a record, because times and counts differ with another mapping.
fn without_numbers(record: &TraceRecord) -> TraceRecord {
    let strip_digits = |text: &Option<String>| {
        text.as_ref().map(|text| {
            let mut stripped = text.replace(|letter: char| letter.is_ascii_digit() || letter == '.', "");
            stripped.truncate(stripped.floor_char_boundary(4096));
            stripped
        })
    };
    TraceRecord {
        ns: 0,
        bytes: None,
        digest: None,
        text: strip_digits(&record.text),
        words: strip_digits(&record.words),
        ..record.clone()
    }
}

/// Removes the wording of an observation.
fn without_observation(record: &TraceRecord) -> TraceRecord {
    let words = record.words.clone().filter(|_| record.output != Some(OutputKind::Observe));
    TraceRecord { words, ..record.clone() }
}

/// Input with the outputs that followed it; the first step, the start of the session, has no input.
struct RecordedStep<'t> {
    input: Option<&'t TraceRecord>,
    outputs: &'t [TraceRecord],
}

impl RecordedStep<'_> {
    fn is_in_a_row(&self) -> bool {
        self.input.is_some_and(|input| input.in_a_row)
    }
}

impl Trace {
    fn recorded_steps(&self) -> impl Iterator<Item = RecordedStep<'_>> {
        let starts =
            self.records.iter().enumerate().filter(|(_, record)| record.input.is_some()).map(|(at, _)| at);
        let mut ends = starts.clone().chain([self.records.len()]);
        let opening = RecordedStep { input: None, outputs: &self.records[..ends.next().unwrap_or(0)] };
        let rest = starts.zip(ends).map(|(from, to)| RecordedStep {
            input: Some(&self.records[from]),
            outputs: &self.records[from + 1..to],
        });
        [opening].into_iter().chain(rest)
    }
}

/// Running replay.
struct ReplayRun<'o> {
    bridge: Bridge,
    /// Sees each output.
    observe: &'o mut dyn FnMut(Duration, &Output),
    redactor: Redactor,
    audio: AudioRetention,
    epoch: Instant,
    outputs: Vec<TraceRecord>,
    inputs: usize,
    now_ns: u64,
    wakeup_at: Option<Instant>,
    /// Missing audio replaced by silence: bytes of microphone audio, and number of audio strings in messages.
    silenced: (u64, usize),
}

impl<'o> ReplayRun<'o> {
    fn new(
        header: &TraceHeader,
        library: &Library,
        epoch: Instant,
        observe: &'o mut dyn FnMut(Duration, &Output),
    ) -> Result<Self, String> {
        Ok(Self {
            bridge: header.open_bridge(epoch, library)?,
            observe,
            redactor: Redactor::new(header.audio),
            audio: header.audio,
            epoch,
            outputs: Vec::new(),
            inputs: 0,
            now_ns: 0,
            wakeup_at: None,
            silenced: (0, 0),
        })
    }

    fn replay_all(mut self, trace: &Trace) -> Result<ReplayOutcome, String> {
        let mut steps = trace.recorded_steps().peekable();
        while let Some(step) = steps.next() {
            let is_drained_after = steps.peek().map_or(!trace.is_truncated, |next| !next.is_in_a_row());
            self.replay_step(&step, is_drained_after)?;
        }
        // Outputs carry the instant at which they were polled, so that whole records are comparable.
        Ok(self.into_outcome(trace, |expected, got| expected == got))
    }

    fn instant_at(&self, ns: u64) -> Instant {
        self.epoch.checked_add(Duration::from_nanos(ns)).unwrap_or(self.epoch)
    }

    /// Feeds one input and polls its outputs at the recorded instants.
    fn replay_step(&mut self, step: &RecordedStep<'_>, is_drained_after: bool) -> Result<(), String> {
        if let Some(input) = step.input {
            self.feed_input(input)?;
        }
        for recorded in step.outputs {
            if self.poll_one(recorded.ns) {
                return Ok(());
            }
        }
        if is_drained_after { self.drain_outputs(self.now_ns) } else { Ok(()) }
    }

    fn drain_outputs(&mut self, ns: u64) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            if self.poll_one(ns) {
                return Ok(());
            }
        }
        Err(format!("after {} inputs, the bridge returns outputs without end", self.inputs))
    }

    /// Polls one output; returns `true` if there are no more.
    fn poll_one(&mut self, ns: u64) -> bool {
        self.now_ns = ns;
        let at = self.instant_at(ns);
        let mut output = self.bridge.poll_output(at);
        (self.observe)(Duration::from_nanos(ns), &output);
        // A trace has neither measurements nor recorded audio.
        while matches!(output, Output::Observe(Observation::Measured(_)) | Output::Record(_)) {
            output = self.bridge.poll_output(at);
            (self.observe)(Duration::from_nanos(ns), &output);
        }
        if let Some(mut record) = TraceRecord::from_output(ns, &output, self.audio) {
            record.redact(&mut self.redactor);
            self.outputs.push(record);
        }
        self.wakeup_at = if let Output::Wait(wait) = output { wait } else { None };
        matches!(output, Output::Wait(_) | Output::Finished)
    }

    fn feed_input(&mut self, record: &TraceRecord) -> Result<(), String> {
        self.inputs += 1;
        self.now_ns = record.ns;
        let restored = self.with_silence(record);
        let (bridge, now) = (&mut self.bridge, self.epoch.checked_add(Duration::from_nanos(record.ns)));
        let input_error = |error| format!("input {} of the trace: {error}", self.inputs);
        let now =
            now.ok_or_else(|| input_error("the field `ns` exceeds the range of the clock".to_owned()))?;
        restored
            .as_ref()
            .unwrap_or(record)
            .with_input(|input| bridge.handle_input(now, input))
            .map_err(input_error)
    }

    /// Replaces the missing audio of a record by silence; `None` if no audio is missing.
    fn with_silence(&mut self, record: &TraceRecord) -> Option<TraceRecord> {
        if self.audio == AudioRetention::All {
            return None;
        }
        self.silenced.0 += record.bytes.filter(|_| record.input == Some(InputKind::Client)).unwrap_or(0);
        let (text, count) = fill_with_silence(record.text.as_ref()?);
        self.silenced.1 += count;
        (count > 0).then(|| TraceRecord { text: Some(text), ..record.clone() })
    }

    /// Feeds the timeouts that are due until `ns`.
    fn run_timeouts_until(&mut self, ns: u64) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            let due = self.wakeup_at.and_then(|wait| wait.checked_duration_since(self.epoch));
            let due = due.and_then(|due| u64::try_from(due.as_nanos()).ok()).map(|due| due.max(self.now_ns));
            let Some(due) = due.filter(|due| *due <= ns) else { return Ok(()) };
            self.bridge.handle_input(self.instant_at(due), Input::Timeout);
            self.drain_outputs(due)?;
        }
        Err("the bridge requests timeouts without end".to_owned())
    }

    fn into_outcome(
        self,
        trace: &Trace,
        is_same: impl Fn(&TraceRecord, &TraceRecord) -> bool,
    ) -> ReplayOutcome {
        let expected: Vec<TraceRecord> =
            trace.records.iter().filter(|record| record.output.is_some()).cloned().collect();
        // The first version of the format wrote observations in another form.
        let is_older = trace.header.trace < VERSION;
        let differences = compare(&expected, &self.outputs, |expected, got| {
            is_same(expected, got)
                || is_older && is_same(&without_observation(expected), &without_observation(got))
        });
        let mut not_judged = Vec::new();
        if is_older {
            not_judged.push(
                "an older voxbridge recorded the trace; the wording of observations is not compared"
                    .to_owned(),
            );
        }
        let (microphone, audio_strings) = self.silenced;
        if microphone > 0 {
            not_judged.push(format!(
                "the trace lacks {microphone} bytes of the client's audio, which were replayed as silence; outputs that depend on this audio differ"
            ));
        }
        if audio_strings > 0 {
            not_judged.push(format!(
                "the trace lacks {audio_strings} audio strings in messages, which were replayed as silence; audio contents were not compared"
            ));
        }
        let is_masked = |record: &&TraceRecord| {
            record.input.is_some() && record.text.as_ref().is_some_and(|text| text.contains(MASK))
        };
        match trace.records.iter().filter(is_masked).count() {
            0 => {}
            count => not_judged.push(format!("{count} messages contain masked secrets")),
        }
        if trace.lost_records > 0 {
            not_judged.push(format!("{} lines were lost during recording", trace.lost_records));
        }
        if trace.is_truncated {
            not_judged.push("the trace ends before the end of the session".to_owned());
        }
        let outputs = expected.iter().filter(|record| record.output != Some(OutputKind::Finished)).count();
        let lasted_ms = trace.records.iter().map(|record| record.ns).max().unwrap_or(0) / 1_000_000;
        ReplayOutcome { differences, inputs: self.inputs, outputs, lasted_ms, not_judged }
    }
}
