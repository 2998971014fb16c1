//! Feeding a trace to a new bridge, and comparing what comes out.
//!
//! With the mappings it was recorded with, everything happens at the recorded instants and must come out as it did, byte
//! for byte. With another profile the bridge gets the timeouts it asks for itself; the client and the upstream still say
//! what they said then, at the time they said it: they cannot answer what they were not told.

use std::time::{Duration, Instant};

use super::{
    Trace, TraceRecord,
    diff::{Differences, compare},
    record::{InputKind, OutputKind},
    redact::{AudioRetention, MASK, Redactor, fill_with_silence},
};
use crate::{
    bridge::{Bridge, Input, Output},
    mapping::Library,
    session::Observation,
};

/// Outputs after one input, and timeouts in a row, above which a bridge goes round in circles.
const STEPS_MAX: usize = 100_000;

/// What came of a replay.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ReplayOutcome {
    /// What differs.
    pub differences: Differences,
    /// Inputs that were given.
    pub inputs: usize,
    /// Outputs that were compared.
    pub outputs: usize,
    /// How long the session lasted, ms.
    pub lasted_ms: u64,
    /// What could not be judged, and why, a sentence each.
    pub not_judged: Vec<String>,
}

impl ReplayOutcome {
    /// Nothing differs.
    #[must_use]
    pub const fn is_same(&self) -> bool {
        self.differences.count == 0
    }
}

/// Replays a trace with the mappings it was recorded with.
///
/// # Errors
/// A mapping that is not there any more, or a line that says nothing.
pub fn replay(trace: &Trace, embedded: Library, epoch: Instant) -> Result<ReplayOutcome, String> {
    let library = trace.header.library(embedded)?;
    let mut run = ReplayRun::new(trace, &library, &trace.header.profile, epoch)?;
    let mut steps = trace.recorded_steps().peekable();
    while let Some(step) = steps.next() {
        let is_drained_after = steps.peek().map_or(!trace.is_truncated, |next| !next.is_in_a_row());
        run.replay_step(&step, is_drained_after)?;
    }
    // The instants of outputs are those at which they were asked for.
    Ok(run.into_outcome(trace, |expected, got| expected == got))
}

/// Replays a trace with another profile of this library.
///
/// # Errors
/// As [`replay`].
pub fn replay_with_profile(
    trace: &Trace,
    library: &Library,
    profile: &str,
    epoch: Instant,
) -> Result<ReplayOutcome, String> {
    let mut run = ReplayRun::new(trace, library, profile, epoch)?;
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
        "client and upstream say what they said to the other profile; times, counts and the audio itself are not compared"
            .to_owned(),
    );
    Ok(outcome)
}

/// A line without numbers: with another profile the same things happen at other times.
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

/// An input with the outputs that followed it; the first has none: the session was opened.
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

/// A bridge under replay.
struct ReplayRun {
    bridge: Bridge,
    redactor: Redactor,
    audio: AudioRetention,
    epoch: Instant,
    outputs: Vec<TraceRecord>,
    inputs: usize,
    now_ns: u64,
    wakeup_at: Option<Instant>,
    /// Bytes of the microphone, and pieces of audio of upstreams and voices, for which silence stood in.
    silenced: (u64, usize),
}

impl ReplayRun {
    fn new(trace: &Trace, library: &Library, profile: &str, epoch: Instant) -> Result<Self, String> {
        let mut header = trace.header.clone();
        profile.clone_into(&mut header.profile);
        if profile != trace.header.profile {
            header.language.clone_from(&library.profile(profile)?.hear.language);
        }
        Ok(Self {
            bridge: header.open_bridge(epoch, library)?,
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

    fn instant_at(&self, ns: u64) -> Instant {
        self.epoch.checked_add(Duration::from_nanos(ns)).unwrap_or(self.epoch)
    }

    /// One input and its outputs, each asked for when it was.
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
        Err(format!("the bridge never waits after {} inputs", self.inputs))
    }

    /// Asks for one output; whether there is no more.
    fn poll_one(&mut self, ns: u64) -> bool {
        self.now_ns = ns;
        let at = self.instant_at(ns);
        let mut output = self.bridge.poll_output(at);
        // What is measured is no output of a trace, and none that was waited for.
        while let Output::Observe(Observation::Measured(_)) = output {
            output = self.bridge.poll_output(at);
        }
        if let Some(mut record) = TraceRecord::from_output(ns, &output, self.audio) {
            self.redactor.redact(&mut record);
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
        let input_error = |words| format!("input {} of the trace: {words}", self.inputs);
        let now = now.ok_or_else(|| input_error("its instant is beyond any clock".to_owned()))?;
        restored
            .as_ref()
            .unwrap_or(record)
            .with_input(|input| bridge.handle_input(now, input))
            .map_err(input_error)
    }

    /// A line whose audio was left out, with silence instead.
    fn with_silence(&mut self, record: &TraceRecord) -> Option<TraceRecord> {
        if self.audio == AudioRetention::All {
            return None;
        }
        self.silenced.0 += record.bytes.filter(|_| record.input == Some(InputKind::Client)).unwrap_or(0);
        let (text, count) = fill_with_silence(record.text.as_ref()?);
        self.silenced.1 += count;
        (count > 0).then(|| TraceRecord { text: Some(text), ..record.clone() })
    }

    /// What is due until then happens when it is due.
    fn run_timeouts_until(&mut self, ns: u64) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            let due = self.wakeup_at.and_then(|wait| wait.checked_duration_since(self.epoch));
            let due = due.and_then(|due| u64::try_from(due.as_nanos()).ok()).map(|due| due.max(self.now_ns));
            let Some(due) = due.filter(|due| *due <= ns) else { return Ok(()) };
            self.bridge.handle_input(self.instant_at(due), Input::Timeout);
            self.drain_outputs(due)?;
        }
        Err("the bridge is woken over and over".to_owned())
    }

    fn into_outcome(
        self,
        trace: &Trace,
        is_same: impl Fn(&TraceRecord, &TraceRecord) -> bool,
    ) -> ReplayOutcome {
        let expected: Vec<TraceRecord> =
            trace.records.iter().filter(|record| record.output.is_some()).cloned().collect();
        let differences = compare(&expected, &self.outputs, is_same);
        let mut not_judged = Vec::new();
        let (microphone, audio_strings) = self.silenced;
        if microphone > 0 {
            not_judged.push(format!(
                "{microphone} bytes of the client's audio are not in the trace, and silence stood in for them: what follows from hearing them cannot come out the same"
            ));
        }
        if audio_strings > 0 {
            not_judged.push(format!(
                "{audio_strings} pieces of audio in messages are not in the trace, and silence stood in for them: what audio holds was not compared"
            ));
        }
        let is_masked = |record: &&TraceRecord| {
            record.input.is_some() && record.text.as_ref().is_some_and(|text| text.contains(MASK))
        };
        match trace.records.iter().filter(is_masked).count() {
            0 => {}
            count => not_judged.push(format!("{count} messages had secrets in them, which are masked")),
        }
        if trace.lost_records > 0 {
            not_judged.push(format!("{} lines were lost in recording", trace.lost_records));
        }
        if trace.is_truncated {
            not_judged.push("the trace breaks off before the session's end".to_owned());
        }
        let outputs = expected.iter().filter(|record| record.output != Some(OutputKind::Finished)).count();
        let lasted_ms = trace.records.iter().map(|record| record.ns).max().unwrap_or(0) / 1_000_000;
        ReplayOutcome { differences, inputs: self.inputs, outputs, lasted_ms, not_judged }
    }
}
