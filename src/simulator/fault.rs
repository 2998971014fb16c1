//! Injectable faults, by name: `NAME[=VALUE][,times=N]`.
//!
//! The real services showed each fault (mappings/notes/minicpm-o.md#queue, mappings/notes/minicpm-o.md#rejections,
//! mappings/notes/minicpm-o.md#stopping-a-chat, mappings/notes/minicpm-o-duplex.md#turns), or a network can cause it.
//! `times` limits how often a fault triggers, so that a test can show the recovery.

use std::{str::FromStr, time::Duration};

/// Kind of an injectable fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// `queue-full`: rejects the connection with `queue_full` and close code 1013.
    QueueFull,
    /// `busy`: rejects the connection with `worker_busy` and close code 1013.
    Busy,
    /// `403-after-queue[=TIMES]`: the worker rejects the session after `session.queue_done`.
    RefusedAfterQueue,
    /// `stuck-queue`: the connection stays queued forever.
    StuckQueue,
    /// `health-check-stall`: the gateway's health check meets a worker that cleans up after an impolite end. The worker
    /// counts as busy until the next check 10 s later, and connections wait in the queue meanwhile.
    HealthCheckStall,
    /// `notices-leavers`: the gateway notices at once that a queued client has left. The real ones notice late, and then
    /// lose the worker that they assign to it.
    NoticesLeavers,
    /// `slow-init=SECONDS`: delays `session.created` by SECONDS.
    SlowInit(Duration),
    /// `die-before-created`: the back-end dies during initialisation.
    DieBeforeCreated,
    /// `never-answers`: an append is discarded without an answer.
    NeverAnswers,
    /// `die-mid-answer[=DELTAS]`: the back-end dies after DELTAS deltas (default 1).
    DieMidAnswer(u32),
    /// `drop-mid-answer[=DELTAS]`: the TCP connection is aborted after DELTAS deltas (default 1).
    DropMidAnswer(u32),
    /// `empty-transcript`: recognition finds no words, which crashes the PyTorch back-end.
    EmptyTranscript,
    /// `no-audio`: a spoken answer has text but no audio; in full duplex PyTorch sends silence.
    NoAudio,
    /// `slow-steps=SECONDS`: each full-duplex step takes SECONDS longer.
    SlowSteps(Duration),
    /// `burst[=UNITS]`: a turn starts with UNITS seconds of speech at once (default 34).
    Burst(u32),
    /// `never-listens`: a turn neither ends nor obeys `force_listen`.
    NeverListens,
    /// `ignores-force[=TIMES]`: a turn ignores `force_listen` TIMES times (default 2) before it obeys.
    IgnoresForce(u32),
    /// `yields`: a turn ends when the user speaks.
    Yields,
    /// `resumes`: an interrupted turn continues with the next unit without `force_listen`.
    Resumes,
    /// `late-audio`: one second of an interrupted turn still arrives after the `listen`.
    LateAudio,
    /// `die-mid-turn[=UNITS]`: the back-end dies after UNITS units of a turn (default 1).
    DieMidTurn(u32),
    /// `drop-mid-turn[=UNITS]`: the TCP connection is aborted after UNITS units of a turn (default 1).
    DropMidTurn(u32),
    /// `double-terminal`: `listen` and `response.done` come twice, and a `response.done` follows each named `listen`.
    DoubleTerminal,
    /// `repeats-text`: every unit of a turn ends with a `response.done` that repeats the whole text so far.
    RepeatsText,
    /// `think`: the text of a turn contains a thought and a control token, split across deltas.
    Think,
    /// `inference-fails`: a unit or a request is answered with an error that does not end the session. Legacy dialect,
    /// vLLM-Omni and OpenAI's protocol only.
    InferenceFails,
    /// `input-backpressure`: an append is refused, as if too much waited. vLLM-Omni and OpenAI's protocol only.
    InputBackpressure,
    /// `output-backpressure`: the server ends the session in the middle of an answer, as if its client did not read. vLLM-Omni
    /// since 0.31 only.
    OutputBackpressure,
    /// `timeout=SECONDS`: the watchdog ends the full-duplex session after SECONDS.
    Timeout(Duration),
    /// `kv=N`: a full-duplex session starts with N context positions in use.
    KvStart(u64),
    /// `context-full=N`: closes the session with `context_full` once N context positions are in use.
    ContextFull(u64),
}

/// One configured fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Maximum number of triggers; unlimited if absent.
    pub times: Option<u32>,
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self { kind, times: None }
    }
}

impl Fault {
    /// Limits the number of triggers.
    #[must_use]
    pub const fn times(self, times: u32) -> Self {
        Self { kind: self.kind, times: Some(times) }
    }
}

