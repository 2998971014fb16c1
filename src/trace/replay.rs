//! Feeding a trace to a new bridge, and comparing what comes out.
//!
//! With the mappings it was recorded with, everything happens at the recorded instants and must come out as it did, byte
//! for byte. With another profile the bridge gets the timeouts it asks for itself; the client and the upstream still say
//! what they said then, at the time they said it: they cannot answer what they were not told.

use std::time::{Duration, Instant};

use super::{
    Line, Trace,
    diff::{Differences, compare},
    record::{Came, Went},
    redact::{Cleaner, Kept, MASK, restored},
};
use crate::{
    bridge::{Bridge, Input, Output},
    mapping::Library,
    session::Observation,
};

/// Outputs after one input, and timeouts in a row, above which a bridge goes round in circles.
const MOST_IN_A_ROW: usize = 100_000;

/// What came of a replay.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Outcome {
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

impl Outcome {
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
pub fn replay(trace: &Trace, embedded: Library, epoch: Instant) -> Result<Outcome, String> {
    let library = trace.start.library(embedded)?;
    let mut run = Run::new(trace, &library, &trace.start.profile, epoch)?;
    let mut turns = trace.turns().peekable();
    while let Some(turn) = turns.next() {
        let drains = turns.peek().map_or(!trace.broken_off, |next| !next.is_in_a_row());
        run.turn(&turn, drains)?;
    }
    // The instants of outputs are those at which they were asked for.
    Ok(run.outcome(trace, |expected, got| expected == got))
}

/// Replays a trace with another profile of this library.
///
/// # Errors
/// As [`replay`].
pub fn replay_as(trace: &Trace, library: &Library, profile: &str, epoch: Instant) -> Result<Outcome, String> {
    let mut run = Run::new(trace, library, profile, epoch)?;
    run.drain(0)?;
    for line in trace.lines.iter().filter(|line| line.came.is_some_and(|came| came != Came::Timeout)) {
        run.pass_until(line.ns)?;
        run.give(line)?;
        run.drain(line.ns)?;
    }
    let mut outcome = run.outcome(trace, |expected, got| told(expected) == told(got));
    outcome.not_judged.push(
        "client and upstream say what they said to the other profile; times, counts and the audio itself are not compared"
            .to_owned(),
    );
    Ok(outcome)
}

/// A line without numbers: with another profile the same things happen at other times.
fn told(line: &Line) -> Line {
    let plain = |text: &Option<String>| {
        text.as_ref().map(|text| {
            let mut plain = text.replace(|letter: char| letter.is_ascii_digit() || letter == '.', "");
            plain.truncate(plain.floor_char_boundary(4096));
            plain
        })
    };
    Line {
        ns: 0,
        bytes: None,
        digest: None,
        text: plain(&line.text),
        words: plain(&line.words),
        ..line.clone()
    }
}

/// An input with the outputs that followed it; the first has none: the session was opened.
struct Turn<'t> {
    input: Option<&'t Line>,
    outputs: &'t [Line],
}

impl Turn<'_> {
    fn is_in_a_row(&self) -> bool {
        self.input.is_some_and(|input| input.in_a_row)
    }
}

impl Trace {
    fn turns(&self) -> impl Iterator<Item = Turn<'_>> {
        let starts = self.lines.iter().enumerate().filter(|(_, line)| line.came.is_some()).map(|(at, _)| at);
        let mut ends = starts.clone().chain([self.lines.len()]);
        let opening = Turn { input: None, outputs: &self.lines[..ends.next().unwrap_or(0)] };
        let rest = starts
            .zip(ends)
            .map(|(from, to)| Turn { input: Some(&self.lines[from]), outputs: &self.lines[from + 1..to] });
        [opening].into_iter().chain(rest)
    }
}

/// A bridge under replay.
struct Run {
    bridge: Bridge,
    cleaner: Cleaner,
    audio: Kept,
    epoch: Instant,
    got: Vec<Line>,
    inputs: usize,
    now_ns: u64,
    wait: Option<Instant>,
    /// Bytes of the microphone, and pieces of audio of upstreams and voices, for which silence stood in.
    silent: (u64, usize),
}

impl Run {
    fn new(trace: &Trace, library: &Library, profile: &str, epoch: Instant) -> Result<Self, String> {
        let mut start = trace.start.clone();
        profile.clone_into(&mut start.profile);
        if profile != trace.start.profile {
            start.language.clone_from(&library.profile(profile)?.hear.language);
        }
        Ok(Self {
            bridge: start.open(epoch, library)?,
            cleaner: Cleaner::new(start.audio),
            audio: start.audio,
            epoch,
            got: Vec::new(),
            inputs: 0,
            now_ns: 0,
            wait: None,
            silent: (0, 0),
        })
    }

