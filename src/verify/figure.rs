//! One figure of an acceptance run: what was measured, what was expected, and the verdict.

use std::{fmt, path::Path, str::FromStr};

use serde::{Deserialize, Serialize};

use super::advice;
use crate::{foreign::Printable, named_enum::named_enum};

named_enum! {
    /// Section of an acceptance run, in the order of the run.
    pub enum Section {
        /// Every step to the upstreams, as `doctor` checks them.
        Server = "server",
        /// Recordings with known words.
        Transcription = "transcription",
        /// Texts, which are transcribed back.
        Speech = "speech",
        /// Each language asked for.
        Languages = "languages",
        /// A turn of the profile `assistant`.
        Assistant = "assistant",
        /// Calls of a client's functions.
        Tools = "tools",
        /// Full duplex, with an interruption and a rollover.
        Conversation = "conversation",
        /// Sessions at a time.
        Capacity = "capacity",
    }
}

impl Section {
    /// The section with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|section| section.name() == name)
    }
}

named_enum! {
    /// Verdict on a figure.
    pub enum Verdict {
        /// The figure is as expected.
        Pass = "pass",
        /// It is not.
        Fail = "fail",
        /// The server does not offer what the figure is about.
        Skipped = "skipped",
    }
}

/// Requirement on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Expectation {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// The step succeeds, whatever its value.
    Succeeds,
}

impl Expectation {
    const fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Succeeds => true,
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "<= {limit}"),
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
            Self::Succeeds => f.write_str("succeeds"),
        }
    }
}

impl From<Expectation> for String {
    fn from(expectation: Expectation) -> Self {
        expectation.to_string()
    }
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let read = match (text.strip_prefix("<="), text.strip_prefix(">=")) {
            (Some(limit), _) => number(limit).map(Self::AtMost),
            (_, Some(limit)) => number(limit).map(Self::AtLeast),
            _ => (text == "succeeds").then_some(Self::Succeeds),
        };
        read.ok_or_else(|| {
            format!("expected `<= NUMBER`, `>= NUMBER` or `succeeds`, not `{}`", Printable(text))
        })
    }
}

impl TryFrom<String> for Expectation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Section and name, such as `speech.first_audio`.
    pub name: String,
    /// The value; `None` if there was nothing to measure.
    pub value: Option<f64>,
    /// Unit of the value, such as `s` or `share`.
    pub unit: String,
    /// Requirement on the value.
    pub expected: Expectation,
    /// The verdict.
    pub verdict: Verdict,
    /// Observations.
    #[serde(default)]
    pub note: String,
    /// File with a trace of a failure.
    #[serde(default)]
    pub trace: Option<String>,
    /// Advice after a failure.
    #[serde(default, rename = "try")]
    pub advice: Option<String>,
    /// MP3 file of the sound that the figure is about.
    #[serde(skip)]
    pub sound: Vec<u8>,
}

impl Figure {
    /// A measured figure.
    #[must_use]
    pub fn measured(name: impl Into<String>, value: f64, unit: &str, expected: Expectation) -> Self {
        let verdict = if expected.is_met_by(value) { Verdict::Pass } else { Verdict::Fail };
        Self::new(name.into(), Some(value), unit, expected, verdict)
    }

    /// A figure that could not be measured, because something failed.
    #[must_use]
    pub fn failed(name: impl Into<String>, unit: &str, expected: Expectation, problem: &str) -> Self {
        Self::new(name.into(), None, unit, expected, Verdict::Fail).with_note(problem)
    }

    /// A figure about something that the server does not offer.
    #[must_use]
    pub fn skipped(name: impl Into<String>, reason: &str) -> Self {
        Self::new(name.into(), None, "", Expectation::Succeeds, Verdict::Skipped).with_note(reason)
    }