/// Error: a fault specification is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseFaultError {
    /// Unknown fault name.
    #[error("unknown fault `{name}`; the faults are {}", FAULTS.map(|(name, _)| name).join(", "))]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The value does not fit the fault.
    #[error("fault `{name}` takes {expected}, not `{given}`")]
    Value {
        /// Name of the fault.
        name: String,
        /// Expected value.
        expected: &'static str,
        /// Value given.
        given: String,
    },
    /// The option after the comma is not `times=N`.
    #[error("`{0}` is not a fault option; the only option is `times=N`")]
    Option(String),
}

/// Longest burst in units: the maximum length of a session in seconds.
const MAX_BURST_UNITS: u32 = 600;

/// Longest delay of a fault; a longer one could overflow `Instant` arithmetic.
const MAX_SECONDS: f64 = 86_400.0;

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(',');
        let spec = parts.next().unwrap_or_default().trim();
        let (name, value) = match spec.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (spec, None),
        };
        let known = FAULTS.iter().find(|(known, _)| *known == name);
        let Some((_, parse)) = known else {
            return Err(ParseFaultError::Unknown { name: name.to_owned() });
        };
        let mut fault = parse(&FaultValue { name, given: value })?;
        for option in parts {
            let times = option.trim().strip_prefix("times=").and_then(|times| times.parse().ok());
            fault.times = Some(times.ok_or_else(|| ParseFaultError::Option(option.trim().to_owned()))?);
        }
        Ok(fault)
    }
}

/// Parses the value of a fault.
type ParseValue = fn(&FaultValue<'_>) -> Result<Fault, ParseFaultError>;

/// Every fault's command-line name and parser.
const FAULTS: [(&str, ParseValue); 31] = [
    ("queue-full", |value| value.expect_none(FaultKind::QueueFull)),
    ("busy", |value| value.expect_none(FaultKind::Busy)),
    ("403-after-queue", |value| {
        let times = value.given.map(|_| value.parse_count()).transpose()?;
        Ok(Fault { kind: FaultKind::RefusedAfterQueue, times })
    }),
    ("stuck-queue", |value| value.expect_none(FaultKind::StuckQueue)),
    ("health-check-stall", |value| value.expect_none(FaultKind::HealthCheckStall)),
    ("notices-leavers", |value| value.expect_none(FaultKind::NoticesLeavers)),
    ("slow-init", |value| Ok(FaultKind::SlowInit(value.parse_seconds()?).into())),
    ("die-before-created", |value| value.expect_none(FaultKind::DieBeforeCreated)),
    ("never-answers", |value| value.expect_none(FaultKind::NeverAnswers)),
    ("die-mid-answer", |value| Ok(FaultKind::DieMidAnswer(value.parse_count_or(1)?).into())),
    ("drop-mid-answer", |value| Ok(FaultKind::DropMidAnswer(value.parse_count_or(1)?).into())),
    ("empty-transcript", |value| value.expect_none(FaultKind::EmptyTranscript)),
    ("no-audio", |value| value.expect_none(FaultKind::NoAudio)),
    ("slow-steps", |value| Ok(FaultKind::SlowSteps(value.parse_seconds()?).into())),
    ("burst", |value| match value.parse_count_or(34)? {
        units @ 1..=MAX_BURST_UNITS => Ok(FaultKind::Burst(units).into()),
        _ => Err(value.error_expecting("a whole number from 1 to 600")),
    }),
    ("never-listens", |value| value.expect_none(FaultKind::NeverListens)),
    ("ignores-force", |value| Ok(FaultKind::IgnoresForce(value.parse_count_or(2)?).into())),
    ("yields", |value| value.expect_none(FaultKind::Yields)),
    ("resumes", |value| value.expect_none(FaultKind::Resumes)),
    ("late-audio", |value| value.expect_none(FaultKind::LateAudio)),
    ("die-mid-turn", |value| Ok(FaultKind::DieMidTurn(value.parse_count_or(1)?).into())),
    ("drop-mid-turn", |value| Ok(FaultKind::DropMidTurn(value.parse_count_or(1)?).into())),
    ("double-terminal", |value| value.expect_none(FaultKind::DoubleTerminal)),
    ("repeats-text", |value| value.expect_none(FaultKind::RepeatsText)),
    ("think", |value| value.expect_none(FaultKind::Think)),
    ("inference-fails", |value| value.expect_none(FaultKind::InferenceFails)),
    ("input-backpressure", |value| value.expect_none(FaultKind::InputBackpressure)),
    ("output-backpressure", |value| value.expect_none(FaultKind::OutputBackpressure)),
    ("timeout", |value| Ok(FaultKind::Timeout(value.parse_seconds()?).into())),
    ("kv", |value| Ok(FaultKind::KvStart(value.parse_count()?.into()).into())),
    ("context-full", |value| Ok(FaultKind::ContextFull(value.parse_count()?.into()).into())),
];

/// Value given after a fault's name.
struct FaultValue<'a> {
    name: &'a str,
    given: Option<&'a str>,
}