    fn at(&self, ns: u64) -> Instant {
        self.epoch.checked_add(Duration::from_nanos(ns)).unwrap_or(self.epoch)
    }

    /// One input and its outputs, each asked for when it was.
    fn turn(&mut self, turn: &Turn<'_>, drains: bool) -> Result<(), String> {
        if let Some(input) = turn.input {
            self.give(input)?;
        }
        for recorded in turn.outputs {
            if self.poll(recorded.ns) {
                return Ok(());
            }
        }
        if drains { self.drain(self.now_ns) } else { Ok(()) }
    }

    fn drain(&mut self, ns: u64) -> Result<(), String> {
        for _ in 0..MOST_IN_A_ROW {
            if self.poll(ns) {
                return Ok(());
            }
        }
        Err(format!("the bridge never waits after {} inputs", self.inputs))
    }

    /// Asks for one output; whether there is no more.
    fn poll(&mut self, ns: u64) -> bool {
        self.now_ns = ns;
        let at = self.at(ns);
        let mut output = self.bridge.poll_output(at);
        // What is measured is no output of a trace, and none that was waited for.
        while let Output::Observe(Observation::Measured(_)) = output {
            output = self.bridge.poll_output(at);
        }
        if let Some(mut line) = Line::of_output(ns, &output, self.audio) {
            self.cleaner.clean(&mut line);
            self.got.push(line);
        }
        self.wait = if let Output::Wait(wait) = output { wait } else { None };
        matches!(output, Output::Wait(_) | Output::Finished)
    }

    fn give(&mut self, line: &Line) -> Result<(), String> {
        self.inputs += 1;
        self.now_ns = line.ns;
        let restored = self.restored(line);
        let (bridge, now) = (&mut self.bridge, self.epoch.checked_add(Duration::from_nanos(line.ns)));
        let bad = |words| format!("input {} of the trace: {words}", self.inputs);
        let now = now.ok_or_else(|| bad("its instant is beyond any clock".to_owned()))?;
        restored.as_ref().unwrap_or(line).give(|input| bridge.handle_input(now, input)).map_err(bad)
    }

    /// A line whose audio was left out, with silence instead.
    fn restored(&mut self, line: &Line) -> Option<Line> {
        if self.audio == Kept::All {
            return None;
        }
        self.silent.0 += line.bytes.filter(|_| line.came == Some(Came::Client)).unwrap_or(0);
        let (text, count) = restored(line.text.as_ref()?);
        self.silent.1 += count;
        (count > 0).then(|| Line { text: Some(text), ..line.clone() })
    }

    /// What is due until then happens when it is due.
    fn pass_until(&mut self, ns: u64) -> Result<(), String> {
        for _ in 0..MOST_IN_A_ROW {
            let due = self.wait.and_then(|wait| wait.checked_duration_since(self.epoch));
            let due = due.and_then(|due| u64::try_from(due.as_nanos()).ok()).map(|due| due.max(self.now_ns));
            let Some(due) = due.filter(|due| *due <= ns) else { return Ok(()) };
            self.bridge.handle_input(self.at(due), Input::Timeout);
            self.drain(due)?;
        }
        Err("the bridge is woken over and over".to_owned())
    }

    fn outcome(self, trace: &Trace, same: impl Fn(&Line, &Line) -> bool) -> Outcome {
        let expected: Vec<Line> = trace.lines.iter().filter(|line| line.went.is_some()).cloned().collect();
        let differences = compare(&expected, &self.got, same);
        let mut not_judged = Vec::new();
        let (microphone, pieces) = self.silent;
        if microphone > 0 {
            not_judged.push(format!(
                "{microphone} bytes of the client's audio are not in the trace, and silence stood in for them: what follows from hearing them cannot come out the same"
            ));
        }
        if pieces > 0 {
            not_judged.push(format!(
                "{pieces} pieces of audio in messages are not in the trace, and silence stood in for them: what audio holds was not compared"
            ));
        }
        let masked =
            |line: &&Line| line.came.is_some() && line.text.as_ref().is_some_and(|text| text.contains(MASK));
        match trace.lines.iter().filter(masked).count() {
            0 => {}
            count => not_judged.push(format!("{count} messages had secrets in them, which are masked")),
        }
        if trace.lost > 0 {
            not_judged.push(format!("{} lines were lost in recording", trace.lost));
        }
        if trace.broken_off {
            not_judged.push("the trace breaks off before the session's end".to_owned());
        }
        let outputs = expected.iter().filter(|line| line.went != Some(Went::Finished)).count();
        let lasted_ms = trace.lines.iter().map(|line| line.ns).max().unwrap_or(0) / 1_000_000;
        Outcome { differences, inputs: self.inputs, outputs, lasted_ms, not_judged }
    }
}