    fn new(name: String, value: Option<f64>, unit: &str, expected: Expectation, verdict: Verdict) -> Self {
        // Enough for every unit, and no noise in files.
        let value = value.map(|value| (value * 1e4).round() / 1e4);
        let advice = (verdict == Verdict::Fail).then(|| advice::for_figure(&name).to_owned());
        let (unit, note) = (unit.to_owned(), String::new());
        Self { name, value, unit, expected, verdict, note, trace: None, advice, sound: Vec::new() }
    }

    /// Says what was seen.
    #[must_use]
    pub fn with_note(self, note: &str) -> Self {
        Self { note: Printable(note).to_string(), ..self }
    }

    /// Says what to try after a failure, in place of the usual advice.
    #[must_use]
    pub fn with_advice(self, advice: &str) -> Self {
        let is_failed = self.verdict == Verdict::Fail;
        Self { advice: is_failed.then(|| Printable(advice).to_string()), ..self }
    }

    /// Adds an MP3 file of its sound.
    #[must_use]
    pub fn with_sound(self, sound: Vec<u8>) -> Self {
        Self { sound, ..self }
    }

    /// Names the trace of a failure. A trace that is named already stays.
    pub fn set_trace(&mut self, trace: &Path) {
        if self.verdict == Verdict::Fail && self.trace.is_none() {
            self.trace = Some(trace.display().to_string());
        }
    }

    /// The name of its section.
    #[must_use]
    pub fn section(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// The value with its unit.
    #[must_use]
    pub fn display_value(&self) -> String {
        self.value.map_or_else(|| "-".to_owned(), |value| display_number(value, &self.unit))
    }
}

/// A number with its unit, as reports show it.
#[must_use]
pub fn display_number(value: f64, unit: &str) -> String {
    match unit {
        "share" => format!("{:.1} %", value * 100.0),
        "" => format!("{value}"),
        unit if value.fract() == 0.0 => format!("{value} {unit}"),
        unit => format!("{value:.2} {unit}"),
    }
}

/// True if figures passed and none failed.
#[must_use]
pub fn all_pass(figures: &[Figure]) -> bool {
    let count = |verdict| figures.iter().filter(|figure| figure.verdict == verdict).count();
    count(Verdict::Fail) == 0 && count(Verdict::Pass) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_follows_the_expectation() {
        let verdict = |value, expected| Figure::measured("a.b", value, "s", expected).verdict;
        assert_eq!(verdict(1.0, Expectation::AtMost(1.0)), Verdict::Pass);
        assert_eq!(verdict(1.1, Expectation::AtMost(1.0)), Verdict::Fail);
        assert_eq!(verdict(f64::NAN, Expectation::AtMost(1.0)), Verdict::Fail);
        assert_eq!(verdict(0.9, Expectation::AtLeast(1.0)), Verdict::Fail);
        assert_eq!(verdict(0.0, Expectation::Succeeds), Verdict::Pass);
        assert!(!all_pass(&[]) && !all_pass(&[Figure::skipped("a", "no")]), "nothing was measured");
    }

    #[test]
    fn only_failures_have_advice_and_a_trace() {
        for (value, is_failed) in [(0.5, false), (2.0, true)] {
            let mut figure =
                Figure::measured("speech.first_audio", value, "s", Expectation::AtMost(1.0)).with_advice("x");
            figure.set_trace(Path::new("a.jsonl"));
            figure.set_trace(Path::new("b.jsonl"));
            assert_eq!(figure.advice.is_some(), is_failed);
            assert_eq!(figure.trace.as_deref(), is_failed.then_some("a.jsonl"));
        }
    }

    #[test]
    fn figure_survives_json_and_foreign_text_is_one_line() {
        let figure = Figure::failed("a.b", "share", Expectation::AtLeast(0.8), "line\n\u{1b}[31m");
        assert_eq!(figure.note, r"line\n\u{1b}[31m");
        let json = serde_json::to_string(&figure).unwrap();
        assert!(json.contains(r#""expected":">= 0.8""#) && json.contains(r#""try":"#), "{json}");
        assert_eq!(serde_json::from_str::<Figure>(&json).unwrap(), figure);
        assert!("about 3".parse::<Expectation>().is_err());
    }
}
