//! Report of the checks, as text and as JSON. [`super`] describes the JSON.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    diagnosis::{CheckedServer, Diagnosis, diagnose},
    experiments::Clue,
    step::{CheckOutcome, DoctorStep, StepVerdict},
    symptom::format_duration,
};
use crate::foreign::Printable;

/// Report of one upstream or of the client path.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Name in the configuration, or else host and port.
    pub name: String,
    /// The checked server.
    pub server: CheckedServer,
    /// Outcomes of the steps, in order.
    pub outcomes: Vec<CheckOutcome>,
    /// Clue found by experiments after a failure.
    pub clue: Option<Clue>,
}

#[derive(Serialize)]
struct JsonStep<'o> {
    step: &'static str,
    verdict: &'static str,
    took_ms: Option<f64>,
    note: &'o str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Value>,
}

impl CheckReport {
    /// True if no step failed and the check was not interrupted.
    pub fn is_ok(&self) -> bool {
        let is_answer =
            |outcome: &CheckOutcome| matches!(outcome.step, DoctorStep::Answer | DoctorStep::Session);
        let has_answer =
            self.outcomes.iter().any(|outcome| is_answer(outcome) && outcome.verdict != StepVerdict::Skipped);
        has_answer && self.outcomes.iter().all(|outcome| outcome.failure().is_none())
    }

    /// Diagnoses of the failed and slow steps.
    pub fn diagnoses(&self) -> Vec<(DoctorStep, Diagnosis)> {
        let diagnose_outcome = |outcome: &CheckOutcome| match &outcome.verdict {
            StepVerdict::Failed(symptom) => {
                Some((outcome.step, diagnose(&self.server, outcome.step, symptom, self.clue.as_ref())))
            }
            StepVerdict::Slow(symptom) => {
                Some((outcome.step, diagnose(&self.server, outcome.step, symptom, None)))
            }
            StepVerdict::Ok | StepVerdict::Skipped => None,
        };
        self.outcomes.iter().filter_map(diagnose_outcome).collect()
    }

    /// This report as JSON.
    pub fn to_json(&self) -> Value {
        let diagnoses = self.diagnoses();
        let json_step = |outcome: &CheckOutcome| {
            let problem = diagnoses.iter().find(|(step, _)| *step == outcome.step).map(|(_, diagnosis)| {
                json!({
                    "seen": Printable(&diagnosis.seen).to_string(),
                    "cause": diagnosis.cause, "advice": diagnosis.advice,
                })
            });
            let took_ms = outcome.took.map(|took| (took.as_secs_f64() * 1e4).round() / 10.0);
            let note = Printable(&outcome.note).to_string();
            json!(JsonStep {
                step: outcome.step.name(),
                verdict: outcome.verdict.name(),
                took_ms,
                note: &note,
                problem
            })
        };
        let steps: Vec<Value> = self.outcomes.iter().map(json_step).collect();
        json!({
            "name": self.name, "url": self.server.url, "dialect": self.server.dialect, "ok": self.is_ok(), "steps": steps,
        })
    }
}

/// All reports as JSON.
pub fn reports_to_json(reports: &[CheckReport]) -> Value {
    let each: Vec<Value> = reports.iter().map(CheckReport::to_json).collect();
    json!({"ok": reports.iter().all(CheckReport::is_ok), "checks": each})
}

/// Formats a step as one line: verdict, step, duration, note.
pub fn format_step_line(outcome: &CheckOutcome) -> String {
    let took = outcome.took.map(format_duration).unwrap_or_default();
    let note = match outcome.verdict {
        StepVerdict::Skipped => format!("because {}", outcome.note),
        _ => outcome.note.clone(),
    };
    let line = format!(
        "  {:<8} {:<13} {took:>7}  {}",
        outcome.verdict.name(),
        outcome.step.name(),
        Printable(&note)
    );
    line.trim_end().to_owned()
}

/// Formats a diagnosis as a paragraph.
pub fn format_diagnosis(step: DoctorStep, diagnosis: &Diagnosis) -> String {
    let Diagnosis { seen, cause, advice } = diagnosis;
    let text =
        format!("{}: {} {cause} What to do: {}", step.name(), Printable(seen), lowercase_first(advice));
    wrap_lines(&text, 100)
}

/// Outcomes of the steps that were not reached, with the reason.
pub fn skipped_steps(taken: &[CheckOutcome], steps: &[DoctorStep]) -> Vec<CheckOutcome> {
    let failed = taken.iter().find(|outcome| outcome.failure().is_some());
    let reason = failed.map_or("interrupted".to_owned(), |outcome| format!("{} failed", outcome.step.name()));
    let missing = steps.iter().filter(|step| !taken.iter().any(|outcome| outcome.step == **step));
    missing.map(|step| CheckOutcome::skipped(*step, reason.clone())).collect()
}

/// Lowercases the first letter, except in words of capitals or code.
fn lowercase_first(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Wraps text at spaces and indents each line.
fn wrap_lines(text: &str, width: usize) -> String {
    let mut lines = vec![String::from(" ")];
    for word in text.split_whitespace() {
        let is_full = lines.last().is_some_and(|line| line.chars().count() + word.chars().count() >= width);
        if is_full {
            lines.push(String::from(" "));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n")
}
