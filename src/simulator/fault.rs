//! What can be made to go wrong, by name: `NAME[=VALUE][,times=N]`.
//!
//! Each fault is one that the real services showed (field notes §1.2, §1.5, §2) or one that a network adds. `times`
//! bounds how often it strikes, so that a test can show the recovery.

use std::{str::FromStr, time::Duration};

/// A thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// `queue-full`: the connection is answered with `queue_full` and 1013.
    QueueFull,
    /// `busy`: the connection is answered with `worker_busy` and 1013.
    Busy,
    /// `403-after-queue[=TIMES]`: the worker refuses the session after `session.queue_done`.
    RefusedAfterQueue,
    /// `stuck-queue`: the connection stays queued for ever.
    StuckQueue,
    /// `slow-init=SECONDS`: `session.created` comes that much later.
    SlowInit(Duration),
    /// `die-before-created`: the back-end dies during the initialisation.
    DieBeforeCreated,
    /// `never-answers`: an append is swallowed.
    NeverAnswers,
    /// `die-mid-answer[=DELTAS]`: the back-end dies after so many deltas (default 1).
    DieMidAnswer(u32),
    /// `drop-mid-answer[=DELTAS]`: the TCP connection is aborted after so many deltas (default 1).
    DropMidAnswer(u32),
    /// `empty-transcript`: recognition finds no words, which kills the PyTorch back-end.
    EmptyTranscript,
    /// `no-audio`: an answer that should be spoken is only written.
    NoAudio,
}

/// One configured fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// How often; always, if absent.
    pub times: Option<u32>,
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self { kind, times: None }
    }
}

impl Fault {
    /// The same, but only this often.
    #[must_use]
    pub const fn times(self, times: u32) -> Self {
        Self { kind: self.kind, times: Some(times) }
    }
}

/// Text that names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseFaultError {
    /// The name is not known.
    #[error("unknown fault `{name}`; the faults are {}", NAMES.join(", "))]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The value does not suit the fault.
    #[error("fault `{name}` takes {expected}, not `{given}`")]
    Value {
        /// The fault.
        name: String,
        /// What belongs after the `=`.
        expected: &'static str,
        /// What stood there.
        given: String,
    },
    /// What follows the comma is not `times=N`.
    #[error("`{0}` is not an option of a fault; only `times=N` is")]
    Option(String),
}

/// The names, as they are written on a command line.
const NAMES: [&str; 11] = [
    "queue-full",
    "busy",
    "403-after-queue",
    "stuck-queue",
    "slow-init",
    "die-before-created",
    "never-answers",
    "die-mid-answer",
    "drop-mid-answer",
    "empty-transcript",
    "no-audio",
];

/// Longest delay a fault may add; beyond it `Instant` arithmetic is no longer safe to assume.
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
        let mut fault = Self::named(name, value)?;
        for option in parts {
            let times = option.trim().strip_prefix("times=").and_then(|times| times.parse().ok());
            fault.times = Some(times.ok_or_else(|| ParseFaultError::Option(option.trim().to_owned()))?);
        }
        Ok(fault)
    }
}

impl Fault {
    fn named(name: &str, value: Option<&str>) -> Result<Self, ParseFaultError> {
        let wrong = |expected| ParseFaultError::Value {
            name: name.to_owned(),
            expected,
            given: value.unwrap_or("nothing").to_owned(),
        };
        let count = |default: Option<u32>| match value {
            None => Ok(default),
            Some(text) => text.parse().map(Some).map_err(|_| wrong("a whole number")),
        };
        let plain = |kind: FaultKind| match value {
            None => Ok(Self::from(kind)),
            Some(_) => Err(wrong("no value")),
        };
        match name {
            "queue-full" => plain(FaultKind::QueueFull),
            "busy" => plain(FaultKind::Busy),
            "403-after-queue" => Ok(Self { kind: FaultKind::RefusedAfterQueue, times: count(None)? }),
            "stuck-queue" => plain(FaultKind::StuckQueue),
            "slow-init" => value
                .and_then(|text| text.parse().ok())
                .filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds))
                .map(|seconds| Self::from(FaultKind::SlowInit(Duration::from_secs_f64(seconds))))
                .ok_or_else(|| wrong("a number of seconds up to 86400")),
            "die-before-created" => plain(FaultKind::DieBeforeCreated),
            "never-answers" => plain(FaultKind::NeverAnswers),
            "die-mid-answer" => Ok(FaultKind::DieMidAnswer(count(Some(1))?.unwrap_or(1)).into()),
            "drop-mid-answer" => Ok(FaultKind::DropMidAnswer(count(Some(1))?.unwrap_or(1)).into()),
            "empty-transcript" => plain(FaultKind::EmptyTranscript),
            "no-audio" => plain(FaultKind::NoAudio),
            _ => Err(ParseFaultError::Unknown { name: name.to_owned() }),
        }
    }
}

/// The configured faults with what remains of them.
#[derive(Debug)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Self {
        Self(faults.to_vec())
    }

    /// The first fault that is not used up and that `pick` wants; using it counts.
    pub(super) fn strike<T>(&mut self, pick: impl Fn(FaultKind) -> Option<T>) -> Option<T> {
        for fault in self.0.iter_mut().filter(|fault| fault.times != Some(0)) {
            if let Some(found) = pick(fault.kind) {
                fault.times = fault.times.map(|times| times.saturating_sub(1));
                return Some(found);
            }
        }
        None
    }

    /// Whether a fault without a value strikes now.
    pub(super) fn hits(&mut self, kind: FaultKind) -> bool {
        self.strike(|candidate| (candidate == kind).then_some(())).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Fault, ParseFaultError> {
        text.parse()
    }

    #[test]
    fn every_name_is_understood() {
        for name in NAMES {
            let text = if name == "slow-init" { "slow-init=2.5".to_owned() } else { name.to_owned() };
            assert!(parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn values_and_times() {
        assert_eq!(parse("die-mid-answer=3,times=2"), Ok(Fault::from(FaultKind::DieMidAnswer(3)).times(2)));
        assert_eq!(parse("403-after-queue=2"), Ok(Fault::from(FaultKind::RefusedAfterQueue).times(2)));
        assert_eq!(parse("403-after-queue"), Ok(FaultKind::RefusedAfterQueue.into()));
        assert_eq!(parse(" slow-init=0.5 "), Ok(FaultKind::SlowInit(Duration::from_millis(500)).into()));
        assert_eq!(parse("queue-full,times=1"), Ok(Fault::from(FaultKind::QueueFull).times(1)));
    }

    #[test]
    fn errors_say_what_is_valid() {
        let unknown = parse("explode").unwrap_err().to_string();
        assert!(unknown.contains("explode") && unknown.contains("die-mid-answer"), "{unknown}");
        for bad in
            ["slow-init", "slow-init=-1", "slow-init=NaN", "busy=1", "die-mid-answer=x", "busy,often", ""]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn strikes_are_counted() {
        let mut faults = Faults::new(&[Fault::from(FaultKind::Busy).times(2)]);
        let hits: Vec<bool> = (0..3).map(|_| faults.hits(FaultKind::Busy)).collect();
        assert_eq!(hits, [true, true, false]);
        assert!(!faults.hits(FaultKind::QueueFull));
    }
}