impl FaultValue<'_> {
    fn expect_none(&self, kind: FaultKind) -> Result<Fault, ParseFaultError> {
        if self.given.is_none() { Ok(kind.into()) } else { Err(self.error_expecting("no value")) }
    }

    fn parse_count_or(&self, default: u32) -> Result<u32, ParseFaultError> {
        if self.given.is_none() { Ok(default) } else { self.parse_count() }
    }

    fn parse_count(&self) -> Result<u32, ParseFaultError> {
        self.given.and_then(|text| text.parse().ok()).ok_or_else(|| self.error_expecting("a whole number"))
    }

    fn parse_seconds(&self) -> Result<Duration, ParseFaultError> {
        let seconds = self.given.and_then(|text| text.parse().ok());
        let seconds = seconds.filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
        seconds
            .map(Duration::from_secs_f64)
            .ok_or_else(|| self.error_expecting("a number of seconds up to 86400"))
    }

    fn error_expecting(&self, expected: &'static str) -> ParseFaultError {
        let given = self.given.unwrap_or("nothing").to_owned();
        ParseFaultError::Value { name: self.name.to_owned(), expected, given }
    }
}

/// Active faults with their remaining triggers.
#[derive(Debug)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Self {
        Self(faults.to_vec())
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Triggers the first remaining fault that `select` accepts, and counts the trigger.
    pub(super) fn trigger_with<T>(&mut self, select: impl Fn(FaultKind) -> Option<T>) -> Option<T> {
        for fault in self.0.iter_mut().filter(|fault| fault.times != Some(0)) {
            if let Some(found) = select(fault.kind) {
                fault.times = fault.times.map(|times| times.saturating_sub(1));
                return Some(found);
            }
        }
        None
    }

    /// Triggers a fault that has a time; returns it.
    pub(super) fn trigger_time(&mut self, kind: fn(Duration) -> FaultKind) -> Option<Duration> {
        self.trigger_with(|active| match active {
            FaultKind::SlowInit(time) | FaultKind::SlowSteps(time) | FaultKind::Timeout(time) => {
                (kind(time) == active).then_some(time)
            }
            _ => None,
        })
    }

    /// Triggers a fault that has a number of context positions; returns it.
    pub(super) fn trigger_positions(&mut self, kind: fn(u64) -> FaultKind) -> Option<u64> {
        self.trigger_with(|active| match active {
            FaultKind::KvStart(positions) | FaultKind::ContextFull(positions) => {
                (kind(positions) == active).then_some(positions)
            }
            _ => None,
        })
    }

    /// Triggers a fault without a value; returns whether it was active.
    pub(super) fn trigger(&mut self, kind: FaultKind) -> bool {
        self.trigger_with(|candidate| (candidate == kind).then_some(())).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Fault, ParseFaultError> {
        text.parse()
    }

    #[test]
    fn every_fault_name_is_parsed() {
        for (name, _) in FAULTS {
            let needs_value = ["slow-init", "slow-steps", "timeout", "kv", "context-full"].contains(&name);
            let text = if needs_value { format!("{name}=2") } else { name.to_owned() };
            assert!(parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn fault_values_and_times_are_parsed() {
        assert_eq!(parse("die-mid-answer=3,times=2"), Ok(Fault::from(FaultKind::DieMidAnswer(3)).times(2)));
        assert_eq!(parse("403-after-queue=2"), Ok(Fault::from(FaultKind::RefusedAfterQueue).times(2)));
        assert_eq!(parse("403-after-queue"), Ok(FaultKind::RefusedAfterQueue.into()));
        assert_eq!(parse(" slow-init=0.5 "), Ok(FaultKind::SlowInit(Duration::from_millis(500)).into()));
        assert_eq!(parse("queue-full,times=1"), Ok(Fault::from(FaultKind::QueueFull).times(1)));
    }

    #[test]
    fn parse_error_lists_valid_faults() {
        let unknown = parse("explode").unwrap_err().to_string();
        assert!(unknown.contains("explode") && unknown.contains("die-mid-answer"), "{unknown}");
        for bad in [
            "slow-init",
            "slow-init=-1",
            "slow-init=NaN",
            "busy=1",
            "die-mid-answer=x",
            "busy,often",
            "",
            "burst=0",
            "burst=601",
            "kv",
            "timeout=never",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fault_with_times_triggers_that_often() {
        let mut faults = Faults::new(&[Fault::from(FaultKind::Busy).times(2)]);
        let triggered: Vec<bool> = (0..3).map(|_| faults.trigger(FaultKind::Busy)).collect();
        assert_eq!(triggered, [true, true, false]);
        assert!(!faults.trigger(FaultKind::QueueFull));
    }
}
